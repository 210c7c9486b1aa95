"""Golden runs: what releases before this one have written is read as it was saved.

The runs in `tests/golden` were written by `tools/golden_runs`, once. A test that fails here means
that runs of users are read differently, or not at all, and not that they are to be written again.
"""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.command import smdebug
from tests.golden_reads import (
    GOLDEN,
    Unexpected,
    apply_damage,
    load_truth,
    read_everything,
)
from tests.hook.numpy_hook import NumpyHook
from tools.golden_runs.recorder import Recorder, Step

from smdebug import SaveConfig, modes
from smdebug.storage.stores.base import open_store
from smdebug.storage.v2.compaction import compact_run

if TYPE_CHECKING:
    from pathlib import Path

NAMES = sorted(path.stem for path in GOLDEN.glob("*.json"))
INTACT = [name for name in NAMES if not name.startswith("damaged_")]
DAMAGED = [name for name in NAMES if name.startswith("damaged_")]
# A hook without a framework can resume as the worker that most runs were written by.
ONE_WORKER = [name for name in INTACT if load_truth(name)["workers"] == ["worker_0"]]


def copy_of(name: str, tmp_path: Path) -> Path:
    """Return a copy of a golden run: even reading it takes the locks in it."""
    truth = load_truth(name)
    run = tmp_path / "run"
    shutil.copytree(GOLDEN / truth.get("copy_of", name), run)
    if "damage" in truth:
        apply_damage(run, truth["damage"])
    return run


def test_every_run_has_a_truth_and_every_truth_a_run() -> None:
    assert sorted(path.name for path in GOLDEN.iterdir() if path.is_dir()) == INTACT
    frameworks = {"keras", "mxnet", "pytorch", "xgboost"}
    assert {name.partition("_")[0] for name in INTACT} == frameworks
    for framework in frameworks:
        assert {f"{framework}_v1", f"{framework}_v2"} <= set(INTACT)
    assert len(DAMAGED) >= 10


@pytest.mark.parametrize("name", INTACT)
def test_an_intact_run_is_read_as_it_was_saved(name: str, tmp_path: Path) -> None:
    truth = load_truth(name)
    assert truth["failures"] == {}
    assert read_everything(copy_of(name, tmp_path), truth) == {}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_run_is_read_as_it_was_saved_or_raises(name: str, tmp_path: Path) -> None:
    truth = load_truth(name)
    assert truth["failures"]
    assert read_everything(copy_of(name, tmp_path), truth) == truth["failures"]


@pytest.mark.parametrize("name", NAMES)
def test_check(name: str, tmp_path: Path) -> None:
    expected = load_truth(name)["check"]
    copy_of(name, tmp_path)
    ended = smdebug(tmp_path, "check", "run", "--json", code=expected["status"])
    found = json.loads(ended.stdout)
    assert sorted({damage["file"] for damage in found["damages"]}) == expected["files"]


@pytest.mark.parametrize("name", [name for name in INTACT if name.endswith("v2")])
def test_a_compacted_run_is_read_as_before(name: str, tmp_path: Path) -> None:
    run = copy_of(name, tmp_path)
    compact_run(open_store(str(run)), remove_orphans=True)
    index = [path for path in (run / "index").rglob("*") if path.is_file()]
    assert len(index) == len(load_truth(name)["workers"])
    assert read_everything(run, load_truth(name)) == {}


@pytest.mark.parametrize("name", ONE_WORKER)
def test_a_run_can_be_resumed(name: str, tmp_path: Path) -> None:
    run = copy_of(name, tmp_path)
    truth = load_truth(name)
    loss = np.array([0.25, -1.5], np.float32)
    with NumpyHook(
        run, resume=True, save_config=SaveConfig(save_interval=1), on_error="raise"
    ) as hook:
        hook.set_mode(modes.TRAIN)
        hook.run(new_loss=loss)
    train = [each["mode_step"] for each in truth["records"] if each["mode"] == "TRAIN"]
    last = max(each["step"] for each in truth["records"])
    recorder = Recorder(tmp_path / "new", truth["format"], {})
    recorder.save(Step(last + 1, "TRAIN", max(train) + 1), "new_loss", loss)
    recorder.write()
    (record,) = load_truth("new", tmp_path)["records"]
    changed = {
        "finished": True, "last_complete_step": last + 1, "collections": None,
        "records": [*truth["records"], record],
    }  # fmt: skip
    assert read_everything(run, {**truth, **changed}) == {}


# ---- these tests can fail


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("tensor", "another"),
        ("step", 7),
        ("mode", "PREDICT"),
        ("mode_step", 9),
        ("dtype", "float16"),
        ("shape", [16]),
        ("value", "00" * 64),
        ("worker", "worker_1"),
        ("reductions", {"mean": "0x1.8p+0"}),
    ],
)
def test_another_truth_is_noticed(key: str, value: Any, tmp_path: Path) -> None:
    truth = load_truth("pytorch_v2")
    changed = next(each for each in truth["records"] if each["value"] and each["shape"] == [4, 4])
    assert changed[key] != value
    changed[key] = value
    try:
        failures = read_everything(copy_of("pytorch_v2", tmp_path), truth)
    except Unexpected:
        return
    assert failures


@pytest.mark.parametrize("key", ["finished", "workers", "last_complete_step", "collections"])
def test_another_truth_about_the_run_is_noticed(key: str, tmp_path: Path) -> None:
    truth = load_truth("pytorch_v2")
    other = {"finished": False, "workers": ["a"], "last_complete_step": 4, "collections": {}}
    with pytest.raises(Unexpected):
        read_everything(copy_of("pytorch_v2", tmp_path), {**truth, key: other[key]})
