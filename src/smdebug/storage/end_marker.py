"""End marker of a run: no more steps will come, since when, and whether it was interrupted.

In format v1 the file is empty; tools that read it check for the name only.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from smdebug.storage.format.keys import END_KEY

if TYPE_CHECKING:
    from smdebug.storage.stores.base import Store

_MAX_BYTES = 64
_INTERRUPTED = b"interrupted"
_CONTENT = re.compile(rb"(\d{1,12}\.\d{3})?((?:^|(?<=\d) )interrupted)?")


@dataclass(frozen=True)
class EndMarker:
    """Content of an end marker.

    Attributes:
        time: when the job ended, in seconds since 1970; None if unknown.
        interrupted: the job was stopped before its end. It may be started again, so the next job
            may write to the run.

    Example:
        >>> EndMarker.decode(EndMarker(1794890490.125, interrupted=True).encode())
        EndMarker(time=1794890490.125, interrupted=True)
    """

    time: float | None = None
    interrupted: bool = False

    @classmethod
    def now(cls, format: str, interrupted: bool = False) -> EndMarker:
        """Return the marker of a run in this format that ends now."""
        return cls(time.time() if format == "v2" else None, interrupted)

    def encode(self) -> bytes:
        """Return the content of the file."""
        moment = b"" if self.time is None else b"%.3f" % self.time
        return b" ".join(filter(None, [moment, _INTERRUPTED if self.interrupted else b""]))

    @classmethod
    def decode(cls, content: bytes) -> EndMarker | None:
        """Parse the content of a file; return None if it is not a marker."""
        found = _CONTENT.fullmatch(content)
        if found is None:
            return None
        return cls(None if found[1] is None else float(found[1]), found[2] is not None)

    @classmethod
    def of(cls, store: Store) -> EndMarker | None:
        """Read the marker of a run; return None without one.

        A file with unknown content is an end marker nevertheless.
        """
        try:
            content = bytes(store.read(END_KEY, 0, _MAX_BYTES))
        except KeyError:
            return None
        return cls.decode(content) or cls()
