"""`S3Handler` under the path of smdebug 1.0: listing, reading and deleting objects in S3."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from smdebug.core.utils import is_s3
from smdebug.exceptions import SMDebugValueError
from smdebug.storage.stores.base import open_store

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["DeleteRequest", "ListRequest", "ReadObjectRequest", "S3Handler"]

_SIDE_BY_SIDE = 16


@dataclass(frozen=True)
class ListRequest:
    """What to list: the keys that begin with `Prefix` and sort after `StartAfter`.

    With a `Delimiter`, what follows it is left off, and each beginning is listed once.
    """

    Bucket: str
    Prefix: str = ""
    Delimiter: str = ""
    StartAfter: str = ""


@dataclass(frozen=True)
class ReadObjectRequest:
    """What to read: an object, or `length` bytes of it from `start` on."""

    path: str
    start: int | None = None
    length: int | None = None


@dataclass(frozen=True)
class DeleteRequest:
    """What to delete: all objects whose keys begin with `Prefix`."""

    Bucket: str
    Prefix: str = ""


class S3Handler:
    """Functions on objects in S3.

    Example:
        >>> keys = S3Handler.list_prefix(ListRequest("bucket", "runs/"))  # doctest: +SKIP
    """

    @staticmethod
    def list_prefix(lr: ListRequest) -> list[str]:
        """Return the keys that a request is about, sorted."""
        keys = open_store(f"s3://{lr.Bucket}").list(lr.Prefix, lr.StartAfter)
        if not lr.Delimiter:
            return list(keys)
        return list(dict.fromkeys(_cut(key, lr) for key in keys))

    @staticmethod
    def list_prefixes(list_requests: Iterable[ListRequest]) -> list[list[str]]:
        """Return the keys of each request."""
        return [S3Handler.list_prefix(request) for request in list_requests]

    @staticmethod
    def get_object(object_request: ReadObjectRequest) -> bytes | None:
        """Return the bytes of an object, or of a piece of it; None when there is none."""
        bucket, key = _parts(object_request.path)
        start = object_request.start or 0
        try:
            return bytes(open_store(f"s3://{bucket}").read(key, start, object_request.length))
        except KeyError:
            return None

    @staticmethod
    def get_objects(
        object_requests: Iterable[ReadObjectRequest],
        use_multiprocessing: bool = True,
        n_process: int | None = None,
    ) -> list[bytes | None]:
        """Return what `get_object` does, for many requests.

        Args:
            object_requests: the requests.
            use_multiprocessing: read several side by side: on threads, which is all it takes.
            n_process: how many.
        """
        workers = (n_process or _SIDE_BY_SIDE) if use_multiprocessing else 1
        with ThreadPoolExecutor(max_workers=workers) as pool:
            return list(pool.map(S3Handler.get_object, object_requests))

    @staticmethod
    def delete_prefix(path: str | None = None, delete_request: DeleteRequest | None = None) -> None:
        """Delete all objects whose keys begin with a path, or that a request is about."""
        if (path is None) == (delete_request is None):
            raise SMDebugValueError("expected either a path or a delete_request, not both")
        if path is not None:
            delete_request = DeleteRequest(*_parts(path))
        assert delete_request is not None
        store = open_store(f"s3://{delete_request.Bucket}")
        for key in list(store.list(delete_request.Prefix)):
            store.delete(key)

    @staticmethod
    def delete_prefixes(delete_requests: Iterable[DeleteRequest]) -> None:
        """Do what `delete_prefix` does, for many requests."""
        for request in delete_requests:
            S3Handler.delete_prefix(delete_request=request)


def _parts(path: str) -> tuple[str, str]:
    found, bucket, key = is_s3(path)
    if not found or bucket is None or key is None:
        raise SMDebugValueError(f"path must be like s3://bucket/key, got {path!r}")
    return bucket, key


def _cut(key: str, request: ListRequest) -> str:
    end = key.find(request.Delimiter, len(request.Prefix))
    return key if end < 0 else key[: end + len(request.Delimiter)]
