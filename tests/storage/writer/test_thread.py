"""The writer thread: it connects the queue and the publisher."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import TYPE_CHECKING

import pytest
from tests.storage.writer.writing import (
    PATIENCE,
    BlockingStore,
    FailingStore,
    Memory,
    Panic,
    batch_of,
    outcome,
    steps_in,
)

from smdebug.exceptions import WriteFailed
from smdebug.storage.stores.memory import MemoryStore
from smdebug.storage.writer.publisher import Publisher
from smdebug.storage.writer.queue import Command, WriterQueue
from smdebug.storage.writer.thread import WriterThread

if TYPE_CHECKING:
    from collections.abc import Callable

    from smdebug.storage.batch import StepBatch
    from smdebug.storage.stores.base import Store


class Writer:
    """A queue, a publisher and the thread between them."""

    def __init__(self, store: Store, flush_seconds: float = 1e6, queue_bytes: int = 1 << 30):
        self.queue = WriterQueue(store.url, queue_bytes)
        self.publisher = Publisher(
            store,
            flush_seconds=flush_seconds,
            max_bytes=queue_bytes // 4,
            on_published=self.queue.published,
        )
        self.thread = WriterThread(self.queue, self.publisher)
        self.thread.start()

    def flush(self) -> None:
        self.queue.execute(Command(self.publisher.flush))

    def close(self) -> None:
        self.queue.close(Command(self.publisher.close))
        self.thread.join()
        self.queue.raise_failure_once()


def writer_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "smdebug-writer"]


def test_one_daemon_thread_from_start_to_close() -> None:
    before = len(writer_threads())
    run = Writer(MemoryStore())
    run.thread.start()
    assert run.thread.is_alive()
    assert [thread.daemon for thread in writer_threads()[before:]] == [True]
    run.queue.put(batch_of(0))
    run.close()
    assert not run.thread.is_alive()
    run.thread.start()
    assert not run.thread.is_alive()
    assert not [t for t in threading.enumerate() if t.name.startswith("smdebug-checksum")]


def test_a_thread_that_cannot_be_started_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        run = Writer(MemoryStore())
    assert not run.thread.is_alive()
    with pytest.raises(WriteFailed, match="can't start new thread"):
        run.queue.put(batch_of(0))
    assert isinstance(outcome(run.close), WriteFailed)


def test_start_interrupted_by_ctrl_c_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(self: threading.Thread) -> None:
        raise KeyboardInterrupt

    store, queue = MemoryStore(), WriterQueue("", 1 << 20)
    publisher = Publisher(store)
    thread = WriterThread(queue, publisher)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", interrupt)
        with pytest.raises(KeyboardInterrupt):
            thread.start()
    # The thread may come to life all the same; only one of the two takes items.
    (late,) = thread._threads
    thread.start()
    late.start()
    queue.put(batch_of(0))
    assert outcome(lambda: queue.close(Command(publisher.close))) is None
    late.join(PATIENCE)
    assert not late.is_alive()
    assert steps_in(store) == [0]


def test_a_step_is_published_at_its_deadline() -> None:
    store = BlockingStore()
    store.go.set()
    run = Writer(store, flush_seconds=0.1)
    run.queue.put(batch_of(0), finish=True)
    assert store.entered.wait(PATIENCE)
    run.close()


def test_a_pending_batch_is_made_on_the_thread_and_released_when_published() -> None:
    store, memory = MemoryStore(), Memory()
    makers: list[str] = []

    def make() -> StepBatch:
        makers.append(threading.current_thread().name)
        return batch_of(0)

    run = Writer(store)
    run.queue.put(memory.pending(0, make), finish=True)
    run.queue.put(memory.pending(1))
    run.queue.finish_step()
    run.flush()
    assert makers == ["smdebug-writer"]
    assert memory.returned == memory.needs_release == 2
    run.queue.put(memory.pending(2))
    run.close()
    assert memory.returned == 3
    assert steps_in(store) == [0, 1, 2]


def test_memory_comes_back_when_a_batch_cannot_be_made() -> None:
    memory = Memory()

    def fail() -> StepBatch:
        raise ArithmeticError("no reduction today")

    run = Writer(MemoryStore())
    run.queue.put(memory.pending(0))
    run.queue.put(memory.pending(1, fail))
    error = outcome(run.close)
    assert isinstance(error, WriteFailed)
    assert "no reduction today" in str(error)
    assert error.lost_steps == (0, 1)
    assert memory.returned == 2


def test_the_limit_holds_for_queue_and_publisher_together() -> None:
    store, memory = MemoryStore(), Memory()
    run = Writer(store, queue_bytes=4 * batch_of(0).nbytes)
    most = 0
    for step in range(200):
        run.queue.put(memory.pending(step), finish=True)
        most = max(most, memory.needs_release - memory.returned)
    run.close()
    assert most <= 4
    assert steps_in(store) == list(range(200))


@pytest.mark.parametrize("error", [OSError("gone"), Panic("panic")])
@pytest.mark.parametrize("call", [Writer.flush, Writer.close])
def test_whatever_is_raised_on_the_thread_is_a_failure(
    error: BaseException, call: Callable[[Writer], None]
) -> None:
    run = Writer(FailingStore(error=error))
    run.queue.put(batch_of(0), finish=True)
    failure = outcome(lambda: call(run))
    assert isinstance(failure, WriteFailed)
    assert failure.__cause__ is error
    assert failure.lost_steps == (0,)
    if call is Writer.flush:
        # The thread lives on: only the last command ends it.
        assert run.thread.is_alive()
        assert isinstance(outcome(run.close), WriteFailed)
    assert not run.thread.is_alive()


def test_no_tensor_is_kept_alive_by_a_failure() -> None:
    run = Writer(FailingStore())
    batch = batch_of(0)
    value = weakref.ref(batch.entries[0])
    run.queue.put(batch, finish=True)
    del batch
    error = outcome(run.flush)
    gc.collect()
    assert isinstance(error, WriteFailed)
    assert value() is None
    outcome(run.close)
