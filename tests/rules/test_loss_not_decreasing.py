"""A loss that does not go down is found; a noisy one that does is not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
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

from smdebug.exceptions import InsufficientInformationForRuleInvocation, SMDebugValueError
from smdebug.rules import invoke_rule, make_rule
from smdebug.rules.builtin.loss_not_decreasing import LossNotDecreasing
from smdebug.rules.detectors.loss_trend import LossTrend
from smdebug.trials.create import create_trial

if TYPE_CHECKING:
    from pathlib import Path

    from smdebug.mode_keys import ModeKeys

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
    for place, value in enumerate((1.0, 1.1, 1.2)):
        series += [*train(np.linspace(9, 8, 10) - 2 * place), *evaluation([value])]
    path = write(tmp_path, batches(series))
    assert fired(path, {"rule": NAME, "mode": "EVAL"}) == []
    assert fired(path, {"rule": NAME, "mode": "EVAL", "num_steps": 1}) == [21, 32]
    # Ten steps of training before, the loss was higher; ten steps before was an evaluation.
    assert fired(path, {"rule": NAME, "mode": TRAIN}) == fired(path, NAME) == []
    values = [tensors["loss"] for _, tensors in series]
    in_one_series = truth(list(range(33)), values, 10, 0)
    assert in_one_series == [20, 31]
    assert fired(path, {"rule": NAME, "mode": "global"}) == in_one_series


# ---- findings


def many(tmp_path: Path, series: dict[str, Any], every: int = 1) -> str:
    """A run with many losses."""
    count = len(next(iter(series.values())))
    rows = [(TRAIN, {name: float(each[row]) for name, each in series.items()})
            for row in range(count)]  # fmt: skip
    return write(tmp_path, batches(rows, range(0, count * every, every)))


def first_verdict(values: Any, every: int = 1) -> tuple[int, str] | None:
    """Which value of a loss is the first at which something is wrong, and what."""
    course = LossTrend(0.0, least_steps=100)
    for place, value in enumerate(values.tolist()):
        verdict = course.add(place * every, value)
        if verdict is not None:
            return place, verdict.kind
    return None


@pytest.mark.parametrize("heavy", [False, True])
@pytest.mark.parametrize(
    ("count", "length", "every"), [(600, 60, 1), (600, 8, 10), (60, 10, 50), (1500, 300, 1)]
)
@pytest.mark.parametrize("noise", [0.0, 0.02, 0.1, 0.3])
def test_healthy_losses(heavy: bool, count: int, length: float, every: int, noise: float) -> None:
    level = decay(count, length=length)
    wrong = [first_verdict(noisy(level, noise, seed, heavy), every) for seed in range(20)]
    assert wrong == [None] * 20


@pytest.mark.parametrize("noise", [0.01, 0.05, 0.2])
def test_healthy_losses_without_a_floor(noise: float) -> None:
    """As those of language models: half of what is to come takes ten times as long."""
    level = 1.7 + 8 / (1 + np.arange(1500) / 30) ** 0.5
    assert [first_verdict(noisy(level, noise, seed)) for seed in range(20)] == [None] * 20


def test_warm_up() -> None:
    """A loss that hardly moves for a hundred steps, and moves more than its noise."""
    level = 10.8 - 0.000_05 * np.arange(400.0) ** 2
    series = [level + noisy(np.ones(400), 0.02, seed) - 1 for seed in range(20)]
    assert [first_verdict(each) for each in series] == [None] * 20


def test_fine_tuning() -> None:
    """A loss that comes down by a fifth of its level, which is twice its noise."""
    level = 1.2 + 0.3 * np.exp(-np.arange(1000) / 100)
    assert [first_verdict(noisy(level, 0.1, seed)) for seed in range(20)] == [None] * 20


@pytest.mark.parametrize(("noise", "within"), [(0.0, 109), (0.02, 400), (0.05, 600)])
def test_flat_losses(noise: float, within: int) -> None:
    wrong = [first_verdict(noisy(np.full(1000, 2.3), noise, seed)) for seed in range(20)]
    places = [each[0] for each in wrong if each is not None and each[1] == "flat"]
    assert len(places) == 20
    assert min(places) == 109
    assert np.median(places) < 150
    assert max(places) <= within


@pytest.mark.parametrize("noise", [0.0, 0.02, 0.2])
def test_rising_losses(noise: float) -> None:
    level = 2.3 * (1 + 0.003 * np.arange(400))
    wrong = [first_verdict(noisy(level, noise, seed)) for seed in range(20)]
    assert all(each is not None and 109 <= each[0] < 250 for each in wrong)


@pytest.mark.parametrize("quick", [1, 5, 100])
def test_a_floor_is_none(quick: int) -> None:
    """A loss that has come down stays there for long."""
    level = np.concatenate([np.linspace(2.3, 0.3, quick + 1), np.full(3000, 0.3)])
    assert [first_verdict(noisy(level, 0.1, seed)) for seed in range(10)] == [None] * 10


def test_restarts_of_the_learning_rate() -> None:
    level = decay(600)
    for begin in (200, 400):
        level[begin : begin + 50] += 0.6 * np.exp(-np.arange(50) / 15)
    assert [first_verdict(noisy(level, 0.1, seed)) for seed in range(20)] == [None] * 20


def test_healthy_and_flat_losses_in_a_run(tmp_path: Path) -> None:
    series = {f"loss_{seed}": noisy(decay(200), 0.1, seed) for seed in range(5)}
    series |= {f"flat_loss_{seed}": noisy(np.full(200, 2.3), 0.01, seed) for seed in range(5)}
    findings = same_in_parts(many(tmp_path, series), NAME)
    assert {each.tensor for each in findings} == {f"flat_loss_{seed}" for seed in range(5)}
    assert all("does not go down" in each.message for each in findings)
    assert all(abs((each.value or 0) / 2.3 - 1) < 0.02 for each in findings)


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


def test_a_loss_that_rises_again(tmp_path: Path) -> None:
    level = np.concatenate([decay(300), np.linspace(0.2, 2.0, 100), np.full(100, 2.0)])
    series = {f"loss_{seed}": noisy(level, 0.1, seed) for seed in range(4)}
    findings = same_in_parts(many(tmp_path, series), NAME)
    assert {each.tensor for each in findings} == set(series)
    assert all(340 <= each.step <= 380 for each in findings)
    assert all("gone up again" in each.message for each in findings)
    assert all(each.threshold is not None and each.threshold < 0.3 for each in findings)


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
