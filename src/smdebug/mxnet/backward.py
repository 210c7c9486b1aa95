"""When a backward has ended: MXNet has no callback for it, so its functions are made to tell."""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING, Any

import mxnet as mx

from smdebug.hook.attachment import Handle

if TYPE_CHECKING:
    from collections.abc import Callable

# Where training finds the functions that compute gradients.
_PLACES: tuple[Any, ...] = (mx.nd.NDArray, mx.autograd)
_lock = threading.Lock()
_watchers: list[Callable[[], None]] = []
_replaced: list[tuple[Any, Any, Any]] = []


def watch_backward(told: Callable[[], None]) -> Handle:
    """Has a function called after every backward, until the handle is removed."""
    with _lock:
        if not _watchers:
            _put_in_place()
        _watchers.append(told)

    def remove() -> None:
        with _lock:
            _watchers.remove(told)
            if not _watchers:
                _take_away()

    return Handle(remove)


def _put_in_place() -> None:
    for place in _PLACES:
        own = place.backward
        telling = _telling(own)
        place.backward = telling
        _replaced.append((place, own, telling))


def _take_away() -> None:
    for place, own, telling in _replaced:
        # Somebody else may have replaced it meanwhile, and calls ours, which tells nobody then.
        if place.backward is telling:
            place.backward = own
    _replaced.clear()


def _telling(own: Any) -> Any:
    @functools.wraps(own)
    def backward(*args: Any, **kwargs: Any) -> Any:
        result = own(*args, **kwargs)
        for told in tuple(_watchers):
            told()
        return result

    return backward
