"""The contract of adapters, for the hook of a loop over NumPy arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from tests.hook.numpy_hook import NumpyHook

from smdebug.mode_keys import ModeKeys
from smdebug.testing import AdapterContract, Trained

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class TestNumpyHook(AdapterContract):
    def make_hook(self, out_dir: str, **options: Any) -> NumpyHook:
        return NumpyHook(out_dir, **options)

    def train(
        self, hook: Any, modes: Sequence[ModeKeys], after_step: Callable[[int], object]
    ) -> Trained:
        random = np.random.default_rng(0)
        weight, tensors = random.standard_normal((4, 3)), []
        for step, mode in enumerate(modes):
            error = random.standard_normal((8, 4)) @ weight
            tensors.append({"weight": weight.copy(), "loss": np.mean(error**2)})
            if hook is not None:
                hook.set_mode(mode)
                # The array itself, which changes below.
                hook.run(**{**tensors[-1], "weight": weight})
            if mode is ModeKeys.TRAIN:
                weight -= 0.1 * random.standard_normal((4, 8)) @ error
            after_step(step)
        return Trained(tensors, [weight])
