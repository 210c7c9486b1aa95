"""The code of docs/trials.md runs, with matplotlib that shows nothing."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
from tests.pages import blocks

from smdebug.config.collection import Collection
from smdebug.config.collection_manager import CollectionManager
from smdebug.mode_keys import ModeKeys
from smdebug.storage.batch import Entry, StepBatch
from smdebug.testing import make_run

PAGE = Path(__file__).parent.parent / "docs" / "trials.md"
TEXT = PAGE.read_text(encoding="utf-8")

BEFORE = """
import matplotlib

matplotlib.use("Agg")
"""
AFTER = """
from matplotlib import pyplot

for number in pyplot.get_fignums():
    pyplot.figure(number).savefig(f"{number}.png")
print(len(pyplot.get_fignums()))
"""


def batch(worker: str, step: int) -> StepBatch:
    mode = ModeKeys.EVAL if step % 4 == 3 else ModeKeys.TRAIN
    random = np.random.default_rng(step)
    entries = [
        Entry("loss", np.array(1 / (step + 1))),
        Entry("fc.weight", random.standard_normal((4, 5))),
        Entry("gradient/fc.weight", reductions={"l2": float(random.random())}),
        Entry("learning_rate", np.array(0.1)),
    ]
    return StepBatch(step, mode, step, entries)


def test_code_runs(tmp_path: Path) -> None:
    regexes = {"losses": "loss", "weights": "^fc.weight$", "gradients": "^gradient/"}
    manager = CollectionManager(
        [Collection(name, include_regex=regex) for name, regex in regexes.items()]
    )
    make_run(tmp_path / "runs/first", range(60), data=batch, collections=manager)
    code = blocks("docs/trials.md", "core")
    plots = sum(len(re.findall(r"\.plot\(", block)) for block in code)
    assert plots >= 5
    program = "\n".join([BEFORE, *code, AFTER])
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(plots)]
    assert len(list(tmp_path.glob("*.png"))) == plots


def test_links() -> None:
    for target in re.findall(r"\]\(([^)#]+)", TEXT):
        assert (PAGE.parent / target).is_file(), target
