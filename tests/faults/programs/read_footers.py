"""Reads files with other footers: `python -m tests.faults.programs.read_footers BASE FIRST END`.

Says each number before it begins with it, so that the last line tells what ended the process.
"""

from __future__ import annotations

import contextlib
import json
import logging
import resource
import signal
import sys
from pathlib import Path

import pyarrow as pa
from tests.faults import footers, hostile
from tests.faults.damaged import SEED

from smdebug.exceptions import SMDebugError
from smdebug.storage.check.run import check_run
from smdebug.storage.findings import Finding, read_findings, write_findings
from smdebug.storage.format import keys as layout
from smdebug.storage.stores.memory import MemoryStore
from smdebug.storage.v2.compaction import compact_run
from smdebug.storage.v2.index import encode_index
from smdebug.storage.v2.index_file import ColumnCache, IndexFile
from smdebug.trials.trial import Trial

_INDEX = layout.index_key(0, 0, hostile.WORKER)
_FINDINGS = "findings/x.parquet"
# What a small file may make Arrow take, what address space there is beyond that of the start, and
# how long reading may last.
_MOST_BYTES, _ADDRESS_SPACE, _SECONDS = 64 << 20, 1 << 30, 30


def base(name: str) -> bytes:
    """An honest file: of one row group as writers make it, of two by other options, of findings."""
    if name == "findings":
        store = MemoryStore()
        key = write_findings(store, [Finding("R", 3, "m", tensor="t", value=1.0)])
        assert key is not None
        return bytes(store.read(key))
    if name == "index":
        rows = hostile.scalar_rows(["a", "b"])
        ordered = sorted(rows, key=lambda row: (row["tensor"], row["step"]))
        return bytes(encode_index(hostile.table_of(ordered)))
    rows = [hostile.row("a", step=step, mode_step=step, shape=[2, step]) for step in range(4)]
    return hostile.sealed_parquet(hostile.table_of(rows), 2, write_page_checksum=True)


def read(name: str, data: bytes) -> None:
    """Reads a file in every way."""
    store = MemoryStore()
    if name == "findings":
        store.write(_FINDINGS, [data])
        read_findings(store)
        return
    store.write(_INDEX, [data])
    content = {"collections": {}, "_meta": {"num_workers": 1}}
    store.write(layout.collections_key(hostile.WORKER), [json.dumps(content).encode()])
    store.write(layout.END_KEY, [b""])
    for way in (read_rows, check_run, read_trial, compact_run):
        with contextlib.suppress(SMDebugError):
            way(store)
    # Raises what reading has ended in.
    read_rows(store)


def read_rows(store: MemoryStore) -> None:
    name = layout.parse_index_key(_INDEX)
    assert name is not None
    file = IndexFile(store, _INDEX, name, ColumnCache())
    file.check_name(name)
    for tensor in file.names:
        file.rows(tensor, ["step", "value", "shape", "l2"])
    file.names_within(0, 2)
    file.present_columns()
    file.table()
    file.check_all()


def read_trial(store: MemoryStore) -> None:
    trial = Trial("memory://run", store=store, wait_seconds=0)
    trial.to_arrow()
    for name in trial.tensor_names():
        trial.tensor(name).steps()


def say(*words: object) -> None:
    sys.stdout.write(f"{' '.join(map(str, words))}\n")
    sys.stdout.flush()


def main() -> None:
    logging.disable(logging.CRITICAL)
    name, first, end = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    honest = base(name)
    read(name, honest)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + _ADDRESS_SPACE, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for number, data, changed in footers.all_mutated(honest, f"{SEED} {name}", first, end):
        say("begins", number, changed)
        # There is no handler: the signal ends a process that takes too long.
        signal.alarm(_SECONDS)
        try:
            read(name, data)
        except SMDebugError as error:
            where = _FINDINGS if name == "findings" else _INDEX
            say("refused" if where in str(error) else "unnamed", number, repr(error))
        except BaseException as error:
            say("unnamed", number, repr(error))
        else:
            say("read", number)
        if pa.default_memory_pool().max_memory() > _MOST_BYTES:
            raise MemoryError(f"Arrow took {pa.default_memory_pool().max_memory():,} bytes")
    signal.alarm(0)
    say("done")


if __name__ == "__main__":
    main()
