"""Saying what failed, or what was given, without giving away an address or a credential."""

from __future__ import annotations

import http.client
import re
from urllib.error import HTTPError, URLError

from smdebug.config import validation

# Where an address or a secret may begin; chat tools put theirs into the path of the address.
_SECRET = re.compile(r"headers|endpoint|url|:\\*/|[^\s\"'\[({]+@", re.IGNORECASE)


def reason(error: BaseException) -> str:
    """Why something failed.

    Texts of errors repeat headers, addresses and signed requests; only what is known to be free of
    them is taken.

    Example:
        >>> reason(URLError(ConnectionRefusedError(111, "Connection refused")))
        'Connection refused'
        >>> reason(ValueError("Invalid header value b'my password'"))
        'ValueError'
    """
    if isinstance(error, HTTPError):
        meaning = http.client.responses.get(error.code, "unknown")
        redirect = "; redirects are not followed" if 300 <= error.code < 400 else ""
        return f"the answer was {error.code} {meaning}{redirect}"
    if isinstance(error, URLError) and isinstance(error.reason, BaseException):
        return reason(error.reason)
    # An error that AWS answered with, as botocore gives it.
    response = getattr(error, "response", None)
    if isinstance(response, dict) and "Error" in response:
        code = response["Error"].get("Code", "an error")
        return f"AWS answered {code} to {getattr(error, 'operation_name', 'the request')}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return type(error).__name__


def shown_contact(address: str) -> str:
    """An e-mail address or a number as its owner knows it again, and nobody else.

    Example:
        >>> shown_contact("me@example.org"), shown_contact("+15550100")
        ('m...@example.org', '...00')
    """
    name, at, host = address.rpartition("@")
    return f"{name[:1]}...@{host}" if at else f"...{address[-2:]}"


def without_secrets(given: object) -> str:
    """Returns what was given, up to where an address or headers may begin.

    Example:
        >>> print(without_secrets('{"name": "webhook", "url": "https://example.org/token'))
        '{"name": "webhook", "...'
    """
    text = given if isinstance(given, str) else repr(given)
    found = _SECRET.search(text)
    text = f"{text[: found.start()]}..." if found else text
    return validation.short_repr(text) if isinstance(given, str) else text
