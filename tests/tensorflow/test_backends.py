"""Keras 3 on PyTorch and on JAX, each in a process of its own; and Keras without TensorFlow."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf

from smdebug.mode_keys import ModeKeys
from smdebug.trials import create_trial

if TYPE_CHECKING:
    from collections.abc import Iterator

    from smdebug.trials.trial import Trial

KERAS_3 = hasattr(tf.keras, "ops")
pytestmark = pytest.mark.skipif(not KERAS_3, reason="Keras 2 has one backend")
PROGRAM = Path(__file__).parent / "programs" / "backend_witness.py"
# A hang is a failure, not a wait.
TIMEOUT = 240
TORCH = ["everything", "dropout", "jit", "numbers", "inplace", "own"]
JAX = ["everything", "dropout", "numbers"]
WEIGHTS = [
    "first/weights/first/kernel:0", "first/weights/first/bias:0", "norm/weights/norm/gamma:0",
    "norm/weights/norm/beta:0", "norm/weights/norm/moving_mean:0",
    "norm/weights/norm/moving_variance:0", "last/weights/last/kernel:0", "last/weights/last/bias:0",
]  # fmt: skip

Truth = dict[str, Any]


class Program:
    """A process that runs scenarios on a backend."""

    def __init__(self, folder: Path, scenarios: list[str], **environment: str) -> None:
        self._folder = folder
        self._output: str | None = None
        variables = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1", **environment}
        both = [f"{name}_{kind}" for name in scenarios for kind in ("bare", "hooked")]
        self._process = subprocess.Popen(
            [sys.executable, str(PROGRAM), str(folder), *both],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={**os.environ, **variables},
        )  # fmt: skip

    @property
    def output(self) -> str:
        """Everything it said; waits for its end."""
        if self._output is None:
            try:
                self._output = self._process.communicate(timeout=TIMEOUT)[0]
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._output = "hangs after:\n" + self._process.communicate()[0]
        return self._output

    def truth(self, scenario: str) -> Truth:
        assert f"{scenario} done" in self.output, self.output
        with (self._folder / scenario / "truth.pickle").open("rb") as file:
            found: Truth = pickle.load(file)
        return found

    def trial(self, scenario: str) -> Trial:
        assert f"{scenario} done" in self.output, self.output
        return create_trial(self._folder / scenario / "run")

    def said(self, scenario: str) -> str:
        """What was said during a scenario."""
        return self.output.split(f"{scenario} done")[0].split(" done\n")[-1]

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()


@pytest.fixture(scope="module")
def on_torch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    program = Program(tmp_path_factory.mktemp("torch"), TORCH, KERAS_BACKEND="torch")
    yield program
    program.stop()


@pytest.fixture(scope="module")
def on_jax(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    folder = tmp_path_factory.mktemp("jax")
    program = Program(folder, JAX, KERAS_BACKEND="jax", JAX_PLATFORMS="cpu")
    yield program
    program.stop()


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """Keras on PyTorch where there is no TensorFlow."""
    folder = tmp_path_factory.mktemp("alone")
    program = Program(folder, ["sessions"], KERAS_BACKEND="torch", BLOCK_TENSORFLOW="1")
    yield program
    program.stop()


def check_same(program: Program, name: str) -> None:
    """The two training runs have the same results, bit by bit."""
    bare, hooked = program.truth(f"{name}_bare"), program.truth(f"{name}_hooked")
    for one, other in zip(bare["final"], hooked["final"], strict=True):
        assert one.tobytes() == other.tobytes()
    for one, other in zip(bare["steps"], hooked["steps"], strict=True):
        assert one["logs"] == other["logs"]
    for key in ("history", "score"):
        assert bare.get(key) == hooked.get(key)
    for key in ("predicted", "again", "loaded"):
        if key in bare:
            assert bare[key].tobytes() == hooked[key].tobytes()


def check_outside(program: Program, scenario: str) -> None:
    """Weights, the optimizer's variables, losses and metrics are those Keras has."""
    truth, trial = program.truth(scenario), program.trial(scenario)
    assert trial.workers() == ["worker_0"]
    modes = [ModeKeys[step["mode"]] for step in truth["steps"]]
    assert trial.steps() == list(range(len(modes)))
    assert [trial.mode(number) for number in trial.steps()] == modes
    slots = trial.tensor_names(collection="optimizer_variables")
    for number, step in enumerate(truth["steps"]):
        for name, value in zip(WEIGHTS, step["after"], strict=True):
            found = trial.tensor(name).value(number)
            assert found.dtype == value.dtype
            np.testing.assert_array_equal(found, value, err_msg=f"{number} {name}")
        for name, value in step["logs"].items():
            assert trial.tensor(name).value(number).tolist() == [value], (number, name)
        if step["mode"] == "TRAIN":
            assert step["optimizer"]
            for path, value in step["optimizer"].items():
                assert f"{path}:0" in slots
                np.testing.assert_array_equal(trial.tensor(f"{path}:0").value(number), value)
    last = [number for number, mode in enumerate(modes) if mode is ModeKeys.TRAIN][-1]
    for name, values in truth["history"].items():
        assert trial.tensor(name).value(last).tolist() == [pytest.approx(values[-1])]
    assert set(trial.tensor_names(collection="losses")) == {"loss", "val_loss"}
    metrics = {"mae", "val_mae", "batch", "epoch"}
    assert set(trial.tensor_names(collection="metrics")) == metrics


def check_inside(program: Program, scenario: str) -> None:
    """Data, layers and gradients are those of a computation by PyTorch alone."""
    truth, trial = program.truth(scenario), program.trial(scenario)
    for number, step in enumerate(truth["steps"]):
        assert len(step["inside"]) >= 8
        for name, value in step["inside"].items():
            found = trial.tensor(name).value(number)
            assert found.shape == value.shape, (number, name)
            assert found.dtype == value.dtype, (number, name)
            np.testing.assert_allclose(
                found, value, rtol=1e-4, atol=1e-6, err_msg=f"{number} {name}"
            )
    expected = {name for step in truth["steps"] for name in step["inside"]}
    kinds = ("gradients", "inputs", "outputs", "layers")
    assert {n for kind in kinds for n in trial.tensor_names(collection=kind)} == expected


# ---- PyTorch


@pytest.mark.parametrize("name", TORCH)
def test_training_on_torch_is_not_changed(on_torch: Program, name: str) -> None:
    check_same(on_torch, name)


def test_everything_on_torch(on_torch: Program) -> None:
    check_outside(on_torch, "everything_hooked")
    check_inside(on_torch, "everything_hooked")
    assert "smdebug" not in on_torch.said("everything_hooked")


def test_dropout_on_torch(on_torch: Program) -> None:
    trial = on_torch.trial("dropout_hooked")
    for step in (0, 2, 4, 6, 8):
        taken, given = (trial.tensor(f"drop/{kind}").value(step) for kind in ("inputs", "outputs"))
        kept = given != 0
        np.testing.assert_allclose(given[kept], taken[kept] / 0.6, rtol=1e-5)
        np.testing.assert_array_equal(given, trial.tensor("last/inputs").value(step))
        hidden = trial.tensor("first/inputs").value(step)
        assert hidden.shape == (4, 4)


def test_compiled_model_on_torch_is_captured(on_torch: Program) -> None:
    trial = on_torch.trial("jit_hooked")
    assert trial.tensor("gradients/first/kernelGrad").steps() == [0, 2]
    assert trial.tensor("first/outputs").steps() == [0, 2]
    step = on_torch.truth("jit_hooked")["steps"][2]
    given = trial.tensor("inputs").value(2)
    hidden = np.tanh(given @ step["before"][0] + step["before"][1])
    found = trial.tensor("last/inputs").value(2)
    np.testing.assert_allclose(found, hidden, rtol=1e-5, atol=1e-6)
    wrong = trial.tensor("predictions").value(2) - trial.tensor("labels").value(2)
    found = trial.tensor("gradients/last/kernelGrad").value(2)
    np.testing.assert_allclose(found, hidden.T @ (2 * wrong / wrong.size), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_reductions_instead_of_tensors(request: pytest.FixtureRequest, backend: str) -> None:
    program: Program = request.getfixturevalue(f"on_{backend}")
    truth, trial = program.truth("numbers_hooked"), program.trial("numbers_hooked")
    kernel = trial.tensor(WEIGHTS[0])
    assert kernel.steps() == [0, 2]
    for step in (0, 2):
        value = truth["steps"][step]["after"][0].astype(np.float64)
        assert kernel.reduction_value(step, "l2") == pytest.approx(np.linalg.norm(value), rel=1e-6)
        assert kernel.reduction_value(step, "mean") == pytest.approx(value.mean(), rel=1e-5)
    if backend == "torch":
        slope = trial.tensor("gradients/first/kernelGrad")
        assert slope.reduction_value(2, "l2") > 0
    assert not trial.tensor_names(collection="layers")


def test_a_layer_that_writes_to_its_input_on_torch(on_torch: Program) -> None:
    truth, trial = on_torch.truth("inplace_hooked"), on_torch.trial("inplace_hooked")
    for number, step in enumerate(truth["steps"]):
        kernel, bias = step["before"][:2]
        given = trial.tensor("inputs").value(number) @ kernel + bias
        for name in ("first/outputs", "double/inputs"):
            found = trial.tensor(name).value(number)
            np.testing.assert_allclose(found, given, rtol=1e-5, atol=1e-6, err_msg=name)
        for name in ("double/outputs", "last/inputs"):
            found = trial.tensor(name).value(number)
            np.testing.assert_allclose(found, 2 * given, rtol=1e-5, atol=1e-6, err_msg=name)


def test_custom_train_step_on_torch(on_torch: Program) -> None:
    truth, trial = on_torch.truth("own_hooked"), on_torch.trial("own_hooked")
    assert trial.steps() == [0, 1, 2]
    assert "my_loss" in trial.tensor_names(collection="losses")
    for number, step in enumerate(truth["steps"]):
        assert trial.tensor("my_loss").value(number).tolist() == [step["logs"]["my_loss"]]
        hidden, given, labels = (
            trial.tensor(name).value(number) for name in ("first/outputs", "predictions", "labels")
        )
        slope = hidden.T @ (2 * (given - labels))
        found = trial.tensor("gradients/last/kernelGrad").value(number)
        np.testing.assert_allclose(found, slope, rtol=1e-4, atol=1e-5)
        if number:
            change = step["after"][2] - step["before"][2]
            np.testing.assert_allclose(change, -0.01 * slope, rtol=1e-3, atol=1e-6)


# ---- JAX


@pytest.mark.parametrize("name", JAX)
def test_training_on_jax_is_not_changed(on_jax: Program, name: str) -> None:
    check_same(on_jax, name)


def test_tensors_outside_a_step_on_jax(on_jax: Program) -> None:
    check_outside(on_jax, "everything_hooked")


def test_tensors_inside_a_step_on_jax_cause_one_warning(on_jax: Program) -> None:
    trial = on_jax.trial("everything_hooked")
    for collection in ("gradients", "layers", "inputs", "outputs"):
        assert trial.tensor_names(collection=collection) == []
    said = [line for line in on_jax.said("everything_hooked").splitlines() if "smdebug" in line]
    assert len(said) == 1
    assert "JAX" in said[0]
    for word in ("gradients", "layers", "inputs", "labels", "predictions"):
        assert word in said[0]


def test_a_model_on_jax_can_be_used_afterwards(on_jax: Program) -> None:
    truth = on_jax.truth("everything_hooked")
    np.testing.assert_array_equal(truth["again"], truth["predicted"])
    np.testing.assert_allclose(truth["loaded"], truth["predicted"], rtol=1e-6)


# ---- Keras alone


def test_keras_without_tensorflow(alone: Program) -> None:
    check_same(alone, "sessions")
    check_outside(alone, "sessions_hooked")
    check_inside(alone, "sessions_hooked")


def test_sessions_without_tensorflow_are_rejected_with_a_reason(alone: Program) -> None:
    alone.truth("sessions_hooked")
    refusals = [line for line in alone.output.splitlines() if line.startswith("refused: ")]
    assert len(refusals) == 4, alone.output
    for line in refusals:
        assert "tensorflow" in line.lower()
        assert "AttributeError" not in line
    assert "was made" not in alone.output
