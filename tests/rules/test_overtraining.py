"""Training that goes on after both losses stopped getting better."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.rules.loss_runs import (
    EVAL,
    TRAIN,
    batches,
    decay,
    evaluation,
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
from smdebug.rules.builtin.overtraining import Overtraining
from smdebug.trials.create import create_trial

if TYPE_CHECKING:
    from pathlib import Path

NAME = "Overtraining"


def run_of(trained: Any, evaluated: Any) -> list[Any]:
    """Evaluations of two steps of training and one of evaluation."""
    series = []
    for one, other in zip(trained, evaluated, strict=True):
        series += [*train([one, one]), *evaluation([other])]
    return series


def truth(
    trained: Any, evaluated: Any, patience_train: int = 5, patience: int = 10, delta: float = 0.1
) -> int | None:
    """The round at which the rule fires first, counted once more."""

    def since(values: Any) -> int:
        best, last = values[0], 0
        for place, value in enumerate(values):
            if place and value <= best - delta * min(1, abs(best)):
                best, last = value, place
        return len(values) - 1 - last

    for count in range(1, len(trained) + 1):
        if since(trained[:count]) >= patience_train and since(evaluated[:count]) >= patience:
            return count - 1
    return None


def first_round(path: str, rule: Any = NAME) -> int | None:
    findings = found(path, rule)
    # A round has three steps, and is known to be over at the first of the next, if there is one.
    return None if not findings else findings[0].step // 3 - (findings[0].mode is TRAIN)


def test_a_loss_at_its_floor(tmp_path: Path) -> None:
    trained, evaluated = decay(40, length=3, floor=0.5), decay(40, length=3, floor=0.7)
    path = write(tmp_path, batches(run_of(trained, evaluated)))
    findings = same_in_parts(path, NAME)
    assert [each.mode for each in findings] == [TRAIN]
    assert first_round(path) == truth(trained, evaluated)
    assert findings[0].value == pytest.approx(0.7, rel=0.05)
    assert "has not got better in training" in findings[0].message


@pytest.mark.parametrize("seed", range(8))
def test_random_losses(tmp_path: Path, seed: int) -> None:
    random = np.random.default_rng(seed)
    scale = [0.05, 0.5, 3.0, 20.0][seed % 4]
    trained = np.float32(noisy(decay(60, length=6) * scale, 0.1, seed)).astype(float)
    evaluated = np.float32(noisy(decay(60, length=8) * scale, 0.1, seed + 100)).astype(float)
    given = {
        "patience_train": int(random.integers(1, 8)),
        "patience_validation": int(random.integers(1, 12)),
        "delta": float(random.choice([0.0, 0.02, 0.1])),
    }
    expected = truth(trained, evaluated, *given.values())  # type: ignore[arg-type]
    path = write(tmp_path, batches(run_of(trained, evaluated)))
    assert first_round(path, {"rule": NAME, **given}) == expected


@pytest.mark.parametrize("scale", [0.01, 1.0, 5.0])
def test_losses_that_get_better_are_none(tmp_path: Path, scale: float) -> None:
    level = scale * decay(30, length=12)
    for seed in range(5):
        series = run_of(noisy(level, 0.03, seed), noisy(level, 0.05, seed + 50))
        assert found(write(tmp_path / str(seed), batches(series)), NAME) == []


def test_one_that_gets_better_is_enough(tmp_path: Path) -> None:
    falling, flat = np.linspace(9, 1, 30), np.full(30, 1.0)
    assert found(write(tmp_path / "a", batches(run_of(falling, flat))), NAME) == []
    assert found(write(tmp_path / "b", batches(run_of(flat, falling))), NAME) == []
    assert first_round(write(tmp_path / "c", batches(run_of(flat, flat)))) == 10


@pytest.mark.parametrize(("best", "needed"), [(4.0, 0.125), (0.5, 0.0625)])
def test_exactly_delta_is_better(tmp_path: Path, best: float, needed: float) -> None:
    """By delta above 1, by a share of it below."""
    for lower, expected in ((needed, None), (needed * 0.99, 2)):
        values = [best, best, best - lower]
        path = write(tmp_path / str(lower), batches(run_of(values, values)))
        given = {"rule": NAME, "patience_train": 2, "patience_validation": 2, "delta": 0.125}
        assert first_round(path, given) == expected


def test_evaluations_without_training_do_not_count_as_training(tmp_path: Path) -> None:
    """Only EVAL was saved between some of them."""
    series = [*train([1.0]), *evaluation([1.0])]
    run = batches([*series, *evaluation([1.0] * 12)], [0, 1, *range(10, 130, 10)])
    for place, batch in enumerate(run[2:], 1):
        object.__setattr__(batch, "mode_step", place)
    assert found(write(tmp_path, run), {"rule": NAME, "patience_train": 1}) == []


def test_not_finite_is_never_better(tmp_path: Path) -> None:
    values = [1.0] + [np.nan] * 12
    assert first_round(write(tmp_path, batches(run_of(values, values)))) == 10


def test_workers_are_apart(tmp_path: Path) -> None:
    falling, flat = np.linspace(9, 1, 14), np.full(14, 1.0)
    run = {
        "worker_0": batches(run_of(falling, falling)),
        "worker_1": batches(run_of(flat, flat)),
    }
    findings = same_in_parts(write(tmp_path, run), NAME)
    assert [each.worker for each in findings] == ["worker_1"]


def test_growing_run(tmp_path: Path) -> None:
    run = batches(run_of(np.full(11, 1.0), np.full(11, 1.0)))
    whole = outcome(write(tmp_path / "a", run), NAME).findings
    # The last evaluation, which is over when the run is.
    assert [(each.step, each.mode) for each in whole] == [(32, EVAL)]
    assert in_looks(tmp_path / "b", run, NAME) == whole


def test_parameters() -> None:
    rule = Overtraining(None, "3", "4", "0.5")
    assert (rule.patience_train, rule.patience_validation, rule.delta) == (3, 4, 0.5)
    assert [(need.collection, need.reductions) for need in rule.needs()] == [("losses", ("mean",))]


@pytest.mark.parametrize(
    "given", [{"patience_train": 0}, {"patience_validation": "x"}, {"delta": -1}]
)
def test_bad_parameters(given: dict[str, Any]) -> None:
    with pytest.raises(SMDebugValueError, match=f"{next(iter(given))} must be"):
        Overtraining(None, **given)


def test_one_mode_is_not_enough(tmp_path: Path) -> None:
    path = write(tmp_path, batches(train([1.0] * 30)))
    assert "TRAIN and EVAL" in outcome(path, NAME).message
    with pytest.raises(InsufficientInformationForRuleInvocation, match="TRAIN and EVAL"):
        invoke_rule(make_rule(NAME, create_trial(path)))
    path = write(tmp_path / "b", batches([(TRAIN, {"fc.weight": np.ones((2, 2))})] * 3))
    assert outcome(path, NAME).status == "could not run"
