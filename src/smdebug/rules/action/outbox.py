"""What waits for the actions of a rule, and the thread that carries it out."""

from __future__ import annotations

import atexit
import functools
import logging
import os
import threading
import time
import weakref
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from smdebug.rules.action.base import Action
    from smdebug.storage.findings import Finding

logger = logging.getLogger("smdebug.rules")

# Of one action; what is older when more come is dropped.
MOST_WAITING = 100
# How long the end of the interpreter is put off for all that waits.
_EXIT_SECONDS = 10.0

_live: weakref.WeakSet[Outbox] = weakref.WeakSet()


class _Line:
    """What waits for one action."""

    def __init__(self, action: Action) -> None:
        self.action = action
        # With the time at which each began to wait.
        self.waiting: deque[tuple[float, Callable[[], None]]] = deque()
        self.dropped = 0
        # The newest finding since the last use that has to wait for its turn, and their number.
        self.held: Finding | None = None
        self.holds = 0
        self.open_at = 0.0

    @property
    def holding(self) -> bool:
        return self.held is not None and not self.action.settled

    def put(self, finding: Finding) -> None:
        """Has the action told of a finding: at once when its turn has come, else then."""
        if self.action.settled:
            return
        self.held = finding
        self.holds += 1
        if time.monotonic() >= self.open_at:
            self.release()

    def release(self) -> None:
        """Lets what is held go."""
        if self.held is not None:
            now = time.monotonic()
            self.add(functools.partial(self.action.invoke, self.held, self.holds - 1))
            self.held, self.holds = None, 0
            self.open_at = now + self.action.min_interval

    def add(self, work: Callable[[], None]) -> None:
        if len(self.waiting) >= MOST_WAITING:
            self.waiting.popleft()
            self.dropped += 1
        self.waiting.append((time.monotonic(), work))

    def clear(self) -> None:
        self.waiting.clear()
        self.held, self.holds, self.dropped = None, 0, 0


class Outbox:
    """Carries out actions on a thread of its own, so that nobody waits for a network.

    The thread is there only while there is something to do. It is a daemon: a dead endpoint cannot
    keep a program from ending. A forked process begins with an empty outbox; what waits is the
    parent's.

    Args:
        actions: the actions, each with a line of its own: a slow one cannot crowd out another.
    """

    def __init__(self, actions: Sequence[Action]) -> None:
        self._lines = [_Line(action) for action in actions]
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._busy = False
        _live.add(self)
        _watch_the_process()
        with self._changed:
            for line in self._lines:
                if line.action.prepares and not line.action.settled:
                    line.add(line.action.prepare)
            self._start()

    def put(self, finding: Finding) -> None:
        """Has every action told of a finding; returns at once."""
        with self._changed:
            for line in self._lines:
                line.put(finding)
            self._start()

    def hurry(self) -> bool:
        """Lets what is held back for its turn go now; False when no thread can be had for it."""
        with self._changed:
            for line in self._lines:
                line.release()
            return self._start()

    def drain(self, timeout: float) -> int:
        """Waits until everything is carried out, no longer than `timeout` seconds.

        Returns:
            How many uses of actions are not done by then.
        """
        deadline = time.monotonic() + min(timeout, threading.TIMEOUT_MAX / 2)
        if not self.hurry():
            # The interpreter is ending: what is left is done here.
            while time.monotonic() < deadline and self._do_next(patient=False):
                pass
        with self._changed:
            self._changed.wait_for(lambda: not self._unfinished(), deadline - time.monotonic())
            return self._unfinished()

    def forget(self) -> None:
        """Begins anew in a forked process, where neither the thread nor its lock's owner is."""
        self._changed = threading.Condition()
        self._thread, self._busy = None, False
        for line in self._lines:
            line.clear()

    # ---- with the lock held

    def _unfinished(self) -> int:
        return sum(len(line.waiting) for line in self._lines) + self._busy

    def _start(self) -> bool:
        running = self._thread is not None and self._thread.is_alive()
        if not running and any(line.waiting or line.holding for line in self._lines):
            thread = threading.Thread(target=self._run, name="smdebug-actions", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                # Not while the interpreter ends; `drain` does the rest.
                return False
            self._thread = thread
        self._changed.notify_all()
        return True

    def _wait_for_work(self, patient: bool) -> _Line | None:
        """Returns the line that has waited longest; None when nothing waits or will."""
        while True:
            now = time.monotonic()
            held = [line for line in self._lines if line.holding]
            for line in held:
                if line.open_at <= now:
                    line.release()
            ready = [line for line in self._lines if line.waiting]
            if ready:
                return min(ready, key=lambda line: line.waiting[0][0])
            self._changed.notify_all()
            if not held or not patient:
                return None
            due = min(line.open_at for line in held)
            self._changed.wait(min(due - now, threading.TIMEOUT_MAX))

    # ---- the thread

    def _run(self) -> None:
        while self._do_next(patient=True):
            pass

    def _do_next(self, patient: bool) -> bool:
        """Carries out one thing; False when there is nothing more to do."""
        with self._changed:
            self._busy = False
            line = self._wait_for_work(patient)
            if line is None:
                self._thread = None
                return False
            _, work = line.waiting.popleft()
            dropped, line.dropped = line.dropped, 0
            self._busy = True
        if dropped:
            logger.warning(
                "rule %s: %d findings were dropped before %r: they came faster than it takes them",
                line.action.rule_name, dropped, line.action,
            )  # fmt: skip
        work()
        return True


@functools.cache
def _watch_the_process() -> None:
    """Once per process, and not before there is an action."""
    atexit.register(_drain_all)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_forget_all)


def _drain_all() -> None:
    deadline = time.monotonic() + _EXIT_SECONDS
    everything = list(_live)
    for outbox in everything:
        outbox.hurry()
    for outbox in everything:
        outbox.drain(max(0.0, deadline - time.monotonic()))


def _forget_all() -> None:
    for outbox in list(_live):
        outbox.forget()
