"""A hook that was pickled and unpickled answers every call harmlessly and saves nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.hook.numpy_hook import NumpyHook
from tests.hook.unpickled import CALLS, unpickled, unreadable

from smdebug import SaveConfig, modes
from smdebug.trials import create_trial

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def hook(tmp_path: Path) -> NumpyHook:
    """A hook in the middle of a run."""
    hook = NumpyHook(tmp_path, save_config=SaveConfig(save_interval=1), flush_seconds=1000)
    hook.set_mode(modes.EVAL)
    hook.run(loss=np.float32(1))
    return hook


@pytest.mark.parametrize("call", CALLS.values(), ids=list(CALLS))
def test_every_call_of_an_unpickled_hook_is_safe(
    hook: NumpyHook, call: Callable[[Any], object]
) -> None:
    call(unpickled(hook))


def test_every_attribute_can_be_read(hook: NumpyHook) -> None:
    assert unreadable(hook) == []


def test_unpickled_hook_answers_like_an_unused_closed_hook(hook: NumpyHook) -> None:
    other = unpickled(hook)
    assert other.closed
    assert isinstance(other.step, int)
    assert isinstance(other.mode, modes)
    assert other.findings() == []
    assert other.rule_report() is None
    stats = other.stats()
    assert (stats.steps, stats.saved_steps, stats.bytes) == (0, 0, 0)


def test_it_saves_nothing_and_leaves_the_run_of_its_original_alone(
    hook: NumpyHook, tmp_path: Path
) -> None:
    other = unpickled(hook)
    for call in CALLS.values():
        call(other)
    other.run(loss=np.float32(2), late=np.ones(2))
    other.close()
    assert not hook.closed
    assert (hook.step, hook.mode, hook.stats().steps) == (0, modes.EVAL, 1)
    hook.run(loss=np.float32(3))
    hook.close()
    trial = create_trial(tmp_path)
    assert trial.tensor_names() == ["loss"]
    assert [float(value) for value in trial.tensor("loss").values().values()] == [1, 3]
