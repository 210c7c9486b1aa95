"""What every hook must do, whatever the framework, as a pytest class to subclass."""

from __future__ import annotations

import pickle
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pytest

from smdebug.config.reduction_config import ReductionConfig
from smdebug.config.save_config import SaveConfig, SaveConfigMode
from smdebug.exceptions import WriteFailed
from smdebug.mode_keys import ModeKeys
from smdebug.reductions import (
    ALLOWED_NORMS,
    ALLOWED_REDUCTIONS,
    COUNTS,
    REDUCTION_NAMES,
    compute_reduction,
)
from smdebug.testing.reduction_contract import agrees
from smdebug.trials import create_trial

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from smdebug.reductions import Array
    from smdebug.trials import Trial

_REDUCTIONS = ReductionConfig(
    reductions=[*ALLOWED_REDUCTIONS, *COUNTS], norms=list(ALLOWED_NORMS),
    abs_reductions=list(ALLOWED_REDUCTIONS), abs_norms=list(ALLOWED_NORMS),
)  # fmt: skip


@dataclass
class Trained:
    """What a training computed, in the framework's own numbers.

    Attributes:
        tensors: for every step, values under the names and with the types that the hook saves them.
        parameters: the parameters of the model at the end.
        leftovers: what shows whether a hook is attached to the model at the end, such as the
            callbacks that are registered there.
    """

    tensors: list[dict[str, Array]]
    parameters: list[Array]
    leftovers: Sequence[object] = ()


class AdapterContract:
    """Subclass it, set the class attributes and override `make_hook` and `train`.

    Attributes:
        modes: the modes that steps have; `(ModeKeys.GLOBAL,)` for a framework without modes.
        collection: a collection that is not saved by default.
        tensor: a tensor of it that every step has, with several elements.
        reduces: whether the hook follows its `reduction_config`; that of a collection always
            counts.

    Example:
        For the hook of `docs/adapters.md`:

        >>> class TestNumpyHook(AdapterContract):
        ...     def make_hook(self, out_dir, **options):
        ...         return NumpyHook(out_dir, **options)
        ...
        ...     def train(self, hook, modes, after_step):
        ...         weight, tensors = np.ones(3), []
        ...         for step, mode in enumerate(modes):
        ...             loss, gradient = np.sum(weight**2), 2 * weight
        ...             tensors.append({"weight": weight, "gradient": gradient, "loss": loss})
        ...             if hook is not None:
        ...                 hook.set_mode(mode)
        ...                 hook.run_step(**tensors[-1])
        ...             if mode is ModeKeys.TRAIN:
        ...                 weight = weight - 0.1 * gradient
        ...             after_step(step)
        ...         return Trained(tensors, [weight])
    """

    modes: ClassVar[tuple[ModeKeys, ...]] = (ModeKeys.TRAIN, ModeKeys.EVAL)
    collection: ClassVar[str] = "weights"
    tensor: ClassVar[str] = "weight"
    reduces: ClassVar[bool] = True

    def make_hook(self, out_dir: str, **options: Any) -> Any:
        """Return a hook with these options."""
        raise NotImplementedError("override `make_hook` with one that makes the framework's hook")

    def train(
        self, hook: Any, modes: Sequence[ModeKeys], after_step: Callable[[int], object]
    ) -> Trained:
        """Train a new small model, the same one at every call, that uses random numbers if it can.

        Args:
            hook: the hook to attach; None trains without one. It is not closed.
            modes: the mode of every step.
            after_step: to be called after every step with its number, before the next begins.
        """
        raise NotImplementedError("override `train` with a training of the framework")

    # ---- the tests

    @pytest.fixture
    def bare(self) -> Trained:
        """Return what the training computes without a hook."""
        return self._run(None)

    def test_training_is_the_same_every_time(self, bare: Trained) -> None:
        # The other tests rely on it.
        _assert_same(self._run(None), bare)

    def test_steps_modes_names_and_values(self, tmp_path: Path, bare: Trained) -> None:
        hook = self._hook(tmp_path, save_all=True)
        _assert_same(self._run(hook), bare)
        trial = _closed(hook)
        assert [trial.mode(step) for step in trial.steps()] == self._plan()
        for mode in self.modes:
            assert trial.steps(mode=mode) == list(range(self._plan().count(mode)))
        for step, tensors in enumerate(bare.tensors):
            for name, array in tensors.items():
                _assert_same_bits(trial.tensor(name).value(step), array, f"{name} at step {step}")

    def test_save_config(self, tmp_path: Path) -> None:
        *others, last = self.modes
        config = {mode: SaveConfigMode(1, start_step=1, end_step=4) for mode in others}
        hook = self._hook(tmp_path, save_config={**config, last: SaveConfigMode(2)})
        self._run(hook)
        tensor = _closed(hook).tensor(self.tensor)
        assert all(tensor.steps(mode=mode) == [1, 2, 3] for mode in others)
        assert tensor.steps(mode=last) == list(range(0, self._plan().count(last), 2))

    @pytest.mark.parametrize("more", [False, True])
    def test_only_included_collections_are_saved(self, tmp_path: Path, more: bool) -> None:
        hook = self._hook(tmp_path, include_collections=[self.collection] if more else None)
        self._run(hook)
        trial = _closed(hook)
        included = [*hook.adapter_class.always_saved, *([self.collection] if more else [])]
        members = [trial.tensor_names(collection=name) for name in included]
        assert set(trial.tensor_names()) == set().union(*members)
        assert (self.tensor in trial.tensor_names()) == more

    def test_a_collection_changed_after_the_first_step(self, tmp_path: Path) -> None:
        hook = self._hook(tmp_path, include_collections=None, include_regex="^no such tensor$")

        def change(step: int) -> None:
            if step == 0:
                hook.get_collection("default").include(f"^{re.escape(self.tensor)}$")
            elif step == 4:
                hook.get_collection("default").save_config = SaveConfig(end_step=1)

        self._run(hook, change)
        assert _closed(hook).tensor(self.tensor).steps() == [1, 2, 3, 4]

    @pytest.mark.parametrize("of_hook", [True, False], ids=["hook", "collection"])
    def test_reductions(self, tmp_path: Path, bare: Trained, of_hook: bool) -> None:
        hook = self._hook(tmp_path, reduction_config=_REDUCTIONS if of_hook else None)
        if not of_hook:
            hook.get_collection(self.collection).reduction_config = _REDUCTIONS
        _assert_same(self._run(hook), bare)
        tensor = _closed(hook).tensor(self.tensor)
        for step, tensors in enumerate(bare.tensors):
            array, saved = tensors[self.tensor], tensor.reduction_values(step)
            if of_hook and not self.reduces:
                _assert_same_bits(tensor.value(step), array, f"step {step}")
                continue
            assert len(saved) == len(REDUCTION_NAMES)
            for (name, absolute), value in saved.items():
                full_name = f"abs_{name}" if absolute else name
                expected = compute_reduction(array, name, absolute)
                assert agrees(full_name, float(value), float(expected), array), (step, full_name)

    def test_saved_by_hand(self, tmp_path: Path) -> None:
        hook = self._hook(tmp_path, save_config=SaveConfig(save_interval=2))

        def save(step: int) -> None:
            hook.save_scalar("number", step)
            hook.save_tensor("array", np.full(3, step), "mine")

        hook.save_scalar("early", 1.5)
        self._run(hook, save)
        trial = _closed(hook)
        assert trial.tensor("scalar/early").steps() == [0]
        numbers, arrays = trial.tensor("scalar/number").values(), trial.tensor("array").values()
        assert [int(value.item()) for value in numbers.values()] == list(numbers)
        assert list(numbers) == list(range(len(self._plan())))
        assert [value.tolist() for value in arrays.values()] == [[step] * 3 for step in arrays]
        assert list(arrays) == trial.tensor(self.tensor).steps()
        assert trial.tensor_names(collection="mine") == ["array"]

    def test_flush(self, tmp_path: Path, bare: Trained) -> None:
        hook = self._hook(tmp_path, flush_seconds=1000)

        def flush(step: int) -> None:
            hook.save_scalar("number", step)
            hook.flush()
            trial = create_trial(hook.out_dir)
            assert trial.tensor("scalar/number").steps() == trial.steps() == list(range(step + 1))
            hook.save_scalar("late", step)

        hook.flush()
        _assert_same(self._run(hook, flush), bare)
        hook.flush()
        assert create_trial(hook.out_dir).tensor("scalar/late").steps()[-1] == hook.step
        values = _closed(hook).tensor(self.tensor).values()
        for step, tensors in enumerate(bare.tensors):
            _assert_same_bits(values[step], tensors[self.tensor], f"step {step}")

    def test_a_failing_store_does_not_change_training(self, tmp_path: Path, bare: Trained) -> None:
        hook = self._failing_hook(tmp_path)
        _assert_same(self._run(hook), bare)
        hook.close()
        assert hook.stats().lost_steps == len(bare.tensors)

    def test_a_failing_store_stops_training_on_request(self, tmp_path: Path) -> None:
        hook, ran = self._failing_hook(tmp_path, on_error="raise"), list[int]()
        with pytest.raises(WriteFailed):
            self._run(hook, ran.append)
        # A step is handed over when the next one begins.
        assert 1 <= len(ran) < len(self._plan())

    def test_closing_detaches(self, tmp_path: Path, bare: Trained) -> None:
        hook = self._hook(tmp_path, save_all=True)
        trained = self._run(hook, lambda step: hook.close() if step == 1 else None)
        _assert_same(trained, bare)
        assert list(trained.leftovers) == list(bare.leftovers)
        assert create_trial(hook.out_dir).steps() == [0, 1]

    def test_an_unpickled_hook_is_harmless(self, tmp_path: Path, bare: Trained) -> None:
        hook = self._hook(tmp_path)
        other = pickle.loads(pickle.dumps(hook))
        other.save_tensor("array", np.ones(2))
        _assert_same(self._run(other, lambda step: other.save_scalar("number", step)), bare)
        other.flush()
        other.close()
        assert (other.closed, other.stats().saved_steps, other.findings()) == (True, 0, [])
        _assert_same(self._run(hook), bare)
        assert _closed(hook).tensor_names(regex="array|scalar") == []

    # ---- what they share

    def _plan(self) -> list[ModeKeys]:
        """Return the modes of the steps of a training."""
        first, last = self.modes[0], self.modes[-1]
        return [first] * 3 + [last] * 2 + [first] * 2

    def _run(self, hook: Any, after_step: Callable[[int], object] = lambda step: None) -> Trained:
        return self.train(hook, self._plan(), after_step)

    def _hook(self, out_dir: Path, **options: Any) -> Any:
        """Return a hook that saves `tensor` at every step."""
        every_step = SaveConfig(save_interval=1)
        defaults = {"save_config": every_step, "include_collections": [self.collection]}
        return self.make_hook(str(out_dir), **{**defaults, **options})

    def _failing_hook(self, out_dir: Path, **options: Any) -> Any:
        """Return a hook whose store cannot write: there is a file where a folder should be."""
        (out_dir / "events").write_text("in the way")
        # Every step is written at once, and the next one waits for it.
        return self._hook(out_dir, save_all=True, flush_seconds=0.0, queue_bytes=1, **options)


def _closed(hook: Any) -> Trial:
    """Close a hook and open its run, which must be complete."""
    hook.close()
    assert hook.stats().lost_steps == 0
    return create_trial(hook.out_dir)


def _assert_same(trained: Trained, expected: Trained) -> None:
    """Assert that two trainings computed the same, bit for bit."""
    assert len(trained.tensors) == len(expected.tensors) > 0
    for step, (found, tensors) in enumerate(zip(trained.tensors, expected.tensors, strict=True)):
        assert set(found) == set(tensors)
        for name, array in tensors.items():
            _assert_same_bits(found[name], array, f"{name} at step {step}")
    for number, pair in enumerate(zip(trained.parameters, expected.parameters, strict=True)):
        _assert_same_bits(*pair, f"parameter {number}")


def _assert_same_bits(found: Array, expected: Array, what: str) -> None:
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape), what
    assert found.tobytes() == expected.tobytes(), f"{what} is {found}, expected {expected}"
