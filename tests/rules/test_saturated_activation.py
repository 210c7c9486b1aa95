"""Tanh and sigmoid units that are driven to their ends are found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
from smdebug.rules.builtin.saturated_activation import SaturatedActivation
from smdebug.trials.create import create_trial

if TYPE_CHECKING:
    from pathlib import Path

NAME = "SaturatedActivation"
TANH, SIGMOID = "net.tanh_input_0", "net.sigmoid_input_0"


def layer(saturated: float, size: float, shape: tuple[int, ...] = (100, 10), axis: int = 1) -> Any:
    """Inputs of which a share of the units is always at `size`."""
    values = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    np.moveaxis(values, axis, -1)[..., : round(saturated * shape[axis])] = size
    return values


def run_of(*tensors: dict[str, Any]) -> Any:
    return batches([(TRAIN, each) for each in tensors])


@pytest.mark.parametrize(
    ("name", "size", "expected"),
    [
        (TANH, 9.6, 1),
        (TANH, -9.6, 1),
        (TANH, 9.4, 0),
        (TANH, -9.4, 0),
        (SIGMOID, 17.1, 1),
        (SIGMOID, 16.9, 0),
        (SIGMOID, -23.1, 1),
        (SIGMOID, -22.9, 0),
    ],
)
def test_thresholds_of_both(tmp_path: Path, name: str, size: float, expected: int) -> None:
    path = write(tmp_path, run_of({name: layer(0.0, 0.0)}, {name: layer(0.6, size)}))
    findings = same_in_parts(path, NAME)
    assert [(each.step, each.tensor) for each in findings] == [(1, name)] * expected
    if findings:
        assert (findings[0].value, findings[0].threshold) == (60.0, 50.0)
        assert f"60 % of the units of {name} are saturated" in findings[0].message
        assert fired(path, NAME) == [1]


def test_exactly_at_a_threshold_is_not_saturated(tmp_path: Path) -> None:
    given = {"rule": NAME, "threshold_tanh_max": "2.5", "threshold_tanh_min": "-2.5"}
    for size, expected in ((2.5, 0), (-2.5, 0), (2.75, 1)):
        path = write(tmp_path / str(size), run_of({TANH: layer(1.0, size)}))
        assert len(found(path, given)) == expected


def test_exactly_half_of_the_units_are_allowed(tmp_path: Path) -> None:
    path = write(tmp_path, run_of({TANH: layer(0.5, 50.0)}))
    assert found(path, NAME) == []
    assert len(found(path, f"{NAME}:threshold_layer=49")) == 1


def test_a_unit_may_be_within_the_thresholds_now_and_then(tmp_path: Path) -> None:
    values = layer(1.0, 50.0, (200, 4))
    values[:1] = 0
    assert len(found(write(tmp_path / "a", run_of({TANH: values})), NAME)) == 1
    values[:2] = 0
    assert found(write(tmp_path / "b", run_of({TANH: values})), NAME) == []


def test_channels(tmp_path: Path) -> None:
    values = layer(0.6, 30.0, (16, 10, 4, 4))
    assert [each.value for each in found(write(tmp_path, run_of({TANH: values})), NAME)] == [60.0]


def test_both_ends_of_one_unit(tmp_path: Path) -> None:
    """A unit that jumps from one end to the other has no gradient either."""
    values = np.where(np.arange(200)[:, None] % 2, 40.0, -40.0) * np.ones((1, 4))
    assert len(found(write(tmp_path, run_of({SIGMOID: values})), NAME)) == 1


def test_healthy_inputs(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    steps = [{TANH: 3 * random.standard_normal((64, 40)),
              SIGMOID: 6 * random.standard_normal((64, 40))} for _ in range(20)]  # fmt: skip
    assert found(write(tmp_path, run_of(*steps)), NAME) == []


def test_nan_is_not_saturated(tmp_path: Path) -> None:
    path = write(tmp_path, run_of({TANH: np.full((200, 4), np.nan)}))
    assert found(path, NAME) == []


def test_which_function_it_is(tmp_path: Path) -> None:
    """By the collection where the name does not say it, and the wider range where neither does."""
    tensors = {"act0_input_0": layer(0.6, 12.0), "act1_input_0": layer(0.6, 12.0)}
    collections = manager(tanh_input=["act0_input_0"], sigmoid_input=["act1_input_0"])
    path = write(tmp_path, run_of(tensors), collections)
    assert [each.tensor for each in found(path, NAME)] == ["act0_input_0"]
    plain = write(tmp_path / "b", run_of(tensors))
    given = {"rule": NAME, "tensor_regex": "act"}
    assert found(plain, given) == []
    given["threshold_sigmoid_max"] = "11"
    assert len(found(plain, given)) == 2


def test_chosen_tensors(tmp_path: Path) -> None:
    tensors = {TANH: layer(0.6, 30.0), "my_tanh": layer(0.6, 30.0)}
    path = write(tmp_path, run_of(tensors), manager(mine=["my_tanh"]))
    assert [each.tensor for each in found(path, NAME)] == [TANH]
    assert [each.tensor for each in found(path, f"{NAME}:collection_names=mine")] == ["my_tanh"]


def test_needs() -> None:
    needs = SaturatedActivation(None).needs()
    assert [(each.collection, each.layers, each.tensor, each.raw) for each in needs] == [
        ("tanh_input", ("tanh",), "input", True),
        ("sigmoid_input", ("sigmoid",), "input", True),
    ]
    assert needs[0].include_regex == (".*tanh_input",)
    (need,) = SaturatedActivation(None, None, "a,b").needs()
    assert (need.include_regex, need.raw) == (("a", "b"), True)


def test_workers_and_growing_run(tmp_path: Path) -> None:
    healthy, bad = {TANH: layer(0.0, 0.0)}, {TANH: layer(0.6, 30.0)}
    run = {"worker_0": run_of(healthy), "worker_1": run_of(bad)}
    assert [each.worker for each in found(write(tmp_path / "a", run), NAME)] == ["worker_1"]
    grown = run_of(healthy, bad, bad)
    whole = outcome(write(tmp_path / "b", grown), NAME).findings
    assert [each.step for each in whole] == [1]
    assert in_looks(tmp_path / "c", grown, NAME) == whole


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"threshold_tanh_min": "x"}, "threshold_tanh_min must be a number"),
        ({"threshold_tanh_min": 10}, "threshold_tanh_min must be below threshold_tanh_max"),
        ({"threshold_sigmoid_max": -30}, "threshold_sigmoid_min must be below"),
        ({"threshold_layer": 101}, "threshold_layer must be"),
        ({"threshold_inactivity": "x"}, "threshold_inactivity must be"),
        ({"tensor_regex": "("}, "tensor_regex must be"),
    ],
)
def test_bad_parameters(given: dict[str, Any], said: str) -> None:
    with pytest.raises(SMDebugValueError, match=said):
        SaturatedActivation(None, **given)


def test_no_inputs(tmp_path: Path) -> None:
    path = write(tmp_path / "a", batches([(TRAIN, {"loss": 1.0})] * 3))
    assert outcome(path, NAME).status == "could not run"
    with pytest.raises(InsufficientInformationForRuleInvocation, match="tanh_input"):
        invoke_rule(make_rule(NAME, create_trial(path)))
    reduced = batches([(TRAIN, {TANH: layer(0.6, 30.0)})], saves=("max",))
    path = write(tmp_path / "b", reduced)
    assert "saved without the tensors themselves" in outcome(path, NAME).message
