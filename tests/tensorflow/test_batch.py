"""A batch that a model's function gets more than once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from smdebug.tensorflow.keras.batch import RepeatableBatch

ROWS = np.arange(24, dtype=np.float32).reshape(6, 4)


@pytest.fixture(params=["distributed", "local"])
def batch(request: pytest.FixtureRequest) -> RepeatableBatch:
    """The first of two batches of three rows."""
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    dataset: Any = tf.data.Dataset.from_tensor_slices(ROWS).batch(3)
    if request.param == "distributed":
        dataset = strategy.experimental_distribute_dataset(dataset)
    taken = RepeatableBatch.take(iter(dataset), strategy, [])
    assert taken is not None
    return taken


def test_every_call_gets_the_same_batch(batch: RepeatableBatch) -> None:
    for _ in range(2):
        np.testing.assert_array_equal(batch.apply(next), ROWS[:3])


@pytest.mark.parametrize("batch", ["distributed"], indirect=True)
def test_a_distributed_iterator_is_read_to_its_end(batch: RepeatableBatch) -> None:
    # Dropped earlier, it may crash the process: TensorFlow still reads the dataset that it frees.
    kept: list[Any] = []
    batch.apply(kept.append)

    def fail(iterator: Any) -> None:
        kept.append(iterator)
        raise ValueError("cannot be traced")

    with pytest.raises(ValueError, match="cannot be traced"):
        batch.apply(fail)
    assert len(kept) == 2
    for iterator in kept:
        assert next(iterator, None) is None
