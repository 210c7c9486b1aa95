"""What all tests of the TensorFlow hooks need."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    """Every test begins and ends without a hook and without prepared collections."""
    with no_leftovers(smd):
        yield
