"""A training job: what a training script consists of, in one object that can be tampered with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from smdebug.mode_keys import ModeKeys
from smdebug.testing.faults.data import VALIDATION

if TYPE_CHECKING:
    from collections.abc import Callable

    from smdebug.pytorch import Hook
    from smdebug.testing.faults.data import Source


@dataclass
class Job:
    """A training; a fault changes one thing about it.

    Attributes:
        model: what is trained.
        source: gives the batch of a step; numbers from `VALIDATION` on are for validation.
        optimizer: what trains it.
        loss: the loss, computed of what the model returns and the targets.
        steps: how many batches are trained on; each is a step.
        schedule: the schedule of the learning rate, stepped after every update.
        clip: the largest norm of all gradients together; None leaves them as they are.
        accumulate: after how many batches the weights are updated.
        clears_gradients: whether gradients are set to zero after an update.
        validate_every: after how many batches the model is validated; None for never.
        validation_batches: how many batches it is validated on, always the same.
        before: what happens before the batch of a step is trained on.
        losses: what came out: the loss of every batch trained on.
    """

    model: nn.Module
    source: Source
    optimizer: torch.optim.Optimizer
    loss: nn.Module = field(default_factory=nn.CrossEntropyLoss)
    steps: int = 200
    schedule: Any = None
    clip: float | None = None
    accumulate: int = 1
    clears_gradients: bool = True
    validate_every: int | None = None
    validation_batches: int = 2
    before: dict[int, Callable[[], object]] = field(default_factory=dict)
    losses: list[float] = field(default_factory=list)

    def run(self, hook: Hook) -> None:
        """Trains under a hook."""
        hook.register_module(self.model)
        hook.register_loss(self.loss)
        for step in range(self.steps):
            if step in self.before:
                self.before[step]()
            if self.validate_every is not None:
                hook.set_mode(ModeKeys.TRAIN)
            self._train(step)
            if self.validate_every is not None and (step + 1) % self.validate_every == 0:
                hook.set_mode(ModeKeys.EVAL)
                self._validate()

    @property
    def has_learned(self) -> bool:
        """Whether the loss at the end is well below the loss of the beginning."""
        tenth = max(len(self.losses) // 10, 1)
        begin, end = self.losses[:tenth], self.losses[-tenth:]
        return sum(end) < 0.8 * sum(begin)

    def _train(self, step: int) -> None:
        inputs, targets = self.source(step)
        self.model.train()
        loss = self.loss(self.model(inputs), targets)
        (loss / self.accumulate).backward()
        self.losses.append(loss.item())
        if (step + 1) % self.accumulate == 0:
            if self.clip is not None:
                nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
            self.optimizer.step()
            if self.schedule is not None:
                self.schedule.step()
            if self.clears_gradients:
                self.optimizer.zero_grad()

    def _validate(self) -> None:
        self.model.eval()
        with torch.no_grad():
            for number in range(self.validation_batches):
                inputs, targets = self.source(VALIDATION + number)
                self.loss(self.model(inputs), targets)
