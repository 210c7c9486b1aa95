"""VanishingGradient: gradients from which nothing is learned any more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.rules.tensor_runs import EVAL, Run, findings, found, found_in_looks, outcome, write

from smdebug.exceptions import SMDebugValueError
from smdebug.rules.builtin.vanishing_gradient import VanishingGradient

if TYPE_CHECKING:
    from pathlib import Path

NAME = "gradient/Net_fc.weight"
RULE = "VanishingGradient"


def run_of(*gradients: Any, name: str = NAME) -> Run:
    return {step: {name: np.asarray(each)} for step, each in enumerate(gradients)}


@pytest.mark.parametrize("saves", [None, ["abs_mean"]])
def test_the_mean_of_absolute_values_is_compared(tmp_path: Path, saves: list[str] | None) -> None:
    random = np.random.default_rng(0)
    gradients = [random.standard_normal(50) * 10.0**-power for power in range(4, 10)]
    means = [np.abs(each).mean() for each in gradients]
    path = write(tmp_path, run_of(*gradients), saves)
    for threshold in (means[3] * 1.01, means[3] * 0.99):
        first = next(step for step, mean in enumerate(means) if mean < threshold)
        (only,) = findings(path, {"rule": RULE, "threshold": str(threshold)})
        assert (only.step, only.tensor) == (first, NAME)
        assert only.threshold == pytest.approx(threshold)
        assert only.value == pytest.approx(means[first], rel=1e-6)
        assert NAME in only.message


@pytest.mark.parametrize("saves", [None, ["abs_mean", "zeros"]])
def test_rows_without_a_gradient_do_not_count(tmp_path: Path, saves: list[str] | None) -> None:
    embedding = np.zeros((10_000, 4))
    embedding[7] = 1e-5
    path = write(tmp_path / "embedding", run_of(embedding), saves)
    assert np.abs(embedding).mean() < 1e-7
    assert found(path, RULE) == []
    (only,) = findings(path, f"{RULE}:threshold=2e-5")
    assert only.value == pytest.approx(1e-5)
    path = write(tmp_path / "zeros", run_of(np.zeros(5)), saves)
    assert found(path, RULE) == [(0, NAME)]


def test_at_the_threshold_it_has_not_vanished(tmp_path: Path) -> None:
    path = write(tmp_path, run_of(np.full(4, 0.25), np.full(4, 0.125)))
    assert found(path, f"{RULE}:threshold=0.125") == []
    assert found(path, f"{RULE}:threshold=0.126") == [(1, NAME)]


def test_a_bias_is_judged_only_without_its_weight(tmp_path: Path) -> None:
    small, fine = np.full(3, 1e-9), np.ones(3)
    for weight, bias in (("weight", "bias"), ("kernelGrad", "biasGrad")):
        names = f"gradient/conv/{weight}", f"gradient/conv/{bias}"
        # Before a normalisation the gradient of a bias is all rounding.
        healthy = {0: {names[0]: fine, names[1]: small}}
        assert found(write(tmp_path / weight, healthy), RULE) == []
        alone = {0: {names[1]: small}}
        assert found(write(tmp_path / bias, alone), RULE) == [(0, names[1])]
    dead = {0: {"gradient/fc.weight": small, "gradient/fc.bias": small}}
    assert found(write(tmp_path / "dead", dead), RULE) == [(0, "gradient/fc.weight")]


def test_workers_and_modes(tmp_path: Path) -> None:
    runs = {"worker_0": run_of(np.ones(2), np.ones(2)), "worker_1": run_of(np.ones(2), np.zeros(2))}
    (only,) = findings(write(tmp_path / "workers", runs), RULE)
    assert (only.step, only.worker) == (1, "worker_1")
    path = write(tmp_path / "modes", run_of(np.ones(2), np.zeros(2)), modes={1: EVAL})
    assert findings(path, RULE)[0].mode is EVAL


def test_step_by_step_is_the_same(tmp_path: Path) -> None:
    run = run_of(*(np.full(3, 10.0**-power) for power in (3, 8, 9, 2, 8, 8)))
    whole = findings(write(tmp_path / "whole", run), RULE)
    assert [each.step for each in whole] == [1, 4]
    assert found_in_looks(tmp_path / "looks", run, RULE) == whole


def test_without_gradients_it_could_not_run(tmp_path: Path) -> None:
    result = outcome(write(tmp_path, run_of(np.ones(2), name="Net_fc.weight")), RULE)
    assert result.status == "could not run"
    assert 'Hook(rules=["VanishingGradient"]) saves what it needs' in result.message


@pytest.mark.parametrize("threshold", [-1, "small", None, True, float("nan")])
def test_bad_parameters(threshold: Any) -> None:
    with pytest.raises(SMDebugValueError, match="threshold"):
        VanishingGradient(None, threshold)
