"""Tensors of which only minmax and counts are wanted are not copied, and are never mistaken."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from smdebug.hook.plan import SaveRequest
from smdebug.mode_keys import ModeKeys
from smdebug.pytorch.minmax import MinMax, MinMaxCapture
from smdebug.pytorch.tensors import TensorCapture, local_tensor
from smdebug.reductions import compute_reductions
from smdebug.storage.batch import StepBatch

NAMES = ("min", "max", "nans", "infs")
REQUEST = SaveRequest(raw=False, reductions=NAMES, collections=("c",))


def captured(
    minmax: MinMax, tensor: torch.Tensor, save_request: SaveRequest = REQUEST
) -> TensorCapture | MinMaxCapture:
    local = local_tensor(tensor, "x")
    assert local is not None
    found = minmax.capture("x", tensor, local, save_request)
    assert found is not None
    return found


def numbers(each: TensorCapture | MinMaxCapture) -> dict[str, float]:
    batch = StepBatch(0, ModeKeys.TRAIN, 0, [])
    each.finish(batch)
    (entry,) = [*batch.entries, *(entry for block in batch.blocks for entry in block.entries())]
    return dict(entry.reductions)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("bad", [None, math.nan, math.inf, -math.inf])
def test_reductions_match_their_definition(dtype: torch.dtype, bad: float | None) -> None:
    tensor = torch.randn(3, 4, generator=torch.Generator().manual_seed(0)).to(dtype)
    if bad is not None:
        tensor[1, 2] = bad
    found = captured(MinMax(), tensor)
    assert isinstance(found, MinMaxCapture) is (bad is None)
    expected = compute_reductions(tensor.double().numpy(), NAMES)
    assert numbers(found) == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.zeros(0), torch.ones(3, dtype=torch.long), torch.ones(2, dtype=torch.complex64),
        torch.ones(2, dtype=torch.bool), torch.ones(2).to(torch.float8_e4m3fn),
    ],
)  # fmt: skip
def test_other_tensors_are_copied(tensor: torch.Tensor) -> None:
    assert isinstance(captured(MinMax(), tensor), TensorCapture)


@pytest.mark.parametrize(
    "save_request",
    [SaveRequest(True, NAMES, ()), SaveRequest(False, ("l2",), ()), SaveRequest(False, (), ())],
)
def test_tensors_with_other_requests_are_copied(save_request: SaveRequest) -> None:
    assert isinstance(captured(MinMax(), torch.ones(3), save_request), TensorCapture)


def test_modified_tensor_is_checked_again() -> None:
    minmax, tensor = MinMax(), torch.ones(3)
    assert numbers(captured(minmax, tensor))["max"] == 1
    tensor[0] = 5
    assert numbers(captured(minmax, tensor))["max"] == 5
    tensor[1] = math.nan
    assert numbers(captured(minmax, tensor))["nans"] == 1
    with torch.inference_mode():
        hidden = torch.ones(2)
        assert numbers(captured(minmax, hidden))["max"] == 1
        hidden[0] = 7
        assert numbers(captured(minmax, hidden))["max"] == 7


def test_tensor_that_reuses_an_id_is_not_confused() -> None:
    minmax = MinMax()
    for value in np.arange(200.0):
        # Memory and identity of the one before are free again.
        assert numbers(captured(minmax, torch.full((4,), float(value))))["max"] == value


def test_views_and_graphs() -> None:
    minmax = MinMax()
    base = torch.arange(12.0).reshape(3, 4).requires_grad_()
    out = base * 2
    assert numbers(captured(minmax, out.t()))["max"] == 22
    assert numbers(captured(minmax, out[:, ::2]))["max"] == 20
    assert numbers(captured(minmax, out))["min"] == 0


def test_consecutive_tensors_are_one_block_in_order() -> None:
    minmax = MinMax()
    bad = torch.tensor([math.nan, 1.0])
    others = SaveRequest(False, ("max",), ("d",))
    given = [("a", torch.ones(2), REQUEST), ("b", torch.ones(3), REQUEST), ("c", bad, REQUEST),
             ("d", torch.zeros(2), REQUEST), ("e", torch.zeros(2), others)]  # fmt: skip
    found: list[TensorCapture | MinMaxCapture] = []
    for name, tensor, save_request in given:
        local = local_tensor(tensor, name)
        assert local is not None
        captured = minmax.capture(name, tensor, local, save_request, found[-1] if found else None)
        found += [] if captured is None else [captured]
    assert [each.tensors for each in found] == [2, 1, 1, 1]
    batch = StepBatch(0, ModeKeys.TRAIN, 0, [])
    for each in found:
        each.finish(batch)
        batch.placed += each.tensors
    places = {entry.name: entry.position for entry in batch.entries}
    for block in batch.blocks:
        assert block.positions is not None
        places.update(zip(block.schema.names, block.positions.tolist(), strict=True))
    assert sorted(places, key=lambda name: places[name] or 0) == ["a", "b", "c", "d", "e"]
    assert [name for each in found for name, _, _ in each.items()] == ["a", "b", "c", "d", "e"]
    assert found[0].totals() == [(("c",), 2, 64)]
