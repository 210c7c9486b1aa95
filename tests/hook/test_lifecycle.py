from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from tests.hook.numpy_hook import NumpyHook

if TYPE_CHECKING:
    from pathlib import Path


class Watched:
    """A lock that says when another thread comes to it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._owner = threading.current_thread()
        self.arrived = threading.Event()

    def acquire(self) -> None:
        if threading.current_thread() is not self._owner:
            self.arrived.set()
        self._lock.acquire()

    def release(self) -> None:
        self._lock.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()


def test_hook_closed_while_another_thread_opens_the_run(tmp_path: Path) -> None:
    hook = NumpyHook(str(tmp_path / "run"))
    lock: Any = Watched()
    hook._pipeline.guarded.lock = lock
    other = threading.Thread(target=hook.save_scalar, args=("rate", 1.0))
    with lock:
        other.start()
        assert lock.arrived.wait(60)
        hook.close()
    other.join(60)
    assert not other.is_alive()
    # Nothing would close it any more.
    assert hook._pipeline.run.output is None
    NumpyHook(str(tmp_path / "run")).close()
