"""A job of many workers, read by many others while it writes; started as a program of its own.

It says on standard output, as one JSON object, what its processes saw. Every number that is saved
follows from the worker, the step and the tensor, so a reader can check every value.
"""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import random
import sys
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from tests.hook.numpy_hook import NumpyAdapter, NumpyHook

from smdebug import modes
from smdebug.config.reduction_config import ReductionConfig
from smdebug.exceptions import SMDebugRuntimeError
from smdebug.hook.worker import Worker
from smdebug.storage.arrow import warm_up
from smdebug.storage.findings import Finding, write_findings
from smdebug.storage.format.keys import EVENTS_PREFIX, INDEX_PREFIX
from smdebug.storage.stores.base import open_store
from smdebug.storage.v2.compaction import compact_run
from smdebug.trials import create_trial

if TYPE_CHECKING:
    from multiprocessing.synchronize import Barrier, Event, Semaphore

    from smdebug.reductions import Array
    from smdebug.trials.trial import Trial

CONTEXT = multiprocessing.get_context("fork")
NAMES = ("layer/weight", "loss", "scalar/rate", "weight_a")
SIZES = {"layer/weight": 3000, "loss": 1, "scalar/rate": 1, "weight_a": 16}
# Every fifth step is one of evaluation.
TRAIN_STEPS = 4
PATIENCE = 120.0


@dataclass(frozen=True)
class Plan:
    """What there is to do.

    Attributes:
        path: where the run is saved.
        format: "v1" or "v2".
        seed: of everything that is left to chance.
        writers: how many workers there are.
        readers: how many processes read; every second one opens the run again each time.
        rounds: how often the workers wait for each other, at most.
        steps: how many steps they make in between.
        seconds: no new round begins after this time.
        flush_seconds: how long a step may stay unpublished.
        apart: the first worker, which writes the end marker, may close while others continue.
    """

    path: str
    format: str
    seed: int
    writers: int
    readers: int
    rounds: int
    steps: int
    seconds: float
    flush_seconds: float
    apart: bool = True

    @property
    def workers(self) -> list[str]:
        return [f"worker_{number}" for number in range(self.writers)]


@dataclass
class Shared:
    """What the processes share: the only way they know of each other.

    Attributes:
        begun: where writers wait for each other in the middle of a round.
        round: where they do so at its end.
        looks: a reader adds one when it has looked at the run; a round takes some.
        last: the round after which the workers end.
        over: all workers have ended.
    """

    begun: Barrier
    round: Barrier
    looks: Semaphore
    last: Any
    over: Event


@dataclass
class Seen:
    """What a process has to tell."""

    counts: Counter[str] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)


# ---- what is saved


def number_of(worker: str, step: int, name: str) -> float:
    """The number that everything saved of a tensor at a step follows from."""
    return int(worker.rpartition("_")[2]) * 1e6 + step * 10 + NAMES.index(name)


def value_of(worker: str, step: int, name: str) -> Array:
    """What was saved; whole numbers that float32 holds."""
    return (number_of(worker, step, name) + np.arange(SIZES[name])).astype(np.float32)


def mode_of(step: int) -> tuple[modes, int]:
    """The mode of a step, and its number in it."""
    group, place = divmod(step, TRAIN_STEPS + 1)
    if place == TRAIN_STEPS:
        return modes.EVAL, group
    return modes.TRAIN, group * TRAIN_STEPS + place


class WorkerAdapter(NumpyAdapter):
    """One of several workers, as an adapter finds it in a process group."""

    rank: Worker

    def worker(self) -> Worker:
        return self.rank


def worker_hook(plan: Plan, number: int, resume: bool) -> NumpyHook:
    """Makes the hook of one of several workers."""
    rank = Worker(f"worker_{number}", plan.writers, number == 0)
    adapter = type("RankedAdapter", (WorkerAdapter,), {"rank": rank})
    kind: Any = type("WorkerHook", (NumpyHook,), {"adapter_class": adapter})
    hook: NumpyHook = kind(
        plan.path, include_workers="all", include_collections=["weights"],
        save_config={"save_interval": 1}, flush_seconds=plan.flush_seconds, on_error="raise",
        reduction_config=ReductionConfig(reductions=["min", "max"], save_raw_tensor=True),
        format=plan.format, resume=resume,
    )  # fmt: skip
    return hook


# ---- the processes


def write(plan: Plan, shared: Shared, seen: Seen, number: int) -> None:
    """Train as one worker; close now and then, and resume the same run."""
    worker = f"worker_{number}"
    # Shared by all: there are moments when every worker is closed.
    common, own = random.Random(plan.seed), random.Random(plan.seed * 100 + number)
    hook: NumpyHook | None = None
    for turn in range(plan.rounds):
        if hook is None:
            hook = worker_hook(plan, number, resume=turn > 0)
        train(hook, worker)
        # Those of one job train together: none has ended before all have begun.
        shared.begun.wait(PATIENCE)
        while hook.step < (turn + 1) * plan.steps - 1:
            train(hook, worker)
            seen.counts["steps"] += 1
        chance, all_close = own.random(), common.random() < 0.15
        alone = chance < 0.3 and (plan.apart or number > 0)
        if alone or all_close:
            hook.close()
            seen.counts["closes"] += 1
            seen.counts["segments"] += hook.stats().segments
            hook = None
        elif chance < 0.5:
            hook.flush()
        shared.round.wait(PATIENCE)
        if 0 <= shared.last.value <= turn:
            break
    if hook is not None:
        hook.close()
        seen.counts["segments"] += hook.stats().segments


def train(hook: NumpyHook, worker: str) -> None:
    """One step."""
    step = hook.step + 1
    hook.set_mode(mode_of(step)[0])
    tensors = {name: value_of(worker, step, name) for name in NAMES if "rate" not in name}
    hook.run(**{name.replace("/", "__"): value for name, value in tensors.items()})
    hook.save_scalar("rate", value_of(worker, step, "scalar/rate"))


def compact(plan: Plan, shared: Shared, seen: Seen) -> None:
    """Does what `smdebug compact` does again and again, and leaves findings."""
    store = open_store(plan.path)
    while shared.last.value < 0:
        try:
            done = compact_run(store)
            seen.counts["compactions"] += 1
            seen.counts["files joined"] += done.files_before - done.files_after
        except SMDebugRuntimeError as error:
            if "a live process" not in str(error):
                raise
            seen.counts["refused"] += 1
        number = seen.counts["findings"]
        write_findings(store, [Finding("Parallel", number, f"finding {number}")])
        seen.counts["findings"] += 1
        # In step with somebody: as often as a reader looks.
        shared.looks.acquire(timeout=PATIENCE)
        shared.looks.release()


def read(plan: Plan, shared: Shared, seen: Seen, number: int) -> None:
    """Reads until the run is at its end; compares everything with what must be there."""
    reader = Reader(plan, number, seen)
    while True:
        over = shared.over.is_set()
        reader.look()
        shared.looks.release()
        if over and reader.ended:
            return


class Reader:
    """Reads a run, and complains.

    Args:
        plan: what the run is to be.
        number: of the reader; every second one opens the run for every look.
        seen: where it counts.

    Attributes:
        ended: the trial says that there is no more to come.
    """

    def __init__(self, plan: Plan, number: int, seen: Seen) -> None:
        self.seen = seen
        self.ended = False
        self._plan = plan
        self._anew = number % 2 == 1
        self._random = random.Random(plan.seed * 1000 + number)
        self._trial: Trial | None = None
        self._steps: set[int] = set()
        self._last = -1
        self._findings = 0

    def look(self) -> None:
        """Run every query once."""
        # A closed job has ended, as far as a trial can know; this one may continue.
        if self._trial is None or self._anew or self.ended:
            self._trial = create_trial(self._plan.path, wait_seconds=PATIENCE)
            self.seen.counts["opened"] += 1
        self.seen.counts["looks"] += 1
        self._look(self._trial)

    def _look(self, trial: Trial) -> None:
        if self._random.random() < 0.5:
            trial.refresh_data()
        self.ended = trial.loaded_all_steps
        steps = trial.steps()
        self._require_forward(trial, steps)
        if steps:
            self._require_names(trial)
            # The newest, where a half would be seen, and some others.
            chosen = {steps[-1], steps[0], *self._random.choices(steps, k=3)}
            for step in sorted(chosen):
                self._require_whole(trial, step)
            self._require_series(trial, steps)
            self._require_rows(trial, steps)
            if self.seen.counts["looks"] % 4 == 0 or self.ended:
                self._require_query(trial, steps)
        found = trial.findings()
        self._say(len(found) >= self._findings, f"{self._findings} findings, then {len(found)}")
        self._say(len({f.step for f in found}) == len(found), "a finding stands there twice")
        self._findings = len(found)

    def _require_forward(self, trial: Trial, steps: list[int]) -> None:
        missing = self._steps - set(steps)
        self._say(not missing, f"steps are there no more: {sorted(missing)[:10]}")
        self._say(steps == list(range(len(steps))), f"steps have a gap: {_gaps(steps)}")
        last = trial.last_complete_step
        self._say(last >= self._last, f"the last complete step was {self._last}, then {last}")
        self._steps, self._last = set(steps), last
        self.seen.counts["steps seen"] = max(self.seen.counts["steps seen"], len(steps))
        for mode in (modes.TRAIN, modes.EVAL):
            expected = [m for step in steps for each, m in [mode_of(step)] if each is mode]
            found = trial.steps(mode) if expected else []
            self._say(found[: len(expected)] == expected, f"steps of {mode.name}: {found[-5:]}")

    def _require_names(self, trial: Trial) -> None:
        names = trial.tensor_names()
        self._say(tuple(names) == NAMES, f"the names are {names}")
        self._say(trial.workers() == self._plan.workers, f"the workers are {trial.workers()}")

    def _require_whole(self, trial: Trial, step: int) -> None:
        mode, mode_step = mode_of(step)
        self._say(trial.mode_modestep(step) == (mode, mode_step), f"the mode of step {step}")
        for name in NAMES:
            tensor = trial.tensor(name)
            workers = tensor.workers(step)
            self._say(workers == self._plan.workers, f"{name}, step {step}: only of {workers}")
            for worker in workers:
                value = tensor.value(step, worker=worker)
                right = np.array_equal(value, value_of(worker, step, name))
                self._say(right, f"{name}, step {step}, {worker}: {value[:3]}")
                self.seen.counts["values"] += 1
        worker = self._random.choice(self._plan.workers)
        top = trial.tensor("layer/weight").reduction_value(mode_step, "max", mode, worker)
        expected = value_of(worker, step, "layer/weight").max()
        self._say(top == expected, f"the maximum at step {step}: {top}, not {expected}")

    def _require_series(self, trial: Trial, steps: list[int]) -> None:
        worker = self._random.choice(self._plan.workers)
        name = self._random.choice(["loss", "scalar/rate"])
        found, values = trial.tensor(name).series(worker=worker)
        self._say(found.tolist()[: len(steps)] == steps, f"{name} of {worker}: {_gaps(found)}")
        right = np.array([number_of(worker, int(step), name) for step in found])
        self._say(bool((values == right).all()), f"{name} of {worker}: {values[values != right]}")
        self.seen.counts["series"] += 1

    def _require_rows(self, trial: Trial, steps: list[int]) -> None:
        table = trial.to_arrow(["worker", "step", "tensor"])
        rows = list(zip(*(table[name].to_pylist() for name in table.column_names), strict=True))
        self._say(len(set(rows)) == len(rows), "a row stands in the table twice")
        count = Counter(step for _, step, _ in rows)
        halves = [step for step in steps if count[step] != len(NAMES) * self._plan.writers]
        self._say(not halves, f"half of the rows of the steps {halves[:10]}")
        self.seen.counts["tables"] += 1

    def _require_query(self, trial: Trial, steps: list[int]) -> None:
        answer = trial.sql(
            "select count(*) as rows, count(distinct (worker, step, tensor)) as keys from run "
            f"where step <= {steps[-1]}"
        )
        expected = len(steps) * len(NAMES) * self._plan.writers
        found = int(answer.rows[0]) if "rows" in answer else -1
        keys = int(answer["keys"][0])
        self._say(found == keys == expected, f"SQL has {found} rows, {keys} keys, not {expected}")
        self.seen.counts["queries"] += 1

    def _say(self, right: bool, complaint: str) -> None:
        if not right:
            kind = "opens anew" if self._anew else "follows"
            raise AssertionError(f"a reader that {kind}: {complaint}")


def _gaps(steps: Any) -> str:
    found = [int(step) for step in steps]
    gaps = [(a, b) for a, b in itertools.pairwise(found) if b != a + 1]
    return f"{len(found)} up to {found[-1] if found else None}, gaps {gaps[:5]}"


# ---- the whole


def run(plan: Plan) -> dict[str, Any]:
    """Starts all processes and gathers what they saw."""
    # Before anything is forked, and in one thread.
    warm_up()
    looks, turns, last = CONTEXT.Semaphore(0), CONTEXT.Value("i", 0), CONTEXT.Value("i", -1)
    began = time.monotonic()

    def turn_over() -> None:
        # Runs in one of the writers, while the others wait: readers keep up with them.
        for _ in range(plan.readers):
            looks.acquire(timeout=PATIENCE)
        turns.value += 1
        enough = turns.value >= plan.rounds or time.monotonic() - began > plan.seconds
        if last.value < 0 and enough:
            last.value = turns.value - 1

    over = CONTEXT.Event()
    begun, ended = CONTEXT.Barrier(plan.writers), CONTEXT.Barrier(plan.writers, turn_over)
    shared = Shared(begun, ended, looks, last, over)
    jobs: list[tuple[Any, ...]] = [(write, number) for number in range(plan.writers)]
    jobs += [(compact,), *((read, number) for number in range(plan.readers))]
    pipes, processes = [], []
    for what, *arguments in jobs:
        receive, send = CONTEXT.Pipe(duplex=False)
        process = CONTEXT.Process(
            target=_tell, args=(send, what, plan, shared, arguments), daemon=True
        )
        process.start()
        send.close()
        pipes.append((what.__name__, receive))
        processes.append(process)
    told = []
    for name, receive in pipes:
        try:
            told.append((name, receive.recv()))
        except EOFError:
            told.append((name, Seen(errors=["the process died"])))
        if len(told) == plan.writers:
            over.set()
    for process in processes:
        process.join()
    return {**_added(told), "turns": turns.value, **_files(plan)}


def _tell(send: Any, what: Any, plan: Plan, shared: Shared, arguments: list[int]) -> None:
    seen = Seen()
    try:
        what(plan, shared, seen, *arguments)
    except BaseException:
        seen.errors.append(traceback.format_exc())
        # Workers that have ended are not waited for.
        shared.last.value = 0
        for _ in range(plan.readers):
            shared.looks.release()
        shared.begun.abort()
        shared.round.abort()
    send.send(seen)


def _added(told: list[tuple[str, Seen]]) -> dict[str, Any]:
    counts: dict[str, Counter[str]] = {}
    for name, seen in told:
        counts.setdefault(name, Counter()).update(seen.counts)
    for each in counts.values():
        each["steps seen"] = max(seen.counts["steps seen"] for _, seen in told)
    errors = [f"{name}: {error}" for name, seen in told for error in seen.errors]
    # A worker that waited for a failed one adds nothing.
    own = [error for error in errors if "BrokenBarrierError" not in error]
    return {"seen": counts, "errors": own or errors}


def _files(plan: Plan) -> dict[str, Any]:
    store = open_store(plan.path)
    return {
        "index files": len(list(store.list(INDEX_PREFIX))),
        "event files": len(list(store.list(EVENTS_PREFIX))),
    }


if __name__ == "__main__":
    os.environ["no_proxy"] = "*"
    sys.stdout.write(json.dumps(run(Plan(**json.loads(sys.argv[1])))))
