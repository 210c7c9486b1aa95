"""Keys of the files of a run: how they are built and parsed.

Worker names are opaque. In file names they are percent-encoded, so '/', ':', spaces and '__'
survive; names that need no encoding are unchanged. Format v1 has its own spelling of TensorFlow
device names, which is read and written here as well.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import quote, unquote

from smdebug.exceptions import SMDebugValueError

END_KEY = "training_job_end.ts"
COLLECTIONS_PREFIX = "collections/"
COLLECTIONS_FOLDER = "collections/000000000"
EVENTS_PREFIX = "events/"
INDEX_PREFIX = "index/"
# Where a hook writes TensorBoard files, unless it is configured with another directory.
TENSORBOARD_FOLDER = "tensorboard"

_STEPS_PER_FOLDER = 1000
LAST_STEP = 10**12 - 1
# File names are limited to 255 bytes nearly everywhere; step, number and suffix need the rest.
_MAX_WORKER = 200

_V2_INDEX = re.compile(r"^index/\d{9,}/(\d{12})-(\d{6,})_(.+)\.parquet$")
_V1_INDEX = re.compile(r"^index/\d{9,}/(\d{1,18})_(.+)\.json$")
_V1_AGAIN = re.compile(r"^index/\d{9,}/(\d{1,18})_(.+)-(\d{6,9})\.again$")
_V2_EVENTS = re.compile(r"^events/\d{12}/(\d{12})-(\d{6,})_(.+)\.tfevents$")
_V1_EVENTS = re.compile(r"^events/\d{12}/(\d{12,18})_(.+?)(?:-\d{6,9})?\.tfevents$")
_COLLECTIONS = re.compile(r"^collections/[^/]+/(.+)_collections\.json$")

_DEVICE = re.compile(r"^/job:[A-Za-z0-9]+/replica:\d+/task:\d+/device:[A-Z]+:\d+$")
_V1_DEVICE = re.compile(r"^_job-[A-Za-z0-9]+_replica-\d+_task-\d+_device-[A-Z]+-\d+$")


class IndexName(NamedTuple):
    """The parts of the name of an index file.

    Attributes:
        step: the first step in it.
        seq: its sequence number; None in format v1.
        worker: the worker that wrote it.
        attempt: how often a v1 file had been replaced.
    """

    step: int
    seq: int | None
    worker: str
    attempt: int = 0


def collections_key(worker: str, v1: bool = False) -> str:
    return f"{COLLECTIONS_FOLDER}/{_worker_text(worker, v1)}_collections.json"


def event_key(step: int, seq: int, worker: str) -> str:
    return f"events/{_step_text(step)}/{_step_text(step)}-{seq:06d}_{_worker_text(worker)}.tfevents"


def index_key(step: int, seq: int, worker: str) -> str:
    folder = f"{step // _STEPS_PER_FOLDER:09d}"
    return f"index/{folder}/{_step_text(step)}-{seq:06d}_{_worker_text(worker)}.parquet"


def v1_event_key(step: int, worker: str, attempt: int = 0) -> str:
    """Return the event file of a v1 step; `attempt` counts how often it was saved again."""
    again = f"-{attempt:06d}" if attempt else ""
    worker_text = _worker_text(worker, v1=True)
    return f"events/{_step_text(step)}/{_step_text(step)}_{worker_text}{again}.tfevents"


def v1_index_key(step: int, worker: str) -> str:
    folder = f"{step // _STEPS_PER_FOLDER:09d}"
    return f"index/{folder}/{_step_text(step)}_{_worker_text(worker, v1=True)}.json"


def v1_again_key(step: int, worker: str, attempt: int) -> str:
    """Return the key of an empty file that marks a replaced v1 index file.

    smdebug 1.0 ignores files that end in neither `.json` nor `.csv`.
    """
    return f"{v1_index_key(step, worker).removesuffix('.json')}-{attempt:06d}.again"


def v1_index_start(step: int) -> str:
    """Return a key that sorts before the index files of this and all later steps."""
    step = max(step, 0)
    return f"index/{step // _STEPS_PER_FOLDER:09d}/{_step_text(step)}"


def parse_index_key(key: str) -> IndexName | None:
    """Parse the name of an index file; return None if it is not one."""
    if match := _V2_INDEX.match(key):
        return IndexName(int(match[1]), int(match[2]), unquote(match[3]))
    if match := _V1_INDEX.match(key):
        return IndexName(int(match[1]), None, worker_from_text(match[2]))
    if match := _V1_AGAIN.match(key):
        return IndexName(int(match[1]), None, worker_from_text(match[2]), int(match[3]))
    return None


def parse_event_seq(key: str, worker: str) -> int | None:
    """Return the sequence number of a v2 event file of this worker, else None."""
    match = _V2_EVENTS.match(key)
    return int(match[2]) if match and unquote(match[3]) == worker else None


def parse_event_worker(key: str) -> str | None:
    """Return the worker that wrote an event file; None if the key is not that of an event file."""
    if match := _V2_EVENTS.match(key):
        return unquote(match[3])
    match = _V1_EVENTS.match(key)
    return worker_from_text(match[2]) if match else None


def event_format(key: str) -> str | None:
    """Return the format of an event file, "v1" or "v2"; None if it is not one."""
    if _V2_EVENTS.match(key):
        return "v2"
    return "v1" if _V1_EVENTS.match(key) else None


def v1_index_key_of(event_file: str) -> str | None:
    """Return the v1 index file of an event file; None if it is not of format v1."""
    match = _V1_EVENTS.match(event_file)
    if match is None or _V2_EVENTS.match(event_file):
        return None
    return f"index/{int(match[1]) // _STEPS_PER_FOLDER:09d}/{match[1]}_{match[2]}.json"


def is_event_file_of(event_file: str, v1_index: str) -> bool:
    """Whether a v1 index file may name an event file: that of its own step and worker."""
    stem = v1_index.rpartition("/")[2].removesuffix(".json")
    own = event_file.rpartition("/")[2].removesuffix(".tfevents")
    return own == stem or re.fullmatch(rf"{re.escape(stem)}-\d{{6,9}}", own) is not None


def parse_collections_worker(key: str) -> str | None:
    """Return the worker of a collections file; None if it is not one."""
    match = _COLLECTIONS.match(key)
    return worker_from_text(match[1]) if match else None


def _step_text(step: int) -> str:
    if not 0 <= step <= LAST_STEP:
        raise SMDebugValueError(f"step must lie between 0 and {LAST_STEP}, got {step}")
    return f"{step:012d}"


def _worker_text(worker: str, v1: bool = False) -> str:
    if not worker:
        raise SMDebugValueError("worker must be a name, got an empty string")
    if v1 and _DEVICE.match(worker):
        return worker.replace("/", "_").replace(":", "-")
    text = quote(worker, safe="")
    if v1:
        # smdebug 1.0 reads a leading underscore, and two in a row, as slashes of a device.
        text = re.sub("^_|(?<=_)_", "%5F", text)
    elif _V1_DEVICE.match(text):
        text = text.replace("_", "%5F", 1)
    if len(text) > _MAX_WORKER:
        raise SMDebugValueError(
            f"worker must be a name that fits into a file name, got {len(text)} bytes: {worker!r}"
        )
    return text


def worker_from_text(text: str) -> str:
    """Return the worker of a part of a file name."""
    if _V1_DEVICE.match(text):
        return text.replace("_", "/").replace("-", ":")
    return unquote(text)
