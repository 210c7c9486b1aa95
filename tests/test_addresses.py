"""URLs that people see."""

from __future__ import annotations

import pytest

from smdebug.addresses import checked_address, without_secrets
from smdebug.exceptions import SMDebugValueError


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("nothing to hide, a@b?c=d", "nothing to hide, a@b?c=d"),
        ("s3://bucket/run", "s3://bucket/run"),
        ("GET http://u:p@h:80/k?sig=1#x failed", "GET http://...@h:80/k?... failed"),
        ("http://u:p@q@h/a@b", "http://...@h/a@b"),
        ("(https://h/x?a=b, https://u@h)", "(https://h/x?... https://...@h)"),
    ],
)
def test_what_is_secret_in_a_url_is_left_out(text: str, shown: str) -> None:
    assert without_secrets(text) == shown


@pytest.mark.parametrize(
    "address",
    [
        "runs/one", "/a@b/c?d#e", "~/x", "s3://bucket/a@b", "file:///a@b?c#d", "memory://x",
        "abfss://container@account.dfs.core.windows.net/x", "https://host:80/x",
    ],
)  # fmt: skip
def test_what_has_no_credentials_stays_as_it_is(address: str) -> None:
    assert checked_address(address) == address


@pytest.mark.parametrize(
    "address",
    [
        "s3://u:p@bucket", "s3://u@bucket", "s3://bucket?x", "s3://bucket/#x", "file://u:p@h/x",
        "abfss://c:p@account/x", "abfss://c@account/x?sig=1", "abfss://a@b@account/x",
    ],
)  # fmt: skip
def test_what_has_some_is_refused(address: str) -> None:
    with pytest.raises(SMDebugValueError, match="without credentials"):
        checked_address(address)
