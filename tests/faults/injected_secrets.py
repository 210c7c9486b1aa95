"""Secrets to inject, and a search for them in all output."""

from __future__ import annotations

import base64
import io
import itertools
import random
import traceback
from typing import TYPE_CHECKING
from urllib.parse import quote

import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class Secrets:
    """Texts that occur nowhere else.

    Args:
        seed: of the texts.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._planted: dict[str, str] = {}
        self._numbers = itertools.count()

    def make(self, what: str) -> str:
        """Returns a new one."""
        letters = "abcdefghjkmnpqrstuvwxyzABCDEFGHJKMNPQRSTUVWXYZ23456789"
        text = "".join(self._random.choice(letters) for _ in range(24))
        self._planted[f"{what} {next(self._numbers)}"] = text
        return text

    def __len__(self) -> int:
        return len(self._planted)

    def found_in(self, data: str | bytes) -> list[str]:
        """Names those that are in a text, whichever way they are written."""
        raw = data.encode("utf-8", "replace") if isinstance(data, str) else data
        return [what for what, text in self._planted.items() if any(w in raw for w in ways(text))]


def ways(text: str) -> Iterator[bytes]:
    """A text as it is, and as it is in base64, at any of the three offsets."""
    yield text.encode()
    yield quote(text).encode()
    for skipped in range(3):
        coded = base64.b64encode(b"x" * skipped + text.encode())
        # The first and the last characters depend on their neighbors.
        yield coded[4:-4]


def said_by(error: BaseException | None) -> str:
    """Everything an error says, and those it came from: as a traceback, and to who looks closer."""
    if error is None:
        return ""
    parts = [*traceback.format_exception(error), repr(error), repr(error.args)]
    found: BaseException | None = error
    while found is not None:
        # What a traceback shows of it; what is suppressed there is not shown.
        parts += [str(found), repr(vars(found))]
        found = found.__cause__ or (None if found.__suppress_context__ else found.__context__)
    return "\n".join(parts)


def contents(files: Mapping[str, bytes]) -> Iterator[tuple[str, str | bytes]]:
    """Every byte of files, and the columns of Parquet files as they are without compression."""
    for name, data in files.items():
        yield name, data
        yield f"the name {name}", name
        if name.endswith(".parquet"):
            table = pq.read_table(io.BytesIO(data))
            yield f"{name}: metadata", repr(table.schema.metadata)
            yield f"{name}: columns", repr(table.to_pydict())
