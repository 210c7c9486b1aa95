"""Workers that should hold the same weights and do not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from smdebug.config import validation
from smdebug.config.collection import CollectionKeys
from smdebug.rules.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterable

    from smdebug.config.rule_requirements import TensorRequirement
    from smdebug.storage.findings import Finding
    from smdebug.trials.frame import Column, Frame
    from smdebug.trials.index_rows import Bools, Floats
    from smdebug.trials.trial import Trial

_COMPARED = ("min", "max", "mean", "l2")


class ReplicaDivergence(Rule):
    """Fires when workers that should hold the same weights do not.

    With data parallelism every worker has a replica of the model, and all of them get the same
    updates. A tensor is compared between the workers that saved it at the same step, by those of
    its min, max, mean and l2 that they saved, or that follow from the tensors they saved. Each
    differs when |a - b| > atol + rtol * scale: b is what the middle one of the workers has, of two
    workers the first; the scale is |b| for l2 and the largest magnitude of b's min, max and mean
    for these three, since a mean near 0 is no measure of itself. Two NaN are equal.

    Weights that are split over the workers (FSDP, tensor parallelism) differ by nature: leave the
    rule out there, or choose tensors that are not split.

    Args:
        base_trial: the trial to look at.
        collection_names: collections to look at: a list or a string with commas. Weights and
            biases, when neither this nor `tensor_regex` is given.
        tensor_regex: regexes of tensors to look at: a list or a string with commas.
        rtol: how much replicas may differ, relative to their size.
        atol: how much they may differ, whatever their size.
        action_str: what to do when it fires; see `Rule`.

    Example:
        >>> run_rules("/tmp/run", ["ReplicaDivergence"])  # doctest: +SKIP
    """

    reads = _COMPARED

    def __init__(
        self,
        base_trial: Trial | None,
        collection_names: Any = None,
        tensor_regex: Any = None,
        rtol: Any = 1e-6,
        atol: Any = 0.0,
        action_str: Any = "",
    ) -> None:
        super().__init__(base_trial, action_str)
        self.rtol = validation.number("rtol", rtol, minimum=0)
        self.atol = validation.number("atol", atol, minimum=0)
        named = validation.comma_list("collection_names", collection_names)
        if not named and not validation.comma_list("tensor_regex", tensor_regex):
            named = [CollectionKeys.WEIGHTS, CollectionKeys.BIASES]
        self.tensors = self.choose(named, tensor_regex)
        self._saved = False

    def needs(self) -> tuple[TensorRequirement, ...]:
        """Four numbers of the chosen tensors, of every worker."""
        return self.tensors.needs("replica_divergence", _COMPARED)

    def missing(self) -> str:
        """What kept the workers from being compared."""
        if self.tensors.seen or not self._saved:
            return super().missing()
        return (
            f"no two workers saved the same of the {self.tensors.described} at the same step. "
            f"{self._remedy()}"
        )

    def _remedy(self) -> str:
        return f'Hook(include_workers="all", rules=["{self.rule_name}"]) saves what it needs'

    def check(self, frame: Frame) -> Iterable[Finding]:
        """Compares every tensor between the workers."""
        table, seen = frame.where_saved(self.tensors), self.tensors.seen
        laid = [self.read_cells(table, name, self.tensors) for name in _COMPARED]
        self._saved = self._saved or self.tensors.seen
        values = np.stack([each for each, _ in laid], axis=-1)
        known = np.stack([each for _, each in laid], axis=-1)
        apart, beyond = np.full(table.present.shape, np.nan), np.zeros(table.present.shape, bool)
        for places in _replicas(table):
            apart[:, places], beyond[:, places] = self._differences(
                values[:, places], known[:, places]
            )
        compared = table.with_values(apart, ~np.isnan(apart))
        self.tensors.seen = seen or bool(compared.present.any())
        return self.findings_where(frame, compared, beyond, self._sentence, self.rtol)

    def _sentence(self, column: Column, value: float) -> str:
        return (
            f"{column.tensor} of {column.worker} is not what other workers have: a number of it "
            f"differs by {value:.3g} of its size, above {self.rtol:.3g}; the replicas train "
            "different models"
        )

    def _differences(self, values: Floats, known: Bools) -> tuple[Floats, Bools]:
        """How far each worker is from the middle one in terms of size, and where that is too far.

        Args:
            values: by step, worker and reduction.
            known: which of them are there.
        """
        middle = _middle(values, known)
        common = known & (known.sum(axis=1, keepdims=True) > 1)
        with np.errstate(invalid="ignore", divide="ignore"):
            scale = np.abs(middle)
            # The first three are measured by the largest of them.
            scale[..., :3] = np.fmax.reduce(scale[..., :3], axis=-1, keepdims=True)
            gap = np.abs(values - middle)
            gap = np.where((values == middle) | (np.isnan(values) & np.isnan(middle)), 0.0, gap)
            # NaN here and a number there: as far apart as can be.
            gap = np.where(np.isnan(gap), np.inf, gap)
            share = np.where(gap == 0, 0.0, gap / scale)
            share = np.where(np.isnan(share), np.inf, share)
            beyond = common & (np.isinf(gap) | (gap > self.atol + self.rtol * scale))
        worst = np.where(common, share, -np.inf).max(axis=-1)
        return np.where(common.any(axis=-1), worst, np.nan), beyond.any(axis=-1)


def _replicas(table: Frame) -> list[list[int]]:
    """The columns of each tensor that several workers have."""
    found: dict[str, list[int]] = {}
    for place, column in enumerate(table.columns):
        found.setdefault(column.tensor, []).append(place)
    return [places for places in found.values() if len(places) > 1]


def _middle(values: Floats, known: Bools) -> Floats:
    """For each step and reduction the middle one of the workers' numbers; of two the first.

    Like the rest, but with one worker; NaN where no worker has it.
    """
    order = np.argsort(np.where(known, values, np.inf), axis=1, kind="stable")
    count = known.sum(axis=1, keepdims=True)
    middle = np.take_along_axis(order, np.maximum(count - 1, 0) // 2, axis=1)
    first = known.argmax(axis=1)[:, None]
    chosen = np.where(count == 2, first, middle)
    found: Floats = np.take_along_axis(np.where(known, values, np.nan), chosen, axis=1)
    return found
