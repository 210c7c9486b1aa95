"""A step at which nothing is saved costs a handful of Python calls."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

import smdebug
from smdebug.pytorch import Hook, SaveConfig

SOURCE = str(Path(smdebug.__file__).parent)


def calls_of(model: nn.Module) -> list[str]:
    """The functions of this library that a forward pass calls."""
    found: list[str] = []

    def profile(frame: Any, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(SOURCE):
            found.append(frame.f_code.co_name)

    inputs = torch.ones(1, 2)
    sys.setprofile(profile)
    try:
        model(inputs)
    finally:
        sys.setprofile(None)
    return found


def test_a_step_that_saves_nothing_makes_few_calls(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    with Hook(tmp_path, save_all=True, save_config=SaveConfig(save_interval=100)) as hook:
        hook.register_module(model)
        for _ in range(3):
            model(torch.ones(1, 2))
        calls = calls_of(model)
        assert 0 < len(calls) <= 8, calls
        assert hook.step == 3
