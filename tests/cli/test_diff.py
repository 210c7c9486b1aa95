"""`smdebug diff`: what it says, and how it ends."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from tests.command import smdebug

from smdebug.mode_keys import ModeKeys
from smdebug.storage.batch import Entry, StepBatch
from smdebug.testing import make_run

if TYPE_CHECKING:
    from collections.abc import Callable


diff = partial(smdebug, COLUMNS="300")


def data(moved: float) -> Callable[[str, int], StepBatch]:
    def batch(worker: str, step: int) -> StepBatch:
        weight = np.arange(320, dtype=np.float32).reshape(40, 8)
        late = step >= 4
        if late:
            weight[3, 7] += moved
            weight[0, 0] += moved / 4
        entries = [
            Entry("loss", np.float32(1)),
            Entry("[b]w\x07", weight),
            Entry("norm", None, {"l2": 1.0 + late * moved}, shape=(2,), dtype="float32"),
        ]
        return StepBatch(step, ModeKeys.TRAIN, step, entries)

    return batch


def test_runs(tmp_path: Path) -> None:
    make_run(tmp_path / "a", range(6), data=data(0.0))
    make_run(tmp_path / "b", range(6), data=data(0.0), format="v1")
    make_run(tmp_path / "c", range(9), data=data(0.5))
    same = diff(tmp_path, "diff", "a", "b")
    assert same.stderr == ""
    assert same.stdout == "no difference; tensors compared, step by step: 18\n"
    other = diff(tmp_path, "diff", "a", "c", code=1)
    assert other.stderr == ""
    lines = other.stdout.splitlines()
    assert lines[0] == (
        "first difference: step 4, tensor [b]w\\x07 (2nd of 3 in the step): max |a-b| 0.5 at "
        "[3, 7], 2 of 320 elements differ"
    )
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines if "│" in line]
    assert rows == [
        ["4", "norm", "l2 1 against 1.5"],
        ["5", "[b]w\\x07", "max |a-b| 0.5 at [3, 7], 2 of 320 elements differ"],
        ["5", "norm", "l2 1 against 1.5"],
    ]
    assert lines[-1] == "note: only in c: 3 steps (6, 7, 8)"
    make_run(tmp_path / "d", range(7), data=data(0.0))
    one_more = diff(tmp_path, "diff", "a", "d").stdout
    assert one_more.endswith("note: only in d: 1 step (6)\n")
    ended = diff(tmp_path, "diff", "a", "c", "--json", "--tensor", "norm", code=1)
    told = json.loads(ended.stdout)
    assert told["equal"] is False
    first = told["differences"][0]
    assert (first["step"], first["tensor"], first["place"], first["of"]) == (4, "norm", 3, 3)
    assert (first["mismatch"]["first"], first["mismatch"]["second"]) == (1.0, 1.5)
    assert told["only_second"]["steps"] == {"count": 3, "some": [6, 7, 8]}
    diff(tmp_path, "diff", "a", "c", "--atol", "1", code=0)


def test_the_program_of_the_page(tmp_path: Path) -> None:
    make_run(tmp_path / "runs/one", range(6), data=data(0.0))
    make_run(tmp_path / "runs/two", range(6), data=data(0.5))
    page = Path(__file__).parents[2] / "docs/command_line.md"
    section = page.read_text(encoding="utf-8").partition("## smdebug diff")[2]
    code = section.partition("```python\n")[2].partition("```")[0]
    ended = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path, capture_output=True, text=True, timeout=100, check=True,
    )  # fmt: skip
    assert ended.stdout == "4 [b]w\x07 0.5\n"


def test_what_makes_no_sense(tmp_path: Path) -> None:
    make_run(tmp_path / "run", range(2))
    make_run(tmp_path / "later", range(5, 7))
    for arguments, said in (
        (["run", "nowhere"], "a hook has saved to, got 'nowhere'"),
        (
            ["run", "later"],
            "must have steps in common to be compared; the first has 0, 1, the",
        ),
        (["run", "run", "--mode", "testing"], "--mode must be one of train"),
        (["run", "run", "--mode", "eval"], "must have steps of mode eval in common"),
        (["run", "run", "--reduction", "l3"], "unknown reduction 'l3'"),
        (["run", "run", "--tensor", "("], "must be a regular expression"),
        (["run", "run", "--rtol", "-1"], "rtol must be a number of at least 0"),
        (["run"], "RUN2"),
    ):
        ended = diff(tmp_path, "diff", *arguments, code=2)
        assert ended.stdout == "", arguments
        assert said in ended.stderr, (arguments, ended.stderr)
