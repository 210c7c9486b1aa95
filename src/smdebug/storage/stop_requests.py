"""Stop requests: small files that other processes write into the run of a live job."""

from __future__ import annotations

import json
import logging
import time as clock
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from smdebug.exceptions import IndexReaderException
from smdebug.mode_keys import ModeKeys
from smdebug.storage.format.checksum import checksummed_name, fits_checksum, has_checksum
from smdebug.storage.untrusted.limits import json_object, read_json_text

if TYPE_CHECKING:
    from smdebug.storage.stores.base import Store

logger = logging.getLogger("smdebug.storage")

CONTROL_PREFIX = "control/"
_STOP_PREFIX = f"{CONTROL_PREFIX}stop-"


@dataclass(frozen=True)
class StopRequest:
    """A request to stop training.

    Attributes:
        reason: a sentence for the log of the job.
        rule: the rule that requests it.
        step: the step of the rule's finding.
        tensor: the tensor of the rule's finding.
        at_step: stop before this step, or immediately if None. Workers that train together must
            stop together.
        time: when it was made, in seconds since 1970.
        mode: the name of the mode that `at_step` counts in; `GLOBAL` counts the steps of all.
    """

    reason: str
    rule: str = "StopRequest"
    step: int = 0
    tensor: str | None = None
    at_step: int | None = None
    time: float = field(default_factory=clock.time)
    mode: str = ModeKeys.GLOBAL.name


def write_stop(store: Store, request: StopRequest) -> str:
    """Write a request into a run; return its key."""
    content = json.dumps(vars(request)).encode()
    key = checksummed_name(_STOP_PREFIX, "json", content, time=request.time)
    store.write(key, [content])
    return key


def list_stops(store: Store) -> list[str]:
    """Return the keys of all requests, oldest first."""
    return [key for key in store.list(_STOP_PREFIX) if key.endswith(".json")]


def read_stop(store: Store, key: str) -> StopRequest:
    """Read a request; a damaged or unknown one still requests a stop."""
    try:
        fields = checked_request(read_json_text(store, key), key)
    except IndexReaderException as error:
        logger.warning("Stopping for a request whose content is unknown: %s", error)
        fields = {}
    return StopRequest(
        reason=str(fields.get("reason") or f"{key} asks for it"),
        rule=str(fields.get("rule") or "StopRequest"),
        step=_whole(fields.get("step")) or 0,
        tensor=None if fields.get("tensor") is None else str(fields["tensor"]),
        at_step=_whole(fields.get("at_step")),
        mode=_mode(fields.get("mode")),
        time=_seconds(fields.get("time")),
    )


def checked_request(data: bytes, key: str) -> dict[str, Any]:
    """Parse a request.

    Raises:
        IndexReaderException: it is damaged, or is not a JSON object.
    """
    if has_checksum(key) and not fits_checksum(key, data):
        raise IndexReaderException(f"{key}: damaged: its checksum is not that of its name")
    return json_object(data, key)


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _mode(value: Any) -> str:
    return value if value in ModeKeys.__members__ else ModeKeys.GLOBAL.name


def _seconds(value: Any) -> float:
    try:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return float(value) if number else clock.time()
    except OverflowError:
        return clock.time()
