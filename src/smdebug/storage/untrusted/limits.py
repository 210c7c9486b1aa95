"""Limits for files of unknown origin: a few bytes can declare terabytes.

Files of our own writers stay far below. docs/guarantees.md lists the limits.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from smdebug.exceptions import IndexReaderException

if TYPE_CHECKING:
    from smdebug.storage.stores.base import Store

# How many bytes a column of a row group may always decompress to.
CHUNK_BYTES = 16 << 20
# How many bytes it may take with a separate string for each row.
COLUMN_BYTES = 128 << 20
# The size of a footer: that of a million rows has 50 kB.
FOOTER_BYTES = 32 << 20
# The maximum of numpy.
DIMENSIONS = 64
# How many steps, and how many characters of names, all workers of a run may have together.
STEPS = 1 << 27
NAME_CHARACTERS = 1 << 29
# A JSON file: its size, and how many lists and objects are in it. Each takes up to 200 bytes.
JSON_BYTES = 256 << 20
JSON_CONTAINERS = 4_000_000
# Rows of one file of findings.
FINDINGS_ROWS = 1 << 20


def read_small(store: Store, key: str, limit: int = JSON_BYTES) -> bytes:
    """Read a file that must fit into memory.

    Raises:
        IndexReaderException: it is larger than the limit.
        KeyError: it does not exist.
    """
    data = bytes(store.read(key, 0, limit + 1))
    if len(data) > limit:
        raise IndexReaderException(f"{key}: expected a file of at most {limit:,} bytes, got more")
    return data


def check_json(data: bytes, key: str) -> bytes:
    """Return JSON text after checking that parsing does not multiply its size.

    Raises:
        IndexReaderException: it could.
    """
    containers = data.count(b"[") + data.count(b"{")
    if len(data) > JSON_BYTES or containers > JSON_CONTAINERS:
        raise IndexReaderException(
            f"{key}: expected JSON of at most {JSON_BYTES:,} bytes with {JSON_CONTAINERS:,} lists "
            f"and objects, got {len(data):,} bytes with {containers:,}"
        )
    return data


def read_json_text(store: Store, key: str) -> bytes:
    """Read a JSON file without parsing it; see `read_small` and `check_json`."""
    return check_json(read_small(store, key), key)


def json_object(data: bytes, key: str) -> dict[str, Any]:
    """Parse JSON that is one object.

    Raises:
        IndexReaderException: it is not.
    """
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise IndexReaderException(f"{key}: not JSON: {error}") from error
    if not isinstance(content, dict):
        raise IndexReaderException(f"{key}: expected a JSON object")
    return content
