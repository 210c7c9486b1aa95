"""Runs as tables: what pandas, duckdb, pyarrow and Python's csv read of them."""

from __future__ import annotations

import csv
import io
import json
import math
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pandas
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.trials.mixed_run import AWKWARD, REDUCTIONS, STEPS, WORKERS, Truth

from smdebug.exceptions import SMDebugValueError
from smdebug.mode_keys import ModeKeys
from smdebug.storage.batch import Entry, StepBatch
from smdebug.storage.stores.base import open_store
from smdebug.storage.stores.memory import MemoryStore
from smdebug.testing import make_run
from smdebug.trials import create_trial
from smdebug.trials.export import table as export_table
from smdebug.trials.export.table import export_csv, export_parquet
from smdebug.trials.selection import Selection
from smdebug.trials.trial import Trial

if TYPE_CHECKING:
    from pathlib import Path


def selection(mixed: Path, **chosen: Any) -> Selection:
    return Selection(create_trial(str(mixed)), **chosen)


def is_number(entry: Entry) -> bool:
    return entry.value is not None and entry.value.size == 1 and entry.name != "large_count"


def same(found: float | None, expected: float | None) -> bool:
    if found is None or expected is None:
        return found is expected
    return found == expected or (math.isnan(found) and math.isnan(expected))


def check_rows(rows: list[dict[str, Any]], truth: Truth) -> None:
    assert len(rows) == len(truth)
    for row in rows:
        entry = truth[row["worker"], row["step"], row["tensor"]]
        assert row["mode"] == ("EVAL" if row["step"] == 2 else "TRAIN")
        assert row["mode_step"] == (0 if row["step"] == 2 else row["step"])
        assert row["time"] == 1000.0 + row["step"]
        number = float(np.asarray(entry.value).item()) if is_number(entry) else None
        assert same(row["value"], number), row
        for name in REDUCTIONS:
            saved = entry.reductions.get(name)
            assert same(row[name], saved), (row, name)


def test_parquet(
    mixed: Path, truth: Truth, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export_table, "_ROWS_PER_GROUP", 100)
    out = tmp_path / "run.parquet"
    done = export_parquet(selection(mixed), str(out))
    assert (done.files, done.steps, done.rows) == (1, len(STEPS), len(truth))
    with duckdb.connect() as connection:
        answer = connection.execute(f"select * from '{out}'")
        names = [column[0] for column in answer.description]
        rows = [dict(zip(names, row, strict=True)) for row in answer.fetchall()]
    check_rows(rows, truth)
    # What only says where bytes lie in the run is not there, nor what nobody saved.
    assert not {"event_file", "offset", "length", "checksum", "digest", "seq", "l1"} & set(names)
    assert pyarrow.parquet.ParquetFile(out).metadata.num_row_groups > 1
    frame = pandas.read_parquet(out)
    losses = frame[(frame.tensor == "loss") & (frame.worker == WORKERS[1])].value.tolist()
    assert losses == [float(truth[WORKERS[1], step, "loss"].value) for step in STEPS]  # type: ignore[arg-type]
    assert [path.name for path in tmp_path.iterdir()] == ["run.parquet"]


def test_values(mixed: Path, truth: Truth, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_table, "_BYTES_AT_ONCE", 200)
    out = tmp_path / "run.parquet"
    done = export_parquet(selection(mixed), str(out), values=True)
    assert done.left_out.keys() == {"text", "complex/c64", "complex/c128"}
    rows = pyarrow.parquet.read_table(out).to_pylist()
    check_rows(rows, truth)
    for row in rows:
        entry = truth[row["worker"], row["step"], row["tensor"]]
        if entry.value is None or entry.name in done.left_out:
            assert row["values"] is None
            continue
        expected = entry.value.astype(np.float64).reshape(-1)
        assert np.array(row["values"]).tobytes() == expected.tobytes()
        assert tuple(row["shape"]) == entry.value.shape
    with duckdb.connect() as connection:
        query = f"select sum(len(values)) from '{out}' where tensor = 'fc.weight'"
        ((total,),) = connection.execute(query).fetchall()
    assert total == 15 * len(STEPS) * len(WORKERS)


def test_a_data_set(
    mixed: Path, truth: Truth, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export_table, "_ROWS_PER_GROUP", 20)
    monkeypatch.setattr(export_table, "_ROWS_PER_FILE", 100)
    out = f"{tmp_path}/set/"
    done = export_parquet(selection(mixed), out)
    parts = sorted(path.name for path in (tmp_path / "set").iterdir())
    assert parts == [f"part-{number:05d}.parquet" for number in range(done.files)]
    assert done.files > 1
    check_rows(pandas_rows(pandas.read_parquet(out, dtype_backend="pyarrow")), truth)
    with pytest.raises(SMDebugValueError, match="holds part-"):
        export_parquet(selection(mixed), out)
    fewer = export_parquet(selection(mixed, tensor="^loss$"), out, force=True)
    assert fewer.files == 1
    assert len(pandas.read_parquet(out)) == len(STEPS) * len(WORKERS)
    for name in ("mine.parquet", "part-1.parquet", "deep/part-00000.parquet"):
        (tmp_path / "set" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "set" / name).write_text("mine", encoding="utf-8")
    (tmp_path / "set" / "part-00009.parquet").write_text("old", encoding="utf-8")
    export_parquet(selection(mixed, tensor="^loss$"), out, force=True)
    left = {path.relative_to(tmp_path / "set").as_posix() for path in tmp_path.rglob("*.parquet")}
    assert left == {
        "mine.parquet", "part-1.parquet", "deep/part-00000.parquet", "part-00000.parquet"
    }  # fmt: skip


def test_runs_are_left_alone(mixed: Path, tmp_path: Path) -> None:
    chosen, other = selection(mixed, tensor="^loss$"), tmp_path / "runs/other"
    make_run(other, range(2))
    (index,) = (other / "index").rglob("*.parquet")
    (tmp_path / "link").symlink_to(other)
    (tmp_path / "to_index").symlink_to(index)
    (other / "from_run").symlink_to(tmp_path / "elsewhere.csv")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    inside = [other / name for name in ("training_job_end.ts", "new.csv", "a/b/c.csv", "from_run")]
    for export in (export_parquet, export_csv):
        for place in (*inside, index, tmp_path / "link/new.csv", tmp_path / "to_index"):
            with pytest.raises(SMDebugValueError, match=r"lies in the run .*/runs/other;"):
                export(chosen, str(place), force=True)
        with pytest.raises(SMDebugValueError, match="must lie apart from the run, got"):
            export(chosen, f"{mixed}/x.csv")
    for folder, said in (
        ("runs/", "holds the run other"),
        ("runs/other/", "which is one"),
        ("runs/other/index/", "lies in the run"),
    ):
        with pytest.raises(SMDebugValueError, match=said):
            export_parquet(chosen, f"{tmp_path}/{folder}", force=True)
    after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert after == before


def pandas_rows(frame: Any) -> list[dict[str, Any]]:
    columns = {name: frame[name].array.__arrow_array__().to_pylist() for name in frame.columns}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def test_csv(mixed: Path, truth: Truth, tmp_path: Path) -> None:
    out = tmp_path / "run.csv"
    done = export_csv(selection(mixed), str(out))
    assert (done.files, done.steps, done.rows) == (1, len(STEPS), len(truth))
    with out.open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file, strict=True))
    numbers = ("time", "value", *REDUCTIONS)
    rows = [
        {
            **line,
            "step": int(line["step"]),
            "mode_step": int(line["mode_step"]),
            **{name: float(line[name]) if line[name] else None for name in numbers},
        }
        for line in lines
    ]
    check_rows(rows, truth)
    assert {line["value"] for line in lines if line["tensor"] == "nan_loss"} == {"nan"}
    for line in lines:
        if line["shape"]:
            entry = truth[line["worker"], int(line["step"]), line["tensor"]]
            value = entry.value
            assert tuple(json.loads(line["shape"])) == (
                entry.shape if value is None else value.shape
            )
    frame = pandas.read_csv(out, keep_default_na=False, na_values={"value": [""]})
    assert set(frame.tensor) == {name for _, _, name in truth}
    assert AWKWARD in set(frame.tensor)


def test_there_is_something(mixed: Path, tmp_path: Path) -> None:
    chosen = selection(mixed, tensor="^loss$")
    out = tmp_path / "x.csv"
    out.write_text("mine", encoding="utf-8")
    for export in (export_csv, export_parquet):
        with pytest.raises(SMDebugValueError, match="is there already"):
            export(chosen, str(out))
        with pytest.raises(SMDebugValueError, match="must be the name of a file"):
            export(chosen, str(tmp_path), force=True)
        with pytest.raises(SMDebugValueError, match="must name a file in the bucket"):
            export(chosen, "s3://bucket")
    assert out.read_text(encoding="utf-8") == "mine"
    export_csv(chosen, str(out), force=True)
    assert out.read_text(encoding="utf-8").startswith('"step"')


def test_nothing_is_left_of_what_failed(mixed: Path, tmp_path: Path) -> None:
    def refuse(done: int, total: int) -> None:
        raise OSError("enough")

    with pytest.raises(OSError, match="enough"):
        export_parquet(selection(mixed), str(tmp_path / "x.parquet"), tell=refuse)
    with pytest.raises(SMDebugValueError, match="must be something to write"):
        # The first worker has no such step of this mode.
        export_csv(selection(mixed, mode=ModeKeys.EVAL, steps=(0, 2)), str(tmp_path / "y.csv"))
    assert list(tmp_path.iterdir()) == []


def test_into_a_store(mixed: Path) -> None:
    export_csv(selection(mixed, tensor="^loss$"), "memory://tables/a.csv", force=True)
    content = bytes(open_store("memory://tables").read("a.csv"))
    assert len(content.splitlines()) == 1 + len(STEPS) * len(WORKERS)


# What UTF-8 can hold; a NUL ends a line for some readers of CSV.
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1)


def in_a_spreadsheet(name: str) -> str:
    return f"'{name}" if name.startswith(("=", "+", "-", "@", "\t", "\r", "\n")) else name


def test_a_name_is_no_formula(tmp_path: Path) -> None:
    names = ["=cmd()", "+1", "-1", "@x", "\t=1", "a=b", "'x"]
    entries = [Entry(name, np.float64(-1)) for name in names]
    make_run(tmp_path, [0], data=lambda worker, step: StepBatch(step, ModeKeys.TRAIN, 0, entries))
    export_csv(Selection(create_trial(str(tmp_path))), "memory://formulas/x.csv", force=True)
    text = bytes(open_store("memory://formulas").read("x.csv")).decode()
    lines = list(csv.DictReader(io.StringIO(text, newline="")))
    assert {line["tensor"] for line in lines} == set(map(in_a_spreadsheet, names))
    # Numbers are numbers.
    assert {line["value"] for line in lines} == {"-1"}


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(TEXTS, st.floats(width=64), min_size=1, max_size=5))
def test_any_name_and_number(numbers: dict[str, float]) -> None:
    store, out = MemoryStore(), "memory://any/x.csv"
    entries = [Entry(name, np.float64(number)) for name, number in numbers.items()]
    make_run(store, [0], data=lambda worker, step: StepBatch(step, ModeKeys.TRAIN, step, entries))
    chosen = Selection(Trial("memory://source", store=store))
    export_csv(chosen, out, force=True)
    text = bytes(open_store("memory://any").read("x.csv")).decode()
    lines = list(csv.DictReader(io.StringIO(text, newline=""), strict=True))
    expected = {in_a_spreadsheet(name): repr(number) for name, number in numbers.items()}
    assert {line["tensor"]: repr(float(line["value"])) for line in lines} == expected
    # As texts: pandas rounds a number in its last bit.
    frame = pandas.read_csv(io.StringIO(text), dtype=str, keep_default_na=False)
    pairs = zip(frame.tensor, frame.value, strict=True)
    assert {name: repr(float(number)) for name, number in pairs} == expected
