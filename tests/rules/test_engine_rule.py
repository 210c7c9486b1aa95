"""Rules as scripts for smdebug 1.0 write them: their constructors, what they ask for, `invoke`."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from smdebug.exceptions import (
    NoMoreData,
    RuleEvaluationConditionMet,
    SMDebugTypeError,
    SMDebugValueError,
    StepUnavailable,
    TensorUnavailable,
    TensorUnavailableForStep,
)
from smdebug.mode_keys import ModeKeys
from smdebug.rules import (
    Finding,
    RequiredTensorsForTrial,
    Rule,
    RuleRunner,
    invoke_rule,
    run_rules,
)
from smdebug.storage.batch import Entry, StepBatch
from smdebug.testing.runs import make_run
from smdebug.trials import Trial, create_trial

if TYPE_CHECKING:
    from pathlib import Path

    from smdebug.trials.frame import Frame

REPORT = {
    "RuleTriggered": 0,
    "Violations": 0,
    "Details": {},
    "Datapoints": 0,
    "RuleParameters": "",
}


def batch(worker: str, step: int) -> StepBatch:
    """A loss that grows, a weight, and a gradient of which only reductions are kept."""
    entries = [
        Entry("loss", np.float32(step)),
        Entry("conv.weight", np.full((2, 3), step, np.float32)),
        Entry("fc.weight", np.full((2,), -step, np.float32)),
        Entry("gradient/fc", None, {"l2": 2.0 * step, "abs_mean": 1.0}, (5,), "float32"),
    ]
    if step % 2:
        entries.append(Entry("odd", np.ones(2)))
    mode = ModeKeys.EVAL if step == 3 else ModeKeys.TRAIN
    return StepBatch(step, mode, 0 if step == 3 else step, entries)


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    make_run(tmp_path / "base", range(5), data=batch)
    return create_trial(tmp_path / "base")


@pytest.fixture
def other(tmp_path: Path) -> Trial:
    make_run(tmp_path / "other", range(3), data=batch)
    return create_trial(tmp_path / "other")


class Noted(Rule):
    """Notes the steps at which it is invoked, and fires at some of them."""

    fires_at: tuple[int, ...] = ()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.steps: list[int] = []

    def invoke_at_step(self, step: int) -> bool:
        self.steps.append(step)
        return step in self.fires_at


# ---- constructors


def test_every_way_to_call_the_constructor(trial: Trial, other: Trial) -> None:
    alone = [
        Noted(trial),
        Noted(trial, ""),
        Noted(trial, None),
        Noted(trial, action_str=""),
        Noted(trial, action_str=None),
        Noted(trial, other_trials=None),
        Noted(trial, "", None),
        Noted(trial, action_str="", other_trials=None),
        Noted(base_trial=trial),
        Noted(base_trial=trial, other_trials=None, action_str=""),
    ]
    for rule in alone:
        assert rule.base_trial is trial
        assert rule.other_trials is None
        assert rule.trials == [trial]
    several = [
        Noted(trial, other_trials=[other]),
        Noted(trial, other_trials=(other,)),
        Noted(trial, other_trials=other),
        Noted(trial, [other]),
        Noted(trial, (other,)),
        Noted(trial, other),
        Noted(trial, "", [other]),
        Noted(trial, None, other),
        Noted(trial, action_str="", other_trials=[other]),
    ]
    for rule in several:
        assert rule.base_trial is trial
        assert rule.other_trials == [other]
        assert rule.trials == [trial, other]
        assert rule.req_tensors.get_names(trial=other) == []


def test_no_other_trials(trial: Trial) -> None:
    assert Noted(trial, []).trials == [trial]
    assert Noted(trial, other_trials=[]).trials == [trial]


@pytest.mark.parametrize("wrong", ["x", 5, ["x"], [None], {"a": 1}])
def test_other_trials_must_be_trials(trial: Trial, wrong: Any) -> None:
    with pytest.raises(SMDebugTypeError, match="other_trials must be"):
        Noted(trial, other_trials=wrong)
    with pytest.raises(SMDebugTypeError, match="other_trials must be"):
        Noted(trial, [trial, wrong])


def test_a_text_that_is_no_json_is_refused(trial: Trial) -> None:
    with pytest.raises(SMDebugValueError):
        Noted(trial, "stop it")


def test_attributes_of_the_original(trial: Trial, other: Trial) -> None:
    rule = Noted(trial, "", [other])
    assert rule.rule_name == "Noted"
    assert rule.report == REPORT
    assert isinstance(rule.logger, logging.Logger)
    assert rule.req_tensors.get() == []
    assert hasattr(rule, "_actions")
    rule.report["Details"]["mine"] = 1
    assert Noted(trial).report == REPORT


def test_a_rule_without_a_condition_cannot_be_made(trial: Trial) -> None:
    with pytest.raises(TypeError, match="invoke_at_step"):
        Rule(trial)


# ---- a script as the documentation of the original has it


class LargeWeight(Rule):
    def __init__(self, base_trial: Trial, threshold: float = 3.0) -> None:
        super().__init__(base_trial)
        self.threshold = float(threshold)

    def set_required_tensors(self, step: int) -> None:
        self.req_tensors.add(".*weight$", steps=[step], should_match_regex=True)

    def invoke_at_step(self, step: int) -> bool:
        for tensor in self.req_tensors.get():
            if tensor.reduction_value(step, "max", abs=True) >= self.threshold:
                self.report["Violations"] += 1
                return True
        return False


def test_a_rule_that_names_its_tensors_by_regex(trial: Trial) -> None:
    rule = LargeWeight(trial)
    rule.invoke(2)
    assert rule.req_tensors.get_names() == ["conv.weight", "fc.weight"]
    with pytest.raises(RuleEvaluationConditionMet) as caught:
        rule.invoke(3)
    assert (caught.value.rule_name, caught.value.step) == ("LargeWeight", 3)
    assert not caught.value.end_of_rule
    assert rule.report["Violations"] == 1
    invoke_rule(LargeWeight(trial, "100"))  # type: ignore[arg-type]
    with pytest.raises(RuleEvaluationConditionMet, match="LargeWeight fired at step 4"):
        invoke_rule(LargeWeight(trial), start_step=4, raise_eval_cond=True)


# ---- required tensors


class Asking(Noted):
    """Asks for what a test tells it to."""

    wanted: tuple[tuple[str, dict[str, Any]], ...] = ()

    def set_required_tensors(self, step: int) -> None:
        for name, options in self.wanted:
            steps = options.get("steps", [step])
            self.req_tensors.add(name, **{**options, "steps": steps})


def asking(trial: Trial, *wanted: tuple[str, dict[str, Any]], **options: Any) -> Asking:
    rule = Asking(trial, **options)
    rule.wanted = wanted
    return rule


def test_add_get_and_clear(trial: Trial, other: Trial) -> None:
    tensors = Noted(trial, "", [other]).req_tensors
    tensors.add("loss", steps=[1, 2])
    tensors.add("loss", [2, 3])
    tensors.add("weight", steps=iter([0, 1]), should_match_regex=True)
    tensors.add("odd", steps=[1], trial=other)
    assert tensors.get_names() == ["loss", "conv.weight", "fc.weight"]
    assert [tensor.name for tensor in tensors.get()] == tensors.get_names()
    assert all(tensor.trial is trial for tensor in tensors.get())
    assert tensors.get_names(trial=trial) == tensors.get_names()
    assert tensors.get_names(trial=other) == ["odd"]
    assert tensors.get(other)[0].trial is other
    assert tensors.get_tensor_steps("loss") == [1, 2, 3]
    assert tensors.get_tensor_steps("fc.weight") == [0, 1]
    assert tensors.get_tensor_steps("odd") is None
    assert tensors.get_tensor_steps("odd", trial=other) == [1]
    tensors.fetch()
    tensors.clear()
    assert tensors.get() == tensors.get(other) == []


def test_steps_may_be_any_iterable(trial: Trial) -> None:
    tensors = RequiredTensorsForTrial(trial)
    tensors.add("weight$", (step for step in (1, 2)), should_match_regex=True)
    assert tensors.get_tensor_steps("conv.weight") == [1, 2]
    assert tensors.get_tensor_steps("fc.weight") == [1, 2]


def test_unknown_names_are_refused_and_the_nearest_offered(trial: Trial, other: Trial) -> None:
    tensors = Noted(trial, "", [other]).req_tensors
    with pytest.raises(TensorUnavailable, match=r"conv\.weigth.*conv\.weight"):
        tensors.add("conv.weigth", steps=[0])
    with pytest.raises(TensorUnavailable):
        tensors.add("^nothing$", steps=[0], should_match_regex=True)
    with pytest.raises(TensorUnavailable):
        tensors.add(".*weight", steps=[0])
    assert tensors.get_names() == []


def test_a_trial_that_is_not_the_rules_is_refused(trial: Trial, other: Trial) -> None:
    with pytest.raises(SMDebugValueError, match="other_trials"):
        Noted(trial).req_tensors.add("loss", steps=[0], trial=other)


def test_one_run_opened_twice_is_two_trials(trial: Trial) -> None:
    early = create_trial(trial.path, range_steps=(0, 2))
    tensors = Noted(trial, "", [early]).req_tensors
    tensors.add("loss", steps=[4])
    tensors.add("loss", steps=[1], trial=early)
    assert tensors.get_tensor_steps("loss") == [4]
    assert tensors.get_tensor_steps("loss", trial=early) == [1]
    assert tensors.get()[0].trial is trial
    assert tensors.get(early)[0].trial is early
    tensors.fetch()


def test_fetch_of_reductions_only(trial: Trial) -> None:
    rule = asking(trial, ("gradient/fc", {}))
    invoke_rule(rule)
    assert rule.steps == [0, 1, 2, 3, 4]
    (tensor,) = rule.req_tensors.get()
    assert tensor.reduction_value(4, "l2") == 8.0


def test_a_step_without_a_required_tensor_is_passed_over(trial: Trial) -> None:
    rule = asking(trial, ("loss", {}), ("odd", {}))
    invoke_rule(rule)
    assert rule.steps == [1, 3]
    with pytest.raises(TensorUnavailableForStep):
        rule.invoke(2)


def test_an_unknown_tensor_is_swallowed_at_every_step(trial: Trial) -> None:
    rule = asking(trial, ("nothing", {}))
    invoke_rule(rule)
    assert rule.steps == []
    with pytest.raises(TensorUnavailable):
        rule.invoke(0)


def test_the_other_trial_is_read_too(trial: Trial, other: Trial) -> None:
    rule = asking(trial, ("loss", {}), ("loss", {"trial": other}), other_trials=[other])
    invoke_rule(rule, end_step=3)
    assert rule.steps == [0, 1, 2]
    assert [tensor.trial.name for tensor in rule.req_tensors.get(other)] == ["other"]
    # There the other one has ended: the rest cannot be compared.
    invoke_rule(rule)
    assert rule.steps == [0, 1, 2, 0, 1, 2]


def test_earlier_steps_may_be_required(trial: Trial) -> None:
    class Change(Noted):
        def set_required_tensors(self, step: int) -> None:
            self.req_tensors.add("loss", steps=[step - 1, step])

        def invoke_at_step(self, step: int) -> bool:
            (loss,) = self.req_tensors.get()
            steps = self.req_tensors.get_tensor_steps("loss")
            assert steps == [step - 1, step]
            before, now = (loss.value(each) for each in steps)
            return super().invoke_at_step(step) or bool(now - before != 1)

    rule = Change(trial)
    invoke_rule(rule, raise_eval_cond=True)
    assert rule.steps == [1, 2, 3, 4]


# ---- invoke


def test_invoke_says_why_it_does_not_run(trial: Trial) -> None:
    rule = Noted(trial)
    rule.invoke(4)
    with pytest.raises(NoMoreData):
        rule.invoke(5)
    with pytest.raises(StepUnavailable):
        Noted(create_trial(trial.path, range_steps=(2, None))).invoke(1)
    assert rule.steps == [4]


def test_trials_are_not_refreshed_while_a_rule_looks(trial: Trial, other: Trial) -> None:
    seen = []

    class Looking(Noted):
        def invoke_at_step(self, step: int) -> bool:
            seen.append([each.dynamic_refresh for each in self.trials])
            raise KeyError("mine")

    rule = Looking(trial, "", [other])
    with pytest.raises(KeyError, match="mine"):
        rule.invoke(0)
    assert seen == [[False, False]]
    assert (trial.dynamic_refresh, other.dynamic_refresh) == (True, True)
    # Other errors of a rule are not swallowed.
    with pytest.raises(KeyError, match="mine"):
        invoke_rule(rule)


def test_in_a_runner_a_rule_sees_all_its_trials_at_rest(trial: Trial, other: Trial) -> None:
    seen = []

    class Looking(Noted):
        def invoke_at_step(self, step: int) -> bool:
            seen.append([each.dynamic_refresh for each in self.trials])
            return False

    RuleRunner(trial, [Looking(trial, "", [other])], record=False).run()
    assert seen == [[False, False]] * 5
    assert (trial.dynamic_refresh, other.dynamic_refresh) == (True, True)


def test_truth_of_any_kind_counts(trial: Trial) -> None:
    class Numpy(Rule):
        def invoke_at_step(self, step: int) -> Any:
            return np.bool_(step == 1)

    Numpy(trial).invoke(0)
    with pytest.raises(RuleEvaluationConditionMet):
        Numpy(trial).invoke(1)


@pytest.mark.parametrize("kind", ["sentence", "finding", "several", "generator"])
@pytest.mark.parametrize("method", ["invoke_at_step", "check"])
def test_what_a_rule_may_return(trial: Trial, kind: str, method: str) -> None:
    """A sentence, a finding or several of them, from either method."""
    mine = Finding("Mine", 1, "as I say", "loss", 2.0, 1.0)

    def result(step: int) -> Any:
        if step != 1:
            return None if kind == "finding" else "" if kind == "sentence" else []
        return {
            "sentence": "too large", "finding": mine, "several": [mine, "too large"],
            "generator": (each for each in (mine, False, "too large")),
        }[kind]  # fmt: skip

    class Mine(Rule):
        if method == "check":

            def check(self, frame: Frame) -> Any:
                return [result(step) for step in frame.steps[frame.steps <= 1].tolist()]

        else:

            def invoke_at_step(self, step: int) -> Any:
                return result(step)

    part = Trial(trial.path, range_steps=(0, 2), store=trial.store)
    found = run_rules(part, [Mine(part)], record=False).findings
    expected = {"sentence": ["too large"], "finding": ["as I say"]}
    assert [each.message for each in found] == expected.get(kind, ["as I say", "too large"])
    assert {each.step for each in found} == {1}
    if kind != "sentence":
        assert found[0] == mine


def test_what_is_recorded_of_a_rule_that_fires(trial: Trial) -> None:
    finding = Noted(trial).finding_at(3)
    assert (finding.rule, finding.step) == ("Noted", 3)
    assert (finding.mode, finding.mode_step) == (ModeKeys.EVAL, 0)
    summary = "Notes the steps at which it is invoked, and fires at some of them"
    assert finding.message == f"its condition holds ({summary})"
    unknown = Noted(trial).finding_at(77)
    assert (unknown.mode, unknown.mode_step) == (ModeKeys.GLOBAL, None)
