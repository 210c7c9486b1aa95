"""AllZero: the percentage of zeros, by their count or by what else tells it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
    write_numbers,
)

from smdebug.exceptions import InsufficientInformationForRuleInvocation, SMDebugValueError
from smdebug.mode_keys import ModeKeys
from smdebug.rules import invoke_rule
from smdebug.rules.builtin.all_zero import AllZero
from smdebug.storage.batch import StepBatch
from smdebug.testing.runs import make_run
from smdebug.trials.create import create_trial

if TYPE_CHECKING:
    from pathlib import Path

RULE = "AllZero:collection_names=gradients"


def zeros(count: int, size: int = 8) -> Any:
    """An array of which some elements are zero."""
    array = np.abs(normal(count, shape=(size,))) + 0.5
    array[:count] = 0
    return array


def run_of(*counts: int) -> Run:
    return {step: {"gradient/a": zeros(count), "b": zeros(8)} for step, count in enumerate(counts)}


@pytest.mark.parametrize(
    "saves",
    [None, ["zeros"], ["abs_max"], ["l1"], ["l2"], ["abs_mean"], ["min", "max"]],
)
def test_all_zero(tmp_path: Path, saves: Any) -> None:
    path = write(tmp_path, run_of(0, 8, 8, 7, 8, 1), saves)
    first, second = findings(path, RULE)
    assert [(each.step, each.tensor, each.value) for each in (first, second)] == [
        (1, "gradient/a", 100.0), (4, "gradient/a", 100.0),
    ]  # fmt: skip
    assert first.message == "all of gradient/a is zero; the limit is 100 percent"


@pytest.mark.parametrize("saves", [None, ["zeros"]])
@pytest.mark.parametrize(
    ("threshold", "steps"), [(50, [2]), ("50.01", [3]), (0, [0]), (62.5, [3]), (99.9, [4])]
)
def test_thresholds(tmp_path: Path, saves: Any, threshold: Any, steps: list[int]) -> None:
    path = write(tmp_path, run_of(0, 3, 4, 5, 8), saves)
    rule = {"rule": "AllZero", "tensor_regex": "^gradient", "threshold": threshold}
    assert [step for step, _ in found(path, rule)] == steps
    (only,) = findings(path, rule)
    assert only.value == 100 * [0, 3, 4, 5, 8][only.step] / 8


def test_other_reductions_say_only_that_all_is_zero(tmp_path: Path) -> None:
    path = write(tmp_path / "a", run_of(7, 8), ["l2"])
    assert found(path, f"{RULE},threshold=50") == [(1, "gradient/a")]
    path = write(tmp_path / "b", run_of(7, 6), ["l2"])
    # Whether it is half zero is not known of any.
    result = outcome(path, f"{RULE},threshold=50")
    assert result.status == "could not run"
    assert "zeros" in result.message
    assert outcome(path, RULE).status == "passed"


@pytest.mark.parametrize("saves", [["min"], ["max"], ["mean"]])
def test_one_end_does_not_say_it(tmp_path: Path, saves: list[str]) -> None:
    result = outcome(write(tmp_path, run_of(8, 8), saves), RULE)
    assert result.status == "could not run"


def test_numbers_that_contradict_each_other(tmp_path: Path) -> None:
    # The square of a tiny number was 0 in float32.
    path = write_numbers(tmp_path, "gradient/a", {"l2": 0.0, "abs_max": 1e-30})
    assert found(path, RULE) == []
    assert findings(path, f"{RULE},threshold=50") == []


def test_an_empty_tensor_of_old_runs(tmp_path: Path) -> None:
    path = write_numbers(tmp_path, "gradient/a", {"l2": 0.0}, shape=(0, 3))
    assert findings(path, RULE) == []


def test_minus_zero_is_zero(tmp_path: Path) -> None:
    assert found(write(tmp_path, {0: {"gradient/a": np.array([-0.0, 0.0])}}), RULE) == [
        (0, "gradient/a")
    ]


@pytest.mark.parametrize("saves", [None, ["zeros"], ["l2"]])
def test_tiny_is_not_zero(tmp_path: Path, saves: Any) -> None:
    run = {0: {"gradient/a": np.array([1e-45, 0, 0], np.float32)}}
    assert found(write(tmp_path, run, saves), RULE) == []


@pytest.mark.parametrize("saves", [None, ["zeros"], ["l2"]])
def test_an_empty_tensor_has_no_zeros(tmp_path: Path, saves: Any) -> None:
    run = {0: {"gradient/a": np.zeros((0, 3)), "gradient/b": np.ones(2)}}
    path = write(tmp_path, run, saves)
    assert found(path, RULE) == []
    # Any share of zeros is too much, and only the full one has a share.
    known = [] if saves == ["l2"] else ["gradient/b"]
    assert [each.tensor for each in findings(path, f"{RULE},threshold=0")] == known


@pytest.mark.parametrize("saves", [None, ["zeros"]])
def test_scalars(tmp_path: Path, saves: Any) -> None:
    run = {step: {"gradient/a": np.array(float(step % 2))} for step in range(4)}
    assert [step for step, _ in found(write(tmp_path, run, saves), RULE)] == [0, 2]


def test_steps_without_a_number_end_nothing(tmp_path: Path) -> None:
    # Saved with its zeros at even steps, with its mean at the others.
    def step_of(worker: str, step: int) -> StepBatch:
        saves = ["zeros"] if step % 2 == 0 else ["mean"]
        return StepBatch(step, ModeKeys.TRAIN, step, [entry("gradient/a", np.zeros(3), saves)])

    make_run(tmp_path, range(6), data=step_of, collections=collections())
    assert found(str(tmp_path), RULE) == [(0, "gradient/a")]


def test_formats_and_modes(tmp_path: Path) -> None:
    path = write(tmp_path, run_of(0, 8), ["l2"], modes={1: EVAL}, format="v1")
    (only,) = findings(path, RULE)
    assert (only.step, only.mode) == (1, EVAL)


def test_workers_apart(tmp_path: Path) -> None:
    path = write(tmp_path, {"worker_0": run_of(0, 0), "worker_1": run_of(0, 8)})
    (only,) = findings(path, RULE)
    assert (only.step, only.worker) == (1, "worker_1")


def test_step_by_step_is_the_same(tmp_path: Path) -> None:
    run = run_of(8, 8, 1, 8, 8, 0, 8)
    path = write(tmp_path / "a", run)
    whole = findings(path, RULE)
    assert [each.step for each in whole] == [0, 3, 6]
    assert found_in_looks(tmp_path / "b", run, RULE) == whole
    assert invoked(AllZero(create_trial(path), "gradients")) == [0, 1, 3, 4, 6]


def test_could_not_run(tmp_path: Path) -> None:
    path = write(tmp_path, {0: {"b": np.zeros(2)}})
    assert outcome(path, RULE).status == "could not run"
    with pytest.raises(InsufficientInformationForRuleInvocation, match="gradients"):
        invoke_rule(AllZero(create_trial(path), ["gradients"]))


def test_needs() -> None:
    needs = AllZero(None, ["gradients"], "relu").needs()
    assert [(need.collection, need.reductions, need.include_regex) for need in needs] == [
        ("gradients", ("zeros",), ()), ("all_zero", ("zeros",), ("relu",)),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("bad", "said"),
    [({}, "collection_names or tensor_regex"), ({"collection_names": ","}, "collection_names"),
     ({"tensor_regex": "a", "threshold": 100.1}, "threshold"),
     ({"tensor_regex": "a", "threshold": "-1"}, "threshold"),
     ({"tensor_regex": "["}, "tensor_regex")],
)  # fmt: skip
def test_bad_parameters(bad: dict[str, Any], said: str) -> None:
    with pytest.raises(SMDebugValueError, match=said):
        AllZero(None, **bad)
