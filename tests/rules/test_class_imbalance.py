"""ClassImbalance: counts of labels, and classes that a model gives up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.rules.tensor_runs import (
    EVAL,
    GLOBAL,
    Run,
    collections,
    findings,
    found_in_looks,
    invoked,
    outcome,
    write,
)

from smdebug.exceptions import InsufficientInformationForRuleInvocation, SMDebugValueError
from smdebug.mode_keys import ModeKeys
from smdebug.rules import invoke_rule
from smdebug.rules.builtin.class_imbalance import ClassImbalance
from smdebug.trials.create import create_trial

if TYPE_CHECKING:
    from pathlib import Path


def counted(*counts: int) -> Any:
    """Labels of which each class has so many, shuffled."""
    labels = np.repeat(np.arange(len(counts)), counts)
    return np.random.default_rng(len(labels)).permutation(labels)


def scores(predictions: Any, classes: int) -> Any:
    """Logits whose largest is the prediction."""
    noise = np.random.default_rng(3).random((len(predictions), classes))
    return (noise + 2 * np.eye(classes)[predictions]).astype(np.float32)


def batches(steps: int, *counts: int, **other: Any) -> Run:
    return {step: {"labels": counted(*counts), **other} for step in range(steps)}


# ---- imbalance


def test_the_ratio_must_be_above_the_threshold(tmp_path: Path) -> None:
    # 50 and 5 at each step: exactly 10.
    path = write(tmp_path / "at", batches(12, 50, 5))
    assert findings(path, "ClassImbalance") == []
    assert outcome(path, "ClassImbalance").status == "passed"
    path = write(tmp_path / "above", batches(12, 51, 5))
    (finding,) = findings(path, "ClassImbalance")
    # 56 labels at each step: 500 are there at the 9th.
    assert (finding.step, finding.tensor, finding.worker) == (8, "labels", None)
    assert (finding.value, finding.threshold) == (51 / 5, 10)
    assert finding.message == (
        "the classes of labels are imbalanced: class 0 has 459 labels and class 1 45, a ratio of "
        "10.2, above 10; the model may learn to ignore the rare class"
    )


def test_words_and_pixels_are_never_equally_frequent(tmp_path: Path) -> None:
    words = counted(510, 50).reshape(10, 56)
    assert findings(write(tmp_path / "words", {0: {"labels": words}}), "ClassImbalance") == []
    column = {0: {"labels": words.reshape(-1, 1)}}
    assert len(findings(write(tmp_path / "classes", column), "ClassImbalance")) == 1


@pytest.mark.parametrize("learning", [True, False])
def test_a_class_that_comes_last_is_not_given_up(tmp_path: Path, learning: bool) -> None:
    # Class 1 is always wrong; the others get better from window to window, or do not.
    run: Run = {}
    for step in range(80):
        labels = counted(20, 15, 20)
        wrong = max(0.35 - 0.1 * (step // 10), 0.0) if learning else 0.05
        missed = (labels == 1) | (np.random.default_rng(step).random(len(labels)) < wrong)
        run[step] = {
            "labels": labels,
            "predictions": scores(np.where(missed, (labels + 1) % 3, labels), 3),
        }
    found = findings(write(tmp_path / "run", run), "ClassImbalance")
    assert [each.step >= 40 for each in found] == ([True] if learning else [False])


def test_samples_are_counted_to_the_label(tmp_path: Path) -> None:
    path = write(tmp_path, batches(3, 95, 5))
    assert [each.step for each in findings(path, "ClassImbalance:samples=200")] == [1]
    assert [each.step for each in findings(path, "ClassImbalance:samples=201")] == [2]
    assert outcome(path, "ClassImbalance:samples=301").status == "could not run"


def test_parameters_given_as_strings(tmp_path: Path) -> None:
    rule = ClassImbalance(None, "3", "0.5", "20", "True", ".*y", ".*yhat")
    assert (rule.threshold_imbalance, rule.threshold_misprediction, rule.samples) == (3, 0.5, 20)
    assert rule.argmax is True
    labels, predictions = rule.needs()
    assert (labels.collection, labels.raw, labels.include_regex) == ("labels", True, (".*y",))
    assert (labels.layers, labels.tensor, labels.index) == (("loss",), "input", 1)
    assert (predictions.collection, predictions.include_regex, predictions.index) == (
        "predictions", (".*yhat",), 0,
    )  # fmt: skip
    path = write(tmp_path, {0: {"my_y": counted(35, 10)}})
    assert len(findings(path, ("ClassImbalance", {
        "threshold_imbalance": "3", "samples": "40", "labels_regex": ".*y"}))) == 1  # fmt: skip


@pytest.mark.parametrize(
    "given",
    [
        {"threshold_imbalance": 0.5},
        {"threshold_imbalance": "ten"},
        {"threshold_misprediction": 1.5},
        {"samples": 0},
        {"argmax": "maybe"},
        {"labels_regex": "("},
    ],
)
def test_bad_parameters(given: dict[str, Any]) -> None:
    with pytest.raises(SMDebugValueError, match=next(iter(given))):
        ClassImbalance(None, **given)


@pytest.mark.parametrize("classes", [2, 10, 100, 1000])
def test_equal_classes_are_never_reported_however_many_there_are(
    tmp_path: Path, classes: int
) -> None:
    random = np.random.default_rng(classes)
    steps = 25 * classes // 256 + 20
    run = {step: {"labels": random.integers(0, classes, 256)} for step in range(steps)}
    path = write(tmp_path, run)
    assert outcome(path, "ClassImbalance").status == "passed"


def test_labels_that_are_all_the_same_say_nothing(tmp_path: Path) -> None:
    # As those of the discriminator of a GAN, which come real and fake in turn.
    run = batches(20, 100, predictions=np.full(100, -1.5))
    assert findings(write(tmp_path, run), "ClassImbalance") == []


def test_labels_of_all_workers_are_counted_together(tmp_path: Path) -> None:
    run = {
        f"worker_{number}": {
            step: {"labels": np.full(100 if number else 20, number)} for step in range(5)
        }
        for number in range(2)
    }
    path = write(tmp_path, run)
    (finding,) = findings(path, "ClassImbalance:threshold_imbalance=4")
    assert (finding.step, finding.value, finding.worker) == (4, 5.0, None)


def test_only_training_counts(tmp_path: Path) -> None:
    run = {**batches(6, 100, 100), **{6 + n: {"labels": counted(200, 0)} for n in range(20)}}
    modes = {6 + n: EVAL for n in range(20)}
    path = write(tmp_path / "both", run, modes=modes)
    assert findings(path, "ClassImbalance:threshold_imbalance=2") == []
    path = write(tmp_path / "eval", batches(10, 100, 1), modes=dict.fromkeys(range(10), EVAL))
    found = outcome(path, "ClassImbalance")
    assert (found.status, "TRAIN" in found.message) == ("could not run", True)
    path = write(tmp_path / "none", batches(10, 100, 1), modes=dict.fromkeys(range(10), GLOBAL))
    (finding,) = findings(path, "ClassImbalance")
    assert (finding.step, finding.mode) == (4, ModeKeys.GLOBAL)


def test_labels_by_collection(tmp_path: Path) -> None:
    manager = collections(labels=["CrossEntropyLoss_input_1"])
    run = {step: {"CrossEntropyLoss_input_1": counted(90, 5)} for step in range(6)}
    (finding,) = findings(write(tmp_path, run, manager=manager), "ClassImbalance")
    assert finding.tensor == "CrossEntropyLoss_input_1"


# ---- misprediction


def predicting(steps: int, answer: Any, *counts: int, begin: int = 0) -> Run:
    """Batches in which `answer` makes a prediction of a step and the labels."""
    run: Run = {}
    for step in range(begin, begin + steps):
        labels = counted(*counts)
        run[step] = {"labels": labels, "predictions": scores(answer(step, labels), len(counts))}
    return run


def misses(label: int, share: float) -> Any:
    """Predicts everything right but a share of one class."""

    def answer(step: int, labels: Any) -> Any:
        said = labels.copy()
        mine = np.flatnonzero(labels == label)
        said[mine[: round(share * len(mine))]] = (label + 1) % (labels.max() + 1)
        return said

    return answer


def test_a_class_is_given_up_after_three_windows(tmp_path: Path) -> None:
    # Windows: 10 steps of 100 labels.
    path = write(tmp_path, predicting(40, misses(3, 0.8), *[10] * 10))
    (finding,) = findings(path, "ClassImbalance")
    assert (finding.step, finding.tensor) == (29, "predictions")
    assert (finding.value, finding.threshold) == (0.8, 0.7)
    assert finding.message == (
        "class 3 is given up by predictions: 80% of its labels are mispredicted, above 70%, for 3 "
        "windows of at least 500 labels; all classes together: 8%"
    )


def test_the_share_must_be_above_the_threshold(tmp_path: Path) -> None:
    path = write(tmp_path, predicting(40, misses(3, 0.7), *[10] * 10))
    assert findings(path, "ClassImbalance") == []
    assert len(findings(path, "ClassImbalance:threshold_misprediction=0.69")) == 1


def test_a_class_that_recovers_in_between_is_not_given_up(tmp_path: Path) -> None:
    run: Run = {}
    for window in range(6):
        share = 0.0 if window % 3 == 2 else 1.0
        run |= predicting(10, misses(0, share), *[10] * 10, begin=10 * window)
    assert findings(write(tmp_path, run), "ClassImbalance") == []


def test_a_rare_class_is_gathered_until_it_can_be_judged(tmp_path: Path) -> None:
    rule = {"rule": "ClassImbalance", "threshold_imbalance": 1000}
    run = predicting(70, misses(1, 1.0), 99, 1)
    # A window of 10 steps has 10 labels of the class, just enough.
    (finding,) = findings(write(tmp_path / "each", run), rule)
    assert (finding.step, finding.value) == (29, 1.0)
    for step in range(0, 70, 2):
        common = run[step]["labels"] == 0
        run[step] = {name: values[common] for name, values in run[step].items()}
    # With the class at every other step only, it takes two windows each time.
    (finding,) = findings(write(tmp_path / "other", run), rule)
    assert (finding.step, finding.value) == (59, 1.0)


def test_a_model_that_says_one_class_only_has_given_up_the_others(tmp_path: Path) -> None:
    path = write(tmp_path, predicting(40, lambda _, labels: labels * 0 + 4, *[10] * 10))
    (finding,) = findings(path, "ClassImbalance")
    assert (finding.step, finding.value) == (29, 1.0)
    assert "and so are 8 other classes" in finding.message


def test_a_model_that_has_only_begun_to_learn_is_not_reported(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    run = predicting(100, lambda _, labels: random.integers(0, 10, len(labels)), *[10] * 10)
    found = outcome(write(tmp_path, run), "ClassImbalance")
    assert found.status == "passed"


def test_a_healthy_training_of_ten_classes_is_not_reported(tmp_path: Path) -> None:
    # A softmax regression that learns from nothing to 80 %, some classes later than others.
    random = np.random.default_rng(11)
    centres = random.standard_normal((10, 20)) * np.linspace(0.8, 1.2, 10)[:, None]
    weight = np.zeros((20, 10))
    run: Run = {}
    right = []
    for step in range(300):
        labels = random.integers(0, 10, 64)
        inputs = centres[labels] + 0.7 * random.standard_normal((64, 20))
        logits = inputs @ weight
        shares = np.exp(logits - logits.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        weight -= 0.003 * inputs.T @ (shares - np.eye(10)[labels]) / 64
        right.append((logits.argmax(axis=1) == labels).mean())
        run[step] = {"labels": labels, "predictions": logits.astype(np.float32)}
    assert right[0] < 0.3
    assert np.mean(right[-20:]) > 0.8
    assert outcome(write(tmp_path, run), "ClassImbalance").status == "passed"


def test_a_class_that_is_learned_slowly_is_not_given_up(tmp_path: Path) -> None:
    def answer(step: int, labels: Any) -> Any:
        return misses(2, 1 - step / 100)(step, labels)

    run = predicting(100, answer, *[10] * 10)
    assert findings(write(tmp_path, run), "ClassImbalance") == []


def test_binary_predictions_of_a_booster(tmp_path: Path) -> None:
    random = np.random.default_rng(2)
    labels = counted(450, 150).astype(np.float32)
    run = {step: {"labels": labels, "predictions": random.random(600) * 0.4} for step in range(40)}
    (finding,) = findings(
        write(tmp_path, run, modes=dict.fromkeys(range(40), GLOBAL)), "ClassImbalance"
    )
    assert (finding.value, finding.tensor, finding.step) == (1.0, "predictions", 29)


# ---- how it is run


def both() -> Run:
    return predicting(50, misses(1, 1.0), 95, 5)


def test_in_one_piece_and_step_by_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "whole", both())
    whole = findings(path, "ClassImbalance")
    assert [each.tensor for each in whole] == ["labels", "predictions"]
    assert found_in_looks(tmp_path / "live", both(), "ClassImbalance") == whole
    monkeypatch.setattr("smdebug.rules.rule_frames.MAX_ROWS", 1)
    assert findings(path, "ClassImbalance") == whole


def test_invoked_at_each_step(tmp_path: Path) -> None:
    trial = create_trial(write(tmp_path, both()))
    assert invoked(ClassImbalance(trial)) == list(range(4, 50))
    rule = ClassImbalance(trial, threshold_imbalance=1000)
    assert invoked(rule) == [29, 39, 49]


def test_started_over(tmp_path: Path) -> None:
    rule = ClassImbalance(create_trial(write(tmp_path, both())))
    first = invoked(rule)
    rule.start_over()
    assert invoked(rule) == first


@pytest.mark.parametrize(
    ("tensors", "said"),
    [
        (
            {"weight": np.ones(3)},
            "no tensors of the collection labels, or tensors that match .*labels",
        ),
        ({"labels": np.array([0.25, 0.5])}, "labels holds 0.25, which is no class"),
        ({"labels": np.array([3, 70]), "predictions": np.array([2.5, 71.1])}, "regression"),
        ({"labels": counted(40, 60)}, "300 labels of 2 classes were saved, and 500 are needed"),
    ],
)
def test_could_not_run(tmp_path: Path, tensors: dict[str, Any], said: str) -> None:
    path = write(tmp_path, dict.fromkeys(range(3), tensors))
    found = outcome(path, "ClassImbalance")
    assert found.status == "could not run"
    assert said in found.message
    with pytest.raises(InsufficientInformationForRuleInvocation, match="ClassImbalance"):
        invoke_rule(ClassImbalance(create_trial(path)))


def test_labels_without_their_values_are_not_enough(tmp_path: Path) -> None:
    path = write(tmp_path, batches(10, 90, 10), saves=["mean"])
    found = outcome(path, "ClassImbalance")
    assert found.status == "could not run"
    assert "saved without the tensors themselves" in found.message
