"""The mark of the end of a run: that there is no more to come, since when, and whether it was cut.

Format v1 has an empty file; tools that read it look for the name only.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from smdebug.storage.format.keys import END_KEY

if TYPE_CHECKING:
    from smdebug.storage.stores.base import Store

_MOST_BYTES = 64
_INTERRUPTED = b"interrupted"
_MARK = re.compile(rb"(\d{1,12}\.\d{3})?((?:^|(?<=\d) )interrupted)?")


@dataclass(frozen=True)
class EndMarker:
    """What the mark of an end says.

    Attributes:
        time: when the job has ended, in seconds since 1970; None when it does not say.
        interrupted: somebody has stopped the job before it came to its end. It may be started
            again, so the run is open to the next job.

    Example:
        >>> EndMarker.decode(EndMarker(1794890490.125, interrupted=True).encode())
        EndMarker(time=1794890490.125, interrupted=True)
    """

    time: float | None = None
    interrupted: bool = False

    @classmethod
    def now(cls, format: str, interrupted: bool = False) -> EndMarker:
        """The mark of a run in this format that ends now."""
        return cls(time.time() if format == "v2" else None, interrupted)

    def encode(self) -> bytes:
        """The content of the file."""
        moment = b"" if self.time is None else b"%.3f" % self.time
        return b" ".join(filter(None, [moment, _INTERRUPTED if self.interrupted else b""]))

    @classmethod
    def decode(cls, content: bytes) -> EndMarker | None:
        """What the content of a file says; None when it is no mark."""
        found = _MARK.fullmatch(content)
        if found is None:
            return None
        return cls(None if found[1] is None else float(found[1]), found[2] is not None)

    @classmethod
    def of(cls, store: Store) -> EndMarker | None:
        """The mark of a run; None while there is none.

        One that says nothing that can be understood is the mark of an end all the same.
        """
        try:
            content = bytes(store.read(END_KEY, 0, _MOST_BYTES))
        except KeyError:
            return None
        return cls.decode(content) or cls()
