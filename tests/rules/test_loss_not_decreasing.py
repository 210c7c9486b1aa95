"""A loss that does not go down is found; a noisy one that does is not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from smdebug.exceptions import InsufficientInformationForRuleInvocation, SMDebugValueError
from smdebug.mode_keys import ModeKeys
from smdebug.rules import invoke_rule, make_rule
from smdebug.rules.builtin.loss_not_decreasing import LossNotDecreasing
from smdebug.trials.create import create_trial
from tests.rules.loss_runs import (
    EVAL,
    GLOBAL,
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

if TYPE_CHECKING:
    from pathlib import Path

NAME = "LossNotDecreasing"
EXAMPLE = [0.30, 0.33, 0.31, 0.30, 0.28]
LONGER = [0.30, 0.33, 0.31, 0.30, 0.28, 0.2, 0.42]


def every_fourth(values: list[float]) -> list[int]:
    return list(range(0, 4 * len(values), 4))


def truth(steps: list[int], values: list[float], num_steps: int, percent: float) -> list[int]:
    """The steps at which the loss is not lower than before, one by one."""
    fires = []
    for step, value in zip(steps, values, strict=True):
        older = [each for each, at in zip(values, steps, strict=True) if at <= step - num_steps]
        if older and not value < older[-1] - abs(older[-1]) * percent / 100:
            fires.append(step)
    return fires


# ---- one step with another


@pytest.mark.parametrize("mode", [TRAIN, EVAL, GLOBAL])
def test_first_example(tmp_path: Path, mode: ModeKeys) -> None:
    series = [(mode, {"loss": value}) for value in EXAMPLE]
    path = write(tmp_path, batches(series, every_fourth(EXAMPLE)))
    assert fired(path, NAME) == [12]


def test_second_example(tmp_path: Path) -> None:
    path = write(tmp_path, batches(train(LONGER), every_fourth(LONGER)))
    steps = fired(path, {"rule": NAME, "diff_percent": "20"})
    # 0.2 is a fifth below 0.31, and nothing else is a fifth below what it was.
    assert steps == [12, 16, 24] == truth(every_fourth(LONGER), LONGER, 10, 20)
    assert fired(path, NAME) == [12, 24]


def test_examples_are_no_findings(tmp_path: Path) -> None:
    path = write(tmp_path, batches(train(LONGER), every_fourth(LONGER)))
    assert outcome(path, {"rule": NAME, "diff_percent": 20}).status == "passed"


def test_invoke_rule_goes_on_after_it_fired(tmp_path: Path) -> None:
    path = write(tmp_path, batches(train(EXAMPLE), every_fourth(EXAMPLE)))
    rule = make_rule(NAME, create_trial(path))
    invoke_rule(rule)
    finding = rule.finding_at(12)
    assert (finding.tensor, finding.worker, finding.value) == ("loss", "worker_0", 0.30)
    assert finding.threshold == 0.30
    assert "not below 0.3" in finding.message


@pytest.mark.parametrize(("num_steps", "percent"), [(1, 0.0), (3, 5.0), (10, 0.0), (25, 50.0)])
def test_single_comparisons(tmp_path: Path, num_steps: int, percent: float) -> None:
    random = np.random.default_rng(num_steps)
    steps = sorted(random.choice(200, 80, replace=False).tolist())
    values = np.float32(random.normal(0.2, 1.0, 80)).astype(float).tolist()
    path = write(tmp_path, batches(train(values), steps))
    rule = {"rule": NAME, "num_steps": str(num_steps), "diff_percent": percent}
    expected = truth(steps, values, num_steps, percent)
    assert 5 < len(expected) < 80
    assert fired(path, rule) == expected


def test_equal_is_not_lower_and_exactly_the_percentage_is_not(tmp_path: Path) -> None:
    path = write(tmp_path, batches(train([4.0, 3.0, 2.25]), [0, 10, 20]))
    assert fired(path, {"rule": NAME, "diff_percent": 25}) == [10, 20]
    assert fired(path, {"rule": NAME, "diff_percent": 24.9}) == []


def test_not_finite_is_not_lower(tmp_path: Path) -> None:
    values = [1.0, np.nan, np.inf, 0.5, 0.6]
    path = write(tmp_path, batches(train(values), [0, 10, 20, 30, 40]))
    assert fired(path, NAME) == [10, 20, 40]


def test_steps_are_counted_within_the_mode(tmp_path: Path) -> None:
    # Ten steps of training between two evaluations of one batch: 0, 11, 22, ...
    series = []
    for value in (1.0, 1.1, 1.2):
        series += [*train(np.linspace(3, 2, 10)), *evaluation([value])]
    path = write(tmp_path, batches(series))
    assert fired(path, {"rule": NAME, "mode": "EVAL"}) == []
    assert fired(path, {"rule": NAME, "mode": "EVAL", "num_steps": 1}) == [21, 32]
    # Ten steps of training before, the loss was the same.
    trained = [step for step in range(33) if step % 11 != 10 and step > 10]
    assert fired(path, {"rule": NAME, "mode": TRAIN}) == trained
    assert fired(path, {"rule": NAME}) == trained
    values = [tensors["loss"] for _, tensors in series]
    in_one_series = truth(list(range(33)), values, 10, 0)
    assert in_one_series != trained
    assert fired(path, {"rule": NAME, "mode": "global"}) == in_one_series


# ---- findings


def many(tmp_path: Path, series: dict[str, Any], every: int = 1) -> str:
    """A run with many losses."""
    count = len(next(iter(series.values())))
    rows = [(TRAIN, {name: float(each[row]) for name, each in series.items()})
            for row in range(count)]  # fmt: skip
    return write(tmp_path, batches(rows, range(0, count * every, every)))


@pytest.mark.parametrize("heavy", [False, True])
@pytest.mark.parametrize(("count", "length", "every"), [(600, 60, 1), (600, 8, 10), (60, 10, 50)])
def test_healthy_losses(
    tmp_path: Path, heavy: bool, count: int, length: float, every: int
) -> None:
    series = {
        f"loss_{noise}_{seed}": noisy(decay(count, length=length), noise, seed, heavy)
        for noise in (0.0, 0.02, 0.1, 0.3, 0.5)
        for seed in range(20)
    }
    assert same_in_parts(many(tmp_path, series, every), NAME) == []


def test_healthy_losses_without_a_floor(tmp_path: Path) -> None:
    """As those of language models: half of what is to come takes ten times as long."""
    line = 1.7 + 8 / (1 + np.arange(2000) / 30) ** 0.5
    series = {f"loss_{noise}_{seed}": noisy(line, noise, seed)
              for noise in (0.01, 0.05, 0.2) for seed in range(20)}  # fmt: skip
    assert found(many(tmp_path, series), NAME) == []


def test_warm_up(tmp_path: Path) -> None:
    """A loss that hardly moves for a hundred steps, and moves more than its noise."""
    level = 10.8 - 0.000_05 * np.arange(400.0) ** 2
    series = {f"loss_{seed}": level + noisy(np.ones(400), 0.02, seed) for seed in range(20)}
    assert found(many(tmp_path, series), NAME) == []


@pytest.mark.parametrize("noise", [0.0, 0.02, 0.2])
@pytest.mark.parametrize("slope", [0.0, 0.003])
def test_flat_and_rising_losses(tmp_path: Path, noise: float, slope: float) -> None:
    level = 2.3 * (1 + slope * np.arange(400))
    series = {f"loss_{seed}": noisy(level, noise, seed) for seed in range(20)}
    findings = same_in_parts(many(tmp_path, series), NAME)
    assert {each.tensor for each in findings} == set(series)
    first = {each.tensor: each.step for each in reversed(findings)}
    assert min(first.values()) >= 100
    assert np.median(list(first.values())) < 130
    assert max(first.values()) < 300
    assert all("does not go down" in each.message for each in findings)


def test_a_finding_is_where_single_values_say_the_same(tmp_path: Path) -> None:
    series = {f"loss_{seed}": noisy(np.full(300, 2.3), 0.1, seed) for seed in range(5)}
    path = many(tmp_path, series)
    steps = {each.step for each in found(path, NAME)}
    assert steps <= set(fired(path, NAME))


def test_a_small_fall_is_none(tmp_path: Path) -> None:
    """A dead classifier: the loss falls to that of guessing, and stays there."""
    values = np.concatenate([[2.40, 2.33], noisy(np.full(400, 2.303), 0.003, 0)])
    findings = found(many(tmp_path, {"loss": values}), NAME)
    assert [each.tensor for each in findings] == ["loss"]


@pytest.mark.parametrize("quick", [1, 5, 100])
def test_a_floor_is_none(tmp_path: Path, quick: int) -> None:
    """A loss that has come down stays there for long."""
    level = np.concatenate([np.linspace(2.3, 0.3, quick + 1), np.full(3000, 0.3)])
    series = {f"loss_{seed}": noisy(level, 0.1, seed) for seed in range(20)}
    assert found(many(tmp_path, series), NAME) == []


def test_a_loss_that_rises_again(tmp_path: Path) -> None:
    level = np.concatenate([decay(300), np.linspace(0.2, 2.0, 100), np.full(100, 2.0)])
    series = {f"loss_{seed}": noisy(level, 0.1, seed) for seed in range(20)}
    findings = same_in_parts(many(tmp_path, series), NAME)
    assert {each.tensor for each in findings} == set(series)
    assert all(340 <= each.step <= 380 for each in findings)
    assert all("gone up again" in each.message for each in findings)
    assert all(each.threshold is not None and each.threshold < 0.3 for each in findings)


def test_restarts_of_the_learning_rate(tmp_path: Path) -> None:
    level = decay(600)
    for begin in (200, 400):
        level[begin : begin + 50] += 0.6 * np.exp(-np.arange(50) / 15)
    series = {f"loss_{seed}": noisy(level, 0.1, seed) for seed in range(20)}
    assert found(many(tmp_path, series), NAME) == []


def test_a_loss_that_is_not_finite(tmp_path: Path) -> None:
    values = np.concatenate([decay(100), np.full(40, np.nan)])
    findings = same_in_parts(many(tmp_path, {"loss": values}), NAME)
    assert [each.step for each in findings] == [109]
    assert "not finite" in findings[0].message
    assert findings[0].value == np.inf
    always = found(many(tmp_path / "b", {"loss": np.full(50, np.inf)}), NAME)
    # Two values are needed to compare.
    assert [each.step for each in always] == [10]


def test_single_bad_steps_are_none(tmp_path: Path) -> None:
    values = decay(400)
    values[::37] = np.nan
    values[5::41] = 50.0
    assert found(many(tmp_path, {"loss": values}), NAME) == []


def test_diff_percent_counts_from_the_beginning(tmp_path: Path) -> None:
    level = np.concatenate([np.linspace(1.0, 0.85, 20), np.full(300, 0.85)])
    path = many(tmp_path, {"loss": noisy(level, 0.001, 0)})
    assert found(path, NAME) == []
    assert found(path, {"rule": NAME, "diff_percent": 10}) == []
    assert len(found(path, {"rule": NAME, "diff_percent": 20})) == 1


def test_num_steps_is_patience(tmp_path: Path) -> None:
    path = many(tmp_path, {"loss": noisy(np.full(1500, 1.0), 0.05, 1)})
    assert 100 <= found(path, NAME)[0].step < 300
    assert 1000 <= found(path, {"rule": NAME, "num_steps": 100})[0].step < 1300
    assert found(path, {"rule": NAME, "num_steps": 200}) == []


def test_evaluations_are_taken_as_a_whole(tmp_path: Path) -> None:
    """The batches of an evaluation differ, and do not get better from one to the next."""
    series = []
    for level in decay(30, length=8):
        series += train(noisy(np.full(5, level), 0.1, 0))
        series += evaluation(level * np.linspace(0.5, 1.5, 15))
    assert found(write(tmp_path / "a", batches(series)), NAME) == []
    flat = []
    for number in range(30):
        flat += train([10 / (1 + number)] * 5)
        flat += evaluation(np.linspace(0.5, 1.5, 15))
    findings = same_in_parts(write(tmp_path / "b", batches(flat)), NAME)
    assert [(each.step, each.mode) for each in findings] == [(400, TRAIN)]
    assert "in evaluations" in findings[0].message
    assert found(write(tmp_path / "c", batches(flat)), {"rule": NAME, "mode": "train"}) == []


def test_workers_are_judged_apart(tmp_path: Path) -> None:
    run = {
        "worker_0": batches(train(noisy(decay(300), 0.05, 0))),
        "worker_1": batches(train(noisy(np.full(300, 2.3), 0.05, 1))),
    }
    findings = found(write(tmp_path, run), NAME)
    assert {each.worker for each in findings} == {"worker_1"}


def test_growing_run(tmp_path: Path) -> None:
    run = batches(train(noisy(np.full(150, 2.3), 0.05, 2)))
    whole = outcome(write(tmp_path / "a", run), NAME).findings
    assert whole
    assert in_looks(tmp_path / "b", run, NAME) == whole


def test_losses_of_samples_are_averaged(tmp_path: Path) -> None:
    rows: list[Any] = [(TRAIN, {"loss": np.array([value, value + 1.0])}) for value in EXAMPLE]
    path = write(tmp_path, batches(rows, every_fourth(EXAMPLE)))
    assert fired(path, NAME) == [12]


# ---- what it is told


def test_parameters(tmp_path: Path) -> None:
    rule = LossNotDecreasing(None, mode="eval", num_steps="3", use_losses_collection="true")
    assert (rule.mode, rule.num_steps, rule.diff_percent) == (EVAL, 3, 0.0)
    assert [need.collection for need in rule.needs()] == ["losses"]
    other = LossNotDecreasing(None, "mine", "^l1$,^l2$", False)
    assert [need.collection for need in other.needs()] == ["mine", "loss_not_decreasing"]
    assert other.needs()[1].include_regex == ("^l1$", "^l2$")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"num_steps": 0}, "num_steps must be a positive integer"),
        ({"diff_percent": -1}, "diff_percent must be"),
        ({"diff_percent": "much"}, "diff_percent must be"),
        ({"mode": "PREDICT"}, "mode must be one of EVAL, TRAIN, GLOBAL"),
        ({"mode": 7}, "mode must be one of"),
        ({"use_losses_collection": "no"}, "use_losses_collection must be true or false"),
        ({"use_losses_collection": False}, "must be told collection_names or tensor_regex"),
        ({"tensor_regex": "("}, "must be a valid regular expression"),
    ],
)
def test_bad_parameters(given: dict[str, Any], said: str) -> None:
    with pytest.raises(SMDebugValueError, match=said):
        LossNotDecreasing(None, **given)


def test_other_tensors_by_regex(tmp_path: Path) -> None:
    rows: list[Any] = [(TRAIN, {"loss": 1.0, "error": value}) for value in EXAMPLE]
    path = write(tmp_path, batches(rows, every_fourth(EXAMPLE)))
    given = {"rule": NAME, "tensor_regex": "^error$", "use_losses_collection": False}
    assert fired(path, given) == [12]
    assert fired(path, NAME) == [12, 16]


def test_no_losses(tmp_path: Path) -> None:
    path = write(tmp_path, batches([(TRAIN, {"fc.weight": np.ones((2, 2))})] * 3))
    result = outcome(path, NAME)
    assert result.status == "could not run"
    assert "no tensors of the collection losses" in result.message
    with pytest.raises(InsufficientInformationForRuleInvocation, match="losses"):
        invoke_rule(make_rule(NAME, create_trial(path)))
