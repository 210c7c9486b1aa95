"""Stop requests that other processes leave in the run.

A background thread polls for them; training only reads an attribute.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from smdebug.config.log import WarnOnce
from smdebug.storage.stop_requests import list_stops, read_stop

if TYPE_CHECKING:
    from collections.abc import Callable

    from smdebug.storage.stop_requests import StopRequest
    from smdebug.storage.stores.base import Store

logger = logging.getLogger("smdebug.hook")

# Seconds between two polls; listing a bucket takes a request.
LOCAL_SECONDS, REMOTE_SECONDS = 1.0, 10.0


class StopListener:
    """Polls for stop requests from `start` on until one is accepted.

    Making one lists the requests that exist, which takes a request to the store.

    Args:
        store: where the run is.
        on_stop: called with every new request, on the background thread, until it returns True.
        before_poll: called before every poll.

    Attributes:
        interval: seconds between two polls.
    """

    def __init__(
        self,
        store: Store,
        on_stop: Callable[[StopRequest], bool],
        before_poll: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._on_stop = on_stop
        self._before_poll = before_poll
        self.interval = REMOTE_SECONDS if store.remote else LOCAL_SECONDS
        self._closed = threading.Event()
        self._warnings = WarnOnce(logger)
        # Requests to an earlier job in the same run are not for this one.
        self._known = set(list_stops(store))
        self._thread = threading.Thread(target=self._run, name="smdebug-stop-listener", daemon=True)

    def start(self) -> None:
        """Start to poll; a second call, after Ctrl-C in the first, does no harm."""
        if self._thread.ident is None:
            self._thread.start()

    def close(self) -> None:
        """Stop polling, without waiting for a slow store."""
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.wait(self.interval):
            try:
                self._before_poll()
                fresh = [key for key in list_stops(self._store) if key not in self._known]
                for key in fresh:
                    if self._on_stop(read_stop(self._store, key)):
                        return
                self._known.update(fresh)
            except Exception as error:
                # Training continues; the next poll may succeed.
                message = "Cannot poll for stop requests in %s: %s"
                self._warnings.warning("poll", message, self._store.url, error)
