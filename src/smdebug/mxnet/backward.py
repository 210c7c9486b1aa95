"""When a backward begins and ends: MXNet has no callback for it, so its library is made to tell."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Protocol

import mxnet as mx

from smdebug.hook.handles import Handle

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

# All ways to compute gradients, also those that a script has imported by name, end here.
_LIBRARY: Any = mx.base._LIB
_lock = threading.Lock()
_watchers: list[Watcher] = []
_own: Any = None


class Watcher(Protocol):
    """Who wants to know of a backward."""

    def trains_here(self) -> bool:
        """Whether the forward before was in this thread."""

    def around_backward(self, own: bool) -> AbstractContextManager[None]:
        """Is entered before a backward and left after it.

        Args:
            own: whether the backward is of this thread's training, for all that is known.
        """


def watch_backward(watcher: Watcher) -> Handle:
    """Has somebody told of every backward, until the handle is removed."""
    with _lock:
        if not _watchers:
            _put_in_place()
        _watchers.append(watcher)

    def remove() -> None:
        with _lock:
            _watchers.remove(watcher)
            if not _watchers:
                _take_away()

    return Handle(remove)


def _put_in_place() -> None:
    global _own
    _own = _LIBRARY.MXAutogradBackwardEx
    _LIBRARY.MXAutogradBackwardEx = _backward


def _take_away() -> None:
    # Somebody else may have replaced it meanwhile, and calls ours, which tells nobody then.
    if _LIBRARY.MXAutogradBackwardEx is _backward:
        _LIBRARY.MXAutogradBackwardEx = _own


def _backward(*arguments: Any) -> Any:
    # Two trainings in two threads are none of each other's business.
    here = [each for each in _watchers if each.trains_here()]
    with ExitStack() as stack:
        for watcher in here or tuple(_watchers):
            stack.enter_context(watcher.around_backward(bool(here)))
        return _own(*arguments)
