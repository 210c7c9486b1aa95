"""SimilarAcrossRuns: what differs between two runs, also while one of them is still going."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.rules.tensor_runs import (
    EVAL,
    Growing,
    Run,
    findings,
    found,
    invoked,
    look,
    normal,
    outcome,
    write,
)

from smdebug.exceptions import (
    InsufficientInformationForRuleInvocation,
    SMDebugTypeError,
    SMDebugValueError,
    TrialNotFound,
)
from smdebug.rules import RuleRunner, invoke_rule
from smdebug.rules.builtin.similar_across_runs import SimilarAcrossRuns
from smdebug.rules.registry import RuleSpec
from smdebug.trials.create import create_trial

if TYPE_CHECKING:
    from pathlib import Path

SAVES = ["min", "max", "mean", "l2"]
REDUCED = [None, SAVES, ["mean"]]


def run_of(shift: dict[int, float] | None = None, steps: Any = range(6)) -> Run:
    """Two tensors; the second is shifted at some steps."""
    return {
        step: {
            "a_weight": normal(step),
            "gradient/a_weight": normal(step, 1) + np.float32((shift or {}).get(step, 0)),
        }
        for step in steps
    }


def against(other: str) -> dict[str, Any]:
    return {"rule": "SimilarAcrossRuns", "other_trial": other}


@pytest.mark.parametrize("ours", REDUCED)
@pytest.mark.parametrize("theirs", REDUCED)
def test_what_differs_is_found(tmp_path: Path, ours: Any, theirs: Any) -> None:
    base = write(tmp_path / "a", run_of({2: 0.1, 3: 0.2, 5: 0.1}), ours)
    other = write(tmp_path / "b", run_of(), theirs)
    result = findings(base, against(other))
    assert [(each.step, each.tensor) for each in result] == [
        (2, "gradient/a_weight"), (5, "gradient/a_weight"),
    ]  # fmt: skip
    assert result[0].value == pytest.approx(0.1, rel=0.2 if ours == theirs == SAVES else 0.01)
    assert "gradient/a_weight is not what it is in b: " in result[0].message


@pytest.mark.parametrize("saves", REDUCED)
def test_equal_runs_pass(tmp_path: Path, saves: Any) -> None:
    run = run_of()
    run[1]["a_weight"] = np.array([np.nan, np.inf, 1.0])
    base, other = write(tmp_path / "a", run, saves), write(tmp_path / "b", run, saves)
    assert found(base, against(other)) == []


@pytest.mark.parametrize(
    ("base", "other", "fires"),
    # The limit is 1e-8 + 1e-5 * |other|.
    [([100.0], [100.00099], False), ([100.0], [100.0011], True), ([1e-9], [0.0], False),
     ([1.2e-8], [0.0], True), ([np.nan], [1.0], True), ([1.0, 2.0], [[1.0, 2.0]], True)],
)  # fmt: skip
def test_how_close_is_close(tmp_path: Path, base: Any, other: Any, fires: bool) -> None:
    first = write(tmp_path / "a", {0: {"a": np.array(base)}})
    second = write(tmp_path / "b", {0: {"a": np.array(other)}})
    assert bool(found(first, against(second))) is fires


def test_raw_sees_what_reductions_do_not(tmp_path: Path) -> None:
    a, b = {0: {"a": np.array([1.0, 2.0])}}, {0: {"a": np.array([2.0, 1.0])}}
    assert found(write(tmp_path / "1", a), against(write(tmp_path / "2", b))) == [(0, "a")]
    numbers = write(tmp_path / "3", a, SAVES), write(tmp_path / "4", b, SAVES)
    assert found(numbers[0], against(numbers[1])) == []


def test_text(tmp_path: Path) -> None:
    base = write(tmp_path / "a", {0: {"h": np.array(["x", "y"])}, 1: {"h": np.array(["x", "y"])}})
    other = write(tmp_path / "b", {0: {"h": np.array(["x", "y"])}, 1: {"h": np.array(["x", "z"])}})
    assert found(base, against(other)) == [(1, "h")]


def test_what_one_run_has_not_is_no_difference(tmp_path: Path) -> None:
    base = write(tmp_path / "a", run_of({3: 1}, range(8)))
    other_run = run_of({}, [0, 2, 3, 4, 9])
    del other_run[2]["a_weight"]
    other_run[4]["c_weight"] = normal(4)
    assert found(base, against(write(tmp_path / "b", other_run))) == [(3, "gradient/a_weight")]


def test_steps_of_another_mode_are_not_compared(tmp_path: Path) -> None:
    base = write(tmp_path / "a", run_of({1: 1, 2: 1}), modes={1: EVAL, 2: EVAL})
    other = write(tmp_path / "b", run_of(), modes={2: EVAL})
    assert found(base, against(other)) == [(2, "gradient/a_weight")]


def test_chosen_tensors(tmp_path: Path) -> None:
    base, other = write(tmp_path / "a", run_of({1: 1})), write(tmp_path / "b", run_of())
    assert found(base, {**against(other), "collection_names": "weights"}) == []
    assert found(base, {**against(other), "tensor_regex": "^grad"}) == [(1, "gradient/a_weight")]


def test_workers(tmp_path: Path) -> None:
    # One worker is compared with one, whatever their names; several by name.
    alone = write(tmp_path / "a", {"algo-1": run_of({1: 1})})
    single = write(tmp_path / "b", {"worker_0": run_of()})
    (only,) = findings(alone, against(single))
    assert (only.step, only.worker) == (1, "algo-1")
    pair = write(tmp_path / "c", {"worker_0": run_of(), "worker_1": run_of({4: 1})})
    same = write(tmp_path / "d", {"worker_0": run_of(), "worker_1": run_of()})
    (only,) = findings(pair, against(same))
    assert (only.step, only.worker) == (4, "worker_1")


@pytest.mark.parametrize("ours", [None, SAVES])
def test_formats(tmp_path: Path, ours: Any) -> None:
    base = write(tmp_path / "a", run_of({2: 1}), ours, format="v1")
    assert found(base, against(write(tmp_path / "b", run_of()))) == [(2, "gradient/a_weight")]


def test_runs_of_the_same_name_are_told_apart(tmp_path: Path) -> None:
    base, other = write(tmp_path / "1/run", run_of({0: 1})), write(tmp_path / "2/run", run_of())
    assert f"is not what it is in {other}: " in findings(base, against(other))[0].message


def test_a_trial_may_be_given(tmp_path: Path) -> None:
    other = create_trial(write(tmp_path / "b", run_of()))
    rule = SimilarAcrossRuns(create_trial(write(tmp_path / "a", run_of({2: 1, 3: 1}))), other)
    assert rule.other_trials == [other]
    assert [each.step for each in look(rule)] == [2]
    assert invoked(rule) == [2, 3]


class TestLive:
    """Runs that are still going."""

    def test_steps_the_other_has_not_reached_are_compared_later(self, tmp_path: Path) -> None:
        base = write(tmp_path / "a", run_of({1: 1, 4: 1}))
        job = Growing(tmp_path / "b")
        runner = RuleRunner(create_trial(base), [against(job.path)], record=False)
        assert runner.look() == []
        rule = runner.rules[0]
        assert isinstance(rule, SimilarAcrossRuns)
        steps = []
        for step, tensors in run_of().items():
            job.add(step, tensors)
            # A listing that took long is put off; this is not about that.
            rule.trials[1].refresh_data()
            steps.append([each.step for each in rule.idle(0.0)])
        assert steps == [[], [1], [], [], [4], []]
        job.close()
        assert rule.missing() == ""

    def test_the_end_of_the_other_is_compared_at_the_end(self, tmp_path: Path) -> None:
        base = write(tmp_path / "a", run_of({1: 1}))
        job = Growing(tmp_path / "b")
        runner = RuleRunner(create_trial(base), [against(job.path)], record=False)
        assert runner.look() == []
        for step, tensors in run_of().items():
            job.add(step, tensors)
        job.close()
        assert [each.step for each in runner.finish()["SimilarAcrossRuns"].findings] == [1]

    def test_both_grow(self, tmp_path: Path) -> None:
        base, other = Growing(tmp_path / "a"), Growing(tmp_path / "b", SAVES)
        mine, theirs = run_of({1: 1, 2: 1, 5: 1}, range(8)), run_of({}, range(8))
        base.add(0, mine[0])
        rule = SimilarAcrossRuns(create_trial(base.path), create_trial(other.path))
        ahead = 0
        result = []
        for step in range(1, 8):
            base.add(step, mine[step])
            rule.base_trial.refresh_data()
            # The other lags, then catches up, then is ahead.
            while ahead < min(2 * step - 5, 8):
                other.add(ahead, theirs[ahead])
                ahead += 1
            result += look(rule)
        base.close()
        other.close()
        result += rule.finish()
        whole = findings(base.path, against(other.path))
        assert [each.step for each in whole] == [1, 5]
        assert result == whole

    def test_invoked_rules_see_the_other_grow(self, tmp_path: Path) -> None:
        base = write(tmp_path / "a", run_of({1: 1, 3: 1}))
        job = Growing(tmp_path / "b")
        rule = SimilarAcrossRuns(create_trial(base), create_trial(job.path))
        fired = []
        for step, tensors in run_of().items():
            job.add(step, tensors)
            rule.other_trial.refresh_data()  # type: ignore[union-attr]
            if rule.invoke_at_step(step):
                fired.append(step)
        job.close()
        assert fired == [1, 3]


def test_step_by_step_is_the_same(tmp_path: Path) -> None:
    other = write(tmp_path / "o", run_of({}, range(10)))
    mine = run_of({1: 1, 2: 1, 5: 1, 9: 1}, range(10))
    whole = findings(write(tmp_path / "a", mine), against(other))
    job = Growing(tmp_path / "b")
    rule = SimilarAcrossRuns(create_trial(job.path), other)
    result = []
    for step, tensors in mine.items():
        job.add(step, tensors)
        rule.base_trial.refresh_data()
        result += look(rule)
    job.close()
    assert [each.step for each in whole] == [1, 5, 9]
    assert result == whole


def test_nothing_in_common_could_not_run(tmp_path: Path) -> None:
    base = write(tmp_path / "a", run_of(steps=[0, 1]))
    for name, run, saves in [
        ("b", run_of(steps=[5, 6]), None),
        ("c", {0: {"other": np.ones(2)}}, None),
    ]:
        other = write(tmp_path / name, run, saves)
        result = outcome(base, against(other))
        assert result.status == "could not run", name
        assert f"{name} has no step" in result.message
    with pytest.raises(InsufficientInformationForRuleInvocation, match="c has no step"):
        invoke_rule(SimilarAcrossRuns(create_trial(base), create_trial(other)))


def test_nothing_chosen_could_not_run(tmp_path: Path) -> None:
    base, other = write(tmp_path / "a", run_of()), write(tmp_path / "b", run_of())
    result = outcome(base, {**against(other), "tensor_regex": "relu"})
    assert result.status == "could not run"
    assert "no tensors that match relu" in result.message


def test_reductions_without_a_common_one_could_not_run(tmp_path: Path) -> None:
    base = write(tmp_path / "a", run_of(), ["min"])
    other = write(tmp_path / "b", run_of({1: 1}), ["max"])
    result = outcome(base, against(other))
    assert result.status == "could not run"


def test_needs_without_opening_the_other() -> None:
    needs = RuleSpec(against("/nowhere/at/all")).needs()
    assert {need.collection for need in needs} == {"losses", "weights", "biases", "gradients"}
    (need,) = RuleSpec({**against("/nowhere"), "collection_names": "relu"}).needs()
    assert (need.collection, set(need.reductions)) == ("relu", set(SAVES))


def test_bad_parameters(tmp_path: Path) -> None:
    for bad in (None, 3, ["a"]):
        with pytest.raises(SMDebugTypeError, match="other_trial"):
            SimilarAcrossRuns(None, bad)
    with pytest.raises(SMDebugValueError, match="other_trial"):
        SimilarAcrossRuns(None, " ")
    base = create_trial(write(tmp_path / "a", run_of()))
    with pytest.raises(TrialNotFound):
        SimilarAcrossRuns(base, str(tmp_path / "none"))
