"""Small files whose names hold a checksum: of the name, of the run, and of what is in them."""

from __future__ import annotations

import re
import time as clock
import uuid
from typing import TYPE_CHECKING

import crc32c

if TYPE_CHECKING:
    from smdebug.storage.stores.base import Buffer

_NAME = re.compile(r"^(.*\d{13}-[0-9a-f]{8})-([0-9a-f]{8})\.[a-z]+$", re.DOTALL)


def sealed_name(
    prefix: str, ending: str, content: Buffer, run: str | None = None, moment: float | None = None
) -> str:
    """A new key for a file.

    Names sort by time. The next part of one keeps two programs that write at once apart; the last
    one is the checksum, of the rest of the name too: a copy under another name is none.

    Args:
        prefix: what the key begins with.
        ending: what it ends with.
        content: what the file will hold.
        run: the name of the run it belongs to.
        moment: when it is written, in seconds since 1970; now when None.
    """
    milliseconds = int((clock.time() if moment is None else moment) * 1000)
    stem = f"{prefix}{milliseconds:013d}-{uuid.uuid4().hex[:8]}"
    return f"{stem}-{_checksum(stem, content, run):08x}.{ending}"


def resealed_name(key: str, content: Buffer, run: str | None) -> str:
    """The name of a file in a copy of its run; one without a checksum stays as it is."""
    match = _NAME.match(key)
    if match is None:
        return key
    ending = key.rpartition(".")[2]
    return f"{match[1]}-{_checksum(match[1], content, run):08x}.{ending}"


def has_seal(key: str) -> bool:
    """Whether a name holds a checksum."""
    return _NAME.match(key) is not None


def is_sealed(key: str, content: Buffer, run: str | None = None) -> bool:
    """Whether a name holds the checksum of this content, in this run."""
    match = _NAME.match(key)
    return match is not None and int(match[2], 16) == _checksum(match[1], content, run)


def _checksum(stem: str, content: Buffer, run: str | None) -> int:
    return int(crc32c.crc32c(content, crc32c.crc32c(f"{stem} {run or ''}".encode())))
