"""What a job pays at every step, whatever it saves: beginning it, being watched, checkpoints."""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

import smdebug.pytorch as smd
from benchmarks.bench import ROOT, fresh, own_python, run_json
from benchmarks.figure import FLOOR, Figure

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.bench import Bench

CALLS, CALL_BLOCKS, REPETITIONS = 2_000, 40, 3
BLOCKS, RUNS = 300, 3
FILES, STEPS, STEP_SECONDS = (10, 1_000, 100_000), 500, 0.01
NEVER = smd.SaveConfig(save_interval=10**9, start_step=10**9)
PROGRAM = "benchmarks/train_plain.py"


def measure(bench: Bench) -> list[Figure]:
    torch.set_num_threads(1)
    return [*_beginning(bench), *_watched(bench), *_checkpoints(bench)]


# ---- a step that saves nothing


def _beginning(bench: Bench) -> list[Figure]:
    """Calls of a module that does nothing, and of a loss, with and without a hook on them."""
    print("    beginning a step", flush=True)
    found = [_calls(bench.times(CALL_BLOCKS)) for _ in range(bench.times(REPETITIONS))]
    module, loss, empty = ([each[name] for each in found] for name in ("module", "loss", "empty"))
    what = "PyTorch, nothing is saved: added to a step by"
    return [
        # The floor: a hook of PyTorch's own that does nothing.
        Figure(f"{what} a registered module", "", module, "µs", peers={FLOOR: empty}),
        Figure(f"{what} a registered loss", "", loss, "µs"),
    ]


def _calls(blocks: int) -> dict[str, float]:
    """What is added to a call, in microseconds, by the hook and by an empty one."""
    inputs = torch.ones(1)
    modules: list[Any] = [nn.Identity() for _ in range(3)]
    losses: list[Any] = [_Loss() for _ in range(2)]
    modules[1].register_forward_pre_hook(lambda *_: None)
    with tempfile.TemporaryDirectory() as place:
        hook = smd.Hook(place, save_config=NEVER)
        hook.register_module(modules[2])
        hook.register_loss(losses[1])
        took = _microseconds(
            [partial(module, inputs) for module in modules]
            + [partial(loss, inputs, inputs) for loss in losses],
            blocks,
        )
        hook.close()
    smd.del_hook()
    plain, bare, module, plain_loss, loss = took
    return {"module": module - plain, "empty": bare - plain, "loss": loss - plain_loss}


class _Loss(nn.modules.loss._Loss):
    """The shortest loss there is."""

    def forward(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return outputs


def _microseconds(calls: list[Callable[[], Any]], blocks: int) -> list[float]:
    """What each call takes, the median over blocks of them in turn."""
    found: list[list[float]] = [[] for _ in calls]
    for _ in range(blocks):
        for call, values in zip(calls, found, strict=True):
            began = time.perf_counter()
            for _ in range(CALLS):
                call()
            values.append(1e6 * (time.perf_counter() - began) / CALLS)
    return [statistics.median(values) for values in found]


# ---- a script that knows nothing of hooks


def _watched(bench: Bench) -> list[Figure]:
    """The same program alone, with its own hook, and under `smdebug run`, process by process."""
    print("    a script that is watched", flush=True)
    blocks = bench.times(BLOCKS)
    found: dict[str, list[float]] = {"alone": [], "hand": [], "watched": []}
    for _ in range(bench.times(RUNS)):
        for how, values in found.items():
            run = fresh(bench.folder / "job_cost")
            if how == "watched":
                launcher = ["run", "--every", "20", "--save", "losses", "--out", run, "--"]
                taken = run_json(own_python(), "src/smdebug", *launcher, ROOT / PROGRAM,
                                 "alone", blocks, run)  # fmt: skip
            else:
                taken = run_json(own_python(), PROGRAM, how, blocks, run)
            values.append(taken["ms"])
    what = "20 small layers, losses every 20 steps, the quickest of many blocks: a step"
    return [
        Figure(f"{what} of a script under `smdebug run`", "", found["watched"], "ms",
               peers={FLOOR: found["alone"]}),
        Figure(f"{what} with a hook made by hand", "", found["hand"], "ms",
               peers={FLOOR: found["alone"]}),
    ]  # fmt: skip


# ---- a checkpoint directory


def _checkpoints(bench: Bench) -> list[Figure]:
    """The share of a job's time that goes into looking for checkpoints among so many files."""
    figures = []
    for files in FILES:
        number = bench.times(files)
        print(f"    a checkpoint directory of {number:,} files", flush=True)
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place) / "checkpoints"
            _fill(folder, number)
            share = _share(Path(place), folder, bench.times(STEPS))
        what = f"looking for checkpoints among {files:,} files, steps of 10 ms"
        figures.append(Figure(what, "", [share], "% of the time"))
    return figures


def _fill(folder: Path, files: int) -> None:
    for number in range(files):
        inside = folder / f"{number // 1000:03d}"
        if number % 1000 == 0:
            inside.mkdir(parents=True)
        (inside / f"{number:06d}.bin").touch()


def _share(place: Path, folder: Path, steps: int) -> float:
    """What the training thread spends in the hook, of all of its time."""
    config = place / "checkpointconfig.json"
    config.write_text(json.dumps({"LocalPath": str(folder)}), encoding="utf-8")
    before = os.environ.get("CHECKPOINT_CONFIG_FILE_PATH")
    os.environ["CHECKPOINT_CONFIG_FILE_PATH"] = str(config)
    try:
        hook = smd.Hook(place / "run", save_config=NEVER)
    finally:
        del os.environ["CHECKPOINT_CONFIG_FILE_PATH"]
        if before is not None:
            os.environ["CHECKPOINT_CONFIG_FILE_PATH"] = before
    model, inputs = nn.Identity(), torch.ones(1)
    hook.register_module(model)
    began = time.perf_counter()
    for number in range(steps):
        model(inputs)
        # A step of a training that does nothing else.
        while time.perf_counter() < began + (number + 1) * STEP_SECONDS:
            pass
    elapsed, spent = time.perf_counter() - began, hook.stats().seconds
    hook.close()
    smd.del_hook()
    return 100 * spent / elapsed
