"""Which SIGTERM handler is installed; tests/faults/test_endings.py sends the signal."""

from __future__ import annotations

import faulthandler
import os
import signal
import socket
import threading
from typing import TYPE_CHECKING

import pytest
from tests.hook.numpy_hook import NumpyHook

from smdebug.hook.sigterm import SIGTERM_HANDLER

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def _nobody_handles_it() -> Iterator[None]:
    # Whatever hooks other tests of this process have left open.
    for hook in list(SIGTERM_HANDLER.hooks):
        SIGTERM_HANDLER.forget(hook)
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGTERM, before)


def wake_up() -> int:
    number = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(number, warn_on_full_buffer=False)
    return number


def is_ours() -> bool:
    return signal.getsignal(signal.SIGTERM) == SIGTERM_HANDLER._on_signal


def test_closing_the_last_hook_restores_signal_handling(tmp_path: Path) -> None:
    before = wake_up()
    first, second = NumpyHook(tmp_path / "1"), NumpyHook(tmp_path / "2")
    assert is_ours()
    first.save_scalar("x", 1)
    first.close()
    assert is_ours()
    second.close()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert wake_up() == before
    third = NumpyHook(tmp_path / "3")
    assert is_ours()
    third.close()


def test_handler_of_another_library_is_kept(tmp_path: Path) -> None:
    def mine(number: int, frame: object) -> None: ...

    signal.signal(signal.SIGTERM, mine)
    NumpyHook(tmp_path / "1").close()
    assert signal.getsignal(signal.SIGTERM) is mine
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    hook = NumpyHook(tmp_path / "2")
    signal.signal(signal.SIGTERM, mine)
    hook.close()
    assert signal.getsignal(signal.SIGTERM) is mine


def test_handler_installed_by_c_code_is_kept(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as log:
        faulthandler.register(signal.SIGTERM, log)
        try:
            hook = NumpyHook(tmp_path / "run")
            assert not is_ours()
            hook.close()
        finally:
            faulthandler.unregister(signal.SIGTERM)


def test_wakeup_descriptor_of_another_library_is_kept(tmp_path: Path) -> None:
    ends = socket.socketpair()
    for end in ends:
        end.setblocking(False)
    before = signal.set_wakeup_fd(ends[0].fileno())
    try:
        hook = NumpyHook(tmp_path / "1")
        assert is_ours()
        hook.save_scalar("x", 1)
        hook.close()
        assert wake_up() == ends[0].fileno()
        signal.set_wakeup_fd(-1)
        hook = NumpyHook(tmp_path / "2")
        signal.set_wakeup_fd(ends[0].fileno())
        hook.close()
        assert wake_up() == ends[0].fileno()
    finally:
        signal.set_wakeup_fd(before)
        for end in ends:
            end.close()


def test_hook_in_another_thread_installs_no_handler(tmp_path: Path) -> None:
    made: list[NumpyHook] = []
    thread = threading.Thread(target=lambda: made.append(NumpyHook(tmp_path / "1")))
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    made[0].close()
    hook = NumpyHook(tmp_path / "2")
    thread = threading.Thread(target=hook.close)
    thread.start()
    thread.join()
    # Only the main thread can put it back; it does nothing without hooks.
    assert is_ours()
    NumpyHook(tmp_path / "3").close()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_sigterm_kills_a_forked_child_and_signal_masks_are_restored(tmp_path: Path) -> None:
    hook = NumpyHook(tmp_path / "run")
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    pid = os.fork()
    if pid == 0:
        masks = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        is_default = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL and wake_up() == -1
        os._exit(0 if masks == before and is_default else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before
    assert is_ours()
    hook.close()
