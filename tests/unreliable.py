"""A server in front of another one that fails on demand, as networks and services do."""

from __future__ import annotations

import http.client
import logging
import re
import socket
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE = 60
# Those of one connection, not of what it carries.
_HOP_BY_HOP = ("connection", "keep-alive", "transfer-encoding", "content-length")


class Unreliable:
    """Hands requests on to another server, unless told otherwise; counts what it was asked.

    Args:
        upstream: the URL of the server that answers.

    Attributes:
        fault: what happens to requests: an HTTP status, "cut request" (the connection ends in the
            middle of a body that is sent), "cut answer" (the request takes effect, and the
            connection ends in the middle of the answer), or None: nothing does.
        content: what an answer with such a status holds.
        only: which requests are affected, by method and path.
        region: the only region that requests may be signed for, as buckets of AWS have one.
        tells_region: whether an answer to others names it.
        asked: the method, path and outcome of all requests so far.
        signers: the access keys that requests were signed with.
        tokens: the session tokens they came with.
    """

    def __init__(self, upstream: str) -> None:
        self.upstream = urlsplit(upstream).netloc
        self.fault: int | str | None = None
        self.only: Callable[[str, str], bool] = lambda method, path: True
        self.content = b""
        self.region: str | None = None
        self.tells_region = True
        self.asked: list[tuple[str, str, str]] = []
        self.signers: set[str] = set()
        self.tokens: set[str] = set()
        self.changed = threading.Condition()
        self._open = threading.Event()
        self._open.set()
        self._connections: set[socket.socket] = set()
        self._server: ThreadingHTTPServer | None = None
        self._port = 0
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Listens, at the same place as before."""
        handler = type("Handler", (_Handler,), {"proxy": self})
        self._server = _Server(("127.0.0.1", self._port), handler)
        self._port = self._server.server_address[1]
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        ).start()

    def stop(self) -> None:
        """Dies: connections end wherever they are, new ones are refused."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()
        with self.changed:
            connections, self._connections = self._connections, set()
        for connection in connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def hold(self) -> None:
        """Answers nothing until `release`."""
        self._open.clear()

    def release(self) -> None:
        self._open.set()

    def break_down(self, fault: int | str) -> None:
        """Fails from now on: a `fault`, "refuse" (`stop`) or "hang" (`hold`)."""
        if fault == "refuse":
            self.stop()
        elif fault == "hang":
            self.hold()
        else:
            self.fault = fault

    def heal(self) -> None:
        """Everything works again."""
        self.fault = None
        self.only = lambda method, path: True
        self.release()
        if self._server is None:
            self.start()

    def close(self) -> None:
        self.release()
        self.stop()

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Waits until something is so; looks after every request."""
        with self.changed:
            assert self.changed.wait_for(condition, PATIENCE), "it did not come to that"

    def count(self, method: str, outcome: str | None = None) -> int:
        """How many requests of a method there were."""
        return sum(m == method and outcome in (None, o) for m, _, o in list(self.asked))

    # ---- for the handler

    def enter(self, connection: socket.socket) -> None:
        with self.changed:
            self._connections.add(connection)

    def leave(self, connection: socket.socket) -> None:
        with self.changed:
            self._connections.discard(connection)

    def pass_gate(self) -> None:
        self._open.wait()

    def note(self, method: str, path: str, outcome: str) -> None:
        with self.changed:
            self.asked.append((method, path, outcome))
            self.changed.notify_all()


class Repair:
    """Mends a server once somebody has been told that it is broken.

    Args:
        proxy: the server.
        when: what else must be so by then.
    """

    def __init__(self, proxy: Unreliable, when: Callable[[], bool] = lambda: True) -> None:
        self._proxy = proxy
        self._when = when
        self._logger = logging.getLogger("smdebug.storage")
        self._handler = logging.Handler()
        self._handler.emit = self._emit  # type: ignore[method-assign]
        self.came = threading.Event()

    def _emit(self, record: logging.LogRecord) -> None:
        if "trying again" in record.getMessage():
            # On the thread that writes, which may wait: training must get on without it.
            deadline = time.monotonic() + PATIENCE
            while not self._when() and time.monotonic() < deadline:
                threading.Event().wait(0.01)
            self._proxy.heal()
            self.came.set()

    def __enter__(self) -> Repair:
        self._logger.addHandler(self._handler)
        return self

    def __exit__(self, *exc: object) -> None:
        self._logger.removeHandler(self._handler)


def _signature(authorization: str) -> tuple[str | None, str | None]:
    """The access key and the region of a signature."""
    match = re.search(r"Credential=([^/]+)/\d+/([^/]+)/", authorization)
    return (None, None) if match is None else (match[1], match[2])


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, *args: object) -> None:
        """Connections that break are what this is for."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    proxy: Unreliable

    def setup(self) -> None:
        super().setup()
        self.proxy.enter(self.connection)

    def finish(self) -> None:
        with suppress(OSError):
            super().finish()
        self.proxy.leave(self.connection)

    def _serve(self) -> None:
        proxy = self.proxy
        fault = proxy.fault if proxy.only(self.command, self.path) else None
        length = int(self.headers.get("content-length", 0))
        signer, region = _signature(self.headers.get("authorization", ""))
        proxy.signers |= {signer} if signer else set()
        proxy.tokens |= set(self.headers.get_all("x-amz-security-token", []))
        if fault == "cut request":
            self.rfile.read(length // 2)
            self._end("cut request")
            return
        body = self.rfile.read(length)
        if len(body) < length:
            self._end("gone")
            return
        if proxy.only(self.command, self.path):
            proxy.note(self.command, self.path, "came")
            proxy.pass_gate()
        if proxy.region not in (None, region):
            # As S3 answers who asks in the wrong region; nowhere does it say where to go.
            told = [("x-amz-bucket-region", str(proxy.region))] if proxy.tells_region else []
            proxy.note(self.command, self.path, "301")
            self._answer(301, told, b"")
            return
        if isinstance(fault, int):
            proxy.note(self.command, self.path, str(fault))
            self._answer(fault, [], proxy.content)
            return
        status, headers, content = self._forward(body)
        proxy.note(self.command, self.path, str(fault or status))
        self._answer(status, headers, content, cut=fault == "cut answer")

    def _forward(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        upstream = http.client.HTTPConnection(self.proxy.upstream, timeout=PATIENCE)
        try:
            headers = {name: value for name, value in self.headers.items()}
            upstream.request(self.command, self.path, body, headers)
            answer = upstream.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            upstream.close()

    def _answer(
        self, status: int, headers: list[tuple[str, str]], content: bytes, cut: bool = False
    ) -> None:
        size = str(len(content))
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() == "content-length" and self.command == "HEAD":
                size = value
            if name.lower() not in _HOP_BY_HOP:
                self.send_header(name, value)
        self.send_header("Content-Length", str(int(size) + 1) if cut else size)
        self.end_headers()
        self.wfile.write(content[: len(content) // 2] if cut else content)
        if cut:
            self._end(None)

    def _end(self, outcome: str | None) -> None:
        self.close_connection = True
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
        if outcome is not None:
            self.proxy.note(self.command, self.path, outcome)

    def log_message(self, format: str, *args: Any) -> None:
        """Nobody wants to read it."""

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _serve
