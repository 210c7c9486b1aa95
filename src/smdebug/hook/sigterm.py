"""SIGTERM, with which schedulers stop jobs: close the runs, then exit from the signal.

SIGTERM ends Python immediately, without running `atexit`. The first hook that the main thread
makes therefore installs a handler, if the default action is in force; closing the last hook removes
it. A background thread closes the hooks, because the main thread may hold a hook's lock when the
signal arrives, or wait in a C call that never returns, such as a collective operation whose peer is
gone. Python's handlers would wait with it, so the thread reads Python's wake-up descriptor.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import logging
import os
import signal
import threading
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from smdebug.hook.lifecycle import Lifecycle

logger = logging.getLogger("smdebug.hook")

# What the thread reads from its pipe: the numbers of signals, up to 64, and commands.
_SIGTERM, _CLOSE, _FLUSH = bytes([signal.SIGTERM]), b"C", b"F"
# Asks the C library, because `signal.getsignal` does not report handlers such as faulthandler's.
_c_handler = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_int)(("PyOS_getsig", ctypes.pythonapi))
_forking = threading.local()


class SigtermHandler:
    """Closes the open hooks of this process on SIGTERM; `SIGTERM_HANDLER` is the only instance.

    Attributes:
        hooks: the open hooks, as keys.
    """

    def __init__(self) -> None:
        self.hooks: dict[Lifecycle, None] = {}
        self._pipe: tuple[int, int] | None = None
        # Held from the signal until the process ends.
        self._closing = threading.Lock()

    def watch(self, hook: Lifecycle) -> None:
        """Have a hook closed on SIGTERM."""
        self.hooks[hook] = None
        if not _in_main_thread() or _c_handler(signal.SIGTERM) is not None:
            return
        if self._pipe is None:
            read_end, write_end = os.pipe()
            os.set_blocking(write_end, False)
            threading.Thread(
                target=self._run, args=(read_end,), name="smdebug-sigterm", daemon=True
            ).start()
            # Only now: Ctrl-C may come at any moment, and a pipe needs its reader.
            self._pipe = (read_end, write_end)
            other = signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
            if other != -1:
                # It belongs to another library; then only the handler writes to the pipe.
                signal.set_wakeup_fd(other)
        signal.signal(signal.SIGTERM, self._on_signal)

    def forget(self, hook: Lifecycle) -> None:
        """Stop watching a hook; closing the last one in the main thread removes the handler."""
        self.hooks.pop(hook, None)
        if not self.hooks and self._pipe is not None and _in_main_thread():
            # The thread reads the end of the file, and closes its own end.
            self._uninstall()

    def _uninstall(self) -> None:
        assert self._pipe is not None
        if self._is_installed():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        write_end, self._pipe = self._pipe[1], None
        other = signal.set_wakeup_fd(-1)
        if other != write_end:
            with contextlib.suppress(OSError, ValueError):
                signal.set_wakeup_fd(other)
        os.close(write_end)

    def _is_installed(self) -> bool:
        return signal.getsignal(signal.SIGTERM) == self._on_signal

    def _on_signal(self, number: int, frame: object) -> None:
        """Notify the thread; runs in the main thread between two instructions, without locks."""
        if self._pipe is not None:
            # A handler of the user that calls this one decides itself how the process ends.
            command = _CLOSE if self._is_installed() else _FLUSH
            with contextlib.suppress(BlockingIOError):
                os.write(self._pipe[1], command)

    def _run(self, read_end: int) -> None:
        with open(read_end, "rb", buffering=0) as pipe:
            while command := pipe.read(1):
                if command == _CLOSE or (command == _SIGTERM and self._is_installed()):
                    self._close_all()
                elif command == _FLUSH:
                    for hook in list(self.hooks):
                        _attempt(hook, hook.flush)

    def _close_all(self) -> None:
        with self._closing:
            # `signal.signal` works in the main thread only. From here on SIGTERM kills at once.
            ctypes.pythonapi.PyOS_setsig(signal.SIGTERM, None)
            for hook in list(self.hooks):
                logger.warning(
                    "SIGTERM: closing the run in %s before the process ends; a second SIGTERM "
                    "ends it at once", hook.out_dir,
                )  # fmt: skip
                _attempt(hook, partial(hook.close, interrupted=True))
            os.kill(os.getpid(), signal.SIGTERM)

    def at_exit(self) -> None:
        """Let the signal end the process if the script ends while the hooks are being closed."""
        with self._closing:
            pass

    # ---- forks: SIGTERM stays blocked until the child has neither the handler nor the descriptor,
    # because a signal to the child would otherwise close the run of its parent.

    def before_fork(self) -> None:
        _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def after_fork_in_parent(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)

    def after_fork_in_child(self) -> None:
        if self._pipe is not None:
            os.close(self._pipe[0])
            self._uninstall()
        self.__init__()  # type: ignore[misc]
        signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)


def _attempt(hook: Lifecycle, work: Callable[[], None]) -> None:
    try:
        work()
    except Exception:
        # The other hooks are closed all the same.
        logger.exception("SIGTERM: the run in %s is not complete", hook.out_dir)


def _in_main_thread() -> bool:
    # Python installs handlers in the main thread only; Windows has no SIGTERM from outside.
    return os.name == "posix" and threading.current_thread() is threading.main_thread()


SIGTERM_HANDLER = SigtermHandler()
atexit.register(SIGTERM_HANDLER.at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=SIGTERM_HANDLER.before_fork,
        after_in_parent=SIGTERM_HANDLER.after_fork_in_parent,
        after_in_child=SIGTERM_HANDLER.after_fork_in_child,
    )
