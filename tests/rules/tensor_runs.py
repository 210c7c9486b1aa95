"""Runs of named arrays for the tests of rules about tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from smdebug.config.collection import Collection
from smdebug.config.collection_manager import CollectionManager
from smdebug.exceptions import RuleEvaluationConditionMet, StepUnavailable
from smdebug.mode_keys import ModeKeys
from smdebug.reductions import compute_reductions
from smdebug.rules.registry import make_rule
from smdebug.rules.rule import Rule
from smdebug.rules.rule_frames import rule_frames
from smdebug.rules.runner import run_rules
from smdebug.storage.batch import Entry, StepBatch
from smdebug.storage.stores.base import open_store
from smdebug.storage.writer import RunWriter
from smdebug.testing.runs import make_run
from smdebug.trials.create import create_trial

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from smdebug.rules.report import Outcome
    from smdebug.rules.rule import Rule
    from smdebug.storage.findings import Finding

TRAIN, EVAL, GLOBAL = ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.GLOBAL

# The tensors of a step by name; of a run by step.
Tensors = dict[str, Any]
Run = dict[int, Tensors]


def collections(frozen: Sequence[str] = (), **names: list[str]) -> CollectionManager:
    """The collections of PyTorch, those frozen on purpose, and names of tensors in others."""
    listed = [
        Collection("weights", include_regex="^(?!gradient).*weight"),
        Collection("biases", include_regex="^(?!gradient).*bias"),
        Collection("gradients", include_regex="^gradient"),
        Collection("losses", include_regex="[Ll]oss_(?!input).*output"),
        *(Collection(name, tensor_names=tensors) for name, tensors in names.items()),
    ]
    if frozen:
        listed.append(Collection("frozen_parameters", tensor_names=list(frozen)))
    return CollectionManager(listed)


def entry(name: str, value: Any, saves: Sequence[str] | None) -> Entry:
    """A tensor as it is saved: itself, or only its reductions."""
    array = np.asarray(value)
    if saves is None:
        return Entry(name, array)
    reductions = {key: float(each) for key, each in compute_reductions(array, saves).items()}
    return Entry(name, None, reductions, array.shape, array.dtype.name)


def batch(
    step: int, tensors: Tensors, saves: Sequence[str] | None = None, mode: ModeKeys = TRAIN
) -> StepBatch:
    return StepBatch(step, mode, step, [entry(name, each, saves) for name, each in tensors.items()])


def write(
    path: Path,
    run: Run | Mapping[str, Run],
    saves: Sequence[str] | None = None,
    modes: Mapping[int, ModeKeys] | None = None,
    manager: CollectionManager | None = None,
    format: str = "v2",
    end: bool = True,
) -> str:
    """Writes a run, of one worker or of several by name; returns where."""
    data = {
        (worker, step): batch(step, tensors, saves, (modes or {}).get(step, TRAIN))
        for worker, steps in _by_worker(run).items()
        for step, tensors in steps.items()
    }
    make_run(
        path,
        sorted({step for _, step in data}),
        sorted({worker for worker, _ in data}),
        format,
        data,
        collections=manager or collections(),
        end=end,
    )
    return str(path)


def write_numbers(path: Path, name: str, *steps: dict[str, float], shape: Any = (2, 3)) -> str:
    """Writes a run of one tensor of which, as in old runs, little is known: numbers and a shape."""
    batches = {
        ("worker_0", step): StepBatch(step, TRAIN, step, [Entry(name, None, numbers, shape)])
        for step, numbers in enumerate(steps)
    }
    make_run(path, range(len(steps)), data=batches, collections=collections())
    return str(path)


def _by_worker(run: Any) -> dict[str, Run]:
    named = all(isinstance(key, str) for key in run)
    return dict(run) if named else {"worker_0": run}


def outcome(path: str, rule: Any) -> Outcome:
    """What becomes of one rule over a whole run."""
    return run_rules(path, [rule], follow=False, record=False).outcomes[0]


def findings(path: str, rule: Any) -> list[Finding]:
    """Everything a rule finds in a whole run, also what a runner leaves out as a repetition."""
    made = make_rule(rule, create_trial(path))
    return [*look(made), *made.finish()]


def look(rule: Rule) -> list[Finding]:
    """What a rule finds in the steps that have come since it last looked."""
    blocks = rule_frames(rule.base_trial, rule.last_step + 1, rule.reads)
    return [finding for frame in blocks for finding in rule.evaluate(frame)]


def found(path: str, rule: Any) -> list[tuple[int, str | None]]:
    """Step and tensor of everything a rule finds; nothing may have kept it from running."""
    assert outcome(path, rule).status in ("found", "passed")
    return [(each.step, each.tensor) for each in findings(path, rule)]


class Growing:
    """A run that grows step by step.

    Args:
        path: where.
        saves: the reductions that are saved instead of the tensors.
        manager: the collections.
    """

    def __init__(
        self,
        path: Path,
        saves: Sequence[str] | None = None,
        manager: CollectionManager | None = None,
        worker: str = "worker_0",
    ) -> None:
        self.path, self._saves = str(path), saves
        self._writer = RunWriter(open_store(self.path), worker)
        self._writer.write_collections((manager or collections()).to_json())
        self._writer.flush()

    def add(self, step: int, tensors: Tensors, mode: ModeKeys = TRAIN) -> None:
        self._writer.submit(batch(step, tensors, self._saves, mode))
        self._writer.finish_step()
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


def found_in_looks(
    path: Path,
    run: Run,
    rule: Any,
    saves: Sequence[str] | None = None,
    modes: Mapping[int, ModeKeys] | None = None,
    manager: CollectionManager | None = None,
) -> list[Finding]:
    """What a rule finds when it looks after every single step of a growing run."""
    job = Growing(path, saves, manager)
    made = make_rule(rule, create_trial(job.path, wait_seconds=0))
    found = []
    for step, tensors in run.items():
        job.add(step, tensors, (modes or {}).get(step, TRAIN))
        made.base_trial.refresh_data()
        found += look(made)
        assert made.last_step == step
    job.close()
    return [*found, *made.finish()]


def invoked(rule: Rule) -> list[int]:
    """The steps at which a rule fires when it is invoked at each of them."""
    fired = []
    for step in rule.base_trial.steps():
        try:
            rule.invoke(step)
        except RuleEvaluationConditionMet:
            fired.append(step)
        except StepUnavailable:
            continue
    return fired


def normal(*key: int, shape: tuple[int, ...] = (4, 5), scale: float = 1.0) -> Any:
    """Reproducible numbers."""
    return (np.random.default_rng(key).standard_normal(shape) * scale).astype(np.float32)
