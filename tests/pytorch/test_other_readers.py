"""Readers that are not ours find in a run what torch had."""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb
import numpy as np
import torch
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.util import tensor_util
from torch import nn

from smdebug.pytorch import Hook, ReductionConfig, SaveConfig

if TYPE_CHECKING:
    from pathlib import Path


def test_duckdb_and_tensorboard_read_what_the_hook_wrote(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 3))
    config = ReductionConfig(norms=["l2"], reductions=["max"], save_raw_tensor=True)
    raw: dict[tuple[int, str], np.ndarray] = {}
    with Hook(
        tmp_path,
        save_config=SaveConfig(save_interval=1),
        reduction_config=config,
        include_collections=["weights", "biases", "gradients"],
        on_error="raise",
    ) as hook:
        hook.register_module(model)
        for step in range(3):
            for name, parameter in model.named_parameters():
                raw[step, f"Sequential_{name}"] = parameter.detach().numpy().copy()
            model.zero_grad()
            model(torch.randn(4, 5)).square().sum().backward()
            for name, parameter in model.named_parameters():
                assert parameter.grad is not None
                raw[step, f"gradient/Sequential_{name}"] = parameter.grad.numpy().copy()
    query = f"select step, tensor, l2, max from '{tmp_path}/index/**/*.parquet'"
    numbers = {(step, name): values for step, name, *values in duckdb.sql(query).fetchall()}
    assert numbers.keys() == raw.keys()
    for key, (norm, largest) in numbers.items():
        assert np.isclose(norm, np.linalg.norm(raw[key].astype(np.float64)), rtol=2e-7)
        assert largest == raw[key].max()
    found = {}
    for path in tmp_path.rglob("*.tfevents"):
        for event in EventFileLoader(str(path)).Load():
            (value,) = event.summary.value
            found[event.step, value.tag] = tensor_util.make_ndarray(value.tensor)
    assert found.keys() == raw.keys()
    assert all(found[key].tobytes() == raw[key].tobytes() for key in raw)
