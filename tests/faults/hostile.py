"""Runs made to do harm, with valid checksums: any author can compute them."""

from __future__ import annotations

import json
import os
import resource
import struct
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import crc32c
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from smdebug.storage.format import records
from smdebug.storage.format.checksum import PARQUET_KEY
from smdebug.storage.format.keys import END_KEY, collections_key, index_key, v1_index_key
from smdebug.storage.v2 import index
from smdebug.storage.v2.index import SCHEMA, encode_index

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

HERE = Path(__file__).parent
WORKER = "worker_0"


def write_file(run: Path, key: str, content: bytes) -> Path:
    """Puts a file into a run."""
    path = run / key
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def write_frame(run: Path, collections: Mapping[str, Any] | None = None, workers: int = 1) -> None:
    """Write what every finished run has besides its index: collections and the end marker."""
    content = {"collections": dict(collections or {}), "_meta": {"num_workers": workers}}
    write_file(run, collections_key(WORKER), json.dumps(content).encode())
    write_file(run, END_KEY, b"")


def row(tensor: str, **others: Any) -> dict[str, Any]:
    """A row of an index, a scalar unless something else is said."""
    known = {
        "step": 0, "mode": "TRAIN", "mode_step": 0, "worker": WORKER, "tensor": tensor,
        "time": 1.0, "dtype": "float32", "shape": [], "value": 1.0, "position": 0, "seq": 0,
    }  # fmt: skip
    return {**known, **others}


def table_of(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Rows as a table of the index; columns that no row has are null."""
    columns = []
    for each in SCHEMA:
        values = [item.get(each.name) for item in rows]
        if pa.types.is_dictionary(each.type):
            columns.append(pa.array(values, pa.string()).dictionary_encode())
        else:
            columns.append(pa.array(values, each.type, from_pandas=False))
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def write_index(run: Path, rows: Sequence[Mapping[str, Any]], step: int = 0, seq: int = 0) -> Path:
    """Write an index file of these rows into a run, with valid checksums."""
    ordered = sorted(rows, key=lambda item: (item["tensor"], item["step"]))
    return write_file(run, index_key(step, seq, WORKER), bytes(encode_index(table_of(ordered))))


def sealed_parquet(table: pa.Table, group_rows: int, **options: Any) -> bytes:
    """Any table as an index file with valid checksums, however it is written."""
    sink = pa.BufferOutputStream()
    schema = table.schema
    leaves = pq.ParquetFile(pa.BufferReader(_plain(table.slice(0, 0)))).metadata.num_columns
    groups = max(-(-table.num_rows // group_rows), 1)
    digits = b"0" * 8 * (leaves * groups + 1)
    placeholder = b"crc32c:%08d:" % (leaves * groups) + digits
    settings = {"compression": "zstd", "store_schema": False, **options}
    with pq.ParquetWriter(sink, schema, **settings) as writer:
        writer.write_table(table, row_group_size=group_rows)
        writer.add_key_value_metadata({index.FORMAT_KEY: b"2", PARQUET_KEY: placeholder})
    return bytes(index.with_checksums(bytearray(sink.getvalue()), placeholder))


def _plain(table: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, store_schema=False)
    return sink.getvalue()


def sealed_again(data: bytes) -> bytes:
    """Bytes of an index file that were changed, with all checksums as they must be."""
    changed = bytearray(data)
    at = changed.rindex(PARQUET_KEY)
    start = changed.index(b"crc32c:", at)
    chunks = int(changed[start + 7 : start + 15])
    end = start + 16 + 8 * (chunks + 1)
    placeholder = bytes(changed[start : start + 16]) + b"0" * 8 * (chunks + 1)
    changed[start:end] = placeholder
    return bytes(index.with_checksums(changed, placeholder))


def record(payload: bytes, length: int | None = None, v1: bool = False) -> bytes:
    """A framed record with a header that may declare another length."""
    size = len(payload) if length is None else length
    crc = records.V1_FOOTER if v1 else records.mask(crc32c.crc32c(payload))
    return records.header(size) + payload + struct.pack("<I", crc)


def v1_index(run: Path, content: Mapping[str, Any], step: int = 0) -> Path:
    """An index file of format v1, as smdebug 1.0 writes it: without checksums."""
    return write_file(run, v1_index_key(step, WORKER), json.dumps(content).encode())


def scalar_rows(names: Sequence[str], steps: int = 3) -> list[dict[str, Any]]:
    """Scalars and reductions of some names over some steps."""
    return [
        row(name, step=step, mode_step=step, value=float(np.sin(step)), l2=1.0, position=place)
        for step in range(steps)
        for place, name in enumerate(names)
    ]


@dataclass
class Outcome:
    """What became of a program.

    Attributes:
        code: how it ended; negative when a signal ended it, None when time did.
        out: what it wrote.
        err: its stderr.
        opened: what it did outside its own directories, according to the watch.
        peak: how much memory it took at most, in bytes.
        answers: what the ways to read the run ended with, by name.
    """

    code: int | None
    out: str
    err: str
    opened: list[str] = field(default_factory=list)
    peak: int = 0
    answers: dict[str, str] = field(default_factory=dict)

    @property
    def named(self) -> bool:
        """Every way to read ended with an answer or with an error of the library."""
        return self.code == 0 and not self.unnamed

    @property
    def unnamed(self) -> dict[str, str]:
        """The ways that ended with something else."""
        return {way: each for way, each in self.answers.items() if each.startswith("unnamed")}


def read_in_child(
    runs: Sequence[Path],
    ways: Sequence[str] = (),
    *,
    memory: int = 2 << 30,
    seconds: int = 120,
    outside: Sequence[Path] = (),
) -> Outcome:
    """Reads runs in every way, or in some, in a process of its own with little to spend.

    Args:
        runs: the runs.
        ways: which of the ways of `reading.py`; all of them when empty.
        memory: how much address space it has.
        seconds: how much time of a processor it has.
        outside: directories that it must not touch; everything it does there is reported.
    """
    place = runs[0].parent
    told = place / "told.json"
    told.unlink(missing_ok=True)
    asked = {
        "runs": [str(run) for run in runs], "told": str(told), "ways": list(ways),
        "outside": [str(each) for each in outside],
    }  # fmt: skip
    # -B: what Python keeps of modules it has compiled is not what a run has it write.
    command = [sys.executable, "-B", "-m", "tests.faults.reading", json.dumps(asked)]

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    environment = {
        **os.environ,
        # Fewer threads, each of which reserves address space of its own.
        "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1",
        "MPLBACKEND": "Agg", "MPLCONFIGDIR": str(place / "mpl"),
        "PYTHONHASHSEED": "0", "PYTHONPATH": os.pathsep.join(sys.path),
    }  # fmt: skip
    try:
        done = subprocess.run(
            command, cwd=HERE.parent.parent, env=environment, capture_output=True, text=True,
            timeout=5 * seconds, preexec_fn=limit, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as late:
        return Outcome(None, str(late.stdout), str(late.stderr))
    found = json.loads(told.read_text()) if told.exists() else {}
    return Outcome(done.returncode, done.stdout, done.stderr, **found)
