"""What rules found, as a run keeps it: read back as it was, by us and by others."""

from __future__ import annotations

import copy
import itertools
import json
import math
import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smdebug.exceptions import IndexReaderException
from smdebug.mode_keys import ModeKeys
from smdebug.storage.arrow import pa, pq
from smdebug.storage.findings import (
    FINDINGS_PREFIX,
    Finding,
    copy_findings,
    findings_table,
    read_findings,
    read_reports,
    write_findings,
    write_report,
)
from smdebug.storage.stores.base import Store, open_store
from smdebug.storage.stores.memory import MemoryStore
from smdebug.testing.runs import make_run
from smdebug.trials import create_trial

if TYPE_CHECKING:
    from pathlib import Path

_NUMBERS = itertools.count()

pytestmark = pytest.mark.filterwarnings(
    # botocore, not us.
    "ignore:.*utcnow.*:DeprecationWarning"
)

FULL = Finding(
    "Rule", 7, "it is too large", "fc.weight", 3.5, 2.0, ModeKeys.EVAL, 3, "worker_1", 123.25
)
BARE = Finding("Rule", 2**53 + 1, "the run is odd")

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
numbers = st.none() | st.floats()
findings = st.builds(
    Finding,
    rule=text,
    step=st.integers(0, 10**12),
    message=text,
    tensor=st.none() | text,
    value=numbers,
    threshold=numbers,
    mode=st.sampled_from(list(ModeKeys)),
    mode_step=st.none() | st.integers(0, 10**12),
    worker=st.none() | text,
    time=st.floats(0, 1e10),
)


def fields(finding: Finding) -> list[str]:
    """Everything of a finding, with NaN equal to itself and -0.0 not 0.0."""
    return [repr(value) for value in finding.to_dict().values()]


@pytest.fixture(params=["memory", "local", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "memory":
        return MemoryStore()
    if request.param == "local":
        return open_store(str(tmp_path))
    bucket = request.getfixturevalue("bucket")
    return open_store(f"s3://{bucket}/findings-{next(_NUMBERS)}")


# ---- there and back


def test_a_run_without_findings(store: Store) -> None:
    assert write_findings(store, []) is None
    assert read_findings(store) == []
    assert read_reports(store) == []
    assert findings_table(store).num_rows == 0
    assert list(store.list()) == []


def test_findings_come_back_as_they_were_by_step(store: Store) -> None:
    write_findings(store, [BARE])
    write_findings(store, [FULL])
    found = read_findings(store)
    assert found == [FULL, BARE]
    assert [each.time for each in found] == [FULL.time, BARE.time]
    assert [type(each.mode) for each in found] == [ModeKeys, ModeKeys]


@given(st.lists(findings, max_size=8))
@settings(deadline=None, max_examples=60)
def test_any_finding_round_trips(written: list[Finding]) -> None:
    store = MemoryStore()
    write_findings(store, written)
    found = read_findings(store)
    assert set(found) == set(written)
    assert len(found) == len(set(written))
    assert [each.step for each in found] == sorted(each.step for each in found)
    assert {tuple(fields(each)) for each in found} <= {tuple(fields(each)) for each in written}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -0.0, 5e-324, None, 1.0])
def test_a_value_is_kept_to_the_last_bit(store: Store, value: float | None) -> None:
    finding = Finding("R", 0, "m", "t", value, value)
    write_findings(store, [finding])
    (found,) = read_findings(store)
    assert found == finding
    assert hash(found) == hash(finding)
    assert fields(found) == fields(finding)


def test_findings_with_different_nans_are_equal() -> None:
    made = [math.nan, float("nan"), float(np.float32("nan")), np.inf - np.inf, np.float64("nan")]
    several = [Finding("R", 1, "m", "t", each, each) for each in made]
    copies = [pickle.loads(pickle.dumps(several[0])), copy.deepcopy(several[1])]
    assert len({*several, *copies}) == 1
    assert all(each == several[0] for each in [*several, *copies])
    assert several[0] != Finding("R", 1, "m", "t", 0.0, math.nan)
    assert several[0] != Finding("R", 1, "m", "t", None, math.nan)


def test_numpy_numbers_are_accepted() -> None:
    store = MemoryStore()
    made: Any = Finding
    finding = made(
        "R", np.int64(3), "m", "t", np.float32(0.1), np.float64(2), mode_step=np.int32(1)
    )
    write_findings(store, [finding])
    (found,) = read_findings(store)
    assert found == finding
    assert found.value == float(np.float32(0.1))
    assert json.loads(json.dumps(found.to_dict()))["step"] == 3


def test_the_same_finding_is_read_once_however_often_it_was_written(store: Store) -> None:
    nan = Finding("R", 3, "m", "t", math.nan)
    for _ in range(3):
        write_findings(store, [Finding("R", 3, "m", "t", float("nan")), FULL])
    assert set(read_findings(store)) == {nan, FULL}
    assert len(read_findings(store)) == 2
    assert findings_table(store).num_rows == 2


def test_a_finding_that_differs_in_one_field_is_another() -> None:
    changes: dict[str, Any] = {
        "rule": "x", "step": 8, "message": "x", "tensor": None, "value": math.nan,
        "threshold": None, "mode": ModeKeys.TRAIN, "mode_step": 4, "worker": None,
    }  # fmt: skip
    others = {Finding(**{**vars(FULL), name: value}) for name, value in changes.items()}
    assert len({FULL, *others}) == len(changes) + 1
    assert Finding(**{**vars(FULL), "time": 0.0}) == FULL


def test_thousands_of_findings(store: Store) -> None:
    written = [Finding("R", n % 997, f"message {n}", f"t{n % 31}", n / 7) for n in range(5000)]
    for start in range(0, 5000, 500):
        write_findings(store, written[start : start + 500])
    found = read_findings(store)
    assert set(found) == set(written)
    assert [each.step for each in found] == sorted(each.step for each in written)


def test_several_programs_write_at_once(store: Store) -> None:
    def write(writer: int) -> None:
        for n in range(10):
            own = Finding("R", n, f"of {writer}")
            write_findings(store, [own, Finding("R", n, "of all", value=math.nan)])
            write_report(store, {"writer": writer, "n": n})

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(8)))
    messages = [each.message for each in read_findings(store)]
    assert len(messages) == 90
    assert messages.count("of all") == 10
    reports = read_reports(store)
    assert sorted((each["writer"], each["n"]) for each in reports) == [
        (writer, n) for writer in range(8) for n in range(10)
    ]


# ---- other programs


@pytest.fixture
def run(tmp_path: Path) -> Path:
    make_run(tmp_path / "run")
    written = [
        FULL,
        BARE,
        Finding("Ünï", 1, "'so' und \"anders\"\nund 漢字 🎉", "w/ü", math.nan, math.inf),
    ]
    write_findings(open_store(str(tmp_path / "run")), written)
    return tmp_path / "run"


def test_duckdb_reads_the_files(run: Path) -> None:
    import duckdb

    query = f"select * from '{run}/findings/*.parquet' order by step"
    with duckdb.connect() as connection:
        frame = connection.execute(query).fetchall()
        names = [column[0] for column in connection.description]
    rows = [dict(zip(names, row, strict=True)) for row in frame]
    truth = [each.to_dict() for each in read_findings(open_store(str(run)))]
    assert [{name: repr(row[name]) for name in row} for row in rows] == [
        {name: repr(row[name]) for name in names} for row in truth
    ]


def test_pandas_reads_the_files(run: Path) -> None:
    import pandas

    frame = pandas.read_parquet(run / "findings")
    assert sorted(frame["step"]) == [1, 7, 2**53 + 1]
    row = frame[frame["step"] == 7].iloc[0]
    assert (row["rule"], row["mode"], row["worker"]) == ("Rule", "EVAL", "worker_1")
    assert (row["value"], row["threshold"], row["message"]) == (3.5, 2.0, "it is too large")


def test_sql_joins_findings_with_the_run(run: Path) -> None:
    trial = create_trial(run)
    frame = trial.sql(
        "select run.tensor, findings.rule, findings.value from run join findings using (step) "
        "where run.tensor = 'loss' order by findings.step"
    )
    assert frame.to_dict("records")[0]["rule"] == "Ünï"
    assert len(frame) == 1
    assert math.isnan(frame["value"][0])
    counted = trial.sql("SELECT count(*) AS n FROM Findings WHERE message LIKE '%漢字%'")
    assert counted["n"].tolist() == [1]


def test_sql_over_a_run_without_findings(tmp_path: Path) -> None:
    make_run(tmp_path)
    trial = create_trial(tmp_path)
    assert len(trial.sql("select * from findings")) == 0
    assert len(trial.sql("select * from run")) == 6


def test_trial_returns_findings(run: Path) -> None:
    trial = create_trial(run)
    assert [each.step for each in trial.findings()] == [1, 7, 2**53 + 1]
    assert str(trial.findings()[1]) == "Rule, step 7: it is too large"
    write_findings(trial.store, [Finding("New", 0, "came later")])
    assert [each.step for each in trial.findings()] == [0, 1, 7, 2**53 + 1]


# ---- damage


def test_damage_is_an_error_that_names_the_file(store: Store) -> None:
    key = write_findings(store, [FULL])
    assert key is not None
    whole = bytes(store.read(key))
    for damaged in (b"", b"PAR1", whole[: len(whole) // 2], whole[:-1], whole[1:], b"{}"):
        store.write(key, [damaged])
        with pytest.raises(IndexReaderException, match=key.rpartition("/")[2]):
            read_findings(store)
    store.write(key, [whole])
    assert read_findings(store) == [FULL]


def test_no_flipped_bit_gives_another_finding_or_another_error() -> None:
    store = MemoryStore()
    key = write_findings(store, [FULL, Finding("R", 9, "ü", "t", math.nan)])
    assert key is not None
    whole = bytes(store.read(key))
    truth = [fields(each) for each in read_findings(store)]
    noticed = 0
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << (place % 8)
        store.write(key, [bytes(damaged)])
        try:
            found = [fields(each) for each in read_findings(store)]
        except IndexReaderException as error:
            noticed += key in str(error)
        else:
            assert found == truth, place
    assert noticed > len(whole) // 2


def parquet(columns: dict[str, Any]) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink)
    return bytes(sink.getvalue())


GOOD: dict[str, Any] = {
    "rule": ["R"], "step": [1], "mode": ["TRAIN"], "mode_step": [1], "tensor": ["t"],
    "worker": ["w"], "value": [1.0], "threshold": [1.0], "message": ["m"], "time": [1.0],
}  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        {"mode": ["NO_MODE"]},
        {"mode": [None]},
        {"rule": [None]},
        {"step": ["x"]},
        {"step": pa.array([None], pa.int64())},
        {"value": ["much"]},
        {"message": pa.array([b"\xff\xfe"], pa.binary())},
    ],
    ids=["mode", "no_mode", "no_rule", "step", "no_step", "value", "message"],
)
def test_a_file_of_something_else_is_an_error(change: dict[str, Any]) -> None:
    store = MemoryStore()
    key = f"{FINDINGS_PREFIX}0000000000001-abcdef01.parquet"
    store.write(key, [parquet(GOOD)])
    assert read_findings(store) == [
        Finding("R", 1, "m", "t", 1.0, 1.0, ModeKeys.TRAIN, 1, "w")
    ]  # fmt: skip
    store.write(key, [parquet({**GOOD, **change})])
    with pytest.raises(IndexReaderException, match="abcdef01"):
        read_findings(store)
    missing = {name: column for name, column in GOOD.items() if name != next(iter(change))}
    store.write(key, [parquet(missing)])
    with pytest.raises(IndexReaderException, match="abcdef01"):
        read_findings(store)


def test_other_files_next_to_findings_are_ignored(store: Store) -> None:
    write_findings(store, [FULL])
    store.write(f"{FINDINGS_PREFIX}notes.txt", [b"mine"])
    assert read_findings(store) == [FULL]
    assert read_reports(store) == []


def test_reports_come_back_in_the_order_they_were_written(store: Store) -> None:
    for n in range(3):
        write_report(store, {"n": n, "nan": math.nan, "ü": None})
    reports = read_reports(store)
    assert sorted(each["n"] for each in reports) == [0, 1, 2]
    assert all(math.isnan(each["nan"]) for each in reports)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[1]", b"\xff", b"null", b"[" * 100_000], ids=range(6)
)
def test_a_damaged_report_is_an_error_that_names_the_file(content: bytes) -> None:
    store = MemoryStore()
    key = write_report(store, {})
    store.write(key, [content])
    with pytest.raises(IndexReaderException, match=key):
        read_reports(store)


def test_findings_of_another_run_or_under_another_name_are_refused() -> None:
    stores = [MemoryStore(), MemoryStore()]
    for each in stores:
        make_run(each, [0])
    own, other = stores
    key = write_findings(own, [FULL])
    foreign = write_findings(other, [BARE])
    report = write_report(own, {"n": 1})
    assert key is not None
    assert foreign is not None
    assert read_findings(own) == [FULL]
    own.write(foreign, [other.read(foreign)])
    with pytest.raises(IndexReaderException, match="another run"):
        read_findings(own)
    own.delete(foreign)
    later = report.replace("findings/1", "findings/2")
    own.write(later, [own.read(report)])
    with pytest.raises(IndexReaderException, match="renamed"):
        read_reports(own)


def test_findings_can_be_copied_with_their_run() -> None:
    own, other = MemoryStore(), MemoryStore()
    for each in (own, other):
        make_run(each, [0])
    write_findings(own, [FULL])
    for number in range(3):
        write_report(own, {"n": number})
    copy_findings(own, other)
    assert read_findings(other) == [FULL]
    assert read_reports(other) == read_reports(own)
