"""TensorBoard files made of a run are those that its hook would have written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tests.board import read_board, read_boards, spread
from tests.hook.numpy_hook import NumpyHook

import smdebug.trials.export.tensorboard as subject
from smdebug import modes
from smdebug.config.collection import Collection
from smdebug.config.reduction_config import ReductionConfig
from smdebug.exceptions import DataCorrupted, SMDebugRuntimeError, SMDebugValueError
from smdebug.testing import make_run
from smdebug.trials import create_trial
from smdebug.trials.export.tensorboard import Exported, export_tensorboard

if TYPE_CHECKING:
    from pathlib import Path

NUMBERS = ReductionConfig(reductions=["mean"], abs_reductions=["max"], save_raw_tensor=True)


def train(hook: NumpyHook) -> None:
    """Everything that is shown in a way of its own."""
    random = np.random.default_rng(0)
    hook.get_collection("weights").save_histogram = False
    hook.add_collection(
        Collection("mine", "mine|weight_2", save_config={modes.TRAIN: {"save_interval": 3}})
    )
    hook.add_collection(Collection("small", "^weight_1", reduction_config=NUMBERS))
    hook.add_collection(
        Collection(
            "held", "held", save_config={modes.TRAIN: {"save_steps": [99], "when_nan": ["loss"]}}
        )
    )
    for step in range(8):
        hook.set_mode(modes.EVAL if step % 4 == 3 else modes.TRAIN)
        hook.run(
            loss=np.float32("nan") if step == 5 else np.float32(step),
            weight_1=random.normal(size=(3, 4)).astype(np.float32),
            weight_2=random.normal(size=7),
            gradient=random.normal(size=300),
            gradient__low=random.normal(size=3).astype(ml_dtypes.bfloat16),
            gradient__flags=np.array([True, False]),
            mine__text=np.array(["a", "b"]),
            mine__one=np.float64(3.5),
            mine__nan=np.array([1.0, np.nan, np.inf, -2.0]),
            held=random.normal(size=4),
            many_losses=np.ones(3),
        )
        hook.save_scalar("rate of: x", 0.1 * step, timestamp=1000.0 + step)
        hook.save_tensor("by_hand", random.normal(size=5), ["small"])
    hook.close()


@pytest.mark.parametrize("format", ["v1", "v2"])
@pytest.mark.parametrize("rows", [100_000, 20])
def test_it_is_what_the_hook_writes(
    tmp_path: Path, format: str, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A few rows, and less than one tensor, at a time.
    monkeypatch.setattr(subject, "_MOST_ROWS", rows)
    monkeypatch.setattr(subject, "_MOST_BYTES", rows)
    monkeypatch.setattr(subject, "_MOST_EVENTS", rows // 4)
    names = ["weights", "gradients", "mine", "small", "held", "losses"]
    hook = NumpyHook(
        tmp_path / "run", format=format, include_collections=names, export_tensorboard=True,
        on_error="raise", save_config={"save_interval": 1},
    )  # fmt: skip
    train(hook)
    done = export_tensorboard(create_trial(hook.out_dir), str(tmp_path / "board"))
    written, live = read_boards(tmp_path / "board"), read_boards(tmp_path / "run" / "tensorboard")
    assert _comparable(written) == _comparable(live)
    assert live["TRAIN"].keys() >= {
        "loss", "scalar/rate_of__x", "small/weight_1", "small/weight_1/abs_max", "mine/weight_2",
        "gradients/gradient", "gradients/gradient/low", "mine/mine/one", "mine/mine/nan",
        "held/held", "small/by_hand",
    }  # fmt: skip
    assert done.steps == 8
    kinds = [isinstance(p.value, float) for b in live.values() for tag in b.values() for p in tag]
    assert (done.scalars, done.histograms) == (kinds.count(True), kinds.count(False))


def _comparable(boards: Any) -> Any:
    # A NaN is not equal to itself, and here it is meant to be.
    return {mode: {tag: repr(points) for tag, points in board.items()}
            for mode, board in boards.items()}  # fmt: skip


def test_save_all_and_reductions_alone(tmp_path: Path) -> None:
    reductions = ReductionConfig(reductions=["mean", "std"], norms=["l1"])
    hook = NumpyHook(
        tmp_path / "run", save_all=True, reduction_config=reductions, export_tensorboard=True,
        on_error="raise", save_config={"save_interval": 2},
    )  # fmt: skip
    for step in range(5):
        hook.run(weight=np.arange(4.0) * step, loss=np.float64(step))
    hook.close()
    export_tensorboard(create_trial(hook.out_dir), str(tmp_path / "board"))
    live = read_board(tmp_path / "run" / "tensorboard" / "GLOBAL")
    # Of what was not saved whole only the hook could make histograms.
    (gone,) = [tag for tag, points in live.items() if isinstance(points[0].value, tuple)]
    assert gone == "all/weight"
    del live[gone]
    assert read_board(tmp_path / "board" / "GLOBAL") == live
    assert {"loss", "all/weight/l1"} <= live.keys()


@pytest.mark.parametrize("format", ["v1", "v2"])
def test_workers_stand_apart(tmp_path: Path, format: str) -> None:
    workers = ["worker_0", "worker_1", "/job:worker/replica:0/task:1/device:CPU:0"]
    written = make_run(tmp_path / "run", range(3), workers, format)
    done = export_tensorboard(create_trial(tmp_path / "run"), str(tmp_path / "board"))
    assert done == Exported(steps=3, scalars=9, histograms=9)
    boards = read_boards(tmp_path / "board")
    names = ["TRAIN", "TRAIN_worker_1", "TRAIN_job_worker_replica_0_task_1_device_CPU_0"]
    assert set(boards) == set(names)
    for worker, name in zip(workers, names, strict=True):
        for step in range(3):
            loss, weight = written[worker, step].entries
            assert boards[name]["loss"][step].value == loss.number
            assert boards[name]["weights/fc.weight"][step].value == spread(weight.value)
            assert boards[name]["loss"][step].wall_time == written[worker, step].time
        # What TensorBoard counts relative times from is the run's first step, not the export.
        found = EventAccumulator(str(tmp_path / "board" / name)).Reload()
        assert found.FirstEventTimestamp() == written[worker, 0].time


def test_files_that_are_there(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    trial, board = create_trial(tmp_path / "run"), tmp_path / "board"
    # Those of others are nobody's business here.
    for name in ("notes.txt", "TRAIN/events.out.tfevents.1.host", "one/TRAIN/0_1_a_.tfevents"):
        (board / name).parent.mkdir(parents=True, exist_ok=True)
        (board / name).write_bytes(b"")
    export_tensorboard(trial, str(board))
    before = {path for path in board.rglob("*") if path.is_file()}
    with pytest.raises(SMDebugValueError, match=r"holds TRAIN/0000.*--force"):
        export_tensorboard(trial, str(board))
    export_tensorboard(trial, str(board), force=True)
    assert {path for path in board.rglob("*") if path.is_file()} == before
    assert len(before) == 4


def test_an_empty_run_and_a_place_that_is_none(tmp_path: Path) -> None:
    make_run(tmp_path / "empty", steps=[])
    with pytest.raises(SMDebugValueError, match=r"must hold saved steps, got .*/empty"):
        export_tensorboard(create_trial(tmp_path / "empty"), str(tmp_path / "board"))
    make_run(tmp_path / "run")
    (tmp_path / "file").write_text("")
    with pytest.raises(SMDebugRuntimeError, match=r"cannot write TensorBoard files: .*file"):
        export_tensorboard(create_trial(tmp_path / "run"), str(tmp_path / "file"))


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    (events,) = (tmp_path / "run" / "events").rglob("*.tfevents")
    data = bytearray(events.read_bytes())
    data[len(data) // 2] ^= 1
    events.write_bytes(data)
    with pytest.raises(DataCorrupted, match=r"fc\.weight"):
        export_tensorboard(create_trial(tmp_path / "run"), str(tmp_path / "board"))


def test_a_run_that_goes_on(tmp_path: Path) -> None:
    make_run(tmp_path / "run", range(4), end=False)
    told: list[Any] = []
    trial = create_trial(tmp_path / "run")
    export_tensorboard(trial, str(tmp_path / "board"), tell=lambda *each: told.append(each))
    assert told == [(4, 4)]
    assert [each.step for each in read_board(tmp_path / "board" / "TRAIN")["loss"]] == [0, 1, 2, 3]


def test_runs_and_files_in_an_object_store(bucket: str, tmp_path: Path) -> None:
    import boto3

    client = boto3.client("s3")
    for format in ("v1", "v2"):
        url, board = f"s3://{bucket}/{format}/run", f"s3://{bucket}/{format}/board"
        written = make_run(url, range(5), format=format)
        export_tensorboard(create_trial(url), board)
        with pytest.raises(SMDebugValueError, match="--force"):
            export_tensorboard(create_trial(url), board)
        export_tensorboard(create_trial(url), board, force=True)
        listed = client.list_objects_v2(Bucket=bucket, Prefix=f"{format}/board/")["Contents"]
        for each in listed:
            path = tmp_path / each["Key"]
            path.parent.mkdir(parents=True, exist_ok=True)
            client.download_file(bucket, each["Key"], str(path))
        found = read_board(tmp_path / format / "board" / "TRAIN")
        batches = [written["worker_0", step] for step in range(5)]
        points = [(p.step, p.wall_time, p.value) for p in found["loss"]]
        assert points == [(b.step, b.time, b.entries[0].number) for b in batches]
        points = [(p.step, p.wall_time, p.value) for p in found["weights/fc.weight"]]
        assert points == [(b.step, b.time, spread(b.entries[1].value)) for b in batches]


def test_an_export_into_the_run_does_not_follow_a_link(tmp_path: Path) -> None:
    make_run(str(tmp_path / "run"), steps=[0, 1])
    (tmp_path / "outside").mkdir()
    (tmp_path / "run" / "tensorboard").symlink_to(tmp_path / "outside")
    trial = create_trial(str(tmp_path / "run"))
    with pytest.raises(SMDebugValueError, match="own directory only"):
        export_tensorboard(trial, str(tmp_path / "run" / "tensorboard"))
    assert not any((tmp_path / "outside").iterdir())
