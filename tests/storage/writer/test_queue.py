"""The queue: locking and waiting between the training thread and the writer thread."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import TYPE_CHECKING

import pytest
from tests.storage.writer.writing import PATIENCE, Memory, batch_of, outcome

from smdebug.exceptions import SMDebugRuntimeError, StoreError, WriteFailed
from smdebug.storage.writer.queue import Command, Handover, WriterQueue

if TYPE_CHECKING:
    from collections.abc import Callable

SIZE = batch_of(0).nbytes
FAR = 1e12


def make_queue(batches: float = 100) -> WriterQueue:
    """A queue with room for so many batches."""
    return WriterQueue("memory://", int(batches * SIZE))


def start(call: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
    """Run a call on another thread; its result or error is in the list when it ends."""
    results: list[object] = []

    def run() -> None:
        try:
            results.append(call())
        except Exception as error:
            results.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, results


def end(thread: threading.Thread) -> None:
    thread.join(PATIENCE)
    assert not thread.is_alive(), "the call hangs"


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def take(queue: WriterQueue) -> Handover | Command | None:
    """Take an item that is there, as the writer thread does."""
    item = queue.get(time.monotonic())
    queue.done(item)
    return item


def steps_of(queue: WriterQueue) -> list[int]:
    """Take everything that is there."""
    steps = []
    while (item := take(queue)) is not None:
        if isinstance(item, Handover) and item.batch is not None:
            steps.append(item.batch.step)
    return steps


# ---- order and deadlines


def test_items_come_in_the_order_they_were_put() -> None:
    queue, ran = make_queue(), Command(lambda: None)
    batches = [batch_of(0), batch_of(1)]
    queue.put(batches[0])
    queue.finish_step()
    queue.send(ran)
    queue.put(batches[1], finish=True)
    assert [take(queue) for _ in range(4)] == [
        Handover(batches[0], SIZE, finish=False),
        Handover(None, 0, finish=True),
        ran,
        Handover(batches[1], SIZE, finish=True),
    ]
    assert ran.done


def test_a_batch_and_the_end_of_its_step_are_one_item() -> None:
    """Ctrl-C cannot come between them."""
    queue = make_queue()
    queue.put(batch_of(0), finish=True)
    assert steps_of(queue) == [0]
    assert take(queue) is None


@pytest.mark.parametrize("seconds", [0.0, 0.001, 0.06])
def test_get_returns_none_at_the_deadline(seconds: float) -> None:
    assert outcome(lambda: make_queue().get(time.monotonic() + seconds)) is None


@pytest.mark.parametrize("deadline", [None, FAR, float("inf")])
def test_get_waits_for_an_item(deadline: float | None) -> None:
    queue = make_queue()
    thread, items = start(lambda: queue.get(deadline))
    # Longer than a nap: the consumer sleeps until it is notified.
    thread.join(0.1)
    assert thread.is_alive()
    queue.finish_step()
    end(thread)
    assert items == [Handover(None, 0, finish=True)]


# ---- room


def test_a_queue_with_room_does_not_make_the_producer_wait() -> None:
    queue = make_queue(50)
    for step in range(50):
        queue.put(batch_of(step))
    assert queue.seconds_waited == 0.0
    assert steps_of(queue) == list(range(50))


def test_a_full_queue_makes_the_producer_wait_until_steps_are_published() -> None:
    queue = make_queue(2)
    queue.put(batch_of(0), finish=True)
    queue.put(batch_of(1), finish=True)
    thread, results = start(lambda: queue.put(batch_of(2)))
    until(lambda: queue.producers_waiting == 1)
    # Taken is not published: the consumer holds the bytes now.
    assert steps_of(queue) == [0, 1]
    assert queue.producers_waiting == 1
    queue.published({0}, SIZE)
    end(thread)
    assert results == [None]
    assert queue.seconds_waited > 0
    assert steps_of(queue) == [2]


def test_a_waiting_producer_ends_the_consumers_wait() -> None:
    queue = make_queue(1)
    queue.put(batch_of(0), finish=True)
    assert steps_of(queue) == [0]
    thread, items = start(lambda: queue.get(FAR))
    producer, results = start(lambda: queue.put(batch_of(1)))
    # The end of the step before, so that it can be published, and then the request to do so.
    end(thread)
    while items[-1] is not None:
        items.append(queue.get(FAR))
    queue.published({0}, SIZE)
    end(producer)
    assert results == [None]


def test_a_waiting_producer_finishes_the_step_before() -> None:
    queue = make_queue(1)
    queue.put(batch_of(0))
    thread, _ = start(lambda: queue.put(batch_of(1)))
    until(lambda: queue.producers_waiting == 1)
    items = [take(queue), take(queue)]
    assert items[1] == Handover(None, 0, finish=True)
    queue.published({0}, SIZE)
    end(thread)


@pytest.mark.parametrize("room", [0, 0.5, 1])
def test_one_step_may_exceed_the_limit_alone(room: float) -> None:
    """Nothing but its own end could make room for it."""
    queue = make_queue(room)
    for _ in range(3):
        assert outcome(lambda: queue.put(batch_of(7))) is None
    assert queue.seconds_waited == 0


def test_bytes_freed_before_publishing_make_room() -> None:
    queue = make_queue(2)
    queue.put(batch_of(0), finish=True)
    queue.put(batch_of(1))
    thread, _ = start(lambda: queue.put(batch_of(1)))
    until(lambda: queue.producers_waiting == 1)
    assert steps_of(queue) == [0, 1]
    queue.shrink(0, SIZE - 1)
    assert queue.producers_waiting == 1
    queue.shrink(1, SIZE - 1)
    end(thread)


def test_an_open_step_that_shrank_waits_again_for_others() -> None:
    queue = make_queue(4)
    queue.put(batch_of(1))
    queue.shrink(1, SIZE)
    for step in (0, 2, 3, 4):
        queue.put(batch_of(step), finish=True)
    thread, _ = start(lambda: queue.put(batch_of(1)))
    until(lambda: queue.producers_waiting == 1)
    queue.published({0, 2, 3, 4}, 4 * SIZE)
    end(thread)


# ---- closing


def test_a_producer_that_waits_while_the_queue_is_closed_gets_an_error() -> None:
    """Its batch cannot be written any more; it must not vanish silently."""
    queue = make_queue(1)
    queue.put(batch_of(0))
    producer, results = start(lambda: queue.put(batch_of(1)))
    until(lambda: queue.producers_waiting == 1)
    last = Command(lambda: None)
    closer, _ = start(lambda: queue.close(last))
    while take(queue) is not last:
        pass
    queue.published({0}, SIZE)
    end(closer)
    end(producer)
    assert isinstance(results[0], SMDebugRuntimeError)
    assert "closed" in str(results[0])


def test_a_second_close_waits_for_the_first_command() -> None:
    queue = make_queue()
    commands = [Command(lambda: None), Command(lambda: None)]
    closers = [start(partial(queue.close, command)) for command in commands]
    until(lambda: len(queue._items) == 2)
    assert all(thread.is_alive() for thread, _ in closers)
    item = queue.get(None)
    assert item in commands
    assert queue.done(item)
    for thread, _ in closers:
        end(thread)
    # Nothing is left of the command that was appended twice.
    assert take(queue) is None
    queue.close(commands[1])


CALLS: dict[str, Callable[[WriterQueue], object]] = {
    "put": lambda queue: queue.put(batch_of(2)),
    "finish_step": lambda queue: queue.finish_step(),
    "send": lambda queue: queue.send(Command(lambda: None)),
    "execute": lambda queue: queue.execute(Command(lambda: None)),
}


@pytest.mark.parametrize("call", CALLS)
def test_calls_after_close(call: str) -> None:
    queue = make_queue()
    thread, _ = start(lambda: queue.close(Command(lambda: None)))
    until(lambda: take(queue) is not None)
    end(thread)
    error = outcome(lambda: CALLS[call](queue))
    assert type(error) is SMDebugRuntimeError
    assert "memory:// is closed" in str(error)


# ---- failures


@pytest.mark.parametrize("call", CALLS)
def test_a_failure_is_raised_by_the_next_call(call: str) -> None:
    queue = make_queue()
    queue.put(batch_of(0))
    queue.put(batch_of(1))
    cause = OSError("disk full")
    queue.fail(cause)
    for _ in range(2):
        error = outcome(lambda: CALLS[call](queue))
        assert isinstance(error, WriteFailed)
        assert str(error) == "could not write to memory://: disk full"
        assert error.__cause__ is cause
        assert error.lost_steps == (0, 1)
    assert queue.lost_steps == (0, 1)


def test_a_store_names_itself_in_its_errors() -> None:
    queue = make_queue()
    queue.fail(StoreError("s3://bucket denies access"))
    with pytest.raises(WriteFailed, match=r"^could not write: s3://bucket denies access$"):
        queue.finish_step()


def test_only_steps_that_are_not_published_are_lost() -> None:
    queue = make_queue()
    for step in (0, 1, 2):
        queue.put(batch_of(step))
    steps_of(queue)
    # Step 0 is published, and more of it has been put since.
    queue.put(batch_of(0))
    queue.published({0, 1}, 2 * SIZE)
    assert not queue.lost_steps
    queue.fail(OSError())
    assert queue.lost_steps == (0, 2)


def test_a_failure_is_reported_once_at_the_end() -> None:
    queue = make_queue()
    queue.fail(OSError())
    with pytest.raises(WriteFailed):
        queue.raise_failure_once()
    queue.raise_failure_once()


def test_a_failure_releases_waiting_producers_and_what_they_put() -> None:
    queue, memory = make_queue(2), Memory()
    queue.put(memory.pending(0))
    queue.put(memory.pending(1))
    thread, results = start(lambda: queue.put(memory.pending(2)))
    until(lambda: queue.producers_waiting == 1)
    assert isinstance(queue.get(None), Handover)
    queue.fail(OSError())
    end(thread)
    assert isinstance(results[0], WriteFailed)
    # Batch 0 was taken: it is the consumer's.
    assert memory.returned == 1
    assert queue.failed


def test_commands_are_still_taken_after_a_failure() -> None:
    """A call may wait for one of them."""
    queue, command = make_queue(), Command(lambda: None)
    thread, results = start(lambda: queue.execute(command))
    until(lambda: bool(queue._items))
    queue.fail(OSError())
    assert take(queue) is command
    end(thread)
    assert isinstance(results[0], WriteFailed)


@pytest.mark.parametrize("call", ["put", "execute", "close"])
def test_no_call_waits_for_a_dead_consumer(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("smdebug.storage.writer.queue._ALIVE_CHECK_SECONDS", 0.01)
    queue = make_queue(1)
    queue.put(batch_of(0))
    last = Command(lambda: None)
    thread, results = start(lambda: queue.close(last) if call == "close" else CALLS[call](queue))
    until(lambda: len(queue._items) > 1)
    queue.consumer_alive = lambda: False
    end(thread)
    if call == "close":
        assert results == [None]
        results = [outcome(queue.raise_failure_once)]
    assert isinstance(results[0], WriteFailed)
    assert "thread died" in str(results[0])
    assert results[0].lost_steps == (0,)
