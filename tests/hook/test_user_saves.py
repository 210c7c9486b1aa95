"""Tensors saved by hand are found at the step and in the mode they belong to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.hook.numpy_hook import NumpyHook
from tests.hook.user_saves import (
    Script,
    check_script,
    flush_patterns,
    reduction_config,
    scripts,
)

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("format", ["v1", "v2"])
@pytest.mark.parametrize("names", [(), ("min", "max"), ("mean",)], ids=["raw", "min max", "mean"])
@scripts
def test_a_tensor_belongs_to_the_last_step_of_its_mode_or_to_the_first_one(
    tmp_path: Path, script: Script, names: tuple[str, ...], format: str
) -> None:
    for number, flush_at in enumerate(flush_patterns(script)):
        hook = NumpyHook(
            tmp_path / str(number), save_config={"save_interval": 1}, format=format,
            reduction_config=reduction_config(names),
        )  # fmt: skip

        def step(hook: NumpyHook = hook) -> None:
            hook.run(loss=np.float32(1))

        check_script(hook, script, step, lambda array: array, names, flush_at)
