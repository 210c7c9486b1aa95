"""The index as a table: SQL, Arrow and pandas, compared with what was written."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from smdebug.analysis.utils import no_refresh
from smdebug.exceptions import SMDebugValueError
from smdebug.mode_keys import ModeKeys
from smdebug.storage.batch import Entry, StepBatch
from smdebug.storage.stores.local import LocalStore
from smdebug.storage.v2.index_file import IndexFile
from smdebug.storage.writer import RunWriter
from smdebug.testing.runs import default_batch, default_collections, make_run
from smdebug.trials import Trial, create_trial

if TYPE_CHECKING:
    from pathlib import Path

    Rich = tuple[str, dict[tuple[str, int], StepBatch]]


@pytest.fixture(scope="module")
def trial(rich: Rich) -> Trial:
    return create_trial(rich[0])


def written_rows(rich: Rich, first: int = 0, end: int = 10**9) -> list[tuple[Any, ...]]:
    """(worker, step, mode, mode step, tensor) of everything that was saved, sorted."""
    return sorted(
        (worker, step, batch.mode.name, batch.mode_step, entry.name)
        for (worker, step), batch in rich[1].items()
        if first <= step < end
        for entry in batch.entries
    )


def found_rows(table: Any) -> list[tuple[Any, ...]]:
    names = ("worker", "step", "mode", "mode_step", "tensor")
    return sorted(zip(*(table[name].to_pylist() for name in names), strict=True))


def cells(frame: Any, name: str) -> list[Any]:
    """A column of a DataFrame, with None for what is missing."""
    missing = frame[name].isna().tolist()
    return [None if gone else v for v, gone in zip(frame[name].tolist(), missing, strict=True)]


# ---- Arrow and pandas


def test_every_row_once(trial: Trial, rich: Rich) -> None:
    assert found_rows(trial.to_arrow()) == written_rows(rich)


@pytest.mark.parametrize(("first", "end"), [(2, 6), (None, 5), (5, None), (100, None)])
def test_rows_of_a_range(rich: Rich, first: int | None, end: int | None) -> None:
    trial = create_trial(rich[0], range_steps=(first, end))
    expected = written_rows(rich, first or 0, 10**9 if end is None else end)
    assert found_rows(trial.to_arrow()) == expected
    assert trial.sql("select count(*) as n from run")["n"].tolist() == [len(expected)]
    assert trial.to_arrow(["tensor"]).column_names == ["tensor"]
    assert sorted(trial.to_arrow(["tensor"])["tensor"].to_pylist()) == sorted(
        row[-1] for row in expected
    )


def test_reductions_of_all_rows(trial: Trial, rich: Rich) -> None:
    table = trial.to_arrow(["worker", "step", "tensor", "l2", "abs_mean", "max", "std"])
    assert table.column_names == ["worker", "step", "tensor", "l2", "abs_mean", "max", "std"]
    for row in table.to_pylist():
        batch = rich[1][row["worker"], row["step"]]
        entry = next(entry for entry in batch.entries if entry.name == row["tensor"])
        for name in ("l2", "abs_mean", "max", "std"):
            assert row[name] == entry.reductions.get(name)


def test_columns_that_hold_nothing_are_left_out(trial: Trial) -> None:
    names = trial.to_arrow().column_names
    assert {"step", "mode", "worker", "tensor", "l2", "l1", "abs_max"} <= set(names)
    assert not {"prod", "median", "nans"} & set(names)
    assert trial.to_arrow(["step", "median"])["median"].null_count == trial.to_arrow().num_rows


def test_an_unknown_column_is_an_error_at_once(
    trial: Trial, rich: Rich, monkeypatch: pytest.MonkeyPatch
) -> None:
    def listed(self: LocalStore, prefix: str = "", after: str = "") -> Any:
        raise AssertionError("the run was listed")

    for each in (trial, create_trial(rich[0], range_steps=(2, 6))):
        with monkeypatch.context() as patched:
            patched.setattr(LocalStore, "list", listed)
            with pytest.raises(SMDebugValueError, match=r"'abs_maxx'.* Did you mean 'abs_max'"):
                each.to_arrow(["step", "abs_maxx"])
            with pytest.raises(SMDebugValueError, match=r"Columns of the index: .*step.* l2"):
                each.to_pandas(["l3"])


def test_a_missing_key_that_compaction_does_not_explain_is_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run(tmp_path, [0])
    trial = create_trial(tmp_path)
    calls: list[str] = []

    def table(self: IndexFile, columns: Any) -> Any:
        calls.append("read")
        raise KeyError("of another kind")

    monkeypatch.setattr(IndexFile, "table", table)
    with pytest.raises(KeyError, match="of another kind"):
        trial.to_arrow(["step"])
    assert calls == ["read"]


def test_scalars_and_shapes_of_format_2(tmp_path: Path) -> None:
    arrays = [np.asarray(1.5), np.asarray([2.5], np.float32), np.zeros((2, 3)), np.zeros((0,))]
    entries = [Entry(f"t{n}", array) for n, array in enumerate(arrays)]
    make_run(tmp_path, [0], data={("worker_0", 0): StepBatch(0, ModeKeys.TRAIN, 0, entries)})
    rows = {row["tensor"]: row for row in create_trial(tmp_path).to_arrow().to_pylist()}
    assert [rows[f"t{n}"]["value"] for n in range(4)] == [1.5, 2.5, None, None]
    assert [rows[f"t{n}"]["shape"] for n in range(4)] == [[], [1], [2, 3], [0]]
    assert [rows[f"t{n}"]["dtype"] for n in range(4)] == ["float64", "float32"] + ["float64"] * 2


def test_pandas(trial: Trial, rich: Rich) -> None:
    frame = trial.to_pandas(["worker", "step", "tensor", "l2"])
    assert len(frame) == len(written_rows(rich))
    gradients = frame[frame["tensor"] == "gradient/fc"].sort_values(["worker", "step"])
    expected = [
        next(e for e in rich[1][worker, step].entries if e.name == "gradient/fc").reductions["l2"]
        for worker in ("worker_0", "worker_1")
        for step in (0, 2, 4, 9)
    ]
    assert gradients["l2"].tolist() == expected


# ---- SQL


def test_sql_of_a_reduction(trial: Trial, rich: Rich) -> None:
    frame = trial.sql(
        "select step, l2 from run where tensor = 'gradient/fc' and worker = 'worker_1' order by 1"
    )
    assert list(frame.columns) == ["step", "l2"]
    assert frame["step"].tolist() == [0, 2, 4, 9]
    assert frame["l2"].tolist() == [
        next(e for e in rich[1]["worker_1", step].entries if e.name == "gradient/fc").reductions[
            "l2"
        ]
        for step in (0, 2, 4, 9)
    ]


def test_sql_counts_every_row_once(trial: Trial, rich: Rich) -> None:
    frame = trial.sql(
        "select worker, step, mode, mode_step, tensor, count(*) as n from run group by all"
    )
    assert set(frame["n"]) == {1}
    names = ("worker", "step", "mode", "mode_step", "tensor")
    found = sorted(zip(*(frame[name].tolist() for name in names), strict=True))
    assert found == written_rows(rich)


def test_sql_knows_every_column_of_every_run(trial: Trial) -> None:
    """A column that this run does not fill is empty, not unknown."""
    frame = trial.sql("select distinct median, nans, prod, value is null as v from run")
    assert cells(frame, "median")[0] is None
    assert cells(frame, "nans")[0] is None


def test_sql_of_a_run_without_steps(tmp_path: Path, format: str) -> None:
    make_run(tmp_path, [], format=format, end=False)
    for range_steps in (None, (3, 7)):
        trial = create_trial(tmp_path, range_steps=range_steps)
        assert trial.sql("select count(*) as n from run")["n"].tolist() == [0]
        assert trial.sql("select step, l2 from run").empty
        assert trial.to_arrow().num_rows == 0
        assert trial.to_pandas().empty


def test_sql_that_is_wrong_says_so(trial: Trial) -> None:
    with pytest.raises(Exception, match="no_such_column"):
        trial.sql("select no_such_column from run")


@pytest.mark.parametrize("name", ["run[1]", "run*", "run?", "it's", "a b", "{x,y}", "100%", "ü"])
def test_sql_of_paths_with_odd_names(tmp_path: Path, name: str) -> None:
    # A neighbour that a pattern would find too.
    make_run(tmp_path / "run1", [50])
    make_run(tmp_path / name, range(3))
    frame = create_trial(tmp_path / name).sql("select distinct step from run order by step")
    assert frame["step"].tolist() == [0, 1, 2]


def test_nan_is_a_value_and_null_is_none(tmp_path: Path, format: str) -> None:
    def data(worker: str, step: int) -> StepBatch:
        reductions = {"mean": math.nan} if step == 0 else {"max": math.inf}
        return StepBatch(step, ModeKeys.TRAIN, step, [Entry("x", reductions=reductions)])

    make_run(tmp_path, range(2), format=format, data=data)
    trial = create_trial(tmp_path)
    frame = trial.sql(
        "select isnan(mean) as nan, mean is null as none, isinf(max) as inf from run order by step"
    )
    assert cells(frame, "nan") == [True, None]
    assert cells(frame, "none") == [False, True]
    assert cells(frame, "inf") == [None, True]


# ---- several segments, resumed runs, live runs


def _numbers(offset: float) -> Any:
    def data(worker: str, step: int) -> StepBatch:
        value = np.asarray(step + offset)
        reductions = {"mean": step + offset}
        return StepBatch(step, ModeKeys.TRAIN, step, [Entry("x", value, reductions)])

    return data


@pytest.mark.parametrize("flush_every", [None, 2])
def test_a_resumed_run_gives_each_row_once(
    tmp_path: Path, format: str, flush_every: int | None
) -> None:
    make_run(
        tmp_path, range(6), format=format, data=_numbers(0), flush_every=flush_every, end=False
    )
    make_run(tmp_path, range(3, 8), format=format, data=_numbers(0.5), flush_every=flush_every)
    trial = create_trial(tmp_path)
    expected = [0.0, 1.0, 2.0, 3.5, 4.5, 5.5, 6.5, 7.5]
    frame = trial.sql("select step, mean from run order by step")
    assert frame["step"].tolist() == list(range(8))
    assert frame["mean"].tolist() == expected
    table = trial.to_arrow(["step", "mean"])
    assert sorted(zip(table["step"].to_pylist(), table["mean"].to_pylist(), strict=True)) == list(
        enumerate(expected)
    )
    _steps, values = trial.tensor("x").series("mean")
    assert values.tolist() == expected
    assert [float(trial.tensor("x").value(step)) for step in range(8)] == expected


def test_a_live_run_of_several_segments(tmp_path: Path, format: str) -> None:
    make_run(tmp_path, range(3), ["a", "b"], format, _numbers(0), end=False)
    trial = create_trial(tmp_path)
    assert trial.sql("select count(*) as n from run")["n"].tolist() == [6]
    make_run(tmp_path, range(3, 5), ["a", "b"], format, _numbers(0), end=False)
    trial.refresh_data()
    frame = trial.sql("select worker, step, mean from run order by worker, step")
    assert frame["worker"].tolist() == ["a"] * 5 + ["b"] * 5
    assert frame["mean"].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0] * 2


def test_other_programs_read_the_index_as_it_lies(tmp_path: Path) -> None:
    import duckdb

    make_run(tmp_path, range(4), ["a", "b"], data=_numbers(0))
    query = f"select worker, step, mean from '{tmp_path}/index/**/*.parquet' order by 1, 2"
    with duckdb.connect() as connection:
        rows = connection.execute(query).fetchall()
    assert rows == [(worker, step, float(step)) for worker in "ab" for step in range(4)]


# ---- without the packages


@pytest.mark.parametrize(
    ("missing", "call"),
    [
        ("duckdb", "sql('select 1')"),
        ("pandas", "sql('select 1')"),
        ("pandas", "to_pandas()"),
    ],
)
def test_a_missing_package_is_named_with_its_remedy(
    tmp_path: Path, missing: str, call: str
) -> None:
    make_run(tmp_path)
    script = (
        "import sys\n"
        "class Missing:\n"
        "    def find_spec(self, name, *rest):\n"
        f"        if name.partition('.')[0] == {missing!r}:\n"
        "            raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Missing())\n"
        "from smdebug.exceptions import SMDebugRuntimeError\n"
        "from smdebug.trials import create_trial\n"
        "trial = create_trial(sys.argv[1])\n"
        "assert trial.to_arrow().num_rows == 6\n"
        "try:\n"
        f"    trial.{call}\n"
        "except SMDebugRuntimeError as error:\n"
        "    sys.stdout.write(str(error))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    assert missing in done.stdout
    assert "pip install" in done.stdout


def test_a_path_that_is_a_pattern_matches_no_other_run(tmp_path: Path) -> None:
    make_run(tmp_path / "a*b", steps=range(4))
    make_run(tmp_path / "aXb", steps=range(4))
    found = create_trial(tmp_path / "a*b").sql("select count(*) as n from run")
    assert found["n"].tolist() == [8]


def test_files_that_compaction_took_away_are_still_known(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    writer = RunWriter(store)
    writer.write_collections(default_collections().to_json())
    for step in range(3):
        writer.submit(default_batch("worker_0", step))
        writer.finish_step()
        writer.flush()
    trial = create_trial(tmp_path)
    with no_refresh(trial):
        writer.close()
        assert trial.sql("select count(*) as n from run")["n"].tolist() == [6]
