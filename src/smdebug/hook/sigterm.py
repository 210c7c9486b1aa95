"""SIGTERM, which is how jobs are stopped: the runs of a process are closed before it ends from it.

Python dies from SIGTERM at once, and `atexit` is not asked. So the first hook that the main thread
makes puts a handler there, if nobody else has one, and the last hook that is closed takes it away.

- A thread closes the hooks: the main thread may be inside of one, with its lock, when the signal
  comes. Training goes on meanwhile, and the process ends from the signal, as it would have anyway.
- A handler of Python runs when the main thread comes back to Python, which it may not do for hours:
  in a collective operation whose other side is gone, for example. So a thread is told of signals by
  Python's wake-up descriptor, too.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import logging
import os
import signal
import socket
import struct
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger("smdebug.hook")

_NUMBER = signal.SIGTERM
_CREDENTIALS = struct.Struct("3i")
_STOP_LISTENING = b"\0"


class Closable(Protocol):
    """A hook."""

    @property
    def out_dir(self) -> str: ...
    def flush(self) -> None: ...
    def close(self, interrupted: bool = False) -> None: ...


class Termination:
    """The end of this process by SIGTERM."""

    def __init__(self) -> None:
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._hooks: dict[int, Closable] = {}
        self._process = os.getpid()
        self._ears: tuple[socket.socket, socket.socket] | None = None
        self._listener: threading.Thread | None = None
        # Taken once, by the thread that begins the end.
        self._begun = threading.Lock()
        self._closer: threading.Thread | None = None

    def watch(self, hook: Closable) -> None:
        """Has a hook closed when SIGTERM comes; the main thread says so."""
        self._hooks[id(hook)] = hook
        if _is_main() and signal.getsignal(_NUMBER) is signal.SIG_DFL and not _is_caught():
            signal.signal(_NUMBER, self._on_signal)
            if self._ears is None:
                self._ears = _wake_up_sockets()

    def listen(self) -> None:
        """Starts the thread that hears of signals; a process without steps needs none."""
        if self._ears is not None and self._listener is None:
            self._listener = _thread(self._listen, self._ears[0])
            self._listener.start()

    def forget(self, hook: Closable) -> None:
        """Says that a hook is closed; with the last one everything is as it was."""
        self._hooks.pop(id(hook), None)
        if self._hooks or not _is_main():
            return
        if self._is_ours():
            signal.signal(_NUMBER, signal.SIG_DFL)
        self._stop_listening()

    def _stop_listening(self) -> None:
        ears, self._ears = self._ears, None
        if ears is None:
            return
        before = signal.set_wakeup_fd(-1)
        if before != ears[1].fileno():
            # Somebody else has taken it since.
            signal.set_wakeup_fd(before)
        if self._listener is None:
            ears[0].close()
        else:
            with contextlib.suppress(OSError):
                ears[1].send(_STOP_LISTENING)
        self._listener = None
        ears[1].close()

    def after_fork(self) -> None:
        """Lets a child die from SIGTERM at once: it has no hooks."""
        if self._is_ours():
            signal.signal(_NUMBER, signal.SIG_DFL)
        if self._ears is not None:
            before = signal.set_wakeup_fd(-1)
            if before != self._ears[1].fileno():
                signal.set_wakeup_fd(before)
            for ear in self._ears:
                ear.close()
        self._begin_anew()

    def at_exit(self) -> None:
        """The script has ended while the hooks are being closed: the signal came first."""
        if self._closer is not None and self._process == os.getpid():
            self._closer.join()

    # ---- the signal has come

    def _is_ours(self) -> bool:
        return signal.getsignal(_NUMBER) == self._on_signal

    def _on_signal(self, number: int, frame: object) -> None:
        """Runs in the main thread, between any two instructions: it takes no lock."""
        if os.getpid() != self._process:
            # A child that was forked a moment ago.
            signal.signal(_NUMBER, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        elif not self._is_ours():
            # The handler of somebody else, who says what becomes of the process, calls this one.
            _thread(self._flush_all).start()
        else:
            # The next one kills at once.
            signal.signal(_NUMBER, signal.SIG_DFL)
            self._begin()

    def _listen(self, ear: socket.socket) -> None:
        with ear:
            heard = 0
            while True:
                data, process = _receive(ear)
                if process != self._process:
                    # A forked child, before it had let go of this; or the other end is gone.
                    if not data:
                        return
                    continue
                if data == _STOP_LISTENING:
                    return
                if data == bytes([_NUMBER]) and (heard or self._is_ours()):
                    heard += 1
                    self._begin() if heard == 1 else _die()

    def _begin(self) -> None:
        if self._begun.acquire(blocking=False):
            self._closer = _thread(self._close_all)
            self._closer.start()

    def _close_all(self) -> None:
        for hook in list(self._hooks.values()):
            logger.warning(
                "SIGTERM: the run in %s is closed, then the process ends; a second SIGTERM ends it "
                "at once", hook.out_dir,
            )  # fmt: skip
            _try(lambda hook=hook: hook.close(interrupted=True), hook)  # type: ignore[misc]
        _die()

    def _flush_all(self) -> None:
        for hook in list(self._hooks.values()):
            _try(hook.flush, hook)


def _thread(target: Callable[..., None], *arguments: Any) -> threading.Thread:
    return threading.Thread(target=target, args=arguments, name="smdebug-sigterm", daemon=True)


def _try(work: Callable[[], None], hook: Closable) -> None:
    try:
        work()
    except Exception:
        # The others are closed all the same.
        logger.exception("SIGTERM: the run in %s is not complete", hook.out_dir)


def _is_main() -> bool:
    # Elsewhere Python sets no handlers, and Windows knows the signal by name only.
    return os.name == "posix" and threading.current_thread() is threading.main_thread()


def _is_caught() -> bool:
    """Whether there is a handler that Python knows nothing of, such as faulthandler's."""
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
        caught = next(line for line in lines if line.startswith("SigCgt:"))
        return bool(int(caught.split()[1], 16) >> (_NUMBER - 1) & 1)
    return False


def _wake_up_sockets() -> tuple[socket.socket, socket.socket] | None:
    """Two ends; Python writes to the second when a signal comes. None where that cannot be had.

    Sockets, because they tell who wrote: a forked child has them too, for a moment.
    """
    if not hasattr(socket, "SO_PASSCRED"):
        return None
    before = signal.set_wakeup_fd(-1)
    if before != -1:
        signal.set_wakeup_fd(before)
        return None
    ears = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    ears[0].setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    ears[1].setblocking(False)
    signal.set_wakeup_fd(ears[1].fileno(), warn_on_full_buffer=False)
    return ears


def _receive(ear: socket.socket) -> tuple[bytes, int | None]:
    """What was written, and by which process."""
    data, ancillary, _, _ = ear.recvmsg(1, socket.CMSG_SPACE(_CREDENTIALS.size))
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS:
            return data, _CREDENTIALS.unpack(content[: _CREDENTIALS.size])[0]
    return data, None


def _die() -> None:
    """Ends the process from SIGTERM, whatever the main thread is at."""
    # Python lets only the main thread do this.
    c_signal = ctypes.CDLL(None).signal
    c_signal.argtypes, c_signal.restype = (ctypes.c_int, ctypes.c_void_p), ctypes.c_void_p
    c_signal(_NUMBER, int(signal.SIG_DFL))
    os.kill(os.getpid(), _NUMBER)


TERMINATION = Termination()
atexit.register(TERMINATION.at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=TERMINATION.after_fork)
