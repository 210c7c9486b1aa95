"""Steps that are not saved: as ranges, and those of a hook."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.hook.numpy_hook import NumpyHook

from smdebug.hook.run.lost_steps import LostSteps

if TYPE_CHECKING:
    from pathlib import Path

STEPS = st.sets(st.integers(0, 60))


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        ([], "no step"), ([7], "1 step, 7"), ([1, 2], "2 steps, 1 to 2"), ([1, 3], "2 steps, 1, 3"),
        (range(100), "100 steps, 0 to 99"), ([5, 9, 10, 11, 12], "5 steps, 5, 9 to 12"),
        (range(0, 50, 10), "5 steps, 0 to 40 by 10"), ([4, 2, 9], "3 steps, 2, 4, 9"),
    ],
)  # fmt: skip
def test_lost_steps_are_formatted_as_ranges(steps: list[int], text: str) -> None:
    assert str(LostSteps(steps)) == text


@given(STEPS, STEPS)
def test_ranges_contain_exactly_the_added_steps(first: set[int], second: set[int]) -> None:
    assert list(LostSteps(first)) == sorted(first)
    joined = LostSteps(first).union(second)
    assert sorted(joined) == sorted(first | second)
    assert joined.count == len(first | second)


def test_memory_does_not_grow_with_lost_steps() -> None:
    lost = LostSteps()
    for step in range(0, 1_000_000, 10):
        lost.add(step)
        lost.add(step)
    assert lost.count == 100_000
    assert str(lost) == "100000 steps, 0 to 999990 by 10"
    assert len(lost._ranges) == 1


def test_message_about_lost_steps_is_bounded() -> None:
    steps = [number**2 for number in range(100)]
    assert len(str(LostSteps(steps))) < 300
    assert str(LostSteps(steps)).endswith("and more up to 9801")


# ---- of a hook


def failing_hook(path: Path, steps: int) -> NumpyHook:
    """A hook that saves every second step and fails to save after some steps."""
    hook = NumpyHook(path, save_config={"save_interval": 2})
    for _ in range(steps):
        hook.run(loss=np.float32(1))
    hook._pipeline.errors.caught(OSError("no space"))
    return hook


def test_only_steps_that_would_have_been_saved_are_lost(tmp_path: Path) -> None:
    hook = failing_hook(tmp_path, 2)
    for _ in range(10):
        hook.run(loss=np.float32(1))
    assert hook.stats().lost_steps == 5
    hook.close()
    assert hook.stats().lost_steps == 5


def test_unsaved_rest_of_a_step_is_lost(tmp_path: Path) -> None:
    # The last of three is to be saved, and of that of two nothing is left to save.
    for steps, lost in ((3, 1), (2, 0)):
        hook = failing_hook(tmp_path / str(steps), steps)
        hook.close()
        assert hook.stats().lost_steps == lost


def test_steps_that_the_writer_lost_had_been_counted_as_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    hook = failing_hook(tmp_path, 5)
    output: Any = hook._pipeline.run.output
    monkeypatch.setattr(output, "lost_steps", lambda: (2, 4))
    for _ in range(3):
        hook.run(loss=np.float32(1))
    stats = hook.stats()
    # Step 4 is of both: a part of it was handed over.
    assert (stats.saved_steps, stats.lost_steps) == (0, 3)
    with caplog.at_level(logging.WARNING):
        hook.close()
    assert "is not complete (lost: 3 steps, 2 to 6 by 2): no space" in caplog.text
