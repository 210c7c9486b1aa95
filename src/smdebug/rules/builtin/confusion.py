"""Classes that a trained model takes for each other."""

from __future__ import annotations

from collections import Counter, deque
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from smdebug.config import validation
from smdebug.config.collection import CollectionKeys
from smdebug.config.rule_requirements import TensorRequirement
from smdebug.mode_keys import ModeKeys
from smdebug.rules.detectors.classes import LABELS_PER_CLASS, ClassReader, pairs
from smdebug.rules.rule import Rule
from smdebug.storage.findings import Finding

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from smdebug.rules.detectors.classes import Classes
    from smdebug.trials.frame import Frame, RawValue
    from smdebug.trials.trial import Trial

_EVALUATION = (ModeKeys.EVAL, ModeKeys.PREDICT)
# With ten predictions a single wrong one is just within the default limits.
_COLUMN_SAMPLES = 10


class Confusion(Rule):
    """Fires when a trained model confuses classes.

    With `c[j][i]` the number of samples of class `j` that were predicted as class `i`, and `s[i]`
    the sum of column `i` (everything that was predicted as `i`), it fires for a class `i` when

        c[i][i] / s[i] < min_diag, or c[j][i] / s[i] > max_off_diag for another class j.

    A class that was predicted fewer than 10 times is not judged. There is one finding, about the
    class with the smallest share of its own; it says how many classes are like it.

    A model that is being trained confuses classes until it has learned them, so one matrix is
    judged, that of the model in its last state, when the run has ended:

    - where there are steps of the modes EVAL or PREDICT, the last evaluation: the last of those
      steps that have no step of another mode between them;
    - otherwise the last steps that together have 20 samples for each class on average.

    Samples of all workers go into one matrix. How labels and predictions become classes is told at
    `smdebug.rules.detectors.classes.ClassReader`.

    Args:
        base_trial: the trial to look at.
        category_no: how many classes there are; samples of classes from this number on are left
            out. None takes all that occur.
        labels: the name of the labels, or a regex.
        predictions: the name of the predictions, or a regex.
        labels_collection: a collection of labels, in addition.
        predictions_collection: a collection of predictions, in addition.
        min_diag: the smallest share of a column that its own class must have.
        max_off_diag: the largest share of a column that another class may have.
        action_str: what to do when it fires; see `Rule`.

    Example:
        >>> run_rules("/tmp/run", ["Confusion:min_diag=0.8,max_off_diag=0.2"])  # doctest: +SKIP
    """

    def __init__(
        self,
        base_trial: Trial | None,
        category_no: Any = None,
        labels: Any = "labels",
        predictions: Any = "predictions",
        labels_collection: Any = CollectionKeys.LABELS,
        predictions_collection: Any = CollectionKeys.PREDICTIONS,
        min_diag: Any = 0.9,
        max_off_diag: Any = 0.1,
        action_str: Any = "",
    ) -> None:
        super().__init__(base_trial, action_str)
        self.category_no = (
            None if category_no is None else validation.whole_number("category_no", category_no, 2)
        )
        self.labels = self.choose(labels_collection, labels, key="labels")
        self.predictions = self.choose(predictions_collection, predictions, key="predictions")
        self.min_diag = validation.number("min_diag", min_diag, 0, 1)
        self.max_off_diag = validation.number("max_off_diag", max_off_diag, 0, 1)
        self._reader = ClassReader()
        # By the name of the labels.
        self._matrices: dict[str, _Matrix] = {}
        self._evaluated = self._begins = self._told = self._judged_any = False
        self._mode_before: ModeKeys | None = None
        self._last = (-1, ModeKeys.GLOBAL, -1)

    def needs(self) -> tuple[TensorRequirement, ...]:
        """Labels and predictions themselves; they are what a loss is made of."""
        return (
            TensorRequirement(
                _name_of(self.labels.collections, CollectionKeys.LABELS), raw=True,
                include_regex=tuple(self.labels.regexes), layers=("loss",), tensor="input", index=1,
            ),
            TensorRequirement(
                _name_of(self.predictions.collections, CollectionKeys.PREDICTIONS), raw=True,
                include_regex=tuple(self.predictions.regexes), layers=("loss",), tensor="input",
                index=0,
            ),
        )  # fmt: skip

    def start_over(self) -> None:
        """Forgets all samples."""
        super().start_over()
        self._reader.start_over()
        self._matrices.clear()
        self._evaluated = self._begins = self._told = self._judged_any = False
        self._mode_before = None

    def check(self, frame: Frame) -> Iterable[Finding]:
        """Keeps the samples of the last evaluation; judges them when the run has ended."""
        found = pairs(self.read_raw(frame, self.labels), self.read_raw(frame, self.predictions))
        groups = groupby(found, lambda pair: pair[0].step)
        upcoming = next(groups, None)
        for step in frame.steps.tolist():
            mode, mode_step = frame.mode_at(step)
            evaluates = mode in _EVALUATION
            if mode is not self._mode_before:
                self._begins = evaluates
            self._mode_before = mode
            if upcoming is not None and upcoming[0] == step:
                if evaluates or not self._evaluated:
                    self._add(step, mode, mode_step, list(upcoming[1]))
                upcoming = next(groups, None)
        if frame.trial.loaded_all_steps and self._is_last(frame):
            yield from self._verdict()

    def finish(self) -> Iterable[Finding]:
        """Judges the samples of the last evaluation."""
        return self._verdict()

    def missing(self) -> str:
        """Why nothing could be judged."""
        missing = super().missing()
        if missing or self._judged_any:
            return missing
        if self._reader.problems:
            return f"the labels are no classes: {'; '.join(self._reader.problems.values())}"
        if not self._matrices:
            return "no step has both labels and predictions"
        return (
            f"no class was predicted {_COLUMN_SAMPLES} times in the last evaluation: save labels "
            "and predictions of more samples"
        )

    # ---- inside

    def _is_last(self, frame: Frame) -> bool:
        return bool(len(frame)) and int(frame.steps[-1]) == frame.trial.steps()[-1]

    def _add(
        self,
        step: int,
        mode: ModeKeys,
        mode_step: int,
        found: list[tuple[RawValue, RawValue | None]],
    ) -> None:
        if self._begins:
            self._matrices.clear()
            self._evaluated, self._begins = True, False
        for label, prediction in found:
            if prediction is None:
                continue
            tensor = label.column.tensor
            classes = self._reader.read(tensor, label.array, prediction.array)
            if classes is not None:
                matrix = self._matrices.setdefault(tensor, _Matrix(self._evaluated))
                matrix.add(_counted(classes, self.category_no))
                self._last = (step, mode, mode_step)

    def _verdict(self) -> Iterator[Finding]:
        if self._told:
            return
        self._told = True
        for tensor, matrix in self._matrices.items():
            if tensor not in self._reader.problems:
                yield from self._look_at(tensor, matrix.counts)

    def _look_at(self, tensor: str, matrix: Counter[tuple[int, int]]) -> Iterator[Finding]:
        columns: Counter[int] = Counter()
        for (_, said), count in matrix.items():
            columns[said] += count
        judged = [said for said in sorted(columns) if columns[said] >= _COLUMN_SAMPLES]
        self._judged_any = self._judged_any or bool(judged)
        own = {said: matrix[said, said] / columns[said] for said in judged}
        mixed = {
            (label, said): count / columns[said]
            for (label, said), count in sorted(matrix.items())
            if said in own and label != said and count / columns[said] > self.max_off_diag
        }
        bad = {said for said in judged if own[said] < self.min_diag}
        bad |= {said for _, said in mixed}
        if bad:
            yield self._worst(tensor, columns, own, mixed, bad)

    def _worst(
        self,
        tensor: str,
        columns: Counter[int],
        own: dict[int, float],
        mixed: dict[tuple[int, int], float],
        bad: set[int],
    ) -> Finding:
        """What to say of all columns at once: the worst of them, and how many there are."""
        worst = min(bad, key=lambda said: (own[said], said))
        of_worst = {label: share for (label, said), share in mixed.items() if said == worst}
        value, threshold, limit = own[worst], self.min_diag, f"below {self.min_diag:.0%}"
        if own[worst] >= self.min_diag:
            value, threshold, limit = max(of_worst.values()), self.max_off_diag, "within the limit"
        message = (
            f"of the {columns[worst]} samples that are predicted as class {worst} in {tensor}, "
            f"{own[worst]:.0%} are of that class, {limit}"
        )
        if of_worst:
            label = max(of_worst, key=lambda each: of_worst[each])
            message += f", and {of_worst[label]:.0%} are of class {label}, above "
            message += f"{self.max_off_diag:.0%}: the model takes {label} for {worst}"
        if len(bad) > 1:
            message += f"; {len(bad) - 1} other classes are like it"
        return self._about(tensor, message, value, threshold)

    def _about(self, tensor: str, message: str, value: float, threshold: float) -> Finding:
        step, mode, mode_step = self._last
        self.note(step)
        return Finding(
            self.rule_name, step, message, tensor, value, threshold, mode, mode_step
        )  # fmt: skip


class _Matrix:
    """A confusion matrix, of everything that is added or of the newest only.

    Args:
        whole: keep everything; otherwise the last batches with 20 samples for each class, on
            average.

    Attributes:
        counts: how often each pair of label and prediction occurs.
    """

    def __init__(self, whole: bool) -> None:
        self.counts: Counter[tuple[int, int]] = Counter()
        self._batches: deque[Counter[tuple[int, int]]] | None = None if whole else deque()
        self._labels: Counter[int] = Counter()
        self._samples = 0

    def add(self, batch: Counter[tuple[int, int]]) -> None:
        """Adds a batch, and drops the oldest as long as the others are enough."""
        self.counts.update(batch)
        if self._batches is None:
            return
        self._batches.append(batch)
        self._count(batch, 1)
        while len(self._batches) > 1:
            oldest = self._batches[0]
            self._count(oldest, -1)
            if self._samples < LABELS_PER_CLASS * len(self._labels):
                self._count(oldest, 1)
                break
            self.counts = self.counts - self._batches.popleft()

    def _count(self, batch: Counter[tuple[int, int]], sign: int) -> None:
        for (label, _), count in batch.items():
            self._labels[label] += sign * count
            if not self._labels[label]:
                del self._labels[label]
            self._samples += sign * count


def _name_of(collections: list[str], otherwise: str) -> str:
    return collections[0] if collections else otherwise


def _counted(classes: Classes, most: int | None) -> Counter[tuple[int, int]]:
    """How often each pair of label and prediction occurs."""
    assert classes.predictions is not None
    both = np.stack([classes.labels, classes.predictions], axis=1)
    if most is not None:
        both = both[(both < most).all(axis=1)]
    found, counts = np.unique(both, axis=0, return_counts=True)
    keys = [(label, said) for label, said in found.tolist()]
    return Counter(dict(zip(keys, counts.tolist(), strict=True)))
