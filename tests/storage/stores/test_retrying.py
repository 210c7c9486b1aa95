"""Stores that fail: what is tried again, for how long, and what is said."""

from __future__ import annotations

import itertools
import logging
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from tests.unreliable import Repair, Unreliable

from smdebug.exceptions import SMDebugValueError, StoreError
from smdebug.storage.stores import object_store
from smdebug.storage.stores.base import Store, open_store
from smdebug.storage.stores.bucket import Timeouts
from smdebug.storage.stores.memory import MemoryStore
from smdebug.storage.stores.retrying import RetryingStore, retrying
from smdebug.testing import StoreContract

if TYPE_CHECKING:
    from collections.abc import Iterator

_NUMBERS = itertools.count()
PATIENCE = 60
SECRET = "wJalrXUtnFEMIexample"

pytestmark = pytest.mark.filterwarnings(
    # botocore, not us.
    "ignore:.*utcnow.*:DeprecationWarning"
)


@pytest.fixture
def url(bucket: str) -> str:
    return f"s3://{bucket}/patient/run-{next(_NUMBERS)}"


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts are short, so that many fit into a test."""
    monkeypatch.setattr(object_store, "LATER", Timeouts(answer=1.0, retry=0.2))
    monkeypatch.setattr("smdebug.storage.stores.retrying._FIRST_PAUSE", 0.05)


class TestPatientStore(StoreContract):
    @pytest.fixture
    def store(self, url: str) -> Store:
        return retrying(open_store(url), PATIENCE)


def test_local_store_is_not_wrapped() -> None:
    store = MemoryStore()
    assert retrying(store, PATIENCE) is store


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [record for record in caplog.records if record.name == "smdebug.storage"]
    return [record.getMessage() for record in found if record.levelno >= logging.WARNING]


FAULTS = [503, 500, 429, "cut request", "cut answer", "refuse", "hang"]
CALLS: dict[str, Any] = {
    "write": lambda store: store.write("new", [b"new"]),
    "large": lambda store: store.write("large", [b"x" * (6 << 20), b"y" * (6 << 20)]),
    "read": lambda store: bytes(store.read("x")),
    "piece": lambda store: bytes(store.read("x", 1, 2)),
    "list": lambda store: sorted(store.list()),
    "first": lambda store: store.first(),
    "exists": lambda store: store.exists(),
    "delete": lambda store: store.delete("x"),
}
ANSWERS = {
    "read": b"abcdef", "piece": b"bc", "list": ["x"], "first": "x", "exists": True,
}  # fmt: skip


# obstore goes one way with all statuses, and with all ways to read.
CASES = [
    *itertools.product(FAULTS, ["write"]),
    *itertools.product([503, "cut request", "cut answer", "refuse", "hang"], ["large", "list"]),
    *itertools.product([503, "refuse", "hang"], ["read", "delete"]),
    *itertools.product([503], ["piece", "first", "exists"]),
]


@pytest.mark.parametrize(("fault", "call"), CASES)
def test_failed_call_succeeds_after_the_outage(
    proxy: Unreliable, url: str, hasty: None, caplog: pytest.LogCaptureFixture,
    fault: int | str, call: str,
) -> None:  # fmt: skip
    store = retrying(open_store(url), PATIENCE)
    store.write("x", [b"abcdef"])
    with Repair(proxy) as repair:
        proxy.break_down(fault)
        answer = CALLS[call](store)
    proxy.heal()
    assert answer == ANSWERS.get(call)
    kept = {"write": ["new", "x"], "large": ["large", "x"], "delete": []}.get(call, ["x"])
    assert list(store.list()) == kept
    if call == "large":
        assert bytes(store.read("large")) == b"x" * (6 << 20) + b"y" * (6 << 20)
        # Uploads without a response cannot be undone.
        begun = boto3.client("s3").list_multipart_uploads(Bucket="runs", Prefix=url[10:])
        assert fault in ("cut answer", "hang") or not begun.get("Uploads")
    # Retries of obstore alone are not logged.
    said = warnings(caplog)
    assert len(said) == (2 if repair.came.is_set() else 0)
    assert repair.came.is_set() or fault == "cut answer"
    if said:
        assert url in said[0]
        assert f"{url} works again" in said[1]


def test_an_outage_that_does_not_end(
    proxy: Unreliable, url: str, hasty: None, caplog: pytest.LogCaptureFixture
) -> None:
    store = RetryingStore(open_store(url), 0.5)
    store.write("x", [b"1"])
    proxy.stop()
    for _ in range(3):
        with pytest.raises(StoreError, match=f"{url}.*Connection refused"):
            store.write("y", [b"2"])
    assert len(warnings(caplog)) == 1
    proxy.heal()
    store.write("y", [b"2"])
    assert list(store.list()) == ["x", "y"]
    assert len(warnings(caplog)) == 2


def test_an_outage_ends_and_the_next_begins(
    proxy: Unreliable, url: str, hasty: None, caplog: pytest.LogCaptureFixture
) -> None:
    store = RetryingStore(open_store(url), PATIENCE)
    store.write("x", [b"1"])
    for number in range(2):
        with Repair(proxy):
            proxy.fault = 503
            store.write("x", [b"2"])
        assert len(warnings(caplog)) == 2 * (number + 1)


def test_missing_key_is_not_retried(proxy: Unreliable, url: str, hasty: None) -> None:
    store = RetryingStore(open_store(url), PATIENCE)
    with pytest.raises(KeyError):
        store.read("nothing")
    proxy.fault = 503
    with Repair(proxy) as repair, pytest.raises(KeyError):
        store.read("nothing")
    assert repair.came.is_set()


def test_missing_write_permission_is_not_retried(
    proxy: Unreliable, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = RetryingStore(open_store(url), PATIENCE)
    assert list(store.list()) == []
    proxy.fault, proxy.only = 403, lambda method, path: method == "PUT"
    with pytest.raises(StoreError, match="may not be used with the credentials") as caught:
        store.write("x", [b"1"])
    assert caught.value.refused
    assert proxy.count("PUT", "403") == 1
    assert warnings(caplog) == []


def test_revoked_write_permission_is_retried(proxy: Unreliable, url: str, hasty: None) -> None:
    store = RetryingStore(open_store(url), PATIENCE)
    store.write("x", [b"1"])
    with Repair(proxy) as repair:
        proxy.fault = 403
        store.write("x", [b"2"])
    assert repair.came.is_set()
    assert bytes(store.read("x")) == b"2"


# ---- the first look


def test_connection_refused(proxy: Unreliable, url: str) -> None:
    proxy.stop()
    with pytest.raises(StoreError, match=f"{url}.*{proxy.url}.*Connection refused.*endpoint"):
        list(open_store(url).list())


def test_server_does_not_answer(
    proxy: Unreliable, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_store, "FIRST", Timeouts(answer=0.3, retry=0.1))
    proxy.hold()
    with pytest.raises(StoreError, match=f"{url}.*no answer in time.*endpoint"):
        list(open_store(url).list())


def test_missing_bucket(proxy: Unreliable) -> None:
    store = open_store("s3://no-such-bucket/run")
    for call in (lambda: list(store.list()), lambda: store.write("x", []), lambda: store.read("x")):
        with pytest.raises(
            StoreError, match=r"s3://no-such-bucket/run.*create the bucket"
        ) as error:
            call()
        assert error.value.code == "NoSuchBucket"
    assert not store.exists()


@pytest.fixture
def guarded(bucket: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """A server that looks at signatures, and a user who may do nothing there."""
    from moto import settings
    from moto.core.responses import ActionAuthenticatorMixin

    iam = boto3.client("iam")
    iam.create_user(UserName="somebody")
    key = iam.create_access_key(UserName="somebody")["AccessKey"]
    monkeypatch.setattr(ActionAuthenticatorMixin, "request_count", 0)
    monkeypatch.setattr(settings, "INITIAL_NO_AUTH_ACTION_COUNT", 0)
    yield key
    monkeypatch.undo()
    iam.delete_access_key(UserName="somebody", AccessKeyId=key["AccessKeyId"])
    iam.delete_user(UserName="somebody")


@pytest.mark.parametrize("wrong", ["key", "secret", "rights"])
def test_wrong_credentials(
    guarded: dict[str, str], url: str, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    key, secret = guarded["AccessKeyId"], guarded["SecretAccessKey"]
    given = {"key": ("AKIANOBODY", SECRET), "secret": (key, SECRET), "rights": (key, secret)}
    code = {"key": "InvalidAccessKeyId", "secret": "SignatureDoesNotMatch"}.get(wrong)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", given[wrong][0])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", given[wrong][1])
    store = open_store(url)
    for call in (store.exists, lambda: store.write("x", [])):
        with pytest.raises(StoreError, match="may not be used with the credentials") as caught:
            call()
        assert caught.value.code == (code or "AccessDenied")
        assert caught.value.refused
        shown = str(caught.value) + repr(caught.value) + repr(store)
        assert not [each for each in given[wrong] if each in shown]
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__


def test_keys_in_a_response_are_not_shown(proxy: Unreliable, url: str) -> None:
    # As AWS answers: moto leaves the key out.
    proxy.fault = 403
    proxy.content = (
        b"<?xml version='1.0'?><Error><Code>InvalidAccessKeyId</Code><Message>The key does not "
        b"exist.</Message><AWSAccessKeyId>testing-key</AWSAccessKeyId></Error>"
    )
    with pytest.raises(StoreError, match="InvalidAccessKeyId: The key does not exist") as caught:
        open_store(url).exists()
    assert "testing-key" not in str(caught.value)


def test_url_with_credentials_is_rejected() -> None:
    with pytest.raises(SMDebugValueError, match="without credentials") as caught:
        open_store(f"s3://AKIAEXAMPLE:{SECRET}@runs/x")
    assert SECRET not in str(caught.value)
    assert "AKIAEXAMPLE" not in str(caught.value)


def test_no_credentials_at_all(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    # The address of Amazon's metadata service; nothing answers there.
    monkeypatch.setattr(object_store, "FIRST", Timeouts(answer=0.5, retry=0.1))
    with pytest.raises(StoreError, match=f"no credentials were found for {url}.*AWS_ACCESS_KEY_ID"):
        open_store(url).exists()


# ---- regions


@pytest.mark.parametrize("given", [None, "us-east-1", "eu-west-1"])
def test_a_bucket_in_another_region_is_found(
    proxy: Unreliable, url: str, monkeypatch: pytest.MonkeyPatch, given: str | None
) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name)
        if given is not None:
            monkeypatch.setenv(name, given)
    proxy.region = "eu-west-1"
    store = open_store(url)
    store.write("x", [b"1"])
    assert list(open_store(url).list()) == ["x"]
    assert bytes(store.read("x")) == b"1"
    # In the wrong region only the first request of each store is sent.
    assert sum(outcome == "301" for _, _, outcome in proxy.asked) == (
        0 if given == "eu-west-1" else 4
    )


def test_unknown_region_is_reported(
    proxy: Unreliable, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy.region = "us-east-1"
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    proxy.tells_region = False
    with pytest.raises(StoreError, match=r"another region.*set AWS_REGION"):
        open_store(url).exists()


# ---- processes


FORKED = """
import os, sys
from smdebug.exceptions import SMDebugRuntimeError
from smdebug.storage.stores.base import open_store

assert open_store(sys.argv[1]).exists()
child = os.fork()
if child == 0:
    try:
        open_store(sys.argv[1]).exists()
    except SMDebugRuntimeError as error:
        os._exit(3 if "spawn" in str(error) else 4)
    os._exit(5)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_forked_process_does_not_hang(url: str) -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORKED, url]
    assert subprocess.run(command, timeout=PATIENCE, check=False).returncode == 3
