"""What a run lacks because saving has failed."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from smdebug.config.collection import Collection
from smdebug.config.options import HookOptions
from smdebug.config.save_config import SaveConfig
from smdebug.hook.capture import StepCapture
from smdebug.hook.missing import Missing
from smdebug.hook.plan import SavePlan
from smdebug.hook.stats import HookStats
from smdebug.hook.steps import Step
from smdebug.mode_keys import ModeKeys


class Lossy:
    """An output that has lost steps that were handed over."""

    def lost_steps(self) -> tuple[int, ...]:
        return (3, 4)


LOSSY: Any = Lossy()


def plan_of_every_second_step() -> SavePlan:
    collection = Collection("mine")
    collection.include("mine")
    options = HookOptions("run", save_config=SaveConfig(save_interval=2))
    return SavePlan({"mine": collection}, {"mine"}, options)


def step(number: int) -> Step:
    return Step(number, ModeKeys.TRAIN, number)


def lost(missing: Missing) -> int:
    stats = HookStats()
    missing.correct(stats, None)
    return stats.lost_steps


def test_only_steps_that_would_have_been_saved_are_missing() -> None:
    missing, plan = Missing(), plan_of_every_second_step()
    for number in range(10):
        missing.add_planned(step(number), plan)
    assert lost(missing) == 5


def test_the_rest_of_a_step_is_missing_where_there_is_one() -> None:
    missing, plan = Missing(), plan_of_every_second_step()
    missing.add_rest(None)
    missing.add_rest(StepCapture(step(1), None))
    assert lost(missing) == 0
    missing.add_rest(StepCapture(step(2), plan.at(ModeKeys.TRAIN, 2)))
    assert lost(missing) == 1


def test_what_the_writer_lost_was_counted_as_saved() -> None:
    missing, stats = Missing(), HookStats()
    stats.saved_steps = 5
    missing.add(4)
    missing.add(5)
    missing.correct(stats, LOSSY)
    assert (stats.saved_steps, stats.lost_steps) == (3, 3)


@pytest.mark.parametrize(
    ("output", "text"), [(None, "lost: no step"), (LOSSY, "lost: 2 steps, 3 to 4")]
)
def test_what_is_missing_is_said_with_the_reason(
    output: Any, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    Missing().say("run", output, OSError("no space"))
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage() == f"the run in run is not complete ({text}): no space"
