"""A job from which nothing comes is found, while it hangs and afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.rules.loss_runs import (
    batches,
    fired,
    found,
    in_looks,
    outcome,
    same_in_parts,
    train,
    write,
)

from smdebug.exceptions import InsufficientInformationForRuleInvocation, SMDebugValueError
from smdebug.rules import invoke_rule, make_rule
from smdebug.rules.builtin.stalled_training import StalledTrainingRule
from smdebug.rules.rule_frames import frame_of_steps
from smdebug.trials.create import create_trial

if TYPE_CHECKING:
    from pathlib import Path

    from smdebug.trials.trial import Trial

NAME = "StalledTrainingRule"


def at(*times: float) -> Any:
    """A run whose steps came at these times."""
    return batches(train([1.0] * len(times)), times=times)


def looked(rule: StalledTrainingRule, trial: Trial, begin: int, end: int) -> list[Any]:
    return list(rule.evaluate(frame_of_steps(trial, begin, end, rule.reads)))


# ---- afterwards


def test_gaps_between_steps(tmp_path: Path) -> None:
    path = write(tmp_path, at(0, 10, 1810, 1900, 3701, 9000, 9001))
    findings = same_in_parts(path, NAME)
    # 1800 seconds are not too many.
    assert [(each.step, each.value, each.threshold) for each in findings] == [
        (4, 1801.0, 1800.0),
        (5, 5299.0, 1800.0),
    ]
    assert findings[0].message.startswith("nothing came for 1801 s before step 4")
    assert fired(path, NAME) == [4, 5]
    assert outcome(path, f"{NAME}:threshold=6000").status == "passed"


def test_the_first_worker_to_save_a_step_counts(tmp_path: Path) -> None:
    run = {"worker_0": at(0, 5000, 5001), "worker_1": at(0, 100, 1500)}
    assert found(write(tmp_path, run), NAME) == []


def test_times_that_run_backwards(tmp_path: Path) -> None:
    assert found(write(tmp_path, at(5000, 100, 5100)), NAME) == []


# ---- live


def test_a_job_that_hangs_is_told_once(tmp_path: Path) -> None:
    path = write(tmp_path, at(1000, 1010, 8000, 8001), end=False)
    trial = create_trial(path)
    rule = StalledTrainingRule(trial)
    assert looked(rule, trial, 0, 2) == []
    assert list(rule.idle(1010.0 + 1800)) == []
    (finding,) = rule.idle(1010.0 + 1801)
    assert (finding.step, finding.value, finding.threshold) == (1, 1801.0, 1800.0)
    assert "1801 s after step 1" in finding.message
    assert list(rule.idle(7999.0)) == []
    # It goes on: the gap was told already, another one is new.
    assert looked(rule, trial, 2, 4) == []
    (again,) = rule.idle(8001.0 + 1801)
    assert again.step == 3


def test_a_job_that_never_begins(tmp_path: Path) -> None:
    trial = create_trial(write(tmp_path, at(), end=False))
    rule = StalledTrainingRule(trial, threshold="60")
    assert rule.missing()
    assert list(rule.idle(500.0)) == []
    assert list(rule.idle(560.0)) == []
    (finding,) = rule.idle(561.0)
    assert "61 s since the job is watched" in finding.message
    assert not rule.missing()


def test_a_runner_asks(tmp_path: Path) -> None:
    """The times of this run are long gone, and it was never ended."""
    path = write(tmp_path, at(1000, 1001), end=False)
    (finding,) = outcome(path, NAME).findings
    assert finding.step == 1
    assert outcome(write(tmp_path / "ended", at(1000, 1001)), NAME).status == "passed"


def test_growing_run(tmp_path: Path) -> None:
    """While it grows, the runner sees a job that was last heard of long ago."""
    findings = in_looks(tmp_path, at(1000, 1001, 5000), NAME)
    assert findings[0].step == 0


def test_start_over(tmp_path: Path) -> None:
    trial = create_trial(write(tmp_path, at(0, 5000)))
    rule = StalledTrainingRule(trial)
    first = looked(rule, trial, 0, 2)
    rule.start_over()
    assert looked(rule, trial, 0, 2) == first
    assert len(first) == 1


# ---- what it is told


def test_stopping_the_job(tmp_path: Path) -> None:
    trial = create_trial(write(tmp_path, at(0, 5000)))
    rule = StalledTrainingRule(trial, 1800, "True", "my-Job")
    assert "my-Job" in repr(rule._actions)
    other = '{"name": "webhook", "endpoint": "https://hooks.example.org/a"}'
    both = StalledTrainingRule(trial, 1800, True, "my-Job", other)
    assert len(both._actions.actions) == 2
    assert StalledTrainingRule(trial, 1800, False, "my-Job")._actions.actions == []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"threshold": -1}, "threshold must be a number of seconds"),
        ({"threshold": "soon"}, "threshold must be"),
        ({"stop_training_on_fire": "maybe"}, "stop_training_on_fire must be true or false"),
        ({"stop_training_on_fire": True}, "training_job_name_prefix must be given"),
    ],
)
def test_bad_parameters(given: dict[str, Any], said: str) -> None:
    with pytest.raises(SMDebugValueError, match=said):
        StalledTrainingRule(None, **given)


def test_needs() -> None:
    assert [need.collection for need in StalledTrainingRule(None).needs()] == ["losses"]


def test_nothing_was_saved(tmp_path: Path) -> None:
    path = write(tmp_path, at())
    assert outcome(path, NAME).status == "could not run"
    with pytest.raises(InsufficientInformationForRuleInvocation, match="no saved step"):
        invoke_rule(make_rule(NAME, create_trial(path)))
