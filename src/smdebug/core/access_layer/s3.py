"""`TSAccessS3` under the path of smdebug 1.0: an object that appears when it is closed."""

from __future__ import annotations

from smdebug.core.access_layer.base import TSAccessBase
from smdebug.storage.stores.object_store import ObjectStore

__all__ = ["TSAccessS3"]


class TSAccessS3(TSAccessBase):
    """Gathers an object and puts it to S3 when it is closed; or reads one.

    Args:
        bucket_name: the bucket.
        key_name: the object.
        aws_access_key_id: a key to use; as for every other access to S3 when None.
        aws_secret_access_key: what belongs to it.
        binary: whether bytes are written, not text.

    Example:
        >>> with TSAccessS3("bucket", "runs/x", binary=False) as file:  # doctest: +SKIP
        ...     file.write("abc")
    """

    def __init__(
        self,
        bucket_name: str,
        key_name: str,
        aws_access_key_id: str | None = None,
        aws_secret_access_key: str | None = None,
        binary: bool = True,
    ) -> None:
        super().__init__()
        self.bucket_name = bucket_name
        # S3 would keep them in the key, and the object would not be found again.
        self.key_name = "/".join(part for part in key_name.split("/") if part)
        self.binary = binary
        given = {"access_key_id": aws_access_key_id, "secret_access_key": aws_secret_access_key}
        options = {name: value for name, value in given.items() if value is not None}
        self._store = ObjectStore(f"s3://{bucket_name}", **options)
        self._chunks: list[bytes] = []

    def write(self, _data: bytes | str) -> list[int]:
        """Add data, and returns where in the object it stands and how many bytes it is."""
        data = _data.encode() if isinstance(_data, str) else bytes(_data)
        start = self._position
        self._chunks.append(data)
        self._position += len(data)
        return [start, len(data)]

    def flush(self) -> None:
        """Do nothing: an object is put whole, by `close`."""

    def close(self) -> None:
        """Put the object, if anything was written; a second call does nothing."""
        if not self._closed and self._chunks:
            self._store.write(self.key_name, self._chunks)
        self._closed = True

    def _load(self) -> bytes:
        return bytes(self._store.read(self.key_name))

    def __enter__(self) -> TSAccessS3:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        if kind is None:
            self.close()
