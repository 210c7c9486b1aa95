"""TensorVariance: the variance against its limits, whatever of it was saved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.rules.tensor_runs import (
    EVAL,
    Run,
    findings,
    found,
    found_in_looks,
    invoked,
    normal,
    outcome,
    write,
)

from smdebug.exceptions import InsufficientInformationForRuleInvocation, SMDebugValueError
from smdebug.rules import invoke_rule
from smdebug.rules.builtin.tensor_variance import TensorVariance
from smdebug.trials.create import create_trial

if TYPE_CHECKING:
    from pathlib import Path

SCALES = [1.0, 3.0, 3.0, 1.0, 0.1, 3.0, 0.1]
RUN: Run = {
    step: {"a_weight": normal(step, scale=scale, shape=(30, 20)), "one_weight": np.ones(1)}
    for step, scale in enumerate(SCALES)
}
RULE = "TensorVariance:collection_names=weights,max_threshold=4,min_threshold=0.1"


@pytest.mark.parametrize("saves", [None, ["variance"], ["std"], ["std", "variance"]])
def test_both_limits(tmp_path: Path, saves: Any) -> None:
    path = write(tmp_path, RUN, saves)
    result = sorted(findings(path, RULE), key=lambda each: each.step)
    assert [(each.step, each.tensor, each.threshold) for each in result] == [
        (1, "a_weight", 4.0), (4, "a_weight", 0.1), (5, "a_weight", 4.0), (6, "a_weight", 0.1),
    ]  # fmt: skip
    for each in result:
        truth = RUN[each.step]["a_weight"].astype(np.float64).var()
        assert each.value == pytest.approx(truth, rel=1e-5)
    assert "above 4" in result[0].message
    assert "below 0.1" in result[1].message


@pytest.mark.parametrize(
    ("limit", "fires"),
    [({"max_threshold": 1}, False), ({"max_threshold": "0.999"}, True),
     ({"min_threshold": 1}, False), ({"min_threshold": 1.001}, True)],
)  # fmt: skip
@pytest.mark.parametrize("saves", [None, ["variance"], ["std"]])
def test_at_the_limit(tmp_path: Path, limit: dict[str, Any], fires: bool, saves: Any) -> None:
    # The variance of 1 and -1 is exactly 1.
    path = write(tmp_path, {0: {"a": np.array([1.0, -1.0])}}, saves)
    rule = {"rule": "TensorVariance", "tensor_regex": "a", **limit}
    assert bool(found(path, rule)) is fires


def test_one_element_has_no_variance(tmp_path: Path) -> None:
    path = write(tmp_path, {0: {"loss": np.array(1.0), "b": np.array([2.0])}})
    assert findings(path, "TensorVariance:tensor_regex=.,min_threshold=0.5") == []


def test_not_finite_is_neither_large_nor_small(tmp_path: Path) -> None:
    path = write(tmp_path, {0: {"a": np.array([1.0, np.nan])}})
    assert found(path, "TensorVariance:tensor_regex=a,max_threshold=1,min_threshold=1") == []


def test_modes_formats_and_workers(tmp_path: Path) -> None:
    runs = {"worker_0": {0: RUN[0], 1: RUN[3]}, "worker_1": {0: RUN[0], 1: RUN[1]}}
    path = write(tmp_path, runs, ["std"], modes={1: EVAL}, format="v1")
    (only,) = findings(path, RULE)
    assert (only.step, only.worker, only.mode) == (1, "worker_1", EVAL)


def test_step_by_step_is_the_same(tmp_path: Path) -> None:
    path = write(tmp_path / "a", RUN)
    whole = findings(path, RULE)
    stepwise = found_in_looks(tmp_path / "b", RUN, RULE)
    assert stepwise == sorted(whole, key=lambda each: each.step)
    assert invoked(TensorVariance(create_trial(path), "weights", None, 4, 0.1)) == [1, 2, 4, 5, 6]


def test_could_not_run(tmp_path: Path) -> None:
    path = write(tmp_path, RUN, ["mean"])
    result = outcome(path, RULE)
    assert result.status == "could not run"
    assert "variance" in result.message
    with pytest.raises(InsufficientInformationForRuleInvocation):
        invoke_rule(TensorVariance(create_trial(path), "weights", max_threshold=1))


def test_needs() -> None:
    (need,) = TensorVariance(None, tensor_regex="relu_output", min_threshold=0).needs()
    assert need.reductions == ("variance",)
    assert need.include_regex == ("relu_output",)


@pytest.mark.parametrize(
    ("bad", "said"),
    [({"tensor_regex": "a"}, "max_threshold or min_threshold"),
     ({"max_threshold": 1}, "collection_names or tensor_regex"),
     ({"tensor_regex": "a", "max_threshold": "x"}, "max_threshold"),
     ({"tensor_regex": "a", "min_threshold": -1}, "min_threshold")],
)  # fmt: skip
def test_bad_parameters(bad: dict[str, Any], said: str) -> None:
    with pytest.raises(SMDebugValueError, match=said):
        TensorVariance(None, **bad)
