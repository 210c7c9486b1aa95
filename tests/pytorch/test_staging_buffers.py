"""Memory that serves one step after the other never mixes them up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from smdebug.hook.plan import SaveRequest
from smdebug.mode_keys import ModeKeys
from smdebug.pytorch import Hook, ReductionConfig, SaveConfig, create_trial, staging_buffers
from smdebug.pytorch.staging_buffers import BufferLayout, Slot, fits_in_buffer
from smdebug.storage.batch import StepBatch

if TYPE_CHECKING:
    from pathlib import Path

NUMBERS = SaveRequest(raw=False, reductions=("mean", "max"), collections=("weights",))
RAW = SaveRequest(raw=True, reductions=("mean",), collections=("weights",))


def layout_of(save_request: SaveRequest) -> BufferLayout:
    return BufferLayout([Slot.of(name, torch.empty(3, 2), save_request) for name in ("a", "b")])


def batch() -> StepBatch:
    return StepBatch(0, ModeKeys.TRAIN, 0, [])


@pytest.mark.parametrize("save_request", [NUMBERS, RAW])
def test_memory_is_reused_only_after_release(save_request: SaveRequest) -> None:
    layout = layout_of(save_request)
    first = layout.buffer()
    first.fill([torch.full((3, 2), 1.0)] * 2)
    first.finish(batch())
    second = layout.buffer()
    second.fill([torch.full((3, 2), 2.0)] * 2)
    # The first step is published only now; the memory may be the second's already.
    first.release()
    third = layout.buffer()
    third.fill([torch.full((3, 2), 3.0)] * 2)
    found = batch()
    second.finish(found)
    np.testing.assert_array_equal(found.blocks[0].reductions["mean"], [2.0, 2.0])
    numbers = batch()
    third.finish(numbers)
    np.testing.assert_array_equal(numbers.blocks[0].reductions["mean"], [3.0, 3.0])


def test_a_tensor_that_is_delivered_twice_counts_once() -> None:
    layout = layout_of(RAW)
    buffer = layout.buffer()
    for position, value in ((0, 1.0), (1, 2.0), (0, 3.0)):
        buffer.put(position, torch.full((3, 2), value))
    found = batch()
    found.placed = 10
    buffer.finish(found)
    (block,) = found.blocks
    assert block.positions is not None
    # The second delivery of `a` comes after `b`, and no position is beyond those of the block.
    assert dict(zip(block.schema.names, block.positions.tolist(), strict=True)) == {
        "a": 11,
        "b": 10,
    }
    np.testing.assert_array_equal(block.reductions["mean"], [3.0, 2.0])


class CountedOps(TorchDispatchMode):
    """Counts the operations that are sent to a device."""

    def __init__(self) -> None:
        super().__init__()
        self.ops: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.ops.append(str(func))
        return func(*args, **(kwargs or {}))


def test_parameters_of_a_device_are_copied_by_one_call_for_each_type() -> None:
    sizes = [(size, size + 1) for size in range(1, 41)]
    tensors = [
        torch.empty(size, dtype=dtype, device="meta")
        for size in sizes
        for dtype in (torch.float32, torch.bfloat16)
    ]
    buffer = BufferLayout(
        [Slot.of(str(number), tensor, NUMBERS) for number, tensor in enumerate(tensors)]
    ).buffer()
    with CountedOps() as counted:
        buffer.fill(tensors)
    assert counted.ops == ["aten._foreach_copy_.default"] * 2
    with CountedOps() as counted:
        buffer.put(3, tensors[3])
    assert counted.ops == ["aten.copy_.default"]


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [
        (torch.empty(2), True),
        (torch.empty(1), False),
        (torch.empty(2, dtype=torch.complex64), False),
        (torch.empty(1 << 24, device="cpu"), True),
        (torch.empty(2, device="meta"), False),
    ],
)
def test_which_tensors_fit(tensor: torch.Tensor, expected: bool) -> None:
    assert fits_in_buffer(tensor) is expected


def test_large_tensors_of_a_device_are_reduced_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging_buffers, "on_host", lambda tensor: False)
    assert fits_in_buffer(torch.empty(1 << 14))
    assert not fits_in_buffer(torch.empty((1 << 14) + 1))


@pytest.mark.parametrize("raw", [False, True])
def test_every_step_has_its_own_values(tmp_path: Path, raw: bool) -> None:
    """Parameters have the number of the step as value; publishing and saving run in parallel."""
    model = nn.Sequential(*[nn.Linear(8, 8) for _ in range(10)])
    config = ReductionConfig(reductions=["min", "max"], save_raw_tensor=raw)
    hook = Hook(
        tmp_path,
        save_config=SaveConfig(save_interval=1),
        reduction_config=config,
        include_collections=["weights", "biases", "gradients"],
        flush_seconds=0,
        queue_bytes=200_000,
        on_error="raise",
    )
    hook.register_module(model)
    for step in range(400):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.fill_(step)
        model.zero_grad()
        sum(parameter.sum() * step for parameter in model.parameters()).backward()
        model(torch.zeros(1, 8))
    hook.close()
    trial = create_trial(str(tmp_path))
    for name in trial.tensor_names():
        # A gradient belongs to the step of its backward pass: that of the last forward pass.
        shift = 1 if name.startswith("gradient/") else 0
        for reduction in ("min", "max"):
            steps, values = trial.tensor(name).series(reduction)
            assert len(steps) == 400 - shift
            np.testing.assert_array_equal(values, steps + shift)
        if raw:
            value = trial.tensor(name).value(123)
            np.testing.assert_array_equal(value, np.full(value.shape, 123 + shift))
