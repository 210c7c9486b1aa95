"""Posting findings to a web address."""

from __future__ import annotations

import base64
import json
import math
import numbers
import re
import urllib.request
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from smdebug._version import __version__
from smdebug.config import validation
from smdebug.exceptions import SMDebugValueError
from smdebug.rules.action.base import DEFAULT_MIN_INTERVAL, Action, told_with

if TYPE_CHECKING:
    from smdebug.storage.findings import Finding

DEFAULT_TIMEOUT = 5.0
_SHORTEST_TIMEOUT, _LONGEST_TIMEOUT = 0.1, 300.0
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


class WebhookAction(Action):
    """Posts a finding as JSON: its fields, `text` for chat tools to show, and `left_out`.

    Redirects are not followed: they could lead elsewhere with what is in the headers.

    Args:
        rule_name: the rule whose findings are posted.
        endpoint: an http or https address; `user:password@` in it becomes an `Authorization`.
        timeout: how long the other side may take, in seconds.
        headers: further headers.
        min_interval: the least time between two posts, in seconds.

    Raises:
        SMDebugValueError: a value makes no sense. The address and the headers are secrets, and not
            in the message.

    Example:
        >>> WebhookAction("VanishingGradient", "https://hooks.example.org/services/secret")
        WebhookAction(https://hooks.example.org/...)
    """

    def __init__(
        self,
        rule_name: str,
        endpoint: Any,
        timeout: Any = DEFAULT_TIMEOUT,
        headers: Any = None,
        min_interval: Any = DEFAULT_MIN_INTERVAL,
    ) -> None:
        super().__init__(rule_name, validation.seconds("min_interval", min_interval))
        self.timeout = validation.number("timeout", timeout, _SHORTEST_TIMEOUT, _LONGEST_TIMEOUT)
        parts = _checked_address(endpoint)
        host = parts.netloc.rpartition("@")[2]
        self._url = urlunsplit((parts.scheme, host, parts.path or "/", parts.query, ""))
        self._shown = f"{parts.scheme}://{host}/..."
        self._headers = {
            "Content-type": "application/json",
            "User-agent": f"tornasole/{__version__}",
            **_authorization(parts),
            **_checked_headers(headers),
        }

    @property
    def target(self) -> str:
        return self._shown

    def _act(self, finding: Finding, left_out: int) -> None:
        body = json.dumps(payload(finding, left_out), allow_nan=False).encode()
        request = urllib.request.Request(self._url, body, self._headers, method="POST")
        try:
            with _opener().open(request, timeout=self.timeout):
                # That it was taken is all we want to know.
                pass
        except HTTPError as error:
            error.close()
            raise


def payload(finding: Finding, left_out: int = 0) -> dict[str, Any]:
    """What is posted of a finding; numbers that JSON does not have are strings.

    Example:
        >>> from smdebug.storage.findings import Finding
        >>> posted = payload(Finding("NonFinite", 7, "loss is inf", value=float("inf")))
        >>> posted["value"], posted["text"]
        ('Infinity', 'NonFinite, step 7: loss is inf')
    """
    fields = {name: _plain(value) for name, value in finding.to_dict().items()}
    return {**fields, "left_out": left_out, "text": told_with(str(finding), left_out)}


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        number = float(value)
        if math.isnan(number):
            return "NaN"
        return number if math.isfinite(number) else f"{'-'[: number < 0]}Infinity"
    return str(value)


def _opener() -> urllib.request.OpenerDirector:
    """Knows http, https and the proxies of the system; no files, no ftp, no redirects."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.UnknownHandler(),
    ):
        opener.add_handler(handler)
    return opener


def _checked_address(endpoint: Any) -> SplitResult:
    """Takes an address apart; errors chain nothing, as those of urllib repeat it."""
    if not isinstance(endpoint, str) or not endpoint.strip():
        raise SMDebugValueError(f"endpoint must be a text, got a {type(endpoint).__name__}")
    address = endpoint.strip()
    scheme, marked, _ = address.partition("://")
    if not marked or scheme.lower() not in ("http", "https"):
        got = f"one with {scheme}://" if marked and scheme.isalnum() else "one without a scheme"
        raise SMDebugValueError(f"endpoint must be an http:// or https:// address, got {got}")
    if not address.isascii() or any(char <= " " or char == "\x7f" for char in address):
        raise SMDebugValueError(
            "endpoint must hold no spaces and no letters beyond ASCII; write them as %XX"
        )
    try:
        parts = urlsplit(address)
        usable = bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise SMDebugValueError("endpoint must be an address with a host and, at most, a port")
    return parts


def _authorization(parts: SplitResult) -> dict[str, str]:
    if not parts.username and not parts.password:
        return {}
    pair = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    return {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}


def _checked_headers(headers: Any) -> dict[str, str]:
    if headers is None:
        return {}
    if not isinstance(headers, Mapping):
        raise SMDebugValueError(
            f"headers must be an object of names and texts, got a {type(headers).__name__}"
        )
    for name, value in headers.items():
        if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name):
            raise SMDebugValueError("headers must have names of letters, digits and dashes")
        if not isinstance(value, str) or not value.isascii() or not value.isprintable():
            raise SMDebugValueError(
                f"headers must have texts of one line as values; {name} has not"
            )
    # As urllib spells them: one of the user's replaces one of ours.
    return {name.capitalize(): value for name, value in headers.items()}
