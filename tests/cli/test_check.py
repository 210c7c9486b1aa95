"""`smdebug check`: what it says, and how it ends."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from tests.command import smdebug

from smdebug.mode_keys import ModeKeys
from smdebug.storage.batch import Entry, StepBatch
from smdebug.testing import make_run

if TYPE_CHECKING:
    from pathlib import Path


check = partial(smdebug, COLUMNS="300")


def hostile(worker: str, step: int) -> StepBatch:
    entries = [Entry("[red]fc\x1b[2J", np.arange(6.0)), Entry("loss", np.float32(step))]
    return StepBatch(step, ModeKeys.TRAIN, step, entries)


def test_a_run(tmp_path: Path) -> None:
    make_run(tmp_path / "run", range(4), data=hostile)
    whole = check(tmp_path, "check", "run")
    assert whole.stderr == ""
    assert whole.stdout.startswith("no damage; checked 4 files, 8 rows, 4 records, ")
    assert len(whole.stdout.splitlines()) == 1
    (path,) = (tmp_path / "run/events").rglob("*.tfevents")
    data = bytearray(path.read_bytes())
    data[-20] ^= 1
    path.write_bytes(data)
    (tmp_path / "run/mine.txt").touch()
    damaged = check(tmp_path, "check", "run", code=1)
    assert damaged.stderr == ""
    key = path.relative_to(tmp_path / "run").as_posix()
    offset = len(data) * 3 // 4
    (line,) = [line for line in damaged.stdout.splitlines() if key in line]
    # The name is shown as it is, and obeyed by nobody.
    assert f"offset {offset}, tensor [red]fc\\x1b[2J, step 3" in line
    assert "record payload fails its checksum" in line
    assert "note: files that are none of a run: 1 (mine.txt)" in damaged.stdout
    assert damaged.stdout.splitlines()[-1].startswith("damaged: 1; checked 5 files, 8 rows, 3 ")
    told = json.loads(check(tmp_path, "check", "run", "--json", code=1).stdout)
    assert told["damages"] == [
        {
            "file": key, "what": "record payload fails its checksum", "offset": offset,
            "row": None, "tensor": "[red]fc\x1b[2J", "step": 3, "worker": None,
        }
    ]  # fmt: skip
    assert (told["damaged"], told["rows"], told["finished"]) == (1, 8, True)
    assert told["remarks"][0]["files"] == ["mine.txt"]


def test_what_makes_no_sense(tmp_path: Path) -> None:
    make_run(tmp_path / "run-one")
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other/file").touch()
    for place, said in (
        ("run-ome", "did you mean run-one?"),
        ("empty", "is empty"),
        ("other", "is not a run: it holds file"),
    ):
        ended = check(tmp_path, "check", place, code=2)
        assert ended.stdout == ""
        assert said in ended.stderr
