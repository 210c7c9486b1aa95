"""A collections file: what smdebug 1.0 writes, and of whom it is, under a checksum.

What is ours stands in `_meta`, where the original passes over it; its own files have none of it.
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
    """What a collections file says.

    Attributes:
        content: the collections and their metadata.
        run: the name of the run, which its index files carry too; None in older files.
    """

    content: dict[str, Any]
    run: str | None


def encode_collections(text: str, worker: str, run: str | None) -> bytes:
    """Makes a collections file of what a hook says.

    Args:
        text: the collections as `CollectionManager.to_json` gives them.
        worker: who writes it.
        run: the name of the run.

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
    """Reads a collections file, its checksum and whose it is verified where it says them.

    Raises:
        IndexReaderException: it is damaged, not a JSON object, or that of another worker.
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
        raise IndexReaderException(f"{key}: the file is that of worker {worker!r}")
    content[_META] = {
        each: value for each, value in meta.items() if each not in (_WORKER, _RUN, _SUM)
    }
    named = isinstance(run, str) and RUN_NAME.fullmatch(run) is not None
    return CollectionsFile(content, run if named else None)
