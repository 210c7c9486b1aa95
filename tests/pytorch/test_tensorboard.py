"""TensorBoard reads what a PyTorch training has, in whatever way it was taken."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import nn

import smdebug.pytorch as smd
from smdebug.histogram import histogram_of

if TYPE_CHECKING:
    from pathlib import Path

CONFIGS = {
    "raw": None,
    "extremes": smd.ReductionConfig(reductions=["min", "max"]),
    "numbers": smd.ReductionConfig(reductions=["mean"], norms=["l2"]),
}


@pytest.mark.parametrize("config", CONFIGS)
def test_histograms_and_scalars(tmp_path: Path, config: str) -> None:
    torch.manual_seed(0)
    model, loss_function = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 2)), nn.MSELoss()
    hook = smd.Hook(
        tmp_path / "run", export_tensorboard=True, reduction_config=CONFIGS[config],
        save_config=smd.SaveConfig(save_interval=1), on_error="raise",
        include_collections=["weights", "gradients", "mine"],
    )  # fmt: skip
    hook.get_collection("mine").include("1_output")
    hook.register_module(model)
    hook.register_loss(loss_function)
    truth: dict[tuple[str, int], Any] = {}
    losses = []
    for step in range(3):
        for name, parameter in model.named_parameters():
            if name.endswith("weight"):
                truth[f"weights/Sequential_{name}", step] = parameter.detach().numpy().copy()
        model.zero_grad()
        inputs = torch.randn(6, 5)
        truth["mine/1_output_0", step] = torch.relu(model[0](inputs)).detach().numpy()
        loss = loss_function(model(inputs), torch.ones(6, 2))
        loss.backward()
        losses.append(loss.item())
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None
            truth[f"gradients/gradient/Sequential_{name}", step] = parameter.grad.numpy().copy()
    hook.close()
    place = str(tmp_path / "run" / "tensorboard" / "GLOBAL")
    found = EventAccumulator(place, size_guidance={"histograms": 0}).Reload()
    assert [each.value for each in found.Scalars("MSELoss_output_0")] == losses
    assert set(found.Tags()["histograms"]) == {name for name, _ in truth}
    for (name, step), array in truth.items():
        event = found.Histograms(name)[step]
        expected = histogram_of(array)
        assert expected is not None
        assert event.step == step
        np.testing.assert_array_equal(event.histogram_value.bucket, expected.counts)
        np.testing.assert_array_equal(event.histogram_value.bucket_limit, expected.limits)
    if config == "numbers":
        name = "weights/Sequential_0.weight"
        (first, *_) = found.Scalars(f"{name}/l2")
        assert first.value == pytest.approx(np.linalg.norm(truth[name, 0]), rel=1e-6)
