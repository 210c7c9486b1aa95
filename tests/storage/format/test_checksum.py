"""Checksums of whole files: their bytes, and that every changed bit is found."""

from __future__ import annotations

import uuid
from contextlib import suppress

import pytest

from smdebug.exceptions import IndexReaderException
from smdebug.storage.format.checksum import (
    PARQUET_KEY,
    add_json_checksum,
    check_json_checksum,
    checksummed_name,
    fill_parquet_checksums,
    fits_checksum,
    has_checksum,
    parquet_placeholder,
    read_parquet_checksums,
    renamed_for_run,
)

JSON = {
    1: ('{"a": [1]}', b'{"a": [1], "crc32c": "94bb91b0"}'),
    2: ('{"a": {"b": 2}}', b'{"a": {"b": 2, "crc32c": "2db7f9ba"}}'),
}


@pytest.mark.parametrize("depth", JSON)
def test_json(depth: int) -> None:
    document, data = JSON[depth]
    assert add_json_checksum(document, depth) == data
    assert check_json_checksum(data, "key", depth)


@pytest.mark.parametrize("depth", JSON)
def test_every_bit_of_a_json_file_counts(depth: int) -> None:
    """A damaged footer counts as a missing one; the caller decides whether one is required."""
    data = bytearray(JSON[depth][1])
    footer = data.index(b', "crc32c"')
    for bit in range(8 * len(data)):
        data[bit // 8] ^= 1 << bit % 8
        if bit // 8 < footer:
            with pytest.raises(IndexReaderException, match="key: the file fails its checksum"):
                check_json_checksum(bytes(data), "key", depth)
        else:
            with suppress(IndexReaderException):
                assert not check_json_checksum(bytes(data), "key", depth)
        data[bit // 8] ^= 1 << bit % 8


@pytest.mark.parametrize("data", [b"", b"{}", b'{"crc32c": "00000000"}', JSON[2][1]])
def test_json_without_a_checksum(data: bytes) -> None:
    assert not check_json_checksum(data, "key")


def parquet() -> tuple[bytes, int]:
    """Something like a file with two column chunks, and where its footer starts."""
    placeholder = parquet_placeholder(2)
    body = b"PAR1first chunksecond"
    data = bytearray(body + b"footer " + PARQUET_KEY + b" " + placeholder + b" end")
    fill_parquet_checksums(data, placeholder, len(body), [(4, 15), (15, 21)])
    return bytes(data), len(body)


def test_parquet() -> None:
    data, start = parquet()
    assert data[start:] == (b"footer smdebug.seal crc32c:00000002:ae8d39ad7afd9428c6cfc429 end")
    assert read_parquet_checksums(data[start:]) == [0xAE8D39AD, 0x7AFD9428]


def test_every_bit_of_a_parquet_footer_counts() -> None:
    data, start = parquet()
    footer = bytearray(data[start:])
    for bit in range(8 * len(footer)):
        footer[bit // 8] ^= 1 << bit % 8
        with pytest.raises(IndexReaderException):
            read_parquet_checksums(bytes(footer))
        footer[bit // 8] ^= 1 << bit % 8


def test_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uuid, "uuid4", lambda: uuid.UUID("12345678" * 4))
    key = checksummed_name("findings/", "json", b"content", "run", time=12345.678)
    assert key == "findings/0000012345678-12345678-dfbdca69.json"
    assert has_checksum(key)
    assert fits_checksum(key, b"content", "run")
    for other in (key.replace("5678-", "5679-", 1), key.replace("-df", "-00"), f"x{key}"):
        assert not fits_checksum(other, b"content", "run")
    assert not fits_checksum(key, b"Content", "run")
    assert not fits_checksum(key, b"content", "another")
    assert not fits_checksum(key, b"content")
    copied = renamed_for_run(key, b"content", "another")
    assert copied.startswith(key[:-13])
    assert fits_checksum(copied, b"content", "another")


def test_names_sort_by_time() -> None:
    keys = [checksummed_name("p", "json", b"", time=float(time)) for time in (1, 20, 300)]
    assert keys == sorted(keys)
    assert checksummed_name("p", "json", b"") > keys[-1]


@pytest.mark.parametrize("key", ["findings/x.json", "control/stop-1.json", ""])
def test_names_without_a_checksum(key: str) -> None:
    assert not has_checksum(key)
    assert not fits_checksum(key, b"")
    assert renamed_for_run(key, b"", "run") == key
