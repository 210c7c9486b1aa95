"""ReplicaDivergence: workers that should hold the same weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.rules.tensor_runs import (
    EVAL,
    TRAIN,
    Run,
    collections,
    findings,
    found,
    invoked,
    look,
    normal,
    outcome,
    write,
)

from smdebug.exceptions import InsufficientInformationForRuleInvocation, SMDebugValueError
from smdebug.rules import invoke_rule
from smdebug.rules.builtin.replica_divergence import ReplicaDivergence
from smdebug.rules.rule_frames import frame_of_steps
from smdebug.storage.batch import Entry, StepBatch
from smdebug.testing.runs import make_run
from smdebug.trials.create import create_trial

if TYPE_CHECKING:
    from pathlib import Path

SAVES = ["min", "max", "mean", "l2"]
RULE = "ReplicaDivergence"


def replica(shift: dict[int, float] | None = None, steps: int = 6) -> Run:
    """Weights that move, the same for all; at some steps one is shifted."""
    run: Run = {}
    for step in range(steps):
        weight = normal(step).astype(np.float64) + (shift or {}).get(step, 0)
        run[step] = {
            "Net_fc.weight": weight,
            "Net_fc.bias": normal(step, 1),
            "x_output_0": normal(step, 2),
        }
    return run


def workers(count: int, **shifts: dict[int, float]) -> dict[str, Run]:
    runs = {f"worker_{number}": replica(shifts.get(f"w{number}")) for number in range(count)}
    for number, run in enumerate(runs.values()):
        for step, tensors in run.items():
            # Batches differ between workers, and so do activations.
            tensors["x_output_0"] = normal(step, number)
    return runs


@pytest.mark.parametrize("saves", [None, SAVES, ["l2"], ["mean"], ["max", "min"]])
def test_equal_replicas_pass(tmp_path: Path, saves: Any) -> None:
    assert found(write(tmp_path, workers(3), saves), RULE) == []


@pytest.mark.parametrize("saves", [None, SAVES, ["l2"], ["mean"], ["min", "max"], ["min"]])
@pytest.mark.parametrize("format", ["v1", "v2"])
def test_one_that_drifts(tmp_path: Path, saves: Any, format: str) -> None:
    runs = workers(2, w1={2: 1e-3, 3: 1e-3, 5: 1e-3})
    result = findings(write(tmp_path, runs, saves, format=format), RULE)
    assert [(each.step, each.tensor, each.worker) for each in result] == [
        (2, "Net_fc.weight", "worker_1"), (5, "Net_fc.weight", "worker_1"),
    ]  # fmt: skip
    assert "Net_fc.weight of worker_1" in result[0].message
    assert result[0].threshold == 1e-6


@pytest.mark.parametrize("odd", range(4))
def test_the_odd_one_is_named(tmp_path: Path, odd: int) -> None:
    runs = workers(4, **{f"w{odd}": {3: 0.01, 4: 0.01}})
    assert [(e.step, e.worker) for e in findings(write(tmp_path, runs, SAVES), RULE)] == [
        (3, f"worker_{odd}")
    ]


def two(a: Any, b: Any) -> dict[str, Run]:
    return {
        "worker_0": {0: {"a_weight": np.asarray(a)}},
        "worker_1": {0: {"a_weight": np.asarray(b)}},
    }


@pytest.mark.parametrize("saves", [None, SAVES])
@pytest.mark.parametrize(
    ("parameters", "fires"),
    [({"rtol": 0.25}, False), ({"rtol": "0.2499"}, True), ({"rtol": 0, "atol": 1}, False),
     ({"rtol": 0, "atol": "0.999"}, True), ({"rtol": 0.125, "atol": 0.5}, False)],
)  # fmt: skip
def test_tolerances(tmp_path: Path, saves: Any, parameters: dict[str, Any], fires: bool) -> None:
    path = write(tmp_path, two([4.0], [5.0]), saves)
    assert bool(found(path, {"rule": RULE, **parameters})) is fires


def test_a_mean_near_zero_is_measured_by_the_ends(tmp_path: Path) -> None:
    # Summed in another order, the mean of the same weights may differ in its last digits.
    def step_of(worker: str, step: int) -> StepBatch:
        mean = 1.0e-9 if worker == "worker_0" else 1.1e-9
        numbers = {"min": -0.5, "max": 0.5, "mean": mean, "l2": 3.0}
        return StepBatch(step, TRAIN, step, [Entry("a_weight", None, numbers, (9, 9), "float32")])

    make_run(tmp_path, range(2), ["worker_0", "worker_1"], data=step_of, collections=collections())
    assert found(str(tmp_path), RULE) == []
    assert found(str(tmp_path), {"rule": RULE, "rtol": 1e-11}) == [(0, "a_weight")]


@pytest.mark.parametrize("saves", [None, SAVES])
@pytest.mark.parametrize(
    ("a", "b", "fires"),
    [(np.nan, np.nan, False), (np.nan, 1.0, True), (1.0, np.nan, True), (np.inf, np.inf, False),
     (np.inf, 1.0, True), (1.0, np.inf, True), (np.inf, -np.inf, True), (0.0, 0.0, False),
     (0.0, 1e-30, True)],
)  # fmt: skip
def test_special_numbers(tmp_path: Path, saves: Any, a: float, b: float, fires: bool) -> None:
    path = write(tmp_path, two([a, a], [b, b]), saves)
    assert bool(found(path, RULE)) is fires


def test_other_tensors_may_be_chosen(tmp_path: Path) -> None:
    path = write(tmp_path, workers(2))
    assert found(path, f"{RULE}:tensor_regex=output") == [(0, "x_output_0")]
    assert found(path, f"{RULE}:collection_names=biases") == []


def test_what_one_worker_has_alone_is_not_compared(tmp_path: Path) -> None:
    runs = workers(2)
    for step in (1, 2):
        runs["worker_0"][step]["Net_own.weight"] = normal(step)
    runs["worker_1"][3]["Net_own.weight"] = normal(99)
    assert found(write(tmp_path, runs, SAVES), RULE) == []


def test_a_step_of_one_worker_ends_nothing(tmp_path: Path) -> None:
    runs = workers(2, w1={1: 0.1, 2: 0.1, 3: 0.1})
    del runs["worker_0"][2]
    path = write(tmp_path, runs, SAVES)
    assert [(each.step, each.worker) for each in findings(path, RULE)] == [(1, "worker_1")]


def test_modes(tmp_path: Path) -> None:
    path = write(tmp_path, workers(2, w1={4: 1.0}), SAVES, modes={4: EVAL})
    (only,) = findings(path, RULE)
    assert (only.step, only.mode) == (4, EVAL)


def test_step_by_step_is_the_same(tmp_path: Path) -> None:
    path = write(tmp_path, workers(3, w1={1: 0.1, 2: 0.1}, w2={3: 0.2, 4: 0.1}), SAVES)
    whole = findings(path, RULE)
    assert [(each.step, each.worker) for each in whole] == [
        (1, "worker_1"), (3, "worker_2"),
    ]  # fmt: skip
    rule = ReplicaDivergence(create_trial(path))
    blocks = [frame_of_steps(rule.base_trial, step, step + 1, rule.reads) for step in range(6)]
    assert [finding for frame in blocks for finding in rule.evaluate(frame)] == whole
    assert look(rule) == []
    assert invoked(ReplicaDivergence(create_trial(path))) == [1, 2, 3, 4]


def test_one_worker_cannot_diverge(tmp_path: Path) -> None:
    path = write(tmp_path, replica())
    result = outcome(path, RULE)
    assert result.status == "could not run"
    assert 'include_workers="all"' in result.message
    with pytest.raises(InsufficientInformationForRuleInvocation, match="include_workers"):
        invoke_rule(ReplicaDivergence(create_trial(path)))


def test_could_not_run(tmp_path: Path) -> None:
    path = write(tmp_path, workers(2), ["std"])
    result = outcome(path, RULE)
    assert result.status == "could not run"
    assert "saved without" in result.message


def test_needs() -> None:
    needs = ReplicaDivergence(None).needs()
    assert [need.collection for need in needs] == ["weights", "biases"]
    assert all(set(need.reductions) == set(SAVES) and not need.raw for need in needs)


@pytest.mark.parametrize(
    "bad", [{"rtol": -1}, {"atol": "x"}, {"collection_names": 1}, {"tensor_regex": "("}]
)
def test_bad_parameters(bad: dict[str, Any]) -> None:
    with pytest.raises(SMDebugValueError, match=next(iter(bad))):
        ReplicaDivergence(None, **bad)
