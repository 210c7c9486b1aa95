"""Which forwards of registered blocks are under way in a thread.

MXNet tells when a forward begins, and when it ends, but not when it ends with an exception. What a
thread is at is therefore looked up in its stack.
"""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType


class _Calls(threading.local):
    def __init__(self) -> None:
        self.frames: list[FrameType] = []


class Forwards:
    """The calls of registered blocks that have begun and not ended, the innermost last."""

    def __init__(self) -> None:
        self._calls = _Calls()

    def begin(self, frame: FrameType) -> None:
        """Takes note of the frame in which a registered block is called."""
        if self._calls.frames:
            # What is not among its callers has ended with an exception.
            callers = set(_up_from(frame))
            self._calls.frames = [each for each in self._calls.frames if each in callers]
        self._calls.frames.append(frame)

    def end(self) -> None:
        """Takes note that the innermost call has ended."""
        if self._calls.frames:
            self._calls.frames.pop()

    def are_under_way(self) -> bool:
        """Whether this thread is inside of a call of a registered block."""
        frames = self._calls.frames
        return bool(frames) and any(each is frames[-1] for each in _up_from(sys._getframe(1)))


def _up_from(frame: FrameType) -> Iterator[FrameType]:
    caller: FrameType | None = frame
    while caller is not None:
        yield caller
        caller = caller.f_back
