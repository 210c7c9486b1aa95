"""Short sequences that the state machine of the hook API has found, as tests of their own."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.hook.numpy_hook import NumpyHook

from smdebug import ReductionConfig, SaveConfig, modes
from smdebug.trials import create_trial

if TYPE_CHECKING:
    from pathlib import Path

TRAIN, EVAL, GLOBAL = modes.TRAIN, modes.EVAL, modes.GLOBAL
FORMATS = pytest.mark.parametrize("format", ["v1", "v2"])
FLUSHED = pytest.mark.parametrize("flushed", [False, True], ids=["at once", "flushed between"])


def make_hook(tmp_path: Path, **options: Any) -> NumpyHook:
    options = {"save_config": SaveConfig(save_interval=1), "flush_seconds": 1000, **options}
    return NumpyHook(tmp_path, **options)


@FORMATS
@pytest.mark.parametrize("ending", ["step", "flush", "close"])
def test_what_is_saved_before_the_step_is_set_belongs_to_the_next_step(
    tmp_path: Path, format: str, ending: str
) -> None:
    hook = make_hook(tmp_path, format=format)
    hook.save_scalar("before", 1.0)
    hook.step = 4
    hook.save_scalar("after", 2.0)
    if ending == "step":
        hook.run()
    elif ending == "flush":
        hook.flush()
    hook.close()
    trial = create_trial(tmp_path)
    assert trial.tensor("scalar/before").steps() == [5]
    assert trial.tensor("scalar/after").steps() == [5]


@pytest.mark.parametrize("name", ["mine", "weights"])
def test_a_tensor_saved_before_the_first_step_has_the_reductions_of_its_collection(
    tmp_path: Path, name: str
) -> None:
    hook = make_hook(tmp_path, include_collections=[name])
    hook.get_collection(name).include("x")
    hook.get_collection(name).reduction_config = ReductionConfig(["max"])
    hook.save_tensor("early", np.ones(3), name)
    hook.run()
    hook.close()
    tensor = create_trial(tmp_path).tensor("early")
    assert tensor.values() == {}
    assert tensor.reduction_values(0) == {("max", False): 1.0}


@pytest.mark.parametrize("name", ["mine", "weights"])
def test_a_tensor_saved_before_the_first_step_follows_the_schedule_of_its_collection(
    tmp_path: Path, name: str
) -> None:
    hook = make_hook(tmp_path, include_collections=[name])
    hook.get_collection(name).include("x")
    hook.get_collection(name).save_config = SaveConfig(start_step=1, save_interval=1)
    hook.save_tensor("early", np.ones(3), name)
    hook.save_scalar("there", 1.0)
    hook.run()
    hook.close()
    assert create_trial(tmp_path).tensor_names() == ["scalar/there"]


@FORMATS
def test_when_nan_adds_to_what_another_collection_saves(tmp_path: Path, format: str) -> None:
    hook = make_hook(tmp_path, include_collections=["weights", "mine"], format=format)
    hook.get_collection("mine").include("weight")
    hook.get_collection("mine").reduction_config = ReductionConfig(["max"])
    hook.get_collection("weights").save_config = SaveConfig(end_step=0, when_nan=["loss"])
    for loss in (1.0, math.nan):
        hook.run(weight=np.full(2, 3.0), loss=np.float32(loss), weight_later=np.full(2, 4.0))
    hook.close()
    trial = create_trial(tmp_path)
    for name in ("weight", "weight_later"):
        assert list(trial.tensor(name).values()) == [1], name
        assert [set(trial.tensor(name).reduction_values(step)) for step in (0, 1)] == [
            {("max", False)}
        ] * 2


@FORMATS
@FLUSHED
def test_repeated_step_has_its_new_mode(tmp_path: Path, format: str, flushed: bool) -> None:
    hook = make_hook(tmp_path, include_collections=["mine"], format=format)
    hook.get_collection("mine").include("output")
    hook.run(loss=np.float32(1), output=np.ones(2))
    if flushed:
        hook.flush()
    hook.step = -1
    hook.set_mode(TRAIN)
    # What is not made again stays.
    hook.run(loss=np.float32(2))
    hook.close()
    trial = create_trial(tmp_path)
    assert trial.mode_modestep(0) == (TRAIN, 0)
    assert trial.tensor("loss").steps(mode=TRAIN) == [0]
    assert trial.tensor("output").steps() == [0]


@FORMATS
@FLUSHED
def test_tensor_saved_again_is_replaced_completely(
    tmp_path: Path, format: str, flushed: bool
) -> None:
    hook = make_hook(tmp_path, include_collections=["weights"], format=format)
    hook.get_collection("weights").reduction_config = ReductionConfig(["max", "min"])
    hook.run(weight=np.full(2, 1.0))
    if flushed:
        hook.flush()
    hook.step = -1
    hook.get_collection("weights").reduction_config = ReductionConfig(["max"], save_raw_tensor=True)
    hook.run(weight=np.full(2, 5.0))
    hook.close()
    tensor = create_trial(tmp_path).tensor("weight")
    assert tensor.value(0).tolist() == [5.0, 5.0]
    assert tensor.reduction_values(0) == {("max", False): 5.0}
    assert tensor.reduction_value(0, "min") == 5.0


@FORMATS
@FLUSHED
def test_tensor_saved_twice_in_a_step_keeps_the_last_value(
    tmp_path: Path, format: str, flushed: bool
) -> None:
    hook = make_hook(tmp_path, reduction_config=ReductionConfig(["max"]), format=format)
    hook.run()
    hook.save_tensor("x", np.full(2, 1.0), ["losses", "mine"])
    if flushed:
        hook.flush()
    hook.save_tensor("x", np.full(2, 5.0), "mine")
    hook.close()
    tensor = create_trial(tmp_path).tensor("x")
    assert tensor.reduction_values(0) == {("max", False): 5.0}
    # A value of the first time would contradict it.
    assert tensor.values() == {}


def test_setting_the_step_to_one_of_this_process_restores_the_counts_it_had(
    tmp_path: Path,
) -> None:
    hook = make_hook(tmp_path)
    hook.set_mode(TRAIN)
    hook.step = 10
    hook.set_mode(EVAL)
    hook.run(loss=np.float32(1))
    counts = dict(hook.mode_steps)
    assert counts == {GLOBAL: 11, TRAIN: 10, EVAL: 0}
    hook.step = 11
    assert hook.mode_steps == counts
    hook.close()


def test_setting_the_step_to_one_made_after_a_rewind_restores_the_counts_it_had(
    tmp_path: Path,
) -> None:
    hook = make_hook(tmp_path, save_config=SaveConfig(save_interval=2))
    for mode in (TRAIN, GLOBAL, TRAIN, TRAIN):
        hook.set_mode(mode)
        hook.run(loss=np.float32(1))
    hook.close()
    hook = make_hook(tmp_path, resume=True)
    hook.step = 2
    hook.set_mode(EVAL)
    hook.run(loss=np.float32(1))
    counts = dict(hook.mode_steps)
    hook.step = hook.step
    assert hook.mode_steps == counts
    hook.close()
