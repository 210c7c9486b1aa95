"""A run in an object store, through obstore."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from smdebug.exceptions import SMDebugRuntimeError, SMDebugValueError
from smdebug.storage.store import Buffer, check_key, check_prefix

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from obstore.store import ObjectStore as Bucket


class ObjectStore:
    """A `Store` over an S3, Google Cloud Storage or Azure URL.

    Credentials come from the environment, as obstore reads it. For S3, when boto3 is installed,
    its chain is used, so profiles and single sign-on work as they do elsewhere.

    Example:
        >>> store = ObjectStore("s3://bucket/runs/one")  # doctest: +SKIP
    """

    # Round trips, not bandwidth, bound many small reads.
    parallel = 16
    remote = True

    def __init__(self, url: str, **options: Any) -> None:
        """Opens a URL; `options` go to `obstore.store.from_url` (endpoint, region, ...)."""
        self.url = url.rstrip("/")
        self._bucket = _open_bucket(self.url, options)

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
            data = obstore.get(self._bucket, key, options=options).bytes()
        except FileNotFoundError:
            raise KeyError(key) from None
        except obstore.exceptions.GenericError:
            # A range that starts behind the end is an error of HTTP; here it is an empty slice.
            size = self._size(key)
            if options is None or (start < size if start >= 0 else size):
                raise
            return memoryview(b"")
        view = memoryview(data).cast("B").toreadonly()
        return view if length is None else view[:length]

    def write(self, key: str, chunks: Iterable[Buffer]) -> None:
        import obstore

        # An object appears whole, whether it goes up at once or, when large, in parts.
        obstore.put(self._bucket, check_key(key), b"".join(chunks))

    def list(self, prefix: str = "", after: str = "") -> Iterator[str]:
        import obstore

        # Object stores list by whole folders; what is finer is sorted out here.
        folder = check_prefix(prefix)
        keys: list[str] = []
        for batch in obstore.list(self._bucket, folder or None, offset=after or None):
            keys += [item["path"] for item in batch]
        return iter(sorted(key for key in keys if key.startswith(prefix) and key > after))

    def delete(self, key: str) -> None:
        import obstore

        try:
            obstore.delete(self._bucket, check_key(key))
        except FileNotFoundError:
            return

    def _size(self, key: str) -> int:
        import obstore

        try:
            return int(obstore.head(self._bucket, key)["size"])
        except FileNotFoundError:
            raise KeyError(key) from None

    def exists(self) -> bool:
        import obstore

        try:
            for _ in obstore.list(self._bucket, chunk_size=1):
                break
        except (FileNotFoundError, obstore.exceptions.GenericError) as error:
            # obstore has no class of its own for a missing bucket.
            if "NoSuchBucket" in str(error) or isinstance(error, FileNotFoundError):
                return False
            raise
        return True

    def first(self) -> str | None:
        import obstore

        for batch in obstore.list(self._bucket, chunk_size=1):
            for item in batch:
                return str(item["path"])
        return None

    def path(self, key: str) -> str | None:
        return None


def _open_bucket(url: str, options: dict[str, Any]) -> Bucket:
    try:
        from obstore.store import from_url
    except ImportError as error:
        raise SMDebugRuntimeError(
            f"{url} needs the package obstore: pip install 'tornasole[cloud]'"
        ) from error
    if url.startswith(("s3://", "s3a://")) and not options:
        options = _boto3_credentials()
    try:
        return from_url(url, **options)
    except Exception as error:
        # obstore says what is wrong with a URL through errors of several unrelated kinds.
        raise SMDebugValueError(
            f"expected a URL such as s3://bucket/prefix, got {url!r}: {error}"
        ) from error


def _boto3_credentials() -> dict[str, Any]:
    """Returns obstore options that ask boto3 for credentials, when boto3 is there and has some."""
    try:
        import boto3
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError:
        return {}
    session = boto3.session.Session()
    if session.get_credentials() is None:
        return {}
    options: dict[str, Any] = {"credential_provider": Boto3CredentialProvider(session)}
    if session.region_name:
        options["region"] = session.region_name
    return options
