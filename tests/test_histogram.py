"""Histograms, against numpy's own and TensorBoard's reader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from smdebug.histogram import _edges, histogram_of
from smdebug.storage.format.records import frame
from smdebug.storage.tensorboard.summaries import (
    encode_file_version,
    encode_histogram,
    encode_scalar,
)

if TYPE_CHECKING:
    from pathlib import Path

NUMBERS = st.floats(-1e19, 1e19) | st.floats(-1, 1) | st.just(0.0)


@given(arrays.arrays(np.float64, st.integers(1, 60), elements=NUMBERS))
def test_counts_are_those_of_numpy(array: Any) -> None:
    found = histogram_of(array)
    assert found is not None
    assert found.num == array.size == found.counts.sum()
    assert (found.min, found.max) == (array.min(), array.max())
    assert found.sum == pytest.approx(array.sum(), rel=1e-9, abs=1e-6 * np.abs(array).max())
    assert len(found.limits) == len(found.counts)
    assert (np.diff(found.limits) > 0).all()
    assert found.counts[-1] > 0
    # The left edge of the first bucket is not told: nothing is left of the second.
    expected, _ = np.histogram(array, np.concatenate([[-np.inf], found.limits]))
    # numpy closes its last bucket on the right.
    expected[-1] -= np.count_nonzero(array == found.limits[-1])
    np.testing.assert_array_equal(found.counts, expected)
    assert found.counts[0] == 0 or len(found.limits) == 1


def test_large_arrays_are_counted_as_small_ones() -> None:
    random = np.random.default_rng(0)
    edges = np.cumprod(np.full(600, 1.1)) * 1e-12
    exact = np.concatenate([_edges(), edges, [0.0, -0.0, 5e-324, -1e300, 1e300, 1e20, -1e20]])
    # At an edge, and the next number on both sides of it.
    near = [np.nextafter(exact, -np.inf), exact, np.nextafter(exact, np.inf)]
    spread = random.normal(size=20_000) * 10.0 ** random.uniform(-15, 22, 20_000)
    array = np.concatenate([*near, spread, spread.astype(np.float32)])
    whole = histogram_of(array)
    assert whole is not None
    counts: dict[float, float] = {}
    for part in np.array_split(array, array.size // 100):
        found = histogram_of(part)
        assert found is not None
        for limit, count in zip(found.limits.tolist(), found.counts.tolist(), strict=True):
            counts[limit] = counts.get(limit, 0.0) + count
    assert {
        limit: count
        for limit, count in zip(whole.limits.tolist(), whole.counts.tolist(), strict=True)
        if count
    } == {limit: count for limit, count in counts.items() if count}
    expected, _ = np.histogram(array, np.concatenate([[-np.inf], whole.limits[:-1], [np.inf]]))
    np.testing.assert_array_equal(whole.counts, expected)


@pytest.mark.parametrize("dtype", ["float16", "int8", "uint8", "int64", ml_dtypes.bfloat16])
def test_all_real_types(dtype: Any) -> None:
    found = histogram_of(np.array([[0, 1], [2, 3]]).astype(dtype))
    assert found is not None
    assert (found.min, found.max, found.num, found.sum, found.sum_squares) == (0, 3, 4, 6, 14)


@pytest.mark.parametrize(
    "array",
    [
        np.array([]),
        np.array([np.nan, np.inf]),
        np.array([True]),
        np.array(["text"]),
        np.array([1j]),
    ],
    ids=["empty", "not finite", "bool", "text", "complex"],
)
def test_what_has_no_histogram(array: Any) -> None:
    assert histogram_of(array) is None


def test_what_is_not_finite_is_left_out() -> None:
    found = histogram_of(np.array([1.0, np.nan, -np.inf, 2.0, 1e300]))
    assert found is not None
    assert found.num == found.counts.sum() == 3
    assert found.max == 1e300


def test_tensorboard_reads_it(tmp_path: Path) -> None:
    array = np.random.default_rng(0).normal(size=500)
    found = histogram_of(array)
    assert found is not None
    events = [
        encode_file_version(1.0),
        encode_histogram("weights/fc", found, step=3, wall_time=2.0),
        encode_scalar("loss", 0.5, step=3, wall_time=2.0),
    ]
    file = tmp_path / "events.out.tfevents.1"
    file.write_bytes(b"".join(bytes(chunk) for event in events for chunk in frame(event)))
    accumulator = EventAccumulator(str(tmp_path), size_guidance={"histograms": 0}).Reload()
    (event,) = accumulator.Histograms("weights/fc")
    read = event.histogram_value
    assert (event.step, event.wall_time) == (3, 2.0)
    assert (read.min, read.max, read.num, read.sum) == (found.min, found.max, 500, found.sum)
    assert read.sum_squares == found.sum_squares
    np.testing.assert_array_equal(read.bucket_limit, found.limits)
    np.testing.assert_array_equal(read.bucket, found.counts)
    assert [each.value for each in accumulator.Scalars("loss")] == [0.5]
