"""Layers whose ReLUs are dead are found, whatever the shape of their outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from tests.rules.loss_runs import (
    TRAIN,
    batches,
    fired,
    found,
    in_looks,
    manager,
    outcome,
    same_in_parts,
    write,
)

from smdebug.exceptions import InsufficientInformationForRuleInvocation, SMDebugValueError
from smdebug.rules import invoke_rule, make_rule
from smdebug.rules.builtin.dead_relu import DeadRelu
from smdebug.trials.create import create_trial

if TYPE_CHECKING:
    from pathlib import Path

NAME = "DeadRelu"
LAYER = "net.relu_output_0"


def layer(dead: float, shape: tuple[int, ...] = (100, 20), axis: int = 1, seed: int = 0) -> Any:
    """Outputs of ReLUs of which a share of the units is dead; the others are half active."""
    random = np.random.default_rng(seed)
    values = np.maximum(random.standard_normal(shape), 0).astype(np.float32)
    moved = np.moveaxis(values, axis, -1)
    moved[..., : round(dead * shape[axis])] = 0
    return values


def run_of(*arrays: Any, name: str = LAYER, saves: Any = None) -> Any:
    return batches([(TRAIN, {name: array}) for array in arrays], saves=saves)


@pytest.mark.parametrize(
    ("shape", "axis", "name"),
    [
        ((100, 20), 1, LAYER),
        ((20, 5, 30), 2, LAYER),
        ((16, 20, 5, 5), 1, LAYER),
        ((16, 20, 3, 3, 3), 1, LAYER),
        ((16, 5, 5, 20), 3, "relu_output/outputs"),
    ],
)
def test_units_of_every_shape(tmp_path: Path, shape: tuple[int, ...], axis: int, name: str) -> None:
    run = run_of(layer(0.4, shape, axis), layer(0.6, shape, axis), name=name)
    findings = same_in_parts(write(tmp_path, run), NAME)
    (finding,) = findings
    assert (finding.step, finding.tensor, finding.threshold) == (1, name, 50.0)
    assert finding.value == pytest.approx(60.0)
    assert f"60 % of the ReLUs of {name} are dead" in findings[0].message


def test_exactly_the_thresholds_are_none(tmp_path: Path) -> None:
    values = np.zeros((200, 10), np.float32)
    values[:, :5] = 1
    assert found(write(tmp_path / "half", run_of(values)), NAME) == []
    # Two of 200 positions are one percent.
    values = np.zeros((200, 10), np.float32)
    values[:2] = 1
    assert found(write(tmp_path / "percent", run_of(values)), NAME) == []
    values[1] = 0
    assert [each.value for each in found(write(tmp_path / "less", run_of(values)), NAME)] == [100.0]


def test_small_batches_are_put_together(tmp_path: Path) -> None:
    """Of 32 samples each: four steps make a hundred."""
    arrays = [np.zeros((32, 8), np.float32) for _ in range(3)]
    assert found(write(tmp_path / "a", run_of(*arrays)), NAME) == []
    arrays.append(np.zeros((32, 8), np.float32))
    assert [each.step for each in same_in_parts(write(tmp_path / "b", run_of(*arrays)), NAME)] == [
        3
    ]
    # Each unit is active in one of the last four steps, and in two samples of these.
    for number, array in enumerate(arrays):
        array[:2, 2 * number : 2 * number + 2] = 1
    assert found(write(tmp_path / "c", run_of(*arrays)), NAME) == []


def test_old_steps_are_forgotten(tmp_path: Path) -> None:
    """A layer that dies is found as soon as the last hundred samples say so."""
    arrays = [layer(0.0, (64, 10), seed=seed) for seed in range(10)]
    arrays += [np.zeros((64, 10), np.float32)] * 5
    path = write(tmp_path, run_of(*arrays))
    assert [each.step for each in same_in_parts(path, NAME)] == [11]
    assert fired(path, NAME) == [11, 12, 13, 14]


def test_many_positions_of_few_samples_are_not_enough(tmp_path: Path) -> None:
    images = np.zeros((1, 4, 50, 50), np.float32)
    assert found(write(tmp_path / "a", run_of(*[images] * 15)), NAME) == []
    assert len(found(write(tmp_path / "b", run_of(*[images] * 16)), NAME)) == 1


def test_one_axis_is_one_sample(tmp_path: Path) -> None:
    array = np.array([0.0, 0.0, 0.0, 1.0], np.float32)
    findings = found(write(tmp_path, run_of(*[array] * 100)), NAME)
    assert [(each.step, each.value) for each in findings] == [(99, 75.0)]


def test_another_shape_begins_anew(tmp_path: Path) -> None:
    arrays = [np.zeros((60, 8), np.float32), np.zeros((60, 6), np.float32)] * 3
    assert same_in_parts(write(tmp_path, run_of(*arrays)), NAME) == []


@pytest.mark.parametrize("seed", range(5))
def test_healthy_layers(tmp_path: Path, seed: int) -> None:
    """Sparse units, each active in a twentieth of the samples, in batches of any size."""
    random = np.random.default_rng(seed)
    arrays = [(random.random((size, 64)) < 0.05).astype(np.float32)
              for size in random.integers(1, 80, 40)]  # fmt: skip
    assert found(write(tmp_path, run_of(*arrays)), NAME) == []


def test_nan_is_not_dead(tmp_path: Path) -> None:
    assert found(write(tmp_path, run_of(np.full((200, 4), np.nan, np.float32))), NAME) == []


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16, np.float64, np.int32])
def test_every_type(tmp_path: Path, kind: Any) -> None:
    path = write(tmp_path, run_of((3 * layer(0.6)).astype(kind)))
    assert [each.value for each in found(path, NAME)] == [60.0]


def test_empty_and_scalar_outputs_are_left_out(tmp_path: Path) -> None:
    rows = run_of(np.zeros((0, 4), np.float32), np.float32(0.0), layer(0.6))
    assert [each.step for each in found(write(tmp_path, rows), NAME)] == [2]


# ---- reductions


def certain(array: Any, inactivity: float = 0.01) -> float:
    """The share of dead units that is certain, going by the share of zeros."""
    return float(1 - (array != 0).mean() / inactivity)


def test_zeros_are_enough_where_they_are_certain(tmp_path: Path) -> None:
    # One unit of ten is active in a hundredth of the samples: 99.9 % zeros.
    values = np.zeros((400, 10), np.float32)
    values[:4, 0] = 1
    assert certain(values) == pytest.approx(0.9)
    reduced = write(tmp_path / "a", run_of(*[values] * 6, saves=("zeros", "max")))
    findings = same_in_parts(reduced, NAME)
    assert [each.step for each in findings] == [4]
    assert findings[0].value == pytest.approx(90.0)
    assert findings[0].message.startswith("At least 90 %")
    raw = found(write(tmp_path / "b", run_of(*[values] * 6)), NAME)
    assert [(each.tensor, each.value) for each in raw] == [(LAYER, 90.0)]
    assert outcome(reduced, NAME).status == "found"


@pytest.mark.parametrize("seed", range(10))
def test_zeros_never_say_more_than_the_outputs(seed: int) -> None:
    random = np.random.default_rng(seed)
    chance = random.choice([0.0, 0.0, 0.005, 0.02], 30)
    values = random.random((1000, 30)) < chance
    dead = ((values.mean(axis=0)) < 0.01).mean()
    assert certain(values) <= dead + 1e-9


def test_zeros_that_are_not_certain(tmp_path: Path) -> None:
    # 60 % are dead, and the others active half of the time: 80 % zeros say nothing.
    path = write(tmp_path, run_of(*[layer(0.6)] * 20, saves=("zeros",)))
    assert outcome(path, NAME).status == "passed"


def test_outputs_at_some_steps_and_zeros_at_others(tmp_path: Path) -> None:
    dead = np.zeros((200, 4), np.float32)
    run = [*run_of(layer(0.0), dead)]
    reduced = run_of(*[dead] * 8, saves=("zeros",))
    path = write(tmp_path, [*run, *reduced[2:]])
    findings = same_in_parts(path, NAME)
    assert [each.step for each in findings] == [1, 6]


# ---- which tensors


def test_collection_and_regex(tmp_path: Path) -> None:
    rows = [(TRAIN, {"act_output_0": layer(0.6), "other": layer(0.7)})]
    path = write(tmp_path, batches(rows), manager(relu_output=["act_output_0"]))
    assert [each.tensor for each in found(path, NAME)] == ["act_output_0"]
    assert [each.tensor for each in found(path, f"{NAME}:tensor_regex=^other$")] == ["other"]


def test_needs() -> None:
    (need,) = DeadRelu(None).needs()
    assert (need.collection, need.raw, need.include_regex) == (
        "relu_output", True, (".*relu_output",),
    )  # fmt: skip
    assert (need.layers, need.tensor) == (("relu",), "output")
    (need,) = DeadRelu(None, "act1,act2").needs()
    assert (need.include_regex, need.raw, need.layers) == (("act1", "act2"), True, ())


def test_workers_and_growing_run(tmp_path: Path) -> None:
    run = {"worker_0": run_of(layer(0.0)), "worker_1": run_of(layer(0.6))}
    assert [each.worker for each in found(write(tmp_path / "a", run), NAME)] == ["worker_1"]
    arrays = [layer(0.0, (64, 10), seed=seed) for seed in range(4)]
    grown = run_of(*arrays, *[np.zeros((64, 10), np.float32)] * 3)
    whole = outcome(write(tmp_path / "b", grown), NAME).findings
    assert [each.step for each in whole] == [5]
    assert in_looks(tmp_path / "c", grown, NAME) == whole


def test_thresholds(tmp_path: Path) -> None:
    path = write(tmp_path, run_of(layer(0.6)))
    assert found(path, {"rule": NAME, "threshold_layer": "60"}) == []
    assert len(found(path, {"rule": NAME, "threshold_layer": "59.9"})) == 1
    assert len(found(path, {"rule": NAME, "threshold_layer": 99, "threshold_inactivity": 80})) == 1
    assert found(path, {"rule": NAME, "threshold_inactivity": 0}) == []


@pytest.mark.parametrize(
    "given", [{"threshold_layer": 101}, {"threshold_inactivity": -1}, {"tensor_regex": "("}]
)
def test_bad_parameters(given: dict[str, Any]) -> None:
    with pytest.raises(SMDebugValueError, match=f"{next(iter(given))} must be"):
        DeadRelu(None, **given)


def test_no_outputs(tmp_path: Path) -> None:
    path = write(tmp_path / "a", batches([(TRAIN, {"loss": 1.0})] * 3))
    assert outcome(path, NAME).status == "could not run"
    with pytest.raises(InsufficientInformationForRuleInvocation, match="relu_output"):
        invoke_rule(make_rule(NAME, create_trial(path)))
    path = write(tmp_path / "b", run_of(layer(0.6), saves=("max",)))
    assert "saved without the tensors themselves and zeros" in outcome(path, NAME).message
