"""Counting steps over all modes and within each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smdebug.exceptions import SMDebugTypeError, SMDebugValueError
from smdebug.hook.steps import Step, StepCounter, check_mode, step_number
from smdebug.mode_keys import ModeKeys

TRAIN, EVAL, PREDICT, GLOBAL = ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.PREDICT, ModeKeys.GLOBAL


def test_counter_starts_before_the_first_step() -> None:
    steps = StepCounter()
    assert (steps.step, steps.mode, steps.mode_steps) == (-1, GLOBAL, {GLOBAL: -1})
    assert steps.current() == Step(0, GLOBAL, 0)


def test_without_a_mode_steps_are_global() -> None:
    steps = StepCounter()
    assert [steps.advance() for _ in range(3)] == [Step(n, GLOBAL, n) for n in range(3)]
    assert steps.current() == Step(2, GLOBAL, 2)
    assert steps.mode_steps == {GLOBAL: 2}


@pytest.mark.parametrize("value", ["TRAIN", 1, None, "eval"])
def test_invalid_modes_are_rejected(value: Any) -> None:
    with pytest.raises(SMDebugValueError, match=r"modes\.TRAIN"):
        check_mode(value)


def test_current_step_is_the_last_of_the_current_mode() -> None:
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


def test_framework_may_provide_step_numbers() -> None:
    steps = StepCounter()
    assert steps.advance(20) == Step(20, GLOBAL, 20)
    assert (steps.step, steps.mode_steps) == (20, {GLOBAL: 20})
    steps.set_mode(TRAIN)
    assert steps.advance(30) == Step(30, TRAIN, 30)
    assert steps.advance() == Step(31, TRAIN, 31)
    assert steps.current() == Step(31, TRAIN, 31)
    assert steps.begun == 3


def test_counter_goes_back_to_an_earlier_step() -> None:
    steps = StepCounter()
    for mode in [TRAIN] * 4 + [EVAL] * 2 + [TRAIN] * 3:
        steps.set_mode(mode)
        steps.advance()
    steps.go_to(4)
    assert (steps.step, steps.mode_steps) == (4, {GLOBAL: 4, TRAIN: 3, EVAL: 0})
    # What is said before the next step belongs to it.
    assert steps.current() == Step(5, TRAIN, 4)
    # As long as none was made, what came later is not forgotten.
    steps.go_to(7)
    assert (steps.step, steps.mode_steps) == (7, {GLOBAL: 7, TRAIN: 5, EVAL: 1})
    steps.go_to(4)
    steps.set_mode(EVAL)
    assert steps.advance() == Step(5, EVAL, 1)
    steps.go_to(7)
    # Now those are the steps of another job: the last mode continues.
    assert steps.mode_steps == {GLOBAL: 7, TRAIN: 3, EVAL: 3}
    steps.go_to(-1)
    assert (steps.step, steps.mode_steps[EVAL], steps.current()) == (-1, -1, Step(0, EVAL, 0))


def test_without_history_the_current_mode_moves() -> None:
    steps = StepCounter()
    steps.set_mode(TRAIN)
    steps.go_to(9)
    assert (steps.step, steps.mode_steps) == (9, {GLOBAL: 9, TRAIN: 9})
    assert steps.advance() == Step(10, TRAIN, 10)


def test_undone_step_leaves_no_history() -> None:
    steps = StepCounter()
    steps.set_mode(TRAIN)
    steps.advance()
    steps.set_mode(EVAL)
    steps.advance()
    steps.cancel()
    steps.set_mode(TRAIN)
    steps.advance()
    steps.go_to(1)
    assert steps.mode_steps == {GLOBAL: 1, TRAIN: 1}


@pytest.mark.parametrize("value", [True, "3", 2.0, None, [1]])
def test_step_must_be_an_integer(value: Any) -> None:
    with pytest.raises(SMDebugTypeError, match="step must be a whole number"):
        step_number(value)


@pytest.mark.parametrize("value", [-2, 10**12, 1 << 80])
def test_steps_out_of_range_are_rejected(value: int) -> None:
    with pytest.raises(SMDebugValueError, match="step must lie between -1"):
        step_number(value)


def test_numpy_numbers_are_accepted() -> None:
    assert [step_number(value) for value in (-1, 5, np.int64(7))] == [-1, 5, 7]
