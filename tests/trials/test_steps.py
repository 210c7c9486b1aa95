"""The table of steps: completeness, the window, modes, and what can be said of a step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smdebug.mode_keys import ModeKeys
from smdebug.storage.segment_summary import StepArrays
from smdebug.trials import StepState
from smdebug.trials.steps import StepTable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

GLOBAL, TRAIN, EVAL = ModeKeys.GLOBAL, ModeKeys.TRAIN, ModeKeys.EVAL
NO, YES, LATER = StepState.UNAVAILABLE, StepState.AVAILABLE, StepState.NOT_YET_AVAILABLE


def arrays(rows: Iterable[tuple[int, ModeKeys, int, int]]) -> StepArrays:
    """Columns of (step, mode, mode step, segment)."""
    table = np.array([[s, m.value, n, q] for s, m, n, q in rows], np.int64).reshape(-1, 4)
    return StepArrays(*table.T)


def plain(*steps: int) -> StepArrays:
    return arrays((step, GLOBAL, step, 0) for step in steps)


def table(
    workers: Mapping[str, StepArrays],
    finished: bool = False,
    window: int = 1000,
    range_steps: tuple[int | None, int | None] = (None, None),
    num_workers: int | None = None,
) -> StepTable:
    number = len(workers) if num_workers is None else num_workers
    return StepTable(workers, number, finished, window, range_steps)


def test_an_empty_table() -> None:
    empty = table({})
    assert empty.last_complete_step == -1
    assert empty.steps() == empty.steps(incomplete=True) == empty.steps(TRAIN) == []
    assert empty.modes() == []
    assert empty.mode_of(0) is None
    assert empty.global_step(TRAIN, 0) is None
    assert empty.global_step(GLOBAL, 7) == 7
    assert empty.state(0) is empty.state(0, EVAL) is LATER
    assert table({}, finished=True).state(0) is NO
    assert table({"a": plain()}, finished=True).last_complete_step == -1


@pytest.mark.parametrize(
    ("delivered", "num_workers", "last", "complete", "every"),
    [
        # One worker: what it delivers is complete.
        ([[0, 1, 2]], 1, 2, [0, 1, 2], [0, 1, 2]),
        # It may deliver them in any order, and one of them twice.
        ([[2, 0, 0, 1, 2]], 1, 2, [0, 1, 2], [0, 1, 2]),
        # A worker that was promised and has not begun.
        ([[0, 1, 2]], 2, -1, [], [0, 1, 2]),
        # A worker that lags.
        ([[0, 1, 2], [0, 1]], 2, 1, [0, 1], [0, 1, 2]),
        # A worker that left out a step has moved on: the step counts as complete.
        ([[0, 1, 2], [0, 2]], 2, 2, [0, 1, 2], [0, 1, 2]),
        # The same step twice from one worker is not two workers.
        ([[0, 1, 1], [0]], 2, 0, [0], [0, 1]),
        # No step in common.
        ([[0, 2, 4], [1, 3, 5]], 2, -1, [], [0, 1, 2, 3, 4, 5]),
        # Three workers: the slowest decides.
        ([[0, 5, 10], [0, 5, 10], [0, 5]], 3, 5, [0, 5], [0, 5, 10]),
        ([[0, 5, 10], [0, 5], [0]], 3, 0, [0], [0, 5, 10]),
        ([[0, 5, 10], [0, 5, 10], []], 3, -1, [], [0, 5, 10]),
        # Steps are numbers, not places.
        ([[1_000_000_000_000 - 1]], 1, 10**12 - 1, [10**12 - 1], [10**12 - 1]),
    ],
)
@pytest.mark.parametrize("finished", [False, True])
def test_completeness(
    delivered: list[list[int]],
    num_workers: int,
    last: int,
    complete: list[int],
    every: list[int],
    finished: bool,
) -> None:
    workers = {f"worker_{number}": plain(*steps) for number, steps in enumerate(delivered)}
    steps = table(workers, finished, num_workers=num_workers)
    assert steps.steps(incomplete=True) == every
    assert steps.steps() == (every if finished else complete)
    assert steps.last_complete_step == (every[-1] if finished else last)
    assert all(type(step) is int for step in steps.steps(incomplete=True))


@pytest.mark.parametrize(
    ("fast", "slow", "window", "last"),
    [
        # Up to the window nothing is given up.
        (range(11), [0], 10, 0),
        (range(10), [], 10, -1),
        # One more, and the older half of the window counts as complete.
        (range(12), [0], 10, 5),
        (range(11), [], 10, 4),
        # Still too many: another half, until the rest fits into the window.
        (range(21), [], 10, 14),
        # Places count, not numbers.
        (range(0, 1200, 100), [0], 10, 500),
        # A window of nothing waits for nobody.
        (range(5), [], 0, 4),
        (range(5), [], 1, 3),
    ],
)
def test_window(fast: Iterable[int], slow: list[int], window: int, last: int) -> None:
    steps = table({"fast": plain(*fast), "slow": plain(*slow)}, window=window)
    assert steps.last_complete_step == last
    assert len(steps.steps(incomplete=True)) - len(steps.steps()) <= window
    assert steps.steps() == [step for step in fast if step <= last]


@pytest.mark.parametrize(
    ("step", "live", "finished"),
    [
        (-1, NO, NO),
        (0, YES, YES),
        (1, NO, NO),
        (5, YES, YES),
        # 5 is the last that both have; 10 and 20 wait for the second.
        (6, LATER, NO),
        (10, LATER, YES),
        (15, LATER, NO),
        (20, LATER, YES),
        (21, LATER, NO),
        (10**9, LATER, NO),
    ],
)
def test_state(step: int, live: StepState, finished: StepState) -> None:
    workers = {"a": plain(0, 5, 10, 20), "b": plain(0, 5)}
    assert table(workers).state(step) is live
    assert table(workers, finished=True).state(step) is finished


# Global: 0 T0, 1 T1, 2 E0, 3 E1, 4 T2, 10 T8; the second worker has stopped after 4.
_MODES = [(0, TRAIN, 0, 0), (1, TRAIN, 1, 0), (2, EVAL, 0, 0), (3, EVAL, 1, 0), (4, TRAIN, 2, 0)]


@pytest.mark.parametrize(
    ("step", "mode", "live", "finished"),
    [
        (0, TRAIN, YES, YES),
        (2, TRAIN, YES, YES),
        (5, TRAIN, LATER, NO),
        (8, TRAIN, LATER, YES),
        (9, TRAIN, LATER, NO),
        (0, EVAL, YES, YES),
        (1, EVAL, YES, YES),
        (2, EVAL, LATER, NO),
        (0, ModeKeys.PREDICT, LATER, NO),
        (8, GLOBAL, LATER, NO),
        (10, GLOBAL, LATER, YES),
    ],
)
def test_state_in_modes(step: int, mode: ModeKeys, live: StepState, finished: StepState) -> None:
    workers = {"a": arrays([*_MODES, (10, TRAIN, 8, 0)]), "b": arrays(_MODES)}
    assert table(workers).state(step, mode) is live
    assert table(workers, finished=True).state(step, mode) is finished


def test_modes() -> None:
    workers = {"a": arrays([*_MODES, (10, TRAIN, 8, 0)]), "b": arrays(_MODES)}
    steps = table(workers)
    assert steps.steps(TRAIN) == [0, 1, 2]
    assert steps.steps(TRAIN, incomplete=True) == [0, 1, 2, 8]
    assert steps.steps(EVAL) == [0, 1]
    assert steps.steps(ModeKeys.PREDICT) == []
    assert steps.steps() == [0, 1, 2, 3, 4]
    assert sorted(mode.name for mode in steps.modes()) == ["EVAL", "TRAIN"]
    assert steps.has_mode(TRAIN)
    assert steps.has_mode(GLOBAL)
    assert not steps.has_mode(ModeKeys.PREDICT)
    assert steps.mode_of(3) == (EVAL, 1)
    assert steps.mode_of(10) == (TRAIN, 8)
    assert steps.mode_of(5) is None
    assert steps.global_step(TRAIN, 8) == 10
    assert steps.global_step(EVAL, 1) == 3
    assert steps.global_step(EVAL, 2) is None
    assert steps.global_step(ModeKeys.PREDICT, 0) is None


def test_global_is_not_among_the_modes() -> None:
    steps = table({"a": plain(0, 1)})
    assert steps.modes() == []
    assert steps.mode_of(1) == (GLOBAL, 1)


def test_the_newest_segment_says_what_mode_a_step_has() -> None:
    steps = table({"a": arrays([(7, EVAL, 3, 2), (7, TRAIN, 5, 1)])})
    assert steps.mode_of(7) == (EVAL, 3)


def test_a_resumed_run_that_counts_otherwise_replaces_the_old_count() -> None:
    # First 0 T0, 1 E0, 2 T1, 3 T2. Resumed at 1 without the evaluation: 1 T1, 2 T2, 3 T3.
    first = [(0, TRAIN, 0, 0), (1, EVAL, 0, 0), (2, TRAIN, 1, 0), (3, TRAIN, 2, 0)]
    again = [(1, TRAIN, 1, 1), (2, TRAIN, 2, 1), (3, TRAIN, 3, 1)]
    steps = table({"a": arrays([*first, *again])})
    assert [steps.mode_of(step) for step in range(4)] == [(TRAIN, step) for step in range(4)]
    # There and back again is the same step.
    assert [steps.global_step(TRAIN, number) for number in range(4)] == [0, 1, 2, 3]
    assert steps.steps(TRAIN) == [0, 1, 2, 3]
    assert steps.steps(EVAL) == []
    assert steps.modes() == [TRAIN]


@pytest.mark.parametrize(
    ("range_steps", "known"),
    [
        ((None, None), [0, 5, 10, 15]),
        ((5, None), [5, 10, 15]),
        ((None, 10), [0, 5]),
        ((5, 10), [5]),
        ((6, 10), []),
        ((0, 16), [0, 5, 10, 15]),
    ],
)
def test_range(range_steps: tuple[int | None, int | None], known: list[int]) -> None:
    steps = table({"a": plain(0, 5, 10, 15)}, range_steps=range_steps)
    assert steps.steps() == known
    assert [steps.mode_of(step) is not None for step in (0, 5, 10, 15)] == [
        step in known for step in (0, 5, 10, 15)
    ]
    assert steps.last_complete_step == (known[-1] if known else -1)


def test_states_outside_the_range() -> None:
    steps = table({"a": plain(0, 5, 10, 15)}, range_steps=(5, 12))
    assert steps.state(0) is NO
    assert steps.state(5) is steps.state(10) is YES
    # 11 may still be saved late; 12 lies behind the range and never comes.
    assert steps.state(11) is LATER
    assert steps.state(12) is steps.state(15) is steps.state(100) is NO


def test_a_step_before_the_range_never_comes_even_while_the_range_is_empty() -> None:
    assert table({"a": plain(0)}, range_steps=(5, None)).state(0) is NO


def test_completeness_counts_within_the_range_only() -> None:
    workers = {"a": plain(0, 1, 2, 3), "b": plain(3)}
    assert table(workers, range_steps=(None, 3)).last_complete_step == -1
    assert table(workers).last_complete_step == 3


_steps = st.lists(st.integers(0, 40), max_size=20)


@given(st.lists(_steps, min_size=1, max_size=3), st.booleans(), st.integers(0, 12))
def test_states_and_steps_say_the_same(
    delivered: list[list[int]], finished: bool, window: int
) -> None:
    workers = {str(number): plain(*steps) for number, steps in enumerate(delivered)}
    steps = table(workers, finished, window)
    complete, every = steps.steps(), steps.steps(incomplete=True)
    assert every == sorted(set().union(*delivered))
    assert complete == [step for step in every if step <= steps.last_complete_step]
    for step in range(42):
        state = steps.state(step)
        assert (state is YES) == (step in complete)
        if finished:
            assert state is (YES if step in every else NO)
        elif step not in every:
            passed = any(step < later for later in complete)
            assert state is (NO if passed else LATER)
