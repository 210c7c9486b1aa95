"""What a script saves by itself: numbers and tensors, at the step it is at."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn

import smdebug.pytorch as smd
from smdebug.exceptions import SMDebugError, SMDebugTypeError, SMDebugValueError

if TYPE_CHECKING:
    from pathlib import Path

    from smdebug.trials import Trial

EVERY = smd.SaveConfig(save_interval=1)
SELDOM = smd.SaveConfig(save_interval=5)
TRAIN, EVAL, GLOBAL = smd.modes.TRAIN, smd.modes.EVAL, smd.modes.GLOBAL


class Script:
    """A training script: a hook, a model, steps."""

    def __init__(self, out_dir: Path, **options: Any) -> None:
        self.hook = smd.Hook(out_dir, **options)
        self.model = nn.Linear(2, 2)
        self.hook.register_module(self.model)

    def step(self, mode: smd.modes | None = None) -> None:
        if mode is not None:
            self.hook.set_mode(mode)
        self.model(torch.ones(1, 2)).sum().backward()

    def end(self) -> Trial:
        self.hook.close()
        return smd.create_trial(self.hook.out_dir)


def values_of(trial: Trial, name: str, mode: smd.modes = GLOBAL) -> dict[int, float]:
    return {step: float(value[0]) for step, value in trial.tensor(name).values(mode).items()}


# ---- save_scalar


@pytest.mark.parametrize("format", ["v1", "v2"])
@pytest.mark.parametrize("options", [{"save_config": SELDOM}, {"save_all": True}, {}], ids=str)
def test_a_scalar_is_saved_at_every_step_regardless_of_the_save_schedule(
    tmp_path: Path, format: str, options: dict[str, Any]
) -> None:
    script = Script(tmp_path, format=format, **options)
    for number in range(12):
        script.step()
        script.hook.save_scalar("x", number / 4)
    trial = script.end()
    assert values_of(trial, "scalar/x") == {number: number / 4 for number in range(12)}
    assert trial.tensor_names(collection="scalars") == ["scalar/x"]


def test_a_scalar_belongs_to_the_step_and_mode_of_the_call(tmp_path: Path) -> None:
    script = Script(tmp_path, save_config=SELDOM)
    expected: dict[smd.modes, dict[int, float]] = {TRAIN: {}, EVAL: {}}
    for epoch in range(3):
        for _ in range(4):
            script.step(TRAIN)
            script.hook.save_scalar("loss", script.hook.step)
            expected[TRAIN][len(expected[TRAIN])] = script.hook.step
        for _ in range(2):
            script.step(EVAL)
            script.hook.save_scalar("loss", script.hook.step)
            expected[EVAL][len(expected[EVAL])] = script.hook.step
        # After the validation, before the next step of training: it is about the last one.
        script.hook.set_mode(TRAIN)
        script.hook.save_scalar("epoch", epoch)
    trial = script.end()
    assert values_of(trial, "scalar/loss", TRAIN) == expected[TRAIN]
    assert values_of(trial, "scalar/loss", EVAL) == expected[EVAL]
    assert values_of(trial, "scalar/epoch", TRAIN) == {3: 0, 7: 1, 11: 2}
    assert trial.tensor("scalar/epoch").steps(EVAL) == []
    assert values_of(trial, "scalar/epoch") == {3: 0, 9: 1, 15: 2}
    for number in range(18):
        mode, mode_step = trial.mode_modestep(number)
        epoch, place = divmod(number, 6)
        assert mode is (TRAIN if place < 4 else EVAL)
        assert mode_step == (4 * epoch + place if place < 4 else 2 * epoch + place - 4)


def test_scalar_of_an_earlier_step_keeps_its_other_tensors(
    tmp_path: Path,
) -> None:
    script = Script(tmp_path, save_config=EVERY, include_collections="weights")
    script.step(TRAIN)
    script.hook.save_scalar("a", 1)
    script.step(EVAL)
    script.hook.set_mode(TRAIN)
    script.hook.save_scalar("b", 2)
    script.hook.set_mode(EVAL)
    script.hook.save_scalar("c", 3)
    trial = script.end()
    assert trial.tensor_names(step=0, mode=TRAIN) == ["Linear_weight", "scalar/a", "scalar/b"]
    assert trial.tensor_names(step=0, mode=EVAL) == ["Linear_weight", "scalar/c"]


def test_scalars_before_the_first_step_are_of_step_0(tmp_path: Path) -> None:
    script = Script(tmp_path, save_config=EVERY)
    script.hook.set_mode(TRAIN)
    script.hook.save_scalar("early", 4.5)
    script.step()
    script.hook.save_scalar("late", 5.5)
    trial = script.end()
    assert values_of(trial, "scalar/early", TRAIN) == {0: 4.5}
    assert values_of(trial, "scalar/late", TRAIN) == {0: 5.5}
    assert trial.steps() == [0]


@pytest.mark.parametrize("format", ["v1", "v2"])
def test_a_run_of_one_scalar_and_no_step_closes(tmp_path: Path, format: str) -> None:
    hook = smd.Hook(tmp_path, format=format)
    hook.save_scalar("only", 1.5)
    hook.close()
    trial = smd.create_trial(tmp_path)
    assert trial.loaded_all_steps
    assert values_of(trial, "scalar/only") == {0: 1.5}


def test_a_scalar_saved_twice_at_a_step_has_the_last_value(tmp_path: Path) -> None:
    script = Script(tmp_path)
    script.step()
    script.hook.save_scalar("x", 1)
    script.hook.save_scalar("x", 2)
    script.hook.flush()
    script.hook.save_scalar("y", 3)
    script.hook.flush()
    script.hook.save_scalar("y", 4)
    trial = script.end()
    assert values_of(trial, "scalar/x") == {0: 2}
    assert values_of(trial, "scalar/y") == {0: 4}


SCALARS: list[tuple[Any, str, tuple[int, ...]]] = [
    (1.5, "float64", (1,)),
    (7, "int64", (1,)),
    (True, "bool", (1,)),
    (np.float32(1.5), "float32", ()),
    (np.array([2.5]), "float64", (1,)),
    (np.array([[3]], np.int32), "int32", (1, 1)),
    ([1.5], "float64", (1,)),
    (torch.tensor(1.5), "float32", ()),
    (torch.tensor([1.5], dtype=torch.float16), "float16", (1,)),
    (torch.tensor(1.5, dtype=torch.bfloat16), "bfloat16", ()),
    (torch.tensor(1.5, requires_grad=True) * 2, "float32", ()),
    (nn.Parameter(torch.ones(1)), "float32", (1,)),
    (2**60 + 1, "int64", (1,)),
    (float("nan"), "float64", (1,)),
    (float("-inf"), "float64", (1,)),
]


@pytest.mark.parametrize(("value", "dtype", "shape"), SCALARS, ids=lambda x: str(x)[:20])
def test_values_with_one_number_are_scalars(
    tmp_path: Path, value: Any, dtype: str, shape: tuple[int, ...]
) -> None:
    script = Script(tmp_path)
    script.step()
    script.hook.save_scalar("x", value)
    found = script.end().tensor("scalar/x").value(0)
    expected = value.detach().float().numpy() if isinstance(value, torch.Tensor) else value
    assert (found.dtype.name, found.shape) == (dtype, shape)
    np.testing.assert_array_equal(
        found.astype(np.float64).reshape(-1), np.asarray(expected, np.float64).reshape(-1)
    )
    if dtype == "int64":
        assert int(found[0]) == value


@pytest.mark.parametrize(
    "value",
    [
        None, "text", b"text", ..., {}, {"a": 1}, [], [1, 2], [[1], [2, 3]], np.ones(2),
        np.ones(0), torch.ones(2), torch.ones(0), nn.Linear(1, 1), torch.ones(1, device="meta"),
    ],
    ids=lambda x: str(x)[:25],
)  # fmt: skip
def test_values_without_exactly_one_number_are_rejected(tmp_path: Path, value: Any) -> None:
    script = Script(tmp_path)
    script.step()
    with pytest.raises(SMDebugTypeError, match=r"scalar|value"):
        script.hook.save_scalar("x", value)
    script.hook.save_scalar("y", 1)
    assert script.end().tensor_names() == ["scalar/y"]


@pytest.mark.parametrize("name", [None, "", 7])
def test_scalar_name_is_validated(tmp_path: Path, name: Any) -> None:
    script = Script(tmp_path)
    with pytest.raises(SMDebugValueError, match="name"):
        script.hook.save_scalar(name, 1.0)


def test_a_metric_is_also_in_the_collection_of_metrics(tmp_path: Path) -> None:
    script = Script(tmp_path)
    script.step()
    script.hook.save_scalar("accuracy", 0.5, sm_metric=True)
    script.hook.save_scalar("plain", 0.25)
    trial = script.end()
    assert trial.tensor_names(collection="sm_metrics") == ["scalar/accuracy"]
    assert trial.tensor_names(collection="scalars") == ["scalar/accuracy", "scalar/plain"]


def test_scalar_has_the_given_time_or_that_of_the_call(tmp_path: Path) -> None:
    script = Script(tmp_path)
    script.step()
    before = time.time()
    script.hook.save_scalar("now", 1)
    after = time.time()
    script.hook.save_scalar("then", 1, timestamp=1234.5)
    rows = {
        row["tensor"]: row["time"] for row in script.end().to_arrow(["tensor", "time"]).to_pylist()
    }
    stamps = {name: _seconds(moment) for name, moment in rows.items()}
    assert stamps["scalar/then"] == pytest.approx(1234.5)
    assert before - 1e-3 <= stamps["scalar/now"] <= after + 1e-3


def _seconds(moment: Any) -> float:
    return float(moment.timestamp()) if hasattr(moment, "timestamp") else float(moment)


@pytest.mark.parametrize("timestamp", ["soon", -1, float("nan"), [1]])
def test_timestamp_is_validated(tmp_path: Path, timestamp: Any) -> None:
    script = Script(tmp_path)
    with pytest.raises(SMDebugValueError, match="timestamp"):
        script.hook.save_scalar("x", 1, timestamp=timestamp)


def test_the_value_is_that_of_the_call_even_if_it_changes_afterwards(tmp_path: Path) -> None:
    script = Script(tmp_path, save_config=EVERY)
    script.step()
    scalar, array, tensor = torch.zeros(1), np.zeros(3), torch.zeros(3)
    script.hook.save_scalar("x", scalar)
    script.hook.save_tensor("array", array)
    script.hook.save_tensor("tensor", tensor)
    for each in (scalar, array, tensor):
        each += 1
    trial = script.end()
    for name in ("scalar/x", "array", "tensor"):
        assert not trial.tensor(name).value(0).any()


# ---- save_tensor


def test_a_tensor_is_saved_at_the_step_of_the_call(tmp_path: Path) -> None:
    script = Script(tmp_path, save_config=smd.SaveConfig(save_interval=2))
    for number in range(5):
        script.step()
        # After the backward pass, when the next step is nearer than the last.
        script.hook.save_tensor("x", torch.full((2, 3), number))
    tensor = script.end().tensor("x")
    assert tensor.steps() == [0, 2, 4]
    for number in (0, 2, 4):
        np.testing.assert_array_equal(tensor.value(number), np.full((2, 3), number))


def test_save_tensor_creates_unknown_collections(
    tmp_path: Path,
) -> None:
    script = Script(tmp_path, save_config=EVERY)
    script.step()
    script.hook.save_tensor("one", torch.ones(2), "mine")
    script.hook.save_tensor("two", torch.ones(2), ["mine", "yours", "bias"])
    script.hook.save_tensor("three", torch.ones(2))
    # A collection that was made so is not one that is empty.
    script.step()
    script.hook.save_tensor("one", torch.ones(2), "mine")
    trial = script.end()
    assert trial.tensor_names(collection="mine") == ["one", "two"]
    assert trial.tensor_names(collection="yours") == ["two"]
    assert trial.tensor_names(collection="biases") == ["two"]
    assert trial.tensor_names(collection="default") == ["three"]
    assert trial.tensor("one").steps() == [0, 1]


def test_a_tensor_before_the_first_step_is_of_step_0(tmp_path: Path) -> None:
    script = Script(tmp_path, save_config=EVERY)
    script.hook.save_tensor("x", torch.ones(2), "mine")
    script.step()
    script.step()
    trial = script.end()
    assert trial.tensor("x").steps() == [0]


def test_reductions_are_those_of_the_collections_due_at_the_step(tmp_path: Path) -> None:
    script = Script(tmp_path, save_config=EVERY, reduction_config=smd.ReductionConfig(["max"]))
    mine, yours = script.hook.get_collection("mine"), script.hook.get_collection("yours")
    mine.include("^x$")
    mine.reduction_config = smd.ReductionConfig(["min"], norms=["l2"])
    yours.include("^x$")
    yours.reduction_config = smd.ReductionConfig(save_raw_tensor=True)
    yours.save_config = smd.SaveConfig(save_interval=2)
    for _ in range(3):
        script.step()
        script.hook.save_tensor("x", torch.tensor([3.0, -4.0]), ["mine", "yours"])
        script.hook.save_tensor("y", torch.tensor([3.0, -4.0]), "default")
        script.hook.save_tensor("z", torch.tensor([3.0, -4.0]), "losses")
    trial = script.end()
    x, y, z = (trial.tensor(name) for name in "xyz")
    assert x.reduction_values(1) == {("min", False): -4.0, ("l2", False): 5.0}
    assert sorted(x.values()) == [0, 2]
    assert y.reduction_values(1) == {("max", False): 3.0}
    assert y.values() == {}
    # Collections of numbers are saved as they are.
    assert z.reduction_values(1) == {}
    assert sorted(z.values()) == [0, 1, 2]


def test_schedules_are_those_of_the_collection_and_of_the_mode(tmp_path: Path) -> None:
    schedule = {EVAL: smd.SaveConfigMode(save_interval=1), TRAIN: smd.SaveConfigMode(end_step=0)}
    script = Script(tmp_path, save_config=schedule)
    for mode in (TRAIN, EVAL, TRAIN, EVAL):
        script.step(mode)
        script.hook.save_tensor("x", torch.ones(2))
    # Training is the mode now, and its last step saves nothing.
    script.hook.set_mode(TRAIN)
    script.hook.save_tensor("x", torch.ones(3))
    tensor = script.end().tensor("x")
    assert tensor.steps(EVAL) == [0, 1]
    assert tensor.steps(TRAIN) == []


def test_a_tensor_after_an_evaluation_is_of_the_last_training_step(tmp_path: Path) -> None:
    script = Script(tmp_path, save_config=EVERY)
    for mode in (TRAIN, TRAIN, EVAL, EVAL):
        script.step(mode)
    script.hook.set_mode(TRAIN)
    script.hook.save_tensor("x", torch.ones(2), "mine")
    tensor = script.end().tensor("x")
    assert tensor.steps(TRAIN) == [1]
    assert tensor.steps() == [1]


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (np.arange(6).reshape(2, 3), "int64"),
        (np.arange(6, dtype=np.float16).reshape(2, 3).T, "float16"),
        ([[1, 2], [3, 4]], "int64"),
        ((1.5, 2.5), "float64"),
        (7, "int64"),
        (torch.arange(6).reshape(2, 3).t(), "int64"),
        (torch.ones(2, dtype=torch.bool), "bool"),
        (torch.ones(2, 2, requires_grad=True) * 3, "float32"),
        (torch.tensor(2.5, dtype=torch.float64), "float64"),
        (torch.ones(0, 3), "float32"),
        (np.ones((0,), np.int8), "int8"),
    ],
    ids=lambda x: str(x)[:25],
)
def test_values_convertible_to_tensors_are_accepted(tmp_path: Path, value: Any, dtype: str) -> None:
    script = Script(tmp_path, save_config=EVERY)
    script.step()
    script.hook.save_tensor("x", value)
    found = script.end().tensor("x").value(0)
    expected = value.detach().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
    assert found.dtype.name == dtype
    assert found.shape == expected.shape
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    "value", [None, ..., {"a": 1}, [[1], [2, 3]], [None], nn.Linear(1, 1)], ids=str
)
def test_invalid_tensors_are_rejected(tmp_path: Path, value: Any) -> None:
    script = Script(tmp_path, save_config=EVERY)
    script.step()
    with pytest.raises(SMDebugTypeError, match="x"):
        script.hook.save_tensor("x", value)


@pytest.mark.parametrize(("name", "collections"), [(None, "a"), ("", "a"), ("x", 7), ("x", [7])])
def test_names_of_tensor_and_collections_are_validated(
    tmp_path: Path, name: Any, collections: Any
) -> None:
    script = Script(tmp_path)
    with pytest.raises(SMDebugError):
        script.hook.save_tensor(name, torch.ones(2), collections)


def test_strings_can_be_saved(tmp_path: Path) -> None:
    script = Script(tmp_path, save_config=EVERY)
    script.step()
    script.hook.save_tensor("words", ["ab", "c"])
    assert script.end().tensor("words").value(0).tolist() == ["ab", "c"]


# ---- record_tensor_value


def test_recorded_values_are_outputs(tmp_path: Path) -> None:
    script = Script(tmp_path, save_config=smd.SaveConfig(save_interval=2))
    for number in range(3):
        script.step()
        script.hook.record_tensor_value("loss", torch.tensor(float(number)))
        script.hook.record_tensor_value("loss", torch.tensor(number + 0.5))
        script.hook.record_tensor_value("other", torch.ones(2))
    trial = script.end()
    assert trial.tensor_names(collection="losses") == ["loss_output_0", "loss_output_1"]
    assert trial.tensor_names() == ["loss_output_0", "loss_output_1"]
    assert [float(trial.tensor("loss_output_1").value(step)) for step in (0, 2)] == [0.5, 2.5]
    assert trial.tensor("loss_output_0").steps() == [0, 2]


@pytest.mark.parametrize("value", [1.0, None, np.ones(1), [torch.ones(1)]], ids=str)
def test_a_recorded_value_is_a_tensor(tmp_path: Path, value: Any) -> None:
    script = Script(tmp_path)
    with pytest.raises(SMDebugTypeError, match="tensor_value"):
        script.hook.record_tensor_value("loss", value)
