"""TensorBoard files beside a run, read back by TensorBoard itself."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tests.hook.numpy_hook import NumpyHook

from smdebug.config.reduction import ReductionConfig
from smdebug.histogram import histogram_of
from smdebug.mode_keys import ModeKeys
from smdebug.storage.tensorboard import tag
from smdebug.trials import create_trial

if TYPE_CHECKING:
    from pathlib import Path


def hook_in(place: Any, **options: Any) -> NumpyHook:
    options.setdefault("save_config", {"save_interval": 1})
    options.setdefault("export_tensorboard", True)
    return NumpyHook(place, on_error="raise", **options)


def read(folder: Path, mode: str = "GLOBAL") -> EventAccumulator:
    size = {"histograms": 0, "scalars": 0}
    return EventAccumulator(str(folder / mode), size_guidance=size).Reload()


def scalars(accumulator: EventAccumulator) -> dict[str, list[tuple[int, float]]]:
    return {
        name: [(each.step, each.value) for each in accumulator.Scalars(name)]
        for name in accumulator.Tags()["scalars"]
    }


def check_histogram(event: Any, array: Any) -> None:
    expected = histogram_of(array)
    assert expected is not None
    found = event.histogram_value
    assert (found.min, found.max, found.num) == (expected.min, expected.max, expected.num)
    np.testing.assert_array_equal(found.bucket, expected.counts)
    np.testing.assert_array_equal(found.bucket_limit, expected.limits)


@pytest.mark.parametrize("format", ["v1", "v2"])
def test_scalars_and_histograms(tmp_path: Path, format: str) -> None:
    hook = hook_in(tmp_path / "run", include_collections=["weights"], format=format)
    weights = [np.random.default_rng(number).normal(size=(5, 4)) for number in range(3)]
    for number in range(3):
        hook.run(weight=weights[number], loss=np.float32(number), other_loss=np.ones(3))
        hook.save_scalar("rate", 0.25 * number)
    hook.close()
    found = read(tmp_path / "run" / "tensorboard")
    assert scalars(found) == {
        "loss": [(0, 0.0), (1, 1.0), (2, 2.0)],
        "scalar/rate": [(0, 0.0), (1, 0.25), (2, 0.5)],
    }
    assert found.Tags()["histograms"] == ["weights/weight"]
    events = found.Histograms("weights/weight")
    assert [each.step for each in events] == [0, 1, 2]
    for event, array in zip(events, weights, strict=True):
        check_histogram(event, array)
    trial = create_trial(hook.out_dir)
    assert trial.steps() == [0, 1, 2]


def test_histograms_where_only_numbers_are_saved(tmp_path: Path) -> None:
    config = ReductionConfig(reductions=["mean"], norms=["l2"])
    hook = hook_in(tmp_path / "run", include_collections=["weights"], reduction_config=config)
    array = np.arange(4.0)
    hook.run(weight=array)
    hook.close()
    found = read(tmp_path / "run" / "tensorboard")
    assert scalars(found) == {
        "weights/weight/mean": [(0, 1.5)],
        "weights/weight/l2": [(0, pytest.approx(np.sqrt(14.0)))],
    }
    check_histogram(found.Histograms("weights/weight")[0], array)
    assert create_trial(hook.out_dir).tensor("weight").values() == {}


def test_modes_have_directories_of_their_own(tmp_path: Path) -> None:
    hook = hook_in(tmp_path / "run", tensorboard_dir=tmp_path / "board")
    for mode in (ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.TRAIN):
        hook.set_mode(mode)
        hook.run(loss=np.float64(hook.step))
    hook.close()
    assert not (tmp_path / "run" / "tensorboard").exists()
    board = tmp_path / "board"
    # Steps are those over all modes, so that curves of both fit together.
    assert scalars(read(board, "TRAIN")) == {"loss": [(0, -1.0), (2, 1.0)]}
    assert scalars(read(board, "EVAL")) == {"loss": [(1, 0.0)]}
    # One file for each mode, however many steps there are.
    assert len(list(board.rglob("*.tfevents"))) == 2


def test_collections_without_histograms(tmp_path: Path) -> None:
    hook = hook_in(tmp_path / "run", include_collections=["weights", "gradients"])
    hook.get_collection("weights").save_histogram = False
    hook.run(weight=np.ones(3), gradient=np.ones(3), gradient_flag=np.array([True, False]))
    hook.close()
    found = read(tmp_path / "run" / "tensorboard").Tags()
    assert found["histograms"] == ["gradients/gradient"]


def test_files_can_be_read_while_the_job_runs(tmp_path: Path) -> None:
    hook = hook_in(tmp_path / "run")
    accumulator = None
    for number in range(3):
        hook.run(loss=np.float64(number))
        hook.flush()
        accumulator = accumulator or read(tmp_path / "run" / "tensorboard")
        accumulator.Reload()
        assert [each.value for each in accumulator.Scalars("loss")] == list(range(number + 1))
    hook.close()


def test_a_second_job_goes_on_in_the_same_directory(tmp_path: Path) -> None:
    for number in range(2):
        with hook_in(tmp_path / f"run{number}", tensorboard_dir=tmp_path / "board") as hook:
            hook.run(loss=np.float64(number))
    assert len(list((tmp_path / "board").rglob("*.tfevents"))) == 2


def test_a_place_that_cannot_be_written_to(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "board").write_text("a file, not a directory")
    hook = hook_in(tmp_path / "run", tensorboard_dir=tmp_path / "board")
    for number in range(3):
        hook.run(loss=np.float64(number))
    hook.close()
    assert len([each for each in caplog.messages if "TensorBoard files" in each]) == 1
    assert create_trial(hook.out_dir).tensor("loss").steps() == [0, 1, 2]


def test_files_in_an_object_store(bucket: str) -> None:
    import boto3

    hook = hook_in(f"s3://{bucket}/run", tensorboard_dir=f"s3://{bucket}/board")
    for number in range(3):
        hook.run(loss=np.float64(number))
    hook.close()
    listed = boto3.client("s3").list_objects_v2(Bucket=bucket, Prefix="board/")["Contents"]
    assert [each["Key"].rpartition("/")[0] for each in listed] == ["board/GLOBAL"]


@pytest.mark.parametrize("given", [None, "elsewhere"])
def test_a_job_has_a_file_that_says_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str | None
) -> None:
    file = tmp_path / "tensorboardoutputconfig.json"
    monkeypatch.setenv("TRAINING_JOB_NAME", "job")
    monkeypatch.setenv("TENSORBOARD_CONFIG_FILE_PATH", str(file))
    # Without the file what was asked for counts, with it the file alone.
    with hook_in(tmp_path / "first", export_tensorboard=False, tensorboard_dir=given) as hook:
        assert hook.tensorboard_dir == given
    file.write_text(json.dumps({"LocalPath": str(tmp_path / "board")}))
    with hook_in(tmp_path / "run", export_tensorboard=False, tensorboard_dir=given) as hook:
        hook.run(loss=np.float64(1.0), weight=np.ones(2))
    assert scalars(read(tmp_path / "board")) == {"loss": [(0, 1.0)]}


@pytest.mark.parametrize(
    ("name", "expected"),
    [("a/b-c.d_1", "a/b-c.d_1"), ("/x:0", "x_0"), ("a b[0]", "a_b_0_"), ("größe", "gr__e")],
)
def test_tags(name: str, expected: str) -> None:
    assert tag(name) == expected
