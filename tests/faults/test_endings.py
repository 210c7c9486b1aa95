"""Promise 8, how jobs end: whatever ends a script, what it has saved is in its run."""

from __future__ import annotations

import random
import shutil
import signal
from typing import TYPE_CHECKING, Any

import pytest
from tests.faults import ending_jobs, jobs
from tests.faults.tally import Tally, amount

from smdebug.storage.check.run import check_run
from smdebug.storage.stores.base import open_store
from smdebug.trials.run_summary import state_of
from smdebug.trials.trial import Trial

if TYPE_CHECKING:
    from pathlib import Path

    from tests.zygote import Running, Zygote

SEED = 80_101
MOMENTS, SHORT = 200, 10
FORMATS = ("v1", "v2")
NAMES = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM"}


def told_steps(lines: list[str]) -> list[int]:
    return [int(line.split()[1]) for line in lines if line.startswith("step")]


def faults_of(path: Path | str, steps: list[int], finished: bool = True) -> list[str]:
    """What is wrong with a run in which these steps must be whole, and whatever else is right."""
    store = open_store(str(path))
    if not steps and not any(store.list("")):
        return []
    damages = [f"{each.file}: {each.what}" for each in check_run(store).damages]
    if not steps:
        return damages
    faults = damages + jobs.wrong_steps(str(path), steps)
    if Trial(str(path), wait_seconds=0).loaded_all_steps != finished:
        faults.append("the run is not finished" if finished else "the run is finished")
    return faults


# ---- exits and exceptions


@pytest.mark.parametrize("format", FORMATS)
def test_script_ends_in_the_middle_of_a_step(
    tmp_path: Path, zygote: Zygote, tally: Tally, format: str
) -> None:
    codes = {"exit": 3, "exception": 1, "interrupt": -signal.SIGINT, "_exit": 4}
    cases = [(how, where) for where in ("forward", "backward", "between") for how in codes]
    # The end of an interpreter takes its time.
    cases = cases[FORMATS.index(format) :: 3] if amount(0, 1) else cases
    wrong = []
    for how, where in cases:
        path = tmp_path / f"{how} {where}"
        job = zygote.start(ending_jobs.die, str(path), how, where, format)
        steps = told_steps(job.rest())
        code = job.wait()
        # Of what `os._exit` ends, what was published is there: here that need not be anything.
        lost = how == "_exit"
        faults = faults_of(path, [] if lost else steps, finished=not lost)
        faults += [] if code == codes[how] else [f"ended with {code}: {job.complaints()}"]
        wrong += [f"{how} {where}: {faults}"] if faults else []
    kind = "sys.exit, exception, Ctrl-C, os._exit in forward, backward, between"
    tally.add(8, kind, len(cases), len(cases) - len(wrong))
    assert not wrong


# ---- signals at random moments


def signal_once(zygote: Zygote, path: Path, number: int, choose: random.Random) -> list[str]:
    """Start training and send it a signal: at a time, or at a call inside the library."""
    how = choose.choice(["train", "flush", "close"])
    options: dict[str, Any] = {"how": how, "format": choose.choice(FORMATS), "number": number}
    inside = choose.random() < 0.5
    if inside:
        # Making the hook takes some 600 calls, each of the first steps some hundred, closing 300.
        options["signal_at"] = choose.randint(1, 2500)
    job = zygote.start(ending_jobs.endless, str(path), **options)
    if inside:
        lines = job.until("signal")
    else:
        lines = job.until(choose.choice(["begun", "step", "step 4"]))
        lines += job.during(choose.uniform(0, 0.1))
        job.send(number)
    before = told_steps(lines)
    later = lines + job.rest()
    code = job.wait()
    # Ctrl-C ends training immediately; after SIGTERM it continues until the run is closed.
    steps = told_steps(later) if number == signal.SIGINT else before
    faults = [] if code in _codes(number, later, how) else [f"ended with {code}"]
    faults += faults_of(path, steps)
    return [f"{options}: {each}\n{job.complaints()}" for each in faults]


def _codes(number: int, lines: list[str], how: str) -> set[int]:
    """With what a job may end: it may have come to its end when the signal came."""
    done = how == "close" and "closed" in lines
    return {-number, 0} if done else {-number}


@pytest.mark.parametrize("number", NAMES, ids=NAMES.values())
def test_signal_at_a_random_time(tmp_path: Path, zygote: Zygote, tally: Tally, number: int) -> None:
    seed = SEED + number
    choose = random.Random(seed)
    tried = amount(MOMENTS, SHORT)
    wrong: list[str] = []
    survived = 0
    for attempt in range(tried):
        faults = signal_once(zygote, tmp_path / "run", number, choose)
        survived += not faults
        wrong += [f"seed {seed}, attempt {attempt}, {fault}" for fault in faults]
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
    tally.add(8, f"{NAMES[signal.Signals(number)]} at random moments", tried, survived)
    assert not wrong


@pytest.mark.parametrize("how", ["call", "thread", "workers"])
def test_sigterm_while_the_main_thread_is_blocked(
    tmp_path: Path, zygote: Zygote, tally: Tally, how: str
) -> None:
    job = zygote.start(ending_jobs.endless, str(tmp_path / "run"), how=how)
    lines = job.until("calling" if how == "call" else "step 4")
    job.send(signal.SIGTERM)
    job.rest()
    code = job.wait()
    faults = faults_of(tmp_path / "run", told_steps(lines))
    fine = not faults and code == -signal.SIGTERM
    kinds = {
        "call": "SIGTERM while the main thread is in a long call of C",
        "thread": "SIGTERM while only another thread runs",
        "workers": "SIGTERM beside workers of a DataLoader",
    }
    tally.add(8, kinds[how], 1, int(fine))
    assert (code, faults) == (-signal.SIGTERM, []), job.complaints()


@pytest.mark.parametrize("place", ["disk", "bucket"])
def test_terminated_job_can_be_restarted(
    tmp_path: Path, bucket: str, zygote: Zygote, tally: Tally, place: str
) -> None:
    """As it was, or with `resume`; it is terminated once more, and then comes to its end."""
    folder = str(tmp_path) if place == "disk" else f"s3://{bucket}/again"
    cases = [(format, resume) for format in FORMATS for resume in (False, True)]
    cases = cases[:: 1 if place == "disk" else amount(1, 3)]
    wrong = []
    for format, resume in cases:
        options: dict[str, Any] = {"format": format, "resume": resume}
        faults = faults_of_restarts(zygote, f"{folder}/{format}_{resume}", options)
        wrong += [f"{options}: {fault}" for fault in faults]
    jobs_made = 3 * len(cases)
    kind = f"jobs started again after SIGTERM, {place}"
    tally.add(8, kind, jobs_made, jobs_made if not wrong else 0)
    assert not wrong


def faults_of_restarts(zygote: Zygote, path: str, options: dict[str, Any]) -> list[str]:
    faults = []
    told: list[int] = []
    for _ in range(2):
        job = zygote.start(ending_jobs.endless, path, **options)
        told += told_steps(job.until(f"step {max(told, default=0) + 3 * options['resume'] + 2}"))
        job.send(signal.SIGTERM)
        job.rest()
        faults += [] if job.wait() == -signal.SIGTERM else [job.complaints()]
        faults += faults_of(path, sorted(set(told)))
        faults += [] if state_of(open_store(path)) == "stopped" else ["not stopped"]
    job = zygote.start(ending_jobs.some, path, steps=3, **options)
    told += told_steps(job.rest())
    faults += [] if job.wait() == 0 else [job.complaints()]
    faults += faults_of(path, sorted(set(told)))
    faults += [] if state_of(open_store(path)) == "finished" else ["not finished"]
    # Without `resume` each of them starts from scratch.
    if (told.count(0) == 1) != options["resume"]:
        faults.append(f"steps {told}")
    return faults


def test_a_second_sigterm_ends_the_process_at_once(
    tmp_path: Path, zygote: Zygote, tally: Tally
) -> None:
    codes = []
    for how in ("train", "call"):
        job = zygote.start(ending_jobs.slow_end, str(tmp_path / how), how)
        job.until("ready")
        job.send(signal.SIGTERM)
        # The store has a pending write, and never answers.
        job.until("writing")
        job.send(signal.SIGTERM)
        codes.append(job.wait())
    tally.add(8, "a second SIGTERM while the run is closed", 2, codes.count(-signal.SIGTERM))
    assert codes == [-signal.SIGTERM] * 2


@pytest.mark.parametrize("how", ["earlier", "later", "calls"])
def test_sigterm_handler_of_the_script_is_kept(
    tmp_path: Path, zygote: Zygote, tally: Tally, how: str
) -> None:
    job = zygote.start(ending_jobs.handled, str(tmp_path / "run"), how)
    lines = job.until("step 2")
    job.send(signal.SIGTERM)
    lines += job.rest()
    code = job.wait()
    faults = faults_of(tmp_path / "run", told_steps(lines))
    fine = code == 5 and "handled" in lines and not faults
    tally.add(8, "SIGTERM with a handler of the script's own", 1, int(fine))
    assert fine, (code, faults, job.complaints())


def test_other_signals_are_left_alone(tmp_path: Path, zygote: Zygote, tally: Tally) -> None:
    numbers = [signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1]
    codes, faults = [], []
    for number in numbers:
        path = tmp_path / number.name
        job = zygote.start(ending_jobs.endless, str(path), how="flush")
        steps = told_steps(job.until("step 3"))
        job.send(number)
        job.rest()
        codes.append(job.wait())
        # What was flushed before; as after a kill.
        faults += faults_of(path, steps[:-1], finished=False)
    good = sum(code == -number for code, number in zip(codes, numbers, strict=True))
    tally.add(8, "SIGHUP, SIGQUIT, SIGUSR1", len(numbers), good if not faults else 0)
    assert codes == [-number for number in numbers]
    assert not faults


def test_signals_to_a_script_started_by_smdebug_run(
    tmp_path: Path, zygote: Zygote, tally: Tally
) -> None:
    """`smdebug run`: the script's exit code is its own."""
    found: list[tuple[int, list[str]]] = []
    for how, number in (("term", signal.SIGTERM), ("interrupt", signal.SIGINT)):
        job: Running = zygote.start(ending_jobs.launched, str(tmp_path / how), str(tmp_path))
        steps = told_steps(job.until("step 3"))
        job.send(number)
        job.rest()
        code = job.wait()
        trial = Trial(str(tmp_path / how), wait_seconds=0)
        lost = [f"step {step} is missing" for step in steps if step not in trial.steps()]
        found.append((code + number, lost if trial.loaded_all_steps else ["not finished"]))
    good = found.count((0, []))
    tally.add(8, "SIGTERM and Ctrl-C of a script started by smdebug run", 2, good)
    assert found == [(0, []), (0, [])]
