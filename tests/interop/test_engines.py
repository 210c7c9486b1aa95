"""The index of a v2 run is a Parquet data set: engines that know nothing of us read it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pandas
import pyarrow.dataset
import pyarrow.parquet
import pytest

from smdebug import modes
from smdebug.reductions import Array, compute_reductions
from smdebug.storage.batch import Entry, StepBatch
from smdebug.storage.stores.local import LocalStore
from smdebug.storage.writer import RunWriter
from smdebug.trials import create_trial

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

WORKERS = ("worker_0", "host b/1")
# Two folders of a thousand steps each.
STEPS = (0, 1, 2, 1000, 1001)
COLUMNS = ["worker", "step", "tensor", "mode", "mode_step", "dtype", "value", "mean", "l2", "nans"]
COLLECTIONS = '{"collections": {}, "_meta": {"num_workers": 2}}'

Row = dict[str, Any]


def tensors(worker: str, step: int) -> dict[str, Array]:
    random = np.random.default_rng([step, WORKERS.index(worker)])
    return {
        "weight": random.normal(size=(3, 4)).astype(np.float32),
        "gradient/weight": np.where(random.random(5) < 0.3, np.nan, random.normal(size=5)),
        "loss": np.float32(random.normal()),
        "count": np.array([large_count(step)]),
    }


def large_count(step: int) -> int:
    # Odd: a float64 would lose its last digit, so it lies in an event record, not in `value`.
    return int(2**60 + 2 * step + 1)


def batch(worker: str, step: int) -> StepBatch:
    entries = [
        Entry(name, np.asarray(array), reductions(name, array))
        for name, array in tensors(worker, step).items()
    ]
    entries.append(Entry("reduced", reductions={"mean": step / 3, "l2": 1e300}, shape=(2, 2)))
    mode = modes.EVAL if step == 2 else modes.TRAIN
    return StepBatch(step, mode, step, entries, time=1000.0 + step)


def reductions(name: str, array: Array) -> dict[str, float]:
    wanted = ["mean", "l2", "nans"] if "weight" in name else []
    return {key: float(value) for key, value in compute_reductions(array, wanted).items()}


def truth() -> list[Row]:
    rows = []
    for worker in WORKERS:
        for step in STEPS:
            saved = batch(worker, step)
            for entry in saved.entries:
                array = tensors(worker, step).get(entry.name)
                rows.append(
                    {
                        "worker": worker,
                        "step": step,
                        "tensor": entry.name,
                        "mode": saved.mode.name,
                        "mode_step": step,
                        "dtype": None if array is None else array.dtype.name,
                        "value": array.item() if array is not None and array.ndim == 0 else None,
                        **{key: entry.reductions.get(key) for key in ("mean", "l2", "nans")},
                    }
                )
    return ordered(rows)


def ordered(rows: list[Row]) -> list[Row]:
    plain = [
        # A NaN is a value, here and in the index, and equals nothing: it gets a name.
        {k: "NaN" if isinstance(v, float) and math.isnan(v) else v for k, v in row.items()}
        for row in rows
    ]
    return sorted(plain, key=lambda row: (row["worker"], row["step"], row["tensor"]))


@pytest.fixture(params=["segments", "compacted"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A run of two workers; while it is written, in many files, and after it was closed."""
    writers = [RunWriter(LocalStore(str(tmp_path)), worker) for worker in WORKERS]
    for writer in writers:
        writer.write_collections(COLLECTIONS)
        for step in STEPS:
            writer.submit(batch(writer.worker, step))
            writer.finish_step()
            writer.flush()
    assert len(index_files(tmp_path)) == len(STEPS) * len(WORKERS)
    if request.param == "compacted":
        for writer in writers:
            writer.close()
        assert len(index_files(tmp_path)) == len(WORKERS)
    yield tmp_path
    for writer in writers:
        writer.close()


def index_files(run: Path) -> list[Path]:
    return sorted((run / "index").glob("**/*.parquet"))


# ---- one function per engine: all rows of a run


def with_duckdb(run: Path) -> list[Row]:
    with duckdb.connect() as connection:
        query = f"select {', '.join(COLUMNS)} from '{run}/index/**/*.parquet'"
        found = connection.execute(query).fetchall()
    return [dict(zip(COLUMNS, row, strict=True)) for row in found]


def with_pyarrow(run: Path) -> list[Row]:
    data = pyarrow.dataset.dataset(run / "index", format="parquet")
    rows: list[Row] = data.to_table(columns=COLUMNS).to_pylist()
    return rows


def with_parquet(run: Path) -> list[Row]:
    rows: list[Row] = pyarrow.parquet.read_table(run / "index", columns=COLUMNS).to_pylist()
    return rows


def with_pandas(run: Path) -> list[Row]:
    # The default backend cannot tell a missing number from NaN.
    frame = pandas.read_parquet(run / "index", columns=COLUMNS, dtype_backend="pyarrow")
    columns = {name: frame[name].array.__arrow_array__().to_pylist() for name in COLUMNS}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def with_trial(run: Path) -> list[Row]:
    rows: list[Row] = create_trial(run).to_arrow(COLUMNS).to_pylist()
    return rows


@pytest.mark.parametrize(
    "engine", [with_duckdb, with_pyarrow, with_parquet, with_pandas, with_trial]
)
def test_rows(run: Path, engine: Callable[[Path], list[Row]]) -> None:
    assert ordered(engine(run)) == truth()


# ---- questions as people ask them


def test_duckdb_question(run: Path) -> None:
    with duckdb.connect() as connection:
        found = connection.execute(
            f"""
            select worker, max(l2) as largest
            from '{run}/index/**/*.parquet'
            where tensor = 'weight' and mode = 'TRAIN' and step < 1001
            group by worker order by worker
            """
        ).fetchall()
    expected = {
        worker: max(
            float(np.linalg.norm(tensors(worker, step)["weight"].astype(np.float64)))
            for step in (0, 1, 1000)
        )
        for worker in WORKERS
    }
    assert [worker for worker, _ in found] == sorted(WORKERS)
    for worker, largest in found:
        assert largest == pytest.approx(expected[worker], rel=1e-6)


def test_duckdb_finds_the_nans(run: Path) -> None:
    with duckdb.connect() as connection:
        found = connection.execute(
            f"select worker, step from '{run}/index/**/*.parquet' where nans > 0 or isnan(mean)"
        ).fetchall()
    expected = {
        (worker, step)
        for worker in WORKERS
        for step in STEPS
        if np.isnan(tensors(worker, step)["gradient/weight"]).any()
    }
    assert expected
    assert set(found) == expected


def test_pandas_question(run: Path) -> None:
    frame = pandas.read_parquet(run / "index")
    loss = frame[frame.tensor == "loss"].pivot(index="step", columns="worker", values="value")
    assert loss.index.tolist() == list(STEPS)
    for worker in WORKERS:
        assert loss[worker].tolist() == [float(tensors(worker, step)["loss"]) for step in STEPS]


def test_pyarrow_filter_and_nested_column(run: Path) -> None:
    data = pyarrow.dataset.dataset(run / "index", format="parquet")
    chosen = data.to_table(
        columns=["shape", "event_file"], filter=pyarrow.dataset.field("tensor") == "weight"
    )
    assert chosen["shape"].to_pylist() == [[3, 4]] * len(STEPS) * len(WORKERS)
    assert all((run / name).is_file() for name in chosen["event_file"].to_pylist())


def test_rows_lead_to_the_bytes(run: Path) -> None:
    data = pyarrow.parquet.read_table(run / "index").to_pylist()
    for row in (row for row in data if row["tensor"] == "count"):
        record = (run / row["event_file"]).read_bytes()[row["offset"] :][: row["length"]]
        assert large_count(row["step"]).to_bytes(8, "little") in record


def test_all_files_have_one_schema(run: Path) -> None:
    first, *others = [
        pyarrow.parquet.read_schema(file).remove_metadata() for file in index_files(run)
    ]
    assert others
    assert all(schema.equals(first) for schema in others)


def test_step_saved_again(tmp_path: Path) -> None:
    for value in (1.0, 2.0):
        writer = RunWriter(LocalStore(str(tmp_path)))
        writer.write_collections('{"collections": {}, "_meta": {"num_workers": 1}}')
        writer.submit(StepBatch(7, modes.TRAIN, 7, [Entry("loss", np.float64(value))]))
        writer.close(end=value == 2.0)
    # After compaction an engine meets each row once, the newer one.
    found = pandas.read_parquet(tmp_path / "index")
    assert found[["step", "value"]].to_numpy().tolist() == [[7.0, 2.0]]
