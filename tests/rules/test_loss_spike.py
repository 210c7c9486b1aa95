"""A loss that jumps is found; noise and high losses at the beginning are not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.rules.loss_runs import (
    EVAL,
    GLOBAL,
    PREDICT,
    TRAIN,
    batches,
    decay,
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
from smdebug.rules.builtin.loss_spike import LossSpike
from smdebug.rules.detectors.spikes import SpikeLimits
from smdebug.trials.create import create_trial

if TYPE_CHECKING:
    from pathlib import Path

NAME = "LossSpike"


def deviation_of(values: Any) -> float:
    """The deviation from a line through the medians of the halves."""
    half = len(values) // 2
    x = np.arange(len(values))
    left, right = x[:half].mean(), x[-half:].mean()
    low, high = np.median(values[:half]), np.median(values[-half:])
    line = low + (high - low) * (x - left) / (right - left)
    off = values - line
    return float(1.4826 * np.median(np.abs(off - np.median(off))))


def limit_of(before: Any, start: float, factor: float = 8.0, floor: float = 0.05) -> float:
    """The limit, written down once more."""
    median = np.median(before)
    limit = median + factor * max(deviation_of(before), floor * abs(median), 0.01 * start)
    if (before > 0).all():
        logs = np.log(before)
        limit = max(limit, np.exp(np.median(logs) + factor * max(deviation_of(logs), floor)))
    return float(limit)


# ---- limits


@pytest.mark.parametrize("shift", [0.0, -2.0])
@pytest.mark.parametrize("size", [1, 13, 200])
def test_limits(shift: float, size: int) -> None:
    values = noisy(decay(200), 0.2, 1) + shift
    values[[30, 31, 90]] = [np.nan, np.inf, -np.inf]
    limits = SpikeLimits(window=20, factor=8.0, min_history=10, floor=0.05)
    parts = [limits.add("a", values[at : at + size]) for at in range(0, 200, size)]
    start = float(np.median(np.abs(values[:10])))
    for place, limit in enumerate(np.concatenate(parts).tolist()):
        before = values[:place][np.isfinite(values[:place])]
        expected = limit_of(before[-20:], start) if len(before) >= 10 else np.inf
        assert limit == pytest.approx(expected, rel=1e-9)


def test_series_do_not_mix() -> None:
    limits = SpikeLimits(window=5, factor=2.0, min_history=2, floor=0.1)
    limits.add("a", np.ones(5))
    assert not limits.begun("b")
    assert limits.add("b", np.full(3, 7.0))[-1] > 7
    assert limits.add("a", np.ones(1))[0] == pytest.approx(np.exp(0.2))
    limits.clear()
    assert not limits.begun("a")


# ---- findings


@pytest.mark.parametrize("heavy", [False, True])
@pytest.mark.parametrize("noise", [0.0, 0.02, 0.1, 0.3, 0.8])
def test_healthy_losses(heavy: bool, noise: float) -> None:
    limits = SpikeLimits(window=50, factor=8.0, min_history=10, floor=0.05)
    for seed in range(20):
        for level in (decay(500), decay(500, floor=0.0), np.full(300, 1.0)):
            values = noisy(level, noise, seed, heavy)
            assert (values <= limits.add((seed, level[-1]), values)).all()


def test_a_loss_that_is_zero_for_most_batches() -> None:
    """As a hinge loss at its end: a single sample is wrong now and then."""
    random = np.random.default_rng(3)
    level = np.maximum(1 - np.arange(400) / 50, 0)
    values = level + (random.random(400) < 0.05) * random.random(400) * 0.06
    limits = SpikeLimits(window=50, factor=8.0, min_history=10, floor=0.05)
    assert (values <= limits.add("a", values)).all()


@pytest.mark.parametrize("mode", [TRAIN, GLOBAL])
def test_a_spike(tmp_path: Path, mode: Any) -> None:
    values = noisy(decay(150), 0.05, 0)
    values[100], values[102] = 4.0, 4.1
    path = write(tmp_path, batches([(mode, {"loss": value}) for value in values]))
    findings = same_in_parts(path, NAME)
    assert [each.step for each in findings] == [100, 102]
    first = findings[0]
    expected = limit_of(values[50:100], float(np.median(values[:10])))
    assert (first.tensor, first.worker, first.mode) == ("loss", "worker_0", mode)
    assert first.value == 4.0
    assert first.threshold == pytest.approx(expected)
    assert "has jumped to 4" in first.message
    assert fired(path, NAME) == [100, 102]


def test_exactly_at_the_limit_is_none(tmp_path: Path) -> None:
    values = np.full(40, 2.0)
    limit = limit_of(values[:30], 2.0)
    for value, expected in ((limit, 0), (np.nextafter(limit, 9), 1)):
        values[30] = value
        path = write(tmp_path / str(expected), batches(train(values)))
        assert len(found(path, NAME)) == expected


def test_a_loss_that_stays_up_is_found_once(tmp_path: Path) -> None:
    values = np.concatenate([np.full(60, 1.0), np.full(60, 5.0)])
    findings = same_in_parts(write(tmp_path, batches(train(values))), NAME)
    assert [each.step for each in findings] == [60]


def test_nothing_is_said_at_the_beginning(tmp_path: Path) -> None:
    values = [2.3] * 9 + [90.0] + [2.3] * 20
    assert found(write(tmp_path / "a", batches(train(values))), NAME) == []
    values = [2.3] * 10 + [90.0] + [2.3] * 20
    assert len(found(write(tmp_path / "b", batches(train(values))), NAME)) == 1


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_not_finite_after_finite(tmp_path: Path, value: float) -> None:
    path = write(tmp_path, batches(train([2.3, 2.2, value, value, 2.1])))
    findings = same_in_parts(path, NAME)
    assert [each.step for each in findings] == [2]
    assert "after finite values" in findings[0].message
    assert found(write(tmp_path / "b", batches(train([value] * 30))), NAME) == []


def test_modes_are_apart(tmp_path: Path) -> None:
    series = []
    for _ in range(15):
        series += [*train([0.1] * 4), *evaluation([3.0, 1.0]), (PREDICT, {"loss": 70.0})]
    assert found(write(tmp_path, batches(series)), NAME) == []


def test_evaluations_are_taken_as_a_whole(tmp_path: Path) -> None:
    """Single batches of an evaluation may be as hard as they like."""
    series = []
    for number in range(14):
        series += [*train([0.1] * 4), *evaluation([0.1] * 10 + [9.0 if number < 12 else 99.0])]
    path = write(tmp_path, batches(series))
    findings = same_in_parts(path, NAME)
    # The thirteenth evaluation is over at step 195; the last one when the run is, no jump any more.
    assert [(each.step, each.mode) for each in findings] == [(195, TRAIN)]
    assert findings[0].value == pytest.approx(100 / 11)
    assert "evaluation of steps 184 to 194" in findings[0].message


def test_the_last_evaluation(tmp_path: Path) -> None:
    series = []
    for number in range(12):
        series += [*train([0.1] * 2), *evaluation([0.2 if number < 11 else 2.0])]
    findings = same_in_parts(write(tmp_path, batches(series)), NAME)
    assert [(each.step, each.mode) for each in findings] == [(35, EVAL)]


def test_logs_of_keras(tmp_path: Path) -> None:
    """`val_loss` in the logs of an epoch is an evaluation, and not compared with `loss`."""
    rows: list[Any] = []
    for number in range(12):
        rows += train([1.0, 1.0])
        rows.append((TRAIN, {"loss": 1.0, "val_loss": 3.0 if number < 11 else 30.0}))
    findings = same_in_parts(write(tmp_path, batches(rows)), NAME)
    assert [(each.step, each.tensor, each.value) for each in findings] == [(35, "val_loss", 30.0)]


def test_workers_are_apart(tmp_path: Path) -> None:
    spiky = np.full(40, 1.0)
    spiky[30] = 20.0
    run = {"worker_0": batches(train(np.full(40, 5.0))), "worker_1": batches(train(spiky))}
    findings = same_in_parts(write(tmp_path, run), NAME)
    assert [(each.step, each.worker) for each in findings] == [(30, "worker_1")]


def test_growing_run(tmp_path: Path) -> None:
    values = noisy(np.full(60, 1.0), 0.05, 0)
    values[40] = 5.0
    run = batches(train(values))
    whole = outcome(write(tmp_path / "a", run), NAME).findings
    assert [each.step for each in whole] == [40]
    assert in_looks(tmp_path / "b", run, NAME) == whole


# ---- what it is told


def test_parameters(tmp_path: Path) -> None:
    rule = LossSpike(None, window="20", factor="3", min_history="5")
    assert (rule.window, rule.factor, rule.min_history) == (20, 3.0, 5)
    assert [(need.collection, need.reductions) for need in rule.needs()] == [("losses", ("mean",))]
    values = [1.0] * 6 + [1.3]
    path = write(tmp_path, batches(train(values)))
    assert len(found(path, {"rule": NAME, "factor": 3, "min_history": 5})) == 1
    assert found(path, {"rule": NAME, "factor": 8, "min_history": 5}) == []
    assert found(path, {"rule": NAME, "factor": 3, "min_history": 7}) == []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"window": 1}, "window must be an integer of at least 2"),
        ({"factor": "x"}, "factor must be a number"),
        ({"min_history": 60}, r"min_history must be at most window \(50\), got 60"),
        ({"use_losses_collection": False}, "must be told"),
    ],
)
def test_bad_parameters(given: dict[str, Any], said: str) -> None:
    with pytest.raises(SMDebugValueError, match=said):
        LossSpike(None, **given)


def test_no_losses(tmp_path: Path) -> None:
    path = write(tmp_path, batches([(TRAIN, {"fc.weight": np.ones((2, 2))})] * 3))
    assert outcome(path, NAME).status == "could not run"
    with pytest.raises(InsufficientInformationForRuleInvocation, match="losses"):
        invoke_rule(make_rule(NAME, create_trial(path)))
