"""TFRecord framing: length, checksum of the length, payload, checksum of the payload.

Format v2 and TensorBoard files end a record with the real checksum of its payload. Format v1 ends
every record with one constant, because smdebug 1.0 accepts nothing else.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import crc32c
import xxhash

from smdebug.exceptions import DataCorrupted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from smdebug.storage.stores.base import Buffer

V1_FOOTER = 0x062DC0B3
HEADER_SIZE = 12
OVERHEAD = 16

_HEADER = struct.Struct("<QI")
_LENGTH = struct.Struct("<Q")
_FOOTER = struct.Struct("<I")


def mask(crc: int) -> int:
    """Rotate and shift a checksum, as TFRecord does for checksums that are stored."""
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def checksum(chunks: Sequence[Buffer]) -> int:
    """Return the CRC32C of concatenated chunks."""
    crc = 0
    for chunk in chunks:
        crc = crc32c.crc32c(chunk, crc)
    return crc


def digest(chunks: Sequence[Buffer]) -> int:
    """Return the XXH3-64 of concatenated chunks, at twice the speed of CRC32C."""
    hasher = xxhash.xxh3_64()
    for chunk in chunks:
        hasher.update(chunk)
    return hasher.intdigest()


def header(length: int) -> bytes:
    """Return the twelve bytes before a payload of this length."""
    return _HEADER.pack(length, mask(crc32c.crc32c(_LENGTH.pack(length))))


def footer(masked: int) -> bytes:
    """Return the four bytes after a payload."""
    return _FOOTER.pack(masked)


def frame(payload: Sequence[Buffer], v1: bool = False) -> list[Buffer]:
    """Frame one record; the payload's chunks are not copied.

    Example:
        >>> b"".join(frame([b"x"])).hex()
        '01000000000000000175de4178503daa61'
    """
    length = sum(len(chunk) for chunk in payload)
    masked = V1_FOOTER if v1 else mask(checksum(payload))
    return [header(length), *payload, footer(masked)]


def open_record(
    record: memoryview,
    *,
    key: str,
    offset: int,
    tensor: str | None = None,
    expected: int | None = None,
    expected_digest: int | None = None,
    v1: bool = False,
) -> memoryview:
    """Verify one record and return its payload.

    Args:
        record: the bytes of exactly this record.
        key: the file it came from; with `offset` and `tensor` only for the error.
        offset: where the record starts in the file.
        tensor: the tensor it should hold.
        expected: the CRC32C its payload must have, if the index has it.
        expected_digest: the XXH3 its payload must have; then the CRC32C is not computed.
        v1: accept the constant footer of format v1.

    Raises:
        DataCorrupted: the record is truncated, too long, or fails a checksum.
    """
    if len(record) < OVERHEAD:
        raise DataCorrupted("record is truncated", key=key, offset=offset, tensor=tensor)
    length, masked = _HEADER.unpack_from(record)
    if masked != mask(crc32c.crc32c(record[:8])):
        raise DataCorrupted(
            "record header fails its checksum", key=key, offset=offset, tensor=tensor
        )
    if length != len(record) - OVERHEAD:
        raise DataCorrupted(
            f"record declares {length} bytes of payload, expected {len(record) - OVERHEAD}",
            key=key, offset=offset, tensor=tensor,
        )  # fmt: skip
    payload = record[HEADER_SIZE:-4]
    (stored,) = _FOOTER.unpack_from(record, len(record) - 4)
    if not _sound(payload, stored, expected, expected_digest, v1):
        raise DataCorrupted(
            "record payload fails its checksum", key=key, offset=offset, tensor=tensor
        )
    return payload


def _sound(
    payload: memoryview, stored: int, crc: int | None, expected_digest: int | None, v1: bool
) -> bool:
    if crc is not None and expected_digest is not None:
        return stored == mask(crc) and digest([payload]) == expected_digest
    constant = v1 and stored == V1_FOOTER
    if constant and crc is None:
        return True
    actual = crc32c.crc32c(payload)
    return (crc is None or actual == crc) and (constant or stored == mask(actual))


def payload_length(data: memoryview, *, key: str, offset: int) -> int:
    """Return the length of the payload after the header at an offset.

    Raises:
        DataCorrupted: the header fails its checksum.
    """
    length, masked = _HEADER.unpack_from(data, offset)
    if masked != mask(crc32c.crc32c(data[offset : offset + 8])):
        raise DataCorrupted("record header fails its checksum", key=key, offset=offset)
    return int(length)


def iterate_records(
    data: memoryview, key: str, v1: bool = False
) -> Iterator[tuple[int, memoryview]]:
    """Yield (offset, payload) of every record of a file, each verified."""
    offset = 0
    while offset < len(data):
        rest = len(data) - offset
        if rest < OVERHEAD:
            raise DataCorrupted("file ends inside a record", key=key, offset=offset)
        length = payload_length(data, key=key, offset=offset)
        # Compared before anything is allocated: the length may be of unknown origin.
        if length > rest - OVERHEAD:
            raise DataCorrupted("file ends inside a record", key=key, offset=offset)
        record = data[offset : offset + OVERHEAD + length]
        yield offset, open_record(record, key=key, offset=offset, v1=v1)
        offset += OVERHEAD + length
