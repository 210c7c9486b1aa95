"""Classes with far fewer labels than others, and classes that the model gives up."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from smdebug.config import validation
from smdebug.config.collection import CollectionKeys
from smdebug.config.rule_requirements import TensorRequirement
from smdebug.mode_keys import ModeKeys
from smdebug.rules.detectors.classes import LABELS_PER_CLASS, ClassReader, pairs
from smdebug.rules.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from smdebug.rules.detectors.classes import Classes
    from smdebug.storage.findings import Finding
    from smdebug.trials.frame import Frame
    from smdebug.trials.trial import Trial

# Validation data is often sorted by class: its first labels say nothing about all of them.
_JUDGED_MODES = (ModeKeys.TRAIN, ModeKeys.GLOBAL)
# A window has at least so many steps, and a class is given up when it was so for so many windows.
_WINDOW_STEPS = 10
_WINDOWS = 3
# By so much a class that is being learned gets better in that time.
_BETTER = 0.05
# A model whose share over all classes falls below this part of itself in that time is learning.
_LEARNING = 0.95
# What a class needs in a window before its share of wrong predictions means something.
_CLASS_LABELS = 10
# A model that says one class so often has collapsed.
_COLLAPSED = 0.9


class ClassImbalance(Rule):
    """Fires when classes are not equally represented, or when the model gives a class up.

    Labels of the modes TRAIN and GLOBAL are counted, those of all workers together. EVAL and
    PREDICT are left out: such data often comes sorted by class. How labels and predictions become
    classes is told at `smdebug.rules.detectors.classes.ClassReader`.

    *Imbalance*: since the first step, the class with the most labels has more than
    `threshold_imbalance` times as many as the class with the fewest. It is judged at every step
    from `samples` labels on, and not before there are 20 labels for each class on average, because
    the counts of many classes differ by chance. A class that never came is not known, and does not
    count: labels that are all the same say nothing. Whole numbers with more than one axis are words
    or pixels, which are never equally frequent: they are not judged for imbalance.

    *Misprediction*: labels are gathered in windows of consecutive steps; a window ends when it has
    `samples` labels, 20 for each class on average, and 10 steps. A class is given up when in 3
    windows in a row more than `threshold_misprediction` of its labels were mispredicted, the last
    share is no better than the first by 5 % of the labels, neither is that over all classes
    together by a twentieth of itself, and in each of the windows

    - the share over all classes together was at most half of that: the others were learned, or
    - the model said one class in 90 % of all cases, and that has at most half of the labels.

    A class with fewer than 10 labels in a window is judged with the next. A model that has only
    begun to learn mispredicts most classes alike, and is not reported.

    Args:
        base_trial: the trial to look at.
        threshold_imbalance: the largest ratio of label counts that is well.
        threshold_misprediction: the largest share of mispredicted labels of a class, 0 to 1.
        samples: how many labels make a judgement.
        argmax: labels and predictions of the same shape are scores by class, whatever they sum to.
            Scores beside labels that are classes are recognised without it.
        labels_regex: names of the labels, in addition to the collection `labels`.
        predictions_regex: names of the predictions, in addition to the collection `predictions`.
            Without predictions only the counts are judged.
        action_str: what to do when it fires; see `Rule`.

    Example:
        >>> run_rules("/tmp/run", ["ClassImbalance:threshold_imbalance=5"])  # doctest: +SKIP
    """

    def __init__(
        self,
        base_trial: Trial | None,
        threshold_imbalance: Any = 10,
        threshold_misprediction: Any = 0.7,
        samples: Any = 500,
        argmax: Any = False,
        labels_regex: Any = ".*labels",
        predictions_regex: Any = ".*predictions",
        action_str: Any = "",
    ) -> None:
        super().__init__(base_trial, action_str)
        self.threshold_imbalance = validation.number("threshold_imbalance", threshold_imbalance, 1)
        self.threshold_misprediction = validation.number(
            "threshold_misprediction", threshold_misprediction, 0, 1
        )
        self.samples = validation.whole_number("samples", samples, 1)
        self.argmax = validation.boolean("argmax", argmax)
        self.labels = self.choose([CollectionKeys.LABELS], labels_regex, key="labels_regex")
        self.predictions = self.choose(
            [CollectionKeys.PREDICTIONS],
            predictions_regex,
            required=False,
            key="predictions_regex",
        )
        self._reader = ClassReader(self.argmax)
        self._tallies: dict[str, _Tally] = {}
        self._judged_any = False

    def needs(self) -> tuple[TensorRequirement, ...]:
        """Labels and predictions themselves; they are what a loss is made of."""
        return (
            TensorRequirement(
                CollectionKeys.LABELS, raw=True, include_regex=tuple(self.labels.regexes),
                layers=("loss",), tensor="input", index=1,
            ),
            TensorRequirement(
                CollectionKeys.PREDICTIONS, raw=True, include_regex=tuple(self.predictions.regexes),
                layers=("loss",), tensor="input", index=0,
            ),
        )  # fmt: skip

    def start_over(self) -> None:
        """Forgets all labels."""
        super().start_over()
        self._reader.start_over()
        self._tallies.clear()
        self._judged_any = False

    def check(self, frame: Frame) -> Iterable[Finding]:
        """Counts the labels of each step, and judges what they come to."""
        found = pairs(self.read_raw(frame, self.labels), self.read_raw(frame, self.predictions))
        for step, group in groupby(found, lambda pair: pair[0].step):
            counted: dict[str, None] = {}
            for label, prediction in group:
                if frame.mode_at(step)[0] not in _JUDGED_MODES:
                    continue
                tensor = label.column.tensor
                said = None if prediction is None else prediction.array
                classes = self._reader.read(tensor, label.array, said)
                if classes is not None:
                    tally = self._tallies.setdefault(tensor, _Tally())
                    whole = label.array.dtype.kind in "iu"
                    tally.dense = tally.dense or (whole and label.array.squeeze().ndim > 1)
                    tally.add(classes)
                    tally.said_by = prediction.column.tensor if prediction else tally.said_by
                    counted[tensor] = None
            for tensor in counted:
                if tensor not in self._reader.problems:
                    yield from self._look_at(frame, step, tensor)

    def missing(self) -> str:
        """Why nothing could be judged."""
        missing = super().missing()
        if missing or self._judged_any:
            return missing
        if self._reader.problems:
            return f"the labels are no classes: {'; '.join(self._reader.problems.values())}"
        if not self._tallies:
            return (
                "the labels are of the modes EVAL and PREDICT, and only those of training are "
                "counted: save them in the mode TRAIN, or without modes"
            )
        most = max(self._tallies.values(), key=lambda tally: tally.total)
        needed = max(self.samples, LABELS_PER_CLASS * len(most.labels))
        return (
            f"{most.total} labels of {len(most.labels)} classes were saved, and {needed} are "
            "needed: save them more often, or lower samples"
        )

    # ---- inside

    def _look_at(self, frame: Frame, step: int, tensor: str) -> Iterator[Finding]:
        tally = self._tallies[tensor]
        if tally.total >= max(self.samples, LABELS_PER_CLASS * len(tally.labels)):
            self._judged_any = True
            if not tally.dense:
                yield from self._imbalance(frame, step, tensor, tally)
        tally.window.steps += 1
        if tally.window_is_full(self.samples):
            yield from self._mispredicted(frame, step, tensor, tally)

    def _imbalance(self, frame: Frame, step: int, tensor: str, tally: _Tally) -> Iterator[Finding]:
        ranked = tally.labels.most_common()
        (large, most), (small, fewest) = ranked[0], ranked[-1]
        ratio = most / fewest
        if self.started((tensor, "imbalance"), ratio > self.threshold_imbalance, step):
            message = (
                f"the classes of {tensor} are imbalanced: class {large} has {most} labels and "
                f"class {small} {fewest}, a ratio of {ratio:.3g}, above "
                f"{self.threshold_imbalance:.3g}; the model may learn to ignore the rare class"
            )
            yield self._about(frame, step, tensor, message, ratio, self.threshold_imbalance)

    def _mispredicted(
        self, frame: Frame, step: int, tensor: str, tally: _Tally
    ) -> Iterator[Finding]:
        shares, overall = tally.close_window(self.threshold_misprediction)
        begun = [
            label
            for label in shares
            if self.started((tensor, "class", label), tally.is_given_up(label), step)
        ]
        if begun:
            limit = self.threshold_misprediction
            worst = max(begun, key=lambda label: (shares[label], -label))
            others = f", and so are {len(begun) - 1} other classes" if len(begun) > 1 else ""
            message = (
                f"class {worst} is given up by {tally.said_by}: {shares[worst]:.0%} of its labels "
                f"are mispredicted, above {limit:.0%}, for {_WINDOWS} windows of at least "
                f"{self.samples} labels; all classes together: {overall:.0%}{others}"
            )
            yield self._about(frame, step, tally.said_by, message, shares[worst], limit)

    def _about(
        self,
        frame: Frame,
        step: int,
        tensor: str,
        message: str,
        value: float,
        threshold: float,
    ) -> Finding:
        # Of all workers together, so of none.
        found = self.finding(frame, step, message, value=value, threshold=threshold)
        return replace(found, tensor=tensor)


@dataclass
class _Window:
    """Consecutive steps, counted on their own."""

    steps: int = 0
    labels: int = 0
    wrong: int = 0
    said: Counter[int] = field(default_factory=Counter)
    of_class: Counter[int] = field(default_factory=Counter)


@dataclass
class _Tally:
    """What was counted of one tensor of labels.

    Attributes:
        labels: how many of each class, since the first step.
        total: their sum.
        seen: per class, the labels since the class was last judged.
        wrong: those of them that were mispredicted.
        streaks: the share of a class, and that over all classes, in the windows in a row in which
            it was too high.
        said_by: the name of the predictions.
        dense: the labels are words or pixels.
        window: the current window.
    """

    labels: Counter[int] = field(default_factory=Counter)
    total: int = 0
    seen: Counter[int] = field(default_factory=Counter)
    wrong: Counter[int] = field(default_factory=Counter)
    streaks: dict[int, list[tuple[float, float]]] = field(default_factory=dict)
    said_by: str = ""
    dense: bool = False
    window: _Window = field(default_factory=_Window)

    def add(self, classes: Classes) -> None:
        """Counts a batch."""
        self.labels.update(_counts(classes.labels))
        self.total += len(classes.labels)
        if classes.predictions is not None:
            missed = classes.labels != classes.predictions
            self.seen.update(_counts(classes.labels))
            self.wrong.update(_counts(classes.labels[missed]))
            self.window.labels += len(classes.labels)
            self.window.wrong += int(missed.sum())
            self.window.said.update(_counts(classes.predictions))
            self.window.of_class.update(_counts(classes.labels))

    def window_is_full(self, samples: int) -> bool:
        """Whether the window holds enough to be judged."""
        enough = max(samples, LABELS_PER_CLASS * len(self.labels))
        return self.window.labels >= enough and self.window.steps >= _WINDOW_STEPS

    def close_window(self, limit: float) -> tuple[dict[int, float], float]:
        """Judges the window and begins the next.

        Returns:
            For each class with enough labels the share that was mispredicted, and that of all.
        """
        window, self.window = self.window, _Window()
        overall = window.wrong / window.labels
        (said, times), *_ = window.said.most_common(1)
        rare = 2 * window.of_class[said] <= window.labels
        collapsed = rare and times >= _COLLAPSED * window.labels
        shares: dict[int, float] = {}
        for label in sorted(self.seen):
            if self.seen[label] < _CLASS_LABELS:
                continue
            share = shares[label] = self.wrong[label] / self.seen[label]
            given_up = len(self.labels) > 1 and share > limit
            holds = given_up and (collapsed or overall <= share / 2)
            before = self.streaks.get(label, [])[1 - _WINDOWS :]
            self.streaks[label] = [*before, (share, overall)] if holds else []
        for label in shares:
            del self.seen[label], self.wrong[label]
        return shares, overall

    def is_given_up(self, label: int) -> bool:
        """Whether a class has been mispredicted for long enough, and does not get better."""
        streak = self.streaks[label]
        if len(streak) < _WINDOWS:
            return False
        (share, overall), (last, overall_last) = streak[0], streak[-1]
        return last > share - _BETTER and overall_last > _LEARNING * overall


def _counts(classes: Any) -> dict[int, int]:
    values, counts = np.unique(classes, return_counts=True)
    return dict(zip(values.tolist(), counts.tolist(), strict=True))
