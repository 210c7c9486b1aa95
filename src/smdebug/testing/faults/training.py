"""Trainings and faults as values: what they are called, what is wrong, which rule must see it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from smdebug.pytorch import Hook, SaveConfig

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    from smdebug.testing.faults.job import Job


@dataclass(frozen=True)
class Training:
    """A training that takes seconds and is the same every time.

    Attributes:
        name: what it is called.
        sentence: what it is, in one sentence.
        make: makes the job.
        seed: of its weights and of dropout.
        every: how often its hook saves; None leaves that to the rules.
        explained: rules that find something here although nothing is wrong, and why they do.

    Example:
        >>> HEALTHY[0].train("/tmp/run", rules=["NonFinite"])  # doctest: +SKIP
    """

    name: str
    sentence: str
    make: Callable[[], Job]
    seed: int = 0
    every: int | None = None
    explained: Mapping[str, str] = field(default_factory=dict)

    def train(self, out_dir: str | os.PathLike[str], rules: Sequence[Any]) -> Job:
        """Trains under a hook that saves what rules need, and evaluates them.

        Args:
            out_dir: where the run goes.
            rules: what `Hook(rules=...)` takes.

        Returns:
            The job, with its losses.
        """
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            job = self.make()
            with self.hook(out_dir, rules) as hook:
                job.run(hook)
        return job

    def hook(self, out_dir: str | os.PathLike[str], rules: Sequence[Any], **options: Any) -> Hook:
        """The hook it is trained under."""
        schedule = None if self.every is None else SaveConfig(save_interval=self.every)
        return Hook(out_dir, save_config=schedule, rules=list(rules), on_error="raise", **options)


@dataclass(frozen=True)
class Fault:
    """A training with something wrong in it.

    Attributes:
        name: what the fault is called.
        sentence: what is wrong, in one sentence.
        training: the training it is planted in.
        rule: the rule that must find it, as `make_rule` takes it.
        step: the step from which on it is there.
        within: how many steps later it must have been found.
        tensor: a regex of the tensor that must be named; empty when it is not definite.
        settings: why the rule is not used at its default settings; empty when it is.
    """

    name: str
    sentence: str
    training: Training
    rule: Any
    step: int = 0
    within: int = 0
    tensor: str = ""
    settings: str = ""

    @property
    def rule_name(self) -> str:
        """The name of the rule that must find it."""
        return str(self.rule["rule"]) if isinstance(self.rule, dict) else str(self.rule)

    def train(self, out_dir: str | os.PathLike[str], rules: Sequence[Any] = ()) -> Job:
        """Trains, under the rule that is meant for the fault and any others."""
        return self.training.train(out_dir, [self.rule, *rules])
