"""TensorBoard files of a run, read back by TensorBoard itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tests.hook.numpy_hook import NumpyHook

from smdebug.config.reduction_config import ReductionConfig
from smdebug.exceptions import SMDebugValueError
from smdebug.histogram import histogram_of
from smdebug.mode_keys import ModeKeys
from smdebug.storage.tensorboard.files import ModeFiles, number_event, tag
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


def test_histograms_of_tensors_saved_as_reductions(tmp_path: Path) -> None:
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


def test_each_mode_has_its_own_directory(tmp_path: Path) -> None:
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


def test_second_job_adds_files_to_the_same_directory(tmp_path: Path) -> None:
    for number in range(2):
        with hook_in(tmp_path / f"run{number}", tensorboard_dir=tmp_path / "board") as hook:
            hook.run(loss=np.float64(number))
    assert len(list((tmp_path / "board").rglob("*.tfevents"))) == 2


def test_unwritable_directory_does_not_affect_the_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "board").write_text("a file, not a directory")
    hook = hook_in(tmp_path / "run", tensorboard_dir=tmp_path / "board")
    for number in range(3):
        hook.run(loss=np.float64(number))
    hook.close()
    assert len([each for each in caplog.messages if "TensorBoard files" in each]) == 1
    assert create_trial(hook.out_dir).tensor("loss").steps() == [0, 1, 2]


# Waits for a line before every further step, and ends when there are no more.
TRAINING = """
import sys
import numpy as np
from tests.hook.numpy_hook import NumpyHook
hook = NumpyHook("run", save_config={"save_interval": 1}, tensorboard_dir="board",
                 include_collections=["weights"], flush_seconds=0.1)
for step, _ in enumerate(sys.stdin):
    hook.run(loss=np.float64(step), weight=np.full(3, step))
hook.close()
"""


def test_tensorboard_follows_files_of_a_running_process(tmp_path: Path) -> None:
    command = [sys.executable, "-c", TRAINING]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    size = {"histograms": 0, "scalars": 0}
    # TensorBoard takes one that is not there for one that was deleted.
    (tmp_path / "board" / "GLOBAL").mkdir(parents=True)
    accumulator = EventAccumulator(str(tmp_path / "board" / "GLOBAL"), size_guidance=size)
    with subprocess.Popen(command, stdin=subprocess.PIPE, cwd=tmp_path, env=environment) as process:
        assert process.stdin is not None
        for step in range(3):
            process.stdin.write(b"\n")
            process.stdin.flush()
            # A step is handed over when the next one begins.
            values = wait_for_losses(accumulator, step, process)
            assert values == list(range(len(values)))
        assert process.poll() is None
        assert len(accumulator.Histograms("weights/weight")) >= 2
        process.stdin.close()
        assert process.wait(timeout=60) == 0
    assert wait_for_losses(accumulator, 3) == [0, 1, 2]
    for step, event in enumerate(accumulator.Histograms("weights/weight")):
        check_histogram(event, np.full(3, step))


def wait_for_losses(
    accumulator: EventAccumulator, count: int, process: subprocess.Popen[bytes] | None = None
) -> list[float]:
    """The losses, as soon as there are so many."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert process is None or process.poll() is None
        accumulator.Reload()
        known = "loss" in accumulator.Tags()["scalars"]
        values = [each.value for each in accumulator.Scalars("loss")] if known else []
        if len(values) >= count:
            return values
        threading.Event().wait(0.01)
    raise AssertionError(f"{count} losses did not come")


def test_files_in_an_object_store(bucket: str, tmp_path: Path) -> None:
    import boto3

    client = boto3.client("s3")
    hook = hook_in(
        f"s3://{bucket}/run", tensorboard_dir=f"s3://{bucket}/board", include_regex=["kept"]
    )
    for number in range(6):
        hook.set_mode(ModeKeys.EVAL if number % 2 else ModeKeys.TRAIN)
        hook.run(loss=np.float64(number), kept=np.arange(number + 1.0))
        if number == 3:
            hook.flush()
            assert len(download(client, bucket, tmp_path / "early")) == 2
    hook.close()
    # Objects are written whole: those published before are unchanged, new ones are added.
    assert len(download(client, bucket, tmp_path / "late")) == 4
    for mode, steps in (("TRAIN", [0, 2, 4]), ("EVAL", [1, 3, 5])):
        early, late = (read(tmp_path / name / "board", mode) for name in ("early", "late"))
        assert scalars(early) == {"loss": [(step, float(step)) for step in steps[:2]]}
        assert scalars(late) == {"loss": [(step, float(step)) for step in steps]}
        for step, event in zip(steps, late.Histograms("default/kept"), strict=True):
            assert event.step == step
            check_histogram(event, np.arange(step + 1.0))


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_local_files_grow_with_every_step(tmp_path: Path, scheme: str) -> None:
    files = ModeFiles(f"{scheme}{tmp_path}/board")
    for step in range(3):
        event = number_event("loss", float(step), step=step, wall_time=1.5)
        files.write(ModeKeys.TRAIN, step, 1.5, [event])
        written = scalars(read(tmp_path / "board", "TRAIN"))
        assert written == {"loss": [(each, float(each)) for each in range(step + 1)]}
    files.close()
    assert len(list((tmp_path / "board").rglob("*.tfevents"))) == 1


def download(client: Any, bucket: str, folder: Path) -> list[str]:
    """Fetches the files of TensorBoard; returns their keys."""
    listed = client.list_objects_v2(Bucket=bucket, Prefix="board/")["Contents"]
    keys = [each["Key"] for each in listed]
    for key in keys:
        (folder / key).parent.mkdir(parents=True, exist_ok=True)
        client.download_file(bucket, key, str(folder / key))
    return keys


@pytest.mark.parametrize("given", [None, "elsewhere"])
def test_directory_from_the_tensorboard_config_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str | None
) -> None:
    file = tmp_path / "tensorboardoutputconfig.json"
    monkeypatch.setenv("TRAINING_JOB_NAME", "job")
    monkeypatch.setenv("TENSORBOARD_CONFIG_FILE_PATH", str(file))
    # Without the file the argument is used, with it the file alone.
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


@pytest.mark.parametrize("link", ["tensorboard", "tensorboard/GLOBAL"])
def test_a_link_in_the_run_is_not_followed(tmp_path: Path, link: str) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "run" / link).parent.mkdir(parents=True)
    (tmp_path / "run" / link).symlink_to(tmp_path / "outside")
    if link == "tensorboard":
        with pytest.raises(SMDebugValueError, match="own directory only"):
            hook_in(tmp_path / "run", resume=True)
    else:
        hook = hook_in(tmp_path / "run", resume=True)
        hook.run(loss=np.float32(1))
        hook.close()
    assert not any((tmp_path / "outside").iterdir())
