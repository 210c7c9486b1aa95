"""URLs that people see: in logs, in errors, in the files of a run. None holds a secret."""

from __future__ import annotations

import re

from smdebug.exceptions import SMDebugValueError

# A user and a password stand before the host; a signature or a token, behind a question mark.
_BEFORE_HOST = re.compile(r"(://)[^/?#\s]*@")
_BEHIND_PATH = re.compile(r"(://[^\s?#]*)[?#]\S*")
# There it is the name of a container: abfss://container@account.dfs.core.windows.net/path.
_CONTAINER = re.compile(r"abfss?://[^/?#:@]*@[^/?#@]*", re.IGNORECASE)
_LOCAL = re.compile(r"file://", re.IGNORECASE)


def without_secrets(text: str) -> str:
    """Returns a text in which URLs have no user, no password and nothing behind their path.

    Example:
        >>> without_secrets("GET http://me:password@host/key?X-Amz-Signature=1a2b failed")
        'GET http://...@host/key?... failed'
    """
    return _BEHIND_PATH.sub(r"\1?...", _BEFORE_HOST.sub(r"\1...@", text))


def checked_address(address: str) -> str:
    """Returns what may be a URL, as it is.

    Raises:
        SMDebugValueError: there are credentials in it, or something that may be some: everybody
            would see them.

    Example:
        >>> checked_address("s3://bucket/run")
        's3://bucket/run'
    """
    # In the name of a file a question mark is one.
    shown = _BEFORE_HOST.sub(r"\1...@", address) if _LOCAL.match(address) else (
        without_secrets(address)
    )  # fmt: skip
    if _CONTAINER.match(address):
        shown = shown.replace("...@", f"{address.partition('://')[2].partition('@')[0]}@", 1)
    if shown != address:
        raise SMDebugValueError(
            f"expected a URL without credentials, got {shown}, which has some, or a part behind "
            "? or # that may be some, and is shown in logs; give them in environment variables "
            "such as AWS_ACCESS_KEY_ID"
        )
    return address
