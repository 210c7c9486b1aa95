"""Framing: what is written comes back, and every damage is found."""

from __future__ import annotations

import contextlib
import struct
import tracemalloc
from typing import TYPE_CHECKING

import crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smdebug.exceptions import DataCorrupted
from smdebug.storage.format.records import (
    HEADER_SIZE,
    OVERHEAD,
    V1_FOOTER,
    checksum,
    footer,
    frame,
    header,
    iterate_records,
    mask,
    open_record,
)

if TYPE_CHECKING:
    from collections.abc import Callable

KEY = "events/000000000001/x.tfevents"
PAYLOAD = b"some payload"


def record_of(*chunks: bytes, v1: bool = False) -> bytes:
    return b"".join(frame(list(chunks), v1=v1))


def opened(record: bytes, expected: int | None = None, v1: bool = False) -> bytes:
    view = memoryview(record)
    return bytes(open_record(view, key=KEY, offset=7, tensor="t", expected=expected, v1=v1))


def assert_damaged(read: Callable[[], object], offset: int) -> None:
    with pytest.raises(DataCorrupted) as caught:
        read()
    assert caught.value.key == KEY
    assert caught.value.offset == offset
    assert KEY in str(caught.value)
    assert str(offset) in str(caught.value)


# ---- known numbers


def test_crc32c_is_castagnoli() -> None:
    assert checksum([b"123456789"]) == 0xE3069283
    assert checksum([b"1234", b"", b"56789"]) == 0xE3069283
    assert checksum([]) == 0


def test_constant_footer_is_what_the_format_says() -> None:
    assert mask(crc32c.crc32c(b"0x12345678")) == V1_FOOTER == 103661747
    assert footer(V1_FOOTER) == bytes.fromhex("b3c02d06")


@given(st.integers(0, 2**32 - 1))
def test_mask_is_32_bits_and_can_be_undone(crc: int) -> None:
    rotated = (mask(crc) - 0xA282EAD8) & 0xFFFFFFFF
    assert ((rotated >> 17) | (rotated << 15)) & 0xFFFFFFFF == crc


def test_layout_of_a_record() -> None:
    length = struct.pack("<Q", len(PAYLOAD))
    expected = b"".join(
        [
            length,
            struct.pack("<I", mask(crc32c.crc32c(length))),
            PAYLOAD,
            struct.pack("<I", mask(crc32c.crc32c(PAYLOAD))),
        ]
    )
    assert record_of(PAYLOAD) == expected
    assert len(header(5)) == HEADER_SIZE
    assert len(expected) == len(PAYLOAD) + OVERHEAD


# ---- round trips


@given(st.lists(st.binary(max_size=50), max_size=6), st.booleans())
def test_round_trip(chunks: list[bytes], v1: bool) -> None:
    payload = b"".join(chunks)
    record = record_of(*chunks, v1=v1)
    assert record == record_of(payload, v1=v1)
    assert opened(record, v1=v1) == payload
    assert opened(record, expected=checksum([payload]), v1=v1) == payload


def test_chunks_are_passed_through() -> None:
    chunk = bytearray(b"big")
    assert frame([chunk])[1] is chunk


def test_payload_is_a_view() -> None:
    record = memoryview(record_of(PAYLOAD))
    payload = open_record(record, key=KEY, offset=0)
    assert payload.obj is record.obj


@given(st.lists(st.binary(max_size=40), max_size=8), st.booleans())
def test_a_file_of_records(payloads: list[bytes], v1: bool) -> None:
    data = b"".join(record_of(payload, v1=v1) for payload in payloads)
    found = list(iterate_records(memoryview(data), KEY, v1=v1))
    assert [bytes(payload) for _, payload in found] == payloads
    sizes = [len(payload) + OVERHEAD for payload in payloads]
    assert [offset for offset, _ in found] == [sum(sizes[:n]) for n in range(len(sizes))]


def test_a_v1_file_may_hold_a_record_with_a_real_footer() -> None:
    assert opened(record_of(PAYLOAD), v1=True) == PAYLOAD


# ---- damage


@pytest.mark.parametrize("bit", range((len(PAYLOAD) + OVERHEAD) * 8))
def test_every_bit_counts(bit: int) -> None:
    record = bytearray(record_of(PAYLOAD))
    record[bit // 8] ^= 1 << bit % 8
    assert_damaged(lambda: opened(bytes(record)), 7)
    assert_damaged(lambda: opened(bytes(record), expected=checksum([PAYLOAD])), 7)
    assert_damaged(lambda: list(iterate_records(memoryview(record), KEY)), 0)


@pytest.mark.parametrize("bit", range((len(PAYLOAD) + OVERHEAD) * 8))
def test_a_checksum_in_the_index_detects_every_flipped_bit_of_a_v1_record(bit: int) -> None:
    record = bytearray(record_of(PAYLOAD, v1=True))
    record[bit // 8] ^= 1 << bit % 8
    assert_damaged(lambda: opened(bytes(record), expected=checksum([PAYLOAD]), v1=True), 7)


@pytest.mark.parametrize("length", range(len(PAYLOAD) + OVERHEAD))
def test_every_cut_is_found(length: int) -> None:
    cut = record_of(PAYLOAD)[:length]
    assert_damaged(lambda: opened(cut), 7)
    if cut:
        assert_damaged(lambda: list(iterate_records(memoryview(cut), KEY)), 0)


def test_bytes_too_many_are_found() -> None:
    record = record_of(PAYLOAD)
    assert_damaged(lambda: opened(record + b"\0"), 7)
    whole = memoryview(record + b"\0")
    assert_damaged(lambda: list(iterate_records(whole, KEY)), len(record))


def test_the_records_before_the_damage_are_read() -> None:
    first, second = record_of(b"first"), bytearray(record_of(b"second"))
    second[14] ^= 1
    records = iterate_records(memoryview(first + second), KEY)
    assert bytes(next(records)[1]) == b"first"
    assert_damaged(lambda: next(records), len(first))


def test_a_constant_footer_is_damage_in_a_new_file() -> None:
    assert_damaged(lambda: opened(record_of(PAYLOAD, v1=True)), 7)


def test_intact_record_of_other_content_is_damage() -> None:
    assert_damaged(lambda: opened(record_of(b"other stuff!"), expected=checksum([PAYLOAD])), 7)


@pytest.mark.parametrize("length", [13, 2**31, 2**32, 2**62, 2**63 - 1, 2**63, 2**64 - 1])
def test_hostile_lengths_allocate_nothing(length: int) -> None:
    record = header(length) + PAYLOAD + footer(0)
    tracemalloc.start()
    try:
        assert_damaged(lambda: opened(record), 7)
        assert_damaged(lambda: list(iterate_records(memoryview(record), KEY)), 0)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20


@settings(max_examples=200)
@given(st.binary(max_size=60), st.booleans())
def test_random_bytes(data: bytes, v1: bool) -> None:
    for read in (
        lambda: opened(data, v1=v1),
        lambda: list(iterate_records(memoryview(data), KEY, v1=v1)),
    ):
        with contextlib.suppress(DataCorrupted):
            read()
