"""What all tests of hooks need."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from smdebug.hook.module_api import current_hook, del_hook

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def nothing_left_over() -> Iterator[None]:
    del_hook()
    yield
    hook = current_hook()
    if hook is not None:
        hook.close()
    del_hook()
