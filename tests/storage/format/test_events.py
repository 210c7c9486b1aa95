"""The Event codec: round trips, known bytes, other readers, hostile input."""

from __future__ import annotations

import contextlib
import tracemalloc
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from smdebug.exceptions import DataCorrupted, SMDebugTypeError
from smdebug.mode_keys import ModeKeys
from smdebug.storage.format.dtypes import (
    dtype_name,
    dtype_number,
    dtype_of,
    plain_array,
    widen_for_v1,
)
from smdebug.storage.format.events import (
    ALIGNMENT,
    Event,
    decode_event,
    encode_tensor,
)
from smdebug.storage.format.records import frame
from smdebug.storage.tensorboard.summaries import encode_file_version, encode_scalar

if TYPE_CHECKING:
    from pathlib import Path

    from smdebug.reductions import Array

EXTENDED = [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2]
NUMERIC = [
    np.dtype(name)
    for name in ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"]
] + [np.dtype(kind) for kind in EXTENDED]  # fmt: skip

# What UTF-8 can hold.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)
STEPS = st.integers(0, 10**12 - 1)


@st.composite
def numeric_arrays(draw: st.DrawFn) -> Array:
    """Arrays of any bits whatever, laid out in any way."""
    dtype = draw(st.sampled_from(NUMERIC))
    shape = draw(SHAPES)
    count = int(np.prod(shape)) * dtype.itemsize
    data = draw(st.binary(min_size=count, max_size=count))
    if dtype == np.bool_:
        data = bytes(byte & 1 for byte in data)
    array: Array = np.frombuffer(bytearray(data), np.uint8).view(dtype).reshape(shape)
    layout = draw(st.sampled_from(["plain", "transposed", "strided", "big"]))
    if layout == "transposed":
        array = array.T
    elif layout == "strided" and array.ndim:
        array = np.repeat(array, 2, axis=0)[::2]
    elif layout == "big" and dtype.kind in "iufc" and dtype.itemsize > 1:
        array = array.byteswap().view(dtype.newbyteorder(">"))
    return array


def encoded(array: Array, name: str = "x", step: int = 1, **options: Any) -> bytes:
    mode, mode_step = options.pop("mode", ModeKeys.TRAIN), options.pop("mode_step", step)
    chunks = encode_tensor(
        name, array, step=step, mode=mode, mode_step=mode_step, wall_time=1.5, **options
    )
    return b"".join(chunks)


def decoded_tensor(payload: bytes) -> Array:
    (value,) = decode_event(memoryview(payload)).values
    assert value.tensor is not None
    return value.tensor


def assert_same(found: Array, expected: Array) -> None:
    """Bit for bit, shape and type included."""
    expected = plain_array(expected)
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    assert found.tobytes() == expected.tobytes()


# ---- round trips


@settings(max_examples=300, deadline=None)
@given(numeric_arrays(), TEXT, STEPS, st.sampled_from(list(ModeKeys)), STEPS)
def test_round_trip(array: Array, name: str, step: int, mode: ModeKeys, mode_step: int) -> None:
    payload = encoded(plain_array(array), name, step, mode=mode, mode_step=mode_step)
    event = decode_event(memoryview(payload))
    (value,) = event.values
    assert (event.wall_time, event.step, event.file_version) == (1.5, step, None)
    assert (value.tag, value.simple_value) == (name, None)
    assert value.metadata == {"mode_step": str(mode_step), "mode": str(mode.value)}
    assert value.tensor is not None
    assert_same(value.tensor, array)
    assert not value.tensor.flags.writeable


@given(hnp.arrays(hnp.unicode_string_dtypes(max_len=6), SHAPES), st.booleans())
def test_strings(array: Array, v1: bool) -> None:
    if v1 and not array.size:
        return  # written as a shape only
    found = decoded_tensor(encoded(plain_array(array), v1=v1))
    assert found.shape == array.shape
    assert found.dtype.kind == "U"
    assert found.tolist() == array.tolist()
    assert not found.flags.writeable


@given(hnp.arrays(hnp.byte_string_dtypes(max_len=6), SHAPES))
def test_bytes_are_read_as_bytes_or_strings(array: Array) -> None:
    found = decoded_tensor(encoded(plain_array(array)))
    assert found.shape == array.shape
    if found.dtype.kind == "U":
        found = np.char.encode(found, "utf-8", "surrogatepass")
    assert found.tolist() == array.tolist()


@pytest.mark.parametrize("kind", EXTENDED)
def test_every_bit_pattern_of_a_short_float(kind: type) -> None:
    dtype = np.dtype(kind)
    unsigned = np.uint16 if dtype.itemsize == 2 else np.uint8
    array = np.arange(256**dtype.itemsize).astype(unsigned).view(dtype)
    assert_same(decoded_tensor(encoded(plain_array(array))), array)


def test_every_bit_pattern_of_a_half_big_endian() -> None:
    array = np.arange(2**16, dtype=np.uint16).view(np.float16)
    swapped = array.byteswap().view(">f2")
    assert_same(decoded_tensor(encoded(plain_array(swapped))), array)


@pytest.mark.parametrize("name", ["", "a\0b", "\x7f", "ünï/çødé:0", "🧪" * 100, "x" * 100_000])
def test_unusual_names(name: str) -> None:
    payload = encoded(np.ones((2, 3), np.float32), name, content_at=12)
    (value,) = decode_event(memoryview(payload)).values
    assert value.tag == name


def test_decoding_copies_nothing() -> None:
    payload = bytearray(encoded(np.arange(100, dtype=np.int32)))
    found = decoded_tensor_of(payload)
    payload[payload.index(bytes([99, 0, 0, 0]))] = 98
    assert found[99] == 98


def decoded_tensor_of(payload: bytearray) -> Array:
    tensor = decode_event(memoryview(payload).toreadonly()).values[0].tensor
    assert tensor is not None
    return tensor


def test_encoding_copies_nothing() -> None:
    array = np.zeros(1000)
    chunks = encode_tensor(
        "x", array, step=0, mode=ModeKeys.TRAIN, mode_step=0, wall_time=0.0, content_at=0
    )
    (content,) = [chunk for chunk in chunks if len(chunk) == 8000]
    assert np.shares_memory(np.frombuffer(content, np.uint8), array)


# ---- what arrays are taken


@pytest.mark.parametrize(
    "value",
    [
        np.zeros(2, "M8[s]"),
        np.zeros(2, [("a", "f4")]),
        np.zeros(2, np.longdouble),
        np.zeros(2, "V3"),
        np.zeros(2, ml_dtypes.float8_e4m3fnuz),
        np.zeros(2, ml_dtypes.int4),
        np.array([1, "a", None], object),
        np.array([b"a", b"b"], object),
    ],
    ids=str,
)
def test_types_that_cannot_be_saved(value: Array) -> None:
    with pytest.raises(SMDebugTypeError, match="cannot be saved"):
        plain_array(value)


@pytest.mark.parametrize("dtype", NUMERIC, ids=str)
def test_names_and_numbers_of_types(dtype: np.dtype[Any]) -> None:
    assert dtype_of(dtype_name(dtype)) == dtype
    assert dtype_number(dtype) > 0


def test_plain_array_keeps_what_is_plain() -> None:
    array = np.arange(6.0).reshape(2, 3)
    assert plain_array(array) is array
    assert plain_array(array.T).flags.c_contiguous
    assert plain_array(np.float32(1)).shape == ()
    assert plain_array(np.array(["a", "bc"], object)).tolist() == ["a", "bc"]


@pytest.mark.parametrize("kind", EXTENDED)
def test_format_v1_widens_short_floats(kind: type) -> None:
    array: Array = np.array([1.5, -0.0, np.nan], kind)
    wide = widen_for_v1(array)
    assert wide.dtype == np.float32
    assert np.array_equal(wide, array.astype(np.float32), equal_nan=True)


# ---- known bytes


def test_vector_of_the_format() -> None:
    chunks = encode_tensor(
        "x",
        np.array([1.0], np.float32),
        step=1,
        mode=ModeKeys.GLOBAL,
        mode_step=1,
        wall_time=1.0,
        v1=True,
    )
    expected = (
        "440000000000000043592e9a09000000000000f03f10012a370a350a017842130801120912070801"
        "1203785f3122040000803f4a1b0a0e0a096d6f64655f737465701201310a090a046d6f6465120134"
        "b3c02d06"
    )
    record = b"".join(frame(chunks, v1=True))
    assert len(record) == 84
    assert record.hex() == expected


def test_scalar_has_an_empty_shape() -> None:
    assert b"\x12\x00\x22\x04" in encoded(np.array(1.0, np.float32))


# ---- alignment


@pytest.mark.parametrize("size", [1, 7, 100, 5000, 40_000])
@pytest.mark.parametrize("name", ["x", "layer.weight" * 9, "n" * 16_300])
def test_content_is_aligned(size: int, name: str) -> None:
    array = np.full(size, 0xAB, np.uint8)
    for content_at in [*range(0, 130), 2**31 - 1, 2**40 + 17]:
        chunks = encode_tensor(
            name, array, step=300, mode=ModeKeys.EVAL, mode_step=3, wall_time=1.0,
            content_at=content_at,
        )  # fmt: skip
        assert (content_at + len(chunks[0])) % ALIGNMENT == 0
        if content_at % 16 == 0:
            assert_same(decoded_tensor(b"".join(chunks)), array)


@given(st.integers(0, 2**40), st.integers(0, 300), st.integers(0, 400))
def test_content_is_aligned_anywhere(content_at: int, name_size: int, size: int) -> None:
    array = np.ones(size, np.int8)
    payload = encoded(array, "n" * name_size, content_at=content_at)
    assert_same(decoded_tensor(payload), array)
    if size > 20:
        assert (content_at + payload.rindex(bytes([1]) * size)) % ALIGNMENT == 0


# ---- tensorboard and protobuf as witnesses


@pytest.fixture(scope="module")
def event_pb2() -> Any:
    from tensorboard.compat.proto import event_pb2

    return event_pb2


@settings(max_examples=60, deadline=None)
@given(numeric_arrays(), TEXT, STEPS, st.none() | st.integers(0, 1000))
def test_protobuf_reads_the_same_fields(
    array: Array, name: str, step: int, content_at: int | None
) -> None:
    from tensorboard.compat.proto import event_pb2

    array = plain_array(array)
    event = event_pb2.Event.FromString(encoded(array, name, step, content_at=content_at))
    assert (event.wall_time, event.step) == (1.5, step)
    (value,) = event.summary.value
    assert value.tag == name
    assert value.tensor.dtype == dtype_number(array.dtype)
    assert [dim.size for dim in value.tensor.tensor_shape.dim] == list(array.shape)
    assert [dim.name for dim in value.tensor.tensor_shape.dim] == [
        f"{name}_{size}" for size in array.shape
    ]
    assert value.tensor.tensor_content == array.tobytes()


def test_type_numbers_are_those_of_protobuf() -> None:
    from tensorboard.compat.proto import types_pb2

    names = {
        "float32": "DT_FLOAT",
        "float64": "DT_DOUBLE",
        "float16": "DT_HALF",
        **{kind: "DT_" + kind.upper() for kind in ("bool", "bfloat16", "complex64", "complex128")},
        **{f"{sign}int{bits}": f"DT_{sign}INT{bits}".upper()
           for sign in ("", "u") for bits in (8, 16, 32, 64)},
        "float8_e5m2": "DT_FLOAT8_E5M2",
        "float8_e4m3fn": "DT_FLOAT8_E4M3FN",
    }  # fmt: skip
    for ours, theirs in names.items():
        assert dtype_number(dtype_of(ours)) == types_pb2.DataType.Value(theirs)


def test_we_read_what_protobuf_writes(event_pb2: Any) -> None:
    event = event_pb2.Event(wall_time=2.0, step=2**40)
    floats = event.summary.value.add(tag="floats").tensor
    floats.dtype = 1
    floats.tensor_shape.dim.add(size=2)
    floats.float_val.extend([1.5, -2.0])
    ints = event.summary.value.add(tag="ints").tensor
    ints.dtype = 9
    ints.tensor_shape.dim.add(size=3)
    ints.int64_val.extend([-1, 2**62, 0])
    flags = event.summary.value.add(tag="flags").tensor
    flags.dtype = 10
    flags.bool_val.append(True)
    event.summary.value.add(tag="plain", simple_value=0.5)
    found = decode_event(memoryview(event.SerializeToString()))
    by_tag = {value.tag: value for value in found.values}
    assert (found.step, found.wall_time) == (2**40, 2.0)
    assert _list(by_tag["floats"].tensor) == [1.5, -2.0]
    assert _list(by_tag["ints"].tensor) == [-1, 2**62, 0]
    assert _list(by_tag["flags"].tensor) is True
    assert by_tag["plain"].simple_value == 0.5


def _list(array: Array | None) -> Any:
    assert array is not None
    return array.tolist()


@pytest.mark.filterwarnings("ignore::DeprecationWarning:tensorboard")
def test_tensorboard_reads_our_files(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing import event_file_loader
    from tensorboard.util import tensor_util

    tensor = np.arange(6, dtype=np.float32).reshape(2, 3)
    events = [
        encode_file_version(1.0),
        encode_scalar("loss", 0.25, step=3, wall_time=2.0),
        encode_tensor(
            "weight", tensor, step=4, mode=ModeKeys.TRAIN, mode_step=4, wall_time=3.0, content_at=0
        ),
    ]
    path = tmp_path / "events.out.tfevents.1"
    path.write_bytes(b"".join(b"".join(frame(event)) for event in events))
    assert len(list(event_file_loader.RawEventFileLoader(str(path)).Load())) == 3
    version, loss, weight = event_file_loader.LegacyEventFileLoader(str(path)).Load()
    assert version.file_version == "brain.Event:2"
    assert (loss.step, loss.wall_time) == (3, 2.0)
    assert (loss.summary.value[0].tag, loss.summary.value[0].simple_value) == ("loss", 0.25)
    assert np.array_equal(tensor_util.make_ndarray(weight.summary.value[0].tensor), tensor)


@given(st.floats(width=32), TEXT, STEPS)
def test_scalars(value: float, name: str, step: int) -> None:
    payload = b"".join(encode_scalar(name, value, step=step, wall_time=1.0))
    event = decode_event(memoryview(payload))
    (found,) = event.values
    assert (event.step, found.tag, found.tensor) == (step, name, None)
    assert np.array_equal(np.float32(found.simple_value or 0.0), np.float32(value), equal_nan=True)


def test_file_version() -> None:
    payload = b"".join(encode_file_version(7.0))
    assert decode_event(memoryview(payload)) == Event(wall_time=7.0, file_version="brain.Event:2")


# ---- damage and malice


def field(number: int, content: bytes | int) -> bytes:
    """One protobuf field, written by hand: a varint for a number, else its bytes."""
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    return varint(number << 3 | 2) + varint(len(content)) + content


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def event_with(tensor: bytes) -> bytes:
    return field(5, field(1, field(1, b"x") + field(8, tensor)))


def shape(*sizes: int) -> bytes:
    return field(2, b"".join(field(2, field(1, size)) for size in sizes))


def assert_refused(payload: bytes) -> None:
    with pytest.raises(DataCorrupted) as caught:
        decode_event(memoryview(payload), key="events/x", offset=5)
    assert "events/x" in str(caught.value)
    assert "offset 5" in str(caught.value)


def only_data_corrupted(payload: bytes) -> None:
    with contextlib.suppress(DataCorrupted):
        decode_event(memoryview(payload))


@settings(max_examples=500, deadline=None)
@given(st.binary(max_size=80))
def test_random_bytes(payload: bytes) -> None:
    only_data_corrupted(payload)


@settings(max_examples=500, deadline=None)
@given(st.binary(max_size=40))
def test_random_tensors(tensor: bytes) -> None:
    only_data_corrupted(event_with(tensor))


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    """Tensors of well-formed fields that need not fit together."""
    numbers = st.integers(0, 2**64 - 1) | st.integers(0, 30)
    parts = draw(
        st.lists(
            st.one_of(
                st.builds(field, st.just(1), st.integers(0, 30)),
                st.builds(shape, numbers, numbers),
                st.builds(field, st.sampled_from([4, 8]), st.binary(max_size=16)),
                st.builds(field, st.sampled_from([5, 6, 7, 10, 11]), st.binary(max_size=16)),
                st.builds(field, st.sampled_from([4, 5, 6, 7, 10, 11]), st.integers(0, 300)),
            ),
            max_size=5,
        )
    )
    return b"".join(parts)


@settings(max_examples=300, deadline=None)
@given(messages())
def test_fields_out_of_range(tensor: bytes) -> None:
    only_data_corrupted(event_with(tensor))


def test_every_byte_changed_is_read_or_refused() -> None:
    payload = encoded(np.arange(4, dtype=np.float32), "some/name", content_at=12)
    for place in range(len(payload)):
        for change in (0x01, 0x10, 0x80, 0xFF):
            damaged = bytearray(payload)
            damaged[place] ^= change
            only_data_corrupted(bytes(damaged))


def test_every_cut_is_read_or_refused() -> None:
    payload = encoded(np.arange(4, dtype=np.float32), "some/name")
    for length in range(len(payload)):
        only_data_corrupted(payload[:length])


_NAN = np.array([np.nan], "<f4").tobytes()
_LARGE = np.array([1e39], "<f8").tobytes()
HOSTILE = {
    "content shorter than its shape": field(1, 1) + shape(3) + field(4, bytes(8)),
    "content longer than its shape": field(1, 1) + shape(1) + field(4, bytes(8)),
    "huge shape": field(1, 1) + shape(2**62) + field(4, bytes(8)),
    "shape that overflows to its content": field(1, 4) + shape(2**32, 2**32) + field(4, b""),
    "negative shape": field(1, 1) + shape(2**64 - 1) + field(4, bytes(4)),
    "nothing of a huge shape": field(1, 1) + shape(0, 2**62, 2**62) + field(4, b""),
    "nothing of a shape too large for numpy": field(1, 2) + shape(2**63 - 1, 0),
    "no strings of a huge shape": field(1, 7) + shape(0, 2**62, 2**62),
    "no numbers of a huge shape": field(1, 1) + shape(0, 2**62, 2**62) + field(5, b""),
    "too many dimensions": field(1, 1) + shape(*[1] * 100) + field(4, bytes(4)),
    "unknown type": field(1, 99) + shape(1) + field(4, bytes(4)),
    "a float list that is a number": field(1, 1) + shape(1) + field(5, 5_000_000),
    "a double list that is a number": field(1, 2) + shape(1) + field(6, 5_000_000),
    "a NaN that should be an integer": field(1, 9) + shape(1) + field(5, _NAN),
    "an integer too large for its type": field(1, 6) + shape(1) + field(10, 2**40),
    "a double too large for its type": field(1, 1) + shape(1) + field(6, _LARGE),
    "fewer numbers than the shape": field(1, 9) + shape(3) + field(10, 1),
    "fewer strings than the shape": field(1, 7) + shape(2**40) + field(8, b"a"),
}


@pytest.mark.parametrize("tensor", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_tensors_are_refused_cheaply(tensor: bytes) -> None:
    tracemalloc.start()
    try:
        assert_refused(event_with(tensor))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20


@pytest.mark.parametrize(
    "payload",
    [
        field(5, b"")[:-1] + varint(2**63),
        b"\x80" * 11,
        b"\x09\x00",
        b"\x0b",
        field(3, b"\xff"),
        field(5, field(1, field(1, b"\xff\xfe"))),
    ],
    ids=["huge field", "endless number", "half a double", "group", "version", "tag"],
)
def test_malformed_events_are_refused(payload: bytes) -> None:
    assert_refused(payload)


def test_one_long_string_does_not_widen_all() -> None:
    texts = np.array(["x" * 6000, *[""] * 6000], dtype=object)
    payload = b"".join(
        encode_tensor("x", texts, step=0, mode=ModeKeys.TRAIN, mode_step=0, wall_time=0.0)
    )
    assert len(payload) < 50_000
    tracemalloc.start()
    try:
        (value,) = decode_event(memoryview(payload)).values
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
    assert value.tensor is not None
    assert value.tensor.tolist() == texts.tolist()
