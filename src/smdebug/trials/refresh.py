"""When to look for new steps, and how much of the index to look at.

Looking costs a listing. A cheap one is made for every question; a dear one (a bucket, a million
files) at most a tenth of the time, and then only the newest steps are listed: a full listing,
which also finds the files of slow workers and of resumed runs, comes in when its cost is a small
share of the time since the last one.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from smdebug.storage.reader import RunReader

# Below this a listing is made for every question.
_CHEAP = 0.005
_SHARE = 10
# However dear, new steps are looked for this often: readers must see a step within a second.
_LONGEST_PAUSE = 0.5
_FULL_SHARE = 20


class Refresher:
    """Refreshes a reader, as seldom as is good for it.

    Args:
        reader: the reader to refresh.
        clock: seconds that only grow; given by tests.
    """

    def __init__(self, reader: RunReader, clock: Callable[[], float] = time.monotonic) -> None:
        self._reader = reader
        self._clock = clock
        self._last = self._last_full = -1e9
        self._cost = self._full_cost = 0.0

    def due(self) -> bool:
        """Whether enough time has passed since the last refresh."""
        if self._cost < _CHEAP:
            return True
        return self._clock() - self._last >= min(self._cost * _SHARE, _LONGEST_PAUSE)

    def run(self, newest_step: int | None, full: bool = False) -> bool:
        """Refreshes; returns whether anything is new.

        Args:
            newest_step: a step that all workers are known to have passed; older ones may be left
                out. None lists everything.
            full: list everything.
        """
        full = full or newest_step is None or self._full_is_due(self._clock())
        changed = self._reader.refresh(None if full else newest_step, self._clock)
        self._last = self._clock()
        # Reading what is new is not what a refresh costs: it is done once, whenever it is done.
        self._cost = self._reader.listing_seconds
        if full:
            self._last_full, self._full_cost = self._last, self._cost
        return changed

    def _full_is_due(self, now: float) -> bool:
        if self._full_cost < _CHEAP:
            return True
        return now - self._last_full >= self._full_cost * _FULL_SHARE
