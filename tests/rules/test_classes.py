"""Labels and predictions of every form as classes, compared with loops that are written here."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from smdebug.rules.detectors.classes import Classes, ClassReader, pairs
from smdebug.trials.frame import Column, RawValue

RANDOM = np.random.default_rng(7)


def read(labels: Any, predictions: Any = None, argmax: bool = False) -> Classes:
    found = ClassReader(argmax).read("labels", np.asarray(labels), _array(predictions))
    assert found is not None
    return found


def _array(value: Any) -> Any:
    return None if value is None else np.asarray(value)


def problem(labels: Any, predictions: Any = None) -> str:
    reader = ClassReader()
    assert reader.read("labels", np.asarray(labels), _array(predictions)) is None
    return reader.problems["labels"]


def same(found: Classes, labels: Any, predictions: Any) -> None:
    assert found.predictions is not None
    assert found.labels.tolist() == list(labels)
    assert found.predictions.tolist() == list(predictions)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("label_dtype", [np.int64, np.uint8, np.float32])
def test_the_largest_score_is_the_prediction(dtype: Any, label_dtype: Any) -> None:
    scores = RANDOM.permutation(50).reshape(10, 5).astype(dtype)
    labels = RANDOM.integers(0, 5, 10)
    best = [max(range(5), key=lambda each: float(row[each])) for row in scores]
    same(read(labels.astype(label_dtype), scores), labels, best)


def test_classes_are_axis_1_where_that_fits_and_the_last_axis_otherwise() -> None:
    scores = RANDOM.standard_normal((2, 3, 4, 5))
    labels = RANDOM.integers(0, 3, (2, 4, 5))
    best = [
        max(range(3), key=lambda each: scores[n, each, i, j])
        for n in range(2) for i in range(4) for j in range(5)
    ]  # fmt: skip
    same(read(labels, scores), labels.ravel(), best)
    same(read(labels, np.moveaxis(scores, 1, -1)), labels.ravel(), best)


def test_labels_with_an_axis_of_length_1() -> None:
    scores = np.array([[1.0, 2.0], [3.0, 1.0]])
    same(read([[1], [1]], scores), [1, 1], [1, 0])
    masks = RANDOM.standard_normal((2, 3, 4, 4))
    labels = RANDOM.integers(0, 3, (2, 1, 4, 4))
    same(read(labels, masks), labels.ravel(), masks.argmax(axis=1).ravel())


def test_one_sample_without_an_axis_for_samples() -> None:
    same(read(2, [0.1, 0.2, 0.9]), [2], [2])
    same(read(1, 0.9), [1], [1])


def test_one_hot_labels_and_shares() -> None:
    scores = [[0.2, 0.3, 0.5], [0.9, 0.05, 0.05]]
    same(read([[0, 0, 1], [0, 1, 0]], scores), [2, 1], [2, 0])
    same(read([[0.1, 0.1, 0.8], [0.1, 0.8, 0.1]], scores), [2, 1], [2, 0])


def test_labels_of_the_same_shape_that_are_no_shares_are_a_regression_or_several_labels() -> None:
    assert "regression" in problem([[2.5, 1.0], [0.5, 1.0]], [[2.0, 1.0], [0.5, 1.1]])
    assert "several" in problem([[1, 1, 0], [0, 1, 1]], [[0.9, 0.2, 0.1], [0.6, 0.7, 0.8]])


def test_a_class_for_every_place_of_a_sequence() -> None:
    same(read([[1, 4], [0, 2]], [[1, 4], [2, 2]]), [1, 4, 0, 2], [1, 4, 2, 2])


def test_a_mask_of_two_classes() -> None:
    scores = RANDOM.standard_normal((2, 1, 3, 3))
    labels = RANDOM.integers(0, 2, (2, 1, 3, 3))
    same(read(labels, scores), labels.ravel(), (scores > 0).astype(int).ravel())
    same(read(labels[:, 0], scores), labels.ravel(), (scores > 0).astype(int).ravel())


def test_argmax_takes_scores_whatever_they_sum_to() -> None:
    same(read([[2.5, 1.0]], [[0.0, 1.0]], argmax=True), [0], [1])


@pytest.mark.parametrize("shape", [(4,), (4, 1)])
def test_probabilities_of_two_classes_have_the_limit_one_half(shape: tuple[int, ...]) -> None:
    scores = np.array([0.2, 0.5, 0.51, 1.0]).reshape(shape)
    same(read([0, 0, 1, 1], scores), [0, 0, 1, 1], [0, 0, 1, 1])
    same(read(np.reshape([0, 0, 1, 1], (4, 1)), scores), [0, 0, 1, 1], [0, 0, 1, 1])


def test_logits_of_two_classes_have_the_limit_zero() -> None:
    same(read([0, 0, 1, 1], [-3.0, 0.0, 0.1, 2.5]), [0, 0, 1, 1], [0, 0, 1, 1])
    same(read([-1.0, 1.0], [-3.0, 0.1]), [0, 1], [0, 1])


def test_logits_that_lie_between_0_and_1_are_known_after_one_that_does_not() -> None:
    reader = ClassReader()
    first = reader.read("labels", np.array([1]), np.array([0.3]))
    reader.read("labels", np.array([1]), np.array([1.3]))
    later = reader.read("labels", np.array([1]), np.array([0.3]))
    other = reader.read("other", np.array([1]), np.array([0.3]))
    assert [each.predictions.tolist() for each in (first, later, other)] == [[0], [1], [0]]  # type: ignore[union-attr]


def test_predictions_that_are_classes() -> None:
    same(read([0, 3, 2], [0.0, 3.0, 1.0]), [0, 3, 2], [0, 3, 1])
    same(read([0, 3, 2], np.array([0, 3, 1])), [0, 3, 2], [0, 3, 1])
    same(read([-1, 1], [-1.0, 1.0]), [0, 1], [0, 1])


def test_labels_that_are_to_be_ignored_are_left_out() -> None:
    scores = [[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]
    same(read([0, -100, 1], scores), [0, 1], [0, 1])
    same(read([0, 255, 1], scores), [0, 1], [0, 1])
    assert read([0, -100, 1]).labels.tolist() == [0, 1]


def test_labels_alone() -> None:
    found = read([[0, 1], [2, 2]])
    assert found.labels.tolist() == [0, 1, 2, 2]
    assert found.predictions is None


@pytest.mark.parametrize(
    ("labels", "predictions", "said"),
    [
        ([0.37, 1.0], None, "0.37"),
        ([0.37, 1.0], [0.4, 1.1], "0.37"),
        ([30, 41, 2], [29.5, 44.1, 2.2], "regression"),
        ([0, 1], [[0.1, 0.2, 0.3]], "shape (2,)"),
        (["cat", "dog"], None, "expected numbers"),
        ([0, 1], ["cat", "dog"], "expected numbers"),
        ([np.nan, 1.0], None, "nan"),
        ([np.inf, 1.0], None, "inf"),
    ],
)
def test_what_is_no_class_is_told(labels: Any, predictions: Any, said: str) -> None:
    assert said in problem(labels, predictions)


def test_labels_that_were_no_classes_once_are_not_looked_at_again() -> None:
    reader = ClassReader()
    assert reader.read("labels", np.array([0.5]), None) is None
    assert reader.read("labels", np.array([1.0]), None) is None
    assert reader.read("other", np.array([1.0]), None) is not None
    reader.start_over()
    assert reader.read("labels", np.array([1.0]), None) is not None


def value(step: int, tensor: str, worker: str = "w0") -> RawValue:
    return RawValue(step, Column(tensor, worker), np.zeros(1))


def test_labels_are_paired_with_predictions_of_their_step_and_worker_in_order() -> None:
    labels = [
        value(1, "l_0"),
        value(1, "l_1"),
        value(1, "l_0", "w1"),
        value(3, "l_0"),
        value(4, "l_0"),
    ]
    predictions = [
        value(0, "p_0"), value(1, "p_0", "w1"), value(1, "p_0"), value(1, "p_1"), value(2, "p_0"),
        value(4, "p_0"), value(4, "p_1"), value(9, "p_0"),
    ]  # fmt: skip
    found = [
        (label.step, label.column, None if said is None else said.column)
        for label, said in pairs(iter(labels), iter(predictions))
    ]
    assert found == [
        (1, ("l_0", "w0"), ("p_0", "w0")),
        (1, ("l_1", "w0"), ("p_1", "w0")),
        (1, ("l_0", "w1"), ("p_0", "w1")),
        (3, ("l_0", "w0"), None),
        (4, ("l_0", "w0"), ("p_0", "w0")),
    ]
