"""Promise 8, processes: forks and spawned ones leave the run to the process that made the hook."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest
from tests.faults import process_jobs
from tests.faults.tally import Tally, amount
from tests.faults.test_endings import faults_of, told_steps

from smdebug.trials.trial import Trial

if TYPE_CHECKING:
    from pathlib import Path

    from tests.zygote import Zygote

SEED = 80_201
CHILDREN = {"trains": 0, "closes": 0, "exits": 7, "raises": 1, "_exits": 7, "forks": 7}


def faults_beside(path: Path, steps: list[int]) -> list[str]:
    """What is wrong with a run that one process has written, and no other may have touched."""
    faults = faults_of(path, steps)
    trial = Trial(str(path), wait_seconds=0)
    if trial.steps() != steps:
        faults.append(f"there are steps {trial.steps()}, expected {steps}")
    return faults + [name for name in trial.tensor_names() if "child" in name]


@pytest.mark.parametrize("locked", ["", "writer", "hook"])
@pytest.mark.parametrize("when", [0, 2])
def test_a_fork_leaves_the_run_to_its_parent(
    tmp_path: Path, zygote: Zygote, tally: Tally, when: int, locked: str
) -> None:
    wrong = []
    first = ["", "writer", "hook"].index(locked)
    # In the checks each of them with one lock only.
    children = list(CHILDREN)[first::3] if amount(0, 1) else list(CHILDREN)
    for child in children:
        code = CHILDREN[child]
        path = tmp_path / child
        job = zygote.start(process_jobs.forks, str(path), when, locked, child)
        lines = job.rest()
        ended = job.wait()
        faults = faults_beside(path, list(range(when + 3)))
        if ended or f"child {code}" not in lines or told_steps(lines) != list(range(when + 3)):
            faults.append(f"ended with {ended}, having said {lines}")
        wrong += [f"{child}: {faults}\n{job.complaints()}"] if faults else []
    before = "before the first step" if not when else "after a step"
    held = f", with the {locked}'s lock held" if locked else ""
    tally.add(8, f"fork {before}{held}", len(children), len(children) - len(wrong))
    assert not wrong


@pytest.mark.parametrize("how", ["pool", "fork", "spawn"])
def test_processes_that_use_the_hooked_model_save_nothing(
    tmp_path: Path, zygote: Zygote, tally: Tally, how: str
) -> None:
    job = zygote.start(process_jobs.pools, str(tmp_path / "run"), how)
    steps = told_steps(job.rest())
    code = job.wait()
    faults = faults_beside(tmp_path / "run", [0, 1, 2])
    fine = not faults and code == 0 and steps == [0, 1, 2]
    tally.add(8, f"multiprocessing with a hooked model: {how}", 1, int(fine))
    assert fine, (code, steps, faults, job.complaints())


def test_sigterm_to_a_forked_child_leaves_the_parent_alone(
    tmp_path: Path, zygote: Zygote, tally: Tally
) -> None:
    count = amount(200, 20)
    job = zygote.start(process_jobs.terminates_children, str(tmp_path / "run"), count, SEED)
    lines = job.rest()
    code = job.wait()
    died = lines.count(f"child {-signal.SIGTERM}")
    faults = faults_beside(tmp_path / "run", list(range(count)))
    tally.add(8, "SIGTERM to a child that was just forked", count, died if not faults else 0)
    assert (code, died, faults) == (0, count, []), f"seed {SEED}: {job.complaints()}"
