"""What all tests of the TensorFlow hooks need."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import tensorflow as tf
from tests.leftovers import no_leftovers

import smdebug.tensorflow as smd

if TYPE_CHECKING:
    from collections.abc import Iterator

# How an operation is split among threads depends on what else the machine does, and sums with it.
tf.config.threading.set_intra_op_parallelism_threads(1)


@pytest.fixture(autouse=True)
def nothing_left_over() -> Iterator[None]:
    """Every test begins and ends without a hook, prepared collections and changed layers."""
    layer: Any = tf.keras.layers.Layer
    before = layer.__call__
    with no_leftovers(smd):
        yield
    after, layer.__call__ = layer.__call__, before
    assert after is before
