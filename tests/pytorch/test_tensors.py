"""What is saved of a tensor: its bits, and numbers computed from them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
import torch
from torch import nn

import smdebug.pytorch as smd
from smdebug.hook.plan import SaveRequest
from smdebug.mode_keys import ModeKeys
from smdebug.pytorch.tensors import (
    DeviceTensorCapture,
    TensorCapture,
    device_reductions,
    is_finite,
    local_tensor,
    to_numpy,
)
from smdebug.reductions import ALLOWED_NORMS, ALLOWED_REDUCTIONS, COUNTS, REDUCTION_NAMES
from smdebug.storage.batch import StepBatch
from smdebug.testing import ReductionContract

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from smdebug.reductions import Array
    from smdebug.trials import Trial

EVERY = smd.SaveConfig(save_interval=1)
EVERYTHING = smd.ReductionConfig(
    [*ALLOWED_REDUCTIONS, *COUNTS], list(ALLOWED_REDUCTIONS), list(ALLOWED_NORMS),
    list(ALLOWED_NORMS), save_raw_tensor=True,
)  # fmt: skip
BITS = {torch.bfloat16: torch.int16, torch.float8_e4m3fn: torch.uint8}
BITS[torch.float8_e5m2] = torch.uint8
NUMPY_TYPES = {
    torch.bfloat16: ml_dtypes.bfloat16,
    torch.float8_e4m3fn: ml_dtypes.float8_e4m3fn,
    torch.float8_e5m2: ml_dtypes.float8_e5m2,
}


def bits_of(tensor: torch.Tensor) -> bytes:
    """The memory of a tensor, in the order of its indices."""
    tensor = tensor.detach().resolve_conj().resolve_neg().contiguous()
    if tensor.dtype in BITS:
        tensor = tensor.view(BITS[tensor.dtype])
    return bytes(tensor.numpy().tobytes())


def wide(tensor: torch.Tensor) -> Array:
    """The values of a tensor as torch itself turns them into float64."""
    found: Array = tensor.detach().to(torch.float64).reshape(-1).numpy()
    return found


def truth(x: Array) -> dict[str, float]:
    """All reductions of float64 numbers, by numpy."""
    found: dict[str, Any] = {}
    for prefix, values in (("", x), ("abs_", np.abs(x))):
        found |= {
            f"{prefix}min": values.min(), f"{prefix}max": values.max(),
            f"{prefix}mean": values.mean(), f"{prefix}std": values.std(),
            f"{prefix}variance": values.var(), f"{prefix}sum": values.sum(),
            f"{prefix}prod": values.prod(), f"{prefix}median": np.median(values),
            f"{prefix}l1": np.linalg.norm(values, 1), f"{prefix}l2": np.linalg.norm(values, 2),
        }  # fmt: skip
    counts = {"nans": np.isnan(x).sum(), "infs": np.isinf(x).sum(), "zeros": (x == 0).sum()}
    return {key: float(value) for key, value in {**found, **counts}.items()}


def check_reductions(trial: Trial, name: str, tensor: torch.Tensor, step: int = 0) -> None:
    """Compares all saved reductions of a tensor with those of its values in float64."""
    saved = {
        f"{'abs_' if absolute else ''}{key}": float(value)
        for (key, absolute), value in trial.tensor(name).reduction_values(step).items()
    }
    expected = truth(wide(tensor))
    assert saved.keys() == expected.keys()
    precision = 1e-12 if tensor.dtype is torch.float64 else 2e-7
    scale = float(np.abs(wide(tensor)).sum())
    for key, value in expected.items():
        # Where sums cancel, what is left is as exact as what was added.
        slack = 1e-14 * scale if key in ("sum", "mean") else 0.0
        assert saved[key] == pytest.approx(value, rel=precision, abs=slack), (name, key)


def check_raw(trial: Trial, name: str, tensor: torch.Tensor, step: int = 0) -> None:
    """Compares the saved bits of a tensor with those torch has."""
    found = trial.tensor(name).value(step)
    assert found.shape == tuple(tensor.shape), name
    assert found.dtype == np.dtype(NUMPY_TYPES.get(tensor.dtype, str(tensor.dtype)[6:])), name
    assert found.tobytes() == bits_of(tensor), name


class Passes(nn.Module):
    """Returns its input, through a part with a saved output."""

    def __init__(self, function: Callable[..., Any] = lambda x: x) -> None:
        super().__init__()
        self.function = function
        self.part = nn.Identity()

    def forward(self, x: Any) -> Any:
        return self.part(self.function(x))


def save_output(tmp_path: Path, tensor: torch.Tensor, **options: Any) -> Trial:
    model = Passes()
    hook = smd.Hook(tmp_path, save_config=EVERY, save_all=True, **options)
    hook.register_module(model)
    model(tensor)
    hook.close()
    return smd.create_trial(tmp_path)


# ---- models


class Net(nn.Module):
    """Parameters of many sizes: alike ones, single ones, one of more than 1 MiB."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(12, 6)
        self.fc2 = nn.Linear(6, 6)
        self.fc3 = nn.Linear(6, 6, bias=False)
        self.norm = nn.LayerNorm(6)
        self.one = nn.Parameter(torch.tensor([0.5]))
        self.scalar = nn.Parameter(torch.tensor(-1.5))
        self.large = nn.Linear(6, 60_000, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.norm(self.fc3(self.fc2(self.fc1(x).relu())))
        return torch.as_tensor(self.large(hidden).mean(1) * self.one + self.scalar)


@pytest.mark.parametrize("format", ["v1", "v2"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_weights_gradients_and_activations_and_all_their_reductions(
    tmp_path: Path, dtype: torch.dtype, format: str
) -> None:
    torch.manual_seed(0)
    model = Net().to(dtype)
    assert model.large.weight.nbytes > 1 << 19
    hook = smd.Hook(
        tmp_path, save_config=EVERY, reduction_config=EVERYTHING, format=format,
        include_collections=["weights", "biases", "gradients", "rest"],
    )  # fmt: skip
    hook.get_collection("rest").include(["Net_", "fc[123]_output"])
    hook.register_module(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    expected: list[dict[str, torch.Tensor]] = []
    outputs: dict[str, torch.Tensor] = {}
    for name in ("fc1", "fc2"):
        model.get_submodule(name).register_forward_hook(
            lambda _, __, output, name=name: outputs.__setitem__(name, output.detach().clone())
        )
    for _ in range(2):
        optimizer.zero_grad()
        seen = {f"Net_{name}": each.detach().clone() for name, each in model.named_parameters()}
        model(torch.randn(7, 12).to(dtype)).sum().backward()
        for name, each in model.named_parameters():
            assert each.grad is not None
            seen[f"gradient/Net_{name}"] = each.grad.clone()
        seen |= {f"{name}_output_0": output for name, output in outputs.items()}
        expected.append(seen)
        optimizer.step()
    hook.close()
    trial = smd.create_trial(tmp_path)
    for step, seen in enumerate(expected):
        for name, tensor in seen.items():
            check_reductions(trial, name, tensor, step)
            if format == "v1" and dtype is torch.bfloat16:
                tensor = tensor.float()
            check_raw(trial, name, tensor, step)


def test_raw_parameter_larger_than_one_mebibyte(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(700, 701), nn.Linear(701, 700), nn.Linear(700, 2))
    assert model[0].weight.nbytes > 1 << 20
    hook = smd.Hook(
        tmp_path, save_config=EVERY, include_collections=["weights", "gradients"],
        reduction_config=smd.ReductionConfig(["mean"], norms=["l2"], save_raw_tensor=True),
    )  # fmt: skip
    hook.register_module(model)
    model(torch.randn(2, 700)).sum().backward()
    hook.close()
    trial = smd.create_trial(tmp_path)
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        if name.endswith("weight"):
            check_raw(trial, f"Sequential_{name}", parameter)
            norm = trial.tensor(f"Sequential_{name}").reduction_value(0, "l2")
            assert norm == pytest.approx(np.linalg.norm(wide(parameter)), rel=2e-7)
        check_raw(trial, f"gradient/Sequential_{name}", parameter.grad)


@pytest.mark.parametrize("format", ["v1", "v2"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2])
def test_short_floats_are_saved_in_their_own_type(
    tmp_path: Path, dtype: torch.dtype, format: str
) -> None:
    class Quantised(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            values = torch.tensor([1.0, -2.5, 0.1, 448.0, 0.0, -0.0, 1e-2])
            self.weight = nn.Parameter(values.to(dtype), requires_grad=False)
            self.matrix_weight = nn.Parameter(torch.randn(300, 7).to(dtype), requires_grad=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.weight.float()

    model = Quantised()
    hook = smd.Hook(
        tmp_path, save_config=EVERY, include_collections="weights", format=format,
        reduction_config=EVERYTHING,
    )  # fmt: skip
    hook.register_module(model)
    model(torch.ones(7))
    hook.close()
    trial = smd.create_trial(tmp_path)
    for name, parameter in model.named_parameters():
        tensor = parameter.float() if format == "v1" else parameter
        check_raw(trial, f"Quantised_{name}", tensor)
        check_reductions(trial, f"Quantised_{name}", parameter)


def test_sparse_gradient_of_an_embedding_is_saved_dense(tmp_path: Path) -> None:
    model = nn.Embedding(50, 4, sparse=True)
    hook = smd.Hook(
        tmp_path, save_config=EVERY, include_collections=["gradients"], reduction_config=EVERYTHING
    )
    hook.register_module(model)
    model(torch.tensor([3, 7, 3])).square().sum().backward()
    hook.close()
    assert model.weight.grad is not None
    assert model.weight.grad.is_sparse
    trial = smd.create_trial(tmp_path)
    check_raw(trial, "gradient/Embedding_weight", model.weight.grad.to_dense())
    check_reductions(trial, "gradient/Embedding_weight", model.weight.grad.to_dense())


def test_non_contiguous_weights(tmp_path: Path) -> None:
    model = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    model.bias = nn.Parameter(torch.arange(8.0)[::2])
    assert not model.weight.is_contiguous()
    hook = smd.Hook(tmp_path, save_config=EVERY, save_all=True, reduction_config=EVERYTHING)
    hook.register_module(model)
    images = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)
    output = model(images)
    output.sum().backward()
    hook.close()
    trial = smd.create_trial(tmp_path)
    assert model.weight.grad is not None
    expected = {
        "Conv2d_weight": model.weight, "Conv2d_bias": model.bias, "Conv2d_input_0": images,
        "Conv2d_output_0": output, "gradient/Conv2d_weight": model.weight.grad,
    }  # fmt: skip
    for name, tensor in expected.items():
        check_raw(trial, name, tensor)
        check_reductions(trial, name, tensor)


def test_parameters_that_are_empty_or_have_one_element(tmp_path: Path) -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.empty_weight = nn.Parameter(torch.ones(0, 3))
            self.one_weight = nn.Parameter(torch.full((1, 1), 2.5))
            self.number_weight = nn.Parameter(torch.tensor(3.5))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.one_weight * self.number_weight + self.empty_weight.sum()

    model = Odd()
    hook = smd.Hook(
        tmp_path, save_config=EVERY, include_collections=["weights", "gradients"],
        reduction_config=smd.ReductionConfig(["min", "sum"], norms=["l2"], save_raw_tensor=True),
    )  # fmt: skip
    hook.register_module(model)
    model(torch.ones(2)).sum().backward()
    hook.close()
    trial = smd.create_trial(tmp_path)
    for name, parameter in model.named_parameters():
        check_raw(trial, f"Odd_{name}", parameter)
        assert parameter.grad is not None
        check_raw(trial, f"gradient/Odd_{name}", parameter.grad)
    empty = trial.tensor("Odd_empty_weight").reduction_values(0)
    assert empty["sum", False] == empty["l2", False] == 0
    assert np.isnan(empty.get(("min", False), np.float64(np.nan)))
    assert trial.tensor("Odd_number_weight").reduction_value(0, "min") == 3.5


# ---- activations of all kinds

_RANDOM = torch.Generator().manual_seed(0)
_IMAGE = torch.randn(2, 3, 4, 5, generator=_RANDOM)
ACTIVATIONS: dict[str, torch.Tensor] = {
    "float32": torch.randn(3, 4, generator=_RANDOM),
    "float64": torch.randn(3, 4, generator=_RANDOM, dtype=torch.float64),
    "float16": torch.randn(3, 4, generator=_RANDOM).half(),
    "bfloat16": torch.randn(3, 4, generator=_RANDOM).bfloat16(),
    "float8": torch.randn(3, 4, generator=_RANDOM).to(torch.float8_e4m3fn),
    "int8": torch.tensor([[-128, 127], [0, 1]], dtype=torch.int8),
    "int16": torch.tensor([-(2**15), 7], dtype=torch.int16),
    "int32": torch.tensor([2**31 - 1, -7], dtype=torch.int32),
    "int64": torch.tensor([2**53 + 1, -7, 0]),
    "uint8": torch.arange(256, dtype=torch.uint8),
    "uint16": torch.tensor([1, 65535], dtype=torch.uint16),
    "bool": torch.tensor([True, False, True]),
    "scalar": torch.tensor(2.5),
    "scalar-int": torch.tensor(7),
    "scalar-bool": torch.tensor(True),
    "scalar-bfloat16": torch.tensor(2.5, dtype=torch.bfloat16),
    "scalar-large-int": torch.tensor(2**60 + 1),
    "one": torch.tensor([[2.5]]),
    "empty": torch.ones(2, 0, 3),
    "transposed": _IMAGE.transpose(1, 3),
    "channels-last": _IMAGE.to(memory_format=torch.channels_last),
    "expanded": torch.tensor([[1.0], [2.0]]).expand(2, 6),
    "strided": torch.arange(20.0)[::3],
    "flipped-bfloat16": torch.arange(20.0).bfloat16().reshape(4, 5).t(),
    "not-finite": torch.tensor([1.0, float("nan"), float("inf"), float("-inf"), -0.0]),
    "subnormal": torch.tensor([1e-45, -1e-40, 0.0]),
    "complex64": torch.tensor([1 + 2j, -3j]),
    "complex128": torch.tensor([1 + 2j, -3j], dtype=torch.complex128),
    "conjugate": torch.tensor([[1 + 2j, -3j]]).conj(),
    "imaginary": torch.tensor([1 + 2j, -3j]).conj().imag,
    "sparse": torch.eye(3).to_sparse(),
    "large": torch.arange(300_000.0),
}  # fmt: skip


def dense(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_dense() if tensor.is_sparse else tensor


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_are_saved_bit_for_bit(tmp_path: Path, name: str) -> None:
    tensor = ACTIVATIONS[name]
    trial = save_output(tmp_path, tensor)
    for kind in ("part_output_0", "part_input_0", "Passes_output_0"):
        check_raw(trial, kind, dense(tensor))


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_are_saved_bit_for_bit_in_format_v1(tmp_path: Path, name: str) -> None:
    tensor = dense(ACTIVATIONS[name])
    trial = save_output(tmp_path, tensor, format="v1")
    check_raw(trial, "part_output_0", tensor.float() if tensor.dtype in BITS else tensor)


@pytest.mark.parametrize("format", ["v1", "v2"])
@pytest.mark.parametrize(
    "name",
    [
        name
        for name, tensor in ACTIVATIONS.items()
        if not tensor.is_complex() and tensor.numel() and name not in ("not-finite", "subnormal")
    ],
)
def test_activations_are_reduced_as_numpy_reduces_them(
    tmp_path: Path, name: str, format: str
) -> None:
    tensor = dense(ACTIVATIONS[name])
    trial = save_output(tmp_path, tensor, reduction_config=EVERYTHING, format=format)
    check_reductions(trial, "part_output_0", tensor)


def test_reductions_of_numbers_that_are_not_finite(tmp_path: Path) -> None:
    trial = save_output(tmp_path, ACTIVATIONS["not-finite"], reduction_config=EVERYTHING)
    tensor = trial.tensor("part_output_0")
    counts = [tensor.reduction_value(0, name) for name in ("nans", "infs", "zeros")]
    assert counts == [1, 2, 1]
    assert all(np.isnan(tensor.reduction_value(0, name)) for name in ("min", "max", "sum", "l2"))


def test_complex_tensors_have_the_reductions_that_are_real(tmp_path: Path) -> None:
    x = ACTIVATIONS["complex64"]
    trial = save_output(tmp_path, x, reduction_config=EVERYTHING)
    saved = trial.tensor("part_output_0").reduction_values(0)
    absolute = x.abs().double().numpy()
    assert saved["max", True] == pytest.approx(absolute.max(), rel=2e-7)
    assert saved["l2", False] == pytest.approx(np.sqrt((absolute**2).sum()), rel=2e-7)
    assert saved["l1", False] == pytest.approx(absolute.sum(), rel=2e-7)
    assert ("min", False) not in saved


def test_tensors_overwritten_by_training_keep_their_saved_value(tmp_path: Path) -> None:
    class Overwrites(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(3, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            hidden: torch.Tensor = self.fc(x)
            self.kept = hidden.detach().clone()
            return hidden.mul_(2).add_(1)

    model = Overwrites()
    hook = smd.Hook(tmp_path, save_config=EVERY, save_all=True)
    hook.register_module(model)
    x = torch.randn(4, 3)
    before = x.clone()
    model(x).sum().backward()
    with torch.no_grad():
        x.zero_()
        weight = model.fc.weight.clone()
        gradient = model.fc.weight.grad
        assert gradient is not None
        expected = gradient.clone()
        model.fc.weight.zero_()
        gradient.zero_()
    hook.close()
    trial = smd.create_trial(tmp_path)
    check_raw(trial, "fc_output_0", model.kept)
    check_raw(trial, "Overwrites_input_0", before)
    check_raw(trial, "Overwrites_fc.weight", weight)
    check_raw(trial, "gradient/Overwrites_fc.weight", expected)


class Skips(nn.Module):
    """Has one output without memory, and one with memory."""

    def __init__(self, odd: Callable[[], torch.Tensor]) -> None:
        super().__init__()
        self.odd, self.part = odd, nn.Identity()

    def forward(self, x: torch.Tensor) -> Any:
        return self.part((self.odd(), x))


@pytest.mark.parametrize(
    ("kind", "odd"),
    [
        ("meta", lambda: torch.ones(2, device="meta")),
        ("float8_e8m0fnu", lambda: torch.ones(2, dtype=torch.uint8).view(torch.float8_e8m0fnu)),
    ],
)
def test_unsupported_tensors_are_skipped_with_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str, odd: Callable[[], torch.Tensor]
) -> None:
    # Names that no other test uses: it is said once for each name.
    model = type(f"Skips{kind}", (Skips,), {})(odd)
    hook = smd.Hook(tmp_path, save_config=EVERY, include_regex=f"Skips{kind}_output")
    hook.register_module(model)
    for _ in range(3):
        model(torch.ones(2))
    hook.close()
    said = [each for each in caplog.records if "is not saved" in each.getMessage()]
    assert [each.levelno for each in said] == [logging.WARNING]
    assert f"Skips{kind}_output_0" in said[0].getMessage()
    assert kind in said[0].getMessage()
    trial = smd.create_trial(tmp_path)
    assert trial.tensor_names() == [f"Skips{kind}_output_1"]
    assert trial.tensor(f"Skips{kind}_output_1").steps() == [0, 1, 2]


def test_uninitialized_parameters_are_saved_once_initialized(tmp_path: Path) -> None:
    model = nn.Sequential(nn.LazyLinear(3), nn.ReLU())
    hook = smd.Hook(tmp_path, save_config=EVERY, include_collections=["weights", "gradients"])
    hook.register_module(model)
    for _ in range(3):
        model(torch.ones(2, 5)).sum().backward()
    hook.close()
    trial = smd.create_trial(tmp_path)
    assert trial.tensor("Sequential_0.weight").steps() == [1, 2]
    assert trial.tensor("Sequential_0.weight").shape(1) == (3, 5)
    assert trial.tensor("gradient/Sequential_0.weight").steps()[-2:] == [1, 2]


# ---- the parts by themselves


@pytest.mark.parametrize("name", [n for n, x in ACTIVATIONS.items() if not x.is_sparse])
def test_to_numpy_keeps_every_bit(name: str) -> None:
    tensor = ACTIVATIONS[name]
    array = to_numpy(tensor)
    assert array.shape == tuple(tensor.shape)
    assert np.ascontiguousarray(array).tobytes() == bits_of(tensor)


def test_local_tensor_is_plain_and_without_a_graph() -> None:
    tensor = nn.Parameter(torch.ones(2)) * 2
    local = local_tensor(tensor, "x")
    assert local is not None
    assert not local.requires_grad
    assert local_tensor(torch.ones(1, device="meta"), "meta tensor of a test") is None


@pytest.mark.parametrize(
    ("values", "expected"),
    [([1.0, 2.0], True), ([1.0, float("inf")], False), ([float("nan")], False), ([], True)],
)
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float8_e5m2, torch.complex64]
)
def test_is_finite(values: list[float], dtype: torch.dtype, expected: bool) -> None:
    assert is_finite(torch.tensor(values).to(dtype)) is expected


def taken_entry(
    kind: type[TensorCapture] | type[DeviceTensorCapture], tensor: Any, want: SaveRequest
) -> Any:
    """What a run gets of a tensor that was taken."""
    taken = kind("x", tensor, want)
    if isinstance(taken, DeviceTensorCapture):
        DeviceTensorCapture.send([taken])
    batch = StepBatch(0, ModeKeys.TRAIN, 0, [])
    taken.finish(batch)
    taken.release()
    (entry,) = batch.entries
    return entry


@pytest.mark.parametrize("name", [n for n, x in ACTIVATIONS.items() if not x.is_sparse])
@pytest.mark.parametrize("reductions", [(), ("min", "abs_mean", "l2", "zeros")], ids=len)
def test_device_tensor_is_captured_like_a_host_tensor(
    name: str, reductions: tuple[str, ...]
) -> None:
    tensor = ACTIVATIONS[name]
    want = SaveRequest(True, reductions, ("all",))
    host, device = (
        taken_entry(kind, tensor, want) for kind in (TensorCapture, DeviceTensorCapture)
    )
    assert (device.name, device.dtype, tuple(device.shape)) == (host.name, host.dtype, host.shape)
    assert np.ascontiguousarray(device.value).tobytes() == host.value.tobytes()
    assert device.value.dtype == host.value.dtype
    # Complex numbers have no order: there is nothing to say, not a number that is none.
    assert set(device.reductions) == set(host.reductions)
    for key, value in host.reductions.items():
        assert device.reductions[key] == pytest.approx(value, rel=1e-6, nan_ok=True), key


def test_without_raw_value_only_reductions_are_transferred() -> None:
    want = SaveRequest(False, ("max",), ("all",))
    taken = DeviceTensorCapture("x", torch.arange(1000.0), want)
    assert taken.nbytes < 1000
    entry = taken_entry(DeviceTensorCapture, torch.arange(1000.0), want)
    assert entry.value is None
    assert entry.reductions == {"max": 999.0}
    assert (tuple(entry.shape), entry.dtype) == ((1000,), "float32")


def test_reductions_of_many_tensors_are_transferred_together() -> None:
    want, other = SaveRequest(False, ("max", "min"), ("all",)), SaveRequest(True, (), ("all",))
    tensors = [torch.arange(1.0, 4), torch.arange(5, 9), torch.ones(2).double(), torch.zeros(3)]
    taken = [
        DeviceTensorCapture(str(number), tensor, other if number == 3 else want)
        for number, tensor in enumerate(tensors)
    ]
    DeviceTensorCapture.send(taken)
    batch = StepBatch(0, ModeKeys.TRAIN, 0, [])
    for each in taken:
        each.finish(batch)
    assert [dict(entry.reductions) for entry in batch.entries] == [
        {"max": 3, "min": 1}, {"max": 8, "min": 5}, {"max": 1, "min": 1}, {},
    ]  # fmt: skip


def test_totals_and_items_describe_the_capture() -> None:
    want = SaveRequest(True, ("max", "min"), ("a", "b"))
    for kind in (TensorCapture, DeviceTensorCapture):
        taken = kind("x", torch.ones(10), want)
        assert list(taken.items()) == [("x", want, 56)]
        assert list(taken.totals()) == [(("a", "b"), 1, 56)]


def test_later_changes_do_not_affect_a_captured_tensor() -> None:
    want = SaveRequest(True, ("max",), ("all",))
    for kind in (TensorCapture, DeviceTensorCapture):
        tensor = torch.ones(4)
        taken = kind("x", tensor, want)
        tensor.zero_()
        if isinstance(taken, DeviceTensorCapture):
            DeviceTensorCapture.send([taken])
        batch = StepBatch(0, ModeKeys.TRAIN, 0, [])
        taken.finish(batch)
        assert batch.entries[0].reductions == {"max": 1.0}
        assert batch.entries[0].value is not None
        assert batch.entries[0].value.all()


def to_torch(array: Array) -> torch.Tensor:
    """A tensor with the values of an array; torch does not support ml_dtypes."""
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(array.copy())


class TestDeviceReductions(ReductionContract):
    """What an accelerator computes, computed on the CPU."""

    def reduce(self, array: Array, names: tuple[str, ...]) -> Mapping[str, float]:
        found = device_reductions(to_torch(array), names)
        return dict(zip(names, found.tolist(), strict=True))


class TestTakenDeviceTensor(ReductionContract):
    """The same on its way into a run."""

    def reduce(self, array: Array, names: tuple[str, ...]) -> Mapping[str, float]:
        want = SaveRequest(False, names, ("all",))
        entry = taken_entry(DeviceTensorCapture, to_torch(array), want)
        return dict(entry.reductions)


class TestTakenTensor(ReductionContract):
    """The definition itself, by the way of a tensor of the host."""

    def reduce(self, array: Array, names: tuple[str, ...]) -> Mapping[str, float]:
        want = SaveRequest(False, names, ("all",))
        return dict(taken_entry(TensorCapture, to_torch(array), want).reductions)


def test_the_median_of_very_many_numbers_on_a_device() -> None:
    size = (1 << 24) + 1
    values = torch.arange(size, dtype=torch.float32).flip(0)
    found = device_reductions(values, ("median", "max"))
    assert found.tolist() == [size // 2, size - 1]
    values[5] = float("nan")
    assert device_reductions(values, ("median",)).isnan().all()


def test_all_reductions_at_once_are_those_one_by_one() -> None:
    tensor = torch.randn(100, generator=torch.Generator().manual_seed(1))
    together = device_reductions(tensor, REDUCTION_NAMES)
    alone = torch.cat([device_reductions(tensor, (name,)) for name in REDUCTION_NAMES])
    assert torch.equal(together, alone)
