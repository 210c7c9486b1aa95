"""Requests that others leave in the run, obeyed by the hook that writes it.

A thread looks for them: training only ever reads an attribute.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from smdebug.storage.stop_requests import list_stops, read_stop

if TYPE_CHECKING:
    from collections.abc import Callable

    from smdebug.storage.stop_requests import StopRequest
    from smdebug.storage.stores.base import Store

logger = logging.getLogger("smdebug.hook")

# Listing a bucket costs a request.
LOCAL_SECONDS, REMOTE_SECONDS = 1.0, 10.0


class StopListener:
    """Looks for requests to stop, every so often, from `start` on until one is accepted.

    Making one asks the store what is there already; training must not wait for that.

    Args:
        store: where the run is.
        on_stop: called with every request, on the thread of this object, until it returns True.
        on_look: called before every look.

    Attributes:
        interval: seconds between two looks.
    """

    def __init__(
        self,
        store: Store,
        on_stop: Callable[[StopRequest], bool],
        on_look: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._on_stop = on_stop
        self._on_look = on_look
        self.interval = REMOTE_SECONDS if store.remote else LOCAL_SECONDS
        self._ended = threading.Event()
        self._warned = False
        # What was asked of an earlier job in the same place is not asked of this one.
        self._old = set(list_stops(store))
        self._thread = threading.Thread(target=self._run, name="smdebug-control", daemon=True)

    def start(self) -> None:
        """Begins to look; a second call, after Ctrl-C in the first, does no harm."""
        if self._thread.ident is None:
            self._thread.start()

    def close(self) -> None:
        """Stops looking; does not wait for a slow store."""
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.wait(self.interval):
            try:
                self._on_look()
                fresh = [key for key in list_stops(self._store) if key not in self._old]
                for key in fresh:
                    if self._on_stop(read_stop(self._store, key)):
                        return
                self._old.update(fresh)
            except Exception as error:
                # Training goes on; the next look may have more luck.
                if not self._warned:
                    self._warned = True
                    logger.warning("cannot look for requests in %s: %s", self._store.url, error)
