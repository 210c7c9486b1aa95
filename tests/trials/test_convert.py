"""A run in the other format is the same run."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.trials.mixed_run import AWKWARD, STEPS, WORKERS, make_mixed

from smdebug.exceptions import SMDebugRuntimeError, SMDebugValueError
from smdebug.mode_keys import ModeKeys
from smdebug.rules import run_rules
from smdebug.storage.stores.base import open_store
from smdebug.storage.stores.local import LocalStore
from smdebug.storage.writer_lock import WriterLock
from smdebug.testing import make_run
from smdebug.trials import create_trial
from smdebug.trials.export.convert import convert_run
from smdebug.trials.selection import Selection

if TYPE_CHECKING:
    from pathlib import Path

    from smdebug.trials.trial import Trial

SHORT = {"short/bfloat16", "short/float8_e4m3fn", "short/float8_e5m2"}


def convert(run: Path, out: Path, format: str, force: bool = False, **chosen: Any) -> Any:
    return convert_run(Selection(create_trial(str(run)), **chosen), str(out), format, force=force)


def content(trial: Trial) -> dict[tuple[str, int, str], Any]:
    """All that a trial says, bit for bit; times of format v1 are in its records."""
    found = {}
    for name in trial.tensor_names():
        tensor = trial.tensor(name)
        for worker in trial.workers():
            for step in tensor.steps():
                if worker not in tensor.workers(step):
                    continue
                saved = tensor.reduction_values(step, worker=worker)
                try:
                    value = tensor.value(step, worker=worker)
                    bits: Any = (value.dtype, value.shape, value.tobytes())
                except Exception as error:
                    bits = type(error).__name__
                numbers = {key: np.float64(each).tobytes() for key, each in saved.items()}
                found[worker, step, name] = bits, numbers, trial.mode_modestep(step)
    return found


def times(trial: Trial) -> set[tuple[int, float | None]]:
    columns = ["time", "worker", "tensor", "step", "event_file", "offset", "length", "checksum"]
    table = trial.to_arrow([*columns, "digest", "seq", "value", "dtype", "shape"])
    return set(zip(table["step"].to_pylist(), trial.row_times(table), strict=True))


@pytest.mark.parametrize("format", ["v1", "v2"])
@pytest.mark.parametrize("source", ["v1", "v2"])
def test_the_same(source: str, format: str, tmp_path: Path) -> None:
    truth = make_mixed(tmp_path / "run", format=source)
    done = convert(tmp_path / "run", tmp_path / "out", format)
    before, after = create_trial(str(tmp_path / "run")), create_trial(str(tmp_path / "out"))
    assert (done.steps, done.rows) == (len(STEPS), len(truth))
    widened = SHORT if (source, format) == ("v2", "v1") else set()
    assert done.widened.keys() == widened
    expected, found = content(before), content(after)
    assert found.keys() == expected.keys() == truth.keys()
    assert {key: each for key, each in found.items() if key[2] not in widened} == {
        key: each for key, each in expected.items() if key[2] not in widened
    }
    for worker, step, name in found:
        if name in widened:
            value = after.tensor(name).value(step, worker=worker)
            saved = truth[worker, step, name].value
            assert value.dtype == np.float32
            assert saved is not None
            np.testing.assert_array_equal(value, saved.astype(np.float32))
    assert after.loaded_all_steps
    assert after.steps() == before.steps()
    assert after.steps(ModeKeys.EVAL) == [0]
    assert after.workers() == sorted(WORKERS)
    assert after.collection_files() == before.collection_files()
    assert times(after) == times(before) == {(step, 1000.0 + step) for step in STEPS}
    endings = {path.suffix for path in (tmp_path / "out" / "index").rglob("*.*")}
    assert endings == {".json" if format == "v1" else ".parquet"}


def test_the_order_within_a_step_stays(tmp_path: Path) -> None:
    truth = make_mixed(tmp_path / "run", WORKERS[:1], steps=[0])
    convert(tmp_path / "run", tmp_path / "old", "v1")
    convert(tmp_path / "old", tmp_path / "new", "v2")
    for place in ("run", "old", "new"):
        rows = create_trial(str(tmp_path / place)).to_arrow(["tensor", "position"]).to_pylist()
        ordered = [row["tensor"] for row in sorted(rows, key=lambda row: row["position"])]
        names = [name for _, _, name in truth]
        if place == "run":
            assert ordered == names
        else:
            # Format v1 keeps shapes apart from records.
            assert set(ordered) == set(names)


def test_a_part(tmp_path: Path) -> None:
    make_mixed(tmp_path / "run", end=False)
    convert(
        tmp_path / "run", tmp_path / "out", "v1",
        worker=WORKERS[1], steps=(1, 1000), tensor="weight|name", mode=ModeKeys.TRAIN,
    )  # fmt: skip
    # It waits for one worker only, and the job has not ended.
    trial = create_trial(str(tmp_path / "out"), wait_seconds=0)
    assert trial.workers() == [WORKERS[1]]
    assert trial.tensor_names() == [AWKWARD, "fc.weight"]
    assert trial.steps(show_incomplete_steps=True) == [1, 40]
    assert not trial.loaded_all_steps
    assert not (tmp_path / "out" / "training_job_end.ts").exists()


def test_findings_go_with_a_whole_run(tmp_path: Path) -> None:
    make_mixed(tmp_path / "run", WORKERS[:1])
    run_rules(str(tmp_path / "run"), ["NonFinite"])
    convert(tmp_path / "run", tmp_path / "whole", "v2")
    convert(tmp_path / "run", tmp_path / "part", "v2", tensor="^plain")
    known = create_trial(str(tmp_path / "run")).findings()
    assert known
    assert create_trial(str(tmp_path / "whole")).findings() == known
    assert create_trial(str(tmp_path / "part")).findings() == []


def test_what_is_refused(tmp_path: Path) -> None:
    run, out = tmp_path / "run", tmp_path / "out"
    make_mixed(run, WORKERS[:1])
    before = content(create_trial(str(run)))
    (tmp_path / "link").symlink_to(run)
    for place in (run, run / "inside", tmp_path, tmp_path / "link", tmp_path / "x" / ".." / "run"):
        with pytest.raises(SMDebugValueError, match="must lie apart"):
            convert(run, place, "v1", force=True)
    assert content(create_trial(str(run))) == before
    convert(run, out, "v1")
    with pytest.raises(SMDebugValueError, match="must be new"):
        convert(run, out, "v2")
    (out / "mine.txt").write_text("mine", encoding="utf-8")
    convert(run, out, "v2", force=True, steps=(40, None))
    again = create_trial(str(out))
    assert again.steps() == [40, 1001]
    assert not list(out.rglob("index/**/*.json"))
    assert (out / "mine.txt").exists()


def test_a_run_that_is_written_is_left_alone(tmp_path: Path) -> None:
    run, out = tmp_path / "run", tmp_path / "out"
    make_mixed(run, WORKERS[:1], [0, 1])
    make_mixed(out, steps=[5])
    before = content(create_trial(str(out)))
    # Marked as finished, and yet somebody writes to it.
    claim = WriterLock(LocalStore(out), WORKERS[1])
    claim.take()
    said = rf"a live process \(number {os.getpid()}\) writes to .*out as host b/1"
    for format in ("v1", "v2"):
        with pytest.raises(SMDebugRuntimeError, match=said):
            convert(run, out, format, force=True)
    assert content(create_trial(str(out))) == before
    assert WriterLock(LocalStore(out), WORKERS[1]).holder() is not None
    claim.release()

    def refused(done: int, total: int) -> None:
        # While it is replaced, nobody else may begin to write.
        with pytest.raises(SMDebugRuntimeError, match="another live process"):
            WriterLock(LocalStore(out), WORKERS[1]).check()

    chosen = Selection(create_trial(str(run)))
    convert_run(chosen, str(out), "v2", force=True, tell=refused)
    assert create_trial(str(out)).steps() == [0, 1]
    WriterLock(LocalStore(out), WORKERS[1]).check()


def test_a_run_in_a_store_that_may_be_written_is_left_alone(tmp_path: Path, bucket: str) -> None:
    run, out = tmp_path / "run", f"s3://{bucket}/replaced/one"
    make_mixed(run, WORKERS[:1], [0, 1])
    make_run(out, range(3), end=False)
    before = set(open_store(out).list())
    chosen = Selection(create_trial(str(run)))
    with pytest.raises(SMDebugRuntimeError, match="not finished, and a store without locks"):
        convert_run(chosen, out, "v2", force=True)
    with pytest.raises(SMDebugValueError, match="holds the run one"):
        convert_run(chosen, f"s3://{bucket}/replaced", "v2", force=True)
    assert set(open_store(out).list()) == before
    open_store(out).write("training_job_end.ts", [])
    convert_run(chosen, out, "v2", force=True)
    assert create_trial(out).steps() == [0, 1]


def test_other_runs_are_left_alone(tmp_path: Path) -> None:
    run, other = tmp_path / "run", tmp_path / "runs/other"
    make_mixed(run, WORKERS[:1], [0])
    make_run(other)
    for place, said in ((other / "inside", "lies in the run"), (other.parent, "holds the run")):
        with pytest.raises(SMDebugValueError, match=said):
            convert(run, place, "v2", force=True)
    assert create_trial(str(other)).steps() == [0, 1, 2]


def test_a_job_that_ends_meanwhile(tmp_path: Path) -> None:
    make_mixed(tmp_path / "run", WORKERS[:1], [0, 1], end=False)
    chosen = Selection(create_trial(str(tmp_path / "run")))
    make_mixed(tmp_path / "run", WORKERS[:1], [2])
    convert_run(chosen, str(tmp_path / "out"), "v2")
    # It has the steps that were there, and so has not ended.
    assert create_trial(str(tmp_path / "out")).steps(show_incomplete_steps=True) == [0, 1]
    assert not (tmp_path / "out" / "training_job_end.ts").exists()


def test_what_was_broken_off_is_not_finished(tmp_path: Path) -> None:
    make_mixed(tmp_path / "run")

    def refuse(done: int, total: int) -> None:
        if done > len(STEPS):
            raise OSError("enough")

    chosen = Selection(create_trial(str(tmp_path / "run")))
    with pytest.raises(OSError, match="enough"):
        convert_run(chosen, str(tmp_path / "out"), "v2", tell=refuse)
    assert not (tmp_path / "out" / "training_job_end.ts").exists()
