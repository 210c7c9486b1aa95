"""Steps that are not saved, as ranges."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smdebug.hook.lost_steps import LostSteps

STEPS = st.sets(st.integers(0, 60))


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        ([7], "1 step, 7"), ([1, 2], "2 steps, 1 to 2"), ([1, 3], "2 steps, 1, 3"),
        (range(100), "100 steps, 0 to 99"), ([5, 9, 10, 11, 12], "5 steps, 5, 9 to 12"),
        (range(0, 50, 10), "5 steps, 0 to 40 by 10"), ([4, 2, 9], "3 steps, 2, 4, 9"),
    ],
)  # fmt: skip
def test_steps_are_named_as_a_person_does(steps: list[int], text: str) -> None:
    assert str(LostSteps(steps)) == text


@given(STEPS, STEPS)
def test_none_is_forgotten_and_none_added(first: set[int], second: set[int]) -> None:
    assert list(LostSteps(first)) == sorted(first)
    joined = LostSteps(first).joined_with(second)
    assert sorted(joined) == sorted(first | second)
    assert joined.count == len(first | second)


def test_a_long_job_takes_no_more_memory() -> None:
    lost = LostSteps()
    for step in range(0, 1_000_000, 10):
        lost.add(step)
        lost.add(step)
    assert lost.count == 100_000
    assert str(lost) == "100000 steps, 0 to 999990 by 10"
    assert len(lost._ranges) == 1


def test_a_message_has_an_end() -> None:
    steps = [number**2 for number in range(100)]
    assert len(str(LostSteps(steps))) < 300
    assert str(LostSteps(steps)).endswith("and more up to 9801")
