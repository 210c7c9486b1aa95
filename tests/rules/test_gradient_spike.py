"""Gradients that jump are found, once and with the tensor that did it."""

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
    noisy,
    outcome,
    same_in_parts,
    write,
)

from smdebug.exceptions import InsufficientInformationForRuleInvocation, SMDebugValueError
from smdebug.rules import invoke_rule, make_rule
from smdebug.rules.builtin.gradient_spike import GradientSpike
from smdebug.rules.detectors.spikes import SpikeLimits
from smdebug.trials.create import create_trial

if TYPE_CHECKING:
    from pathlib import Path

NAME = "GradientSpike"


def gradients(norms: dict[str, Any], missing: dict[str, int] | None = None) -> list[Any]:
    """Steps with gradients of given l2 norms, two elements each.

    Args:
        norms: the norms of each tensor, by step.
        missing: tensors that are saved at every so many steps only.
    """
    count = len(next(iter(norms.values())))
    rows: list[Any] = []
    for step in range(count):
        saved = [name for name in norms if step % (missing or {}).get(name, 1) == 0]
        rows.append(
            (TRAIN, {f"gradient/{name}": norms[name][step] * np.array([0.6, -0.8])
                     for name in saved})
        )  # fmt: skip
    return rows


def spiky(count: int = 60, at: int = 40, size: float = 30.0) -> dict[str, Any]:
    norms = {
        name: noisy(np.full(count, scale), 0.1, seed)
        for seed, (name, scale) in enumerate([("a", 1.0), ("b", 3.0), ("c", 0.01)])
    }
    norms["a"][at] *= size
    # Grows by a larger factor, and hardly counts.
    norms["c"][at] *= 2 * size
    return norms


@pytest.mark.parametrize("saves", [None, ("l2",)])
def test_a_spike(tmp_path: Path, saves: Any) -> None:
    norms = spiky()
    path = write(tmp_path, batches(gradients(norms), saves=saves))
    findings = same_in_parts(path, NAME)
    assert [(each.step, each.tensor, each.worker) for each in findings] == [
        (40, "gradient/a", "worker_0")
    ]
    total = np.sqrt(sum(each**2 for each in norms.values()))
    assert findings[0].value == pytest.approx(total[40], rel=1e-6)
    before = total[:40]
    # The noise is less than the least that is granted, 20 %.
    assert np.std(np.log(before)) < 0.15
    expected = np.exp(np.median(np.log(before)) + 8 * 0.2)
    assert findings[0].threshold == pytest.approx(expected, rel=1e-6)
    assert "norm of all gradients has jumped" in findings[0].message
    assert fired(path, NAME) == [40]


def test_a_factor_of_five_and_less(tmp_path: Path) -> None:
    for size, expected in ((4.9, 0), (5.0, 1)):
        values = np.full(30, 1.0)
        values[25] = size
        path = write(tmp_path / str(size), batches(gradients({"a": values})))
        assert len(found(path, NAME)) == expected


@pytest.mark.parametrize("noise", [0.1, 0.3, 0.7, 1.2])
def test_healthy_gradients(noise: float) -> None:
    """Norms that vary by a factor, that fall, and that rise at the beginning."""
    steps = np.arange(600)
    limits = SpikeLimits(window=100, factor=8.0, min_history=20, floor=0.2)
    for seed in range(20):
        for level in (np.ones(600), 5 * np.exp(-steps / 80) + 0.01, 1 - 0.99 * np.exp(-steps / 30)):
            values = noisy(level, noise, seed, heavy=True)
            assert (values <= limits.add((seed, level[300]), values)).all()


def test_loss_scaling(tmp_path: Path) -> None:
    """Mixed precision doubles the scale, overflows, and halves it."""
    values = noisy(np.full(120, 1.0), 0.2, 0)
    values[60:] *= 2
    values[[0, 61]] = [np.inf, np.nan]
    assert same_in_parts(write(tmp_path, batches(gradients({"a": values}))), NAME) == []


def test_gradients_that_are_zero_are_left_out(tmp_path: Path) -> None:
    values = np.concatenate([np.zeros(50), np.full(50, 3.0)])
    assert found(write(tmp_path, batches(gradients({"a": values}))), NAME) == []


def test_gradients_that_are_saved_seldom(tmp_path: Path) -> None:
    """One that is saved at every tenth step counts with what it was, and is no spike each time."""
    norms = {"a": np.full(120, 0.1), "b": np.full(120, 5.0)}
    path = write(tmp_path / "a", batches(gradients(norms, {"b": 10})))
    assert same_in_parts(path, NAME) == []
    norms["b"][70:] = 50.0
    path = write(tmp_path / "b", batches(gradients(norms, {"b": 10})))
    findings = same_in_parts(path, NAME)
    assert [(each.step, each.tensor) for each in findings] == [(70, "gradient/b")]


def test_workers_are_apart(tmp_path: Path) -> None:
    run = {
        "worker_0": batches(gradients({"a": np.full(60, 100.0)})),
        "worker_1": batches(gradients(spiky())),
    }
    findings = same_in_parts(write(tmp_path, run), NAME)
    assert [(each.step, each.worker) for each in findings] == [(40, "worker_1")]


def test_huge_norms_do_not_overflow(tmp_path: Path) -> None:
    values = np.full(40, 1e180)
    values[30] = 1e250
    findings = found(write(tmp_path, batches(gradients({"a": values, "b": values}))), NAME)
    assert [each.step for each in findings] == [30]
    assert findings[0].value == pytest.approx(np.sqrt(2) * 1e250)


def test_growing_run(tmp_path: Path) -> None:
    run = batches(gradients(spiky()))
    whole = outcome(write(tmp_path / "a", run), NAME).findings
    assert [each.step for each in whole] == [40]
    assert in_looks(tmp_path / "b", run, NAME) == whole


def test_parameters(tmp_path: Path) -> None:
    rule = GradientSpike(None, "30", "4", "5")
    assert (rule.window, rule.factor, rule.min_history) == (30, 4.0, 5)
    assert [(need.collection, need.reductions) for need in rule.needs()] == [("gradients", ("l2",))]
    values = np.full(30, 1.0)
    values[10] = 3.0
    path = write(tmp_path, batches(gradients({"a": values})))
    assert len(found(path, f"{NAME}:factor=4,min_history=5")) == 1
    assert found(path, f"{NAME}:factor=4") == []


@pytest.mark.parametrize("given", [{"window": 1}, {"factor": -1}, {"min_history": 101}])
def test_bad_parameters(given: dict[str, Any]) -> None:
    with pytest.raises(SMDebugValueError, match=f"{next(iter(given))} must be"):
        GradientSpike(None, **given)


def test_no_gradients(tmp_path: Path) -> None:
    path = write(tmp_path / "a", batches([(TRAIN, {"loss": 1.0})] * 3))
    assert outcome(path, NAME).status == "could not run"
    with pytest.raises(InsufficientInformationForRuleInvocation, match="gradients"):
        invoke_rule(make_rule(NAME, create_trial(path)))
    path = write(tmp_path / "b", batches(gradients(spiky()), saves=("max",)))
    assert "saved without l2" in outcome(path, NAME).message
