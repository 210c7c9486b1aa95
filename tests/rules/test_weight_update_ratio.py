"""WeightUpdateRatio: how far weights move, against ratios computed here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from tests.rules.tensor_runs import (
    EVAL,
    GLOBAL,
    TRAIN,
    Run,
    collections,
    findings,
    found,
    found_in_looks,
    invoked,
    normal,
    outcome,
    write,
)

from smdebug.exceptions import InsufficientInformationForRuleInvocation, SMDebugValueError
from smdebug.rules import invoke_rule
from smdebug.rules.builtin.weight_update_ratio import WeightUpdateRatio
from smdebug.rules.rule_frames import frame_of_steps
from smdebug.trials.create import create_trial

if TYPE_CHECKING:
    from pathlib import Path

NAME = "Net_fc.weight"


def run_of(*weights: Any) -> Run:
    return {step: {NAME: np.asarray(weight)} for step, weight in enumerate(weights)}


def beside_one_that_moves(run: Run) -> Run:
    """The same, and a weight that is updated at every step."""
    return {
        step: {**tensors, "Net_other.weight": 1 + 0.01 * step + np.zeros(4)}
        for step, tensors in run.items()
    }


def ratio(now: Any, before: Any, epsilon: float = 1e-9) -> float:
    wide, old = np.asarray(now, np.float64), np.asarray(before, np.float64)
    change = np.sqrt(((wide - old) ** 2).sum())
    return float(change / (np.sqrt((old**2).sum()) + epsilon))


def test_the_ratio(tmp_path: Path) -> None:
    weights = [normal(1), normal(2), normal(3, scale=40)]
    path = write(tmp_path, run_of(*weights))
    expected = ratio(weights[2], weights[1])
    assert expected > 10 > ratio(weights[1], weights[0])
    (only,) = findings(path, "WeightUpdateRatio")
    assert (only.step, only.tensor, only.threshold) == (2, NAME, 10.0)
    assert only.value == pytest.approx(expected, rel=1e-6)
    assert "moves too far" in only.message


@pytest.mark.parametrize(("threshold", "steps"), [(2.0, []), (1.9999, [1]), ("1.5", [1])])
def test_large_means_above(tmp_path: Path, threshold: Any, steps: list[int]) -> None:
    # |6 - 2| / |2| is exactly 2.
    path = write(tmp_path, run_of(np.full(4, 1.0), np.full(4, 3.0)))
    rule = {"rule": "WeightUpdateRatio", "large_threshold": threshold, "epsilon": 0}
    assert [step for step, _ in found(path, rule)] == steps


@pytest.mark.parametrize(("threshold", "steps"), [(0.5, []), (0.5001, [3])])
def test_small_means_below(tmp_path: Path, threshold: float, steps: list[int]) -> None:
    path = write(tmp_path, run_of(*(np.full(4, 1.5**step) for step in range(5))))
    rule = {"rule": "WeightUpdateRatio", "small_threshold": threshold, "epsilon": "0"}
    assert [step for step, _ in found(path, rule)] == steps


@pytest.mark.parametrize("change", [0.0, 1e-9])
def test_small_three_times_in_a_row(tmp_path: Path, change: float) -> None:
    still = [np.full(4, 1.0) * (1 + change * step) for step in range(3)]
    two = beside_one_that_moves(run_of(*still, np.full(4, 2.0)))
    assert found(write(tmp_path / "two", two), "WeightUpdateRatio") == []
    still = [np.full(4, 1.0) * (1 + change * step) for step in range(6)]
    five = beside_one_that_moves(run_of(*still))
    (only,) = findings(write(tmp_path / "five", five), "WeightUpdateRatio")
    assert only.step == 3
    assert only.value == pytest.approx(change, abs=1e-15)
    assert only.threshold == 1e-8


@pytest.mark.parametrize(
    ("updates", "rule"),
    [
        # The learning rate begins at 0.
        (lambda step: max(step - 1, 0), "WeightUpdateRatio"),
        # Gradients of three batches add up, or of eight.
        (lambda step: step // 3, "WeightUpdateRatio"),
        (lambda step: step // 8, "WeightUpdateRatio:num_steps=8"),
        (lambda step: step // 8, "WeightUpdateRatio"),
    ],
)
def test_healthy_training_passes(tmp_path: Path, updates: Any, rule: str) -> None:
    # One of the layers begins at 0.
    def weights(step: int) -> dict[str, Any]:
        moved = updates(step)
        return {
            NAME: normal(1, scale=0.1) + 1e-3 * moved * normal(2),
            "Net_head.weight": 1e-3 * moved * normal(3),
        }

    path = write(tmp_path, {step: weights(step) for step in range(30)})
    assert found(path, rule) == []


def test_when_nothing_moves_there_was_no_update(tmp_path: Path) -> None:
    for steps, expected in ((25, []), (28, [(27, NAME)])):
        # 24 comparisons in which nothing moved say nothing, three more do.
        path = write(tmp_path / str(steps), run_of(*[np.ones(3)] * steps))
        assert found(path, "WeightUpdateRatio") == expected


def test_a_weight_of_zeros_has_no_ratio(tmp_path: Path) -> None:
    path = write(tmp_path, run_of(np.zeros(3), np.zeros(3), np.ones(3), np.ones(3) * 1.1))
    assert found(path, "WeightUpdateRatio") == []


def test_what_is_not_finite_has_no_ratio(tmp_path: Path) -> None:
    bad = np.array([1.0, np.nan]), np.array([np.inf, 1.0])
    assert found(write(tmp_path, run_of(np.ones(2), *bad, np.ones(2))), "WeightUpdateRatio") == []


def test_another_shape_has_no_ratio(tmp_path: Path) -> None:
    path = write(tmp_path, run_of(np.ones(2), np.ones(3) * 100, np.ones(3) * 100.5))
    assert found(path, "WeightUpdateRatio") == []


@pytest.mark.parametrize(
    ("num_steps", "compared"),
    # Saved at 0, 1, 4, 5, 9: each with the newest at least so many steps earlier.
    [
        (None, {1: 0, 4: 1, 5: 4, 9: 5}),
        (1, {1: 0, 4: 1, 5: 4, 9: 5}),
        ("3", {4: 1, 5: 1, 9: 5}),
        (4, {4: 0, 5: 1, 9: 5}),
        (5, {5: 0, 9: 4}),
        (9, {9: 0}),
        (10, {}),
    ],
)
def test_num_steps(tmp_path: Path, num_steps: Any, compared: dict[int, int]) -> None:
    weights = {step: normal(7, step) for step in (0, 1, 4, 5, 9)}
    path = write(tmp_path, {step: {NAME: each} for step, each in weights.items()})
    rule = WeightUpdateRatio(create_trial(path), num_steps, large_threshold=0, small_threshold=0)
    expected = {step: ratio(weights[step], weights[old]) for step, old in compared.items()}
    seen = {}
    for step in rule.base_trial.steps():
        seen.update(_ratios(rule, step))
    assert seen == pytest.approx(expected, rel=1e-6)


def _ratios(rule: WeightUpdateRatio, step: int) -> dict[int, float]:
    """The ratio at one step; each is found anew, for all are above 0."""
    rule._cooldown.clear()
    frame = frame_of_steps(rule.base_trial, step, step + 1, ())
    return {each.step: each.value for each in rule.evaluate(frame) if each.value is not None}


def test_steps_of_training_only(tmp_path: Path) -> None:
    # Validation before and between: weights are the same there, or those of an average.
    modes = {0: EVAL, 1: EVAL, 2: EVAL, 3: EVAL, 5: EVAL, 7: EVAL}
    weights = [normal(9)] * 4 + [
        normal(9),
        500 * normal(1),
        1.1 * normal(9),
        -90 * normal(9),
        normal(9),
    ]
    path = write(tmp_path, run_of(*weights), modes=modes)
    assert found(path, "WeightUpdateRatio") == []


def test_steps_without_a_mode(tmp_path: Path) -> None:
    weights = [normal(1), 30 * normal(2), normal(3), 30 * normal(4)]
    path = write(tmp_path / "a", run_of(*weights), modes=dict.fromkeys(range(4), GLOBAL))
    assert [step for step, _ in found(path, "WeightUpdateRatio")] == [1, 3]
    # From the first step of mode TRAIN on only those count.
    path = write(tmp_path / "b", run_of(*weights), modes={0: GLOBAL, 1: TRAIN, 2: GLOBAL, 3: TRAIN})
    assert [step for step, _ in found(path, "WeightUpdateRatio")] == [1]


def test_frozen_on_purpose(tmp_path: Path) -> None:
    still = beside_one_that_moves(run_of(*[np.ones(3)] * 6))
    path = write(tmp_path / "frozen", still, manager=collections(frozen=[NAME]))
    assert found(path, "WeightUpdateRatio") == []
    assert found(write(tmp_path / "not", still), "WeightUpdateRatio") == [(3, NAME)]


def test_workers_apart(tmp_path: Path) -> None:
    runs = {"worker_0": run_of(normal(1), normal(2)), "worker_1": run_of(normal(1), 90 * normal(2))}
    (only,) = findings(write(tmp_path, runs), "WeightUpdateRatio")
    assert (only.step, only.worker) == (1, "worker_1")


@pytest.mark.parametrize("num_steps", [None, 3])
def test_step_by_step_is_the_same(tmp_path: Path, num_steps: int | None) -> None:
    weights = [normal(step, scale=60 if step in (4, 5, 9) else 1) for step in range(10)]
    weights += [weights[-1]] * 6
    rule = {"rule": "WeightUpdateRatio", "num_steps": num_steps}
    run = beside_one_that_moves(run_of(*weights))
    path = write(tmp_path / "a", run)
    whole = findings(path, rule)
    assert len(whole) >= 3
    assert found_in_looks(tmp_path / "b", run, rule) == whole
    if num_steps is None:
        assert invoked(WeightUpdateRatio(create_trial(path))) == [4, 9, 12, 13, 14, 15]


def test_bfloat16(tmp_path: Path) -> None:
    weights = [normal(step).astype(ml_dtypes.bfloat16) for step in range(2)]
    weights.append((50 * normal(2)).astype(ml_dtypes.bfloat16))
    (only,) = findings(write(tmp_path, run_of(*weights)), "WeightUpdateRatio")
    assert only.value == pytest.approx(ratio(weights[2], weights[1]), rel=1e-6)


def test_reductions_are_not_enough(tmp_path: Path) -> None:
    path = write(tmp_path, run_of(normal(1), normal(2)), ["l2"])
    result = outcome(path, "WeightUpdateRatio")
    assert result.status == "could not run"
    assert "the tensors themselves of the collection weights" in result.message
    with pytest.raises(InsufficientInformationForRuleInvocation):
        invoke_rule(WeightUpdateRatio(create_trial(path)))


def test_needs() -> None:
    (need,) = WeightUpdateRatio(None).needs()
    assert (need.collection, need.raw, need.reductions) == ("weights", True, ())


@pytest.mark.parametrize(
    "bad",
    [{"num_steps": 0}, {"num_steps": "x"}, {"large_threshold": -1}, {"small_threshold": "nan"},
     {"epsilon": -1e-9}, {"small_threshold": 2, "large_threshold": 1}],
)  # fmt: skip
def test_bad_parameters(bad: dict[str, Any]) -> None:
    with pytest.raises(SMDebugValueError, match=next(iter(bad))):
        WeightUpdateRatio(None, **bad)
