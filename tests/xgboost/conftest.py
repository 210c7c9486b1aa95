"""What all tests of the XGBoost hook need."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import smdebug.xgboost as smd
from smdebug.hook.current import current_hook

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def nothing_left_over() -> Iterator[None]:
    """Every test begins and ends without a hook and without prepared collections."""
    smd.del_hook()
    smd.reset_collections()
    yield
    hook = current_hook()
    if hook is not None:
        hook.close()
    smd.del_hook()
    smd.reset_collections()
