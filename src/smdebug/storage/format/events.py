"""The Event message of TensorFlow: one tensor, scalar or file version, to bytes and back.

Encoded by hand, because a dependency on protobuf would tie users to one version of it. Content is
never copied: encoding returns the array's own memory among its chunks, decoding returns views.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from smdebug.exceptions import DataCorrupted, SMDebugValueError
from smdebug.mode_keys import MODE_PLUGIN_NAME, MODE_STEP_PLUGIN_NAME, ModeKeys
from smdebug.storage.format.dtypes import STRING, dtype_number, dtype_of_number, is_string

if TYPE_CHECKING:
    from collections.abc import Iterator

    from smdebug.reductions import Array
    from smdebug.storage.stores.base import Buffer

# Tensor content starts at a multiple of this in a v2 file, so that a mapped view is aligned.
ALIGNMENT = 64

_DOUBLE = struct.Struct("<d")
_FLOAT = struct.Struct("<f")
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MOST_DIMENSIONS = 64
_WIDEST = 1 << 22


@dataclass(frozen=True)
class Value:
    """One value of an event: a tensor, or the plain float of a TensorBoard scalar."""

    tag: str
    tensor: Array | None = None
    simple_value: float | None = None
    metadata: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Event:
    """A decoded event."""

    wall_time: float = 0.0
    step: int = 0
    file_version: str | None = None
    values: tuple[Value, ...] = ()


# ---- encoding


def encode_tensor(
    name: str,
    array: Array,
    *,
    step: int,
    mode: ModeKeys,
    mode_step: int,
    wall_time: float,
    content_at: int | None = None,
    v1: bool = False,
) -> list[Buffer]:
    """Encode an event with one tensor.

    Args:
        name: the tensor's name.
        array: C-contiguous and little-endian, see `plain_array`.
        step: the global step.
        mode: the mode of the step.
        mode_step: the step within its mode.
        wall_time: seconds since 1970.
        content_at: where in the file the event will start; if given, the content and the end of
            the record are aligned.
        v1: leave the type of strings unset, as format v1 does.

    Returns:
        The chunks of the event; the array's memory is one of them.
    """
    tag = bytes_field(1, name.encode())
    content, size = _content(array)
    number = 0 if v1 and is_string(array.dtype) else dtype_number(array.dtype)
    head = tensor_head(name, number, array.shape)
    if not is_string(array.dtype):
        head += b"\x22" + varint(size)
    metadata = step_metadata(mode_step, mode)
    if content_at is not None:
        # With the last four bytes of the frame.
        metadata += node_name(-(size + len(metadata) + 4) % ALIGNMENT)
    event = event_head(wall_time, step)
    tensor_size = len(head) + size

    def prefix(padding: bytes) -> bytes:
        tensor_field = b"\x42" + varint(tensor_size)
        value_size = len(tag) + len(padding) + len(tensor_field) + tensor_size + len(metadata)
        value = b"\x0a" + varint(value_size)
        summary = b"\x2a" + varint(len(value) + value_size)
        return b"".join((event, summary, value, tag, padding, tensor_field, head))

    start = prefix(b"") if content_at is None else aligned(prefix, content_at)
    return [start, *content, metadata]


def _content(array: Array) -> tuple[list[Buffer], int]:
    if is_string(array.dtype):
        items = [item if isinstance(item, bytes) else item.encode("utf-8", "surrogatepass")
                 for item in array.reshape(-1).tolist()]  # fmt: skip
        fields = b"".join(bytes_field(8, item) for item in items)
        return [fields], len(fields)
    if not array.size:
        return [], 0
    # Through uint8, because the buffer protocol has no code for some types.
    return [array.reshape(-1).view(np.uint8).data], array.nbytes


@lru_cache(maxsize=65536)
def tensor_head(name: str, number: int, shape: tuple[int, ...]) -> bytes:
    """Encode the first fields of a TensorProto: element type and shape."""
    # The same for every step of a tensor, so it is built once.
    dims = b""
    for size in shape:
        dim_name = bytes_field(2, f"{name}_{size}".encode())
        # proto3 omits zeros.
        dims += bytes_field(2, (b"\x08" + varint(size) if size else b"") + dim_name)
    return (b"\x08" + varint(number) if number else b"") + bytes_field(2, dims)


def step_metadata(mode_step: int, mode: ModeKeys) -> bytes:
    """Encode the field of a value with its mode and the step within it."""
    pairs = ((MODE_STEP_PLUGIN_NAME, str(mode_step)), (MODE_PLUGIN_NAME, str(mode.value)))
    plugins = b"".join(
        bytes_field(1, bytes_field(1, name.encode()) + bytes_field(2, content.encode()))
        for name, content in pairs
    )
    return bytes_field(9, plugins)


def event_head(wall_time: float, step: int) -> bytes:
    """Encode the first fields of an event: time and step."""
    head = b"\x09" + _DOUBLE.pack(wall_time)
    return head + b"\x10" + varint(step) if step else head


def aligned(prefix: Any, content_at: int) -> bytes:
    """Pad with the unused field `node_name` until the content is aligned."""
    start: bytes = prefix(b"")
    if (content_at + len(start)) % ALIGNMENT == 0:
        return start
    # The padding may make one of the five lengths before it a byte longer: then pad again.
    size = missing = 0
    while True:
        size += missing
        start = prefix(b"\x3a" + varint(size) + bytes(size))
        missing = -(content_at + len(start)) % ALIGNMENT
        if not missing:
            return start


def node_name(size: int) -> bytes:
    """Encode the unused field `node_name` as padding of this length, modulo the alignment."""
    if not size:
        return b""
    # A field has at least two bytes.
    inner = size - 2 if size > 1 else size + ALIGNMENT - 2
    return b"\x3a" + varint(inner) + bytes(inner)


def bytes_field(number: int, data: bytes) -> bytes:
    """Encode a field with bytes, a string or another message."""
    return bytes(((number << 3) | _BYTES,)) + varint(len(data)) + data


def varint(value: int) -> bytes:
    """Encode a number as a varint of protobuf."""
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


# ---- decoding


def decode_event(payload: memoryview, *, key: str = "", offset: int | None = None) -> Event:
    """Decode an event; tensors are read-only views on the payload.

    Raises:
        DataCorrupted: the bytes are not an event.
    """
    try:
        return _event(payload)
    except (ValueError, struct.error, OverflowError) as error:
        raise DataCorrupted(f"not an event: {error}", key=key, offset=offset) from error


def _event(data: memoryview) -> Event:
    found: dict[str, Any] = {}
    values: list[Value] = []
    for number, wire, content in _fields(data):
        if number == 1 and wire == _FIXED64:
            found["wall_time"] = _DOUBLE.unpack(content)[0]
        elif number == 2 and wire == _VARINT:
            found["step"] = _signed(content)
        elif number == 3 and wire == _BYTES:
            found["file_version"] = str(content, "utf-8")
        elif number == 5 and wire == _BYTES:
            values += [_value(item) for n, w, item in _fields(content) if n == 1 and w == _BYTES]
    return Event(values=tuple(values), **found)


def _value(data: memoryview) -> Value:
    tag, tensor, simple, metadata = "", None, None, {}
    for number, wire, content in _fields(data):
        if number == 1 and wire == _BYTES:
            tag = str(content, "utf-8")
        elif number == 2 and wire == _FIXED32:
            simple = float(_FLOAT.unpack(content)[0])
        elif number == 8 and wire == _BYTES:
            tensor = _tensor(content)
        elif number == 9 and wire == _BYTES:
            metadata = dict(
                _plugin(item) for n, w, item in _fields(content) if (n, w) == (1, _BYTES)
            )
    return Value(tag, tensor, simple, metadata)


def _plugin(data: memoryview) -> tuple[str, str]:
    found = {n: str(c, "utf-8", "replace") for n, w, c in _fields(data) if w == _BYTES}
    return found.get(1, ""), found.get(2, "")


def _tensor(data: memoryview) -> Array:
    number, content = 0, memoryview(b"")
    shape: tuple[int, ...] = ()
    strings: list[memoryview] = []
    numbers: dict[int, list[Any]] = {}
    for field_number, wire, item in _fields(data):
        if field_number == 1 and wire == _VARINT:
            number = item
        elif field_number == 2 and wire == _BYTES:
            shape = _shape(item)
        elif field_number == 4 and wire == _BYTES:
            content = item
        elif field_number == 8 and wire == _BYTES:
            strings.append(item)
        elif field_number in _NUMBER_FIELDS:
            numbers.setdefault(field_number, []).extend(_numbers(field_number, wire, item))
    count = 1
    for size in shape:
        count *= size
    if number in (0, STRING) and (strings or number == STRING):
        return _strings(strings, shape, count)
    dtype = dtype_of_number(number)
    if numbers and not len(content):
        listed = _listed(next(iter(numbers.values())), dtype)
        if len(listed) != count:
            raise SMDebugValueError(
                f"shape {shape} needs {count} elements, {len(listed)} are there"
            )
        return _read_only(listed.reshape(shape))
    # Compared before an array is made: the shape may be of unknown origin.
    if count * dtype.itemsize != len(content):
        raise SMDebugValueError(
            f"shape {shape} of {dtype} needs {count * dtype.itemsize} bytes, "
            f"{len(content)} are there"
        )
    return np.frombuffer(content, np.uint8).view(dtype).reshape(shape)


def _listed(numbers: list[Any], dtype: np.dtype[Any]) -> Array:
    if dtype.kind in "iu":
        # NumPy 1 would wrap a number that does not fit.
        limits = np.iinfo(dtype)
        if not all(limits.min <= number <= limits.max for number in numbers):
            raise SMDebugValueError(f"a number does not fit into {dtype}")
    with np.errstate(over="ignore"):
        array = np.array(numbers, dtype=dtype)
    if dtype.kind == "f" and (np.isinf(array) & np.isfinite(np.array(numbers, np.float64))).any():
        raise SMDebugValueError(f"a number does not fit into {dtype}")
    return array


def _shape(data: memoryview) -> tuple[int, ...]:
    sizes: list[int] = []
    for number, wire, dim in _fields(data):
        if number == 2 and wire == _BYTES:
            size = next((_signed(c) for n, w, c in _fields(dim) if (n, w) == (1, _VARINT)), 0)
            if size < 0 or len(sizes) == _MOST_DIMENSIONS:
                raise SMDebugValueError("tensor shape is not a shape")
            sizes.append(size)
    return tuple(sizes)


def _strings(items: list[memoryview], shape: tuple[int, ...], count: int) -> Array:
    if count != len(items):
        raise SMDebugValueError(f"shape {shape} needs {count} strings, {len(items)} are there")
    try:
        texts: list[Any] = [str(item, "utf-8", "surrogatepass") for item in items]
    except UnicodeDecodeError:
        texts = [bytes(item) for item in items]
    # One long string makes every element as wide: beyond this size they are objects.
    wide = len(texts) * max(map(len, texts), default=0) > _WIDEST
    kind = object if wide else None if texts else np.str_
    return _read_only(np.array(texts or [], dtype=kind).reshape(shape))


def _read_only(array: Array) -> Array:
    array.flags.writeable = False
    return array


# float_val, double_val, int_val, int64_val, bool_val: read, never written.
_NUMBER_FIELDS = {5: "<f4", 6: "<f8", 7: None, 10: None, 11: None}


def _numbers(field_number: int, wire: int, item: Any) -> list[Any]:
    layout = _NUMBER_FIELDS[field_number]
    if layout is not None:
        if wire == _VARINT:
            raise SMDebugValueError("numbers of an unknown kind")
        data = bytes(item)
        if len(data) % int(layout[2]):
            raise SMDebugValueError("packed numbers are truncated")
        return list(np.frombuffer(data, layout))
    if wire == _VARINT:
        return [_signed(item)]
    if wire != _BYTES:
        raise SMDebugValueError("numbers of an unknown kind")
    values, at = [], 0
    while at < len(item):
        value, at = _read_varint(item, at)
        values.append(_signed(value))
    return values


def _fields(data: memoryview) -> Iterator[tuple[int, int, Any]]:
    """Yield (number, wire type, content) of a message; content is an int or a view."""
    at = 0
    while at < len(data):
        label, at = _read_varint(data, at)
        number, wire = label >> 3, label & 7
        if not number:
            # Zeros, of which a sparse file may have terabytes.
            raise SMDebugValueError("field 0, which no message has")
        if wire == _VARINT:
            content, at = _read_varint(data, at)
            yield number, wire, content
            continue
        if wire == _BYTES:
            size, at = _read_varint(data, at)
        elif wire in (_FIXED64, _FIXED32):
            size = 8 if wire == _FIXED64 else 4
        else:
            raise SMDebugValueError(f"field {number} has the unknown wire type {wire}")
        if size > len(data) - at:
            raise SMDebugValueError(
                f"field {number} declares {size} bytes, {len(data) - at} are left"
            )
        yield number, wire, data[at : at + size]
        at += size


def _read_varint(data: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise SMDebugValueError("a number is truncated")


def _signed(value: int) -> int:
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value
