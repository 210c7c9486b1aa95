"""A run of 100 million index rows opens: columns and row groups are read on demand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from benchmarks.bench import fresh, own_python, run_json
from benchmarks.content import names
from benchmarks.figure import FLOOR, Figure
from benchmarks.writing import COLLECTIONS
from smdebug.storage.arrow import pa
from smdebug.storage.format.keys import END_KEY, collections_key, index_key
from smdebug.storage.stores.base import open_store
from smdebug.storage.v2.index import SCHEMA, encode_index

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.bench import Bench

FILES, STEPS, TENSORS = 100, 1000, 1000


def index_table(first: int, count: int = STEPS) -> pa.Table:
    """A file's rows: `count` steps from `first` of TENSORS tensors with one reduction."""
    tensor_names = sorted(names(TENSORS))
    rows = count * TENSORS
    steps = np.tile(np.arange(first, first + count), TENSORS)
    columns = {
        "step": pa.array(steps),
        "mode": constant("TRAIN", rows),
        "mode_step": pa.array(steps),
        "worker": constant("worker_0", rows),
        "tensor": pa.DictionaryArray.from_arrays(
            pa.array(np.repeat(np.arange(TENSORS, dtype=np.int32), count)), pa.array(tensor_names)
        ),
        "dtype": constant("float32", rows),
        "position": pa.array(np.repeat(np.arange(TENSORS, dtype=np.int32), count)),
        "seq": pa.array(np.full(rows, first // STEPS, np.int32)),
        "l2": pa.array(np.float32(1.0) / (1 + steps)),
    }
    arrays = [
        columns[name].cast(SCHEMA.field(name).type)
        if name in columns
        else pa.nulls(rows, SCHEMA.field(name).type)
        for name in SCHEMA.names
    ]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def constant(text: str, rows: int) -> pa.Array:
    codes = pa.array(np.zeros(rows, np.int32))
    return pa.DictionaryArray.from_arrays(codes, pa.array([text]))


def write_run(run: Path, files: int, count: int = STEPS) -> None:
    """A finished run of so many index files of so many steps, and nothing else."""
    store = open_store(str(run))
    store.write(collections_key("worker_0"), [COLLECTIONS.encode()])
    for number in range(files):
        key = index_key(number * count, number, "worker_0")
        store.write(key, [encode_index(index_table(number * count, count))])
    store.write(END_KEY, [])


def measure(bench: Bench) -> list[Figure]:
    run, files = fresh(bench.folder / "hundred_million"), bench.times(FILES)
    write_run(run, files)
    asked = run, names(TENSORS)[500], "l2"
    found = run_json(own_python(), "benchmarks/open_run.py", *asked)
    plain = run_json(own_python(), "benchmarks/open_plain.py", *asked)
    if (found["steps"], plain["steps"]) != (files * STEPS, files * STEPS):
        raise RuntimeError(f"expected {files * STEPS} steps, got {found} {plain}")
    fresh(run)
    what = f"{FILES * STEPS * TENSORS:,} index rows: "
    took, memory = {FLOOR: [plain["seconds"]]}, {FLOOR: [plain["peak_mb"]]}
    return [
        Figure(what + "open, names, one series", "opens", [found["seconds"]], "s", peers={**took}),
        Figure(what + "peak memory of that", "opens", [found["peak_mb"]], "MB", peers={**memory}),
    ]
