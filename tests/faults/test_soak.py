"""What a long job takes does not grow with its length."""

from __future__ import annotations

import json
import math
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.faults.soak_job import BESIDES, QUEUE_BYTES
from tests.faults.tally import FULL, amount

from smdebug.storage.v2.compaction import ROWS_PER_FILE
from smdebug.storage.writer.publisher import flush_interval
from smdebug.trials import create_trial

if TYPE_CHECKING:
    from tests.faults.tally import Tally

ROOT = Path(__file__).parents[2]
DEADLINE = 1800.0
# Twenty bytes a step would be more, over the steps of the full size.
ALLOWED = 12e6 if FULL else 24e6
# What a step weighs in the queue, at most: two numbers.
STEP_BYTES = 2000


def started(*arguments: Any) -> subprocess.Popen[str]:
    """Starts one of the programs of `soak_job`."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.faults.soak_job", json.dumps(arguments)],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def told(process: subprocess.Popen[str]) -> dict[str, Any]:
    """What a program has to say when it has ended."""
    try:
        out, errors = process.communicate(timeout=DEADLINE)
    finally:
        process.kill()
    assert process.returncode == 0, errors
    return dict(json.loads(out.splitlines()[-1]))


def grown(samples: list[dict[str, float]], what: str, first: int = 1) -> float:
    """By how much something has grown after it was warm.

    The least of three samples, because pending data, and what it allocates, vary.
    """
    values = [each[what] for each in samples]
    return min(values[-3:]) - min(values[first : first + 3])


def most_segments(seconds: float, weight: int, flushes: int) -> int:
    """How many segments a local run of this age may have, by docs/formats.md."""
    by_time, age = 0, 0.0
    while age < seconds:
        age += flush_interval(age, remote=False)
        by_time += 1
    return by_time + math.ceil(weight / (QUEUE_BYTES // 4)) + flushes + 2


def cost(*results: dict[str, Any]) -> str:
    """The time of a step in the training thread, in the last tenth relative to the first.

    Of several jobs the one in the middle: a tenth of a short job is a few seconds of a machine that
    others use, too.
    """
    first = statistics.median(each["cost"][0][0] for each in results)
    thread, wall = (
        _middle([each["cost"][-1][clock] / each["cost"][0][clock] for each in results])
        for clock in (0, 1)
    )
    beside = _middle([each["usual"][-1] / each["usual"][0] for each in results])
    return (
        f"{1e6 * first:.0f} us of the training thread a step in the first tenth; the last is "
        f"{thread} of it (wall {wall}), {beside} measured by work that is always the same; "
        f"waited {sum(each['waited'] for each in results):.1f} s"
    )


def _middle(ratios: list[float]) -> str:
    """The median, and how far the others are from it."""
    spread = f" ({min(ratios):.2f} to {max(ratios):.2f})" if len(ratios) > 1 else ""
    return f"{statistics.median(ratios):.2f}{spread}"


def require_flat(result: dict[str, Any]) -> list[str]:
    """What is not flat, in words."""
    samples = result["samples"]
    wrong = []
    if grown(samples, "rss") > ALLOWED:
        wrong.append(f"memory: {[round(each['rss'] / 1e6) for each in samples]} MB")
    for what in ("files", "threads"):
        if grown(samples, what) > 0:
            wrong.append(f"{what}: {[each[what] for each in samples]}")
    if result["calls"][-1] != result["calls"][0]:
        wrong.append(f"calls of functions in a step: {result['calls']}")
    return wrong


def test_scalars(tmp_path: Path, tally: Tally) -> None:
    steps = amount(1_000_000, 20_000)
    run = tmp_path / "run"
    result = told(started("soak", "scalars", str(run), steps))
    wrong = require_flat(result)
    # The modes change twice in a thousand steps: that is what a hook remembers of its past.
    changes = 2 * steps // 1000
    for what, most in (("objects", changes + 300), ("held", changes + 6 * result["segments"])):
        if grown(result["samples"], what) > most:
            wrong.append(f"{what}: {[each[what] for each in result['samples']]}")
    made = steps + BESIDES + result["warm"]
    segments = most_segments(result["elapsed"], made * STEP_BYTES, BESIDES)
    if result["segments"] > segments:
        wrong.append(f"{result['segments']} segments, {segments} at most")
    files = [each for each in run.rglob("*") if each.is_file()]
    index = [each for each in files if each.suffix == ".parquet" and "index" in each.parts]
    if len(index) > 1 + 2 * steps // (ROWS_PER_FILE // 2):
        wrong.append(f"{len(index)} index files")
    began = time.perf_counter()
    trial = create_trial(str(run))
    opened = time.perf_counter() - began
    if len(trial.steps()) != made or not trial.loaded_all_steps:
        wrong.append(f"{len(trial.steps())} steps are there")
    tally.add(
        5, "steps of scalars, with TensorBoard files and when_nan", steps,
        0 if wrong else steps,
        f"{result['samples'][1]['rss'] / 1e6:.0f} MB, then "
        f"{grown(result['samples'], 'rss') / 1e6:+.1f} MB; "
        f"{cost(result)}; {result['segments']} segments in {result['elapsed']:.0f} s, then "
        f"{len(files)} files; opened in {opened:.2f} s",
    )  # fmt: skip
    shutil.rmtree(tmp_path)
    assert not wrong, wrong


def test_python_allocations_do_not_grow(tmp_path: Path, tally: Tally) -> None:
    steps = amount(100_000, 10_000)
    result = told(started("soak", "scalars", str(tmp_path / "run"), steps, True))
    more = grown(result["samples"], "traced")
    # Changes of the mode, and what is known of folders; a number alone takes 32 bytes a step.
    right = more < 20_000 + 2 * steps
    tally.add(
        5, "steps of scalars, every byte traced", steps, steps if right else 0,
        f"{more / (0.7 * steps):+.2f} bytes a step",
    )  # fmt: skip
    assert right, [each["traced"] for each in result["samples"]]


def test_tensors(tmp_path: Path, tally: Tally) -> None:
    steps, times = amount(10_000, 1_000), amount(5, 1)
    results, wrong = [], []
    for _ in range(times):
        run = tmp_path / "run"
        result = told(started("soak", "tensors", str(run), steps))
        wrong += require_flat(result)
        made = steps + BESIDES + result["warm"]
        segments = most_segments(result["elapsed"], made * (256_000 + STEP_BYTES), BESIDES)
        if result["segments"] > segments:
            wrong.append(f"{result['segments']} segments, {segments} at most")
        saved, sums = create_trial(str(run)).tensor("weight").series("mean")
        if len(saved) != made or sums[0] != sums[-1]:
            wrong.append(f"{len(saved)} steps are there")
        results.append(result)
        shutil.rmtree(run)
    most = max(grown(each["samples"], "rss") for each in results)
    tally.add(
        5, f"steps of tensors of 256 kB, in {times} job{'s' * (times > 1)}", times * steps,
        0 if wrong else times * steps,
        f"{result['bytes'] / 1e9:.2f} GB in {result['elapsed']:.0f} s each; "
        f"{most / 1e6:+.1f} MB; {cost(*results)}",
    )  # fmt: skip
    assert not wrong, wrong


def test_rules_during_a_job(tmp_path: Path, tally: Tally) -> None:
    steps = amount(200_000, 5_000)
    run = tmp_path / "run"
    job = started("soak", "watched", str(run), steps)
    followed, result = told(started("follow", str(run))), told(job)
    # What is known of a step without its rows stays: its number, its mode, and where it is found.
    allowed = ALLOWED + 400 * steps
    wrong = [
        f"{who}: {[round(each['rss'] / 1e6) for each in samples]} MB"
        for who, samples in (("the job", result["samples"]), ("the follower", followed["samples"]))
        if len(samples) > 6 and grown(samples, "rss") > allowed
    ]
    if followed["steps"] != steps + BESIDES + result["warm"]:
        wrong.append(f"the follower saw {followed['steps']} steps")
    if result["findings"] != 1:
        wrong.append(f"a condition that goes on was found {result['findings']} times")
    if result["calls"][-1] != result["calls"][0]:
        wrong.append(f"calls of functions in a step: {result['calls']}")
    tally.add(
        5, "steps with a rule that always fires, and a process that follows", steps,
        0 if wrong else steps,
        f"{grown(result['samples'], 'rss') / steps:.0f} bytes a step in the job; "
        f"{followed['looks']} looks of the follower; {cost(result)}",
    )  # fmt: skip
    shutil.rmtree(tmp_path)
    assert not wrong, wrong


def test_only_reductions_of_large_tensors(tmp_path: Path, tally: Tally) -> None:
    steps = amount(3_000, 200)
    result = told(started("reduced", str(tmp_path / "run"), steps))
    more = result["most"] - result["before"]
    # The queue of 16 MiB, and what is at work.
    right = more < 64e6
    tally.add(
        5, "steps of which only a reduction of 1 MB is saved", steps, steps if right else 0,
        f"{more / 1e6:.0f} MB more at most, with nothing published",
    )  # fmt: skip
    assert right, f"{more / 1e6:.0f} MB"


def test_run_resumed_many_times(tmp_path: Path, tally: Tally) -> None:
    times = amount(200, 10)
    samples = told(started("resumed", str(tmp_path / "run"), times))["samples"]
    files = {each["objects in the run"] for each in samples}
    # One of collections, one of the index, one lock, the mark of the end.
    wrong = [] if files == {4} else [f"files of the run: {files}"]
    wrong += [what for what in ("objects", "files", "threads") if grown(samples, what) > 0]
    tally.add(
        5, "hooks that go on with one run", times, 0 if wrong else times,
        f"{max(files)} files; objects of Python {grown(samples, 'objects'):+.0f}",
    )  # fmt: skip
    assert not wrong, wrong


def test_a_new_name_at_every_step(tmp_path: Path, tally: Tally) -> None:
    names = amount(10_000, 1_000)
    result = told(started("names", str(tmp_path / "run"), names))
    trial = create_trial(str(tmp_path / "run"))
    there = len(trial.tensor_names(collection="scalars")) == names + 1
    # All of them written at every step would be half of the names times the last size.
    right = there and result["bytes"] < 0.2 * names * result["last"]
    tally.add(
        5, "new names, one at every step", names, names if right else 0,
        f"collections written {result['writes']} times, {result['bytes'] / 1e6:.2f} MB in all",
    )  # fmt: skip
    assert right, result
