"""UnchangedTensor: the last values are all close, by the tensors or by their reductions."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from tests.rules.tensor_runs import (
    EVAL,
    Run,
    collections,
    entry,
    findings,
    found,
    found_in_looks,
    invoked,
    normal,
    outcome,
    write,
)

from smdebug.exceptions import InsufficientInformationForRuleInvocation, SMDebugValueError
from smdebug.mode_keys import ModeKeys
from smdebug.rules import invoke_rule
from smdebug.rules.builtin.unchanged_tensor import UnchangedTensor
from smdebug.storage.batch import StepBatch
from smdebug.testing.runs import make_run
from smdebug.trials.create import create_trial

if TYPE_CHECKING:
    from pathlib import Path

SAVES = ["min", "max", "mean", "l2"]
RULE = "UnchangedTensor:collection_names=weights"


def run_of(*values: Any, name: str = "a_weight") -> Run:
    return {step: {name: np.asarray(value)} for step, value in enumerate(values)}


def holds_at(
    values: list[Any], num_steps: int, rtol: float = 1e-5, atol: float = 1e-8
) -> list[int]:
    """The truth: every pair of the last values is close."""
    return [
        last
        for last in range(num_steps - 1, len(values))
        if all(
            np.allclose(new, old, rtol, atol)
            for old, new in itertools.combinations(values[last - num_steps + 1 : last + 1], 2)
        )
    ]


def begins(steps: list[int]) -> list[int]:
    return [step for step in steps if step - 1 not in steps]


@pytest.mark.parametrize("saves", [None, SAVES, ["mean"]])
def test_three_equal_values(tmp_path: Path, saves: Any) -> None:
    a, b = normal(1), normal(2)
    path = write(tmp_path, run_of(a, a, b, b, b, b, a, b, b, b), saves)
    result = findings(path, RULE)
    assert [(each.step, each.tensor) for each in result] == [(4, "a_weight"), (9, "a_weight")]
    assert "its last 3 saved values are equal" in result[0].message


@pytest.mark.parametrize("num_steps", [2, "3", 5])
@pytest.mark.parametrize("saves", [None, SAVES])
@pytest.mark.parametrize("seed", range(4))
def test_against_all_pairs(tmp_path: Path, num_steps: Any, saves: Any, seed: int) -> None:
    # A walk with small steps: neighbours are often close when the ends are not.
    random = np.random.default_rng(seed)
    scales = 1 + np.cumsum(random.choice([0, 4e-6, -3e-6, 1e-3], 60, p=[0.4, 0.3, 0.2, 0.1]))
    values = [scale * np.array([1.0, 2.0, 3.0]) for scale in scales]
    path = write(tmp_path, run_of(*values), saves)
    expected = begins(holds_at(values, int(num_steps)))
    assert expected or num_steps == 5
    rule = {"rule": "UnchangedTensor", "tensor_regex": "a", "num_steps": num_steps}
    assert [step for step, _ in found(path, rule)] == expected


@pytest.mark.parametrize("saves", [None, SAVES])
def test_close_to_the_first_is_not_close_to_all(tmp_path: Path, saves: Any) -> None:
    path = write(tmp_path, run_of([0.0], [0.9], [-0.9]), saves)
    assert found(path, f"{RULE},rtol=0,atol=1") == []
    assert found(path, f"{RULE},rtol=0,atol=1.8") == [(2, "a_weight")]


@pytest.mark.parametrize("saves", [None, SAVES])
@pytest.mark.parametrize(
    ("tolerance", "fires"),
    [({"rtol": 0, "atol": 0.5}, True), ({"rtol": 0, "atol": "0.49"}, False),
     ({"rtol": 0.5, "atol": 0}, True), ({"rtol": "0.49", "atol": 0}, False)],
)  # fmt: skip
def test_tolerances(tmp_path: Path, saves: Any, tolerance: dict[str, Any], fires: bool) -> None:
    path = write(tmp_path, run_of([1.0], [1.5]), saves)
    rule = {"rule": "UnchangedTensor", "tensor_regex": "a", "num_steps": 2, **tolerance}
    assert bool(found(path, rule)) is fires


@pytest.mark.parametrize("saves", [None, SAVES])
@pytest.mark.parametrize(("equal_nan", "fires"), [("false", False), ("true", True)])
def test_equal_nan(tmp_path: Path, saves: Any, equal_nan: str, fires: bool) -> None:
    path = write(tmp_path, run_of(*[[1.0, np.nan]] * 3), saves)
    assert bool(found(path, f"{RULE},equal_nan={equal_nan}")) is fires


@pytest.mark.parametrize("saves", [None, SAVES])
def test_infinity_equals_infinity(tmp_path: Path, saves: Any) -> None:
    path = write(tmp_path, run_of(*[[1.0, np.inf]] * 3), saves)
    assert [step for step, _ in found(path, RULE)] == [2]


def test_raw_sees_what_reductions_do_not(tmp_path: Path) -> None:
    values = [np.roll([1.0, 2.0, 3.0], step) for step in range(3)]
    assert found(write(tmp_path / "raw", run_of(*values)), RULE) == []
    assert found(write(tmp_path / "numbers", run_of(*values), SAVES), RULE) == [(2, "a_weight")]


def test_one_reduction_that_moves_is_enough(tmp_path: Path) -> None:
    values = [np.array([0.0, 1.0, step / 10]) for step in range(5)]
    assert found(write(tmp_path / "ends", run_of(*values), ["min", "max"]), RULE) == [
        (2, "a_weight")
    ]
    assert found(write(tmp_path / "all", run_of(*values), SAVES), RULE) == []


def test_another_shape_is_a_change(tmp_path: Path) -> None:
    assert found(write(tmp_path, run_of(np.ones(2), np.ones(3), np.ones(3))), RULE) == []


def test_only_reductions_that_both_have_are_compared(tmp_path: Path) -> None:
    saved = [["min"], ["mean"], ["min", "mean"], ["min", "mean"], ["mean"]]

    def step_of(worker: str, step: int) -> StepBatch:
        return StepBatch(step, ModeKeys.TRAIN, step, [entry("a_weight", np.ones(2), saved[step])])

    make_run(tmp_path, range(5), data=step_of, collections=collections())
    # 0 and 1 have nothing in common; 1 to 3 have the mean.
    assert found(str(tmp_path), RULE) == [(3, "a_weight")]


def test_tensors_and_reductions_are_not_mixed(tmp_path: Path) -> None:
    def step_of(worker: str, step: int) -> StepBatch:
        saves = None if step % 2 else SAVES
        return StepBatch(step, ModeKeys.TRAIN, step, [entry("a_weight", np.ones(2), saves)])

    make_run(tmp_path, range(7), data=step_of, collections=collections())
    assert sorted(found(str(tmp_path), RULE)) == [(4, "a_weight"), (5, "a_weight")]


def test_kinds_of_numbers(tmp_path: Path) -> None:
    same = {
        "bf_weight": np.array([1, 2], ml_dtypes.bfloat16),
        "int_weight": np.array([1, 2]),
        "bool_weight": np.array([True, False]),
        "complex_weight": np.array([1 + 2j]),
        "empty_weight": np.zeros((0, 2)),
        "text_weight": np.array(["a"]),
        "one_weight": np.float32(3),
    }
    path = write(tmp_path, dict.fromkeys(range(3), same))
    assert sorted(str(name) for _, name in found(path, RULE)) == [
        "bf_weight", "bool_weight", "complex_weight", "int_weight", "one_weight",
    ]  # fmt: skip


def test_modes_formats_and_workers(tmp_path: Path) -> None:
    runs = {"worker_0": run_of(*map(normal, range(3))), "worker_1": run_of(*[normal(1)] * 3)}
    for format, saves in itertools.product(["v1", "v2"], [None, SAVES]):
        path = write(tmp_path / f"{format}{saves}", runs, saves, {2: EVAL}, format=format)
        (only,) = findings(path, RULE)
        assert (only.step, only.worker, only.mode) == (2, "worker_1", EVAL)


@pytest.mark.parametrize("saves", [None, SAVES])
@pytest.mark.parametrize("num_steps", [2, 4])
def test_step_by_step_is_the_same(tmp_path: Path, saves: Any, num_steps: int) -> None:
    values = [normal(int(key)) for key in "1111223333345555556"]
    run = run_of(*values)
    rule = f"{RULE},num_steps={num_steps}"
    path = write(tmp_path / "a", run, saves)
    whole = findings(path, rule)
    expected = holds_at(values, num_steps)
    assert [each.step for each in whole] == begins(expected)
    assert found_in_looks(tmp_path / "b", run, rule, saves) == whole
    assert invoked(UnchangedTensor(create_trial(path), "weights", num_steps=num_steps)) == expected


def test_could_not_run(tmp_path: Path) -> None:
    path = write(tmp_path, run_of(*[normal(1)] * 3), ["std"])
    assert outcome(path, RULE).status == "could not run"
    with pytest.raises(InsufficientInformationForRuleInvocation, match="l2"):
        invoke_rule(UnchangedTensor(create_trial(path), "weights"))


def test_needs() -> None:
    (need,) = UnchangedTensor(None, "weights").needs()
    assert set(need.reductions) == set(SAVES)
    assert not need.raw


@pytest.mark.parametrize(
    ("bad", "said"),
    [({}, "collection_names or tensor_regex"), ({"tensor_regex": "a", "num_steps": 1}, "num_steps"),
     ({"tensor_regex": "a", "rtol": -1}, "rtol"), ({"tensor_regex": "a", "atol": "x"}, "atol"),
     ({"tensor_regex": "a", "equal_nan": "yes"}, "equal_nan")],
)  # fmt: skip
def test_bad_parameters(bad: dict[str, Any], said: str) -> None:
    with pytest.raises(SMDebugValueError, match=said):
        UnchangedTensor(None, **bad)
