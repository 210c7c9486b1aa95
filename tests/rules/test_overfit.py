"""Validation losses above training losses are found, evaluation by evaluation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.rules.loss_runs import (
    EVAL,
    GLOBAL,
    TRAIN,
    batches,
    evaluation,
    fired,
    found,
    in_looks,
    noisy,
    outcome,
    same_in_parts,
    train,
    write,
)

from smdebug.exceptions import InsufficientInformationForRuleInvocation, SMDebugValueError
from smdebug.rules import invoke_rule, make_rule
from smdebug.rules.builtin.overfit import Overfit
from smdebug.trials.create import create_trial

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

NAME = "Overfit"


def rounds(*pairs: tuple[Iterable[float], Iterable[float]]) -> list[Any]:
    """Training and evaluation in turn."""
    series = []
    for trained, evaluated in pairs:
        series += [*train(trained), *evaluation(evaluated)]
    return series


def of_ratios(*ratios: float) -> list[Any]:
    """Evaluations of four steps of training at 2.0 and an evaluation of two."""
    return rounds(*(([2.0] * 4, [2.0 * (1 + ratio)] * 2) for ratio in ratios))


def test_an_evaluation_is_compared_with_the_training_before_it(tmp_path: Path) -> None:
    series = rounds(([9.0, 9.0], [9.0]), ([1.0, 1.0, 1.0], [1.5, 0.9]), ([0.5], [0.5]))
    path = write(tmp_path, batches(series))
    findings = same_in_parts(path, NAME)
    # 1.2 after 1.0, known at the first step after the evaluation.
    assert [(each.step, each.mode, each.mode_step) for each in findings] == [(8, TRAIN, 5)]
    assert findings[0].value == pytest.approx(0.2)
    assert (findings[0].threshold, findings[0].tensor) == (0.1, "loss")
    assert "evaluation of steps 6 to 7" in findings[0].message
    assert "20% above the 1 of the training" in findings[0].message
    assert fired(path, NAME) == [8]


@pytest.mark.parametrize(("ratio", "expected"), [(0.25, 0), (0.250001, 1)])
def test_exactly_the_ratio_is_none(tmp_path: Path, ratio: float, expected: int) -> None:
    path = write(tmp_path, batches(of_ratios(ratio, 0.0)))
    assert len(found(path, {"rule": NAME, "ratio_threshold": "0.25"})) == expected


@pytest.mark.parametrize(("patience", "steps"), [(1, [6, 24]), (2, [30]), (3, [36]), (4, [])])
def test_patience_counts_evaluations_in_a_row(
    tmp_path: Path, patience: int, steps: list[int]
) -> None:
    path = write(tmp_path, batches(of_ratios(0.2, 0.0, 0.05, 0.2, 0.3, 0.4, 0.0)))
    given = {"rule": NAME, "patience": str(patience)}
    assert [each.step for each in same_in_parts(path, given)] == steps


def test_the_last_evaluation_is_judged_at_the_end(tmp_path: Path) -> None:
    path = write(tmp_path, batches(of_ratios(0.0, 0.5)))
    findings = same_in_parts(path, NAME)
    assert [(each.step, each.mode, each.mode_step) for each in findings] == [(11, EVAL, 3)]
    assert outcome(path, NAME).status == "found"


def test_start_step(tmp_path: Path) -> None:
    path = write(tmp_path, batches(of_ratios(0.5, 0.0, 0.5, 0.0)))
    assert [each.step for each in found(path, NAME)] == [6, 18]
    given = {"rule": NAME, "start_step": "12"}
    assert [each.step for each in same_in_parts(path, given)] == [18]


def test_an_evaluation_before_training_is_left_out(tmp_path: Path) -> None:
    path = write(tmp_path, batches([*evaluation([9.0]), *of_ratios(0.0, 0.0)]))
    assert found(path, NAME) == []


def test_training_that_was_not_saved_cuts_evaluations(tmp_path: Path) -> None:
    """EVAL steps 4, 5 and 10, 11: the numbers say that there was training between them."""
    series = [*train([1.0] * 4), *evaluation([2.0, 2.0, 0.1, 0.1])]
    run = batches(series, [0, 1, 2, 3, 4, 5, 10, 11])
    # As the job counts: four steps of training lie between them.
    object.__setattr__(run[6], "mode_step", 2)
    object.__setattr__(run[7], "mode_step", 3)
    findings = same_in_parts(write(tmp_path, run), NAME)
    assert [(each.step, each.value) for each in findings] == [(10, 1.0)]


def test_negative_and_zero_losses(tmp_path: Path) -> None:
    path = write(tmp_path / "a", batches(rounds(([-2.0] * 3, [-1.9]), ([-2.0] * 3, [-1.0]))))
    findings = found(path, NAME)
    assert [each.value for each in findings] == [0.5]
    path = write(tmp_path / "b", batches(rounds(([0.0] * 3, [0.0]), ([0.0] * 3, [0.1]))))
    assert [each.value for each in found(path, NAME)] == [np.inf]


def test_not_finite_is_left_out(tmp_path: Path) -> None:
    path = write(tmp_path, batches(rounds(([1.0, np.nan], [9.0]), ([1.0], [np.inf]))))
    assert outcome(path, NAME).status == "passed"


def test_noise_of_few_batches_is_none(tmp_path: Path) -> None:
    """Two validation batches with a noise of 15 % often differ from training by more than 10 %."""
    wrong = plain = 0
    for seed in range(20):
        values = noisy(np.ones((10, 22)), 0.15, seed)
        path = write(
            tmp_path / str(seed), batches(rounds(*((row[:20], row[20:]) for row in values)))
        )
        wrong += len(found(path, NAME))
        plain += sum(row[20:].mean() / row[:20].mean() > 1.1 for row in values)
    assert plain > 20
    # Of 200 evaluations.
    assert wrong <= 3


def test_a_gap_that_stays_is_found_in_noise(tmp_path: Path) -> None:
    for seed in range(5):
        values = noisy(np.ones((12, 22)), 0.2, seed)
        values[:, 20:] *= 1.4
        series = rounds(*((row[:20], row[20:]) for row in values))
        assert found(write(tmp_path / str(seed), batches(series)), NAME)


def test_workers_are_apart(tmp_path: Path) -> None:
    run = {"worker_0": batches(of_ratios(0.0, 0.0)), "worker_1": batches(of_ratios(0.5, 0.0))}
    findings = same_in_parts(write(tmp_path, run), NAME)
    assert [(each.step, each.worker) for each in findings] == [(6, "worker_1")]


def test_names_of_keras(tmp_path: Path) -> None:
    rows: list[Any] = []
    for validation in (1.0, 1.5, 1.0):
        rows += [*train([1.0, 1.0]), (TRAIN, {"loss": 1.0, "val_loss": validation})]
    findings = same_in_parts(write(tmp_path, batches(rows)), NAME)
    # The loss of the same step is training, and closes the evaluation.
    assert [(each.step, each.tensor, each.value) for each in findings] == [(5, "val_loss", 0.5)]


def test_metrics_of_xgboost_are_compared_within_a_round(tmp_path: Path) -> None:
    rows = []
    for trained, validation, test in [(1.0, 1.0, 1.05), (0.5, 0.5, 0.9), (0.4, 0.5, 0.4)]:
        losses = {"train-logloss": trained, "validation-logloss": validation}
        rows.append((GLOBAL, {**losses, "test-logloss": test}))
    findings = same_in_parts(write(tmp_path, batches(rows)), NAME)
    assert [(each.step, each.tensor) for each in findings] == [
        (1, "test-logloss"),
        (2, "validation-logloss"),
    ]
    assert [each.value for each in findings] == pytest.approx([0.8, 0.25])


def test_rounds_in_which_a_data_set_was_not_measured_are_left_out(tmp_path: Path) -> None:
    rows = []
    for number in range(9):
        # Training gets better from round to round: its mean over several would be too high.
        losses = {"train-logloss": 1 / (number + 1)}
        if number % 3 == 2:
            losses["validation-logloss"] = 1.2 / (number + 1)
        rows.append((GLOBAL, losses))
    findings = same_in_parts(write(tmp_path, batches(rows)), f"{NAME}:patience=2")
    assert [(each.step, each.tensor) for each in findings] == [(5, "validation-logloss")]
    assert findings[0].value == pytest.approx(0.2)


def test_metrics_of_evaluations_alone_are_not_compared(tmp_path: Path) -> None:
    rows = [(GLOBAL, {"validation_0-logloss": 1.0, "validation_1-logloss": 2.0})] * 3
    done = outcome(write(tmp_path, batches(rows)), NAME)
    assert done.status == "could not run"
    assert "a data set called train" in done.message


def test_growing_run(tmp_path: Path) -> None:
    run = batches(of_ratios(0.0, 0.5, 0.0, 0.0, 0.5))
    whole = outcome(write(tmp_path / "a", run), NAME).findings
    assert [each.step for each in whole] == [12, 29]
    assert in_looks(tmp_path / "b", run, NAME) == whole


def test_losses_by_regex(tmp_path: Path) -> None:
    rows: list[Any] = [(TRAIN, {"loss": 1.0, "error": 1.0})] * 3
    rows += [(EVAL, {"loss": 1.0, "error": 2.0})] * 2
    path = write(tmp_path, batches(rows))
    assert found(path, NAME) == []
    assert [each.tensor for each in found(path, f"{NAME}:tensor_regex=^error$")] == ["error"]
    assert Overfit(None, "^error$").needs()[0].include_regex == ("^error$",)
    assert [need.collection for need in Overfit(None).needs()] == ["losses"]


@pytest.mark.parametrize(
    "given", [{"patience": 0}, {"start_step": -1}, {"ratio_threshold": "x"}, {"tensor_regex": "("}]
)
def test_bad_parameters(given: dict[str, Any]) -> None:
    with pytest.raises(SMDebugValueError, match=f"{next(iter(given))} must be"):
        Overfit(None, **given)


@pytest.mark.parametrize("series", [train([1.0] * 5), evaluation([1.0] * 5)])
def test_one_mode_is_not_enough(tmp_path: Path, series: Any) -> None:
    path = write(tmp_path, batches(series))
    result = outcome(path, NAME)
    assert result.status == "could not run"
    assert "TRAIN and EVAL" in result.message
    with pytest.raises(InsufficientInformationForRuleInvocation, match="TRAIN and EVAL"):
        invoke_rule(make_rule(NAME, create_trial(path)))


def test_no_losses(tmp_path: Path) -> None:
    path = write(tmp_path, batches([(TRAIN, {"fc.weight": np.ones((2, 2))})] * 3))
    assert "no tensors of the collection losses" in outcome(path, NAME).message
