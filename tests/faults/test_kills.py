"""Promise 2: a published step is never lost, whenever the process that writes is killed."""

from __future__ import annotations

import random
import shutil
import signal
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from tests.faults import jobs
from tests.faults.tally import Tally, amount

from smdebug.exceptions import MissingCollectionFiles, TrialNotFound
from smdebug.storage.check.run import check_run
from smdebug.storage.format.keys import END_KEY
from smdebug.storage.stores.local import LocalStore
from smdebug.trials.trial import Trial

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.zygote import Running, Zygote

SEED = 20_101
STEPS = 6
KILLS, SHORT = 500, 20


@dataclass
class Run:
    """A run with writers that are killed while a reader follows it.

    Attributes:
        path: where it is.
        format: of its files.
        seen: what the reader has seen: a digest of each step.
        faults: what was not as promised.
    """

    zygote: Zygote
    path: str
    format: str
    random: random.Random
    seen: dict[int, str] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def read_while(self, work: Callable[[], bool]) -> bool:
        """Has a reader follow the run while something is done to it."""
        reader = self.zygote.start(jobs.follow, self.path)
        try:
            return work()
        finally:
            reader.say()
            said = reader.rest()
            if reader.wait() != 0:
                self.faults.append(f"the reader failed: {reader.complaints()}")
            for line in said:
                step, digest = line.split()
                if self.seen.setdefault(int(step), digest) != digest:
                    self.faults.append(f"the reader saw step {step} change")

    def killed(self, job: Running, begins: str, longest: float) -> bool:
        """Kills a process at a random moment from when it says something; False if it had ended."""
        line = job.line()
        while line is not None and not line.startswith(begins):
            line = job.line()
        job.during(self.random.uniform(0, longest))
        job.send(signal.SIGKILL)
        return self.ended(job)

    def ended(self, job: Running) -> bool:
        """Waits for a process that was, or was to be, killed."""
        code = job.wait()
        if code not in (0, -signal.SIGKILL):
            self.faults.append(f"it ended with {code}: {job.complaints()}")
        return code == -signal.SIGKILL

    def look(self) -> None:
        """Compares what is there with what was seen, and looks at every file."""
        report = check_run(LocalStore(self.path))
        self.faults += [f"{damage.file}: {damage.what}" for damage in report.damages]
        try:
            trial = Trial(self.path, wait_seconds=0)
        except (TrialNotFound, MissingCollectionFiles):
            if self.seen:
                self.faults.append(f"there is no run, and steps {sorted(self.seen)} were seen")
            return
        there = set(trial.steps())
        for step, digest in self.seen.items():
            if step not in there or jobs.digest(trial, step) != digest:
                self.faults.append(f"step {step} was seen, and is not what it was")

    def go_on(self) -> None:
        """Run another job in the same directory, in one of the possible ways, to its end."""
        finished = next(iter(LocalStore(self.path).list(END_KEY)), None) is not None
        way = self.random.choice(["resume", "step"] if finished else ["resume", "step", "anew"])
        options: dict[str, object] = {"format": self.format}
        if way != "anew":
            options["resume"] = True
        if way == "step":
            options["last"] = self.random.randint(-1, max(self.seen, default=-1))
        said = self.zygote.run(jobs.train, self.path, 3, **options)
        made = [int(line.split()[1]) for line in said if line.startswith("step")]
        trial = Trial(self.path, wait_seconds=0)
        if not trial.loaded_all_steps or not set(made) <= set(trial.steps()):
            self.faults.append(f"the next job ({way}) made {made}; there are {trial.steps()}")
        self.look()


# Each returns whether a process was killed in it.


def while_publishing(run: Run) -> bool:
    return run.read_while(lambda: _train_and_kill(run))


def _train_and_kill(run: Run) -> bool:
    """Kill training at a given time, or at one of its file operations."""
    options = {"format": run.format, "pause": 0.01}
    if run.random.random() < 0.5:
        job = run.zygote.start(jobs.train, run.path, 200, **options)
        return run.killed(job, "step", 0.3)
    job = run.zygote.start(jobs.train, run.path, 200, kill_at=run.random.randint(1, 40), **options)
    return run.ended(job)


def while_closing(run: Run) -> bool:
    def work() -> bool:
        options = {"format": run.format}
        if run.random.random() < 0.5:
            job = run.zygote.start(jobs.train, run.path, STEPS, **options)
            return run.killed(job, "closing", 0.03)
        # Of format v1 there is less to write then.
        number = run.random.randint(1, 2 if run.format == "v1" else STEPS + 2)
        job = run.zygote.start(
            jobs.train, run.path, STEPS, kill_at=number, kill_in="close", **options
        )
        return run.ended(job)

    return run.read_while(work)


def while_compacting(run: Run) -> bool:
    """By the command, over a run of several jobs that were not closed."""
    for number in range(2):
        run.zygote.run(jobs.train, run.path, STEPS, end="nothing", resume=bool(number))

    def work() -> bool:
        if run.random.random() < 0.5:
            job = run.zygote.start(jobs.compact, run.path)
            return run.killed(job, "compacting", 0.05)
        job = run.zygote.start(jobs.compact, run.path, kill_at=run.random.randint(1, 2 * STEPS))
        return run.ended(job)

    return run.read_while(work)


def while_resuming(run: Run) -> bool:
    """A first job ends well or badly; the second is killed when it has hardly begun."""
    end = run.random.choice(["close", "nothing"])
    run.zygote.run(jobs.train, run.path, STEPS, end=end, format=run.format)

    def work() -> bool:
        options = {"format": run.format, "resume": True}
        if run.random.random() < 0.5:
            job = run.zygote.start(jobs.train, run.path, 200, **options)
            job.during(run.random.uniform(0, 0.1))
            job.send(signal.SIGKILL)
            return run.ended(job)
        number = run.random.randint(1, 8)
        return run.ended(run.zygote.start(jobs.train, run.path, 200, kill_at=number, **options))

    return run.read_while(work)


MOMENTS = {
    "publishing": while_publishing,
    "closing": while_closing,
    "compacting": while_compacting,
    "resuming": while_resuming,
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_published_step_survives_a_kill(
    tmp_path: Path, zygote: Zygote, tally: Tally, moment: str
) -> None:
    share = 1 + list(MOMENTS).index(moment)
    wanted = amount(KILLS, SHORT) * share // 4 - amount(KILLS, SHORT) * (share - 1) // 4
    seed = SEED + share
    choose = random.Random(seed)
    killed = survived = seen = 0
    wrong: list[str] = []
    kinds: Counter[str] = Counter()
    while killed < wanted:
        # Only format v2 has index files to join.
        format = "v2" if moment == "compacting" else choose.choice(["v1", "v2"])
        run = Run(zygote, str(tmp_path / "run"), format, choose)
        died = MOMENTS[moment](run)
        killed += died
        run.look()
        run.go_on()
        survived += died and not run.faults
        wrong += [f"seed {seed}, kill {killed}, {format}: {fault}" for fault in run.faults]
        seen += len(run.seen)
        kinds[format] += died
        shutil.rmtree(run.path)
    formats = ", ".join(f"{name}: {count}" for name, count in sorted(kinds.items()))
    tally.add(2, f"kill -9 while {moment}", killed, survived, f"{formats}; {seen:,} steps seen")
    assert not wrong
