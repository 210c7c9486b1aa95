"""Many rules over one run: together as alone, at once as step by step, and what is kept of it."""

from __future__ import annotations

import itertools
import json
import logging
import math
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from smdebug.analysis.utils import no_refresh
from smdebug.config.collection import Collection
from smdebug.config.collection_manager import CollectionManager
from smdebug.config.rule_requirements import TensorRequirement
from smdebug.exceptions import (
    InsufficientInformationForRuleInvocation,
    RuleEvaluationConditionMet,
    SMDebugValueError,
)
from smdebug.mode_keys import ModeKeys
from smdebug.rules import Finding, Outcome, Rule, RuleReport, RuleRunner, run_rules
from smdebug.rules.builtin.vanishing_gradient import VanishingGradient
from smdebug.rules.registry import BUILTIN_RULES, RuleSpec, make_rule
from smdebug.rules.rule import COOLDOWN_STEPS
from smdebug.rules.rule_frames import rule_frames
from smdebug.storage.batch import Entry, StepBatch
from smdebug.storage.findings import read_reports
from smdebug.storage.stores.base import open_store
from smdebug.storage.stores.memory import MemoryStore
from smdebug.storage.writer import RunWriter
from smdebug.testing.runs import make_run
from smdebug.trials import Trial, create_trial
from smdebug.trials.refresh import Refresher

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from smdebug.trials.frame import Frame

TRAIN, EVAL = ModeKeys.TRAIN, ModeKeys.EVAL
_NUMBERS = itertools.count()


def manager() -> CollectionManager:
    return CollectionManager(
        [
            Collection("gradients", include_regex="^gradient/"),
            Collection("weights", include_regex="^(?!gradient).*weight"),
            Collection("losses", include_regex="loss"),
        ]
    )


def fresh_url() -> str:
    return f"memory://test_engine_runner/{next(_NUMBERS)}"


class Above(Rule):
    """Fires where the mean of a tensor is above a limit."""

    reads = ("mean",)

    def __init__(self, base_trial: Trial | None, limit: Any = 1.0, action_str: Any = "") -> None:
        super().__init__(base_trial, action_str)
        self.limit = float(limit)
        self.tensors = self.choose(regexes=".*")

    def needs(self) -> tuple[TensorRequirement, ...]:
        return (TensorRequirement("all", reductions=("mean",)),)

    def check(self, frame: Frame) -> Iterable[Finding]:
        table = self.read(frame, "mean", self.tensors)
        return self.findings_where(
            frame, table, table.values > self.limit,
            lambda column, value: f"{column.tensor} is {value:g}", self.limit,
        )  # fmt: skip


class Classic(Rule):
    """The same as `Above` for the tensor `a`, invoked step by step."""

    def invoke_at_step(self, step: int) -> bool:
        return bool(self.base_trial.tensor("a").reduction_value(step, "mean") > 1)


Values = dict[int, dict[str, Any]]


def batches(
    values: Values, modes: Mapping[int, ModeKeys] | None = None, worker: str = "worker_0"
) -> dict[tuple[str, int], StepBatch]:
    counts = {mode: itertools.count() for mode in ModeKeys}
    made = {}
    for step, tensors in values.items():
        mode = (modes or {}).get(step, TRAIN)
        entries = [Entry(name, np.asarray(value)) for name, value in tensors.items()]
        made[worker, step] = StepBatch(step, mode, next(counts[mode]), entries)
    return made


def run_of(values: Values, **options: Any) -> Trial:
    url = fresh_url()
    modes = options.pop("modes", None)
    make_run(
        open_store(url), values, data=batches(values, modes), collections=manager(), **options
    )  # fmt: skip
    return create_trial(url)


def course(values: Sequence[float], name: str = "a") -> Values:
    return {step: {name: float(value)} for step, value in enumerate(values)}


def places(findings: Iterable[Finding]) -> list[tuple[int, str | None]]:
    return [(finding.step, finding.tensor) for finding in findings]


def counted(findings: Iterable[Finding]) -> dict[Finding, int]:
    found: dict[Finding, int] = {}
    for finding in findings:
        found[finding] = found.get(finding, 0) + 1
    return found


# ---- one rule


def test_found_passed_and_where(tmp_path: Path) -> None:
    trial = run_of(course([0, 0, 5, 5, 0]))
    report = run_rules(trial, [Above, (Above, {"limit": 9})])
    first, second = report.outcomes
    assert (first.status, second.status) == ("found", "passed")
    (finding,) = first.findings
    assert (finding.step, finding.tensor, finding.worker) == (2, "a", "worker_0")
    assert (finding.value, finding.threshold) == (5.0, 1.0)
    assert (finding.mode, finding.mode_step) == (TRAIN, 2)
    assert (report.last_step, report.trial) == (4, trial.name)
    assert report.findings == first.findings
    assert report["Above"] is first
    with pytest.raises(KeyError):
        report["Below"]


def test_a_path_is_a_trial(tmp_path: Path) -> None:
    make_run(tmp_path / "run", data=batches(course([5, 0, 0])), collections=manager())
    report = run_rules(str(tmp_path / "run"), [Above])
    assert places(report.findings) == [(0, "a")]
    assert report.trial == "run"
    assert places(run_rules(tmp_path / "run", [Above]).findings) == [(0, "a")]


def test_one_rule_need_not_stand_in_a_list() -> None:
    trial = run_of({0: {"gradient/a": 0.0}})
    for one in ("VanishingGradient", VanishingGradient, {"rule": "VanishingGradient"}):
        assert len(run_rules(trial, one, record=False).findings) == 1
    assert len(run_rules(trial, VanishingGradient(trial), record=False).findings) == 1


def test_no_rules_and_rules_of_another_trial_are_refused() -> None:
    trial, other = run_of(course([0])), run_of(course([0]))
    with pytest.raises(SMDebugValueError, match="at least one"):
        RuleRunner(trial, [])
    with pytest.raises(SMDebugValueError, match="rules must be of the trial"):
        RuleRunner(trial, [Above(other)])
    with pytest.raises(SMDebugValueError, match="rules must be of the trial"):
        RuleRunner(trial, [Above, Classic(other)])
    part = Trial(trial.path, range_steps=(0, 1))
    with pytest.raises(SMDebugValueError, match="rules must be of the trial"):
        RuleRunner(trial, [Above(part)])


def test_a_rule_that_was_used_before_finds_the_same_again() -> None:
    trial = run_of(course([5, 5, 0]))
    rule = Above(trial)
    for _ in range(3):
        assert places(run_rules(trial, [rule], record=False).findings) == [(0, "a")]
    with pytest.raises(RuleEvaluationConditionMet):
        rule.invoke(1)
    assert places(run_rules(trial, [rule], record=False).findings) == [(0, "a")]


# ---- many rules, finished and growing


@st.composite
def wavering(draw: st.DrawFn) -> tuple[Values, dict[int, ModeKeys]]:
    """A run in which tensors waver around the limits of rules, some of them now and then."""
    length = draw(st.integers(1, 60))
    random = np.random.default_rng(draw(st.integers(0, 10**6)))
    values: Values = {}
    for step in range(0, 3 * length, 3):
        tensors: dict[str, Any] = {}
        for name in ("a", "fc.weight", "gradient/fc.weight", "loss"):
            if random.random() < 0.9:
                chances = [0.1, 0.1, 0.4, 0.3, 0.05, 0.05]
                scale = random.choice([0.0, 1e-9, 1.0, 3.0, np.nan, np.inf], p=chances)
                size = 1 if name == "loss" else 4
                tensors[name] = random.standard_normal(size) * scale
        values[step] = tensors or {"a": 0.0}
    modes = {step: EVAL if random.random() < 0.3 else TRAIN for step in values}
    return values, modes


RULES: list[Any] = [
    "VanishingGradient",
    "VanishingGradient:threshold=0.5",
    Above,
    (Above, {"limit": 0.2}),
    "TensorVariance:collection_names=weights,max_threshold=0.5,min_threshold=1e-12",
    {"rule": "AllZero", "tensor_regex": ".*weight"},
    "ExplodingTensor",
    "LossNotDecreasing",
    Classic,
]
SETTINGS = settings(
    deadline=None, max_examples=12, suppress_health_check=[HealthCheck.too_slow]
)  # fmt: skip


def by_rule(report: RuleReport) -> list[tuple[str, str, dict[Finding, int]]]:
    return [(each.rule, each.status, counted(each.findings)) for each in report.outcomes]


@given(wavering())
@SETTINGS
def test_together_rules_find_what_each_finds_alone(
    run: tuple[Values, dict[int, ModeKeys]],
) -> None:
    values, modes = run
    trial = run_of(values, modes=modes)
    together = run_rules(trial, RULES, record=False)
    alone = [run_rules(trial, [rule], record=False).outcomes[0] for rule in RULES]
    assert by_rule(together) == by_rule(RuleReport(alone))
    assert by_rule(run_rules(trial, RULES[::-1], record=False)) == by_rule(together)[::-1]


class Growing:
    """A run that grows when it is told to."""

    def __init__(self, workers: Sequence[str] = ("worker_0",)) -> None:
        self.url = fresh_url()
        self._writers = {}
        for worker in workers:
            collections = manager()
            collections.set_num_workers(len(workers))
            writer = RunWriter(open_store(self.url), worker)
            writer.write_collections(collections.to_json())
            writer.flush()
            self._writers[worker] = writer

    def add(self, batch: StepBatch, worker: str = "worker_0") -> None:
        writer = self._writers[worker]
        writer.submit(batch, finish=True)
        writer.flush()

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()


@given(wavering())
@SETTINGS
def test_step_by_step_the_same_is_found_as_at_once(
    run: tuple[Values, dict[int, ModeKeys]],
) -> None:
    values, modes = run
    made = batches(values, modes)
    job = Growing()
    runner = RuleRunner(create_trial(job.url), RULES)
    found = []
    for number, batch in enumerate(made.values()):
        job.add(batch)
        # A listing that took long is put off; this is not about that.
        runner.trial.refresh_data()
        found += runner.look()
        assert runner.last_step == batch.step
        assert number or len(runner.look()) == 0
    job.close()
    live = runner.finish()
    whole = run_rules(run_of(values, modes=modes), RULES, record=False)
    assert by_rule(live) == by_rule(whole)
    ended = [finding for finding in whole.findings if finding not in counted(found)]
    assert counted([*found, *ended]) == counted(whole.findings)
    assert set(runner.trial.findings()) == set(whole.findings)


def test_rule_frames_any_size_find_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(4)
    values = {
        step: {name: random.standard_normal(3) * random.choice([0.0, 1.0, 4.0]) for name in "abcd"}
        for step in range(100)
    }
    trial = run_of(values)
    whole = by_rule(run_rules(trial, RULES, record=False))
    assert sum(len(found) for _, _, found in whole) > 10
    for most in (1, 4, 9, 40, 399):
        monkeypatch.setattr("smdebug.rules.rule_frames.MAX_ROWS", most)
        blocks = list(rule_frames(trial, 0, ["mean"]))
        assert len(blocks) == math.ceil(100 / max(most // 4, 1))
        assert by_rule(run_rules(trial, RULES, record=False)) == whole


def test_several_workers_are_judged_each_by_itself() -> None:
    url, workers = fresh_url(), ("worker_0", "worker_1")
    data = {
        **batches(course([0, 5, 5, 0]), worker="worker_0"),
        **batches(course([0, 0, 5, 5]), worker="worker_1"),
    }
    make_run(open_store(url), range(4), workers, data=data, collections=manager())
    found = run_rules(create_trial(url), [Above]).findings
    assert [(each.step, each.worker) for each in found] == [(1, "worker_0"), (2, "worker_1")]


def test_a_step_is_judged_when_all_workers_have_delivered_it() -> None:
    job = Growing(["worker_0", "worker_1"])
    runner = RuleRunner(create_trial(job.url), [Above])
    first = list(batches(course([5, 0])).values())
    job.add(first[0], "worker_0")
    assert (runner.look(), runner.last_step) == ([], -1)
    job.add(first[0], "worker_1")
    runner.trial.refresh_data()
    assert len(runner.look()) == 2
    job.add(first[1], "worker_1")
    assert (runner.look(), runner.last_step) == ([], 0)
    job.close()
    assert runner.finish().last_step == 1


def test_a_finding_says_mode_and_mode_step() -> None:
    modes = {0: TRAIN, 1: EVAL, 2: TRAIN, 3: EVAL}
    trial = run_of(course([0, 0, 0, 5]), modes=modes)
    (finding,) = run_rules(trial, [Above]).findings
    assert (finding.mode, finding.mode_step) == trial.mode_modestep(3)
    assert finding.mode is EVAL


def test_the_range_of_a_trial_bounds_what_is_judged() -> None:
    url = run_of(course([5, 0, 5, 5, 0, 5])).path
    trial = create_trial(url, range_steps=(1, 4))
    report = run_rules(trial, [Above, Classic], record=False)
    assert [each.step for each in report["Above"].findings] == [2]
    assert report.last_step == 3
    outside = create_trial(url, range_steps=(50, 60))
    report = run_rules(outside, [Above, Classic], record=False)
    assert [each.status for each in report.outcomes] == ["could not run"] * 2
    assert report.last_step == -1


def test_it_follows_a_job_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("smdebug.rules.runner._PAUSE", 0.01)
    job, told = Growing(), threading.Semaphore(0)

    def train() -> None:
        for step in range(3):
            # A tensor of its own for each step, so that each is found anew.
            entry = Entry(f"t{step}", np.float64(5))
            job.add(StepBatch(step, TRAIN, step, [entry]))
            assert told.acquire(timeout=60)
        job.close()

    thread = threading.Thread(target=train)
    thread.start()
    report = run_rules(job.url, [Above], on_finding=lambda finding: told.release())
    thread.join(60)
    assert places(report.findings) == [(0, "t0"), (1, "t1"), (2, "t2")]
    assert report.last_step == 2


def test_an_evaluation_can_be_stopped_early() -> None:
    job, stop = Growing(), threading.Event()
    job.add(StepBatch(0, TRAIN, 0, [Entry("a", np.float64(5))]))
    stop.set()
    runner = RuleRunner(create_trial(job.url), [Above])
    assert len(runner.run(stop=stop).findings) == 1
    assert len(RuleRunner(create_trial(job.url), [Above]).run(follow=False).findings) == 1
    job.close()


def test_the_last_look_sees_the_last_step_however_dear_looking_is() -> None:
    job = Growing()
    trial = create_trial(job.url)
    now = 0.0

    class Slow(Refresher):
        """As if every listing took a second."""

        def run(self, newest_step: int | None, full: bool = False) -> bool:
            changed = super().run(newest_step, full)
            self._cost = self._full_cost = 1.0
            return changed

    trial._refresher = Slow(trial._reader, lambda: now)
    runner = RuleRunner(trial, [Above])
    runner.look()
    job.add(StepBatch(0, TRAIN, 0, [Entry("a", np.float64(5))]))
    assert runner.look() == []
    job.close()
    assert len(runner.finish().findings) == 1


def test_a_trial_that_must_not_be_refreshed_is_not() -> None:
    job = Growing()
    trial = create_trial(job.url)
    runner = RuleRunner(trial, [Above], record=False)
    with no_refresh(trial):
        job.add(StepBatch(0, TRAIN, 0, [Entry("a", np.float64(5))]))
        assert runner.finish().last_step == -1
    job.close()


# ---- rules that fail, and those that cannot run


class Failing(Above):
    def check(self, frame: Frame) -> Iterator[Finding]:
        yield from super().check(frame)
        if frame.steps[-1] >= 3:
            raise ZeroDivisionError("mine")


class ClassicFailing(Classic):
    def invoke_at_step(self, step: int) -> bool:
        if step == 3:
            raise ZeroDivisionError("mine")
        return super().invoke_at_step(step)


def test_a_rule_that_raises_is_out_and_the_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    job = Growing()
    runner = RuleRunner(create_trial(job.url), [Failing, Above, ClassicFailing, Classic])
    with caplog.at_level(logging.ERROR, "smdebug.rules"):
        for batch in batches(course([5, 0, 0, 0, 0])).values():
            job.add(batch)
            runner.look()
    job.close()
    report = runner.finish()
    assert [each.status for each in report.outcomes] == ["failed", "found", "failed", "found"]
    assert report["Failing"].message == "ZeroDivisionError: mine"
    # What was found before it failed stays, once.
    assert places(report["Failing"].findings) == [(0, "a")]
    assert places(report["ClassicFailing"].findings) == [(0, None)]
    logged = [record for record in caplog.records if record.exc_info]
    assert len(logged) == 2
    assert "Failing failed" in logged[0].getMessage()


def test_an_on_finding_that_raises_is_not_the_fault_of_a_rule(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told = []

    def tell(finding: Finding) -> None:
        told.append(finding)
        raise ZeroDivisionError("mine")

    trial = run_of({0: {"a": 5.0, "b": 5.0}, 1: {"c": 5.0}})
    report = run_rules(trial, [Above, Classic], on_finding=tell)
    assert [each.status for each in report.outcomes] == ["found", "found"]
    assert counted(told) == counted(report.findings)
    assert len(told) == 4
    assert sum("on_finding failed" in record.getMessage() for record in caplog.records) == 4


def test_could_not_run_is_not_passed() -> None:
    class Unmet(Classic):
        def set_required_tensors(self, step: int) -> None:
            self.req_tensors.add("nothing", steps=[step])

    class Refusing(Above):
        def check(self, frame: Frame) -> Iterable[Finding]:
            raise InsufficientInformationForRuleInvocation(self.rule_name, "I need more")

    trial = run_of({0: {"b": 0.0}, 1: {"b": 0.0}})
    variance = "TensorVariance:tensor_regex=b,max_threshold=1"
    rules = ["VanishingGradient", Unmet, Classic, Refusing, Above, variance]
    report = run_rules(trial, rules)
    assert [each.status for each in report.outcomes] == [*["could not run"] * 4, "passed", "passed"]
    assert "gradients" in report.outcomes[0].message
    assert "nothing" in report.outcomes[1].message
    assert "Tensor a " in report.outcomes[2].message
    assert report.outcomes[3].message == "I need more"


def test_a_run_without_steps_passes_no_rule() -> None:
    report = run_rules(run_of({}), [Above, Classic, "VanishingGradient"])
    assert [each.status for each in report.outcomes] == ["could not run"] * 3
    assert report.last_step == -1


@pytest.mark.parametrize("name", sorted(BUILTIN_RULES))
def test_no_built_in_rule_passes_a_run_without_steps_or_with_other_tensors(name: str) -> None:
    given: dict[str, Any] = {"rule": name, **ARGUMENTS.get(name, {})}
    runs: list[Values] = [{}, {step: {"x": np.array(["text"])} for step in range(3)}]
    for values in runs:
        trial = run_of(values)
        if name == "SimilarAcrossRuns":
            given["other_trial"] = trial
        (outcome,) = run_rules(trial, [given], record=False).outcomes
        if name in ANY_STEP and values:
            continue
        assert outcome.status == "could not run", (outcome, values)
        assert outcome.message


# What built-in rules must be told; those of the second only need steps, whatever is in them.
ARGUMENTS: dict[str, dict[str, Any]] = {
    "AllZero": {"tensor_regex": ".*"},
    "TensorVariance": {"tensor_regex": ".*", "max_threshold": 1},
    "UnchangedTensor": {"tensor_regex": ".*"},
}
ANY_STEP = {"StalledTrainingRule", "SimilarAcrossRuns", "UnchangedTensor", "CreateXgboostReport"}


def test_damaged_data_fails_every_rule_that_needs_it(tmp_path: Path) -> None:
    values = {step: {"a": np.arange(50.0), "b": 7.0} for step in range(3)}
    make_run(tmp_path, values, data=batches(values), collections=manager())
    (file,) = (tmp_path / "events").rglob("*.tfevents")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 255
    file.write_bytes(bytes(content))

    class OnlyB(Above):
        def __init__(self, base_trial: Trial | None) -> None:
            super().__init__(base_trial)
            self.choices.clear()
            self.tensors = self.choose(regexes="^b$")

    report = run_rules(create_trial(tmp_path), [Above, (Above, {"limit": 2}), Classic, OnlyB])
    assert [each.status for each in report.outcomes] == ["failed", "failed", "failed", "found"]


def test_the_end_of_another_trial_is_no_failure() -> None:
    trial, other = run_of(course([0, 5, 0, 5])), run_of(course([0, 0]))

    class Compared(Rule):
        def set_required_tensors(self, step: int) -> None:
            for each in self.trials:
                self.req_tensors.add("a", steps=[step], trial=each)

        def invoke_at_step(self, step: int) -> bool:
            mine, theirs = (each.tensor("a").value(step) for each in self.trials)
            return bool(mine != theirs)

    (outcome,) = run_rules(trial, [Compared(trial, "", [other])]).outcomes
    assert (outcome.status, places(outcome.findings)) == ("found", [(1, "a")])


def test_a_rule_may_raise_its_condition_itself_and_say_that_it_is_done() -> None:
    met = []

    class Once(Rule):
        def invoke_at_step(self, step: int) -> bool:
            met.append(step)
            if step >= 1:
                raise RuleEvaluationConditionMet(self.rule_name, step, end_of_rule=step == 2)
            return False

    trial = run_of(course([0] * 6))
    (outcome,) = run_rules(trial, [Once]).outcomes
    assert outcome.status == "found"
    assert outcome.findings[0].step == 1
    assert met == [0, 1, 2]


# ---- classic rules beside rules over columns


def test_both_kinds_of_rules_see_the_same_steps() -> None:
    trial = run_of({0: {"a": 0.0}, 2: {"a": 5.0}, 3: {"b": 1.0}, 30: {"a": 5.0}})
    report = run_rules(trial, [Above, Classic, VanishingGradient(trial), Classic(trial)])
    assert places(report.outcomes[0].findings) == [(2, "a")]
    assert places(report.outcomes[1].findings) == [(2, None)]
    assert report.outcomes[3].findings == report.outcomes[1].findings
    assert report.outcomes[2].status == "could not run"


# ---- repeats


def steps_found(values: Sequence[float]) -> list[int]:
    return [each.step for each in run_rules(run_of(course(values)), [Above]).findings]


def test_what_goes_on_is_found_once() -> None:
    assert steps_found([5] * 300) == [0]


@pytest.mark.parametrize(
    ("quiet", "again"), [(1, False), (COOLDOWN_STEPS - 1, False), (COOLDOWN_STEPS, True)]
)
def test_what_comes_back_is_new_after_so_many_steps(quiet: int, again: bool) -> None:
    found = steps_found([0, 5, *[0] * quiet, 5, 0])
    assert found == ([1, quiet + 2] if again else [1])


def test_what_wavers_is_one_finding() -> None:
    assert steps_found([0, 5] * 200) == [1]


def test_repeats_are_counted_in_saved_steps_and_for_each_tensor_and_worker() -> None:
    values: Values = {
        step * 1000: {"a": 5.0 * (step in (0, 5)), "b": 5.0 * (step == 5)} for step in range(9)
    }
    assert places(run_rules(run_of(values), [Above]).findings) == [(0, "a"), (5000, "b")]


class Several(Rule):
    """Finds several things about one tensor at one step."""

    def needs(self) -> tuple[TensorRequirement, ...]:
        return ()

    def check(self, frame: Frame) -> Iterator[Finding]:
        for step in frame.steps.tolist():
            for number in range(3):
                if self.started(number, True, step):
                    yield self.finding(frame, step, f"class {number} is bad", frame.columns[0])


def test_several_findings_at_one_step_are_no_repeats() -> None:
    report = run_rules(run_of(course([0] * 4)), [Several])
    assert [each.message for each in report.findings] == [f"class {n} is bad" for n in range(3)]


# ---- what is kept


def test_two_of_one_kind_act_and_record_each_by_itself() -> None:
    trial = run_of(course([0, 2, 2, 7]))
    rules = [Above(trial, 1), Above(trial, 5)]
    acted: list[tuple[float, int]] = []
    for rule in rules:
        rule.act = lambda finding, rule=rule: acted.append((rule.limit, finding.step))  # type: ignore[method-assign,misc]
    report = run_rules(trial, rules)
    assert [places(each.findings) for each in report.outcomes] == [[(1, "a")], [(3, "a")]]
    assert acted == [(1.0, 1), (5.0, 3)]
    assert [(each.step, each.threshold) for each in trial.findings()] == [(1, 1.0), (3, 5.0)]


def test_outcomes_say_what_a_rule_was_told() -> None:
    trial = run_of(course([0, 2]))
    run_rules(trial, [(Above, {"limit": "1"}), {"rule": Above, "limit": 5}, Above])
    (report,) = read_reports(trial.store)
    assert [each["parameters"] for each in report["rules"]] == [{"limit": "1"}, {"limit": 5}, {}]
    assert [each["status"] for each in report["rules"]] == ["found", "passed", "found"]
    assert [each["first_step"] for each in report["rules"]] == [1, None, 1]
    assert report["last_step"] == 1


class Odd(Rule):
    """Finds what is hard to write down."""

    found = (
        Finding("Odd", 0, "NaN", "a", math.nan, math.inf, TRAIN, 0, "worker_0"),
        Finding("Odd", 0, "ünï 漢字 🎉\n\"'", "Ünï/漢字:0", -math.inf, math.nan),
        Finding("Odd", 1, "nothing else"),
        Finding("Odd", 1, "", "", 0.0, -0.0, ModeKeys.PREDICT, 2**40, ""),
    )

    def needs(self) -> tuple[TensorRequirement, ...]:
        return ()

    def check(self, frame: Frame) -> Iterable[Finding]:
        return self.found


def test_findings_of_every_kind_are_recorded_once_however_often_rules_run() -> None:
    trial = run_of(course([0, 0]))
    for _ in range(3):
        report = run_rules(trial, [Odd])
        assert set(report.findings) == set(Odd.found)
        recorded = create_trial(trial.path).findings()
        assert len(recorded) == len(Odd.found)
        assert set(recorded) == set(Odd.found)
    assert len([key for key in trial.store.list("findings/") if key.endswith("parquet")]) == 1
    assert len(read_reports(trial.store)) == 3


def test_nothing_is_recorded_when_nothing_shall_be() -> None:
    trial = run_of(course([5]))
    assert len(run_rules(trial, [Above], record=False).findings) == 1
    assert list(trial.store.list("findings/")) == []


class ReadOnly(MemoryStore):
    """A run of somebody else."""

    def write(self, key: str, chunks: Any) -> None:
        if key.startswith("findings/"):
            raise PermissionError(f"{key}: not yours")
        super().write(key, chunks)


def test_a_run_that_may_only_be_read_is_judged_all_the_same(
    caplog: pytest.LogCaptureFixture,
) -> None:
    url = fresh_url()
    store = MemoryStore._named[url] = ReadOnly(url)
    make_run(store, range(2), data=batches(course([0, 5])), collections=manager())
    report = run_rules(url, [Above])
    assert places(report.findings) == [(1, "a")]
    assert any("not yours" in record.getMessage() for record in caplog.records)


def test_damaged_findings_of_before_keep_no_rule_from_running(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for record in (True, False):
        trial = run_of(course([5]))
        trial.store.write("findings/0000000000001-00000000.parquet", [b"damaged"])
        report = run_rules(trial, [Above], record=record)
        assert [each.status for each in report.outcomes] == ["found"]
    assert any("0000000000001" in each.getMessage() for each in caplog.records)


def test_callbacks_hear_of_everything_once_and_not_of_what_is_on_record() -> None:
    trial = run_of(course([5, 5]))
    told: list[Finding] = []
    report = run_rules(trial, [Above, Classic], on_finding=told.append)
    assert counted(told) == counted(report.findings)
    run_rules(trial, [Above, Classic], on_finding=told.append)
    assert counted(told) == counted(report.findings)


def test_sql_and_findings_of_a_trial_show_what_rules_found(tmp_path: Path) -> None:
    values = course([0, 5, 0])
    make_run(tmp_path, values, data=batches(values), collections=manager())
    trial = create_trial(tmp_path)
    report = run_rules(trial, [Above, Classic])
    frame = trial.sql("select rule, tensor, value from findings order by rule")
    assert frame["rule"].tolist() == ["Above", "Classic"]
    assert frame["value"].tolist()[0] == 5.0
    assert set(trial.findings()) == set(report.findings)


# ---- reports


def test_a_report_is_readable() -> None:
    many = [Finding("Above", step, f"a is {step}", "a") for step in range(7)]
    report = RuleReport(
        [
            Outcome("Above", "found", "", many),
            Outcome("LongerName", "found", "", many[:1]),
            Outcome("X", "could not run", "the run has no gradients"),
            Outcome("Y", "failed", "ZeroDivisionError: mine"),
            Outcome("Z"),
        ],
        "run",
        99,
    )
    assert str(report).splitlines() == [
        "run, up to step 99",
        "Above       found 7 things",
        *(f"            step {step}: a is {step}" for step in range(5)),
        "            and 2 more",
        "LongerName  found 1 thing",
        "            step 0: a is 0",
        "X           could not run: the run has no gradients",
        "Y           failed: ZeroDivisionError: mine",
        "Z           passed",
    ]
    assert json.loads(json.dumps(report.to_dict()))["rules"][0]["findings"] == 7
    assert [each.step for each in report.findings] == [0, 0, *range(1, 7)]


def test_parameters_of_any_kind_can_be_reported() -> None:
    told: dict[str, Any] = {"a": np.float32(1), "b": [1, 2], "c": None, "d": Above, "e": True}
    text = json.dumps(Outcome("R", parameters=told).to_dict())
    assert json.loads(text)["parameters"]["c"] is None


@pytest.mark.parametrize("how", [run_rules, lambda trial, rules: RuleRunner(trial, rules)])
def test_errors_of_a_rule_come_before_anything_is_read(how: Callable[..., Any]) -> None:
    trial = run_of(course([0]))
    with pytest.raises(SMDebugValueError, match="VanishingGradient"):
        how(trial, ["VanishingGradients"])
    with pytest.raises(SMDebugValueError, match="threshold"):
        how(trial, ["VanishingGradient:threshold=much"])
    assert isinstance(make_rule("VanishingGradient", trial), VanishingGradient)
    assert RuleSpec("VanishingGradient").needs()


class TwoSided(Rule):
    """Fires where a tensor is above one limit or below another."""

    reads = ("mean",)

    def __init__(self, base_trial: Trial | None) -> None:
        super().__init__(base_trial)
        self.tensors = self.choose(regexes=".*")

    def needs(self) -> tuple[TensorRequirement, ...]:
        return ()

    def check(self, frame: Frame) -> Iterator[Finding]:
        table = self.read(frame, "mean", self.tensors)
        for about, holds in (("above", table.values > 5), ("below", table.values < -5)):
            yield from self.findings_where(
                frame, table, holds, lambda column, value: f"{value:g}", about=about
            )  # fmt: skip


def test_conditions_of_one_rule_do_not_hide_each_other() -> None:
    values = course([0, 9, 0, -9, 0, 9, -9])
    found = run_rules(run_of(values), [TwoSided]).findings
    assert [(each.step, each.value) for each in found] == [(1, 9.0), (3, -9.0)]


class Adaptive(Above):
    """Compares with a limit that moves, as one that is learned from the run does."""

    def check(self, frame: Frame) -> Iterator[Finding]:
        for finding in super().check(frame):
            yield replace(finding, threshold=finding.step / 7)


def test_a_limit_that_moves_does_not_make_a_repeat_new() -> None:
    found = run_rules(run_of(course([0, 5] * 50)), [Adaptive]).findings
    assert [each.step for each in found] == [1]


@pytest.mark.parametrize("quiet", [2, COOLDOWN_STEPS - 1, COOLDOWN_STEPS])
def test_what_held_a_moment_ago_is_not_new_however_long_ago_it_began(quiet: int) -> None:
    held = 5 * COOLDOWN_STEPS
    found = steps_found([0, *[5] * held, *[0] * quiet, 5, 0])
    assert found == [1, *([held + quiet + 1] if quiet >= COOLDOWN_STEPS else [])]


# ---- while it goes on


def test_how_far_it_is_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    url = fresh_url()
    make_run(url, range(0, 60, 2))
    # Blocks of ten steps of two tensors.
    monkeypatch.setattr("smdebug.rules.rule_frames.MAX_ROWS", 20)
    told: list[tuple[int, int]] = []
    rules = ["NonFinite", "LossSpike"]
    runner = RuleRunner(
        create_trial(url), rules, record=False, tell=lambda *numbers: told.append(numbers)
    )
    report = runner.run()
    assert told == [(done, 30) for done in (5, 10, 15, 20, 25, 30)]
    alone = run_rules(url, rules, record=False)
    assert report.to_dict() == alone.to_dict()


def test_what_is_left_off_is_not_on_record() -> None:
    url = fresh_url()
    make_run(url, range(5))
    trial = create_trial(url)
    runner = RuleRunner(trial, ["NonFinite", "VanishingGradient", Above])
    found = next(runner.looks())
    report = runner.leave_off()
    assert [outcome.status for outcome in report.outcomes][:2] == ["passed", "could not run"]
    assert report.last_step == 4
    assert report.findings == found
    assert read_reports(trial.store) == []
    RuleRunner(trial, ["NonFinite"]).run()
    assert len(read_reports(trial.store)) == 1
