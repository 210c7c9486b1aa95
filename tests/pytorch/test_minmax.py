"""Tensors of which only extremes and counts are wanted are not copied, and are never mistaken."""

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
WANT = SaveRequest(raw=False, reductions=NAMES, collections=("c",))


def taken(
    extremes: MinMax, tensor: torch.Tensor, want: SaveRequest = WANT
) -> TensorCapture | MinMaxCapture:
    local = local_tensor(tensor, "x")
    assert local is not None
    extremes.handed_over()
    found = extremes.take("x", tensor, local, want)
    assert found is not None
    return found


def numbers(each: TensorCapture | MinMaxCapture) -> dict[str, float]:
    batch = StepBatch(0, ModeKeys.TRAIN, 0, [])
    each.finish(batch)
    (entry,) = [*batch.entries, *(entry for block in batch.blocks for entry in block.entries())]
    return dict(entry.reductions)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("bad", [None, math.nan, math.inf, -math.inf])
def test_the_numbers_are_those_of_the_definition(dtype: torch.dtype, bad: float | None) -> None:
    tensor = torch.randn(3, 4, generator=torch.Generator().manual_seed(0)).to(dtype)
    if bad is not None:
        tensor[1, 2] = bad
    found = taken(MinMax(), tensor)
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
def test_others_are_copied(tensor: torch.Tensor) -> None:
    assert isinstance(taken(MinMax(), tensor), TensorCapture)


@pytest.mark.parametrize(
    "want",
    [SaveRequest(True, NAMES, ()), SaveRequest(False, ("l2",), ()), SaveRequest(False, (), ())],
)
def test_what_needs_more_is_copied(want: SaveRequest) -> None:
    assert isinstance(taken(MinMax(), torch.ones(3), want), TensorCapture)


def test_a_tensor_that_was_written_to_is_looked_at_again() -> None:
    extremes, tensor = MinMax(), torch.ones(3)
    assert numbers(taken(extremes, tensor))["max"] == 1
    tensor[0] = 5
    assert numbers(taken(extremes, tensor))["max"] == 5
    tensor[1] = math.nan
    assert numbers(taken(extremes, tensor))["nans"] == 1
    with torch.inference_mode():
        hidden = torch.ones(2)
        assert numbers(taken(extremes, hidden))["max"] == 1
        hidden[0] = 7
        assert numbers(taken(extremes, hidden))["max"] == 7


def test_a_tensor_in_the_place_of_another_is_another() -> None:
    extremes = MinMax()
    for value in np.arange(200.0):
        # Memory and identity of the one before are free again.
        assert numbers(taken(extremes, torch.full((4,), float(value))))["max"] == value


def test_views_and_graphs() -> None:
    extremes = MinMax()
    base = torch.arange(12.0).reshape(3, 4).requires_grad_()
    out = base * 2
    assert numbers(taken(extremes, out.t()))["max"] == 22
    assert numbers(taken(extremes, out[:, ::2]))["max"] == 20
    assert numbers(taken(extremes, out))["min"] == 0


def test_tensors_in_a_row_go_together_and_keep_their_order() -> None:
    extremes = MinMax()
    bad = torch.tensor([math.nan, 1.0])
    others = SaveRequest(False, ("max",), ("d",))
    given = [("a", torch.ones(2), WANT), ("b", torch.ones(3), WANT), ("c", bad, WANT),
             ("d", torch.zeros(2), WANT), ("e", torch.zeros(2), others)]  # fmt: skip
    found = []
    for name, tensor, want in given:
        local = local_tensor(tensor, name)
        assert local is not None
        taken = extremes.take(name, tensor, local, want)
        found += [] if taken is None else [taken]
    assert [each.tensors for each in found] == [2, 1, 1, 1]
    batch = StepBatch(0, ModeKeys.TRAIN, 0, [])
    for each in found:
        each.finish(batch)
        batch.placed += each.tensors
    places = {entry.name: entry.position for entry in batch.entries}
    for block in batch.blocks:
        assert block.positions is not None
        places.update(zip(block.layout.names, block.positions.tolist(), strict=True))
    assert sorted(places, key=lambda name: places[name] or 0) == ["a", "b", "c", "d", "e"]
    assert [name for each in found for name, _, _ in each.items()] == ["a", "b", "c", "d", "e"]
    assert found[0].totals() == [(("c",), 2, 64)]
