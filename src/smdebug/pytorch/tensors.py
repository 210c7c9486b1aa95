"""PyTorch tensors: the local part of one, its copy on the host, its reductions.

On the CPU a tensor is copied and everything else happens on the writer thread. On an accelerator
reductions are computed there and transferred, as raw tensors are, without synchronization: the
writer thread waits for the copy.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import torch

from smdebug.config.log import WarnOnce
from smdebug.hook.capture import SingleCapture, make_entry, reduced_entry, reductions_of

if TYPE_CHECKING:
    from smdebug.hook.plan import SaveRequest
    from smdebug.reductions import Array
    from smdebug.storage.batch import StepBatch

logger = logging.getLogger("smdebug.hook")

# Types that torch's own conversion to NumPy does not support, and the integers of their bits.
_EXTENDED = {
    torch.bfloat16: (torch.int16, np.dtype(ml_dtypes.bfloat16)),
    torch.float8_e4m3fn: (torch.uint8, np.dtype(ml_dtypes.float8_e4m3fn)),
    torch.float8_e5m2: (torch.uint8, np.dtype(ml_dtypes.float8_e5m2)),
}
_PLAIN = {
    torch.float32: "float32", torch.float64: "float64", torch.float16: "float16",
    torch.int8: "int8", torch.int16: "int16", torch.int32: "int32", torch.int64: "int64",
    torch.uint8: "uint8", torch.uint16: "uint16", torch.uint32: "uint32", torch.uint64: "uint64",
    torch.bool: "bool", torch.complex64: "complex64", torch.complex128: "complex128",
}  # fmt: skip
DTYPES: dict[torch.dtype, np.dtype[Any]] = {
    **{dtype: np.dtype(name) for dtype, name in _PLAIN.items()},
    **{dtype: extended for dtype, (_, extended) in _EXTENDED.items()},
}

_warnings = WarnOnce(logger)


def local_tensor(tensor: torch.Tensor, name: str) -> torch.Tensor | None:
    """Return the part of a tensor that this process has, as a plain dense one without a graph.

    None for what cannot be saved (it has no memory, or an unsupported type), with one warning for
    each name.
    """
    if tensor.requires_grad:
        tensor = tensor.detach()
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        tensor = _unwrapped(tensor)
    if tensor.layout is not torch.strided or tensor.is_quantized:
        tensor = tensor.dequantize() if tensor.is_quantized else tensor.to_dense()
    reason = None
    if tensor.device.type == "meta" or tensor.is_nested:
        reason = f"it is a {'nested' if tensor.is_nested else 'meta'} tensor"
    elif tensor.dtype not in DTYPES:
        reason = f"tensors of {tensor.dtype} cannot be saved"
    if reason is not None:
        _warnings.warning(name, "%s is not saved: %s", name, reason)
        return None
    return tensor


def _unwrapped(tensor: torch.Tensor) -> torch.Tensor:
    # A DTensor's shard; never a collective operation, which could wait forever.
    to_local = getattr(tensor, "to_local", None)
    local = to_local() if to_local is not None else tensor
    wait = getattr(local, "wait", None)
    local = wait() if wait is not None else local
    return local.detach() if isinstance(local, torch.Tensor) else tensor


def to_numpy(tensor: torch.Tensor) -> Array:
    """Return a view of a host tensor as an array."""
    if tensor.dtype in _EXTENDED:
        bits, dtype = _EXTENDED[tensor.dtype]
        extended: Array = tensor.contiguous().view(bits).numpy().view(dtype)
        return extended
    # Conjugate and negative views are not memory of their own.
    plain: Array = tensor.resolve_conj().resolve_neg().numpy()
    return plain


class TensorCapture(SingleCapture):
    """A copy of one host tensor.

    Args:
        name: its name.
        tensor: as `local_tensor` returns it.
        request: what to save of it.
        time: seconds since 1970, when it differs from the step's.
    """

    def __init__(
        self, name: str, tensor: torch.Tensor, request: SaveRequest, time: float | None = None
    ) -> None:
        super().__init__(name, request, tensor.nbytes, time=time)
        # contiguous() would return a contiguous tensor itself, which training continues to use.
        self._copy = tensor.clone(memory_format=torch.contiguous_format)

    def finish(self, batch: StepBatch) -> None:
        array = to_numpy(self._copy)
        entry = make_entry(self._name, array, self._request, batch.placed, self._time)
        batch.entries.append(entry)


class DeviceTensorCapture(SingleCapture):
    """One tensor of an accelerator: its reductions are computed there, its copy is in flight.

    Nothing here waits for the device. `send` starts the transfer of the reductions of many tensors
    at once; `finish`, on the writer thread, waits for it.

    Args:
        name: its name.
        tensor: as `local_tensor` returns it.
        request: what to save of it.
        time: seconds since 1970, when it differs from the step's.
    """

    def __init__(
        self, name: str, tensor: torch.Tensor, request: SaveRequest, time: float | None = None
    ) -> None:
        whole = request.raw or request.histogram is not None
        super().__init__(name, request, tensor.nbytes, tensor.nbytes if whole else 0, time)
        self._device = tensor.device
        self._shape = tuple(tensor.shape)
        self._dtype = DTYPES[tensor.dtype]
        self._copy = to_host(tensor) if whole else None
        self._names = reductions_of(self._dtype, request)
        self._numbers = device_reductions(tensor, self._names) if self._names else None
        self._ready: Any = None
        self._sent = False

    @staticmethod
    def send(captures: list[DeviceTensorCapture]) -> None:
        """Start transferring the reductions to the host, once for each device and type.

        Those that were sent before, and not handed over because of Ctrl-C, are left as they are.
        """
        unsent = [each for each in captures if not each._sent]
        groups: dict[tuple[torch.device, torch.dtype], list[DeviceTensorCapture]] = {}
        for each in unsent:
            if each._numbers is not None:
                groups.setdefault((each._numbers.device, each._numbers.dtype), []).append(each)
        for group in groups.values():
            numbers = [each._numbers for each in group if each._numbers is not None]
            host = to_host(torch.cat(numbers))
            start = 0
            for each in group:
                end = start + len(each._names)
                each._numbers, start = host[start:end], end
        events = {device: record_event(device) for device in {each._device for each in unsent}}
        for each in unsent:
            each._ready, each._sent = events[each._device], True

    def finish(self, batch: StepBatch) -> None:
        wait_for(self._ready)
        numbers = {}
        if self._numbers is not None:
            numbers = dict(zip(self._names, self._numbers.tolist(), strict=True))
        value = None if self._copy is None else to_numpy(self._copy)
        entry = reduced_entry(
            self._name, value, numbers, self._shape, self._dtype, self._request, batch.placed,
            self._time,
        )  # fmt: skip
        batch.entries.append(entry)


def on_host(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is in the host's memory, and not in that of an accelerator."""
    return bool(tensor.device.type == "cpu")


def to_host(tensor: torch.Tensor) -> torch.Tensor:
    """Start copying a tensor to the host; wait for `record_event` before reading it."""
    on_device = tensor.device.type != "cpu"
    host = torch.empty(
        tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=on_device and _can_pin()
    )
    return host.copy_(tensor, non_blocking=True)


def _can_pin() -> bool:
    return bool(torch.accelerator.is_available())


def record_event(device: torch.device) -> Any:
    """Record an event in the device's stream; None where a copy is complete when it returns."""
    if device.type == "cpu" or not torch.accelerator.is_available():
        return None
    event = torch.Event(device.type)
    event.record()
    return event


def wait_for(event: Any) -> None:
    """Wait until the device has reached the event; called on the writer thread."""
    if event is not None:
        event.synchronize()


def device_reductions(tensor: torch.Tensor, names: tuple[str, ...]) -> torch.Tensor:
    """Compute reductions on the tensor's device: one small tensor, in the order of the names.

    The same as `smdebug.reductions`, with the elements in float32 at least (float64 for 64-bit
    types), and the results in float64, where the device has it.
    """
    if tensor.is_complex():
        wide, absolute = torch.view_as_real(tensor.resolve_conj()), tensor.reshape(-1).abs()
    else:
        wide, absolute = tensor.reshape(-1).to(_wide_dtype(tensor)), None
    results = []
    for name in names:
        plain = name.removeprefix("abs_")
        if plain == name and not (tensor.is_complex() and plain in ("l1", "l2", "zeros")):
            operand = wide
        else:
            absolute = wide.abs() if absolute is None else absolute
            operand = absolute
        results.append(_reduction(operand, plain))
    return torch.stack(results)


def _wide_dtype(tensor: torch.Tensor) -> torch.dtype:
    exact = tensor.dtype in (torch.float64, torch.int64, torch.int32, torch.uint32, torch.uint64)
    return torch.float64 if exact and tensor.device.type != "mps" else torch.float32


def _reduction(x: torch.Tensor, name: str) -> torch.Tensor:
    if name in ("min", "max", "mean", "std", "variance", "median") and not x.numel():
        result = x.new_tensor(float("nan"))
    elif name in ("l2", "std", "variance"):
        result = _scaled(x, name)
    else:
        result = _REDUCTIONS[name](x)
    return result if result.device.type == "mps" else result.to(torch.float64)


def _scaled(x: torch.Tensor, name: str) -> torch.Tensor:
    """Compute a reduction by squares, which must neither overflow nor underflow."""
    if not x.numel():
        return x.new_zeros(())
    scale = x.abs().amax()
    usable = torch.isfinite(scale) & (scale > 0)
    divisor = torch.where(usable, scale, torch.ones_like(scale))
    if name == "l2":
        return torch.where(usable, divisor * torch.linalg.vector_norm(x / divisor), scale)
    std = divisor * torch.std(x / divisor, correction=0)
    if name == "std":
        return std
    return torch.square(std if std.device.type == "mps" else std.to(torch.float64))


def _median(x: torch.Tensor) -> torch.Tensor:
    # torch.median takes the lower of the two in the middle; quantile fails with infinities.
    ordered = x.sort().values
    low, high = ordered[(x.numel() - 1) // 2], ordered[x.numel() // 2]
    middle = torch.where(low == high, low, (low + high) / 2)
    return torch.where(ordered[-1].isnan(), ordered[-1], middle)


def _any_part(marked: torch.Tensor) -> torch.Tensor:
    # Both parts of a complex number are checked.
    return (marked.any(-1) if marked.dim() > 1 else marked).sum()


_REDUCTIONS: dict[str, Any] = {
    "min": torch.amin,
    "max": torch.amax,
    "mean": torch.mean,
    "sum": torch.sum,
    "prod": torch.prod,
    "median": _median,
    "l1": lambda x: torch.linalg.vector_norm(x, 1),
    "nans": lambda x: _any_part(x.isnan()),
    "infs": lambda x: _any_part(x.isinf()),
    "zeros": lambda x: (x == 0).sum(),
}


def is_finite(tensor: torch.Tensor) -> bool:
    """Return whether all elements are finite; on an accelerator this synchronizes."""
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return True
    if tensor.dtype.itemsize == 1:
        tensor = tensor.float()
    return bool(torch.isfinite(tensor).all())
