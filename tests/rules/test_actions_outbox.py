"""The thread of actions: who waits, what is left out, and how it ends."""

from __future__ import annotations

import functools
import logging
import queue
import subprocess
import sys
import textwrap
import threading
from typing import TYPE_CHECKING

from smdebug.rules.action import outbox as outbox_module
from smdebug.rules.action.base import Action
from smdebug.rules.action.outbox import Outbox
from smdebug.storage.findings import Finding

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

# How long a test waits for what must come; nothing is asserted about time.
PATIENCE = 60
HOURS = 10_000.0


class Note(Action):
    """Notes what it is told, and stands still while its gate is shut."""

    def __init__(self, min_interval: float = 0.0, prepares: bool = False) -> None:
        super().__init__("Rule", min_interval)
        self.notes: queue.Queue[tuple[int, int]] = queue.Queue()
        self.entered = threading.Semaphore(0)
        self.gate = threading.Event()
        self.gate.set()
        self.prepared = threading.Event()
        self.enough = HOURS
        self.threads: set[str] = set()
        # Of this object only.
        self.prepares = prepares  # type: ignore[misc]

    @property
    def target(self) -> str:
        return "notes"

    @property
    def settled(self) -> bool:
        return self.notes.qsize() >= self.enough

    def _prepare(self) -> None:
        self.prepared.set()
        raise OSError(5, "it is raining")

    def _act(self, finding: Finding, left_out: int) -> None:
        self.threads.add(threading.current_thread().name)
        self.entered.release()
        assert self.gate.wait(PATIENCE)
        self.notes.put((finding.step, left_out))
        if finding.message == "bad":
            raise ValueError("the password is 1234")

    def taken(self) -> list[tuple[int, int]]:
        return list(self.notes.queue)


def found(step: int, message: str = "m") -> Finding:
    return Finding("Rule", step, message)


def test_every_finding_is_told_in_order() -> None:
    note = Note()
    outbox = Outbox([note])
    for step in range(50):
        outbox.put(found(step))
    assert outbox.drain(PATIENCE) == 0
    assert note.taken() == [(step, 0) for step in range(50)]
    assert outbox.drain(float("inf")) == 0
    assert note.threads == {"smdebug-actions"}


def test_the_caller_does_not_wait() -> None:
    note = Note()
    note.gate.clear()
    outbox = Outbox([note])
    outbox.put(found(0))
    assert note.entered.acquire(timeout=PATIENCE)
    # The action stands still; this one comes back all the same.
    outbox.put(found(1))
    assert outbox.drain(0) == 2
    note.gate.set()
    assert outbox.drain(PATIENCE) == 0
    assert note.taken() == [(0, 0), (1, 0)]


def test_at_most_one_in_an_interval_and_the_rest_at_the_end() -> None:
    note = Note(HOURS)
    outbox = Outbox([note])
    for step in range(10):
        outbox.put(found(step))
    assert outbox.drain(PATIENCE) == 0
    assert note.taken() == [(0, 0), (9, 8)]
    assert outbox.drain(PATIENCE) == 0
    assert len(note.taken()) == 2
    # What follows waits for the interval after the second.
    outbox.put(found(10))
    assert outbox.drain(PATIENCE) == 0
    assert note.taken()[2:] == [(10, 0)]


def test_what_is_held_goes_when_the_interval_is_over() -> None:
    note = Note(0.2)
    outbox = Outbox([note])
    note.gate.clear()
    outbox.put(found(0))
    assert note.entered.acquire(timeout=PATIENCE)
    outbox.put(found(1))
    outbox.put(found(2))
    note.gate.set()
    # Nobody asks for it, and nothing more is found.
    told = [note.notes.get(timeout=PATIENCE), note.notes.get(timeout=PATIENCE)]
    while told[-1][0] != 2:
        told.append(note.notes.get(timeout=PATIENCE))
    assert sum(1 + left_out for _, left_out in told) == 3


def test_the_thread_ends_when_there_is_nothing_to_do() -> None:
    note = Note()
    outbox = Outbox([note])
    assert outbox._thread is None
    for _ in range(3):
        outbox.put(found(0))
        thread = outbox._thread
        assert outbox.drain(PATIENCE) == 0
        if thread is not None:
            thread.join(PATIENCE)
            assert not thread.is_alive()
    assert len(note.taken()) == 3


def test_the_oldest_are_dropped_when_too_many_wait(caplog: pytest.LogCaptureFixture) -> None:
    slow, other = Note(), Note()
    slow.gate.clear()
    outbox = Outbox([slow, other])
    outbox.put(found(0))
    assert slow.entered.acquire(timeout=PATIENCE)
    most = outbox_module.MOST_WAITING
    for step in range(1, most + 8):
        outbox.put(found(step))
    slow.gate.set()
    assert outbox.drain(PATIENCE) == 0
    assert slow.taken() == [(step, 0) for step in (0, *range(8, most + 8))]
    dropped = [record.getMessage() for record in caplog.records if "dropped" in record.message]
    assert "rule Rule: 7 findings were dropped before Note(notes)" in dropped[0]
    # A line of its own: the other had all of them waiting too, one of which was the first.
    assert other.taken() == [(step, 0) for step in range(8, most + 8)]
    assert "8 findings" in dropped[1]


def test_a_slow_action_does_not_crowd_out_another() -> None:
    slow, once = Note(), Note(HOURS)
    slow.gate.clear()
    outbox = Outbox([slow, once])
    for step in range(outbox_module.MOST_WAITING // 2):
        outbox.put(found(step))
    once.gate.clear()
    slow.gate.set()
    # Its turn comes after one of the slow one, not after all.
    assert once.entered.acquire(timeout=PATIENCE)
    assert slow.taken() == [(0, 0)]
    once.gate.set()
    assert outbox.drain(PATIENCE) == 0
    assert once.taken()[0] == (0, 0)


def test_a_failure_is_logged_without_its_text(caplog: pytest.LogCaptureFixture) -> None:
    note = Note()
    outbox = Outbox([note])
    outbox.put(found(0, "bad"))
    outbox.put(found(1))
    assert outbox.drain(PATIENCE) == 0
    assert [record.getMessage() for record in caplog.records] == [
        "rule Rule: Note(notes) failed: ValueError"
    ]
    assert note.taken() == [(0, 0), (1, 0)]


def test_preparing_comes_first_and_may_fail(caplog: pytest.LogCaptureFixture) -> None:
    note = Note(prepares=True)
    outbox = Outbox([note])
    assert note.prepared.wait(PATIENCE)
    outbox.put(found(0))
    assert outbox.drain(PATIENCE) == 0
    assert note.taken() == [(0, 0)]
    assert caplog.records[0].getMessage() == "rule Rule: Note(notes) failed: it is raining"


def test_an_action_that_is_settled_is_left_alone() -> None:
    note = Note(HOURS)
    note.enough = 1
    outbox = Outbox([note])
    outbox.put(found(0))
    outbox.put(found(1))
    assert outbox.drain(PATIENCE) == 0
    for step in range(2, 5):
        outbox.put(found(step))
    assert outbox.drain(PATIENCE) == 0
    # What was held while it was not settled may still come; an action looks itself.
    assert note.taken()[0] == (0, 0)
    assert len(note.taken()) <= 2


def test_without_threads_the_end_does_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    note = Note(HOURS)
    outbox = Outbox([note])
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        for step in range(3):
            outbox.put(found(step))
        assert note.taken() == []
        assert outbox.drain(PATIENCE) == 0
        assert note.taken() == [(0, 0), (2, 1)]
        assert note.threads == {threading.current_thread().name}
        outbox.put(found(3))
        assert outbox.drain(0) == 1


def test_many_callers() -> None:
    note = Note(HOURS)
    outbox = Outbox([note])

    def many(put: Callable[[int], None]) -> None:
        for step in range(200):
            put(step)

    threads = [
        threading.Thread(target=many, args=(lambda step: outbox.put(found(step)),))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outbox.drain(PATIENCE) == 0
    assert sum(1 + left_out for _, left_out in note.taken()) == 800


@functools.cache
def output_of(program: str) -> str:
    head = """
    import os, sys, threading
    from smdebug.rules.action import outbox as outbox_module
    from smdebug.rules.action.base import Action
    from smdebug.rules.action.outbox import Outbox
    from smdebug.storage.findings import Finding

    class Print(Action):
        target = "output"
        gate = threading.Event()
        entered = threading.Event()

        def _act(self, finding, left_out):
            self.entered.set()
            self.gate.wait()
            print(finding.step, left_out, flush=True)
    """
    command = [sys.executable, "-c", textwrap.dedent(head) + textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE)
    assert done.stderr == ""
    return done.stdout


def test_the_end_of_the_program_sends_what_waits() -> None:
    program = """
    Print.gate.set()
    outbox = Outbox([Print("Rule", 10_000)])
    for step in range(5):
        outbox.put(Finding("Rule", step, "m"))
    """
    assert output_of(program) == "0 0\n4 3\n"


def test_the_end_of_the_program_is_not_put_off_for_ever() -> None:
    program = """
    outbox_module._EXIT_SECONDS = 0.1
    outboxes = [Outbox([Print("Rule", 0)]) for _ in range(3)]
    for outbox in outboxes:
        outbox.put(Finding("Rule", 1, "m"))
    print("ends")
    """
    assert output_of(program) == "ends\n"


def test_a_forked_process_begins_anew() -> None:
    program = """
    import warnings
    warnings.simplefilter("ignore")  # Python dislikes a fork beside threads
    outbox = Outbox([Print("Rule", 0)])
    outbox.put(Finding("Rule", 1, "m"))
    Print.entered.wait()
    outbox.put(Finding("Rule", 2, "m"))
    outbox._changed.acquire()  # the worst moment
    child = os.fork()
    if not child:
        print("threads", threading.active_count(), flush=True)
        Print.gate.set()
        outbox.put(Finding("Rule", 3, "m"))
        print("left", outbox.drain(60), flush=True)
        sys.exit()
    outbox._changed.release()
    assert os.waitpid(child, 0)[1] == 0
    Print.gate.set()
    """
    assert output_of(program) == "threads 1\n3 0\nleft 0\n1 0\n2 0\n"


def test_the_log_is_ours(caplog: pytest.LogCaptureFixture) -> None:
    note = Note()
    outbox = Outbox([note])
    with caplog.at_level(logging.DEBUG):
        outbox.put(found(0, "bad"))
        outbox.drain(PATIENCE)
    assert {record.name for record in caplog.records} == {"smdebug.rules"}
