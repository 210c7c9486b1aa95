"""Findings posted to a server on loopback."""

from __future__ import annotations

import base64
import json
import logging
import queue
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.pages import program

from smdebug.mode_keys import ModeKeys
from smdebug.rules import run_rules
from smdebug.rules.action.action import Actions
from smdebug.rules.action.webhook_action import WebhookAction, payload
from smdebug.rules.builtin.vanishing_gradient import VanishingGradient
from smdebug.storage.batch import Entry, StepBatch
from smdebug.storage.findings import Finding
from smdebug.testing.runs import make_run
from smdebug.trials import create_trial

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PATIENCE = 60
FINDING = Finding(
    "VanishingGradient", 40, "gradient/fc.weight has vanished", "gradient/fc.weight",
    1e-9, 1e-7, ModeKeys.TRAIN, 39, "worker_0", 1.5e9,
)  # fmt: skip


class Server:
    """Keeps what it gets, and answers as it is told."""

    def __init__(self) -> None:
        self.got: queue.Queue[tuple[str, dict[str, str], Any]] = queue.Queue()
        self.status = 200
        self.headers: dict[str, str] = {}
        self.answers = threading.Event()
        self.answers.set()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                outer.got.put((self.path, headers, json.loads(body)))
                outer.answers.wait(PATIENCE)
                self.send_response(outer.status)
                for name, value in outer.headers.items():
                    self.send_header(name, value)
                self.end_headers()

            def do_GET(self) -> None:
                outer.got.put((f"GET {self.path}", {}, None))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                return

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: object) -> None:
                # A client that has given up.
                return

        self._server = Quiet(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.01,), daemon=True
        )
        self._thread.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.server_address[1]}"

    def stop(self) -> None:
        self.answers.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "*")
    server = Server()
    yield server
    server.stop()


def log_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "smdebug.rules"]


@pytest.mark.parametrize("key", ["endpoint", "url"])
def test_a_finding_arrives(server: Server, key: str, caplog: pytest.LogCaptureFixture) -> None:
    actions = Actions({"name": "WebHook", key: f"http://{server.address}/AbC/d%20E?Key=Xy"})
    actions.invoke(FINDING)
    actions.close(PATIENCE)
    path, headers, body = server.got.get_nowait()
    assert path == "/AbC/d%20E?Key=Xy"
    assert headers["content-type"] == "application/json"
    assert headers["user-agent"].startswith("tornasole/")
    assert body == {
        "rule": "VanishingGradient", "step": 40, "message": "gradient/fc.weight has vanished",
        "tensor": "gradient/fc.weight", "value": 1e-9, "threshold": 1e-7, "mode": "TRAIN",
        "mode_step": 39, "worker": "worker_0", "time": 1.5e9, "left_out": 0,
        "text": "VanishingGradient, step 40: gradient/fc.weight has vanished",
    }  # fmt: skip
    assert server.got.empty()
    assert log_of(caplog) == []


@pytest.mark.parametrize(
    ("value", "posted"),
    [
        (float("nan"), "NaN"), (float("inf"), "Infinity"), (float("-inf"), "-Infinity"),
        (np.float32("inf"), "Infinity"), (np.float64("nan"), "NaN"), (np.float32(0.5), 0.5),
        (np.int64(3), 3), (7, 7), (None, None), (-0.25, -0.25),
    ],
)  # fmt: skip
def test_every_number_is_valid_json(value: Any, posted: Any) -> None:
    def refuse(text: str) -> None:
        raise AssertionError(text)

    made = payload(Finding("R", np.int64(4), "é", value=value, threshold=value))
    back = json.loads(json.dumps(made), parse_constant=refuse)
    assert (back["value"], back["threshold"], back["step"]) == (posted, posted, 4)
    assert back["text"] == "R, step 4: é"


def test_many_findings_are_two_messages(server: Server) -> None:
    actions = Actions({"name": "webhook", "endpoint": f"http://{server.address}/"})
    for step in range(300):
        actions.invoke(Finding("R", step, "m"))
    actions.close(PATIENCE)
    first, second = (server.got.get_nowait()[2] for _ in range(2))
    assert (first["step"], first["left_out"], first["text"]) == (0, 0, "R, step 0: m")
    assert (second["step"], second["left_out"]) == (299, 298)
    assert second["text"] == "R, step 299: m (and 298 more findings since the last message)"
    assert server.got.empty()


def test_the_interval_is_an_option(server: Server) -> None:
    entry = {"name": "webhook", "endpoint": f"http://{server.address}/", "min_interval": "0"}
    actions = Actions(json.dumps(entry))
    for step in range(5):
        actions.invoke(Finding("R", step, "m"))
    actions.close(PATIENCE)
    assert [server.got.get_nowait()[2]["step"] for _ in range(5)] == list(range(5))


def test_headers_and_user(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    entry = {
        "name": "webhook",
        "endpoint": f"http://Joe:p%40ss:W0rd@{server.address}/t",
        "headers": {"X-Api-Key": "S3cret", "user-agent": "mine"},
        "min_interval": 0,
    }
    with caplog.at_level(logging.DEBUG):
        actions = Actions(entry, "Rule")
        actions.invoke(FINDING)
        server.status = 500
        actions.invoke(FINDING)
        actions.close(PATIENCE)
    _, headers, _ = server.got.get_nowait()
    assert headers["x-api-key"] == "S3cret"
    assert headers["user-agent"] == "mine"
    assert base64.b64decode(headers["authorization"].split()[1]) == b"Joe:p@ss:W0rd"
    assert headers["host"] == server.address
    for text in (*log_of(caplog), repr(actions), repr(actions.actions[0])):
        assert not any(secret in text for secret in ("S3cret", "W0rd", "p%40ss", "Joe", "/t"))


def test_a_header_of_the_user_is_the_one(server: Server) -> None:
    action = WebhookAction(
        "R", f"http://joe:pw@{server.address}", headers={"authorization": "Bearer x"}
    )
    action.invoke(FINDING)
    path, headers, _ = server.got.get_nowait()
    assert (path, headers["authorization"]) == ("/", "Bearer x")


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (500, "the answer was 500 Internal Server Error"),
        (404, "the answer was 404 Not Found"),
        (302, "the answer was 302 Found; redirects are not followed"),
        (307, "the answer was 307 Temporary Redirect; redirects are not followed"),
        (204, None),
    ],
)
@pytest.mark.parametrize("target", ["file:///etc/hostname", "ftp://127.0.0.1/x", "http://{}/other"])
def test_an_answer_that_is_no_success_is_logged(
    server: Server, status: int, said: str | None, target: str, caplog: pytest.LogCaptureFixture
) -> None:
    server.status = status
    server.headers = {"Location": target.format(server.address)}
    actions = Actions({"name": "webhook", "endpoint": f"http://{server.address}/T0k3n"}, "Rule")
    actions.invoke(FINDING)
    actions.close(PATIENCE)
    assert server.got.get_nowait()[0] == "/T0k3n"
    assert server.got.empty()
    shown = f"rule Rule: WebhookAction(http://{server.address}/...) failed: {said}"
    assert log_of(caplog) == ([shown] if said else [])


def test_a_refused_connection_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("no_proxy", "*")
    # Bound, and listening to nobody.
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        actions = Actions({"name": "webhook", "endpoint": f"http://{address}/T0k3n"}, "Rule")
        actions.invoke(FINDING)
        actions.close(PATIENCE)
    assert log_of(caplog) == [
        f"rule Rule: WebhookAction(http://{address}/...) failed: Connection refused"
    ]


def test_a_time_out_is_logged(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    server.answers.clear()
    entry = {"name": "webhook", "endpoint": f"http://{server.address}/T0k3n", "timeout": "0.1"}
    actions = Actions(entry, "Rule")
    actions.invoke(FINDING)
    actions.close(PATIENCE)
    assert server.got.get_nowait()[2]["step"] == 40
    (message,) = log_of(caplog)
    assert message.endswith("failed: TimeoutError")


def test_who_invokes_does_not_wait_for_the_answer(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    server.answers.clear()
    entry = {
        "name": "webhook", "endpoint": f"http://{server.address}/",
        "timeout": PATIENCE, "min_interval": 0,
    }  # fmt: skip
    actions = Actions(entry, "Rule")
    actions.invoke(FINDING)
    server.got.get(timeout=PATIENCE)
    # The server has it and says nothing; more may be found meanwhile, and an end is possible.
    actions.invoke(FINDING)
    actions.close(0)
    assert log_of(caplog) == ["rule Rule: 2 uses of its actions were not done within 0 seconds"]
    server.answers.set()
    actions.close(PATIENCE)
    assert server.got.get_nowait()[2]["step"] == 40


def test_a_rule_posts_what_it_finds(server: Server, tmp_path: Path) -> None:
    def data(worker: str, step: int) -> StepBatch:
        size = 1.0 if step < 3 else 1e-12
        entry = Entry("gradient/w", np.full((4,), size, np.float32), {"abs_mean": size})
        return StepBatch(step, ModeKeys.TRAIN, step, [entry], time=float(step))

    make_run(tmp_path, range(6), ["worker_0"], "v2", data)
    trial = create_trial(str(tmp_path))
    action_str = json.dumps([{"name": "webhook", "endpoint": f"http://{server.address}/"}])
    rule = VanishingGradient(trial, action_str=action_str)
    rule.gradients = rule.choose(regexes="gradient/.*")
    report = run_rules(trial, [rule], record=False)
    rule._actions.close(PATIENCE)
    _, _, body = server.got.get_nowait()
    (finding,) = report.findings
    assert (body["rule"], body["step"], body["tensor"]) == ("VanishingGradient", 3, "gradient/w")
    assert body["text"] == str(finding)


def test_the_code_of_the_page(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make_run("runs/first")
    code = program("docs/actions.md", "core")
    address = "https://hooks.example.org"
    assert address in code
    exec(compile(code.replace(address, f"http://{server.address}"), "actions.md", "exec"), {})
    path, _, body = server.got.get_nowait()
    assert (path, body["rule"], body["step"]) == ("/services/T0/B0/abc", "MyCheck", 40)
    assert server.got.empty()
