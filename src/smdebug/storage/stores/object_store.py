"""Store in an object store, through obstore."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, TypeVar

from smdebug.addresses import checked_address
from smdebug.exceptions import SMDebugRuntimeError, StoreError
from smdebug.storage.stores.base import Buffer, check_key, check_prefix
from smdebug.storage.stores.bucket import (
    FIRST,
    LATER,
    boto3_options,
    open_bucket,
    region_of,
)
from smdebug.storage.stores.errors import (
    asked_url,
    is_wrong_region,
    translate_error,
    translate_panic,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from obstore.store import ObjectStore as Bucket

_Answer = TypeVar("_Answer")

# The process in which obstore's threads run: a fork has none of them and would wait forever.
_process: int | None = None


class ObjectStore:
    """A `Store` over an S3, Google Cloud Storage or Azure URL.

    Credentials come from the environment, as obstore reads it. For S3, when boto3 is installed,
    its credential chain is used, so profiles and single sign-on work.

    The first response must come within seconds; later ones may take a minute. obstore retries for
    some seconds; use a `RetryingStore` to survive an outage.

    Example:
        >>> store = ObjectStore("s3://bucket/runs/one")  # doctest: +SKIP
    """

    # Many small reads are bound by round trips, not by bandwidth.
    parallel = 16
    remote = True

    def __init__(self, url: str, **options: Any) -> None:
        """Open a URL; `options` go to `obstore.store.from_url` (endpoint, region, ...)."""
        self.url = checked_address(url).rstrip("/")
        self._options = options or boto3_options(self.url)
        self._bucket = open_bucket(self.url, self._options, FIRST)
        self._answered = False

    def read(self, key: str, start: int = 0, length: int | None = None) -> memoryview:
        import obstore

        check_key(key)
        if length == 0:
            self._size(key)  # a missing key is an error in every form
            return memoryview(b"")
        wanted: Any = {"suffix": -start} if start < 0 else {"offset": start}
        if start >= 0 and length is not None:
            wanted = (start, start + length)
        options: Any = {"range": wanted} if start or length is not None else None
        try:
            data = self._ask(lambda bucket: obstore.get(bucket, key, options=options).bytes())
        except FileNotFoundError:
            raise KeyError(key) from None
        except StoreError:
            # A range that starts after the end is an HTTP error; here it is an empty slice.
            if options is None:
                raise
            size = self._size(key)
            if start < size if start >= 0 else size:
                raise
            return memoryview(b"")
        view = memoryview(data).cast("B").toreadonly()
        return view if length is None else view[:length]

    def write(self, key: str, chunks: Iterable[Buffer]) -> None:
        import obstore

        check_key(key)
        content = b"".join(chunks)
        try:
            # An object becomes visible as a whole, also when it is uploaded in parts.
            self._ask(lambda bucket: obstore.put(bucket, key, content))
        except FileNotFoundError as error:
            # Parts are gone: the state of the object is unknown.
            raise translate_error(self.url, error) from None

    def list(self, prefix: str = "", after: str = "") -> Iterator[str]:
        import obstore

        # Object stores list whole folders; finer prefixes are filtered here.
        folder = check_prefix(prefix)

        def paths(bucket: Bucket) -> list[str]:
            batches = obstore.list(bucket, folder or None, offset=after or None)
            return [item["path"] for batch in batches for item in batch]

        keys = self._ask(paths)
        return iter(sorted(key for key in keys if key.startswith(prefix) and key > after))

    def entries(self) -> Iterator[tuple[str, int, float]]:
        """Yield key, size in bytes and time of writing of every object."""
        import obstore

        def found(bucket: Bucket) -> list[tuple[str, int, float]]:
            return [
                (item["path"], item["size"], item["last_modified"].timestamp())
                for batch in obstore.list(bucket)
                for item in batch
            ]

        return iter(self._ask(found))

    def delete(self, key: str) -> None:
        import obstore

        check_key(key)
        try:
            self._ask(lambda bucket: obstore.delete(bucket, key))
        except FileNotFoundError:
            return

    def _size(self, key: str) -> int:
        import obstore

        try:
            return int(self._ask(lambda bucket: obstore.head(bucket, key)["size"]))
        except FileNotFoundError:
            raise KeyError(key) from None

    def exists(self) -> bool:
        try:
            self.first()
        except StoreError as error:
            if error.code == "NoSuchBucket":
                return False
            raise
        return True

    def first(self) -> str | None:
        import obstore

        def path(bucket: Bucket) -> str | None:
            for batch in obstore.list(bucket, chunk_size=1):
                for item in batch:
                    return str(item["path"])
            return None

        return self._ask(path)

    def path(self, key: str) -> str | None:
        return None

    def _ask(self, ask: Callable[[Bucket], _Answer]) -> _Answer:
        """Send a request.

        Raises:
            FileNotFoundError: the object is missing, but not the bucket.
            StoreError: there was no response, or an error.
        """
        import obstore

        _require_own_threads(self.url)
        try:
            answer = ask(self._bucket)
        except (obstore.exceptions.BaseError, FileNotFoundError) as error:
            if not self._answered and self._moves(error):
                return self._ask(ask)
            translated = translate_error(self.url, error)
            if isinstance(error, FileNotFoundError) and translated.code != "NoSuchBucket":
                raise
            # Not chained: obstore repeats the response, keys included.
            raise translated from None
        except BaseException as error:
            if type(error).__name__ != "PanicException":
                raise
            # Not an `Exception`: it would end the calling thread, and with it the job.
            raise translate_panic(self.url, error) from None
        if not self._answered:
            self._bucket = open_bucket(self.url, self._options, LATER)
            self._answered = True
        return answer

    def _moves(self, error: Exception) -> bool:
        """Reopen the bucket in its own region, if that is why the request failed."""
        asked = asked_url(error)
        if asked is None or not is_wrong_region(error):
            return False
        region = region_of(asked)
        if region is None or region == self._options.get("region"):
            return False
        self._options = {**self._options, "region": region}
        self._bucket = open_bucket(self.url, self._options, FIRST)
        return True


def _require_own_threads(url: str) -> None:
    global _process
    _process = _process or os.getpid()
    if _process != os.getpid():
        raise SMDebugRuntimeError(
            f"{url} cannot be used in a process that was forked after its parent had used an "
            "object store: obstore has threads, which a fork does not copy; start processes with "
            "multiprocessing.get_context('spawn'), or use object stores in them only"
        )
