"""Promise 8, threads: what may be done with a hook from other threads than the one that trains."""

from __future__ import annotations

import random
import shutil
from typing import TYPE_CHECKING

import pytest
from tests.faults import thread_jobs
from tests.faults.tally import Tally, amount
from tests.faults.test_endings import faults_of, told_steps

from smdebug.storage.check.run import check_run
from smdebug.storage.stores.local import LocalStore
from smdebug.trials.trial import Trial

if TYPE_CHECKING:
    from pathlib import Path

    from tests.zygote import Zygote

SEED = 80_301


@pytest.mark.parametrize("format", ["v1", "v2"])
def test_values_saved_by_other_threads_are_not_lost(
    tmp_path: Path, zygote: Zygote, tally: Tally, format: str
) -> None:
    threads, saves = amount(8, 4), amount(500, 50)
    lines = zygote.run(thread_jobs.saves_from_threads, str(tmp_path), threads, saves, format)
    trial = Trial(str(tmp_path), wait_seconds=0)
    told = [line.split()[1:] for line in lines if line.startswith("saved")]
    wrong = []
    for name, before, after in told:
        full = name if int(name.split("_")[1]) % 2 else f"scalar/{name}"
        steps = trial.tensor(full).steps() if full in trial.tensor_names() else []
        # At a step that was the present one during the call.
        if len(steps) != 1 or not int(before) <= steps[0] <= int(after):
            wrong.append(f"{full}: {steps}, saved between {before} and {after}")
        elif int(trial.tensor(full).value(steps[0])[0]) != int(name.split("_")[1]):
            wrong.append(f"{full}: another value")
    faults = faults_of(tmp_path, list(range(int(told_steps(lines)[-1]) + 1)))
    survived = len(told) - len(wrong) if not faults else 0
    tally.add(8, "saved by other threads while one trains", threads * saves, survived)
    assert not wrong
    assert not faults
    assert len(told) == threads * saves
    assert "failed None" in lines


def test_two_threads_train_two_models_with_one_hook(
    tmp_path: Path, zygote: Zygote, tally: Tally
) -> None:
    steps = amount(500, 50)
    lines = zygote.run(thread_jobs.two_models, str(tmp_path), steps)
    trial = Trial(str(tmp_path), wait_seconds=0)
    damages = check_run(LocalStore(tmp_path)).damages
    # Each forward pass is a step, in any thread.
    expected = list(range(2 * steps))
    fine = trial.steps() == expected and "same True" in lines and "failed None" in lines
    tally.add(8, "steps of two threads with one hook", 2 * steps, len(trial.steps()) if fine else 0)
    assert fine, lines
    assert not damages
    assert trial.loaded_all_steps


def test_hook_closed_from_another_thread_during_training(
    tmp_path: Path, zygote: Zygote, tally: Tally
) -> None:
    tried = amount(200, 5)
    choose = random.Random(SEED)
    wrong: list[str] = []
    for number in range(tried):
        path = tmp_path / "run"
        format = choose.choice(["v1", "v2"])
        seconds = choose.uniform(0, 0.1)
        job = zygote.start(thread_jobs.closes_from_a_thread, str(path), seconds, format)
        lines = job.rest()
        code = job.wait()
        fine = code == 0 and {"same True", "failed None", "left 0"} <= set(lines)
        wrong += [] if fine else [f"seed {SEED}, {number}: {code} {lines} {job.complaints()}"]
        closed = next((int(each.split()[1]) for each in lines if each.startswith("closed")), -1)
        wrong += _faults_up_to(path, closed)
        shutil.rmtree(path, ignore_errors=True)
    tally.add(8, "close() from another thread while one trains", tried, tried - len(wrong))
    assert not wrong


def _faults_up_to(path: Path, step: int) -> list[str]:
    """What is wrong with a run that was closed when this step had begun."""
    if step < 1:
        return []
    trial = Trial(str(path), wait_seconds=0)
    faults = [f"{each.file}: {each.what}" for each in check_run(LocalStore(path)).damages]
    if trial.steps()[: step + 1] != list(range(step + 1)) or not trial.loaded_all_steps:
        faults.append(f"closed at step {step}; there are {len(trial.steps())}")
    names = set(trial.tensor_names(step=0))
    lacking = [each for each in range(step) if set(trial.tensor_names(step=each)) != names]
    return faults + [f"step {each} is not whole" for each in lacking]


def test_several_threads_close_and_flush_at_once(
    tmp_path: Path, zygote: Zygote, tally: Tally
) -> None:
    tried = amount(50, 3)
    wrong = []
    for number in range(tried):
        path = tmp_path / str(number)
        lines = zygote.run(thread_jobs.closes_at_once, str(path))
        done = sum(line.startswith("done") for line in lines)
        faults = faults_of(path, told_steps(lines))
        if faults or done != 6 or "failed None" not in lines:
            wrong.append(f"{number}: {faults} {lines}")
    tally.add(8, "close() and flush() by six threads at once", tried, tried - len(wrong))
    assert not wrong


def test_closed_hook_does_nothing(tmp_path: Path, zygote: Zygote, tally: Tally) -> None:
    job = zygote.start(thread_jobs.used_after_close, str(tmp_path / "run"))
    lines = job.rest()
    code = job.wait()
    faults = faults_of(tmp_path / "run", [0])
    trial = Trial(str(tmp_path / "run"), wait_seconds=0)
    late = [name for name in trial.tensor_names() if "late" in name]
    fine = (code, lines, faults, late, trial.steps()) == (0, ["failed None"], [], [], [0])
    tally.add(8, "a hook used after close(), by five threads", 1, int(fine))
    assert fine, (code, lines, faults, late, job.complaints())
