from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smdebug.storage.end_marker import EndMarker
from smdebug.storage.format.keys import END_KEY
from smdebug.storage.reader import RunReader
from smdebug.storage.stores.memory import MemoryStore
from smdebug.storage.writer import RunWriter
from smdebug.trials.run_summary import FINISHED, STOPPED, state_of

FORMATS = ("v1", "v2")


@given(
    moment=st.none() | st.integers(0, 10**15 - 1).map(lambda thousandths: thousandths / 1000),
    interrupted=st.booleans(),
)
def test_encoded_marker_is_decoded(moment: float | None, interrupted: bool) -> None:
    mark = EndMarker(moment, interrupted)
    assert EndMarker.decode(mark.encode()) == mark


@pytest.mark.parametrize(
    "content", [b"soon", b"1.0", b"1.000interrupted", b" interrupted", b"1.000 ", b"interrupted "]
)
def test_other_content_is_not_a_marker(content: bytes) -> None:
    assert EndMarker.decode(content) is None


def test_marker_with_unknown_content_is_an_end_marker() -> None:
    store = MemoryStore()
    assert EndMarker.of(store) is None
    store.write(END_KEY, [b"x" * 1000])
    assert EndMarker.of(store) == EndMarker(None, interrupted=False)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("interrupted", [False, True])
def test_marker_that_a_writer_leaves(format: str, interrupted: bool) -> None:
    store = MemoryStore()
    RunWriter(store, format=format).close(interrupted=interrupted)
    mark = EndMarker.of(store)
    assert mark is not None
    assert mark.interrupted == interrupted
    # What smdebug 1.0 leaves is empty.
    assert (mark.time is None) == (format == "v1")
    if format == "v1" and not interrupted:
        assert bytes(store.read(END_KEY)) == b""
    # Readers need not wait for more in either case.
    assert RunReader(store).finished()
    assert RunReader(store).ended_before(1e12) == (format == "v2")
    assert state_of(store) == (STOPPED if interrupted else FINISHED)
