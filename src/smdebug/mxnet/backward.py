"""The beginning and end of backward passes.

MXNet has no callback for them, so the function of its library that computes gradients is replaced
as long as something observes them.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Protocol

import mxnet as mx

from smdebug.hook.handles import Handle

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

# All ways to compute gradients end here, also those that a script has imported by name.
_LIBRARY: Any = mx.base._LIB
_lock = threading.Lock()
_observers: list[BackwardObserver] = []
_original: Any = None
_replaced = False


class BackwardObserver(Protocol):
    """Observes backward passes."""

    def trains_here(self) -> bool:
        """Return whether the last forward pass was in this thread."""

    def around_backward(self, own: bool) -> AbstractContextManager[None]:
        """Return a context that a backward pass runs in.

        Args:
            own: whether the pass belongs to the training of this thread, as far as is known.
        """


def observe_backward(observer: BackwardObserver) -> Handle:
    """Call an observer around every backward pass until the handle is removed."""
    global _original, _replaced
    with _lock:
        if not _replaced:
            _original, _LIBRARY.MXAutogradBackwardEx = _LIBRARY.MXAutogradBackwardEx, _backward
            _replaced = True
        _observers.append(observer)

    def remove() -> None:
        global _replaced
        with _lock:
            _observers.remove(observer)
            # Another library may have replaced it meanwhile; it still calls this one.
            if not _observers and _LIBRARY.MXAutogradBackwardEx is _backward:
                _LIBRARY.MXAutogradBackwardEx = _original
                _replaced = False

    return Handle(remove)


def _backward(*arguments: Any) -> Any:
    # Where two threads train, each pass is observed by the training of its own thread.
    here = [each for each in _observers if each.trains_here()]
    with ExitStack() as stack:
        for observer in here or tuple(_observers):
            stack.enter_context(observer.around_backward(bool(here)))
        return _original(*arguments)
