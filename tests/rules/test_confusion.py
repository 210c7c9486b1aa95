"""Confusion: what a trained model takes for something else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.rules.tensor_runs import (
    EVAL,
    GLOBAL,
    TRAIN,
    Run,
    collections,
    findings,
    found_in_looks,
    invoked,
    outcome,
    write,
)

from smdebug.exceptions import (
    InsufficientInformationForRuleInvocation,
    RuleEvaluationConditionMet,
    SMDebugValueError,
)
from smdebug.mode_keys import ModeKeys
from smdebug.rules import invoke_rule
from smdebug.rules.builtin.confusion import Confusion
from smdebug.trials.create import create_trial

if TYPE_CHECKING:
    from pathlib import Path

PREDICT = ModeKeys.PREDICT


def sampled(matrix: Any) -> dict[str, Any]:
    """Labels and predictions of which each pair occurs as often as the matrix says."""
    counts = np.asarray(matrix)
    labels, said = np.indices(counts.shape)
    return {
        "labels": np.repeat(labels.ravel(), counts.ravel()),
        "predictions": np.repeat(said.ravel(), counts.ravel()),
    }


def fires(matrix: Any, min_diag: float = 0.9, max_off_diag: float = 0.1) -> bool:
    """The formula, in loops, for columns with ten samples or more."""
    counts = np.asarray(matrix, np.float64)
    for i in range(len(counts)):
        total = sum(counts[j, i] for j in range(len(counts)))
        if total < 10:
            continue
        for j in range(len(counts)):
            share = counts[j, i] / total
            if (share < min_diag) if i == j else (share > max_off_diag):
                return True
    return False


GOOD, BAD = np.eye(3, dtype=int) * 40, np.full((3, 3), 14)


def steps_of(*matrices: Any, begin: int = 0) -> Run:
    return {begin + number: sampled(matrix) for number, matrix in enumerate(matrices)}


@pytest.mark.parametrize(
    "matrix",
    [
        GOOD,
        BAD,
        [[9, 0], [1, 30]],  # exactly 0.9 and 0.1
        [[89, 0], [11, 30]],
        [[900, 0], [100, 3000]],
        [[9, 1], [0, 9]],
        [[40, 0], [0, 0]],  # class 1 never comes
        [[0, 40], [0, 40]],  # class 0 is never predicted
        [[40, 0, 2], [0, 40, 2], [0, 0, 40]],
        [[40, 5, 0], [0, 40, 0], [0, 0, 9]],
        [[0, 5, 0], [0, 4, 0], [0, 0, 50]],  # nine predictions of class 1 are too few
    ],
)
def test_the_formula(tmp_path: Path, matrix: Any) -> None:
    path = write(tmp_path, steps_of(matrix), modes={0: EVAL})
    assert bool(findings(path, "Confusion")) == fires(matrix)
    assert outcome(path, "Confusion").status == ("found" if fires(matrix) else "passed")


def test_random_matrices_and_limits(tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    told = set()
    for number in range(40):
        matrix = np.diag(random.integers(50, 100, 4)) + random.integers(0, 6, (4, 4))
        min_diag, max_off_diag = random.uniform(0.8, 1), random.uniform(0, 0.12)
        path = write(tmp_path / str(number), steps_of(matrix), modes={0: EVAL})
        rule = {"rule": "Confusion", "min_diag": str(min_diag), "max_off_diag": str(max_off_diag)}
        expected = fires(matrix, min_diag, max_off_diag)
        assert bool(findings(path, rule)) == expected
        told.add(expected)
    assert told == {True, False}


def test_what_is_said(tmp_path: Path) -> None:
    matrix = [[80, 0, 0], [15, 100, 0], [5, 0, 100]]
    (finding,) = findings(write(tmp_path, steps_of(matrix), modes={0: EVAL}), "Confusion")
    assert (finding.step, finding.mode, finding.mode_step) == (0, EVAL, 0)
    assert (finding.tensor, finding.value, finding.threshold) == ("labels", 0.8, 0.9)
    assert finding.message == (
        "of the 100 samples that are predicted as class 0 in labels, 80% are of that class, below "
        "90%, and 15% are of class 1, above 10%: the model takes 1 for 0"
    )
    (finding,) = findings(
        write(tmp_path / "off", steps_of([[95, 0], [5, 50]]), modes={0: EVAL}),
        "Confusion:max_off_diag=0.04",
    )
    assert (finding.value, finding.threshold) == (0.05, 0.04)
    (finding,) = findings(write(tmp_path / "all", steps_of(BAD), modes={0: EVAL}), "Confusion")
    assert finding.message.endswith("; 2 other classes are like it")


def test_positional_parameters_as_scripts_have_them() -> None:
    rule = Confusion(None, "10", "y", "yhat", "ys", "yhats", "0.8", "0.2", "")
    assert (rule.category_no, rule.min_diag, rule.max_off_diag) == (10, 0.8, 0.2)
    assert (rule.labels.regexes, rule.labels.collections) == (["y"], ["ys"])
    assert (rule.predictions.regexes, rule.predictions.collections) == (["yhat"], ["yhats"])
    labels, predictions = rule.needs()
    assert (labels.collection, labels.include_regex, labels.index) == ("ys", ("y",), 1)
    assert (predictions.collection, predictions.include_regex, predictions.index) == (
        "yhats", ("yhat",), 0,
    )  # fmt: skip
    assert labels.raw
    assert predictions.raw


@pytest.mark.parametrize(
    "given", [{"category_no": 1}, {"category_no": "x"}, {"min_diag": 1.1}, {"max_off_diag": -1}]
)
def test_bad_parameters(given: dict[str, Any]) -> None:
    with pytest.raises(SMDebugValueError, match=next(iter(given))):
        Confusion(None, **given)


def test_classes_beyond_category_no_are_left_out(tmp_path: Path) -> None:
    matrix = [[40, 0, 0], [0, 40, 0], [0, 30, 40]]
    path = write(tmp_path, steps_of(matrix), modes={0: EVAL})
    assert len(findings(path, "Confusion")) == 1
    assert findings(path, "Confusion:category_no=2") == []


def test_the_first_evaluations_of_a_training_are_not_judged(tmp_path: Path) -> None:
    run = steps_of(BAD, BAD, BAD, BAD, GOOD, GOOD)
    modes = {0: TRAIN, 1: EVAL, 2: TRAIN, 3: EVAL, 4: TRAIN, 5: EVAL}
    path = write(tmp_path / "good", run, modes=modes)
    assert outcome(path, "Confusion").status == "passed"
    path = write(tmp_path / "bad", steps_of(GOOD, GOOD, GOOD, BAD), modes={1: EVAL, 3: EVAL})
    assert [each.step for each in findings(path, "Confusion")] == [3]


def test_the_steps_of_one_evaluation_are_judged_together(tmp_path: Path) -> None:
    # Sorted by class: no step on its own says anything about a column.
    parts = [np.diag([30 if i == j else 0 for j in range(3)]) for i in range(3)]
    mistaken = np.array([[0, 0, 0], [0, 0, 0], [12, 0, 0]])
    modes = {1: EVAL, 2: EVAL, 3: EVAL, 4: TRAIN}
    path = write(tmp_path / "good", steps_of(BAD, *parts, BAD), modes=modes)
    assert findings(path, "Confusion") == []
    path = write(
        tmp_path / "bad", steps_of(GOOD, *parts[:2], parts[2] + mistaken, GOOD), modes=modes
    )
    (finding,) = findings(path, "Confusion")
    assert (finding.step, finding.value) == (3, 30 / 42)


def test_predicting_after_evaluating_is_an_evaluation_of_its_own(tmp_path: Path) -> None:
    path = write(tmp_path, steps_of(BAD, GOOD), modes={0: EVAL, 1: PREDICT})
    assert findings(path, "Confusion") == []


@pytest.mark.parametrize("mode", [TRAIN, GLOBAL])
def test_without_an_evaluation_the_last_steps_are_judged(tmp_path: Path, mode: ModeKeys) -> None:
    small = [np.eye(3, dtype=int) * 2] * 10
    modes = dict.fromkeys(range(20), mode)
    path = write(tmp_path / "good", steps_of(BAD, BAD, *small), modes=modes)
    assert findings(path, "Confusion") == []
    path = write(tmp_path / "bad", steps_of(GOOD, GOOD, *[np.full((3, 3), 1)] * 10), modes=modes)
    (finding,) = findings(path, "Confusion")
    # 20 samples for each of 3 classes: the last seven steps of nine.
    assert (finding.step, finding.mode, finding.value) == (11, mode, 1 / 3)
    assert "of the 21 samples" in finding.message


def test_samples_of_all_workers_go_into_one_matrix(tmp_path: Path) -> None:
    # Seven predictions of a class for each worker: too few for either alone.
    run = {f"worker_{number}": {0: sampled(np.full((2, 2), 7 - 3 * number))} for number in range(2)}
    (finding,) = findings(write(tmp_path, run, modes={0: EVAL}), "Confusion")
    assert "of the 22 samples" in finding.message
    assert finding.worker is None


def test_scores_by_class_in_a_collection(tmp_path: Path) -> None:
    truth = sampled([[40, 10], [0, 40]])
    run: Run = {
        0: {
            "CrossEntropyLoss_input_0": np.eye(2, dtype=np.float32)[truth["predictions"]] * 3 - 1,
            "CrossEntropyLoss_input_1": truth["labels"],
        }
    }
    manager = collections(
        labels=["CrossEntropyLoss_input_1"], predictions=["CrossEntropyLoss_input_0"]
    )
    (finding,) = findings(write(tmp_path, run, manager=manager), "Confusion")
    assert (finding.tensor, finding.value) == ("CrossEntropyLoss_input_1", 0.8)


def test_in_one_piece_and_step_by_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, modes = steps_of(GOOD, GOOD, BAD, BAD, BAD), {2: EVAL, 3: EVAL}
    path = write(tmp_path / "whole", run, modes=modes)
    whole = findings(path, "Confusion")
    assert [each.step for each in whole] == [3]
    assert found_in_looks(tmp_path / "live", run, "Confusion", modes=modes) == whole
    monkeypatch.setattr("smdebug.rules.rule_frames.MAX_ROWS", 1)
    assert findings(path, "Confusion") == whole


def test_invoked_at_each_step(tmp_path: Path) -> None:
    path = write(tmp_path, steps_of(BAD, GOOD, BAD), modes={0: EVAL, 2: EVAL})
    rule = Confusion(create_trial(path), 3, "labels", "predictions")
    assert invoked(rule) == [2]
    rule.start_over()
    with pytest.raises(RuleEvaluationConditionMet):
        invoke_rule(rule, raise_eval_cond=True)


@pytest.mark.parametrize(
    ("tensors", "said"),
    [
        ({"weight": np.ones(3)}, "no tensors of the collection labels"),
        ({"labels": np.arange(3)}, "no tensors of the collection predictions"),
        ({"labels": np.array([0.25, 0.5]), "predictions": np.array([0.2, 0.6])}, "no classes"),
        (sampled([[3, 3], [3, 3]]), "no class was predicted 10 times"),
    ],
)
def test_could_not_run(tmp_path: Path, tensors: dict[str, Any], said: str) -> None:
    path = write(tmp_path, {0: tensors}, modes={0: EVAL})
    found = outcome(path, "Confusion")
    assert found.status == "could not run"
    assert said in found.message
    with pytest.raises(InsufficientInformationForRuleInvocation, match="Confusion"):
        invoke_rule(Confusion(create_trial(path)))


def test_labels_and_predictions_of_different_steps(tmp_path: Path) -> None:
    truth = sampled(GOOD)
    run: Run = {0: {"labels": truth["labels"]}, 1: {"predictions": truth["predictions"]}}
    found = outcome(write(tmp_path, run), "Confusion")
    assert (found.status, found.message) == (
        "could not run", "no step has both labels and predictions",
    )  # fmt: skip
