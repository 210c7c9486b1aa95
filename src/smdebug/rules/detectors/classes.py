"""Labels and predictions as classes: which class a sample has, and which one the model gave it."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from smdebug.reductions import Array
    from smdebug.trials.frame import RawValue
    from smdebug.trials.index_rows import Bools, Ints

# A label of an average class is seen this often before classes are compared with each other: twenty
# each of a thousand equal classes differ by a factor of five at most, by chance.
LABELS_PER_CLASS = 20
_ROUNDING = 1e-3


class Classes(NamedTuple):
    """The classes of the samples of one step; samples that have none are left out."""

    labels: Ints
    predictions: Ints | None


class ClassReader:
    """Makes classes of labels and predictions, whatever form a framework gives them.

    - Predictions with one axis more than the labels are scores by class: the largest one is the
      prediction. The axis is 1 where that fits (`(N, C)`, `(N, C, ...)`), else the last.
    - Labels and predictions of the same shape `(N, C)`: one-hot labels, or shares that sum to 1;
      the largest one is the class, of both.
    - Otherwise each prediction belongs to one label. Whole numbers are classes. Other numbers are
      scores of two classes: probabilities with a limit of 0.5 as long as all were within [0, 1],
      and logits with a limit of 0 from the first that is not. The labels must then be 0 and 1, or
      -1 and 1.
    - Labels and scores of the same shape `(N, C)` that are none of these are several labels for
      each sample, or a regression: no classes.
    - A label that is negative (such as the -100 that PyTorch ignores) or that no score belongs to
      is left out. -1 of -1 and 1 is class 0.

    Labels that are no classes are remembered with the reason, and not looked at again.

    Args:
        argmax: labels and predictions of the same shape are scores by class, whatever they sum to.

    Attributes:
        problems: why the labels are no classes, by the name of the tensor.

    Example:
        >>> logits = np.array([[0.1, 2.0], [0.3, -1.0]])
        >>> ClassReader().read("labels", np.array([1, 1]), logits).predictions
        array([1, 0])
    """

    def __init__(self, argmax: bool = False) -> None:
        self.argmax = argmax
        self.problems: dict[str, str] = {}
        # What one batch cannot tell: a few logits may all lie between 0 and 1.
        self._scores: set[str] = set()
        self._logits: set[str] = set()

    def read(self, tensor: str, labels: Array, predictions: Array | None = None) -> Classes | None:
        """The classes of a batch; None when the labels of this tensor are no classes.

        Args:
            tensor: the name of the labels.
            labels: their values.
            predictions: what the model said; None when it was not saved.
        """
        if tensor in self.problems:
            return None
        try:
            return self._read(tensor, labels, predictions)
        except _NoClasses as problem:
            self.problems[tensor] = f"{tensor} {problem}"
            return None

    def start_over(self) -> None:
        """Forgets everything that was seen."""
        self.problems.clear()
        self._scores.clear()
        self._logits.clear()

    # ---- inside

    def _read(self, tensor: str, labels: Array, predictions: Array | None) -> Classes:
        labels = _numbers(labels, "has labels")
        if predictions is None:
            found = _whole(labels).ravel()
            return Classes(found[found >= 0], None)
        labels, scores = _fitted(labels, _numbers(predictions, "has predictions"))
        axis = _class_axis(labels, scores)
        if axis is not None:
            return _of_scores(_whole(labels), scores, axis)
        if labels.shape != scores.shape:
            raise _NoClasses(f"has the shape {labels.shape}, its predictions {scores.shape}")
        if labels.ndim > 1 and labels.shape[1] > 1 and (self.argmax or _are_shares(labels)):
            return _of_scores(labels.argmax(axis=1), scores, 1)
        if labels.ndim == 2 and labels.shape[1] > 1 and not _is_whole(scores).all():
            raise _NoClasses("has several labels for each sample, or the numbers of a regression")
        return self._one_by_one(tensor, labels.ravel(), scores.ravel())

    def _one_by_one(self, tensor: str, labels: Array, scores: Array) -> Classes:
        found = _whole(labels)
        if len(found) and found.min() >= -1 and found.max() <= 1 and not (found == 0).any():
            found = np.maximum(found, 0)
        if tensor not in self._scores and _is_whole(scores).all():
            keep = found >= 0
            return Classes(found[keep], np.maximum(scores[keep], 0).astype(np.int64))
        self._scores.add(tensor)
        keep = (found >= 0) & np.isfinite(scores)
        found, scores = found[keep], scores[keep]
        if len(found) and found.max() > 1:
            raise _NoClasses(
                f"holds {found.max()}, and its predictions are single numbers such as "
                f"{scores[0]:.3g}: neither classes nor scores by class, as in a regression"
            )
        if ((scores < 0) | (scores > 1)).any():
            self._logits.add(tensor)
        limit = 0.0 if tensor in self._logits else 0.5
        return Classes(found, (scores > limit).astype(np.int64))


class _NoClasses(Exception):
    pass


def pairs(
    labels: Iterator[RawValue], predictions: Iterator[RawValue]
) -> Iterator[tuple[RawValue, RawValue | None]]:
    """Labels with the predictions of the same step and worker, in the order they were saved.

    Args:
        labels: by step.
        predictions: by step.
    """
    waiting: list[RawValue] = []
    upcoming = next(predictions, None)
    for step, group in _by_step(labels):
        while upcoming is not None and upcoming.step <= step:
            waiting.append(upcoming)
            upcoming = next(predictions, None)
        of_step = [value for value in waiting if value.step == step]
        waiting.clear()
        for worker in sorted({value.column.worker for value in group}):
            mine = [value for value in group if value.column.worker == worker]
            said = [value for value in of_step if value.column.worker == worker]
            yield from (
                (label, prediction)
                for label, prediction in zip_longest(mine, said)
                if label is not None
            )


def _by_step(values: Iterator[RawValue]) -> Iterator[tuple[int, list[RawValue]]]:
    group: list[RawValue] = []
    for value in values:
        if group and value.step != group[0].step:
            yield group[0].step, group
            group = []
        group.append(value)
    if group:
        yield group[0].step, group


def _numbers(array: Array, what: str) -> Array:
    if array.dtype.kind in "USOc":
        raise _NoClasses(f"{what} of the type {array.dtype}: expected numbers")
    # Also what numpy has no arithmetic for, such as bfloat16.
    return np.atleast_1d(array if array.dtype.kind in "biu" else array.astype(np.float64))


def _fitted(labels: Array, scores: Array) -> tuple[Array, Array]:
    """Takes away an axis of length 1 that only one of them has."""
    if labels.shape == (1,) and scores.ndim == 1 and len(scores) > 1:
        # The scores of one sample, without an axis for samples.
        return labels, scores[None]
    if labels.ndim == scores.ndim:
        for axis in {1, labels.ndim - 1} - {0}:
            if axis < labels.ndim and labels.shape[axis] == 1 != scores.shape[axis]:
                return labels.squeeze(axis), scores
    if labels.ndim > 1 and labels.shape[-1] == 1 and labels.shape[:-1] == scores.shape:
        return labels[..., 0], scores
    if scores.ndim == labels.ndim + 1:
        for axis in (1, scores.ndim - 1):
            if scores.shape[axis] == 1 and scores.squeeze(axis).shape == labels.shape:
                return labels, scores.squeeze(axis)
    return labels, scores


def _class_axis(labels: Array, scores: Array) -> int | None:
    if scores.ndim != labels.ndim + 1:
        return None
    for axis in (1, scores.ndim - 1):
        if scores.shape[:axis] + scores.shape[axis + 1 :] == labels.shape:
            return axis
    return None


def _of_scores(labels: Array, scores: Array, axis: int) -> Classes:
    said = scores.argmax(axis=axis)
    keep = (labels >= 0) & (labels < scores.shape[axis])
    return Classes(labels[keep].astype(np.int64), said[keep].astype(np.int64))


def _are_shares(labels: Array) -> bool:
    sums = labels.sum(axis=1, dtype=np.float64)
    return bool((labels >= 0).all() and (np.abs(sums - 1) < _ROUNDING).all())


def _is_whole(numbers: Array) -> Bools:
    if numbers.dtype.kind in "biu":
        return np.ones(numbers.shape, bool)
    whole: Bools = np.isfinite(numbers) & (np.floor(numbers) == numbers) & (np.abs(numbers) < 2**53)
    return whole


def _whole(labels: Array) -> Ints:
    whole = _is_whole(labels)
    if not whole.all():
        raise _NoClasses(f"holds {labels[~whole].ravel()[0]:.6g}, which is no class")
    return labels.astype(np.int64)
