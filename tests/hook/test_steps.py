"""Counting steps over all modes and within each."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smdebug.exceptions import SMDebugValueError
from smdebug.hook.steps import Step, StepCounter
from smdebug.mode_keys import ModeKeys

TRAIN, EVAL, PREDICT, GLOBAL = ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.PREDICT, ModeKeys.GLOBAL


def test_a_counter_begins_before_the_first_step() -> None:
    steps = StepCounter()
    assert (steps.step, steps.mode, steps.mode_steps) == (-1, GLOBAL, {GLOBAL: -1})
    assert steps.current() == Step(0, GLOBAL, 0)


def test_without_a_mode_steps_are_global() -> None:
    steps = StepCounter()
    assert [steps.advance() for _ in range(3)] == [Step(n, GLOBAL, n) for n in range(3)]
    assert steps.current() == Step(2, GLOBAL, 2)
    assert steps.mode_steps == {GLOBAL: 2}


@pytest.mark.parametrize("value", ["TRAIN", 1, None, "eval"])
def test_only_modes_are_modes(value: Any) -> None:
    steps = StepCounter()
    with pytest.raises(SMDebugValueError, match=r"modes\.TRAIN"):
        steps.set_mode(value)
    assert steps.mode is GLOBAL


def test_the_present_step_is_the_last_of_the_present_mode() -> None:
    steps = StepCounter()
    steps.set_mode(TRAIN)
    assert steps.current() == Step(0, TRAIN, 0)
    for _ in range(2):
        steps.advance()
    steps.set_mode(EVAL)
    # Its first step is still to come.
    assert steps.current() == Step(2, EVAL, 0)
    steps.advance()
    steps.set_mode(TRAIN)
    assert steps.current() == Step(1, TRAIN, 1)
    steps.set_mode(GLOBAL)
    assert steps.current() == Step(2, EVAL, 0)


@given(st.lists(st.sampled_from([TRAIN, EVAL, PREDICT, GLOBAL]), max_size=40))
def test_every_step_has_its_number_and_its_number_within_the_mode(modes: list[ModeKeys]) -> None:
    steps = StepCounter()
    for number, mode in enumerate(modes):
        steps.set_mode(mode)
        step = steps.advance()
        # The steps of GLOBAL are numbered through all modes.
        within = number if mode is GLOBAL else modes[:number].count(mode)
        assert step == Step(number, mode, within) == steps.current()
        assert steps.step == steps.mode_steps[GLOBAL] == number
        assert steps.mode_steps[mode] == within
    assert set(steps.mode_steps) == {GLOBAL, *modes}


def test_a_framework_may_count_itself() -> None:
    steps = StepCounter()
    assert steps.advance(20) == Step(20, GLOBAL, 20)
    assert (steps.step, steps.mode_steps) == (20, {GLOBAL: 20})
    steps.set_mode(TRAIN)
    assert steps.advance(30) == Step(30, TRAIN, 30)
    assert steps.advance() == Step(31, TRAIN, 31)
    assert steps.current() == Step(31, TRAIN, 31)
    assert steps.begun == 3
