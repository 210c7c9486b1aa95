"""`when_nan` and tensors that the user saves; each framework tests it with its own tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.hook.numpy_hook import NumpyHook

from smdebug import SaveConfig, modes
from smdebug.trials import create_trial

if TYPE_CHECKING:
    from pathlib import Path

NAN = np.float32(np.nan)


def steps_of(path: Path) -> dict[str, list[int]]:
    trial = create_trial(str(path))
    return {name: trial.tensor(name).steps() for name in trial.tensor_names()}


def observing_hook(path: Path, observed: str, **options: Any) -> NumpyHook:
    """A hook that saves no step by its schedule."""
    config = SaveConfig(end_step=0, when_nan=[observed])
    return NumpyHook(path, save_config=config, include_collections=["weights"], **options)


@pytest.mark.parametrize("loss", [NAN, [1.0, np.inf], np.array([NAN])])
def test_a_tensor_of_the_user_that_is_not_finite_saves_its_step(tmp_path: Path, loss: Any) -> None:
    hook = observing_hook(tmp_path, "loss")
    for value in (1.0, loss, 1.0):
        hook.run(weight=np.ones(2))
        hook.save_tensor("my_loss", value, "losses")
        hook.save_tensor("batch", np.zeros(2), "mine")
    hook.close()
    # What came before it in the step, the tensor itself, and nothing of a collection not included.
    assert steps_of(tmp_path) == {"weight": [1], "my_loss": [1]}


def test_a_scalar_that_is_not_finite_saves_its_step(tmp_path: Path) -> None:
    hook = observing_hook(tmp_path, "^scalar/loss$")
    for value in (1.0, np.nan, 1.0):
        hook.run(weight=np.ones(2))
        hook.save_scalar("other", np.nan)
        hook.save_scalar("loss", value)
    hook.close()
    every = [0, 1, 2]
    assert steps_of(tmp_path) == {"weight": [1], "scalar/loss": every, "scalar/other": every}


def test_a_tensor_of_the_user_is_saved_after_another_one_has_saved_the_step(tmp_path: Path) -> None:
    hook = observing_hook(tmp_path, "weight")
    for value in (1.0, np.nan, 1.0):
        hook.run(weight=np.full(2, value))
        hook.save_tensor("my_loss", 1.0, "losses")
    hook.close()
    assert steps_of(tmp_path) == {"weight": [1], "my_loss": [1]}


def test_only_the_step_in_progress_is_saved(tmp_path: Path) -> None:
    hook = observing_hook(tmp_path, "loss")
    hook.save_tensor("my_loss", np.nan, "losses")
    hook.set_mode(modes.TRAIN)
    hook.run(weight=np.ones(2))
    hook.set_mode(modes.EVAL)
    hook.run(weight=np.ones(2))
    hook.set_mode(modes.TRAIN)
    hook.save_tensor("my_loss", np.nan, "losses")
    hook.save_scalar("x", 1)
    hook.close()
    assert steps_of(tmp_path) == {"scalar/x": [0]}
