"""TensorBoard's own reader reads the records made here; it checks every checksum."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import (
    EventFileLoader,
    RawEventFileLoader,
)
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.util import tensor_util

from smdebug import modes
from smdebug.histogram import histogram_of
from smdebug.storage.batch import Entry, StepBatch
from smdebug.storage.format.events import encode_tensor
from smdebug.storage.format.records import frame
from smdebug.storage.stores.local import LocalStore
from smdebug.storage.tensorboard.summaries import encode_file_version, encode_scalar
from smdebug.storage.writer import RunWriter
from smdebug.trials import create_trial

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from smdebug.reductions import Array
    from smdebug.storage.stores.base import Buffer

DTYPES = (
    *("float16", "float32", "float64", "int8", "int16", "int32", "int64", "bool"),
    *("uint8", "uint16", "uint32", "uint64", "complex64", "complex128"),
)


def write_events(folder: Path, payloads: Iterable[list[Buffer]]) -> Path:
    path = folder / "events.out.tfevents.0.host"
    path.write_bytes(b"".join(bytes(chunk) for payload in payloads for chunk in frame(payload)))
    return path


def tensor_event(name: str, array: Array, step: int = 3, **options: Any) -> list[Buffer]:
    return encode_tensor(
        name, array, step=step, mode=modes.EVAL, mode_step=1, wall_time=12.5, **options
    )


def values(path: Path) -> dict[tuple[str, int], Array]:
    found = {}
    for event in EventFileLoader(str(path)).Load():
        for value in event.summary.value:
            found[value.tag, event.step] = tensor_util.make_ndarray(value.tensor)
    return found


def test_scalars_are_events_of_tensorboard(tmp_path: Path) -> None:
    numbers = [0.5, -0.0, 1e-30, np.inf]
    scalars = [
        encode_scalar("loss/train", number, step=step * 1000, wall_time=100.0 + step)
        for step, number in enumerate(numbers)
    ]
    write_events(tmp_path, [encode_file_version(99.0), *scalars])

    accumulator = EventAccumulator(str(tmp_path))
    accumulator.Reload()

    assert accumulator.Tags()["scalars"] == ["loss/train"]
    found = accumulator.Scalars("loss/train")
    assert [event.step for event in found] == [0, 1000, 2000, 3000]
    assert [event.wall_time for event in found] == [100.0, 101.0, 102.0, 103.0]
    assert [event.value for event in found] == np.array(numbers, np.float32).tolist()


def test_file_version(tmp_path: Path) -> None:
    path = write_events(tmp_path, [encode_file_version(99.0)])
    (event,) = EventFileLoader(str(path)).Load()
    assert event.file_version == "brain.Event:2"
    assert event.wall_time == 99.0


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (1,), (2, 3), (2, 1, 4)])
def test_tensors(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    array = np.random.default_rng(0).integers(0, 2, shape).astype(dtype)
    found = values(write_events(tmp_path, [tensor_event("x", array)]))
    assert found.keys() == {("x", 3)}
    assert found["x", 3].dtype == array.dtype
    assert found["x", 3].shape == shape
    assert found["x", 3].tobytes() == array.tobytes()


def test_strings(tmp_path: Path) -> None:
    array = np.array([["gain", "größe"], ["", "a/b:0"]])
    found = values(write_events(tmp_path, [tensor_event("x", array)]))["x", 3]
    assert [[item.decode() for item in row] for row in found] == array.tolist()


@pytest.mark.parametrize("content_at", [None, 0, 13, 2**40 + 5])
def test_padding_is_no_part_of_the_event(tmp_path: Path, content_at: int | None) -> None:
    array = np.arange(1000, dtype=np.float32)
    path = write_events(tmp_path, [tensor_event("x", array, content_at=content_at)])
    (record,) = RawEventFileLoader(str(path)).Load()
    event = Event.FromString(record)
    assert event.wall_time == 12.5
    assert event.step == 3
    np.testing.assert_array_equal(tensor_util.make_ndarray(event.summary.value[0].tensor), array)


def test_damage_is_found_by_tensorboard(tmp_path: Path) -> None:
    good = tensor_event("x", np.arange(1000.0))
    path = write_events(tmp_path, [good, good])
    data = bytearray(path.read_bytes())
    data[-100] ^= 1
    path.write_bytes(data)
    assert len(list(RawEventFileLoader(str(path)).Load())) == 1


def test_event_files_of_a_run(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    arrays = {
        (f"layer{number}/x", step): random.normal(size=(number + 2, 5)).astype(dtype)
        for number, dtype in enumerate(["float16", "float32", "float64", "int64"])
        for step in range(3)
    }
    with RunWriter(LocalStore(str(tmp_path))) as writer:
        writer.write_collections('{"collections": {}, "_meta": {"num_workers": 1}}')
        for step in range(3):
            entries = [Entry(name, array) for (name, at), array in arrays.items() if at == step]
            writer.submit(StepBatch(step, modes.TRAIN, step, entries))
            writer.finish_step()
            writer.flush()

    files = sorted(tmp_path.glob("events/**/*.tfevents"))
    found: dict[tuple[str, int], Array] = {}
    for file in files:
        found |= values(file)

    assert len(files) == 3
    assert found.keys() == arrays.keys()
    trial = create_trial(tmp_path)
    for (name, step), array in arrays.items():
        assert found[name, step].tobytes() == array.tobytes()
        assert found[name, step].dtype == array.dtype
        np.testing.assert_array_equal(trial.tensor(name).value(step), found[name, step])


def test_short_floats_of_a_run(tmp_path: Path) -> None:
    array = np.linspace(-3, 3, 7).astype(ml_dtypes.bfloat16)
    path = write_events(tmp_path, [tensor_event("x", array)])
    (record,) = RawEventFileLoader(str(path)).Load()
    tensor = Event.FromString(record).summary.value[0].tensor
    assert tensor.dtype == 14  # DT_BFLOAT16
    assert tensor.tensor_content == array.tobytes()


def test_histograms_are_those_of_the_original(tmp_path: Path, run_peer: Any) -> None:
    run_peer("write_tensorboard.py", tmp_path / "run")
    trial = create_trial(str(tmp_path / "run"))
    steps = {trial.global_step(modes.TRAIN, step): step for step in trial.steps(mode=modes.TRAIN)}
    seen = set()
    for path in (tmp_path / "run" / "tensorboard" / "TRAIN").iterdir():
        for payload in RawEventFileLoader(str(path)).Load():
            event = Event.FromString(payload)
            for value in event.summary.value:
                if not value.HasField("histo"):
                    continue
                collection, _, name = value.tag.partition("/")
                array = trial.tensor(name).value(steps[event.step], mode=modes.TRAIN)
                expected = histogram_of(array)
                assert expected is not None
                np.testing.assert_allclose(value.histo.bucket_limit, expected.limits, rtol=1e-9)
                np.testing.assert_array_equal(value.histo.bucket, expected.counts)
                assert value.histo.num == expected.num
                seen.add((event.step, collection, name))
    assert {step for step, _, _ in seen} == {0, 2}
    assert {collection for _, collection, _ in seen} == {"weights", "gradients"}
