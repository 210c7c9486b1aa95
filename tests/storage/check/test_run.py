"""Checking a run: whatever is changed in it is named, and what is whole is clean."""

from __future__ import annotations

import itertools
import json
import random
import struct
import threading
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

from smdebug.mode_keys import ModeKeys
from smdebug.storage.arrow import pa
from smdebug.storage.batch import Block, BlockSchema, Entry, StepBatch
from smdebug.storage.check.run import check_run
from smdebug.storage.findings import Finding, write_findings, write_report
from smdebug.storage.format.keys import END_KEY, parse_index_key
from smdebug.storage.stop_requests import StopRequest, write_stop
from smdebug.storage.stores.base import open_store
from smdebug.storage.stores.local import LocalStore
from smdebug.storage.stores.memory import MemoryStore
from smdebug.storage.tensorboard.files import ModeFiles, number_event
from smdebug.storage.v2.index import SCHEMA, TEXT_COLUMNS, encode_index
from smdebug.storage.v2.index_file import ColumnCache, IndexFile
from smdebug.storage.writer import RunWriter
from smdebug.testing import make_run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from smdebug.storage.check.report import CheckReport
    from smdebug.storage.stores.base import Store

FORMATS = ["v2", "v1"]
DTYPES = [
    np.dtype(name)
    for name in ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"]
]
DTYPES += [
    np.dtype(kind) for kind in (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2)
]


def varied(worker: str, step: int) -> StepBatch:
    """Scalars, tensors of every dtype, strings, empty ones, reductions and shapes."""
    rng = np.random.default_rng([step, *worker.encode()])
    entries = [Entry("loss", np.asarray(np.float32(rng.random())))]
    for dtype in DTYPES:
        raw = rng.integers(0, 2, (2, 3)).astype(dtype)
        entries.append(Entry(f"all/{dtype.name}", raw, {"mean": 0.5, "l2": float("nan")}))
        entries.append(Entry(f"one/{dtype.name}", raw[0, :1]))
    entries += [
        Entry("text", np.array(["a", "ö" * step])),
        Entry("bytes", np.array([b"a", b"\xff"])),
        Entry("plain bytes", np.array([b"a", b"b"])),
        Entry("no text", np.array([], dtype=str)),
        Entry("empty", np.zeros((0, 3), np.float32)),
        Entry("norm only", None, {"l2": 2.0}, shape=(4, 5), dtype="float32"),
        Entry("shape only", shape=(7,), dtype="int64"),
    ]
    mode = ModeKeys.EVAL if step % 3 == 2 else ModeKeys.TRAIN
    batch = StepBatch(step, mode, step // 2, entries)
    if step % 2:
        layout = BlockSchema(("b/x", "b/y"), ("float32", "float32"), ((2, 2), (2, 2)))
        values = rng.standard_normal((2, 2, 2)).astype(np.float32)
        batch.blocks.append(Block(layout, list(values), {"max": np.array([1.0, 2.0])}))
    return batch


def with_everything(format: str, steps: int = 3) -> MemoryStore:
    """A run with every kind of file."""
    store = MemoryStore()
    make_run(store, range(steps), ["a", "b/ c"], format, data=varied, flush_every=2)
    write_findings(store, [Finding("Rule", 1, "it vanished", "text", float("nan"))])
    write_report(store, {"trial": "x", "last_step": 3, "rules": []})
    write_stop(store, StopRequest("enough"))
    store.write("reports/xgboost_report.html", [b"<html>page</html>\n"])
    return store


def copied(store: Store) -> dict[str, bytes]:
    return {key: bytes(store.read(key)) for key in store.list()}


def checked(files: dict[str, bytes]) -> CheckReport:
    store = MemoryStore()
    for key, data in files.items():
        store.write(key, [data])
    return check_run(store)


def has_checksum(key: str) -> bool:
    """Of which files every byte is known."""
    return key.startswith(("events/", "index/", "findings/"))


# ---- runs that are whole


@pytest.mark.parametrize("format", FORMATS)
def test_a_whole_run_is_clean(format: str) -> None:
    store = with_everything(format, 6)
    report = check_run(store)
    assert report.damages == []
    assert report.remarks == []
    files = copied(store)
    assert report.files == len(files)
    assert report.finished
    assert report.bytes == sum(map(len, files.values()))
    # As many records as all event files hold, by their framing.
    records = 0
    for key, data in files.items():
        at = 0
        while key.startswith("events/") and at < len(data):
            at += struct.unpack_from("<Q", data, at)[0] + 16
            records += 1
    assert report.records == records > 0


@pytest.mark.parametrize("format", FORMATS)
def test_a_resumed_run_is_clean(format: str, tmp_path: Path) -> None:
    make_run(tmp_path, range(4), format=format, data=varied, end=False)
    # The last two steps are saved again, with other tensors too.
    make_run(tmp_path, range(2, 6), format=format, data=varied)
    report = check_run(LocalStore(tmp_path))
    assert report.damages == []
    # No row refers to what was replaced.
    (remark,) = report.remarks
    assert remark.what.startswith("records that no row names: left by a crash, or saved again")
    assert remark.count > 0


def test_both_formats_in_one_directory(tmp_path: Path) -> None:
    make_run(tmp_path, range(3), format="v1", end=False)
    make_run(tmp_path, range(3, 6), format="v2")
    report = check_run(LocalStore(tmp_path))
    assert (report.damages, report.remarks, report.rows) == ([], [], 12)


@pytest.mark.parametrize("format", FORMATS)
def test_in_a_bucket(bucket: str, format: str) -> None:
    url = f"s3://{bucket}/check-{format}"
    make_run(url, range(4), ["a", "b"], format, data=varied, flush_every=2)
    store = open_store(url)
    report = check_run(store)
    assert (report.damages, report.remarks) == ([], [])
    files = copied(store)
    assert report.bytes == sum(map(len, files.values()))
    rng = random.Random(7)
    for key in sorted(filter(has_checksum, files)):
        at = rng.randrange(len(files[key]))
        store.write(key, [flipped(files[key], at, 3)])
        assert named(check_run(store), key), (key, at)
        store.write(key, [files[key]])
    gone = next(key for key in files if key.startswith("events/"))
    store.delete(gone)
    assert gone in {damage.file for damage in check_run(store).damages}


def test_large_records(tmp_path: Path) -> None:
    def large(worker: str, step: int) -> StepBatch:
        values = np.random.default_rng(step).standard_normal((3, 1 << 18))
        entries = [Entry(f"t{number}", value) for number, value in enumerate(values)]
        return StepBatch(step, ModeKeys.TRAIN, step, entries)

    make_run(tmp_path, range(2), data=large)
    report = check_run(LocalStore(tmp_path))
    assert (report.damages, report.records) == ([], 6)
    (path,) = (tmp_path / "events").rglob("*.tfevents")
    data = bytearray(path.read_bytes())
    for at in (3 << 20, 9 << 20):
        data[at] ^= 1
    path.write_bytes(data)
    damages = check_run(LocalStore(tmp_path)).damages
    assert [(each.tensor, each.step) for each in damages] == [("t1", 0), ("t1", 1)]


# ---- runs that are not


def flipped(data: bytes, at: int, bit: int) -> bytes:
    changed = bytearray(data)
    changed[at] ^= 1 << bit
    return bytes(changed)


def named(report: CheckReport, key: str) -> bool:
    return any(damage.file == key for damage in report.damages)


def positions(data: bytes, rng: random.Random) -> list[int]:
    """The first and last bytes, where formats have their numbers, and some between."""
    edges = [*range(min(16, len(data))), *range(max(len(data) - 16, 0), len(data))]
    return sorted({*edges, *(rng.randrange(len(data)) for _ in range(80))})


@pytest.mark.parametrize("format", FORMATS)
def test_every_flipped_bit_is_reported(format: str) -> None:
    store = MemoryStore()
    shape = Entry("s", shape=(2,), dtype="int8")
    data = {
        ("w", 0): StepBatch(0, ModeKeys.TRAIN, 0, varied("w", 1).entries[:12]),
        ("w", 1): StepBatch(1, ModeKeys.TRAIN, 1, [shape]),
    }
    make_run(store, range(2), ["w"], format, data=data)
    write_findings(store, [Finding("Rule", 1, "it vanished", "text", float("nan"))])
    write_report(store, {"trial": "x", "last_step": 3, "rules": []})
    rng = random.Random(format)
    files = copied(store)
    assert checked(files).damages == []
    for key in filter(has_checksum, list(files)):
        for at in positions(files[key], rng):
            report = checked({**files, key: flipped(files[key], at, rng.randrange(8))})
            assert named(report, key), (key, at)


@pytest.mark.parametrize("format", FORMATS)
def test_truncated_zeroed_and_extended_files_are_reported(format: str) -> None:
    files = copied(with_everything(format))
    rng = random.Random(format)
    for key in [key for key in files if files[key]]:
        data = files[key]
        half = rng.randrange(1, len(data))
        for changed in (b"", data[:half], data[:-1], bytes(len(data)), data + bytes(7)):
            # JSON and a page may end in anything that is no sign; of a NUL they may not.
            report = checked({**files, key: changed})
            if key.endswith(".html") and changed == data[:-1]:
                continue
            # An empty mark of the end is that of format v1.
            if key == END_KEY and not changed:
                continue
            assert named(report, key), (key, len(changed), report.damages)
            # The others are looked at all the same; findings can be checked in their run only.
            others = {each.file for each in report.damages} - {key}
            assert all("cannot be checked: collections/" in each.what for each in report.damages
                       if each.file in others)  # fmt: skip
            assert not others or key.startswith("collections/")


@pytest.mark.parametrize("format", FORMATS)
def test_swapped_files_are_reported(format: str) -> None:
    files = copied(with_everything(format, 6))
    for prefix in ("events/", "index/"):
        keys = sorted(key for key in files if key.startswith(prefix))
        for one, other in itertools.pairwise(keys):
            report = checked({**files, one: files[other], other: files[one]})
            assert report.damages, (one, other)


@pytest.mark.parametrize("format", FORMATS)
def test_missing_files(format: str) -> None:
    files = copied(with_everything(format))
    for key in files:
        report = checked({name: data for name, data in files.items() if name != key})
        if key.startswith("events/"):
            assert {each.file for each in report.damages} == {key}
            assert "is missing" in report.damages[0].what
            assert report.damages[0].tensor is not None
        elif key.startswith("collections/"):
            # Index files refer to a run that no other file mentions.
            assert report.damages[-1].file == "collections/"
        else:
            assert report.damages == []
        if key.startswith("index/"):
            # This looks like a crash: the records exist, and no row refers to them.
            (remark,) = report.remarks
            assert remark.what.startswith("records that no row names")


def test_all_errors_are_listed(tmp_path: Path) -> None:
    make_run(tmp_path, range(6), ["a", "b"], flush_every=1)
    paths = sorted((tmp_path / "events").rglob("*.tfevents"))
    for path in paths[:4]:
        path.write_bytes(flipped(path.read_bytes(), 100, 0))
    paths[5].unlink()
    (tmp_path / "collections/000000000/b_collections.json").write_text("{", encoding="utf-8")
    report = check_run(LocalStore(tmp_path))
    found = {each.file for each in report.damages}
    expected = {path.relative_to(tmp_path).as_posix() for path in [*paths[:4], paths[5]]}
    assert found == {*expected, "collections/000000000/b_collections.json"}
    damage = next(each for each in report.damages if each.file == sorted(expected)[0])
    assert (damage.offset, damage.tensor, damage.step) == (0, "fc.weight", 0)


def test_intact_record_of_something_else_is_reported() -> None:
    one, other = MemoryStore(), MemoryStore()
    for store, shape in ((one, (2, 3)), (other, (3, 2))):
        entry = Entry("x", np.arange(6, dtype=np.float32).reshape(shape))
        make_run(store, [0], data={("worker_0", 0): StepBatch(0, ModeKeys.TRAIN, 0, [entry])})
    files = copied(one)
    files.update({key: data for key, data in copied(other).items() if key.startswith("events/")})
    (damage,) = checked(files).damages
    assert damage.what == "record payload fails its checksum"
    # Without checksums, as of smdebug 1.0, it is the step that tells.
    store = MemoryStore()
    make_run(store, [1, 2], format="v1")
    files = without_checksums(copied(store))
    assert checked(files).damages == []
    first, second = sorted(key for key in files if key.startswith("events/"))
    damages = checked({**files, second: files[first]}).damages
    assert [(each.tensor, each.step) for each in damages] == [("loss", 2), ("fc.weight", 2)]
    assert "of step 1, not of step 2" in damages[0].what


def test_row_that_contradicts_its_record() -> None:
    """As a fault of a writer would leave it: all checksums hold."""
    store = MemoryStore()
    make_run(store, range(2), data=varied)
    (key,) = store.list("index/")
    name = parse_index_key(key)
    assert name is not None
    table = IndexFile(store, key, name, ColumnCache()).table()
    row = table["tensor"].to_pylist().index("all/float32")
    for column, value, said in (
        ("mode_step", 77, "has mode step 0, row"),
        ("mode", "PREDICT", "has mode TRAIN, row"),
        ("shape", [3, 2], "has shape (2, 3), row"),
        ("dtype", "int32", "has dtype float32, row"),
        ("dtype", "float99", "unknown dtype"),
        ("worker", "other", "another worker than its file"),
        ("seq", 99, "a later segment than its file"),
        ("value", 1.0, "a value and a record"),
        ("checksum", None, "incomplete location"),
        ("length", 1, "record is truncated"),
        ("offset", 1 << 40, "file ends before the record does"),
        ("offset", -1, "there is no record of"),
        ("event_file", "events/../../x", "stays inside the run"),
        ("tensor", "all/float64", "out of order"),
    ):
        values = table[column].to_pylist()
        values[row] = value
        kind = SCHEMA.field(column).type
        array = pa.array(values, kind.value_type if column in TEXT_COLUMNS else kind)
        if column in TEXT_COLUMNS:
            array = array.dictionary_encode()
        changed = table.set_column(table.column_names.index(column), SCHEMA.field(column), array)
        report = checked({**copied(store), key: bytes(encode_index(changed))})
        assert any(said in each.what for each in report.damages), (column, report.damages)
        assert all(each.step == 0 for each in report.damages if each.tensor == "all/float32")


def without_checksums(files: dict[str, bytes]) -> dict[str, bytes]:
    """A v1 run as smdebug 1.0 writes it."""
    changed = {}
    for key, data in files.items():
        if key.startswith("findings/"):
            # It has none; ours have checksums with a run ID that its runs do not have.
            continue
        if key.startswith("index/"):
            content: dict[str, Any] = json.loads(data)
            del content["crc32c"], content["origin"]
            for item in content.get("tensor_payload", []):
                del item["crc32c"]
            for item in content.get("shape_payload", []):
                del item["dtype"]
            data = json.dumps(content).encode()
        elif key.startswith("collections/"):
            content = json.loads(data)
            content["_meta"] = {"num_workers": content["_meta"]["num_workers"]}
            data = json.dumps(content).encode()
        changed[key] = data
    return changed


def test_files_of_smdebug_1() -> None:
    files = without_checksums(copied(with_everything("v1")))
    report = checked(files)
    assert report.damages == []
    assert [remark.count for remark in report.remarks] == [6]
    assert "without checksums" in report.remarks[0].what
    key = next(key for key in files if key.startswith("events/"))
    # The length of the first record, and its checksum.
    for at in range(12):
        assert named(checked({**files, key: flipped(files[key], at, 4)}), key)
    key = next(key for key in files if key.startswith("index/"))
    content = json.loads(files[key])
    for name, wrong in (("start_idx", 1 << 62), ("length", 1 << 40), ("start_idx", 7)):
        item = {**content["tensor_payload"][0], name: wrong}
        changed = {**content, "tensor_payload": [item, *content["tensor_payload"][1:]]}
        assert checked({**files, key: json.dumps(changed).encode()}).damages


# ---- what is no damage


def test_notes(tmp_path: Path) -> None:
    make_run(tmp_path, range(4), flush_every=1, end=False)
    orphan = next((tmp_path / "events").rglob("*.tfevents"))
    crashed = tmp_path / "events/000000000009/000000000009-000009_worker_0.tfevents"
    crashed.parent.mkdir()
    crashed.write_bytes(orphan.read_bytes())
    (tmp_path / "index/000000000/x.parquet.123.tmp").write_bytes(b"12345")
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
    (tmp_path / "index/000000000/what.csv").write_text("", encoding="utf-8")
    report = check_run(LocalStore(tmp_path))
    assert report.damages == []
    found = {remark.what.partition(":")[0]: remark for remark in report.remarks}
    unnamed = found["records that no row names (yet)"]
    assert (unnamed.count, unnamed.bytes) == (1, orphan.stat().st_size)
    assert unnamed.files == ["events/000000000009/000000000009-000009_worker_0.tfevents"]
    temporary = found["temporary files, which a crash has left behind"]
    assert (temporary.count, temporary.bytes) == (1, 5)
    foreign = found["files that are none of a run"]
    assert foreign.files == ["index/000000000/what.csv", "notes.txt"]
    # Damage in records that no row refers to is an error as well.
    crashed.write_bytes(flipped(orphan.read_bytes(), 50, 1))
    (damage,) = check_run(LocalStore(tmp_path)).damages
    assert damage.what == "record payload fails its checksum; no row names it"


def test_tensorboard_files(tmp_path: Path) -> None:
    make_run(tmp_path, range(2), end=False)
    boards = ModeFiles(str(tmp_path / "tensorboard"))
    for step in range(5):
        event = number_event("loss", 0.5, step=step, wall_time=1.0)
        boards.write(ModeKeys.TRAIN, step, 1.0, [event])
    boards.close()
    (path,) = (tmp_path / "tensorboard").rglob("*.tfevents")
    key = path.relative_to(tmp_path).as_posix()
    data = path.read_bytes()
    report = check_run(LocalStore(tmp_path))
    assert (report.damages, report.remarks, report.records) == ([], [], 2 + 6)
    for at in range(0, len(data), 5):
        path.write_bytes(flipped(data, at, at % 8))
        report = check_run(LocalStore(tmp_path))
        lost = named(report, key)
        # A damaged length may look as a file does that ends too soon: never where it has a sum.
        assert lost, at
    path.write_bytes(data[:-3])
    report = check_run(LocalStore(tmp_path))
    assert report.damages == []
    assert "incomplete last record" in report.remarks[0].what
    (tmp_path / "training_job_end.ts").touch()
    assert named(check_run(LocalStore(tmp_path)), key)


# ---- while it is written


class Meddling:
    """A store in which something happens before the reads of a check."""

    remote, parallel, url = False, 1, "meddling"

    def __init__(self, inner: Store, happenings: Iterator[Callable[[], None]]) -> None:
        self._inner = inner
        self._happenings = happenings

    def read(self, key: str, start: int = 0, length: int | None = None) -> memoryview:
        next(self._happenings, lambda: None)()
        return self._inner.read(key, start, length)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("moment", range(0, 30, 3))
def test_a_job_publishes_and_compacts_meanwhile(format: str, moment: int) -> None:
    store = MemoryStore()
    writer = RunWriter(store, "worker_0", format)
    writer.write_collections('{"collections": {}}')

    def publish(step: int) -> None:
        writer.submit(varied("w", step), finish=True)
        writer.flush()

    for step in range(5):
        publish(step)
    happenings: list[Callable[[], None]] = [lambda: None] * moment
    happenings += [lambda: publish(5), lambda: publish(6), writer.close]
    report = check_run(Meddling(store, iter(happenings)))
    assert report.damages == []
    writer.close()
    assert check_run(store).damages == []


@pytest.mark.parametrize("format", FORMATS)
def test_a_live_run_is_clean_all_the_time(format: str, tmp_path: Path) -> None:
    steps, reports = 60, []
    done = threading.Event()

    def write() -> None:
        for begin in range(0, steps, 20):
            writer = RunWriter(LocalStore(tmp_path), "worker_0", format)
            writer.write_collections('{"collections": {}}')
            for step in range(begin, begin + 20):
                writer.submit(varied("w", step), finish=True)
                writer.flush()
            writer.close(end=False)
        done.set()

    thread = threading.Thread(target=write)
    thread.start()
    while not done.is_set():
        reports.append(check_run(LocalStore(tmp_path)))
    thread.join()
    assert [report.damages for report in reports] == [[]] * len(reports)
    assert check_run(LocalStore(tmp_path)).damages == []


def test_end_marker_is_checked() -> None:
    store = with_everything("v2")
    assert not check_run(store).damages
    for content in (b"1794890490.12", b"-1.000", b"soon"):
        store.write(END_KEY, [content])
        (damage,) = check_run(store).damages
        assert damage.file == END_KEY
        assert "the time of the end" in damage.what
    store.write(END_KEY, [])
    assert not check_run(store).damages
