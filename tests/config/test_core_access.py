"""Files and objects through the import paths of smdebug 1.0."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from smdebug.core import utils
from smdebug.core.access_layer import (
    TSAccessFile,
    TSAccessS3,
    is_rule_signalled_gracetime_passed,
    training_has_ended,
)
from smdebug.core.access_layer.file import get_temp_path
from smdebug.core.access_layer.s3handler import (
    DeleteRequest,
    ListRequest,
    ReadObjectRequest,
    S3Handler,
)
from smdebug.core.hook_utils import verify_and_get_out_dir
from smdebug.core.locations import IndexFileLocationUtils, TensorFileLocation
from smdebug.core.writer import FileWriter
from smdebug.exceptions import SMDebugRuntimeError, SMDebugValueError

DEVICE = "/job:worker/replica:0/task:1/device:GPU:0"


@pytest.mark.parametrize("mode", ["w", "wb", "a+", "ab"])
def test_a_file_appears_when_it_is_closed(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "deep" / "x"
    file = TSAccessFile(str(path), mode)
    assert file.write("héllo") == [0, 6]
    assert file.write(b"more") == [6, 4]
    file.flush()
    assert [each.name for each in path.parent.iterdir()] == [Path(get_temp_path("x")).name]
    file.close()
    file.close()
    assert path.read_bytes() == "héllomore".encode()
    with TSAccessFile(str(path), "rb") as again:
        assert (again.read(2), again.has_data()) == (b"h\xc3", True)
        assert (again.read(100), again.has_data()) == (b"\xa9llomore", False)


def test_unfinished_file_is_not_visible(tmp_path: Path) -> None:
    with pytest.raises(TypeError), TSAccessFile(str(tmp_path / "x"), "w") as file:
        file.write(5)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(SMDebugValueError, match="mode must be"):
        TSAccessFile(str(tmp_path / "x"), "rw")


def test_objects(bucket: str) -> None:
    for number in range(3):
        with TSAccessS3(bucket, f"/a//b/{number}", "testing", "testing", binary=False) as object_:
            assert object_.write("ab") == [0, 2]
            assert object_.write(str(number)) == [2, 1]
            object_.flush()
    with pytest.raises(TypeError), TSAccessS3(bucket, "a/half") as object_:
        object_.write(None)  # type: ignore[arg-type]
    read = TSAccessS3(bucket, "a/b/1")
    assert (read.read(2), read.has_data(), read.read(9), read.has_data()) == (
        *(b"ab", True, b"1", False),
    )
    keys = ["a/b/0", "a/b/1", "a/b/2"]
    assert S3Handler.list_prefix(ListRequest(bucket, "a/")) == keys
    assert S3Handler.list_prefix(ListRequest(bucket, "a/b/", StartAfter="a/b/0")) == keys[1:]
    assert S3Handler.list_prefix(ListRequest(bucket, "a/", Delimiter="/")) == ["a/b/"]
    assert S3Handler.list_prefixes([ListRequest(bucket, "a/"), ListRequest(bucket, "z")]) == [
        keys,
        [],
    ]
    requests = [ReadObjectRequest(f"s3://{bucket}/{key}", 1, 2) for key in [*keys, "a/missing"]]
    expected = [b"b0", b"b1", b"b2", None]
    assert S3Handler.get_objects(requests) == expected
    assert S3Handler.get_objects(requests, use_multiprocessing=False) == expected
    assert S3Handler.get_object(ReadObjectRequest(f"s3://{bucket}/a/b/2")) == b"ab2"
    S3Handler.delete_prefix(f"s3://{bucket}/a/b/0")
    S3Handler.delete_prefixes([DeleteRequest(bucket, "a/b/1")])
    assert S3Handler.list_prefix(ListRequest(bucket, "a/")) == keys[2:]
    with pytest.raises(SMDebugValueError, match="either"):
        S3Handler.delete_prefix()
    with pytest.raises(SMDebugValueError, match="s3://bucket/key"):
        S3Handler.get_object(ReadObjectRequest("/tmp/x"))


def test_stop_signal_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, signal = str(tmp_path), tmp_path / "signal"
    monkeypatch.delenv("SAGEMAKER_ENV_RULE_STOP_SIGNAL_FILE", raising=False)
    assert not is_rule_signalled_gracetime_passed(run)
    monkeypatch.setenv("SAGEMAKER_ENV_RULE_STOP_SIGNAL_FILE", str(signal))
    assert not is_rule_signalled_gracetime_passed(run)
    signal.write_text(str(int(time.time())))
    assert not is_rule_signalled_gracetime_passed(run)
    signal.write_text(str(int(time.time()) - 100))
    assert is_rule_signalled_gracetime_passed(run)
    monkeypatch.setenv("rule_stop_grace_time_secs", "1000")
    assert not is_rule_signalled_gracetime_passed(run)
    signal.write_text("soon")
    with pytest.raises(SMDebugValueError, match=r"signal must hold the time.*'soon'"):
        is_rule_signalled_gracetime_passed(run)


def test_out_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert verify_and_get_out_dir("~/run") == str(tmp_path / "run")
    training_has_ended(str(tmp_path / "run"))
    with pytest.raises(SMDebugRuntimeError, match="finished run"):
        verify_and_get_out_dir("~/run")
    with pytest.raises(SMDebugRuntimeError, match="None"):
        verify_and_get_out_dir(None)


def test_locations_are_where_files_are(tmp_path: Path) -> None:
    run = str(tmp_path)
    for worker in ("worker_0", DEVICE):
        with FileWriter(run, worker, step=1234) as writer:
            writer.write_tensor(np.ones(2), "x")
        events = TensorFileLocation(1234, worker).get_file_location(run)
        index = IndexFileLocationUtils.get_index_key_for_step(run, 1234, worker)
        assert Path(events).is_file()
        assert Path(index).is_file()
        assert utils.parse_worker_name_from_file(events) == worker
        assert utils.parse_worker_name_from_file(index) == worker
        assert IndexFileLocationUtils.parse_step_from_index_file_name(index) == 1234
        assert IndexFileLocationUtils.get_prefix_from_index_file(index) == run
        assert str(Path(events).parent) == TensorFileLocation.get_step_dir_path(run, 1234)
        assert str(Path(events).parent.parent) == TensorFileLocation.get_dir(run)
        assert str(Path(index).parent.parent) == IndexFileLocationUtils.get_index_path(run)
    assert IndexFileLocationUtils.get_index_prefix_for_step(1234) == "000000001"
    assert IndexFileLocationUtils.next_index_prefix_for_step(1234) == "000000002"
    assert TensorFileLocation(
        3, "w"
    ).get_file_location() == "events/000000000003/000000000003_w" + (".tfevents")
    for bad in (
        lambda: IndexFileLocationUtils.parse_step_from_index_file_name("x.json"),
        lambda: IndexFileLocationUtils.get_prefix_from_index_file("x.json"),
        lambda: utils.parse_worker_name_from_file("x.json"),
        lambda: utils.get_worker_name_from_collection_file("x.json"),
    ):
        with pytest.raises(SMDebugValueError, match=r"'x\.json'"):
            bad()


def test_other_core_names(tmp_path: Path) -> None:
    """The answers are those of smdebug 1.0.34."""
    assert utils.is_s3("s3://b/k/x") == (True, "b", "k/x")
    assert utils.is_s3("s3://b") == (True, "b", "")
    assert utils.is_s3("s3a://b/k") == utils.is_s3("/tmp/x") == (False, None, None)
    assert utils.flatten([1, [2, [3]], (4,)]) == [1, 2, 3, (4,)]
    assert utils.split("a, b,,c") == ["a", "b", "", "c"]
    assert utils.match_inc("relu_1", ["x", "elu"])
    assert not utils.match_inc("x", ["relu"])
    assert utils.get_path_to_collections("/a/b") == "/a/b/collections/000000000/"
    assert utils.get_worker_name_from_collection_file("/x/worker_0_collections.json") == "worker_0"
    assert utils.serialize_tf_device(DEVICE) == "_job-worker_replica-0_task-1_device-GPU-0"
    assert utils.deserialize_tf_device(utils.serialize_tf_device(DEVICE)) == DEVICE
    assert utils.deserialize_tf_device("worker_0") == "worker_0"
    assert [each.value for each in utils.FRAMEWORK] == ["pytorch", "tensorflow", "mxnet", "xgboost"]
    for value, dtype, shape in (
        *((1.0, "f8", (1,)), (3, "i8", (1,)), ([1, 2], "i8", (2,)), ("a", "U1", (1,))),
        (np.ones((2, 3), "f4"), "f4", (2, 3)),
    ):
        array = utils.make_numpy_array(value)
        assert (array.dtype, array.shape) == (np.dtype(dtype), shape)
    with pytest.raises(SMDebugValueError, match="expected numbers"):
        utils.make_numpy_array({"a": 1})
    utils.ensure_dir(str(tmp_path / "a" / "b"))
    assert [each.name for each in tmp_path.iterdir()] == ["a"]
    assert list((tmp_path / "a").iterdir()) == []
    utils.ensure_dir(str(tmp_path / "a" / "b"), is_file=False)
    assert (tmp_path / "a" / "b").is_dir()
