"""The public API of the numpy hook, called in any order, against a plain model."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from tests.hook.hook_machine import Array, HookMachine, Observed
from tests.hook.numpy_hook import NumpyHook

if TYPE_CHECKING:
    from pathlib import Path

FULL = os.environ.get("TORNASOLE_FAULTS") == "full"


class NumpyDriver:
    """A training loop over arrays: a weight, an output, a loss, a gradient for each module."""

    regexes: tuple[str, ...] = ("output", "^weight", "gradient", "loss", "second")
    when_nan: tuple[str, ...] = ("loss", "output")
    separate_backward = False

    def __init__(self) -> None:
        self._prefixes = [""]

    def make_hook(self, out_dir: str, **options: Any) -> Any:
        self._prefixes = [""]
        return NumpyHook(out_dir, **options)

    def add_module(self, hook: Any) -> None:
        self._prefixes.append("second/")

    def forward(self, hook: Any, module: int, seed: int, nan: bool, fail: bool) -> list[Observed]:
        prefix = self._prefixes[module]
        values = np.arange(4, dtype=np.float32) + seed * 8
        steps: list[Observed] = [(f"{each}weight", values - 1000) for each in self._prefixes]
        if not fail:
            output: Array = np.where(values % 4 == 1, np.nan, values) if nan else values
            steps += [
                (f"{prefix}output", output.astype(np.float32).reshape(2, 2)),
                (f"{prefix}loss", output.sum(dtype=np.float32).reshape(())),
                (f"gradient/{prefix}weight", -values),
            ]
        given = {name.replace("/", "__"): array.copy() for name, array in steps}
        hook.run(**given)
        for array in given.values():
            # Training continues to use the memory.
            array.fill(-1)
        return steps

    def backward(self, hook: Any) -> list[Observed]:
        return []

    def tensor(self, array: Array) -> Any:
        return array


def test_any_order_of_calls_matches_the_model(tmp_path: Path) -> None:
    class Machine(HookMachine):
        driver = NumpyDriver()
        folder = tmp_path

    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=20_000 if FULL else 1000,
            stateful_step_count=25,
            deadline=None,
            # One at a time: shrinking a sequence takes a minute.
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )
