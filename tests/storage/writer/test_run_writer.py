"""The run writer: queue, thread and publisher together."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.storage.writer.writing import (
    FORMATS,
    PATIENCE,
    BlockingStore,
    CountingStore,
    FailingStore,
    batch_of,
    make_entry,
    outcome,
    steps_in,
    values_in,
)

from smdebug.exceptions import SMDebugRuntimeError, SMDebugValueError, WriteFailed
from smdebug.storage import writer
from smdebug.storage.batch import Entry
from smdebug.storage.reader import RunReader
from smdebug.storage.stores.local import LocalStore
from smdebug.storage.stores.memory import MemoryStore
from smdebug.storage.writer import RunWriter

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from smdebug.storage.stores.base import Store


@pytest.mark.parametrize("format", FORMATS)
def test_everything_is_there_after_close(format: str) -> None:
    store = MemoryStore()
    with RunWriter(store, format=format) as run:
        run.write_collections("{}")
        for step in range(10):
            run.submit(batch_of(step), finish=step % 2 == 0)
    assert values_in(store) == {step: float(step) for step in range(10)}
    assert "training_job_end.ts" in set(store.list())
    assert run.stats.steps == 10
    assert run.stats.bytes > 0
    assert run.stats.segments >= 1
    assert run.stats.seconds_waited == 0
    assert run.lost_steps == ()


@pytest.mark.parametrize("format", FORMATS)
def test_a_full_queue_makes_the_producer_wait(format: str) -> None:
    store = BlockingStore()
    run = RunWriter(store, format=format, queue_bytes=20_000, flush_seconds=0)
    run.submit(batch_of(0, make_entry(0, size=1000)), finish=True)
    assert store.entered.wait(PATIENCE)
    submitted = threading.Event()

    def produce() -> None:
        for step in range(1, 5):
            run.submit(batch_of(step, make_entry(step, size=1000)))
        submitted.set()

    thread = threading.Thread(target=produce, daemon=True)
    thread.start()
    assert not submitted.wait(0.1)
    store.go.set()
    assert submitted.wait(PATIENCE)
    run.close()
    assert run.stats.seconds_waited > 0
    assert values_in(store) == {step: float(step) for step in range(5)}


def test_segments_are_published_before_the_queue_is_full() -> None:
    store = CountingStore()
    with RunWriter(store, flush_seconds=1e6, queue_bytes=40_000) as run:
        for step in range(20):
            run.submit(batch_of(step, make_entry(step, size=1000)))
    assert len([key for key in store.writes if key.startswith("events/")]) >= 10
    assert values_in(store) == {step: float(step) for step in range(20)}


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("location", ["memory", "local"])
def test_a_step_in_several_batches_is_never_seen_half(
    format: str, location: str, tmp_path: Path
) -> None:
    store: Store = MemoryStore() if location == "memory" else LocalStore(tmp_path)
    names = [f"t{number}" for number in range(5)]
    done = threading.Event()
    halves: list[tuple[int, set[str]]] = []
    seen: set[int] = set()

    def poll() -> None:
        reader = RunReader(store)
        last = False
        while not last:
            last = done.is_set()
            reader.refresh()
            for arrays in reader.steps().values():
                for step in set(arrays.step.tolist()) - seen:
                    seen.add(step)
                    if reader.names_at(step) != set(names):
                        halves.append((step, reader.names_at(step)))

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        with RunWriter(store, format=format, flush_seconds=0) as run:
            for step in range(40):
                for name in names:
                    run.submit(batch_of(step, make_entry(1.0, name), Entry(name, np.float32(1))))
                if step % 3 == 0:
                    run.flush()
    finally:
        done.set()
        thread.join(60)
    assert halves == []
    assert seen == set(range(40))


@pytest.mark.parametrize("seconds", [1e6, 1e10, math.inf])
def test_large_flush_seconds(seconds: float) -> None:
    store = MemoryStore()
    run = RunWriter(store, flush_seconds=seconds)
    run.submit(batch_of(0))
    run.finish_step()
    assert outcome(run.flush) is None
    assert steps_in(store) == [0]
    assert outcome(run.close) is None


# ---- failures


CALLS: dict[str, Callable[[RunWriter], object]] = {
    "submit": lambda run: run.submit(batch_of(2)),
    "flush": lambda run: run.flush(),
    "close": lambda run: run.close(),
    "finish_step": lambda run: run.finish_step(),
    "write_collections": lambda run: run.write_collections("{}"),
}


def failed(text: str = "", format: str = "v2") -> tuple[FailingStore, RunWriter]:
    """A writer with a store that has already failed."""
    store = FailingStore(text)
    run = RunWriter(store, format=format, flush_seconds=1e6)
    run.submit(batch_of(0))
    run.submit(batch_of(1))
    error = outcome(run.flush)
    assert isinstance(error, WriteFailed)
    return store, run


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("text", ["events/", "index/"])
def test_failure_is_raised_by_the_next_call(format: str, call: str, text: str) -> None:
    _, run = failed(text, format)
    error = outcome(lambda: CALLS[call](run))
    assert isinstance(error, WriteFailed)
    assert isinstance(error.__cause__, OSError)
    assert "No space left" in str(error)
    assert set(error.lost_steps) >= {0, 1}


@pytest.mark.parametrize("format", FORMATS)
def test_close_reports_a_failure_and_ends_the_thread(format: str) -> None:
    _, run = failed("events/", format)
    assert isinstance(outcome(run.close), WriteFailed)
    assert outcome(run.close) is None
    assert not run._thread.is_alive()


def test_failure_during_close() -> None:
    run = RunWriter(FailingStore("index/"))
    run.submit(batch_of(0))
    error = outcome(run.close)
    assert isinstance(error, WriteFailed)
    assert error.lost_steps == (0,)


def test_only_what_was_not_published_is_lost() -> None:
    store = FailingStore("000000000002")
    run = RunWriter(store, flush_seconds=1e6)
    for step in (0, 1):
        run.submit(batch_of(step), finish=True)
        run.flush()
    run.submit(batch_of(2))
    run.submit(batch_of(3))
    error = outcome(run.close)
    assert isinstance(error, WriteFailed)
    assert error.lost_steps == (2, 3)
    assert steps_in(store) == [0, 1]
    assert "training_job_end.ts" not in set(store.list())


def test_the_end_marker_may_fail() -> None:
    run = RunWriter(FailingStore("training_job_end"))
    run.submit(batch_of(0))
    error = outcome(run.close)
    assert isinstance(error, WriteFailed)
    assert error.lost_steps == ()


def test_collections_may_fail() -> None:
    run = RunWriter(FailingStore("collections/"))
    run.write_collections("{}")
    assert isinstance(outcome(run.flush), WriteFailed)
    assert isinstance(outcome(run.close), WriteFailed)


def test_a_forked_process_does_not_write() -> None:
    store = MemoryStore()
    run = RunWriter(store)
    run.submit(batch_of(0))
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover - another process
        try:
            run.submit(batch_of(1))
        except SMDebugRuntimeError as error:
            os.write(writing, str(error).encode())
        run.close()
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        assert "forked process" in pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    run.close()
    assert steps_in(store) == [0]


def test_a_large_tensor_is_written_at_the_exit_of_the_interpreter(tmp_path: Path) -> None:
    program = f"""
import atexit
import numpy as np
from smdebug.mode_keys import ModeKeys
from smdebug.storage.batch import Entry, StepBatch
from smdebug.storage.stores.base import open_store
from smdebug.storage.writer import RunWriter

writer = RunWriter(open_store({str(tmp_path)!r}))
writer.submit(StepBatch(0, ModeKeys.TRAIN, 0, [Entry("x", np.ones(1 << 20))]))
atexit.register(writer.close)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    assert steps_in(LocalStore(tmp_path)) == [0]


def script_that_fails(store: Store) -> None:
    with RunWriter(store) as run:
        run.submit(batch_of(0))
        raise ZeroDivisionError


def test_an_exception_in_the_script_still_closes_the_run() -> None:
    store = MemoryStore()
    with pytest.raises(ZeroDivisionError):
        script_that_fails(store)
    assert steps_in(store) == [0]


def test_an_exception_in_the_script_is_not_hidden_by_a_failure() -> None:
    with pytest.raises((ZeroDivisionError, WriteFailed)) as caught:
        script_that_fails(FailingStore())
    error: BaseException | None = caught.value
    chain = []
    while error is not None:
        chain.append(type(error))
        error = error.__cause__ if error.__suppress_context__ else error.__context__
    assert ZeroDivisionError in chain


@pytest.mark.parametrize("call", CALLS)
def test_calls_after_close(call: str) -> None:
    run = RunWriter(MemoryStore())
    run.submit(batch_of(0))
    run.close()
    answer = outcome(lambda: CALLS[call](run))
    if call in ("submit", "write_collections"):
        assert isinstance(answer, SMDebugRuntimeError)
        assert "closed" in str(answer)
    elif call == "close":
        assert answer is None
    else:
        assert answer is None or isinstance(answer, SMDebugRuntimeError)


@pytest.mark.parametrize("format", FORMATS)
def test_a_negative_step_is_refused_at_once(format: str) -> None:
    store = MemoryStore()
    with RunWriter(store, format=format) as run:
        with pytest.raises(SMDebugValueError, match="-1"):
            run.submit(batch_of(-1))
        run.submit(batch_of(0))
    assert steps_in(store) == [0]


@pytest.mark.parametrize(
    "options",
    [
        {"format": "v3"}, {"flush_seconds": -1}, {"flush_seconds": math.nan}, {"queue_bytes": "1"},
        {"queue_bytes": True}, {"worker": "a" * 300},
    ],
)  # fmt: skip
def test_invalid_writer_arguments(options: dict[str, Any]) -> None:
    with pytest.raises(SMDebugValueError):
        RunWriter(MemoryStore(), **options)


# ---- Ctrl-C

_WRITER = str(Path(writer.__file__).parent)


class Interrupted:
    """Raises KeyboardInterrupt before one instruction of the writer, counted from the start."""

    def __init__(self, instruction: int) -> None:
        self._left = instruction
        self.raised = False

    def __call__(self, call: Callable[[], object]) -> None:
        sys.settrace(self._trace)
        try:
            call()
        except KeyboardInterrupt:
            self.raised = True
        finally:
            sys.settrace(None)

    def _trace(self, frame: FrameType, event: str, argument: object) -> Any:
        if not frame.f_code.co_filename.startswith(_WRITER):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            if not self._left:
                sys.settrace(None)
                raise KeyboardInterrupt
            self._left -= 1
        return self._trace


def each_instruction(attempt: Callable[[Interrupted], None]) -> int:
    """Repeat an attempt, each time interrupted one instruction later, until it comes through."""
    number = 0
    while True:
        interrupted = Interrupted(number)
        attempt(interrupted)
        if not interrupted.raised:
            return number
        number += 1


@pytest.mark.parametrize(("finish", "queue_bytes"), [(False, 1), (True, 1 << 20)])
def test_ctrl_c_at_any_instruction_of_submit(finish: bool, queue_bytes: int) -> None:
    """The batch is in the run or it is not, and nothing hangs."""

    def attempt(interrupted: Interrupted) -> None:
        store = MemoryStore()
        run = RunWriter(store, queue_bytes=queue_bytes, flush_seconds=1e6)
        interrupted(lambda: run.submit(batch_of(0), finish))
        run.submit(batch_of(0, make_entry(1, "y")))
        run.submit(batch_of(1))
        run.submit(batch_of(1, make_entry(1, "y")))
        run.close()
        assert values_in(store) in ({0: 0.0, 1: 1.0}, {1: 1.0})
        assert values_in(store, "y") == {0: 1.0, 1: 1.0}

    assert each_instruction(attempt) > 50


@pytest.mark.parametrize("format", FORMATS)
def test_ctrl_c_at_any_instruction_of_close(format: str) -> None:
    def attempt(interrupted: Interrupted) -> None:
        store = MemoryStore()
        run = RunWriter(store, format=format, flush_seconds=1e6)
        run.submit(batch_of(0))
        interrupted(run.close)
        run.close()
        assert steps_in(store) == [0]
        assert "training_job_end.ts" in set(store.list())

    assert each_instruction(attempt) > 50
