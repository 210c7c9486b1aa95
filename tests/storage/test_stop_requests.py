"""Stop requests: they arrive, whatever else is in the files."""

from __future__ import annotations

import itertools
import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smdebug.storage.findings import Finding
from smdebug.storage.stop_requests import (
    CONTROL_PREFIX,
    StopRequest,
    list_stops,
    read_stop,
    write_stop,
)
from smdebug.storage.stores.base import Store, open_store
from smdebug.storage.stores.memory import MemoryStore
from smdebug.testing.runs import make_run
from smdebug.trials import create_trial

if TYPE_CHECKING:
    from pathlib import Path

_NUMBERS = itertools.count()
KEY = f"{CONTROL_PREFIX}stop-0000000000001-abcdef01.json"

pytestmark = pytest.mark.filterwarnings(
    # botocore, not us.
    "ignore:.*utcnow.*:DeprecationWarning"
)


@pytest.fixture(params=["memory", "local", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "memory":
        return MemoryStore()
    if request.param == "local":
        return open_store(str(tmp_path))
    bucket = request.getfixturevalue("bucket")
    return open_store(f"s3://{bucket}/control-{next(_NUMBERS)}")


def test_no_requests(store: Store) -> None:
    assert list_stops(store) == []


@pytest.mark.parametrize(
    "request_",
    [
        StopRequest("enough"),
        StopRequest("ünï 漢字 \n 🎉", "Rule", 7, "fc/weight:0", 2**53 + 1, 12.5),
        StopRequest("at the first step", at_step=0, time=0.0),
    ],
)
def test_request_round_trips(store: Store, request_: StopRequest) -> None:
    key = write_stop(store, request_)
    assert list_stops(store) == [key]
    assert read_stop(store, key) == request_


def test_requests_are_listed_oldest_first(store: Store) -> None:
    times = [1e9, 5.0, 3e9, 2.001, 2.0]
    keys = {write_stop(store, StopRequest(str(when), time=when)): when for when in times}
    assert [keys[key] for key in list_stops(store)] == sorted(times)
    assert [read_stop(store, key).reason for key in list_stops(store)] == [
        str(when) for when in sorted(times)
    ]


def test_concurrent_requests_do_not_overwrite_each_other(store: Store) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: write_stop(store, StopRequest(str(n), time=1.0)), range(40)))
    reasons = {read_stop(store, key).reason for key in list_stops(store)}
    assert reasons == {str(n) for n in range(40)}


def test_other_files_are_not_requests(store: Store) -> None:
    store.write(f"{CONTROL_PREFIX}notes.json", [b"{}"])
    store.write(f"{CONTROL_PREFIX}stop-half.json.tmp", [b"{}"])
    store.write("controls/stop-1.json", [b"{}"])
    assert list_stops(store) == []


@pytest.mark.parametrize(
    "content",
    [b"", b"stop!", b"\xff\xfe\x00", b"null", b"[]", b"7", b'"x"', b"{}", b"{" * 9, b"[" * 100_000],
    ids=range(10),
)
def test_unreadable_request_still_requests_a_stop(content: bytes) -> None:
    store = MemoryStore()
    store.write(KEY, [content])
    request = read_stop(store, KEY)
    assert KEY in request.reason
    assert (request.rule, request.step, request.tensor) == ("StopRequest", 0, None)
    assert request.at_step is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
names = ["reason", "rule", "step", "tensor", "at_step", "time", "other"]


@given(st.dictionaries(st.sampled_from(names), json_values))
def test_fields_of_any_kind_are_read(fields: dict[str, Any]) -> None:
    store = MemoryStore()
    store.write(KEY, [json.dumps(fields).encode()])
    request = read_stop(store, KEY)
    assert request.reason
    assert isinstance(request.reason, str)
    assert isinstance(request.rule, str)
    assert type(request.step) is int
    assert request.at_step is None or type(request.at_step) is int
    assert request.tensor is None or isinstance(request.tensor, str)
    assert isinstance(request.time, float)


def test_out_of_range_time_is_accepted() -> None:
    store = MemoryStore()
    store.write(KEY, [json.dumps({"reason": "now", "time": 10**400}).encode()])
    assert read_stop(store, KEY).reason == "now"


def test_trial_requests_a_stop(tmp_path: Path) -> None:
    make_run(tmp_path, end=False)
    trial = create_trial(tmp_path)
    trial.request_stop("the loss will not come down any more")
    trial.request_stop("it is NaN", Finding("NonFinite", 40, "it is NaN", "loss", float("nan")))
    first, second = (read_stop(trial.store, key) for key in sorted(list_stops(trial.store)))
    by_reason = {each.reason: each for each in (first, second)}
    plain = by_reason["the loss will not come down any more"]
    assert (plain.rule, plain.step, plain.tensor, plain.at_step) == ("StopRequest", 0, None, None)
    told = by_reason["it is NaN"]
    assert (told.rule, told.step, told.tensor, told.at_step) == ("NonFinite", 40, "loss", None)


def test_requests_do_not_disturb_readers_of_the_run(tmp_path: Path) -> None:
    make_run(tmp_path)
    create_trial(tmp_path).request_stop("enough")
    trial = create_trial(tmp_path, check=True)
    assert trial.steps() == [0, 1, 2]
    assert trial.findings() == []


def test_damaged_request_requests_a_stop_without_its_fields(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = MemoryStore()
    key = write_stop(store, StopRequest("enough", "Rule", 3, "x", at_step=40))
    assert read_stop(store, key).at_step == 40
    store.write(key, [bytes(store.read(key)).replace(b'"at_step": 40', b'"at_step": 41')])
    found = read_stop(store, key)
    assert (found.at_step, found.rule) == (None, "StopRequest")
    assert key in caplog.text
