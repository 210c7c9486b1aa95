"""Tests of adapters begin and end without a hook and without prepared collections."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from smdebug.hook.module_api import current_hook, del_hook

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def no_leftovers(adapter: Any) -> Iterator[None]:
    """Around a test of an adapter, such as `smdebug.pytorch`."""
    del_hook()
    adapter.reset_collections()
    yield
    hook = current_hook()
    if hook is not None:
        hook.close()
    del_hook()
    adapter.reset_collections()
