"""Gradients that jump far above what they were."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from smdebug.config.collection import CollectionKeys
from smdebug.config.rule_requirements import TensorRequirement
from smdebug.rules.detectors.spikes import SpikeLimits, beginnings
from smdebug.rules.rule import Rule
from smdebug.trials.frame import Column

if TYPE_CHECKING:
    from collections.abc import Iterator

    from smdebug.storage.findings import Finding
    from smdebug.trials.frame import Frame
    from smdebug.trials.index_rows import Floats, Ints
    from smdebug.trials.trial import Trial

# Noise that a norm is always granted: 20 % of it.
_FLOOR = 0.2


class GradientSpike(Rule):
    """Fires when the norm of all gradients of a worker is far above what it was.

    The norm is the root of the sum of the squared l2 norms of its gradients; one that was not saved
    at a step counts with the norm it had last. It is compared with the norms at the last `window`
    saved steps: with their median and `factor` times their robust deviation, on a linear and on a
    logarithmic scale, as `SpikeLimits` has it. The deviation is at least 20 % of the median, so a
    spike is at least a growth by a factor of 5 with the defaults; where norms vary by a factor
    from step to step, as those of recurrent networks do, it is far more.

    The finding names the tensor whose square grew most since the saved step before. Nothing is said
    before `min_history` saved steps. Norms that are zero or not finite are left out: mixed
    precision overflows on purpose, and `NonFinite` looks at that.

    Args:
        base_trial: the trial to look at.
        window: how many saved steps a norm is compared with.
        factor: how many deviations above their median it must be.
        min_history: how many saved steps must have come before.
        action_str: what to do when it fires; see `Rule`.

    Example:
        >>> run_rules("/tmp/run", ["GradientSpike:factor=12"])  # doctest: +SKIP
    """

    reads = ("l2",)

    def __init__(
        self,
        base_trial: Trial | None,
        window: Any = 100,
        factor: Any = 8.0,
        min_history: Any = 20,
        action_str: Any = "",
    ) -> None:
        super().__init__(base_trial, action_str)
        self.gradients = self.choose([CollectionKeys.GRADIENTS])
        limits = self._limits = SpikeLimits.checked(window, factor, min_history, _FLOOR)
        self.window, self.factor = limits.window, limits.factor
        self.min_history = limits.min_history
        # What each gradient was when it was saved last, by worker.
        self._last: dict[str, dict[str, float]] = {}

    def needs(self) -> tuple[TensorRequirement, ...]:
        """The l2 norm of every gradient."""
        return (TensorRequirement(CollectionKeys.GRADIENTS, reductions=("l2",)),)

    def start_over(self) -> None:
        """Forgets what the gradients were."""
        super().start_over()
        self._limits.clear()
        self._last.clear()

    def check(self, frame: Frame) -> Iterator[Finding]:
        """Compares the norm of all gradients with what it was."""
        table = self.read(frame, "l2", self.gradients)
        for worker in sorted({column.worker for column in table.columns}):
            yield from self._judge_worker(frame, table, worker)

    def _judge_worker(self, frame: Frame, table: Frame, worker: str) -> Iterator[Finding]:
        rows = np.flatnonzero(
            table.present[:, [column.worker == worker for column in table.columns]].any(axis=1)
        )
        names, norms = self._norms(table, worker, rows)
        steps = table.steps[rows]
        total = _total(norms[1:])
        usable = np.where(total > 0, total, np.nan)
        limits = self._limits.add(worker, usable)
        holds = np.isfinite(usable) & (usable > limits)
        for place in beginnings(self, worker, steps, holds):
            value, limit = float(total[place]), float(limits[place])
            tensor = names[_grown_most(norms[place] / value, norms[place + 1] / value)]
            yield self.finding(
                frame,
                int(steps[place]),
                f"the norm of all gradients has jumped to {value:.4g}, where {limit:.4g} was the "
                f"most that the steps before allow; {tensor} grew most",
                Column(tensor, worker),
                value,
                limit,
            )

    def _norms(self, table: Frame, worker: str, rows: Ints) -> tuple[list[str], Floats]:
        """The gradients of a worker and their norms: first what they were, then a row per step."""
        last = self._last.setdefault(worker, {})
        mine = [place for place, column in enumerate(table.columns) if column.worker == worker]
        fresh = {table.columns[place].tensor: place for place in mine}
        names = list(dict.fromkeys([*last, *fresh]))
        norms = np.empty((len(rows) + 1, len(names)))
        norms[0] = [last.get(name, 0.0) for name in names]
        for column, name in enumerate(names):
            if name not in fresh:
                norms[1:, column] = norms[0, column]
                continue
            present = np.concatenate([[True], table.present[rows, fresh[name]]])
            values = np.concatenate([norms[:1, column], table.values[rows, fresh[name]]])
            # For each row the newest one at which it was saved.
            newest = np.maximum.accumulate(np.where(present, np.arange(len(values)), 0))
            norms[:, column] = values[newest]
        last.update(zip(names, norms[-1].tolist(), strict=True))
        return names, norms


def _total(norms: Floats) -> Floats:
    """The root of the sum of squares of each row; scaled, so that squares do not overflow."""
    scale = np.max(norms, axis=1, initial=0.0)
    usable = np.isfinite(scale) & (scale > 0)
    total = np.where(np.isfinite(scale), 0.0, np.nan)
    part = norms[usable] / scale[usable, None]
    total[usable] = scale[usable] * np.sqrt(np.sum(part * part, axis=1))
    return total


@np.errstate(over="ignore")
def _grown_most(before: Floats, now: Floats) -> int:
    """Which square grew most; what was not finite before counts as nothing."""
    before = np.where(np.isfinite(before), before, 0.0)
    return int(np.argmax(now * now - before * before))
