"""ExplodingTensor: NaN and infinity, by their counts or by what they do to other reductions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.rules.tensor_runs import (
    Run,
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
from smdebug.reductions import REDUCTION_NAMES
from smdebug.rules import invoke_rule
from smdebug.rules.builtin.exploding_tensor import ExplodingTensor
from smdebug.rules.detectors.non_finite import CLUES
from smdebug.testing.runs import make_run
from smdebug.trials.create import create_trial

if TYPE_CHECKING:
    from pathlib import Path


def spoilt(array: Any, *values: float) -> Any:
    """The array with its first elements replaced."""
    copy = array.copy()
    copy.reshape(-1)[: len(values)] = values
    return copy


def run_with(*values: float) -> Run:
    """Six steps; at 2 and 3 and at 5 the gradient holds the values."""
    run: Run = {}
    for step in range(6):
        gradient = normal(step)
        if step in (2, 3, 5):
            gradient = spoilt(gradient, *values)
        run[step] = {"Net_fc.weight": normal(step, 1), "gradient/Net_fc.weight": gradient}
    return run


@pytest.mark.parametrize("saves", [None, ["nans", "infs"]])
def test_one_finding_where_it_begins(tmp_path: Path, saves: Any) -> None:
    path = write(tmp_path, run_with(np.nan, np.inf, -np.inf), saves)
    result = findings(path, "ExplodingTensor")
    assert [(each.step, each.tensor, each.value) for each in result] == [
        (2, "gradient/Net_fc.weight", 3.0),
        (5, "gradient/Net_fc.weight", 3.0),
    ]
    assert "gradient/Net_fc.weight has exploded: 3 of its elements" in result[0].message


# The smallest says nothing of +inf, the largest nothing of -inf.
TOLD = [
    (clue, value)
    for clue in CLUES
    for value in (np.nan, np.inf, -np.inf)
    if (clue, value) not in (("min", np.inf), ("max", -np.inf))
]


@pytest.mark.parametrize(("clue", "value"), TOLD)
def test_any_reduction_tells(tmp_path: Path, clue: str, value: float) -> None:
    path = write(tmp_path, run_with(value), [clue])
    assert [step for step, _ in found(path, "ExplodingTensor")] == [2, 5]


@pytest.mark.parametrize("saves", [[name] for name in REDUCTION_NAMES] + [["min", "mean", "nans"]])
def test_a_finite_run_passes(tmp_path: Path, saves: list[str]) -> None:
    tensors = {"w": normal(1, scale=1e30), "one": np.float32(1), "none": np.zeros((0, 3))}
    run = dict.fromkeys(range(3), tensors)
    # The empty tensor is in the index as it is: nothing need be known of it.
    result = outcome(write(tmp_path, run, saves), "ExplodingTensor:tensor_regex=^w$|^one$")
    assert found(str(tmp_path), "ExplodingTensor") == []
    used = {"nans", "infs", *CLUES} & set(saves)
    assert result.status == ("passed" if used else "could not run")
    assert result.findings == []


@pytest.mark.parametrize(
    "saves", [None, ["nans", "infs"], ["nans"], ["min", "max"], ["l2"], ["mean"]]
)
def test_only_nan(tmp_path: Path, saves: Any) -> None:
    infinite = write(tmp_path / "inf", run_with(np.inf, -np.inf), saves)
    # The mean of these is NaN: no proof.
    assert found(infinite, "ExplodingTensor:only_nan=true") == []
    nan = write(tmp_path / "nan", run_with(np.nan, np.inf), saves)
    expected = [] if saves == ["mean"] else [2, 5]
    assert [step for step, _ in found(nan, "ExplodingTensor:only_nan=True")] == expected


def test_what_is_not_finite_by_nature(tmp_path: Path) -> None:
    """The deviation of one number, as old runs have it, and all of an empty tensor."""
    one = write_numbers(tmp_path / "one", "a", {"std": np.nan}, shape=(1,))
    assert findings(one, "ExplodingTensor") == []
    two = write_numbers(tmp_path / "two", "a", {"std": np.nan}, shape=(2,))
    assert found(two, "ExplodingTensor") == [(0, "a")]
    unknown = write_numbers(tmp_path / "unknown", "a", {"std": np.nan}, shape=None)
    assert found(unknown, "ExplodingTensor") == [(0, "a")]
    numbers = dict.fromkeys(("min", "max", "mean", "std"), np.nan)
    empty = write_numbers(tmp_path / "empty", "a", numbers, shape=(0, 3))
    assert findings(empty, "ExplodingTensor") == []


def test_only_nan_counts_nan_only(tmp_path: Path) -> None:
    path = write(tmp_path, run_with(np.nan, np.nan, np.inf))
    (first, _) = findings(path, "ExplodingTensor:only_nan=True")
    assert first.value == 2.0


def test_counts_of_one_kind_are_completed_by_other_reductions(tmp_path: Path) -> None:
    path = write(tmp_path, run_with(np.inf), ["nans", "max"])
    assert [step for step, _ in found(path, "ExplodingTensor")] == [2, 5]


def test_collections_and_regexes(tmp_path: Path) -> None:
    run = {0: {"a_weight": np.array([np.nan, 1.0]), "b": np.array([np.inf, 0.0])}}
    path = write(tmp_path, run)
    assert found(path, "ExplodingTensor:collection_names=weights") == [(0, "a_weight")]
    assert found(path, {"rule": "ExplodingTensor", "tensor_regex": ["^b$"]}) == [(0, "b")]
    both = {"rule": "ExplodingTensor", "tensor_regex": "^b$", "collection_names": "weights"}
    assert sorted(found(path, both)) == [(0, "a_weight"), (0, "b")]
    assert sorted(found(path, "ExplodingTensor")) == [(0, "a_weight"), (0, "b")]


def test_nan_of_xgboost_is_on_purpose(tmp_path: Path) -> None:
    run = {0: {"trees/Split": np.array([0.5, np.nan]), "hyperparameters/missing": np.array(np.nan),
               "train-rmse": np.array([0.3])}}  # fmt: skip
    path = write(tmp_path, run)
    assert found(path, "ExplodingTensor") == []
    assert found(path, "ExplodingTensor:tensor_regex=trees") == [(0, "trees/Split")]


@pytest.mark.parametrize("format", ["v1", "v2"])
@pytest.mark.parametrize("saves", [None, ["max", "l2"]])
def test_both_formats(tmp_path: Path, format: str, saves: Any) -> None:
    path = write(tmp_path, run_with(np.nan), saves, format=format)
    assert [step for step, _ in found(path, "ExplodingTensor")] == [2, 5]


def test_workers_apart(tmp_path: Path) -> None:
    good, bad = run_with(), run_with(np.nan)
    path = write(tmp_path, {"worker_0": good, "worker_1": bad})
    assert [(e.step, e.worker) for e in findings(path, "ExplodingTensor")] == [
        (2, "worker_1"), (5, "worker_1"),
    ]  # fmt: skip


def test_step_by_step_is_the_same(tmp_path: Path) -> None:
    run = run_with(np.nan)
    whole = findings(write(tmp_path / "a", run), "ExplodingTensor")
    assert found_in_looks(tmp_path / "b", run, "ExplodingTensor") == whole
    assert invoked(ExplodingTensor(create_trial(str(tmp_path / "a")))) == [2, 3, 5]


def test_could_not_run(tmp_path: Path) -> None:
    make_run(tmp_path, data=lambda worker, step: None)
    result = outcome(str(tmp_path), "ExplodingTensor")
    assert result.status == "could not run"
    assert 'Hook(rules=["ExplodingTensor"])' in result.message
    with pytest.raises(InsufficientInformationForRuleInvocation):
        invoke_rule(ExplodingTensor(create_trial(str(tmp_path))))


def test_needs() -> None:
    assert {
        (need.collection, need.reductions, need.raw) for need in ExplodingTensor(None).needs()
    } == {
        ("losses", (), True),
        ("gradients", ("nans", "infs"), False),
        ("weights", ("nans", "infs"), False),
    }
    chosen = ExplodingTensor(None, "relu,biases", "fc._output").needs()
    assert [(need.collection, need.include_regex) for need in chosen] == [
        ("relu", ()), ("biases", ()), ("exploding_tensor", ("fc._output",)),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "bad", [{"only_nan": "maybe"}, {"collection_names": 3}, {"tensor_regex": "("}]
)
def test_bad_parameters(bad: dict[str, Any]) -> None:
    with pytest.raises(SMDebugValueError, match=next(iter(bad))):
        ExplodingTensor(None, **bad)
