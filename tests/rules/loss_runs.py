"""Runs for the tests of rules about losses, gradients and activations."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from smdebug.config.collection import Collection
from smdebug.config.collection_manager import CollectionManager
from smdebug.exceptions import RuleEvaluationConditionMet
from smdebug.mode_keys import ModeKeys
from smdebug.reductions import compute_reductions
from smdebug.rules.registry import make_rule
from smdebug.rules.rule_frames import frame_of_steps
from smdebug.rules.runner import RuleRunner, run_rules
from smdebug.storage.batch import Entry, StepBatch
from smdebug.storage.stores.base import open_store
from smdebug.storage.writer import RunWriter
from smdebug.testing.runs import make_run
from smdebug.trials.create import create_trial

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from smdebug.rules.report import Outcome
    from smdebug.storage.findings import Finding

TRAIN, EVAL, GLOBAL, PREDICT = ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.GLOBAL, ModeKeys.PREDICT

# The tensors of a step, by name; a number is a loss.
Tensors = dict[str, Any]


def manager(**names: list[str]) -> CollectionManager:
    """The collections of PyTorch, with `loss` as a loss, and others by names of tensors."""
    return CollectionManager(
        [
            Collection("losses", include_regex="loss"),
            Collection("gradients", include_regex="^gradient"),
            Collection("weights", include_regex="^(?!gradient).*weight"),
            *(Collection(name, tensor_names=tensors) for name, tensors in names.items()),
        ]
    )


def batches(
    series: Iterable[tuple[ModeKeys, Tensors]],
    steps: Sequence[int] | None = None,
    saves: Sequence[str] | None = None,
    times: Sequence[float] | None = None,
) -> list[StepBatch]:
    """Steps of a run; a step that was not saved had the mode of the next one that was.

    Args:
        series: the mode and the tensors of each.
        steps: their numbers; 0, 1, 2, ... when None.
        saves: the reductions that are saved instead of arrays; None saves the arrays.
        times: when they were.
    """
    found, counts, before = [], Counter[ModeKeys](), -1
    for place, (mode, tensors) in enumerate(series):
        step = place if steps is None else steps[place]
        counts[mode] += step - before
        before = step
        mode_step = step if mode is GLOBAL else counts[mode] - 1
        entries = [_entry(name, value, saves) for name, value in tensors.items()]
        time = 1000.0 + place if times is None else times[place]
        found.append(StepBatch(step, mode, mode_step, entries, time=time))
    return found


def _entry(name: str, value: Any, saves: Sequence[str] | None) -> Entry:
    array = np.asarray(value)
    if saves is None or array.ndim == 0:
        return Entry(name, array)
    reductions = {key: float(each) for key, each in compute_reductions(array, saves).items()}
    return Entry(name, None, reductions, array.shape, array.dtype.name)


def write(
    path: Path,
    run: Sequence[StepBatch] | Mapping[str, Sequence[StepBatch]],
    collections: CollectionManager | None = None,
    end: bool = True,
    format: str = "v2",
) -> str:
    """Writes a run, of one worker or of several by name; returns where."""
    workers = {"worker_0": run} if not hasattr(run, "items") else dict(run.items())
    data = {(worker, each.step): each for worker, part in workers.items() for each in part}
    steps = sorted({step for _, step in data})
    make_run(path, steps, sorted(workers), format, data, collections=collections or manager(),
             end=end)  # fmt: skip
    return str(path)


def outcome(path: str, rule: Any) -> Outcome:
    """What becomes of a rule over a whole run, in a runner."""
    return run_rules(path, [rule], follow=False, record=False).outcomes[0]


def found(path: str, rule: Any, cut: int | None = None) -> list[Finding]:
    """Everything that a rule finds, when it is given so many steps at a time."""
    trial = create_trial(path)
    made = make_rule(rule, trial)
    steps = trial.steps()
    size = cut or max(len(steps), 1)
    findings: list[Finding] = []
    for start in range(0, len(steps), size):
        part = steps[start : start + size]
        findings += made.evaluate(frame_of_steps(trial, part[0], part[-1] + 1, made.reads))
    return [*findings, *made.finish()]


def same_in_parts(path: str, rule: Any) -> list[Finding]:
    """What a rule finds, which must be the same however the run is cut into parts."""
    whole = found(path, rule)
    for cut in (1, 7):
        assert found(path, rule, cut) == whole
    return whole


def in_looks(path: Path, run: Sequence[StepBatch], rule: Any, every: int = 1) -> list[Finding]:
    """What a runner finds that looks at a growing run after every few steps."""
    writer = RunWriter(open_store(str(path)), "worker_0", "v2")
    writer.write_collections(manager().to_json())
    writer.flush()
    runner = RuleRunner(create_trial(str(path), wait_seconds=0), [rule], record=False)
    for count, batch in enumerate(run, 1):
        writer.submit(batch)
        writer.finish_step()
        if count % every == 0:
            writer.flush()
            runner.trial.refresh_data()
            runner.look()
    writer.close()
    runner.trial.refresh_data()
    return runner.finish().findings


def fired(path: str, rule: Any) -> list[int]:
    """The saved steps at which a rule fires when it is invoked at each of them."""
    made = make_rule(rule, create_trial(path))
    steps = []
    for step in made.base_trial.steps():
        try:
            made.invoke(step)
        except RuleEvaluationConditionMet:
            steps.append(step)
    return steps


def train(values: Iterable[Any], name: str = "loss") -> list[tuple[ModeKeys, Tensors]]:
    """Losses of training."""
    return [(TRAIN, {name: float(value)}) for value in values]


def evaluation(values: Iterable[Any], name: str = "loss") -> list[tuple[ModeKeys, Tensors]]:
    """Losses of an evaluation."""
    return [(EVAL, {name: float(value)}) for value in values]


def noisy(level: Any, noise: float, seed: int, heavy: bool = False) -> Any:
    """A series around a level; the noise is a share of it, that of heavy tails a factor."""
    random = np.random.default_rng([seed, int(1000 * noise)])
    level = np.asarray(level, np.float64)
    if heavy:
        return level * np.exp(noise * random.standard_normal(level.shape))
    return np.maximum(level * (1 + noise * random.standard_normal(level.shape)), 0.0)


def decay(count: int, start: float = 2.3, floor: float = 0.2, length: float = 60.0) -> Any:
    """A healthy loss without noise."""
    return floor + (start - floor) * np.exp(-np.arange(count) / length)
