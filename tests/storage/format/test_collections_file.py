"""Collections files: what is ours in them, and that nothing else is believed."""

from __future__ import annotations

import json

import pytest

from smdebug.exceptions import IndexReaderException, SMDebugValueError
from smdebug.storage.format.collections_file import decode_collections, encode_collections
from smdebug.storage.format.keys import collections_key

KEY = collections_key("worker_0")
RUN = "0123456789abcdef"
TEXT = '{"collections": {"mine": {"tensor_names": ["a", "\\u00fc"]}}, "_meta": {"num_workers": 2}}'


def test_decoding_removes_the_added_metadata() -> None:
    file = decode_collections(encode_collections(TEXT, "worker_0", RUN), KEY)
    assert file.run == RUN
    assert file.content == json.loads(TEXT)


def test_only_keys_that_smdebug_1_ignores_are_added() -> None:
    data = json.loads(encode_collections(TEXT, "worker_0", RUN))
    assert set(data) == {"collections", "_meta"}
    assert set(data["_meta"]) == {"num_workers", "worker", "run", "crc32c"}


@pytest.mark.parametrize("run", [RUN, None])
def test_every_byte_counts(run: str | None) -> None:
    data = encode_collections(TEXT, "worker_0", run)
    for at in range(len(data)):
        for bit in (1, 4, 32):
            changed = bytearray(data)
            changed[at] ^= bit
            with pytest.raises(IndexReaderException, match="collections"):
                decode_collections(changed, KEY)
    for other in (data[:-1], data + b"\n", b"", data * 2):
        with pytest.raises(IndexReaderException, match="collections"):
            decode_collections(other, KEY)


def test_a_file_of_another_worker_is_refused() -> None:
    data = encode_collections(TEXT, "worker_1", RUN)
    with pytest.raises(IndexReaderException, match="belongs to worker 'worker_1'"):
        decode_collections(data, KEY)


def test_files_of_smdebug_1_have_no_checksum() -> None:
    file = decode_collections(TEXT.encode(), KEY)
    assert (file.content, file.run) == (json.loads(TEXT), None)


def test_encoding_twice_replaces_run_id_and_checksum() -> None:
    first = encode_collections(TEXT, "worker_0", RUN).decode()
    again = encode_collections(first, "worker_0", "f" * 16)
    assert again.count(b'"crc32c"') == again.count(b'"run"') == 1
    assert decode_collections(again, KEY).run == "f" * 16


@pytest.mark.parametrize("text", ["", "[]", "3", '{"_meta": 5}', "{" * 9])
def test_only_json_objects_are_encoded(text: str) -> None:
    with pytest.raises(SMDebugValueError, match="JSON object"):
        encode_collections(text, "worker_0", RUN)
