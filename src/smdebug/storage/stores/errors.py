"""Errors of object stores, converted to short messages without credentials."""

from __future__ import annotations

import re

from smdebug.addresses import without_secrets
from smdebug.exceptions import StoreError

_AWS_KEYS = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE where boto3 is installed"
# Where obstore asks for credentials when there are none: the machine's metadata service.
_MACHINE = "169.254.169.254"
_WRONG_REGION = ("redirect without LOCATION", "PermanentRedirect", "is wrong; expecting")
# The codes of S3 and Google, and of Azure.
_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound")
_DENIED = ("PermissionDeniedError", "UnauthenticatedError")
_DENIED_CODES = (
    "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken",
)  # fmt: skip


# A session token, a signature, an access key: a server may repeat what it was sent.
_TOKEN = re.compile(r"(?=[A-Za-z+/=_%-]*\d)[A-Za-z0-9+/=_%-]{16,}")


def translate_error(url: str, error: Exception) -> StoreError:
    """Convert an error of obstore.

    obstore's message is pages long, and the response in it may repeat an access key.

    Args:
        url: the store, as the user named it.
        error: what obstore raised.
    """
    full = str(error)
    code, reason = _code(full), _reason(full)
    if code in _NO_BUCKET:
        return StoreError(
            f"expected a bucket that exists, got {url}: {reason}; create the bucket, or "
            "correct its name or the endpoint", code="NoSuchBucket", refused=True,
        )  # fmt: skip
    if _MACHINE in full.partition("\n")[0]:
        return StoreError(
            f"no credentials were found for {url}; set {_keys(url)}", code=code, refused=True
        )
    if is_wrong_region(error):
        return StoreError(
            f"{url} is in another region than the one that was asked: {reason}; set AWS_REGION to "
            "the region of the bucket", code=code, refused=True,
        )  # fmt: skip
    denied = type(error).__name__ in _DENIED or re.search(r"status code: 40[13]\b", reason)
    if denied or code in _DENIED_CODES:
        return StoreError(
            f"{url} may not be used with the credentials that were found: {reason}; check "
            f"{_keys(url)}, and the right to list, read, write and delete there",
            code=code, refused=True,
        )  # fmt: skip
    return StoreError(
        f"{url} does not do what it was asked: {reason}; check the URL, the endpoint and the "
        "network", code=code,
    )  # fmt: skip


def translate_panic(url: str, error: BaseException) -> StoreError:
    """Convert a panic of obstore, such as that of a key that no HTTP header can hold."""
    return StoreError(
        f"{url} cannot be asked: {without_secrets(str(error).partition(chr(10))[0])}; check "
        f"{_keys(url)} for line ends and other characters that do not belong there",
        refused=True,
    )


def is_wrong_region(error: Exception) -> bool:
    """Whether an error means that a bucket is in another region."""
    return any(mark in str(error) for mark in _WRONG_REGION)


def asked_url(error: Exception) -> str | None:
    """Return the URL of the request, without its query, if the error has it."""
    match = re.search(r"https?://[^\s?]+", str(error))
    return None if match is None else match[0]


def _keys(url: str) -> str:
    return _AWS_KEYS if url.startswith("s3") else "the variables with credentials for it"


def _code(text: str) -> str | None:
    match = re.search(r"<Code>(\w+)</Code>", text)
    return None if match is None else match[1]


def _reason(text: str) -> str:
    """Return what went wrong: of an XML response only its code and its message."""
    head, _, details = text.partition("\n\nDebug source")
    answer = re.search(r"<Code>(\w+)</Code>(?:.*?<Message>([^<]*)</Message>)?", head, re.DOTALL)
    if answer is not None:
        return ": ".join(_TOKEN.sub("...", part) for part in answer.groups() if part)
    # Without what follows the URL, which may be a signature, and without any body.
    line = re.sub(r"\?\S*", "", without_secrets(head.partition("\n")[0].partition("<")[0]))
    line = re.sub(r"(status code: \d+ [A-Za-z' -]+):.*", r"\1", line)
    line = re.sub(r", max_retries: \d+, retry_timeout: \w+ *", "", line)
    line = line.rpartition("Error performing ")[2].strip(" :")
    # The error of the operating system is in the details only.
    cause = re.search(r'kind: \w+,\s+(?:message|error): "([^"]*)"', details)
    if cause is None and "TimedOut" in details:
        return f"{line}: no answer in time"
    return line if cause is None else f"{line}: {cause[1]}"
