"""The forward passes of registered blocks that a thread is in.

MXNet calls hooks when a forward pass begins and when it ends, but not when it ends with an
exception. Whether a pass is still running is therefore looked up in the stack of the thread.
"""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType


class ForwardPasses(threading.local):
    """The running calls of registered blocks, by thread, the innermost last."""

    def __init__(self) -> None:
        self._frames: list[FrameType] = []

    def begin(self, frame: FrameType) -> None:
        """Add the frame in which a registered block is called."""
        if self._frames:
            # A frame that is not among the callers has ended with an exception.
            callers = set(_stack(frame))
            self._frames = [each for each in self._frames if each in callers]
        self._frames.append(frame)

    def end(self) -> None:
        """Remove the innermost call."""
        if self._frames:
            self._frames.pop()

    def running(self) -> bool:
        """Return whether the caller runs inside a call of a registered block."""
        frames = self._frames
        return bool(frames) and any(each is frames[-1] for each in _stack(sys._getframe(1)))


def _stack(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back
