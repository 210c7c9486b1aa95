"""What all tests of the MXNet hook need."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import pytest
from tests.leftovers import no_leftovers

with warnings.catch_warnings():
    # MXNet 1.9 uses names that numpy 1.23 is about to drop.
    warnings.simplefilter("ignore", DeprecationWarning)
    import smdebug.mxnet as smd

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def nothing_left_over() -> Iterator[None]:
    """Every test begins and ends without a hook and without prepared collections."""
    with no_leftovers(smd):
        yield
