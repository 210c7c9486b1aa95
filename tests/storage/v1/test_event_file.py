"""The reader and the writer of single event files, and the core paths that lead to them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
from tensorboard.compat.proto.event_pb2 import Event

from smdebug.core.access_layer import check_dir_exists, has_training_ended, training_has_ended
from smdebug.core.logger import get_logger
from smdebug.core.reader import FileReader
from smdebug.core.writer import FileWriter
from smdebug.exceptions import (
    DataCorrupted,
    SMDebugNotImplementedError,
    SMDebugRuntimeError,
    SMDebugValueError,
)
from smdebug.mode_keys import ModeKeys
from smdebug.storage.format import records
from smdebug.storage.format.events import encode_tensor
from smdebug.storage.tensorboard.summaries import encode_file_version, encode_scalar

WEIGHT = np.arange(6, dtype=np.float32).reshape(2, 3)


def written(folder: Path) -> FileWriter:
    with FileWriter(str(folder), "worker_0", step=7, mode=ModeKeys.EVAL) as writer:
        writer.write_tensor(WEIGHT, "weight", mode_step=3, timestamp=12.5)
        writer.write_tensor(0.25, "loss", mode_step=3)
        writer.write_shape("hidden", (4, 5), mode_step=3, original_name="graph/hidden:0")
    return writer


def test_file_writer_writes_the_files_of_a_step(tmp_path: Path) -> None:
    name = written(tmp_path).name()
    assert name == f"{tmp_path}/events/000000000007/000000000007_worker_0.tfevents"
    index = tmp_path / "index/000000000/000000000007_worker_0.json"
    content = json.loads(index.read_text(encoding="utf-8"))
    assert content["meta"]["mode"] == "EVAL"
    assert content["meta"]["mode_step"] == 3
    assert [each["tensorname"] for each in content["tensor_payload"]] == ["weight", "loss"]
    (shape,) = content["shape_payload"]
    assert (shape["shape"], shape["originalname"]) == ([4, 5], "graph/hidden:0")


def test_tensors_are_read_back(tmp_path: Path) -> None:
    reader = FileReader(written(tmp_path).name())
    (name, step, value, mode, mode_step), (other, _, loss, _, _) = reader.read_tensors()
    assert (name, step, mode, mode_step) == ("weight", 7, ModeKeys.EVAL, 3)
    np.testing.assert_array_equal(value, WEIGHT)
    assert (other, loss.shape, loss[0]) == ("loss", (1,), 0.25)
    (event,) = reader.read_events(regex_list=["^w"])
    assert (event["timestamp"], event["step"], event["name"]) == (12.5, 7, "weight")


def test_a_file_of_tensorboard(tmp_path: Path) -> None:
    path = tmp_path / "events.tfevents"
    payloads = [
        encode_file_version(1.0),
        encode_scalar("scalar/x", 1.5, step=2, wall_time=3.0),
        encode_tensor(
            "w", WEIGHT, step=2, mode=ModeKeys.TRAIN, mode_step=2, wall_time=3.0, content_at=0
        ),
    ]
    path.write_bytes(b"".join(b"".join(records.frame(each)) for each in payloads))
    ours = FileReader(str(path)).read_events()
    theirs = [Event.FromString(data) for data in RawEventFileLoader(str(path)).Load()]
    tags = [value.tag for event in theirs for value in event.summary.value]
    assert [each["name"] for each in ours] == tags == ["scalar/x", "w"]
    assert ours[0]["value"] == theirs[1].summary.value[0].simple_value == 1.5


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.tfevents"
    path.write_bytes(b"".join(records.frame([b"1234"]))[:-1])
    with pytest.raises(DataCorrupted, match=r"x\.tfevents"):
        list(FileReader(str(path)).read_tensors())


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nothing"):
        FileReader(str(tmp_path / "nothing")).read_events()


def test_unsupported_arguments_of_the_writer(tmp_path: Path) -> None:
    with pytest.raises(SMDebugNotImplementedError, match="tensorboard"):
        FileWriter(str(tmp_path), "worker_0", wtype="tensorboard")
    with pytest.raises(SMDebugValueError, match="colour"):
        FileWriter(str(tmp_path), "worker_0", colour="red")
    writer = FileWriter(str(tmp_path), "worker_0", max_queue=3, write_checksum=True)
    with pytest.raises(SMDebugNotImplementedError, match="write_index"):
        writer.write_tensor(1.0, "x", write_index=False)


def test_the_end_of_a_job(tmp_path: Path) -> None:
    check_dir_exists(str(tmp_path))
    assert not has_training_ended(str(tmp_path))
    training_has_ended(str(tmp_path))
    assert (tmp_path / "training_job_end.ts").stat().st_size == 0
    assert has_training_ended(str(tmp_path))
    with pytest.raises(SMDebugRuntimeError, match="finished run"):
        check_dir_exists(str(tmp_path))


def test_logger_is_that_of_the_library() -> None:
    assert get_logger().name == "smdebug"


def test_v1_records_are_checked_against_their_index(tmp_path: Path) -> None:
    path = Path(written(tmp_path).name())
    sound = path.read_bytes()
    at = sound.index(WEIGHT.tobytes())
    path.write_bytes(sound[:at] + b"\1" + sound[at + 1 :])
    with pytest.raises(DataCorrupted, match="not what its index says"):
        list(FileReader(str(path)).read_tensors())
    # Cut between two records.
    path.write_bytes(sound[: 16 + int.from_bytes(sound[:8], "little")])
    with pytest.raises(DataCorrupted, match="ends before a record"):
        list(FileReader(str(path)).read_tensors())
    # Unknown if there is no index.
    next((tmp_path / "index").rglob("*.json")).unlink()
    assert [name for name, *_ in FileReader(str(path)).read_tensors()] == ["weight"]


def test_invalid_mode_is_a_damaged_record(tmp_path: Path) -> None:
    path = tmp_path / "x.tfevents"
    where = {"step": 1, "mode": ModeKeys.TRAIN, "wall_time": 1.0}
    payload = b"".join(encode_tensor("x", WEIGHT, mode_step=1, **where))  # type: ignore[arg-type]
    for changed in (payload[:-1] + b"9", payload[:-1] + b"x"):
        path.write_bytes(b"".join(records.frame([changed])))
        with pytest.raises(DataCorrupted, match="not the mode"):
            list(FileReader(str(path)).read_tensors())
