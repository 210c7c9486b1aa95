"""Which step was of which mode, from steps that were seen and from steps that were saved."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from smdebug.hook.run.previous_run import history_of
from smdebug.hook.steps import Step, StepCounter, StepHistory
from smdebug.mode_keys import ModeKeys
from smdebug.storage.segment_summary import StepArrays

TRAIN, EVAL, PREDICT, GLOBAL = ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.PREDICT, ModeKeys.GLOBAL
MODES = st.lists(st.sampled_from([TRAIN, EVAL, PREDICT, GLOBAL]), min_size=1, max_size=40)


def steps_of(modes: list[ModeKeys]) -> list[Step]:
    counter = StepCounter()
    found = []
    for mode in modes:
        counter.set_mode(mode)
        found.append(counter.advance())
    return found


def arrays(steps: list[Step]) -> StepArrays:
    columns = zip(*[(s.number, s.mode.value, s.mode_step, 0) for s in steps], strict=True)
    return StepArrays(*[np.array(column, np.int64) for column in columns])


def expected(steps: list[Step], number: int) -> dict[ModeKeys, int]:
    counts = {s.mode: s.mode_step for s in steps[: number + 1] if s.mode is not GLOBAL}
    return {GLOBAL: number, **counts}


@given(MODES)
def test_history_is_exact_for_steps_of_this_process(modes: list[ModeKeys]) -> None:
    steps = steps_of(modes)
    seen = StepHistory()
    for step in steps:
        seen.add(step)
    saved = history_of(arrays(steps))
    for history in (seen, saved):
        for number in range(len(steps)):
            assert history.mode_steps_at(number) == expected(steps, number)


def test_history_grows_with_mode_changes_only() -> None:
    history = StepHistory()
    for step in steps_of([TRAIN] * 500 + [EVAL] * 500 + [TRAIN] * 500):
        history.add(step)
    assert len(history._firsts) == 3


def test_modes_between_saved_steps_are_inferred_from_counts() -> None:
    # Epochs of 25 steps of training and 7 of evaluation; every tenth of a mode is saved.
    steps = steps_of(([TRAIN] * 25 + [EVAL] * 7) * 4)
    saved = [step for step in steps if step.mode_step % 10 == 0]
    history = history_of(arrays(saved))
    for number in range(saved[-1].number + 1):
        found = history.mode_steps_at(number)
        # EVAL saves nothing in some epochs: then only training is known to be bounded.
        assert found[TRAIN] <= expected(steps, number)[TRAIN] + 7
    for step in saved:
        assert history.mode_steps_at(step.number) == expected(steps, step.number)
    # Within the first epochs nothing is left open.
    for number in range(40):
        assert history.mode_steps_at(number) == expected(steps, number)


def test_inferred_count_never_exceeds_the_next_saved_step() -> None:
    history = history_of(arrays([Step(20, TRAIN, 20), Step(35, TRAIN, 30)]))
    assert history.mode_steps_at(25)[TRAIN] == 25
    assert history.mode_steps_at(34)[TRAIN] == 29
    assert history.mode_steps_at(36)[TRAIN] == 31


def test_repeated_steps_replace_later_history() -> None:
    history = StepHistory()
    for step in steps_of([TRAIN] * 5 + [EVAL] * 5 + [TRAIN] * 5):
        history.add(step)
    history.add(Step(3, EVAL, 0))
    assert history.mode_steps_at(3) == {GLOBAL: 3, TRAIN: 2, EVAL: 0}
    history.add(Step(4, TRAIN, 3))
    assert history.mode_steps_at(4) == {GLOBAL: 4, TRAIN: 3, EVAL: 0}


def test_history_of_the_run_precedes_that_of_the_process() -> None:
    history = StepHistory.from_counts(10, {GLOBAL: 10, TRAIN: 7, EVAL: 2, PREDICT: -1})
    assert history.mode_steps_at(10) == {GLOBAL: 10, TRAIN: 7, EVAL: 2}
    assert history.mode_steps_at(12) == {GLOBAL: 12, TRAIN: 9, EVAL: 2}
    earlier = history_of(arrays(steps_of([TRAIN] * 4 + [EVAL] * 3 + [TRAIN] * 40)))
    history.prepend(earlier)
    assert history.mode_steps_at(5) == {GLOBAL: 5, TRAIN: 3, EVAL: 1}
    assert history.mode_steps_at(10) == {GLOBAL: 10, TRAIN: 7, EVAL: 2}
    assert history.first_step == 0


def test_empty_history() -> None:
    assert StepHistory().first_step is None
    assert history_of(StepArrays.concatenate([])).first_step is None
    assert StepHistory().mode_steps_at(3) == {GLOBAL: 3}
