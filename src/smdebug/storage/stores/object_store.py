"""A run in an object store, through obstore."""

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

# The process in which obstore's threads run: a fork has none of them, and would wait for ever.
_process: int | None = None


class ObjectStore:
    """A `Store` over an S3, Google Cloud Storage or Azure URL.

    Credentials come from the environment, as obstore reads it. For S3, when boto3 is installed,
    its chain is used, so profiles and single sign-on work as they do elsewhere.

    The first answer must come within seconds; later ones may take a minute. What fails is tried
    again by obstore for some seconds; who has to get through an outage takes a `RetryingStore`.

    Example:
        >>> store = ObjectStore("s3://bucket/runs/one")  # doctest: +SKIP
    """

    # Round trips, not bandwidth, bound many small reads.
    parallel = 16
    remote = True

    def __init__(self, url: str, **options: Any) -> None:
        """Opens a URL; `options` go to `obstore.store.from_url` (endpoint, region, ...)."""
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
            # A range that starts behind the end is an error of HTTP; here it is an empty slice.
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
            # An object appears whole, whether it goes up at once or, when large, in parts.
            self._ask(lambda bucket: obstore.put(bucket, key, content))
        except FileNotFoundError as error:
            # Parts that are gone: what became of the object is not known.
            raise translate_error(self.url, error) from None

    def list(self, prefix: str = "", after: str = "") -> Iterator[str]:
        import obstore

        # Object stores list by whole folders; what is finer is sorted out here.
        folder = check_prefix(prefix)

        def paths(bucket: Bucket) -> list[str]:
            batches = obstore.list(bucket, folder or None, offset=after or None)
            return [item["path"] for batch in batches for item in batch]

        keys = self._ask(paths)
        return iter(sorted(key for key in keys if key.startswith(prefix) and key > after))

    def entries(self) -> Iterator[tuple[str, int, float]]:
        """Yields key, size in bytes and time of writing of everything there is."""
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
        """Asks the bucket something.

        Raises:
            FileNotFoundError: what was asked for is not there, but the bucket is.
            StoreError: there was no answer, or another one than expected.
        """
        import obstore

        _require_own_threads(self.url)
        try:
            answer = ask(self._bucket)
        except (obstore.exceptions.BaseError, FileNotFoundError) as error:
            if not self._answered and self._moves(error):
                return self._ask(ask)
            said = translate_error(self.url, error)
            if isinstance(error, FileNotFoundError) and said.code != "NoSuchBucket":
                raise
            # Not chained: obstore repeats what the store said, keys included.
            raise said from None
        except BaseException as error:
            if type(error).__name__ != "PanicException":
                raise
            # No `Exception`: it would end the thread that asks, and with it the job.
            raise translate_panic(self.url, error) from None
        if not self._answered:
            self._bucket = open_bucket(self.url, self._options, LATER)
            self._answered = True
        return answer

    def _moves(self, error: Exception) -> bool:
        """Goes to the region the bucket is in, if that is why it did not answer."""
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
            "object store: obstore has threads, which a fork leaves behind; start processes with "
            "multiprocessing.get_context('spawn'), or use object stores in them only"
        )
