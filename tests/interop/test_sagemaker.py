"""One script in two jobs of SageMaker, one with either library: they leave the same run behind."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.sagemaker_job import Ended, Job

if TYPE_CHECKING:
    from collections.abc import Callable

SCRIPT = Path(__file__).parents[1] / "jobs" / "train_pytorch.py"
PARAMETERS = {"train.save_interval": "2", "eval.save_interval": "1", "include_workers": "one"}
COLLECTIONS = {
    "weights": None,
    "gradients": {"reductions": "mean,l2_norm,abs_max", "train.save_interval": "4"},
    "custom": {"include_regex": "fc2_output,fc1_output", "save_steps": "1", "end_step": "0"},
}

Seen = dict[str, Any]


@pytest.fixture(scope="module")
def seen(
    tmp_path_factory: pytest.TempPathFactory, ask_original: Callable[[Path], Seen]
) -> tuple[Seen, Seen]:
    """What smdebug 1.0.34 says of the run of the script with our library, and with its own."""
    ours, theirs = (Job(tmp_path_factory.mktemp(name) / "ml") for name in ("ours", "theirs"))
    for job in (ours, theirs):
        job.configure(PARAMETERS, COLLECTIONS)
    ended = ours.run(SCRIPT, "get_hook")
    done = subprocess.run(
        [os.environ["TORNASOLE_PEER_PYTHON"], "-I", str(SCRIPT), "get_hook"],
        cwd=theirs.root / "code", env={**theirs.variables, "SMDEBUG_LOG_LEVEL": "error"},
        capture_output=True, text=True, check=True, timeout=100,
    )  # fmt: skip
    # It is the same training: not one number differs.
    assert Ended(done.stdout, 0, 0).told == ended.told
    for job in (ours, theirs):
        assert not (job.tensors / "training_job_end.ts").exists()
        # As the platform does when the job is over.
        (job.tensors / "training_job_end.ts").touch()
    return ask_original(ours.tensors), ask_original(theirs.tensors)


def rows(seen: Seen) -> dict[tuple[str, int], Any]:
    """All but scalars, which the original writes to a later step than they are saved at."""
    found = [row for row in seen["rows"] if not row["tensor"].startswith("scalar/")]
    return {(row["tensor"], row["step"]): row for row in found}


def test_the_same_tensors_at_the_same_steps(seen: tuple[Seen, Seen]) -> None:
    ours, theirs = seen
    assert len(rows(ours)) > 30
    assert rows(ours).keys() == rows(theirs).keys()
    for key, modes in (("steps", ("TRAIN", "EVAL")), ("tensor_names_of_mode", ("TRAIN",))):
        for mode in modes:
            assert ours[key][mode] == theirs[key][mode]
    assert ours["workers"] == theirs["workers"] == ["worker_0"]


def test_the_same_values(seen: tuple[Seen, Seen]) -> None:
    ours, theirs = (rows(each) for each in seen)
    for key, row in ours.items():
        value, other = row["value"], theirs[key]["value"]
        if isinstance(other, dict):
            assert value == other  # only reductions are saved
            assert row["saved_reductions"].keys() == theirs[key]["saved_reductions"].keys()
            for name, number in row["saved_reductions"].items():
                expected = theirs[key]["saved_reductions"][name]
                np.testing.assert_allclose(number, expected, rtol=1e-5, atol=1e-9)
        else:
            assert value.dtype == other.dtype
            np.testing.assert_array_equal(value, other)


def test_the_same_collections(seen: tuple[Seen, Seen]) -> None:
    ours, theirs = (each["collections"] for each in seen)
    assert theirs.keys() <= ours.keys()
    for name in ("weights", "gradients", "custom", "losses"):
        for key in ("save_config", "include_regex"):
            assert ours[name][key] == theirs[name][key], name
