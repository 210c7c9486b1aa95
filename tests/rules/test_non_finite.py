"""NonFinite: the first tensor of a step, in the order of computation, that is not finite."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.rules.tensor_runs import (
    EVAL,
    Run,
    Tensors,
    findings,
    found,
    found_in_looks,
    invoked,
    normal,
    outcome,
    write,
)

from smdebug.config.collection import Collection
from smdebug.exceptions import InsufficientInformationForRuleInvocation, SMDebugValueError
from smdebug.rules import invoke_rule
from smdebug.rules.builtin.non_finite import NonFinite, described_by_name
from smdebug.testing.runs import make_run
from smdebug.trials.create import create_trial

if TYPE_CHECKING:
    from pathlib import Path

SAVES = ["nans", "infs", "max"]
# In the order in which a step computes them; not in that of the alphabet.
ORDER = [
    "Net_z.weight", "Net_a.weight", "z_input_0", "z_output_0", "a_input_0", "a_output_0",
    "CrossEntropyLoss_output_0", "gradient/Net_a.weight", "gradient/Net_z.weight",
]  # fmt: skip


def step_of(step: int, bad: dict[str, Any] | None = None) -> Tensors:
    """The tensors of a step; elements of some are replaced from the first on."""
    tensors: Tensors = {}
    for place, name in enumerate(ORDER):
        shape = () if "Loss" in name else (4, 5)
        array = np.array(normal(step, place, shape=shape))
        values = np.atleast_1d((bad or {}).get(name, []))
        array.reshape(-1)[: len(values)] = values
        tensors[name] = array
    return tensors


def run_of(bad: dict[int, dict[str, Any]], steps: int = 6) -> Run:
    return {step: step_of(step, bad.get(step)) for step in range(steps)}


SPREAD = {name: np.nan for name in ORDER[5:]}


@pytest.mark.parametrize("saves", [None, SAVES, ["min", "max", "mean"]])
def test_the_first_computed_is_named(tmp_path: Path, saves: Any) -> None:
    # Forward, a comes after z: the first to hold NaN is a's output, though others come before it
    # in the alphabet and in the model.
    run = run_of({3: SPREAD, 4: {name: np.nan for name in ORDER}})
    (only,) = findings(write(tmp_path, run, saves), "NonFinite")
    assert (only.step, only.tensor, only.worker) == (3, "a_output_0", "worker_0")
    assert only.message.startswith("a_output_0, an output of a, is the first tensor of the step ")
    assert "with NaN" in only.message
    assert "3 other tensors are affected" in only.message


def test_the_order_of_the_step_itself_counts(tmp_path: Path) -> None:
    run = run_of({3: {name: np.nan for name in ORDER}})
    run[3] = dict(reversed(run[3].items()))
    assert found(write(tmp_path, run, SAVES), "NonFinite") == [(3, ORDER[-1])]


@pytest.mark.parametrize("name", ORDER)
def test_wherever_it_begins(tmp_path: Path, name: str) -> None:
    later = ORDER[ORDER.index(name) :]
    run = run_of({2: {each: np.nan for each in later}})
    assert found(write(tmp_path, run, SAVES), "NonFinite") == [(2, name)]


def test_the_message_counts(tmp_path: Path) -> None:
    run = run_of({1: {"z_output_0": [np.nan, np.inf, np.nan], "a_output_0": [np.inf]}})
    (only,) = findings(write(tmp_path, run, SAVES), "NonFinite")
    assert only.value == 3.0
    assert "NaN and Inf in 3 elements; 1 other tensor is affected" in only.message


def test_again_only_after_everything_was_finite(tmp_path: Path) -> None:
    bad = {
        1: {"z_output_0": np.nan},
        2: {"z_output_0": np.nan, "a_output_0": np.inf},
        3: {"a_output_0": np.inf},
        5: {"a_output_0": np.inf},
    }
    path = write(tmp_path, run_of(bad, 7), SAVES)
    assert found(path, "NonFinite") == [(1, "z_output_0"), (5, "a_output_0")]


def test_a_step_that_saved_less_does_not_end_it(tmp_path: Path) -> None:
    # Losses at every step, the rest at every third: the gradients stay NaN all the time.
    loss = "CrossEntropyLoss_output_0"
    run = {
        step: step_of(step, {"gradient/Net_a.weight": np.nan})
        if step % 3 == 0
        else {loss: np.float32(1)}
        for step in range(10)
    }
    assert found(write(tmp_path, run), "NonFinite") == [(0, "gradient/Net_a.weight")]


def test_a_finite_run_passes(tmp_path: Path) -> None:
    assert outcome(write(tmp_path, run_of({})), "NonFinite").status == "passed"


class TestMasks:
    """Attention is masked with -inf, on purpose."""

    def test_a_mask_is_no_fault(self, tmp_path: Path) -> None:
        masks = {step: {"z_input_0": [-np.inf] * 5} for step in range(6)}
        assert found(write(tmp_path / "raw", run_of(masks)), "NonFinite") == []
        assert found(write(tmp_path / "saved", run_of(masks), SAVES), "NonFinite") == []

    def test_nor_is_it_blamed_later(self, tmp_path: Path) -> None:
        bad: dict[int, Any] = {step: {"z_input_0": [-np.inf] * 5} for step in range(6)}
        bad[4] |= {"a_output_0": np.nan}
        assert found(write(tmp_path, run_of(bad), SAVES), "NonFinite") == [(4, "a_output_0")]

    def test_what_was_no_mask_before_is_blamed(self, tmp_path: Path) -> None:
        # The logarithm of 0 in a layer, and what follows from it.
        bad = {4: {"z_output_0": -np.inf, "CrossEntropyLoss_output_0": np.nan}}
        assert found(write(tmp_path, run_of(bad), SAVES), "NonFinite") == [(4, "z_output_0")]

    @pytest.mark.parametrize("value", [np.inf, np.nan])
    def test_anything_but_minus_infinity_is_a_fault(self, tmp_path: Path, value: float) -> None:
        bad: dict[int, Any] = {step: {"z_input_0": -np.inf} for step in range(6)}
        bad[4] = {"z_input_0": [-np.inf, value]}
        assert found(write(tmp_path, run_of(bad), SAVES), "NonFinite") == [(4, "z_input_0")]

    @pytest.mark.parametrize("name", ["Net_a.weight", "gradient/Net_a.weight", ORDER[6]])
    def test_only_inputs_and_outputs_are_masked(self, tmp_path: Path, name: str) -> None:
        path = write(tmp_path, run_of({2: {name: -np.inf}}))
        assert found(path, "NonFinite") == [(2, name)]

    def test_without_the_sign_every_infinity_is_a_fault(self, tmp_path: Path) -> None:
        path = write(tmp_path, run_of({2: {"z_input_0": -np.inf}}), ["nans", "infs"])
        assert found(path, "NonFinite") == [(2, "z_input_0")]


class TestGradientScaler:
    """Gradients of some steps overflow in mixed precision; those steps are left out."""

    def run(self, *steps: int) -> Run:
        return run_of({step: {"gradient/Net_a.weight": np.inf} for step in steps}, 8)

    def test_found_at_once_with_a_hint(self, tmp_path: Path) -> None:
        (only,) = findings(write(tmp_path, self.run(0, 1)), "NonFinite")
        assert only.step == 0
        assert "gradient scaler" in only.message

    def test_patience(self, tmp_path: Path) -> None:
        path = write(tmp_path, self.run(0, 1, 4, 5, 6))
        assert found(path, "NonFinite:gradient_patience=3") == [(6, "gradient/Net_a.weight")]

    def test_steps_without_gradients_do_not_count(self, tmp_path: Path) -> None:
        run = self.run(0, 2, 4)
        for step in (1, 3, 5):
            run[step] = {"CrossEntropyLoss_output_0": np.float32(1)}
        path = write(tmp_path, run)
        assert found(path, "NonFinite:gradient_patience=3") == [(4, "gradient/Net_a.weight")]

    def test_no_patience_with_anything_else(self, tmp_path: Path) -> None:
        run = self.run(0)
        run[1] = step_of(1, {"Net_a.weight": np.nan, "gradient/Net_a.weight": np.nan})
        path = write(tmp_path, run)
        assert found(path, "NonFinite:gradient_patience=3") == [(1, "Net_a.weight")]
        assert "scaler" not in findings(path, "NonFinite:gradient_patience=3")[0].message


def test_workers_apart(tmp_path: Path) -> None:
    runs = {"worker_0": run_of({4: SPREAD}), "worker_1": run_of({2: {ORDER[-1]: np.inf}})}
    path = write(tmp_path, runs, SAVES)
    assert sorted(
        (each.step, each.worker, each.tensor) for each in findings(path, "NonFinite")
    ) == [
        (2, "worker_1", ORDER[-1]),
        (4, "worker_0", "a_output_0"),
    ]


def test_every_mode_is_looked_at(tmp_path: Path) -> None:
    path = write(tmp_path, run_of({3: SPREAD}), SAVES, modes={3: EVAL})
    (only,) = findings(path, "NonFinite")
    assert (only.step, only.mode) == (3, EVAL)


@pytest.mark.parametrize("saves", [None, SAVES])
def test_step_by_step_is_the_same(tmp_path: Path, saves: Any) -> None:
    bad: dict[int, Any] = {step: {"z_input_0": [-np.inf] * 3} for step in range(12)}
    bad[2] |= {"a_output_0": np.nan}
    bad[3] |= {"gradient/Net_a.weight": np.inf}
    bad[7] |= SPREAD
    run = run_of(bad, 12)
    path = write(tmp_path / "a", run, saves)
    whole = findings(path, "NonFinite")
    assert [each.step for each in whole] == [2, 7]
    assert found_in_looks(tmp_path / "b", run, "NonFinite", saves) == whole
    assert invoked(NonFinite(create_trial(path))) == [2, 3, 7]


def test_could_not_run(tmp_path: Path) -> None:
    make_run(tmp_path, data=lambda worker, step: None)
    assert outcome(str(tmp_path), "NonFinite").status == "could not run"
    with pytest.raises(InsufficientInformationForRuleInvocation):
        invoke_rule(NonFinite(create_trial(str(tmp_path))))


def test_needs_everything_that_is_computed() -> None:
    needs = {need.collection: need for need in NonFinite(None).needs()}
    assert set(needs) == {"weights", "biases", "gradients", "losses", "layer_outputs"}
    data = Collection("data", include_regex=list(needs["layer_outputs"].include_regex))
    wanted = ["fc2_input_0", "0.f_output_0", "Net_output_logits", "dense4_relu_output_0",
              "dense/inputs", "dense/outputs", "dense/outputs_0", "dense/inputs/x:0", "inputs",
              "labels_1", "predictions"]  # fmt: skip
    assert [name for name in wanted if not data.matches(name)] == []
    others = ["gradient/Net_output_proj.weight", "gradients/dense/outputs/kernelGrad",
              "Net_fc.weight", "dense/weights/dense/kernel:0", "loss"]  # fmt: skip
    assert [name for name in others if data.matches(name)] == []


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("gradient/Net_fc1.weight", "the gradient of Net_fc1.weight"),
        ("gradients/dense/kernelGrad", "the gradient of dense/kernel"),
        ("0.f_output_0", "an output of 0.f"),
        ("fc2_input_0", "an input of fc2"),
        ("Net_output_logits", "an output of Net"),
        ("dense/inputs", "an input of dense"),
        ("dense/outputs_1", "an output of dense"),
        ("CrossEntropyLoss_input_1", "an input of the loss CrossEntropyLoss"),
        ("CrossEntropyLoss_output_0", "a loss"),
        ("softmaxcrossentropyloss0_output_0", "a loss"),
        ("loss", "a loss"),
        ("val_loss", "a loss"),
        ("inputs", "data of the model"),
        ("labels_0", "data of the model"),
        ("Net_fc1.weight", "a parameter"),
        ("dense0_bias", "a parameter"),
        ("dense/weights/dense/kernel:0", "a parameter"),
        ("train-rmse", ""),
    ],
)
def test_names_say_what_a_tensor_is(name: str, said: str) -> None:
    assert described_by_name(name) == said


@pytest.mark.parametrize("bad", [0, "none", -1, True])
def test_bad_parameters(bad: Any) -> None:
    with pytest.raises(SMDebugValueError, match=re.escape("gradient_patience")):
        NonFinite(None, gradient_patience=bad)


def test_the_patience_with_gradients_does_not_depend_on_blocks(tmp_path: Path) -> None:
    # As a gradient scaler has it: infinite now and then, and skipped.
    gradients = [np.full(2, np.inf) if step in (1, 4, 7) else np.ones(2) for step in range(9)]
    run: Run = {step: {"gradient/Net_a.weight": each} for step, each in enumerate(gradients)}
    rule = "NonFinite:gradient_patience=3"
    assert findings(write(tmp_path / "whole", run), rule) == []
    assert found_in_looks(tmp_path / "looks", run, rule) == []
