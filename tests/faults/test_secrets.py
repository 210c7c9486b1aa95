"""Credentials do not leak: all output that a user can see is searched for them.

Unique strings are injected wherever credentials can be; then everything fails in every way.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.command import environment
from tests.faults.injected_secrets import Secrets, contents, said_by
from tests.faults.tally import FULL, Tally, amount
from tests.hook.numpy_hook import NumpyHook

from smdebug.config.options import HookOptions
from smdebug.core.access_layer.s3 import TSAccessS3
from smdebug.exceptions import SMDebugValueError
from smdebug.rules.action.action import Actions
from smdebug.rules.action.webhook_action import WebhookAction
from smdebug.rules.registry import RuleSpec
from smdebug.storage.findings import Finding
from smdebug.storage.stores import object_store
from smdebug.storage.stores.base import open_store
from smdebug.storage.stores.bucket import Timeouts
from smdebug.trials import create_trial

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.unreliable import Unreliable

pytestmark = pytest.mark.filterwarnings("ignore:.*utcnow.*:DeprecationWarning")

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def secrets(request: pytest.FixtureRequest) -> Secrets:
    return Secrets(sum(map(ord, request.node.name)))


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG, "smdebug")
    # botocore's own log is not ours.
    for name in ("botocore", "boto3", "urllib3"):
        caplog.set_level(logging.WARNING, name)
    return caplog


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait for responses that never come."""
    for name in ("FIRST", "LATER"):
        monkeypatch.setattr(object_store, name, Timeouts(answer=2.0, retry=0.05))
    monkeypatch.setenv("SMDEBUG_STORE_RETRY_SECONDS", "0")


class Search:
    """Looks for secrets in what things say; counts how much there was to look at.

    Args:
        secrets: what was injected.
        log: what was logged.
    """

    def __init__(self, secrets: Secrets, log: pytest.LogCaptureFixture | None = None) -> None:
        self._secrets = secrets
        self._log = log
        self.tried = 0
        self.found: list[str] = []

    def look(self, what: str, said: str | bytes) -> None:
        """Looks at a text, and at the log so far."""
        self.tried += 1
        leaked = self._secrets.found_in(said)
        if self._log is not None:
            leaked += self._secrets.found_in(self._log.text)
            self._log.clear()
        if leaked:
            text = said if isinstance(said, str) else repr(said)
            self.found.append(f"{what}: {leaked} in {text[:2000]}")

    def fail(
        self, what: str, work: Callable[..., Any], *args: Any, **options: Any
    ) -> BaseException | None:
        """Does what is likely to fail, and looks at everything that is said of it."""
        error: BaseException | None = None
        made = None
        try:
            made = work(*args, **options)
        except Exception as raised:
            error = raised
        self.look(what, f"{said_by(error)} {made!r} {made}")
        return error

    def end(self, tally: Tally, what: str, injected: int) -> None:
        """Counts, and sees that nothing was found."""
        tally.add(7, what, self.tried, self.tried - len(self.found), f"{injected} secrets injected")
        assert not self.found, "\n".join(self.found)


# ---- stores


def operations(url: str) -> dict[str, Callable[[], Any]]:
    def hook() -> None:
        with NumpyHook(url, on_error="raise") as made:
            made.run(loss=np.ones(2))

    every: dict[str, Callable[[], Any]] = {
        "list": lambda: list(open_store(url).list()),
        "read": lambda: open_store(url).read("key"),
        "write": lambda: open_store(url).write("key", [b"x"]),
        "trial": lambda: create_trial(url, wait_seconds=0),
        "hook": hook,
    }
    return every if FULL else {name: every[name] for name in ("list", "hook")}


def test_bucket_denies_access(
    proxy: Unreliable, hasty: None, secrets: Secrets, log: pytest.LogCaptureFixture, tally: Tally,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    key, token = secrets.make("secret key"), secrets.make("session token")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", key)
    monkeypatch.setenv("AWS_SESSION_TOKEN", token)
    search = Search(secrets, log)
    message = f"token {token} is not known"
    bodies = [
        b"", token.encode(), f"<html>{token}</html>".encode(),
        f"<Error><Code>AccessDenied</Code><Message>{message}</Message>"
        f"<StringToSign>{token}</StringToSign></Error>".encode(),
        f"<?xml?>\n<Error><Code>InvalidToken</Code><Message>{message}</Message>"
        f"<Token-0>{token}</Token-0></Error>".encode(),
    ]  # fmt: skip
    statuses = [400, 401, 403, 404, 409, 412, 500, 503]
    for status in statuses[:: amount(1, 5)]:
        for body in bodies:
            proxy.fault, proxy.content = status, body
            for name, work in operations("s3://runs/x").items():
                search.fail(f"{name} {status} {body[:20]!r}", work)
    search.end(tally, "answers of a bucket that repeat a token", len(secrets))


def test_an_endpoint_with_a_password(
    proxy: Unreliable, hasty: None, secrets: Secrets, log: pytest.LogCaptureFixture, tally: Tally,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    search = Search(secrets, log)
    here = proxy.url.removeprefix("http://")
    for number, host in enumerate((here, "127.0.0.1:1", "no-such-host.invalid", "[bad", here)):
        for scheme in ("http://", "", "https://", "ftp://")[: amount(4, 2)]:
            user, password = secrets.make("user"), secrets.make("password")
            endpoint = f"{scheme}{user}:{password}@{host}"
            # With an access key, too, and with a query string.
            endpoint += "" if number < 4 else f"/?token={secrets.make('query')}"
            monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
            proxy.fault = [403, 301, 500][number % 3]
            for name, work in operations("s3://runs/x").items():
                search.fail(f"{name} at {endpoint}", work)
    search.end(tally, "endpoints with user:password@", len(secrets))


def test_invalid_keys(
    proxy: Unreliable, hasty: None, secrets: Secrets, log: pytest.LogCaptureFixture, tally: Tally,
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    search = Search(secrets, log)
    proxy.fault = 403
    for name in ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ACCESS_KEY_ID"):
        for wrong in ("\n", "é", "\x01", " ")[: amount(4, 1)]:
            with monkeypatch.context() as patch:
                patch.setenv(name, f"{wrong}{secrets.make(name)}{wrong}x")
                for what, work in operations("s3://runs/x").items():
                    search.fail(f"{what} with {name} {wrong!r}", work)
    # A library of Rust may print what it dislikes.
    search.look("stderr", capfd.readouterr().err)
    search.end(tally, "keys with line ends and the like", len(secrets))


def test_profiles_and_programs_that_print_credentials(
    proxy: Unreliable, hasty: None, secrets: Secrets, log: pytest.LogCaptureFixture, tally: Tally,
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
) -> None:  # fmt: skip
    search = Search(secrets, log)
    made = {name: secrets.make(name) for name in ("key", "token", "said", "argument", "password")}
    config = tmp_path / "config"
    printed = json.dumps({"Version": 1, "AccessKeyId": "a", "SecretAccessKey": made["key"]})
    programs = {
        "fails": f"echo {made['said']} >&2; echo {made['said']}; exit 1",
        "prints": f"echo {made['said']}",
        "version": f'echo \'{{"Version": 7, "SecretAccessKey": "{made["key"]}"}}\'',
        "works": f"echo '{printed}'",
    }
    text = [
        f"[profile keys]\naws_access_key_id = a\naws_secret_access_key = {made['key']}\n"
        f"aws_session_token = {made['token']}\n",
        f"[profile half]\naws_secret_access_key = {made['key']}\n",
        f"[profile missing]\ncredential_process = /no/such/program {made['argument']}\n",
        f"[profile endpoint]\nendpoint_url = http://u:{made['password']}@127.0.0.1:1\n"
        f"aws_access_key_id = a\naws_secret_access_key = {made['key']}\n",
    ]
    for name, program in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{program}\n")
        (tmp_path / name).chmod(0o755)
        command = f"{tmp_path / name} {made['argument']}"
        text.append(f"[profile {name}]\ncredential_process = {command}\n")
    config.write_text("\n".join(text))
    broken = tmp_path / "broken"
    broken.write_text(f"[profile keys\naws_secret_access_key {made['key']}\n")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    proxy.fault = 403
    profiles = ["keys", "half", "missing", "endpoint", *programs]
    for profile in profiles:
        for file in (config, broken):
            with monkeypatch.context() as patch:
                patch.setenv("AWS_CONFIG_FILE", str(file))
                patch.setenv("AWS_PROFILE", profile)
                patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
                for what, work in operations("s3://runs/x").items():
                    search.fail(f"{what} with profile {profile}", work)
    access = TSAccessS3("runs", "x", "a", secrets.make("argument"))
    search.fail("access layer", access.read, 1)
    access.write(b"x")
    search.fail("access layer", access.close)
    search.end(tally, "profiles and programs with credentials", len(secrets))


URLS = [
    "s3://{user}:{secret}@bucket/x", "s3://{secret}@bucket/x", "s3://:{secret}@bucket/x",
    "s3://bucket/x?X-Amz-Signature={secret}", "s3://bucket/x#{secret}", "S3://u:{secret}@bucket",
    "https://{user}:{secret}@127.0.0.1:1/x", "https://127.0.0.1:1/x?sig={secret}",
    "http://u:{secret}@127.0.0.1:1", "gs://u:{secret}@bucket/x", "az://container/x?sig={secret}",
    "abfss://container:{secret}@account.dfs.core.windows.net/x", "ftp://u:{secret}@host/x",
    "hdfs://{secret}@host/x", "file://u:{secret}@host/x", "memory://u:{secret}@x",
    "s3://u:{secret}@bucket[/x", "s3://u:p@{secret}@bucket/x", "sftp://u:%40{secret}@host",
]  # fmt: skip


def test_urls_with_credentials_are_refused(
    secrets: Secrets, log: pytest.LogCaptureFixture, tally: Tally, tmp_path: Path
) -> None:
    search = Search(secrets, log)
    accepted = []
    for pattern in URLS:
        url = pattern.format(user=secrets.make("user"), secret=secrets.make("secret"))
        errors = {
            "store": search.fail(pattern, open_store, url),
            "options": search.fail(pattern, HookOptions, url),
            "options for TensorBoard": search.fail(pattern, HookOptions, tensorboard_dir=url),
            "hook": search.fail(pattern, NumpyHook, url),
            "TensorBoard": search.fail(pattern, NumpyHook, tmp_path, tensorboard_dir=url),
            "trial": search.fail(pattern, create_trial, url, wait_seconds=0),
            "job": search.fail(pattern, NumpyHook.create_from_json_file, {"S3OutputPath": url}),
        }
        accepted += [
            f"{what} {pattern}: {error!r}"
            for what, error in errors.items()
            if not isinstance(error, SMDebugValueError)
        ]
    search.found += accepted
    search.end(tally, "URLs with credentials refused", len(secrets))


def test_azure_url_with_container_before_the_host() -> None:
    url = "abfss://container@account.dfs.core.windows.net/x"
    assert HookOptions(url).out_dir == url
    assert open_store(url).url == url


# ---- actions


class Ears:
    """A server that records what is posted, and answers as configured."""

    def __init__(self, status: int = 200, location: str | None = None) -> None:
        self.heard: list[tuple[str, dict[str, str], bytes]] = []
        self.came = threading.Event()
        ears = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                ears.heard.append((self.path, dict(self.headers), body))
                self.send_response_only(status)
                if location is not None:
                    self.send_header("Location", location)
                self.send_header("Content-Length", "0")
                self.end_headers()
                ears.came.set()

            do_GET = do_HEAD = do_POST

            def log_message(self, format: str, *args: object) -> None:
                """Discard the log."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        ).start()
        self.host = f"127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def ears(status: int = 200, location: str | None = None) -> Iterator[Ears]:
    found = Ears(status, location)
    try:
        yield found
    finally:
        found.close()


FINDING = Finding("NonFinite", 3, "loss is nan")
SCHEMES = ["file", "ftp", "gopher", "data", "javascript", "ssh", "ldap", "jar", "php", "s3", "ws"]
FORMS = ["{0}://{1}/x", "{0}:{1}", "{0}:///{1}", " {0}://u:{1}@h", "{0}://{1}@h\n", "//{1}/{0}"]


def test_webhooks_go_to_http_and_https_only(
    secrets: Secrets, log: pytest.LogCaptureFixture, tally: Tally
) -> None:
    search = Search(secrets, log)
    for scheme in SCHEMES:
        for form in FORMS:
            for name in (scheme, scheme.upper()):
                address = form.format(name, secrets.make("address"))
                error = search.fail(address, WebhookAction, "Rule", address)
                if not isinstance(error, SMDebugValueError) or "http" not in str(error):
                    search.found.append(f"{address}: {error!r}")
                # As part of a job it is ignored, and the log says so.
                entry = {"name": "webhook", "endpoint": address}
                search.fail(address, Actions, [entry], "Rule")
                assert not Actions([entry], "Rule").actions
    search.end(tally, "webhooks to other schemes refused", len(secrets))


def test_webhooks_follow_no_redirect(
    secrets: Secrets, log: pytest.LogCaptureFixture, tally: Tally, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("no_proxy", "*")
    search = Search(secrets, log)
    (tmp_path / "file").write_text("not to be read")
    with ears() as other:
        places = [
            f"file://{tmp_path}/file", "ftp://127.0.0.1:1/x", "gopher://127.0.0.1:1/x",
            "data:text/plain,x", "javascript:x", f"http://{other.host}/x", f"//{other.host}/x", "",
        ]  # fmt: skip
        for status in (301, 302, 303, 307, 308)[:: amount(1, 2)]:
            for place in places:
                with ears(status, place) as server:
                    path, header = secrets.make("path"), secrets.make("header")
                    password = secrets.make("password")
                    address = f"http://u:{password}@{server.host}/{path}?q={secrets.make('query')}"
                    action = WebhookAction("Rule", address, headers={"X-Token": header})
                    search.fail(f"{status} to {place}", action.invoke, FINDING)
                    # It was called once, with all arguments.
                    ((asked, headers, _),) = server.heard
                    assert path in asked
                    assert header in headers.values()
                    assert headers["Authorization"].startswith("Basic ")
        search.found += [f"followed: {each}" for each in other.heard]
    search.end(tally, "redirects of webhooks not followed", len(secrets))


def test_invalid_actions(
    secrets: Secrets, log: pytest.LogCaptureFixture, tally: Tally, tmp_path: Path
) -> None:
    search = Search(secrets, log)

    def address() -> str:
        return f"https://hooks.example.org/{secrets.make('address')}"

    wrong: list[Any] = [
        f'{{"name": "webhook", "endpoint": "{address()}"', address(), [address()], [[address()]],
        {"name": address()}, {"name": "webhook", "url": ["x", address()]},
        {"name": "webhook", "endpoint": {"a": address()}}, {"endpoint": address()},
        {"name": "webhook", "endpoint": address(), "headers": address()},
        {"name": "webhook", "endpoint": address(), "headers": {"A": f"{address()}\n"}},
        {"name": "webhook", "endpoint": address(), "headers": {f"A\n{address()}": "x"}},
        {"name": "webhook", "endpoint": address(), "headers": [secrets.make("header")]},
        {"name": "webhook", "endpoint": f"{address()} x"},
        {"name": "webhook", "endpoint": f"{address()}", "timeout": "soon"},
        {"name": "webhook", "endpoint": f"https://h:port{secrets.make('port')}/"},
        {"name": "email", "endpoint": [f"{secrets.make('name')}@example.org"]},
        {"name": "email", "endpoint": f"x{secrets.make('name')}@example.org", "min_interval": "x"},
        {"name": "webhook", "endpoint": address(), "token": secrets.make("unknown")},
    ]  # fmt: skip
    for given in wrong:
        shown = json.dumps(given) if not isinstance(given, str) else given
        for text in (given, shown, shown[:-1]):
            search.fail(f"actions {shown}", Actions, text, "Rule")
            rules: list[Any] = [
                ("NonFinite", {"action_str": text}),
                {"rule": "NonFinite", "action_str": text},
                {"rule": "NoSuchRule", "action_str": text},
                ("NonFinite", {"action_str": text, "no_such_parameter": text}),
                ("NonFinite", text), (text, {}), {"action_str": text},
            ]  # fmt: skip
            for rule in rules:
                search.fail(f"rule {shown}", RuleSpec, rule)
                search.fail(f"options {shown}", HookOptions, "x", rules=[rule])
            options: dict[str, Any] = {"rules": ["NonFinite"], "actions": text}
            search.fail(f"options {shown}", HookOptions, "x", **options)
            search.fail(f"hook {shown}", NumpyHook, str(tmp_path / "run"), **options)
            search.fail("options", HookOptions, "x", actions=text)
    search.end(tally, "actions that make no sense", len(secrets))


# ---- a whole job


def json_config_file(secrets: Secrets, host: str) -> dict[str, Any]:
    """A job with secrets wherever there can be some."""
    hidden = {"password": secrets.make("unknown key"), "Authorization": secrets.make("unknown key")}
    address = f"http://u:{secrets.make('password')}@{host}/{secrets.make('path')}"
    webhook = {
        "name": "webhook", "endpoint": f"{address}?token={secrets.make('query')}",
        "headers": {"Authorization-2": secrets.make("header")},
        "api_key": secrets.make("unknown key of an action"), "min_interval": 0,
    }  # fmt: skip
    dead = {"name": "webhook", "endpoint": f"http://127.0.0.1:1/{secrets.make('path')}"}
    return {
        "HookParameters": {
            "save_interval": "1", "rules": ["NonFinite"], **hidden,
            "actions": json.dumps([webhook, dead, {"name": secrets.make("name").lower() + "://"}]),
            "export_tensorboard": True,
        },
        "CollectionConfigurations": [
            {"CollectionName": "weights", "CollectionParameters": {**hidden, "save_interval": "1"}}
        ],
        "DebugRuleConfigurations": [{"RuleParameters": {"token": secrets.make("unknown key")}}],
    }  # fmt: skip


def commands(url: str, run: str) -> list[list[str]]:
    every = [
        ["ls", url, "--json"], ["ls", url], ["check", url], ["check", url, "--json"],
        ["show", url, "loss"], ["show", url, "loss", "--json"], ["layers", url, "--json"],
        ["rules", url], ["rules", url, "--json"], ["rules", url, "--html", f"{run}.html"],
        ["ls", "s3://no-such-bucket/x"], ["check", "s3://no-such-bucket/x", "--json"],
    ]  # fmt: skip
    return every[:: amount(1, 4)]


def test_job_with_secrets_does_not_leak_them(
    bucket: str, secrets: Secrets, tally: Tally, tmp_path: Path
) -> None:
    import boto3

    search = Search(secrets)
    url = f"s3://{bucket}/secrets"
    variables = {
        "AWS_SECRET_ACCESS_KEY": secrets.make("secret key"), "no_proxy": "*",
        "AWS_SESSION_TOKEN": secrets.make("session token"), "PYTHONPATH": os.pathsep.join(sys.path),
    }  # fmt: skip
    with ears() as server:
        (tmp_path / "job.json").write_text(json.dumps(json_config_file(secrets, server.host)))
        program = [sys.executable, "-m", "tests.faults.programs.secretive"]
        ended = subprocess.run(
            [*program, url, str(tmp_path / "job.json")], cwd=ROOT, env=environment(**variables),
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert ended.returncode == 0, ended.stderr
        # They were used where they belong.
        assert secrets.found_in(repr(server.heard))
    search.look("stdout", ended.stdout)
    search.look("stderr", ended.stderr)
    client = boto3.client("s3")
    listed = client.list_objects_v2(Bucket=bucket, Prefix="secrets/")["Contents"]
    files = {
        each["Key"]: client.get_object(Bucket=bucket, Key=each["Key"])["Body"].read()
        for each in listed
    }
    for kind in ("collections", "events", "index", "findings", "tensorboard"):
        assert any(f"secrets/{kind}" in name for name in files), (kind, list(files))
    for name, data in contents(files):
        search.look(name, data)
    for arguments in commands(url, str(tmp_path / "page")):
        command = subprocess.run(
            [sys.executable, "-m", "smdebug", *arguments], cwd=tmp_path, check=False,
            env=environment(**variables), capture_output=True, text=True,
        )  # fmt: skip
        search.look(" ".join(arguments), command.stdout + command.stderr)
    for page in tmp_path.glob("*.html"):
        search.look(page.name, page.read_bytes())
    search.end(tally, "a job: output, files, commands", len(secrets))


def test_commands_do_not_print_urls_with_credentials(
    secrets: Secrets, tally: Tally, tmp_path: Path
) -> None:
    search = Search(secrets)
    for pattern in URLS[:: amount(1, 10)]:
        url = pattern.format(user=secrets.make("user"), secret=secrets.make("secret"))
        for arguments in (["ls", url], ["ls", url, "--json"], ["rules", url], ["diff", url, url])[
            :: amount(1, 2)
        ]:
            command = subprocess.run(
                [sys.executable, "-m", "smdebug", *arguments], cwd=tmp_path, check=False,
                env=environment(), capture_output=True, text=True,
            )  # fmt: skip
            assert command.returncode, arguments
            search.look(" ".join(arguments), command.stdout + command.stderr)
    search.end(tally, "commands with such URLs", len(secrets))
