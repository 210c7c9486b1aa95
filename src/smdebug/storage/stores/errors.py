"""What an object store says when it fails, in words for a person, and without anybody's keys."""

from __future__ import annotations

import re

from smdebug.addresses import without_secrets
from smdebug.exceptions import StoreError

_AWS_KEYS = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE where boto3 is installed"
# Where obstore looks for credentials when there are none: the machine's own.
_MACHINE = "169.254.169.254"
_ELSEWHERE = ("redirect without LOCATION", "PermanentRedirect", "is wrong; expecting")
# What S3 and Google, and what Azure calls it.
_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound")
_DENIED = ("PermissionDeniedError", "UnauthenticatedError")
_DENIED_CODES = (
    "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken",
)  # fmt: skip


# A session token, a signature, an access key: a server may repeat what it was sent.
_TOKEN = re.compile(r"(?=[A-Za-z+/=_%-]*\d)[A-Za-z0-9+/=_%-]{16,}")


def translate_error(url: str, error: Exception) -> StoreError:
    """Turns an error of obstore into one of ours.

    obstore's own text is pages long, and the answer of a store in it may repeat an access key.

    Args:
        url: the store, as the user named it.
        error: what obstore raised.
    """
    full = str(error)
    code, said = _code(full), _said(full)
    if code in _NO_BUCKET:
        return StoreError(
            f"expected a bucket that exists, got {url}: {said}; create the bucket, or correct its "
            "name or the endpoint", code="NoSuchBucket", refused=True,
        )  # fmt: skip
    if _MACHINE in full.partition("\n")[0]:
        return StoreError(
            f"no credentials were found for {url}; set {_keys(url)}", code=code, refused=True
        )
    if is_wrong_region(error):
        return StoreError(
            f"{url} is in another region than the one that was asked: {said}; set AWS_REGION to "
            "the region of the bucket", code=code, refused=True,
        )  # fmt: skip
    denied = type(error).__name__ in _DENIED or re.search(r"status code: 40[13]\b", said)
    if denied or code in _DENIED_CODES:
        return StoreError(
            f"{url} may not be used with the credentials that were found: {said}; check "
            f"{_keys(url)}, and the right to list, read, write and delete there",
            code=code, refused=True,
        )  # fmt: skip
    return StoreError(
        f"{url} does not do what it was asked: {said}; check the URL, the endpoint and the "
        "network", code=code,
    )  # fmt: skip


def translate_panic(url: str, error: BaseException) -> StoreError:
    """Turns a panic of obstore into an error; one is a key that no HTTP header can hold."""
    return StoreError(
        f"{url} cannot be asked: {without_secrets(str(error).partition(chr(10))[0])}; check "
        f"{_keys(url)} for line ends and other characters that do not belong there",
        refused=True,
    )


def is_wrong_region(error: Exception) -> bool:
    """Whether an error says that a bucket is in another region."""
    return any(mark in str(error) for mark in _ELSEWHERE)


def asked_url(error: Exception) -> str | None:
    """The URL that was asked, without the question, if an error names it."""
    match = re.search(r"https?://[^\s?]+", str(error))
    return None if match is None else match[0]


def _keys(url: str) -> str:
    return _AWS_KEYS if url.startswith("s3") else "the variables with credentials for it"


def _code(text: str) -> str | None:
    match = re.search(r"<Code>(\w+)</Code>", text)
    return None if match is None else match[1]


def _said(text: str) -> str:
    """What went wrong: of an answer in XML its code and its message, and nothing else of it."""
    head, _, details = text.partition("\n\nDebug source")
    answer = re.search(r"<Code>(\w+)</Code>(?:.*?<Message>([^<]*)</Message>)?", head, re.DOTALL)
    if answer is not None:
        return ": ".join(_TOKEN.sub("...", part) for part in answer.groups() if part)
    # Without what follows the URL, which may be a signature, and without any body.
    line = re.sub(r"\?\S*", "", without_secrets(head.partition("\n")[0].partition("<")[0]))
    line = re.sub(r"(status code: \d+ [A-Za-z' -]+):.*", r"\1", line)
    line = re.sub(r", max_retries: \d+, retry_timeout: \w+ *", "", line)
    line = line.rpartition("Error performing ")[2].strip(" :")
    # The reason of the operating system stands in the details only.
    reason = re.search(r'kind: \w+,\s+(?:message|error): "([^"]*)"', details)
    if reason is None and "TimedOut" in details:
        return f"{line}: no answer in time"
    return line if reason is None else f"{line}: {reason[1]}"
