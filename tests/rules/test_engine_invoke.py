"""`invoke_rule`: which steps a rule meets, when it ends, and a job that still writes."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from smdebug.config.collection import Collection
from smdebug.config.collection_manager import CollectionManager
from smdebug.exceptions import (
    InsufficientInformationForRuleInvocation,
    RuleEvaluationConditionMet,
    StepUnavailable,
)
from smdebug.mode_keys import ModeKeys
from smdebug.rules import Rule, invoke_rule
from smdebug.rules.builtin.vanishing_gradient import VanishingGradient
from smdebug.storage.batch import Entry, StepBatch
from smdebug.storage.stores.base import open_store
from smdebug.storage.writer import RunWriter
from smdebug.testing.runs import make_run
from smdebug.trials import Trial, create_trial

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from smdebug.storage.findings import Finding

TRAIN = ModeKeys.TRAIN


class Noted(Rule):
    """Notes the steps at which it is invoked, and fires at some of them."""

    def __init__(self, base_trial: Trial, fires_at: Iterable[int] = ()) -> None:
        super().__init__(base_trial)
        self.fires_at = set(fires_at)
        self.steps: list[int] = []

    def invoke_at_step(self, step: int) -> bool:
        self.steps.append(step)
        return step in self.fires_at


def opened(path: Path, steps: Iterable[int], **options: Any) -> Trial:
    make_run(path, steps, **options)
    return create_trial(path)


# ---- a run that has ended


def test_all_steps_of_a_finished_run_and_then_it_ends(tmp_path: Path) -> None:
    rule = Noted(opened(tmp_path, range(10)))
    assert invoke_rule(rule) is None  # type: ignore[func-returns-value]
    assert rule.steps == list(range(10))


def test_the_first_and_the_last_step(tmp_path: Path) -> None:
    trial = opened(tmp_path, range(10))
    for start, end, expected in (
        (3, None, range(3, 10)),
        (0, 4, range(4)),
        (2, 3, [2]),
        (3, 3, []),
        (5, 2, []),
        (8, 100, [8, 9]),
        (10, None, []),
        (10**12, None, []),
        (0, 0, []),
    ):
        rule = Noted(trial)
        invoke_rule(rule, start, end)
        assert rule.steps == list(expected), (start, end)
    rule = Noted(trial)
    invoke_rule(rule_obj=rule, start_step=8, end_step=10, raise_eval_cond=False)
    assert rule.steps == [8, 9]


def test_steps_that_were_not_saved_are_passed_over_at_once(tmp_path: Path) -> None:
    saved = [0, 10**9, 10**9 + 1, 10**12 - 1]
    rule = Noted(opened(tmp_path, saved))
    invoke_rule(rule)
    assert rule.steps == saved
    rule = Noted(rule.base_trial)
    invoke_rule(rule, start_step=7, end_step=10**12 - 1)
    assert rule.steps == [10**9, 10**9 + 1]


def test_a_run_without_steps(tmp_path: Path) -> None:
    rule = Noted(opened(tmp_path, []))
    invoke_rule(rule)
    assert rule.steps == []


def test_a_long_run_of_sparse_steps_takes_no_square_of_its_length(tmp_path: Path) -> None:
    trial = opened(tmp_path, range(0, 40_000, 10), data=lambda worker, step: StepBatch(
        step, TRAIN, step, [Entry("loss", np.float32(1))]
    ))  # fmt: skip
    listed = []
    steps = trial.steps

    def counted(*args: Any, **kwargs: Any) -> list[int]:
        found = steps(*args, **kwargs)
        listed.append(len(found))
        return found

    trial.steps = counted  # type: ignore[method-assign]
    rule = Noted(trial)
    invoke_rule(rule)
    assert len(rule.steps) == 4000
    assert sum(listed) < 100 * 4000


def test_firing_does_not_end_it_unless_it_is_raised(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trial = opened(tmp_path, range(6))
    rule = Noted(trial, fires_at=[1, 3])
    with caplog.at_level(logging.INFO, "smdebug.rules"):
        invoke_rule(rule)
    assert rule.steps == list(range(6))
    fired = [record.getMessage() for record in caplog.records if "fired" in record.getMessage()]
    assert ["step 1" in fired[0], "step 3" in fired[1], len(fired)] == [True, True, 2]
    rule = Noted(trial, fires_at=[1, 3])
    with pytest.raises(RuleEvaluationConditionMet) as caught:
        invoke_rule(rule, raise_eval_cond=True)
    assert (rule.steps, caught.value.step) == ([0, 1], 1)


def test_a_rule_may_say_that_it_is_done(tmp_path: Path) -> None:
    class Once(Noted):
        def invoke_at_step(self, step: int) -> bool:
            super().invoke_at_step(step)
            if step == 2:
                raise RuleEvaluationConditionMet(self.rule_name, step, end_of_rule=True)
            return False

    rule = Once(opened(tmp_path, range(6)))
    invoke_rule(rule)
    assert rule.steps == [0, 1, 2]
    with pytest.raises(RuleEvaluationConditionMet):
        invoke_rule(rule, raise_eval_cond=True)


def test_the_range_of_a_trial_ends_it_also_while_the_job_runs(tmp_path: Path) -> None:
    make_run(tmp_path, range(10), end=False)
    rule = Noted(create_trial(tmp_path, range_steps=(2, 5)))
    invoke_rule(rule)
    assert rule.steps == [2, 3, 4]
    assert not rule.base_trial.loaded_all_steps
    rule = Noted(create_trial(tmp_path, range_steps=(2, 5)))
    invoke_rule(rule, end_step=4)
    assert rule.steps == [2, 3]


def test_a_worker_that_is_late_after_the_end_is_not_passed_over(tmp_path: Path) -> None:
    """The first worker to close marks the end; the other one publishes its steps afterwards."""
    store = open_store(str(tmp_path))
    manager = CollectionManager([])
    manager.set_num_workers(2)
    writers = [RunWriter(store, worker) for worker in ("worker_0", "worker_1")]
    for writer in writers:
        writer.write_collections(manager.to_json())
        writer.flush()

    def write(writer: RunWriter, steps: Iterable[int]) -> None:
        for step in steps:
            writer.submit(StepBatch(step, TRAIN, step, [Entry("loss", np.float32(step))]))

    write(writers[1], [0])
    writers[1].finish_step()
    writers[1].flush()
    write(writers[0], range(3))
    writers[0].close()
    trial = create_trial(tmp_path)

    def end_late() -> None:
        write(writers[1], range(1, 6))
        writers[1].close()

    late = threading.Thread(target=end_late)

    class Meeting(Noted):
        def invoke_at_step(self, step: int) -> bool:
            if step == 2:
                late.start()
            return super().invoke_at_step(step)

    rule = Meeting(trial)
    invoke_rule(rule)
    late.join(60)
    assert rule.steps == list(range(6))


# ---- a run that is being written


class Job:
    """A job on a thread that publishes its next step when the rule has met the one before."""

    def __init__(self, path: Path, steps: list[int], worker: str = "worker_0") -> None:
        self._steps = steps
        self._writer = RunWriter(open_store(str(path)), worker)
        self._writer.write_collections(CollectionManager([]).to_json())
        self._writer.flush()
        self.met = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        for step in self._steps:
            entry = Entry("gradient/fc", np.full(3, 1e-9 if step > 4 else 1.0))
            self._writer.submit(StepBatch(step, TRAIN, step, [entry]), finish=True)
            self._writer.flush()
            assert self.met.acquire(timeout=60)
        self._writer.close()

    def join(self) -> None:
        self._thread.join(60)
        assert not self._thread.is_alive()


def test_it_waits_for_the_steps_of_a_job_that_runs(tmp_path: Path) -> None:
    saved = [0, 1, 2, 5, 1000]
    job = Job(tmp_path, saved)

    class Live(Noted):
        def invoke_at_step(self, step: int) -> bool:
            ended.append(self.base_trial.loaded_all_steps)
            job.met.release()
            return super().invoke_at_step(step)

    ended: list[bool] = []
    rule = Live(create_trial(tmp_path))
    job.start()
    invoke_rule(rule)
    job.join()
    assert rule.steps == saved
    assert not any(ended)


def test_a_rule_over_columns_fires_while_the_job_runs(tmp_path: Path) -> None:
    job = Job(tmp_path, [0, 4, 5, 6])
    fired = []

    class Live(VanishingGradient):
        def invoke_at_step(self, step: int) -> bool:
            found = bool(super().invoke_at_step(step))
            fired.append((step, found))
            job.met.release()
            return found

    rule = Live(create_trial(tmp_path))
    rule.choices.clear()
    rule.gradients = rule.choose(regexes="gradient")
    job.start()
    invoke_rule(rule)
    job.join()
    assert fired == [(0, False), (4, False), (5, True), (6, True)]


# ---- rules over columns


def gradients(path: Path, means: dict[int, float], **options: Any) -> Trial:
    data = {
        ("worker_0", step): StepBatch(
            step, TRAIN, step, [Entry("gradient/fc", np.array([mean, -mean]))]
        )
        for step, mean in means.items()
    }
    manager = CollectionManager([Collection("gradients", include_regex="^gradient/")])
    make_run(path, means, data=data, collections=manager, **options)
    return create_trial(path)


def test_a_built_in_rule_fires_at_every_step_at_which_its_condition_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = gradients(tmp_path, {0: 1.0, 3: 1e-8, 4: 1e-8, 7: 1.0, 9: 0.0})
    rule = VanishingGradient(trial)
    fired: list[Finding] = []
    monkeypatch.setattr(rule, "act", fired.append)
    invoke_rule(rule)
    # What is told is where it began: it has not been quiet for long.
    assert [finding.step for finding in fired] == [3, 3, 3]
    with pytest.raises(RuleEvaluationConditionMet) as caught:
        invoke_rule(VanishingGradient(trial), raise_eval_cond=True)
    assert caught.value.step == 3
    # Whoever sees the exception sees what is wrong.
    assert caught.value.tensor == "gradient/fc"
    assert "gradient/fc has vanished" in str(caught.value)
    with pytest.raises(RuleEvaluationConditionMet) as caught:
        invoke_rule(VanishingGradient(trial), start_step=4, raise_eval_cond=True)
    assert caught.value.step == 4


def test_the_same_rule_may_be_invoked_again(tmp_path: Path) -> None:
    rule = VanishingGradient(gradients(tmp_path, {0: 1.0, 3: 1e-8}))
    for _ in range(2):
        with pytest.raises(RuleEvaluationConditionMet):
            invoke_rule(rule, raise_eval_cond=True)
    rule.invoke(0)
    with pytest.raises(RuleEvaluationConditionMet):
        rule.invoke(3)


def test_a_built_in_rule_without_data_says_so_once(tmp_path: Path) -> None:
    trial = opened(tmp_path, range(50))
    for _ in range(2):
        with pytest.raises(InsufficientInformationForRuleInvocation, match="gradients") as caught:
            invoke_rule(VanishingGradient(trial))
        assert caught.value.rule_name == "VanishingGradient"
        assert "Hook(rules=" in str(caught.value)


def test_a_built_in_rule_over_a_run_without_steps_says_so(tmp_path: Path) -> None:
    with pytest.raises(InsufficientInformationForRuleInvocation):
        invoke_rule(VanishingGradient(opened(tmp_path, [])))


def test_step_by_step_is_not_slower_than_the_run_is_long(tmp_path: Path) -> None:
    trial = gradients(tmp_path, {step: 1.0 for step in range(0, 20_000, 10)})
    listed = []
    steps = trial.steps

    def counted(*args: Any, **kwargs: Any) -> list[int]:
        found = steps(*args, **kwargs)
        listed.append(len(found))
        return found

    trial.steps = counted  # type: ignore[method-assign]
    invoke_rule(VanishingGradient(trial))
    assert sum(listed) < 100 * 2000


def test_a_step_that_comes_while_it_is_said_not_to_be_there_is_not_passed_over(
    tmp_path: Path,
) -> None:
    make_run(open_store(str(tmp_path)), range(4))

    class Late(Noted):
        told = False

        def invoke(self, step: int) -> None:
            if step == 2 and not self.told:
                # As of a trial that looked a moment too early.
                self.told = True
                raise StepUnavailable(step, ModeKeys.GLOBAL)
            super().invoke(step)

    rule = Late(create_trial(tmp_path))
    invoke_rule(rule)
    assert rule.steps == [0, 1, 2, 3]
