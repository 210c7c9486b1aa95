"""Weights that a model can hardly learn from are found, and usual ones are not.

The truth is a small network in numpy: its activations and gradients are real.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.rules.loss_runs import (
    EVAL,
    TRAIN,
    batches,
    fired,
    found,
    in_looks,
    outcome,
    same_in_parts,
    write,
)

from smdebug.exceptions import InsufficientInformationForRuleInvocation, SMDebugValueError
from smdebug.rules import invoke_rule, make_rule
from smdebug.rules.builtin.poor_weight_initialization import PoorWeightInitialization
from smdebug.trials.create import create_trial

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NAME = "PoorWeightInitialization"
SAVED = ("variance", "std", "mean")
SIZES = (20, 32, 32, 32, 4)


def usual(random: Any, rows: int, columns: int) -> Any:
    """As PyTorch begins linear layers."""
    return random.uniform(-1, 1, (rows, columns)) / np.sqrt(columns)


def training(
    begin: Callable[[Any, int, int], Any] = usual,
    sizes: tuple[int, ...] = SIZES,
    rate: float = 0.1,
    steps: int = 12,
    every: int = 10,
    seed: int = 0,
) -> list[Any]:
    """Steps of a perceptron that learns to tell four classes apart, by gradient descent."""
    random = np.random.default_rng(seed)
    weights = [begin(random, after, before)
               for before, after in itertools.pairwise(sizes)]  # fmt: skip
    centres = np.random.default_rng(99).standard_normal((sizes[-1], sizes[0]))
    rows = []
    for step in range(steps * every):
        labels = random.integers(sizes[-1], size=64)
        inputs = centres[labels] + 0.7 * random.standard_normal((64, sizes[0]))
        tensors, loss = _pass(weights, inputs, labels, rate)
        rows.append((TRAIN, {**(tensors if step % every == 0 else {}), "loss": loss}))
    return rows


def _pass(weights: list[Any], inputs: Any, labels: Any, rate: float) -> tuple[Any, float]:
    """One step: the tensors a hook would save, and the loss; the weights learn."""
    tensors = {f"fc{place}.weight": weight.copy() for place, weight in enumerate(weights)}
    outputs = [inputs]
    for place, weight in enumerate(weights[:-1]):
        before = outputs[-1] @ weight.T
        tensors[f"relu_input_{place}"] = before
        outputs.append(np.maximum(before, 0))
    logits = outputs[-1] @ weights[-1].T
    logits = logits - logits.max(axis=1, keepdims=True)
    logs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    chosen = np.arange(len(labels)), labels
    loss = -logs[chosen].mean()
    back = np.exp(logs)
    back[chosen] -= 1
    back /= len(labels)
    for place in reversed(range(len(weights))):
        gradient = back.T @ outputs[place]
        back = (back @ weights[place]) * (outputs[place] > 0)
        tensors[f"gradient/fc{place}.weight"] = gradient
        weights[place] = weights[place] - rate * gradient
    return tensors, float(loss)


def constant(value: float) -> Callable[[Any, int, int], Any]:
    return lambda random, rows, columns: np.full((rows, columns), value)


def scaled(factor: float) -> Callable[[Any, int, int], Any]:
    return lambda random, rows, columns: factor * usual(random, rows, columns)


# ---- real trainings


@pytest.mark.parametrize("seed", range(20))
def test_usual_weights(tmp_path: Path, seed: int) -> None:
    path = write(tmp_path, batches(training(seed=seed, steps=10)))
    assert found(path, NAME) == []
    assert outcome(path, NAME).status == "passed"


def test_usual_weights_differ_from_layer_to_layer() -> None:
    """What the reference counts by itself: a healthy training has it."""
    first = training(steps=1)[0][1]
    variances = [first[f"relu_input_{place}"].var() for place in range(3)]
    assert max(variances) > 10 * min(variances)


@pytest.mark.parametrize("saves", [None, SAVED])
def test_huge_weights(tmp_path: Path, saves: Any) -> None:
    path = write(tmp_path, batches(training(scaled(100), rate=1e-4), saves=saves))
    findings = same_in_parts(path, NAME)
    assert [(each.step, each.tensor) for each in findings] == [(0, "relu_input_2")]
    assert "the signal explodes" in findings[0].message
    first = training(scaled(100), rate=0.0, steps=1)[0][1]
    ratio = first["relu_input_2"].var() / first["relu_input_0"].var()
    assert findings[0].value == pytest.approx(ratio, rel=1e-5)
    assert findings[0].threshold == 10.0
    assert fired(path, NAME)[0] == 0


@pytest.mark.parametrize("saves", [None, SAVED])
def test_weights_of_zero(tmp_path: Path, saves: Any) -> None:
    path = write(tmp_path, batches(training(constant(0.0)), saves=saves))
    findings = same_in_parts(path, NAME)
    assert [(each.step, each.tensor) for each in findings] == [(50, "fc0.weight")]
    assert "began as zero" in findings[0].message


@pytest.mark.parametrize("saves", [None, SAVED])
@pytest.mark.parametrize("value", [0.01, 1 / 32, -0.2])
def test_constant_weights(tmp_path: Path, saves: Any, value: float) -> None:
    path = write(tmp_path, batches(training(constant(value)), saves=saves))
    findings = same_in_parts(path, NAME)
    assert [each.step for each in findings] == [0]
    assert f"all elements of fc0.weight begin as {value:.4g}" in findings[0].message


def test_tiny_weights(tmp_path: Path) -> None:
    """Nothing passes: the variances differ, the gradients vanish, the loss stays."""
    path = write(tmp_path, batches(training(scaled(0.02)), saves=SAVED))
    findings = same_in_parts(path, NAME)
    assert [each.step for each in findings] == [50]
    assert "the loss does not come down" in findings[0].message


# ---- single signals


def row(loss: float, **tensors: Any) -> Any:
    return TRAIN, {"loss": loss, **{name.replace("gradient_", "gradient/"): each
                                    for name, each in tensors.items()}}  # fmt: skip


def spread(variance: float) -> Any:
    return np.sqrt(variance) * np.array([[1.0, -1.0], [-1.0, 1.0]])


def of_losses(losses: Any, **tensors: Any) -> Any:
    return [row(loss, **tensors) for loss in losses]


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        ([2.0] * 6, [5]),
        ([2.0] * 5, []),
        ([2.0, 2.1, 2.2, 2.1, 2.3, 2.4], [5]),
        # One of them is lower by one percent.
        ([2.0, 2.0, 1.979, 2.0, 2.0, 2.0, 2.0], []),
        ([2.0, 2.0, 1.981, 2.0, 2.0, 2.0], [5]),
        # Low at the beginning by chance, and falling since.
        ([2.0, 2.6, 2.5, 2.4, 2.3, 2.2, 2.1], []),
        ([2.0] + [np.nan] * 5, [5]),
        ([np.nan] * 6, [5]),
        ([np.nan, 2.0, 1.9, 1.8, 1.7, 1.6], []),
    ],
)
def test_a_loss_that_stalls(tmp_path: Path, losses: Any, expected: list[int]) -> None:
    bad = {"relu_input_0": spread(1.0), "relu_input_1": spread(11.0)}
    path = write(tmp_path, batches(of_losses(losses, **bad)))
    assert [each.step for each in same_in_parts(path, NAME)] == expected


@pytest.mark.parametrize(("variance", "expected"), [(9.99, 0), (10.01, 1), (0.0999, 1)])
def test_the_ratio_of_variances(tmp_path: Path, variance: float, expected: int) -> None:
    tensors = {"relu_input_0": spread(1.0), "relu_input_1": spread(variance)}
    findings = found(write(tmp_path, batches(of_losses([2.0] * 6, **tensors))), NAME)
    assert len(findings) == expected
    if findings:
        assert findings[0].value == pytest.approx(max(variance, 1 / variance))
        assert "differs between layers" in findings[0].message


def test_tiny_gradients(tmp_path: Path) -> None:
    """2 sqrt(19) deviations of the widest gradient decide, which no percentiles exceed."""
    limit = 0.001 / (2 * np.sqrt(19))
    for size, expected in ((1.01, 0), (0.99, 1)):
        tensors = {
            "gradient_a": spread((size * limit) ** 2),
            "gradient_b": spread((0.1 * limit) ** 2),
        }
        path = write(tmp_path / str(size), batches(of_losses([2.0] * 6, **tensors)))
        findings = found(path, NAME)
        assert [each.tensor for each in findings] == ["gradient/a"] * expected
        falling = write(tmp_path / f"b{size}", batches(of_losses(range(9, 3, -1), **tensors)))
        assert found(falling, NAME) == []


@pytest.mark.parametrize("seed", range(10))
def test_no_percentiles_lie_further_apart(seed: int) -> None:
    random = np.random.default_rng(seed)
    for values in (
        random.standard_normal(1000),
        random.standard_cauchy(1000),
        (random.random(1000) < 0.06).astype(float),
        np.sign(random.random(1000) - 0.5) * (random.random(1000) < 0.11),
    ):
        low, high = np.percentile(values, [5, 95])
        assert high - low <= 2 * np.sqrt(19) * values.std() * (1 + 1e-9)


def test_equal_inputs_count_by_themselves(tmp_path: Path) -> None:
    """The loss is noisy, and no gradient is there to tell."""
    losses = [2.0, 1.6, 2.3, 1.9, 2.2, 1.7, 2.1, 1.8]
    tensors = {"relu_input_0": np.zeros((4, 4)), "relu_input_1": spread(1.0)}
    findings = found(write(tmp_path, batches(of_losses(losses, **tensors))), NAME)
    assert [(each.step, each.tensor) for each in findings] == [(5, "relu_input_0")]


@pytest.mark.parametrize(
    "tensors",
    [
        # Norm layers, with one axis or more; a branch that begins at zero; a linear model.
        {"norm.weight": np.ones(8), "fc.weight": spread(1.0), "fc2.weight": spread(1.0)},
        {"norm.weight": np.ones((4, 3, 3)), "fc.weight": spread(1.0), "fc2.weight": spread(1.0)},
        {"prelu.weight": np.full(8, 0.25), "fc.weight": spread(1.0), "fc2.weight": spread(1.0)},
        {"lora.weight": np.zeros((4, 4)), "fc.weight": spread(1.0)},
        {"fc.weight": np.full((4, 4), 0.1)},
    ],
)
def test_constants_that_are_usual(tmp_path: Path, tensors: Any) -> None:
    rows = of_losses([2.0] * 8, **tensors, gradient_fc=spread(1.0))
    assert found(write(tmp_path, batches(rows)), NAME) == []


def test_a_linear_model_may_begin_at_zero(tmp_path: Path) -> None:
    path = write(tmp_path, batches(training(constant(0.0), sizes=(20, 4))))
    assert found(path, NAME) == []


def test_only_the_first_steps_are_looked_at(tmp_path: Path) -> None:
    fine = {"relu_input_0": spread(1.0), "relu_input_1": spread(2.0)}
    bad = {"relu_input_0": spread(1.0), "relu_input_1": spread(50_000.0)}
    rows = [*of_losses([2.0] * 10, **fine), *of_losses([2.0] * 10, **bad)]
    path = write(tmp_path, batches(rows))
    assert same_in_parts(path, NAME) == []
    assert [each.step for each in same_in_parts(path, f"{NAME}:steps=11")] == [10]


def test_an_explosion_later_on_is_not_how_it_began(tmp_path: Path) -> None:
    fine = {"relu_input_0": spread(1.0), "relu_input_1": spread(2.0)}
    bad = {"relu_input_0": spread(1.0), "relu_input_1": spread(50_000.0)}
    rows = [*of_losses([2.0], **fine), *of_losses([1.9, 1.8, 1.7, 1.6, 1.5, 1.4], **bad)]
    assert found(write(tmp_path, batches(rows)), NAME) == []


def test_evaluations_are_left_out(tmp_path: Path) -> None:
    bad = {"relu_input_0": spread(1.0), "relu_input_1": spread(50_000.0)}
    rows = [(EVAL, {"loss": 2.0, **bad})] * 6
    rows += of_losses([2.0, 1.5], relu_input_0=spread(1.0), relu_input_1=spread(2.0))
    assert found(write(tmp_path, batches(rows)), NAME) == []


def test_workers_are_apart(tmp_path: Path) -> None:
    run = {
        "worker_0": batches(training(steps=2)),
        "worker_1": batches(training(scaled(100), rate=1e-4, steps=2)),
    }
    findings = same_in_parts(write(tmp_path, run), NAME)
    assert [(each.step, each.worker) for each in findings] == [(0, "worker_1")]


def test_growing_run(tmp_path: Path) -> None:
    run = batches(training(constant(0.0), steps=7, every=3))
    whole = outcome(write(tmp_path / "a", run), NAME).findings
    assert [each.step for each in whole] == [15]
    assert in_looks(tmp_path / "b", run, NAME) == whole


# ---- what it is told


def test_needs() -> None:
    needs = {need.collection: need for need in PoorWeightInitialization(None, steps="7").needs()}
    assert set(needs) == {"relu_input", "gradients", "weights", "losses"}
    assert not any(need.raw for need in needs.values())
    relu = needs["relu_input"]
    assert (relu.reductions, relu.layers, relu.tensor) == (("variance",), ("relu",), "input")
    assert (relu.include_regex, relu.saves) == ((".*relu_input",), 7)
    assert needs["losses"].saves is None


def test_regex_of_inputs(tmp_path: Path) -> None:
    tensors = {"act0": spread(1.0), "act1": spread(11.0)}
    path = write(tmp_path, batches(of_losses([2.0] * 6, **tensors)))
    given = {"rule": NAME, "activation_inputs_regex": "^act0$,^act1$"}
    assert len(found(path, given)) == 1
    assert found(path, {**given, "threshold": "12"}) == []
    assert [each.step for each in found(path, {**given, "patience": 2})] == [2]


@pytest.mark.parametrize(
    "given",
    [{"threshold": 0.5}, {"distribution_range": -1}, {"patience": 0}, {"steps": "x"}],
)
def test_bad_parameters(given: dict[str, Any]) -> None:
    with pytest.raises(SMDebugValueError, match=f"{next(iter(given))} must be"):
        PoorWeightInitialization(None, **given)


def test_too_little_was_saved(tmp_path: Path) -> None:
    path = write(tmp_path / "a", batches(of_losses([2.0] * 6)))
    result = outcome(path, NAME)
    assert result.status == "could not run"
    assert "neither the variance" in result.message
    with pytest.raises(InsufficientInformationForRuleInvocation, match="neither"):
        invoke_rule(make_rule(NAME, create_trial(path)))
    path = write(tmp_path / "b", batches([(TRAIN, {"gradient/a": spread(1.0)})] * 6))
    assert "no tensors of the collection losses" in outcome(path, NAME).message
