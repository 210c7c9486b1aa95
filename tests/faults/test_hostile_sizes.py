"""A hostile run takes no more memory and time than documented, whatever it declares."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import crc32c
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tests.faults import hostile
from tests.faults.tally import amount

from smdebug.mode_keys import ModeKeys
from smdebug.storage.format import records
from smdebug.storage.format.events import bytes_field, encode_tensor, varint
from smdebug.storage.format.keys import END_KEY, collections_key, event_key, index_key
from smdebug.storage.v2.index import SCHEMA, encode_index
from smdebug.trials.create import create_trial

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.faults.tally import Tally

    Bomb = Callable[[Path], object]

INDEX, EVENTS = index_key(0, 0, hostile.WORKER), event_key(0, 0, hostile.WORKER)
# What a process has to read a bomb with. Python, Arrow and numpy reserve most of a gigabyte.
MEMORY = 3 << 30
HUGE = (1 << 63) - 1
WAYS = ["questions", "tensors", "to_arrow", "sql", "sql findings", "ls", "show", "check",
        "export csv", "export npz", "compact", "resume"]  # fmt: skip


def rows_of(count: int, **columns: Any) -> pa.Table:
    """Many equal rows of one tensor, at steps that follow each other."""
    steps = pa.array(np.arange(count))
    code = pa.array(np.zeros(count, np.int32))

    def text(value: str) -> pa.Array:
        return pa.DictionaryArray.from_arrays(code, pa.array([value]))

    known = {
        "step": steps, "mode": text("TRAIN"), "mode_step": steps, "worker": text(hostile.WORKER),
        "tensor": text("x"), "dtype": text("float32"), "position": code, "seq": code,
        "value": pa.array(np.ones(count)),
    }  # fmt: skip
    known |= columns
    arrays = [known.get(each.name, pa.nulls(count, each.type)) for each in SCHEMA]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def index_bomb(make: Callable[[], bytes]) -> Bomb:
    return lambda run: hostile.write_file(run, INDEX, make())


def long_lists() -> bytes:
    ends = pa.array(np.array([0, 20_000_000], np.int32))
    ones = pa.array(np.ones(20_000_000, np.int64))
    shape = pa.ListArray.from_arrays(ends, ones).cast(SCHEMA.field("shape").type)
    return hostile.sealed_parquet(rows_of(1, shape=shape), 1 << 17)


def long_text(column: str) -> bytes:
    code = pa.array(np.zeros(1 << 17, np.int32))
    text = pa.DictionaryArray.from_arrays(code, pa.array(["a" * (1 << 20)]))
    return hostile.sealed_parquet(rows_of(1 << 17, **{column: text}), 1 << 17)


def claimed_values() -> bytes:
    """An index file with a page that declares more values than the group has rows."""
    data = bytearray(encode_index(rows_of(5)))
    # Thrift's compact protocol: an integer as first field, its varint, zigzag.
    at = data.index(b"\x15\x0a\x15", 4)
    data[at + 1] = 0x7E
    return hostile.sealed_again(bytes(data))


def one_text(size: int) -> bytes:
    code = pa.array([0], pa.int32())
    text = pa.DictionaryArray.from_arrays(code, pa.array(["a" * size]))
    return hostile.sealed_parquet(rows_of(1, tensor=text), 1 << 17)


def no_texts() -> bytes:
    wrong = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff\xfe"], pa.binary()).buffers())
    text = pa.DictionaryArray.from_arrays(pa.array([0], pa.int32()), wrong)
    return hostile.sealed_parquet(rows_of(1, tensor=text), 1 << 17)


def other_types(**columns: pa.Array) -> Callable[[], bytes]:
    def make() -> bytes:
        table = rows_of(2)
        for name, array in columns.items():
            place = table.column_names.index(name)
            table = table.set_column(place, pa.field(name, array.type), array)
        return hostile.sealed_parquet(table, 1 << 17)

    return make


def deep_schema() -> bytes:
    table = rows_of(1)
    kind, array = pa.int64(), pa.array([1])
    for _ in range(90):
        array = pa.StructArray.from_arrays([array], ["a"])
        kind = array.type
    return hostile.sealed_parquet(table.append_column(pa.field("deep", kind), array), 1 << 17)


def sparse(key: str, size: int, tail: bytes = b"", head: bytes = b"") -> Bomb:
    def make(run: Path) -> None:
        path = hostile.write_file(run, key, head)
        with path.open("r+b") as file:
            file.truncate(size)
            file.seek(-len(tail) or 0, os.SEEK_END)
            file.write(tail)

    return make


def json_file(key: str, text: Callable[[], str]) -> Bomb:
    return lambda run: hostile.write_file(run, key, text().encode())


def record_bomb(payload: bytes, **row: Any) -> Bomb:
    """A record of these bytes, with a row that says everything of it correctly."""

    def make(run: Path) -> None:
        record = hostile.record(payload)
        hostile.write_file(run, EVENTS, record)
        known = {"event_file": EVENTS, "offset": 0, "length": len(record), "value": None,
                 "checksum": crc32c.crc32c(payload), "shape": None}  # fmt: skip
        hostile.write_index(run, [hostile.row("x", **{**known, **row})])

    return make


def tensor_payload(shape: list[int], content: bytes, kind: int = 1, field: int = 4) -> bytes:
    """An event with a tensor of any shape."""
    dims = b"".join(bytes_field(2, b"\x08" + varint(size & (2**64 - 1))) for size in shape)
    tensor = b"\x08" + varint(kind) + bytes_field(2, dims) + bytes_field(field, content)
    value = bytes_field(1, b"x") + bytes_field(8, tensor)
    return b"\x09" + bytes(8) + bytes_field(5, bytes_field(1, value))


def row_bomb(**row: Any) -> Bomb:
    return lambda run: hostile.write_index(run, [hostile.row("x", **row)])


def findings_bomb(make: Callable[[], pa.Table], **options: Any) -> Bomb:
    def write(run: Path) -> None:
        sink = pa.BufferOutputStream()
        pq.write_table(make(), sink, compression="zstd", **options)
        data = bytes(sink.getvalue())
        name = f"findings/0000000000001-00000000-{crc32c.crc32c(data):08x}.parquet"
        hostile.write_file(run, name, data)

    return write


def many_findings(count: int, message: str) -> pa.Table:
    code = pa.array(np.zeros(count, np.int32))

    def text(value: str) -> pa.Array:
        return pa.DictionaryArray.from_arrays(code, pa.array([value]))

    numbers = pa.array(np.ones(count))
    steps = pa.array(np.zeros(count, np.int64))
    return pa.table({
        "rule": text("R"), "step": steps, "mode": text("TRAIN"), "mode_step": steps,
        "tensor": text("t"), "worker": text("w"), "value": numbers, "threshold": numbers,
        "message": text(message), "time": numbers,
    })  # fmt: skip


def v1_run(content: Callable[[], dict[str, Any]]) -> Bomb:
    return lambda run: hostile.v1_index(run, content())


def v1_sparse(run: Path) -> None:
    """A record of a terabyte of zeros, which has no checksum in format v1."""
    size = 1 << 40
    key = "events/000000000000/000000000000_worker_0.tfevents"
    footer = np.uint32(records.V1_FOOTER).tobytes()
    sparse(key, size, footer, records.header(size - 16))(run)
    meta = {"mode": "TRAIN", "mode_step": 0, "event_file_name": key}
    payload = [{"tensorname": "x", "start_idx": 0, "length": size}]
    hostile.v1_index(run, {"meta": meta, "tensor_payload": payload})


META = {"mode": "TRAIN", "mode_step": 0, "event_file_name": "events/x"}
BOMBS: dict[str, Bomb] = {
    # Parquet
    "two million rows in a group": index_bomb(
        lambda: hostile.sealed_parquet(rows_of(1 << 21), 1 << 21)
    ),
    "a shape of 20 million sizes": index_bomb(long_lists),
    "a name of a megabyte in 131,072 rows": index_bomb(lambda: long_text("tensor")),
    "an event file of a megabyte": index_bomb(lambda: long_text("event_file")),
    "a name of 400 MB in 40 kB": index_bomb(lambda: one_text(400 << 20)),
    "more values than rows": index_bomb(claimed_values),
    "names that are no texts": index_bomb(no_texts),
    "steps that are texts": index_bomb(other_types(step=pa.array(["a", "b"]))),
    "steps that are null": index_bomb(other_types(step=pa.array([1, None]))),
    "names that are numbers": index_bomb(other_types(tensor=pa.array([1, 2]))),
    "a shape of texts": index_bomb(other_types(shape=pa.array([["a"], []]))),
    "columns in columns": index_bomb(deep_schema),
    "steps at the ends of int64": row_bomb(step=HUGE, mode_step=HUGE),
    "steps before the first": row_bomb(step=-HUGE),
    "a mode that is none": row_bomb(mode="X"),
    "a type that is none": row_bomb(dtype="object"),
    "a shape with a hole": row_bomb(shape=[1, None]),
    "a shape of 10^18": row_bomb(shape=[10**9, 10**9], value=None),
    "an empty shape of 10^18": row_bomb(shape=[10**9, 10**9, 0], value=None),
    "a shape of minus one": row_bomb(shape=[-1], value=None),
    "64 dimensions of one": row_bomb(shape=[1] * 64),
    "a place at the end of int64": row_bomb(
        event_file=EVENTS, offset=HUGE, length=HUGE, checksum=1, value=None
    ),
    "a terabyte of zeros as index": sparse(INDEX, 1 << 40, b"\xff\xff\xff\x7fPAR1", b"PAR1"),
    # findings
    "10^7 findings": findings_bomb(lambda: many_findings(10_000_000, "m")),
    "findings with 10 GB of text": findings_bomb(lambda: many_findings(10_000, "m" * (1 << 20))),
    # JSON
    "a terabyte of zeros as collections": sparse(collections_key(hostile.WORKER), 1 << 40),
    "a terabyte of zeros as request": sparse("control/stop-0000000000001-0.json", 1 << 40),
    "a terabyte of zeros as report": sparse("findings/0000000000001-0-0.json", 1 << 40),
    "a terabyte of zeros as end": sparse(END_KEY, 1 << 40),
    "ten million lists": json_file(
        collections_key(hostile.WORKER), lambda: '{"a": [' + "[]," * 10_000_000 + "[]]}"
    ),
    "lists in lists": json_file(
        collections_key(hostile.WORKER),
        lambda: '{"collections": {"a": {"include_regex": ' + "[" * 900 + "]" * 900 + "}}}",
    ),
    "lists in lists in lists": json_file(
        collections_key(hostile.WORKER), lambda: "[" * 100_000 + "]" * 100_000
    ),
    "a number of a million digits": json_file(
        collections_key(hostile.WORKER), lambda: '{"_meta": {"num_workers": ' + "9" * 10**6 + "}}"
    ),
    "a billion workers": json_file(
        collections_key(hostile.WORKER),
        lambda: '{"collections": {}, "_meta": {"num_workers": 1000000000}}',
    ),
    "no number of workers": json_file(
        collections_key(hostile.WORKER),
        lambda: '{"collections": {}, "_meta": {"num_workers": 1e999}}',
    ),
    # records
    "a shape that overflows": record_bomb(tensor_payload([1 << 32, 1 << 32], b"")),
    "a shape of 2^63": record_bomb(tensor_payload([HUGE], b"1234")),
    "a negative shape": record_bomb(tensor_payload([-1], b"1234")),
    "many dimensions": record_bomb(tensor_payload([1] * 1000, b"1234")),
    "a length of 2^63": record_bomb(b"\x2a" + varint(HUGE)),
    "messages in messages": record_bomb(b"\x2a\x80\x80\x04" * 10_000),
    "zeros": record_bomb(bytes(1 << 20)),
    "a million empty strings": record_bomb(
        tensor_payload([10**9], b"", kind=7, field=8) + bytes_field(5, b"\x0a\x00" * 500_000)
    ),
    "a terabyte of zeros as record": v1_sparse,
    # format v1
    "a shape of a million sizes": v1_run(
        lambda: {"meta": META, "shape_payload": [
            {"tensorname": "x", "originalname": "x", "shape": [2**62] * 10**6}]}
    ),
    "half a character": v1_run(
        lambda: {"meta": META, "shape_payload": [
            {"tensorname": "\ud800", "originalname": "x", "shape": [1]}]}
    ),
    "a mode step of 10^30": v1_run(
        lambda: {"meta": {**META, "mode_step": 10**30}, "shape_payload": []}
    ),
}  # fmt: skip


def test_memory_is_bounded(tmp_path: Path, tally: Tally) -> None:
    names = list(BOMBS)
    tried = names[:: -(-len(names) // amount(len(names), 16))]
    runs = []
    for number, name in enumerate(tried):
        run = tmp_path / f"run{number}"
        hostile.write_frame(run, {"losses": {"include_regex": ["x"]}})
        BOMBS[name](run)
        runs.append(run)
    outcome = hostile.read_in_child(runs, WAYS, memory=MEMORY, seconds=600)
    wrong = {int(way.partition(":")[0].removeprefix("run")) for way in outcome.unnamed}
    tally.add(
        6, "lengths, shapes, nesting and compression that ask for memory", len(tried),
        0 if outcome.code else len(tried) - len(wrong),
        f"peak {outcome.peak >> 20} MB in one process with {MEMORY >> 30} GB, {len(WAYS)} ways",
    )  # fmt: skip
    assert outcome.code == 0, outcome.err[-2000:]
    told = {tried[number] for number in wrong}
    assert not outcome.unnamed, (told, json.dumps(outcome.unnamed, indent=1))


def test_many_files_and_groups(tmp_path: Path, tally: Tally) -> None:
    """Thousands of row groups, and of files, cost what they hold."""
    files, groups = amount(20_000, 150), amount(5000, 150)
    run = tmp_path / "run"
    hostile.write_frame(run)
    data = hostile.sealed_parquet(rows_of(groups), 1)
    hostile.write_file(run, INDEX, data)
    one = bytes(encode_index(rows_of(1)))
    for number in range(1, files):
        hostile.write_file(run, index_key(0, number, hostile.WORKER), one)
    outcome = hostile.read_in_child([run], ["questions", "ls", "check"], memory=MEMORY, seconds=600)
    tally.add(
        6, "row groups and files in one run", files + groups,
        0 if outcome.code or outcome.unnamed else files + groups, f"peak {outcome.peak >> 20} MB",
    )  # fmt: skip
    assert outcome.code == 0, outcome.err[-2000:]
    assert not outcome.unnamed, outcome.unnamed


def test_large_valid_run_is_accepted(tmp_path: Path, tally: Tally) -> None:
    """What is bounded lies far above of what hooks write: long names, many rows, large tensors."""
    groups = amount(60, 4)
    run = tmp_path / "run"
    hostile.write_frame(run)
    rows = (1 << 17) * groups
    hostile.write_file(run, INDEX, bytes(encode_index(rows_of(rows))))
    names = [f"{'n' * 2000}{number}" for number in range(2000)]
    long_names = hostile.scalar_rows(names, steps=1)
    hostile.write_index(run, [{**each, "step": rows + 1} for each in long_names], rows + 1, 1)
    large = np.zeros(amount(1 << 26, 1 << 20), np.float32)
    event = encode_tensor(
        "large", large, step=rows + 2, mode=ModeKeys.TRAIN, mode_step=1, wall_time=1.0
    )
    payload = b"".join(map(bytes, event))
    key = event_key(rows + 2, 2, hostile.WORKER)
    record = hostile.record(payload)
    hostile.write_file(run, key, record)
    row = hostile.row(
        "large", step=rows + 2, event_file=key, offset=0, length=len(record), value=None, seq=2,
        shape=[large.size], checksum=crc32c.crc32c(payload),
    )  # fmt: skip
    hostile.write_index(run, [row], rows + 2, 2)
    trial = create_trial(str(run), wait_seconds=0)
    steps = len(trial.steps())
    found = (steps, len(trial.tensor_names()), trial.tensor("large").value(rows + 2).size)
    fine = found == (rows + 2, 2002, large.size)
    tally.add(
        6, "honest rows, long names and a large tensor, read", rows + 2001, fine * (rows + 2001)
    )
    assert found == (rows + 2, 2002, large.size)


REGEXES = [
    "(a+)+$", "(a|a)*b", "(a|aa)+$", "(.*a){30}b", "((a*)*)*b", "(?:a?){80}a{80}b",
    "^(?=(?:a+)+$)", "(a)\\1", "(?:a{1,1000}){1,1000}", "(" * 600, "a" * 100_000,
]  # fmt: skip


def test_slow_regexes_are_stopped(tmp_path: Path, tally: Tally) -> None:
    names = [f"{'a' * 60}/{number}c" for number in range(amount(10_000, 300))]
    many = [f"(a|b{number})+x.*y$" for number in range(amount(1000, 50))]
    run = tmp_path / "run"
    collections = {
        f"c{number}": {"include_regex": [regex], "exclude_regex": [regex]}
        for number, regex in enumerate(REGEXES)
    }
    collections["many"] = {"include_regex": many}
    collections["losses"] = {"include_regex": ["(a+)+$"]}
    hostile.write_frame(run, collections)
    hostile.write_index(run, hostile.scalar_rows([*names, "loss"], steps=1))
    ways = ["questions", "rules", "show", "export tensorboard"]
    outcome = hostile.read_in_child([run], ways, memory=MEMORY, seconds=900)
    tried = len(REGEXES) + len(many)
    tally.add(
        6, "regexes of a run that take Python's re for ever", tried,
        0 if outcome.code or outcome.unnamed else tried, f"{len(names):,} names",
    )  # fmt: skip
    assert outcome.code == 0, outcome.err[-2000:]
    assert not outcome.unnamed, outcome.unnamed
