"""How much a file of a run may ask for: a few bytes of somebody else's can claim to be terabytes.

What our own writers make stays far below. docs/guarantees.md tells users.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from smdebug.exceptions import IndexReaderException

if TYPE_CHECKING:
    from smdebug.storage.stores.base import Store

# What a column of a row group unpacks to at most, whatever it weighs.
CHUNK_BYTES = 16 << 20
# What it takes with its texts written out for each row.
COLUMN_BYTES = 128 << 20
# What a footer takes: one of a million rows has 50 kB.
FOOTER_BYTES = 32 << 20
# As many as numpy has at most.
DIMENSIONS = 64
# How many steps, and how many characters of names, the workers of a run have together.
STEPS = 1 << 27
NAME_CHARACTERS = 1 << 29
# A JSON file: its size, and how many lists and objects are in it. Each takes up to 200 bytes.
JSON_BYTES = 256 << 20
JSON_CONTAINERS = 4_000_000
# What rules found: rows of one file.
FINDINGS_ROWS = 1 << 20


def read_small(store: Store, key: str, limit: int = JSON_BYTES) -> bytes:
    """The content of a file that must fit into memory.

    Raises:
        IndexReaderException: it is larger than any such file is.
        KeyError: it is not there.
    """
    data = bytes(store.read(key, 0, limit + 1))
    if len(data) > limit:
        raise IndexReaderException(f"{key}: expected a file of at most {limit:,} bytes, got more")
    return data


def check_json(data: bytes, key: str) -> bytes:
    """Returns JSON text that does not take many times its size when it is parsed.

    Raises:
        IndexReaderException: it would.
    """
    containers = data.count(b"[") + data.count(b"{")
    if len(data) > JSON_BYTES or containers > JSON_CONTAINERS:
        raise IndexReaderException(
            f"{key}: expected JSON of at most {JSON_BYTES:,} bytes with {JSON_CONTAINERS:,} lists "
            f"and objects, got {len(data):,} bytes with {containers:,}"
        )
    return data


def read_json_text(store: Store, key: str) -> bytes:
    """The text of a JSON file, which is not parsed yet; see `read_small` and `check_json`."""
    return check_json(read_small(store, key), key)


def json_object(data: bytes, key: str) -> dict[str, Any]:
    """What a JSON file says that holds one object.

    Raises:
        IndexReaderException: it is none.
    """
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise IndexReaderException(f"{key}: not JSON: {error}") from error
    if not isinstance(content, dict):
        raise IndexReaderException(f"{key}: expected a JSON object")
    return content
