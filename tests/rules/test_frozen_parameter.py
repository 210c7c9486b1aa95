"""FrozenParameter: parameters without a gradient, and such as do not move in spite of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.rules.tensor_runs import (
    EVAL,
    GLOBAL,
    TRAIN,
    Run,
    Tensors,
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

from smdebug.config.collection import Collection
from smdebug.config.collection_manager import CollectionManager
from smdebug.exceptions import InsufficientInformationForRuleInvocation, SMDebugValueError
from smdebug.rules import invoke_rule
from smdebug.rules.builtin.frozen_parameter import FrozenParameter, gradient_names
from smdebug.storage.batch import StepBatch
from smdebug.testing.runs import make_run
from smdebug.trials.create import create_trial

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NAMES = ["Net_a.weight", "Net_a.bias", "Net_b.weight", "Net_b.bias", "Net_c.weight"]
A, B = NAMES[0], NAMES[2]
LONG = 25 * 3


class Training:
    """A model trained step by step with plain gradient descent.

    Args:
        gradient: the gradient of a parameter at a step; None when it gets none.
        rate: the learning rate of a step.
        held: parameters that the optimizer does not have.
        batches: gradients of so many batches make one update.
    """

    def __init__(
        self,
        gradient: Callable[[str, int], Any] | None = None,
        rate: Callable[[int], float] = lambda step: 0.1,
        held: tuple[str, ...] = (),
        batches: int = 1,
    ) -> None:
        self._gradient = gradient or (lambda name, step: True)
        self._rate, self._held, self._batches = rate, held, batches

    def run(self, steps: int = 10, interval: int = 1) -> Run:
        weights = {name: normal(1, len(name), shape=(6, 7)) for name in NAMES}
        summed = {name: np.zeros((6, 7), np.float32) for name in NAMES}
        run: Run = {}
        for step in range(steps):
            saved: Tensors = {name: weight.copy() for name, weight in weights.items()}
            for place, name in enumerate(NAMES):
                gradient = self._gradient(name, step)
                if gradient is True:
                    gradient = normal(step, place, shape=(6, 7), scale=0.1)
                if gradient is not None:
                    saved[f"gradient/{name}"] = np.asarray(gradient, np.float32)
                    summed[name] += saved[f"gradient/{name}"]
            if (step + 1) % self._batches == 0:
                for name in NAMES:
                    if name not in self._held:
                        weights[name] = weights[name] - np.float32(self._rate(step)) * summed[name]
                    summed[name][:] = 0
            if step % interval == 0:
                run[step] = saved
        return run


def only_for(frozen: str, value: Any, steps: Any = None) -> Callable[[str, int], Any]:
    """Gradients as usual, but for one parameter, at all steps or at some."""
    return lambda name, step: value if name == frozen and (steps is None or step in steps) else True


SAVES = ["mean", "min", "max", "l2", "abs_max"]
ZERO = np.zeros((6, 7))


class TestWithoutGradient:
    @pytest.mark.parametrize("saves", [None, SAVES, ["abs_mean", "mean"], ["l2", "mean"], ["l2"]])
    @pytest.mark.parametrize("value", [None, ZERO], ids=["absent", "zero"])
    def test_found_after_patience(self, tmp_path: Path, saves: Any, value: Any) -> None:
        path = write(tmp_path, Training(only_for(A, value)).run(), saves)
        (only,) = findings(path, "FrozenParameter")
        assert (only.step, only.tensor, only.value, only.threshold) == (2, A, 3.0, 3.0)
        assert "has had no gradient at 3 saved steps in a row" in only.message

    @pytest.mark.parametrize(("patience", "step"), [(1, 0), ("5", 4), (10, 9), (11, None)])
    def test_patience(self, tmp_path: Path, patience: Any, step: int | None) -> None:
        path = write(tmp_path, Training(only_for(A, None)).run(), SAVES)
        rule = {"rule": "FrozenParameter", "patience": patience}
        assert found(path, rule) == ([] if step is None else [(step, A)])

    def test_zero_at_the_first_steps_is_healthy(self, tmp_path: Path) -> None:
        # Behind a layer that begins at 0, while the learning rate does too.
        path = write(tmp_path, Training(only_for(A, ZERO, (0, 1))).run(), SAVES)
        assert found(path, "FrozenParameter") == []

    @pytest.mark.parametrize("value", [None, ZERO], ids=["absent", "zero"])
    def test_an_expert_that_is_seldom_asked(self, tmp_path: Path, value: Any) -> None:
        unused = [step for step in range(2 * LONG) if step % 10]
        run = Training(only_for(A, value, unused)).run(2 * LONG)
        assert found(write(tmp_path, run, SAVES), "FrozenParameter") == []

    def test_a_parameter_that_dies(self, tmp_path: Path) -> None:
        run = Training(only_for(A, ZERO, range(5, 200))).run(LONG + 10)
        assert found(write(tmp_path, run, SAVES), "FrozenParameter") == [(5 + LONG - 1, A)]

    def test_a_bias_that_cancels(self, tmp_path: Path) -> None:
        bias = NAMES[1]
        path = write(tmp_path / "zero", Training(only_for(bias, ZERO)).run(40), SAVES)
        assert found(path, "FrozenParameter") == []
        # Exactly cancelled but for rounding: too small to move it.
        tiny = np.full((6, 7), 1e-9)
        path = write(tmp_path / "tiny", Training(only_for(bias, tiny)).run(40), SAVES)
        assert found(path, "FrozenParameter") == []
        path = write(tmp_path / "absent", Training(only_for(bias, None)).run(), SAVES)
        assert found(path, "FrozenParameter") == [(2, bias)]

    def test_a_run_without_any_gradients_at_a_step(self, tmp_path: Path) -> None:
        # All are absent or zero: not the fault of one of them.
        gradient = lambda name, step: ZERO if step % 2 else None  # noqa: E731
        run = Training(gradient).run(12)
        run[11][f"gradient/{A}"] = normal(1)
        assert findings(write(tmp_path, run, SAVES), "FrozenParameter") == []

    def test_gradients_that_were_chosen_by_name(self, tmp_path: Path) -> None:
        run = Training(lambda name, step: True if name == B else None).run()
        manager = collections(mine=[f"gradient/{B}"])
        assert found(write(tmp_path / "a", run, manager=manager), "FrozenParameter") == []
        narrow = CollectionManager([
            Collection("weights", include_regex="^Net.*weight"),
            Collection("gradients", include_regex="^gradient/Net_b"),
        ])  # fmt: skip
        assert found(write(tmp_path / "b", run, manager=narrow), "FrozenParameter") == []

    def test_steps_that_saved_only_a_few_gradients(self, tmp_path: Path) -> None:
        run = Training().run(LONG + 5)
        for step in range(1, LONG + 5):
            if step != LONG + 2:
                run[step] = {name: each for name, each in run[step].items()
                             if not name.startswith("gradient") or B in name}  # fmt: skip
        assert found(write(tmp_path, run, SAVES), "FrozenParameter") == []

    def test_nan_is_a_gradient(self, tmp_path: Path) -> None:
        run = Training(only_for(A, np.full((6, 7), np.nan))).run(6)
        assert findings(write(tmp_path, run, SAVES), "FrozenParameter") == []


class TestWithoutMoving:
    @pytest.mark.parametrize("saves", [None, SAVES, ["mean", "l2"], ["mean", "abs_mean"]])
    @pytest.mark.parametrize("interval", [1, 3])
    def test_found_after_patience(self, tmp_path: Path, saves: Any, interval: int) -> None:
        run = Training(held=(A,)).run(10 * interval, interval)
        (only,) = findings(write(tmp_path, run, saves), "FrozenParameter")
        assert (only.step, only.tensor, only.value) == (3 * interval, A, 3.0)
        assert "has not moved at 3 saved steps in a row" in only.message

    def test_healthy_training_passes(self, tmp_path: Path) -> None:
        assert found(write(tmp_path, Training().run(30), SAVES), "FrozenParameter") == []

    def test_the_learning_rate_begins_at_0(self, tmp_path: Path) -> None:
        run = Training(rate=lambda step: 0.0 if step < 8 else 0.01 * step).run(20)
        assert found(write(tmp_path, run, SAVES), "FrozenParameter") == []

    @pytest.mark.parametrize("batches", [4, 16, 64])
    def test_gradients_that_are_accumulated(self, tmp_path: Path, batches: int) -> None:
        run = Training(batches=batches).run(3 * batches)
        assert found(write(tmp_path, run, SAVES), "FrozenParameter") == []

    def test_a_parameter_held_while_gradients_are_accumulated(self, tmp_path: Path) -> None:
        run = Training(held=(A,), batches=4).run(20)
        # It stood still at 4, 8 and 12, when the others moved.
        assert found(write(tmp_path, run, SAVES), "FrozenParameter") == [(12, A)]

    def test_an_optimizer_that_never_steps(self, tmp_path: Path) -> None:
        run = Training(rate=lambda step: 0.0).run(LONG + 5)
        (only,) = findings(write(tmp_path, run, SAVES), "FrozenParameter")
        assert (only.step, only.tensor, only.worker) == (LONG, None, "worker_0")
        assert "no parameter of worker_0 has moved" in only.message

    def test_a_parameter_that_moves_now_and_then(self, tmp_path: Path) -> None:
        run = Training().run(20)
        for step, tensors in run.items():
            tensors[A] = run[step - step % 3][A]
        assert found(write(tmp_path, run, SAVES), "FrozenParameter") == []

    def test_one_weight_of_many_moves(self, tmp_path: Path) -> None:
        # A single element of a large tensor: seen by the mean, not by the ends.
        run = Training(held=(A,)).run(10)
        table = normal(5, shape=(300, 300))
        for step, tensors in run.items():
            tensors[A] = table.copy()
            tensors[A].reshape(-1)[step] *= 1.01
        assert found(write(tmp_path / "all", run, SAVES), "FrozenParameter") == []
        # Without the mean nothing is said.
        path = write(tmp_path / "ends", run, ["min", "max", "abs_max"])
        assert findings(path, "FrozenParameter") == []

    def test_values_and_gradients_saved_at_different_steps(self, tmp_path: Path) -> None:
        run = Training(held=(A,)).run(40)
        for step, tensors in run.items():
            for name in NAMES:
                if step % 10:
                    del tensors[name]
                if step % 2:
                    del tensors[f"gradient/{name}"]
        assert found(write(tmp_path, run, SAVES), "FrozenParameter") == [(30, A)]


def test_frozen_on_purpose(tmp_path: Path) -> None:
    run = Training(only_for(A, None), held=(A, B)).run()
    path = write(tmp_path, run, SAVES, manager=collections(frozen=[A]))
    assert found(path, "FrozenParameter") == [(3, B)]


def test_only_training_counts(tmp_path: Path) -> None:
    run = Training().run(12)
    # Nothing moves in validation, and there are no gradients.
    for step in (0, 1, 2, 3, 4, 8, 9, 10, 11):
        run[step] = {name: run[5][name] for name in NAMES}
    modes = dict.fromkeys((0, 1, 2, 3, 4, 8, 9, 10, 11), EVAL)
    assert found(write(tmp_path / "a", run, SAVES, modes), "FrozenParameter") == []
    held = Training(only_for(A, None)).run(6)
    path = write(tmp_path / "b", held, SAVES, dict.fromkeys(range(6), GLOBAL))
    assert found(path, "FrozenParameter") == [(2, A)]
    assert findings(path, "FrozenParameter")[0].mode is GLOBAL


def test_workers_apart(tmp_path: Path) -> None:
    runs = {"worker_0": Training().run(), "worker_1": Training(held=(A,)).run()}
    (only,) = findings(write(tmp_path, runs, SAVES), "FrozenParameter")
    assert (only.step, only.worker, only.tensor) == (3, "worker_1", A)


@pytest.mark.parametrize("format", ["v1", "v2"])
@pytest.mark.parametrize("saves", [None, ["mean", "min", "max", "l2", "abs_max"]])
def test_formats(tmp_path: Path, format: str, saves: Any) -> None:
    run = Training(only_for(B, None), held=(A,)).run(5)
    assert sorted(found(write(tmp_path, run, saves, format=format), "FrozenParameter")) == [
        (2, B), (3, A),
    ]  # fmt: skip


def test_parameters_that_come_later(tmp_path: Path) -> None:
    run = Training(held=(B,)).run(12)
    for step in range(5):
        for name in (A, B):
            del run[step][name], run[step][f"gradient/{name}"]
    assert found(write(tmp_path, run, SAVES), "FrozenParameter") == [(8, B)]


def test_keras_names(tmp_path: Path) -> None:
    kernels = [f"dense_{n}/weights/dense_{n}/kernel:0" for n in range(3)]
    run: Run = {}
    for step in range(6):
        run[step] = {name: normal(step, place) for place, name in enumerate(kernels)}
        for number in range(2):
            run[step][f"gradients/dense_{number}/kernelGrad"] = normal(step, number, 3)
    manager = CollectionManager([
        Collection("weights", tensor_names=kernels),
        Collection("gradients", include_regex="^gradient"),
    ])  # fmt: skip
    assert found(write(tmp_path, run, manager=manager), "FrozenParameter") == [(2, kernels[2])]


def test_gradient_names() -> None:
    assert gradient_names("dense0_weight") == ("gradient/dense0_weight",)
    assert "gradients/dense/kernelGrad" in gradient_names("dense/weights/dense/kernel:0")
    assert "gradients/w/xGrad" in gradient_names("weights/w/x:0")


@pytest.mark.parametrize("saves", [None, SAVES])
def test_step_by_step_is_the_same(tmp_path: Path, saves: Any) -> None:
    run = Training(only_for(B, ZERO, range(0, 9)), held=(A,), batches=2).run(14)
    path = write(tmp_path / "a", run, saves)
    whole = findings(path, "FrozenParameter")
    assert sorted((each.step, each.tensor) for each in whole) == [(2, B), (6, A)]
    assert found_in_looks(tmp_path / "b", run, "FrozenParameter", saves) == whole
    # As long as it goes on: B until its gradient comes, A to the end.
    assert invoked(FrozenParameter(create_trial(path))) == list(range(2, 14))


def test_reductions_of_gradients_alone(tmp_path: Path) -> None:
    """A gradient of which nothing useful was saved is there all the same."""
    run = Training().run(6)

    def step_of(worker: str, step: int) -> StepBatch:
        entries = [
            entry(name, value, ["mean", "std"] if name == f"gradient/{A}" else SAVES)
            for name, value in run[step].items()
        ]
        return StepBatch(step, TRAIN, step, entries)

    make_run(tmp_path, range(6), data=step_of, collections=collections())
    assert found(str(tmp_path), "FrozenParameter") == []


@pytest.mark.parametrize("kind", ["Net", "gradient"])
def test_could_not_run(tmp_path: Path, kind: str) -> None:
    run = {
        step: {name: each for name, each in tensors.items() if name.startswith(kind)}
        for step, tensors in Training().run(4).items()
    }
    path = write(tmp_path, run, SAVES)
    assert outcome(path, "FrozenParameter").status == "could not run"
    with pytest.raises(InsufficientInformationForRuleInvocation):
        invoke_rule(FrozenParameter(create_trial(path)))


def test_needs() -> None:
    needs = {need.collection: set(need.reductions) for need in FrozenParameter(None).needs()}
    values = {"mean", "min", "max", "l2"}
    assert needs == {"weights": values, "biases": values, "gradients": {"abs_max"}}


@pytest.mark.parametrize("bad", [0, "x", None, True])
def test_bad_parameters(bad: Any) -> None:
    with pytest.raises(SMDebugValueError, match="patience"):
        FrozenParameter(None, patience=bad)
