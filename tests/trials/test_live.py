"""A reader beside a writer in another process: what is published is seen, and only whole."""

from __future__ import annotations

import contextlib
import itertools
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from smdebug.exceptions import NoMoreData
from smdebug.mode_keys import ModeKeys
from smdebug.testing.runs import make_run
from smdebug.trials import Trial, create_trial

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TENSORS = 7
# Writes what it is told to, line by line, and says when it is done. Values are made of the step.
_WRITER = """
import sys
import numpy as np
from smdebug.mode_keys import ModeKeys
from smdebug.storage.batch import Entry, StepBatch
from smdebug.storage.stores.base import open_store
from smdebug.storage.writer import RunWriter
from smdebug.testing.runs import default_collections

path, format, worker, workers, tensors = sys.argv[1:]
manager = default_collections()
manager.set_num_workers(int(workers))
writer = RunWriter(open_store(path), worker, format, flush_seconds=0.001)
writer.write_collections(manager.to_json())

def batch(step, numbers):
    entries = [Entry(f"t{n}", np.full((50, 20), step + n / 10), {"mean": step + n / 10})
               for n in numbers]
    return StepBatch(step, ModeKeys.TRAIN, step, entries)

for line in sys.stdin:
    order, *numbers = line.split()
    if order == "steps":
        for step in range(int(numbers[0]), int(numbers[1])):
            half = int(tensors) // 2
            writer.submit(batch(step, range(half)))
            writer.submit(batch(step, range(half, int(tensors))))
            writer.finish_step()
    elif order == "half":
        writer.submit(batch(int(numbers[0]), range(int(tensors) // 2)))
    elif order == "flush":
        writer.flush()
    elif order == "close":
        writer.close()
    print(order, flush=True)
"""


class Job:
    """A writer in another process that does one thing at a time."""

    def __init__(self, path: Path, format: str, worker: str = "worker_0", workers: int = 1) -> None:
        arguments = [str(path), format, worker, str(workers), str(TENSORS)]
        self.process = subprocess.Popen(
            [sys.executable, "-c", _WRITER, *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def send(self, order: str) -> None:
        """Orders something and does not wait for it."""
        assert self.process.stdin is not None
        self.process.stdin.write(order + "\n")
        self.process.stdin.flush()

    def wait(self) -> None:
        """Waits for the oldest order that is not done."""
        assert self.process.stdout is not None
        assert self.process.stdout.readline(), "the writer has died"

    def do(self, order: str) -> None:
        self.send(order)
        self.wait()


@contextlib.contextmanager
def job(path: Path, format: str, worker: str = "worker_0", workers: int = 1) -> Iterator[Job]:
    writer = Job(path, format, worker, workers)
    with writer.process:
        try:
            yield writer
        finally:
            writer.process.kill()


def check_whole(trial: Trial, step: int) -> None:
    """Asserts that a step that was seen is there with all of its tensors."""
    names = [f"t{n}" for n in range(TENSORS)]
    assert trial.tensor_names(step=step) == names
    for n, name in enumerate(names):
        value = trial.tensor(name).value(step)
        np.testing.assert_array_equal(value, np.full((50, 20), step + n / 10))
        assert trial.tensor(name).reduction_value(step, "mean") == step + n / 10


def test_what_is_flushed_is_seen_by_one_refresh(tmp_path: Path, format: str) -> None:
    with job(tmp_path, format) as writer:
        writer.do("flush")
        trial = create_trial(tmp_path, wait_seconds=60)
        assert trial.steps() == []
        for step in range(5):
            writer.do(f"steps {step} {step + 1}")
            writer.do("flush")
            trial.refresh_data()
            assert trial.steps() == list(range(step + 1))
            check_whole(trial, step)
        assert not trial.loaded_all_steps
        writer.do("close")
        trial.refresh_data()
        assert trial.loaded_all_steps
        assert trial.steps() == [0, 1, 2, 3, 4]


def test_a_half_step_is_never_seen(tmp_path: Path, format: str) -> None:
    with job(tmp_path, format) as writer:
        writer.do("steps 0 1")
        writer.do("half 1")
        writer.do("flush")
        trial = create_trial(tmp_path, wait_seconds=60)
        assert trial.steps(show_incomplete_steps=True) == [0]
        assert trial.tensor("t0").steps(show_incomplete_steps=True) == [0]
        # The second half follows; only then the step is there.
        writer.do("steps 1 2")
        writer.do("flush")
        trial.refresh_data()
        assert trial.steps() == [0, 1]
        check_whole(trial, 1)


def test_steps_grow_and_are_whole_while_the_job_writes(tmp_path: Path, format: str) -> None:
    """Publishing, compacting and reading at once: every look shows a past that stays."""
    ends = [40, 80, 150]
    with job(tmp_path, format) as writer:
        writer.do("flush")
        trial = create_trial(tmp_path, wait_seconds=60)
        seen: list[int] = []
        for begin, end in itertools.pairwise([0, *ends]):
            writer.send(f"steps {begin} {end}")
            if end == ends[-1]:
                # The index is compacted while it is being read.
                writer.send("close")
            while len(seen) < end:
                seen = look(trial, seen)
            writer.wait()
        writer.wait()
        trial.refresh_data()
        assert trial.loaded_all_steps
        assert trial.steps() == list(range(ends[-1]))
    for step in (0, 70, ends[-1] - 1):
        check_whole(trial, step)
    for step, value in trial.tensor("t6").values(steps=range(0, ends[-1], 7)).items():
        np.testing.assert_array_equal(value, np.full((50, 20), step + 0.6))


def look(trial: Trial, seen: list[int]) -> list[int]:
    """Looks once; returns the steps, of which those seen before are the beginning."""
    steps = trial.steps()
    assert steps[: len(seen)] == seen
    assert steps == list(range(len(steps)))
    new = steps[len(seen) :]
    for step in new[:2] + new[-2:]:
        check_whole(trial, step)
    if steps:
        found, values = trial.tensor("t3").series("mean")
        assert len(found) >= len(steps)
        np.testing.assert_array_equal(values, found + 0.3)
    return steps


def test_two_workers(tmp_path: Path, format: str) -> None:
    with job(tmp_path, format, "a", 2) as first, job(tmp_path, format, "b", 2) as second:
        first.do("steps 0 3")
        first.do("flush")
        second.do("flush")
        trial = create_trial(tmp_path, wait_seconds=60)
        assert trial.steps() == []
        assert trial.steps(show_incomplete_steps=True) == [0, 1, 2]
        second.do("steps 0 2")
        second.do("flush")
        trial.refresh_data()
        assert trial.steps() == [0, 1]
        assert trial.tensor("t0").workers(1) == ["a", "b"]
        second.do("steps 2 3")
        second.do("close")
        trial.refresh_data()
        assert trial.steps() == [0, 1, 2]


def test_waiting_for_steps_of_another_process(tmp_path: Path, format: str) -> None:
    with job(tmp_path, format) as writer:
        writer.do("flush")
        trial = create_trial(tmp_path, wait_seconds=60)
        writer.send("steps 0 20")
        writer.send("close")
        trial.wait_for_steps([3, 19], mode=ModeKeys.TRAIN, timeout=60)
        check_whole(trial, 19)
        with pytest.raises(NoMoreData):
            trial.wait_for_steps([20], timeout=60)
        writer.wait()
        writer.wait()


def test_a_job_that_was_killed_and_resumed(tmp_path: Path, format: str) -> None:
    with job(tmp_path, format) as writer:
        writer.do("steps 0 5")
        writer.do("flush")
        trial = create_trial(tmp_path, wait_seconds=60)
        assert trial.steps() == [0, 1, 2, 3, 4]
        writer.do("steps 5 6")
        writer.do("half 6")
    with job(tmp_path, format) as writer:
        writer.do("steps 3 8")
        writer.do("close")
    trial.refresh_data()
    assert trial.steps() == list(range(8))
    for step in range(8):
        check_whole(trial, step)
    again = create_trial(tmp_path)
    for step in range(8):
        check_whole(again, step)


def test_a_finished_trial_is_left_alone(
    tmp_path: Path, format: str, calls: list[tuple[str, str]]
) -> None:
    make_run(tmp_path, range(5), format=format)
    trial = create_trial(tmp_path)
    assert not any(key.startswith("events/") for method, key in calls if method == "read")
    trial.tensor("fc.weight").values()
    calls.clear()
    for _ in range(3):
        trial.steps()
        trial.tensor_names(step=1)
        trial.has_passed_step(3)
        trial.tensor("fc.weight").steps()
    assert calls == []


def test_a_live_trial_looks_without_reading_raw_data(
    tmp_path: Path, format: str, calls: list[tuple[str, str]]
) -> None:
    def reads(method: str) -> list[Any]:
        return [key for what, key in calls if what == method and key.startswith("events/")]

    make_run(tmp_path, range(3), format=format, end=False)
    trial = create_trial(tmp_path)
    make_run(tmp_path, range(3, 5), format=format, end=False)
    trial.refresh_data()
    assert trial.steps() == [0, 1, 2, 3, 4]
    trial.tensor_names(step=4)
    trial.tensor("fc.weight").workers(4)
    assert reads("read") == []
