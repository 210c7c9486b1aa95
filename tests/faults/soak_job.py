"""A long job, started as a program of its own, that says what it took; and who follows it.

The program prints one JSON object: samples of its memory, files and threads over its length.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import statistics
import sys
import time
import tracemalloc
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from tests.hook.numpy_hook import NumpyHook

from smdebug import modes
from smdebug.config.reduction_config import ReductionConfig
from smdebug.config.save_config import SaveConfig, SaveConfigMode
from smdebug.rules.runner import RuleRunner
from smdebug.storage.arrow import pa
from smdebug.storage.untrusted import footer as index_footer
from smdebug.trials import create_trial

SAMPLES = 10
QUEUE_BYTES = 32 << 20
# Steps of which the cost is taken together; how many are made besides, to count calls.
BLOCK = 100
BESIDES = 2 * SAMPLES
# How much is computed at a step: some 0.4 ms, and more where the disk must keep up.
_BATCH = {"scalars": 20_000, "watched": 20_000, "tensors": 100_000}


def sample(hook: NumpyHook | None = None) -> dict[str, float]:
    """What the process takes now, with nothing waiting and nothing to be collected."""
    if hook is not None:
        hook.flush()
    gc.collect()
    with suppress(OSError, AttributeError):
        # What is free goes back, so that what is seen is what is held.
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    pa.default_memory_pool().release_unused()
    process = psutil.Process()
    return {
        "rss": process.memory_info().rss,
        "files": process.num_fds(),
        "threads": process.num_threads(),
        "objects": len(gc.get_objects()),
        "held": 0 if hook is None else held(hook),
        "traced": tracemalloc.get_traced_memory()[0],
    }


def held(hook: NumpyHook) -> int:
    """How many things the containers of a hook and of its writer hold in all."""
    return _sizes(hook, 4, set())


def _sizes(thing: Any, depth: int, met: set[int]) -> int:
    if id(thing) in met or not depth:
        return 0
    met.add(id(thing))
    inner = list(getattr(thing, "__dict__", {}).values())
    size = 0
    if isinstance(thing, dict | list | set | frozenset | tuple) or hasattr(thing, "popleft"):
        size = len(thing)
        inner += list(thing.values()) if isinstance(thing, dict) else []
    mine = [each for each in inner if type(each).__module__.startswith(("smdebug", "tests"))
            or isinstance(each, dict | list | set | tuple)]  # fmt: skip
    return size + sum(_sizes(each, depth - 1, met) for each in mine)


def calls_of(work: Any) -> int:
    """How many functions the present thread calls to do something."""
    count = 0

    def profile(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def soak(kind: str, path: str, steps: int, trace: bool = False) -> dict[str, Any]:
    """Saves so many steps, and looks at itself now and then; `trace` counts every byte."""
    if trace:
        tracemalloc.start()
    hook = _tensors(path) if kind == "tensors" else _scalars(path, watched=kind == "watched")
    make = _save_tensors if kind == "tensors" else _save_scalars
    reference = _copy if kind == "tensors" else _objects_of_python
    started = time.monotonic()
    samples, calls = [], []
    costs: list[list[tuple[float, float]]] = [[] for _ in range(SAMPLES)]
    usual: list[list[float]] = [[] for _ in range(SAMPLES)]
    array = np.arange(64_000, dtype=np.float32)
    batch = np.linspace(0.0, 1.0, _BATCH[kind])
    # What is counted byte by byte is not in pieces.
    warm = 0 if trace else warm_up(hook, lambda: make(hook, 0, array))
    for tenth in range(SAMPLES):
        for block in range(steps // SAMPLES // BLOCK):
            first = (tenth * (steps // SAMPLES // BLOCK) + block) * BLOCK
            thread = wall = beside = 0.0
            for step in range(first, first + BLOCK):
                train(batch)
                thread, wall = thread - time.thread_time(), wall - time.perf_counter()
                make(hook, step, array)
                thread, wall = thread + time.thread_time(), wall + time.perf_counter()
                beside -= time.thread_time()
                reference(array)
                beside += time.thread_time()
            costs[tenth].append((thread, wall))
            usual[tenth].append(thread / beside)
        # Steps of one kind, the same every time: the second ends the first, and is counted; with
        # room in the queue, because waiting for it is no work.
        hook.flush()
        make(hook, 0, array)
        calls.append(calls_of(lambda: make(hook, 0, array)))
        samples.append(sample(hook))
    elapsed = time.monotonic() - started
    hook.close()
    medians = [[statistics.median(each) / BLOCK for each in zip(*tenth, strict=True)]
               for tenth in costs]  # fmt: skip
    return {
        "samples": samples,
        "warm": warm,
        "calls": calls,
        "cost": medians,
        "usual": [statistics.median(tenth) for tenth in usual],
        "elapsed": elapsed,
        "waited": hook.stats().seconds_waited,
        "segments": hook.stats().segments,
        "bytes": hook.stats().bytes,
        "findings": len(hook.findings()),
        "after": sample(),
    }


def _objects_of_python(array: Any) -> None:
    """Work of the kind that saving a number is, the same every time.

    A machine is quicker at some times than at others, for everybody: what a step costs is also told
    in units of this, which is done right after it.
    """
    for number in range(30):
        str({"step": number, "values": [number] * 8})


def _copy(array: Any) -> None:
    """The same for tensors, which are a matter of memory: one is made and copied."""
    (array + np.float32(1)).copy()


def warm_up(hook: NumpyHook, save: Any) -> int:
    """Saves until the queue is full, and looks once at everything; returns how many steps it took.

    A machine that is busy for a moment fills the queue, and Python does not give all of that memory
    back: so it is full before anything is measured. Whoever looks at the attributes of an object
    makes a dictionary of them, and the object a little slower for good: that, too, comes before.
    """
    steps = 0
    while not hook.stats().seconds_waited:
        for _ in range(BLOCK):
            save()
        steps += BLOCK
    sample(hook)
    return steps


def train(batch: Any) -> None:
    """What a step does besides saving: the writer's thread has time to keep up.

    A job that does nothing but save waits for its queue, which costs more than putting something
    into it: then the first steps, with the queue still empty, are cheaper than all the others.
    """
    np.tanh(np.sin(batch))


def _scalars(path: str, watched: bool) -> NumpyHook:
    """A hook with everything that could grow: files of TensorBoard, a rule that fires."""
    armed = SaveConfig({modes.TRAIN: SaveConfigMode(save_interval=10**9, when_nan=["loss"])})
    return NumpyHook(
        path, include_collections=["losses"], save_config=armed, queue_bytes=QUEUE_BYTES,
        rules=["NonFinite"] if watched else None, tensorboard_dir=f"{path}_board",
        on_error="raise",
    )  # fmt: skip


def _save_scalars(hook: NumpyHook, step: int, array: Any) -> None:
    hook.set_mode(modes.EVAL if step % 1000 == 999 else modes.TRAIN)
    # Not a number at every tenth step: that is what `when_nan` and the rule look for.
    hook.run(loss=np.float32(np.nan if step % 10 == 9 else step))
    hook.save_scalar("rate", float(step), sm_metric=True)


def _tensors(path: str) -> NumpyHook:
    reductions = ReductionConfig(reductions=["mean"], save_raw_tensor=True)
    return NumpyHook(
        path, include_collections=["weights"], save_config={"save_interval": 1},
        reduction_config=reductions, queue_bytes=QUEUE_BYTES, on_error="raise",
    )  # fmt: skip


def _save_tensors(hook: NumpyHook, step: int, array: Any) -> None:
    hook.run(weight=array + np.float32(step))


def follow(path: str) -> dict[str, Any]:
    """Follows the run with rules, as `smdebug rules --follow` does, until it has ended."""
    trial = create_trial(path, wait_seconds=120)
    runner = RuleRunner(trial, ["NonFinite"], record=False, own=True)
    samples, looks = [sample()], 0
    for _ in runner.looks():
        looks += 1
        if looks % 5 == 0:
            samples.append(sample())
    runner.finish()
    return {"samples": samples, "looks": looks, "steps": len(trial.steps()), "after": sample()}


def reduced(path: str, steps: int) -> dict[str, Any]:
    """Saves only reductions of large tensors, and publishes nothing before the end."""
    hook = NumpyHook(
        path, include_collections=["weights"], save_config={"save_interval": 1},
        reduction_config=ReductionConfig(reductions=["max"]), queue_bytes=16 << 20,
        flush_seconds=600, on_error="raise",
    )  # fmt: skip
    array = np.ones(250_000, np.float32)
    before = psutil.Process().memory_info().rss
    most = 0
    for step in range(steps):
        hook.run(weight=array)
        if step % 20 == 0:
            most = max(most, psutil.Process().memory_info().rss)
    hook.close()
    return {"before": before, "most": most}


def resumed(path: str, times: int) -> dict[str, Any]:
    """Resume a run repeatedly."""
    # At the first file, not when there were many: they are no leak.
    index_footer._WORTH = 0
    samples = []
    for number in range(times):
        hook = NumpyHook(path, resume=True, save_config={"save_interval": 1})
        for _ in range(5):
            hook.run(loss=1.0)
            hook.save_scalar("rate", 1.0)
        assert hook.step == number * 5 + 4
        hook.close()
        del hook
        samples.append({**sample(), "objects in the run": _objects(path)})
    return {"samples": samples}


def names(path: str, count: int) -> dict[str, Any]:
    """Saves under a new name at every step."""
    hook = NumpyHook(path, flush_seconds=600, on_error="raise")
    hook.run(loss=0.0)
    hook.save_scalar("first", 0.0)
    writes: list[int] = []
    write = hook._pipeline.run.store.write

    def counted(key: str, chunks: Any) -> None:
        content = [bytes(chunk) for chunk in chunks]
        if key.startswith("collections/"):
            writes.append(sum(map(len, content)))
        write(key, content)

    hook._pipeline.run.store.write = counted  # type: ignore[method-assign]
    for number in range(count):
        hook.run(loss=0.0)
        hook.save_scalar(f"name_{number}", float(number))
    hook.close()
    return {"writes": len(writes), "bytes": sum(writes), "last": writes[-1]}


def _objects(path: str) -> int:
    return sum(1 for each in Path(path).rglob("*") if each.is_file())


PROGRAMS: dict[str, Any] = {
    "soak": soak,
    "follow": follow,
    "reduced": reduced,
    "resumed": resumed,
    "names": names,
}

if __name__ == "__main__":
    os.environ["no_proxy"] = "*"
    name, *arguments = json.loads(sys.argv[1])
    sys.stdout.write(json.dumps(PROGRAMS[name](*arguments)))
