"""Fuzzes one reader: `python fuzz_readers.py TARGET [options of libFuzzer] CORPUS`.

The modules of the library are instrumented, so that inputs which reach new code are kept and built
on. An input may end in a named error; whatever else happens ends the program with a code that is
not 0. What is decoded must encode to something that decodes to the same.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import resource
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import atheris
import crc32c
import numpy as np
import pyarrow as pa

with atheris.instrument_imports(include=["smdebug"], enable_loader_override=False):
    from smdebug.config.collection_manager import CollectionManager
    from smdebug.config.json_config import read_json_config
    from smdebug.exceptions import DataCorrupted, SMDebugError
    from smdebug.mode_keys import ModeKeys
    from smdebug.storage.arrow import pq
    from smdebug.storage.check.record_scan import ChunkedFile, scan_records
    from smdebug.storage.check.run import check_run
    from smdebug.storage.findings import read_findings, read_reports
    from smdebug.storage.format import keys as layout
    from smdebug.storage.format.checksum import PARQUET_KEY
    from smdebug.storage.format.collections_file import decode_collections, encode_collections
    from smdebug.storage.format.dtypes import is_string, plain_array
    from smdebug.storage.format.events import decode_event, encode_tensor
    from smdebug.storage.format.records import frame, iterate_records
    from smdebug.storage.stop_requests import read_stop
    from smdebug.storage.stores.memory import MemoryStore
    from smdebug.storage.v1.index import V1Segment, parse_v1_step
    from smdebug.storage.v2.index import chunk_ranges
    from smdebug.storage.v2.index_file import ColumnCache, IndexFile
    from smdebug.trials.trial import Trial
    from smdebug.trials.wait import promised_workers

if TYPE_CHECKING:
    from collections.abc import Callable

# What a small file may make a reader allocate; and how much more address space there is, which
# threads and the fuzzer take as well.
_MOST_BYTES = 64 << 20
_ADDRESS_SPACE = 512 << 20
_INDEX = "index/000000000/000000000000-000000_worker_0.parquet"
_V1_INDEX = "index/000000000/000000000000_worker_0.json"
_COLLECTIONS = "collections/000000000/worker_0_collections.json"


def records(data: bytes) -> None:
    """The framing: one record after the other, and what the two ways through them say."""
    store = MemoryStore()
    for v1 in (False, True):
        for content in (data, b"".join(frame([data[:7], data[7:]], v1)) + data[:3]):
            found, whole = [], True
            try:
                for _, payload in iterate_records(memoryview(content), "x", v1):
                    found.append(bytes(payload))
            except DataCorrupted:
                whole = False
            store.write("x", [content])
            scanned = list(scan_records(ChunkedFile(store, "x"), v1=v1))
            sound = [each for each in scanned if each.wrong is None]
            assert len(sound) >= len(found)
            assert whole == (len(sound) == len(scanned))
            again = b"".join(b"".join(frame([each])) for each in found)
            assert v1 or content.startswith(again)


def events(data: bytes) -> None:
    """An event, its tensors to bytes and back."""
    event = decode_event(memoryview(data))
    for value in event.values:
        if value.tensor is None:
            continue
        where: dict[str, Any] = {"step": 3, "mode": ModeKeys.TRAIN, "mode_step": 1}
        chunks = encode_tensor(value.tag, plain_array(value.tensor), wall_time=1.0, **where)
        (again,) = decode_event(memoryview(b"".join(chunks))).values
        assert again.tag == value.tag
        assert again.tensor is not None
        assert again.tensor.shape == value.tensor.shape
        if is_string(value.tensor.dtype):
            assert again.tensor.reshape(-1).tolist() == value.tensor.reshape(-1).tolist()
        else:
            assert again.tensor.dtype == value.tensor.dtype
            assert again.tensor.tobytes() == value.tensor.tobytes()


def index(data: bytes) -> None:
    """An index file of format v2, unchanged, and its pages with a valid checksum."""
    for content in (data, sealed(data)):
        with contextlib.suppress(SMDebugError):
            read_index(content)


def read_index(content: bytes) -> None:
    store = MemoryStore()
    store.write(_INDEX, [content])
    name = layout.parse_index_key(_INDEX)
    assert name is not None
    file = IndexFile(store, _INDEX, name, ColumnCache())
    with contextlib.suppress(SMDebugError):
        file.check_name(name)
    steps, names = file.steps, file.names
    assert len(steps.step) == len(steps.mode) == len(steps.seq)
    for tensor in list(names)[:3]:
        file.rows(tensor, ["step", "value", "shape", "l2"])
    file.names_within(0, 2)
    file.table()
    file.check_all()


def sealed(data: bytes) -> bytes:
    """The pages of the input under a footer that fits them, every checksum as it must be."""
    pages = bytearray(BASE)
    metadata = pq.read_metadata(pa.BufferReader(pa.py_buffer(BASE)))
    start = len(BASE) - 8 - metadata.serialized_size
    pages[4 : min(start, len(data))] = data[4:start]
    at = pages.find(b"crc32c:", pages.rfind(PARQUET_KEY)) + 16
    ranges = chunk_ranges(metadata)
    own = at + 8 * len(ranges)
    pages[at:own] = b"".join(b"%08x" % crc32c.crc32c(pages[a:b]) for a, b in ranges)
    pages[own : own + 8] = b"0" * 8
    pages[own : own + 8] = b"%08x" % crc32c.crc32c(pages[start:])
    return bytes(pages)


def v1_index(data: bytes) -> None:
    """An index file of format v1, as it is and with a checksum that fits."""
    name = layout.parse_index_key(_V1_INDEX)
    assert name is not None
    text = data.partition(b', "crc32c": "')[0]
    for content in (data, text + b', "crc32c": "%08x"}' % crc32c.crc32c(text)):
        with contextlib.suppress(SMDebugError):
            step = parse_v1_step(content, _V1_INDEX, name)
            assert step.step == 0
            segment = V1Segment("worker_0", [step], lambda places: [0.0] * len(places))
            assert segment.table().num_rows <= len(step.names) + len(step.shapes)
            segment.first_location(0)


def collections(data: bytes) -> None:
    """A collections file, as it is and with a checksum that fits, is written again."""
    text = data.partition(b', "crc32c": "')[0]
    for content in (data, text + b', "crc32c": "%08x"}}' % crc32c.crc32c(text)):
        with contextlib.suppress(SMDebugError):
            read_collections(content)


def read_collections(data: bytes) -> None:
    file = decode_collections(data, _COLLECTIONS)
    promised_workers({"worker_0": file.content})
    text = json.dumps(file.content)
    manager = CollectionManager.from_json_dict(file.content)
    again = decode_collections(encode_collections(text, "worker_0", file.run), _COLLECTIONS)
    assert again.run == file.run
    assert CollectionManager.from_json_dict(again.content) == manager


def findings(data: bytes) -> None:
    """Files of findings, reports and requests, with names without a checksum."""
    store = MemoryStore()
    store.write("findings/x.parquet", [data])
    store.write("findings/x.json", [data])
    store.write("control/stop-x.json", [data])
    for read in (read_findings, read_reports):
        with contextlib.suppress(SMDebugError):
            read(store)
    read_stop(store, "control/stop-x.json")


def names(data: bytes) -> None:
    """Names of files: what is taken apart is put together to the same."""
    text = data.decode("utf-8", "replace")
    for key in (text, f"index/000000000/{text}", f"events/000000000000/{text}"):
        found = layout.parse_index_key(key)
        layout.event_format(key)
        layout.v1_index_key_of(key)
        layout.is_event_file_of(key, _V1_INDEX)
        layout.parse_collections_worker(key)
        if found is None or not found.worker or found.step > layout.LAST_STEP:
            continue
        with contextlib.suppress(SMDebugError):
            if found.seq is not None:
                again = layout.parse_index_key(
                    layout.index_key(found.step, found.seq, found.worker)
                )
                assert again == found
    worker = text[:60]
    with contextlib.suppress(SMDebugError, UnicodeEncodeError):
        for is_v1 in (False, True):
            key = layout.collections_key(worker, is_v1)
            assert layout.parse_collections_worker(key) == worker


def json_config_file(data: bytes) -> None:
    """A JSON config."""
    JSON_CONFIG_FILE.write_bytes(data)
    read_json_config(JSON_CONFIG_FILE)


def run(data: bytes) -> None:
    """One file of a run is something else: opening, asking, checking."""
    files = dict(RUN)
    key = sorted(files)[data[0] % len(files)] if data else ""
    if key:
        files[key] = data[1:]
    store = MemoryStore()
    for each, content in files.items():
        store.write(each, [content])
    check_run(store)
    trial = Trial("memory://run", store=store, wait_seconds=0)
    trial.collections()
    trial.to_arrow()
    for name in trial.tensor_names():
        with contextlib.suppress(SMDebugError):
            trial.tensor(name).values()


RUN: dict[str, bytes] = {}
BASE = b""
JSON_CONFIG_FILE = Path(tempfile.gettempdir()) / f"json_config_{os.getpid()}.json"
TARGETS: dict[str, Callable[[bytes], None]] = {
    each.__name__: each
    for each in (
        records, events, index, v1_index, collections, findings, names, json_config_file, run,
    )
}  # fmt: skip


def fuzz(target: Callable[[bytes], None]) -> Callable[[bytes], None]:
    def once(data: bytes) -> None:
        with contextlib.suppress(SMDebugError):
            target(data)
        if pa.total_allocated_bytes() + POOL.max_memory() > _MOST_BYTES:
            raise MemoryError(f"{len(data)} bytes made Arrow take {POOL.max_memory()}")

    return once


POOL = pa.default_memory_pool()


def limit_memory() -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + _ADDRESS_SPACE, resource.RLIM_INFINITY))


def main() -> None:
    logging.getLogger("smdebug").setLevel(logging.CRITICAL)
    np.seterr(all="ignore")
    target = sys.argv.pop(1)
    if target == "run":
        from smdebug.testing import make_run

        store = MemoryStore()
        make_run(store, [0, 1])
        make_run(store, [2], format="v1")
        RUN.update({key: bytes(store.read(key)) for key in store.list()})
    global BASE
    BASE = (Path(sys.argv[-1]) / "seed0").read_bytes()
    atheris.Setup(sys.argv, fuzz(TARGETS[target]))
    limit_memory()
    atheris.Fuzz()


if __name__ == "__main__":
    main()
