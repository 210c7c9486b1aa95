"""Collections file: that of smdebug 1.0, plus the worker, the run ID and a checksum.

The additions are in `_meta`, where smdebug 1.0 ignores them; its own files have none of them.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from smdebug.exceptions import IndexReaderException, SMDebugValueError
from smdebug.storage.format.checksum import add_json_checksum, check_json_checksum
from smdebug.storage.format.keys import parse_collections_worker
from smdebug.storage.untrusted.limits import json_object

if TYPE_CHECKING:
    from smdebug.storage.stores.base import Buffer

_META, _RUN, _WORKER, _SUM = "_meta", "run", "worker", "crc32c"
RUN_NAME = re.compile(r"[0-9a-f]{16}")


class CollectionsFile(NamedTuple):
    """Content of a collections file.

    Attributes:
        content: the collections and their metadata.
        run: the run ID, which the index files have, too; None in older files.
    """

    content: dict[str, Any]
    run: str | None


def encode_collections(text: str, worker: str, run: str | None) -> bytes:
    """Encode a collections file.

    Args:
        text: the collections, from `CollectionManager.to_json`.
        worker: the worker that writes it.
        run: the run ID.

    Raises:
        SMDebugValueError: the text is not a JSON object.
    """
    try:
        content = json.loads(text)
        meta = content.pop(_META, None) or {}
        own = {_WORKER: worker} if run is None else {_WORKER: worker, _RUN: run}
        others = {key: value for key, value in meta.items() if key not in (_WORKER, _RUN, _SUM)}
        # The metadata comes last, and the checksum last in it: it covers everything before.
        return add_json_checksum(json.dumps({**content, _META: {**others, **own}}), depth=2)
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise SMDebugValueError(f"collections must be a JSON object, got {text[:80]!r}") from error


def decode_collections(data: Buffer, key: str) -> CollectionsFile:
    """Parse a collections file; verify its checksum and worker if it has them.

    Raises:
        IndexReaderException: it is damaged, not a JSON object, or of another worker.
    """
    data = bytes(data)
    verified = check_json_checksum(data, key, depth=2)
    content = json_object(data, key)
    meta = content.get(_META)
    if not isinstance(meta, dict):
        return CollectionsFile(content, None)
    if not verified:
        if {_WORKER, _RUN, _SUM} & set(meta):
            raise IndexReaderException(f"{key}: the file's checksum is damaged")
        return CollectionsFile(content, None)
    worker, run = meta.get(_WORKER), meta.get(_RUN)
    if worker != parse_collections_worker(key):
        raise IndexReaderException(f"{key}: the file belongs to worker {worker!r}")
    content[_META] = {
        each: value for each, value in meta.items() if each not in (_WORKER, _RUN, _SUM)
    }
    named = isinstance(run, str) and RUN_NAME.fullmatch(run) is not None
    return CollectionsFile(content, run if named else None)
