"""Processes without the time it takes to start them: forks of one that has imported everything.

    python -m tests.zygote <number of a socket> <module> [<module> ...]

A fork of it runs a function of one of the modules and then, unless that has ended it, ends as a
script does: with threads that are waited for, with `atexit`, with the exit code of whatever it died
from. A module may have a function `prepare`, which is called once, before there are any forks.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

ROOT = Path(__file__).parents[1]
# How long a process may say nothing, and how long it may live, in seconds.
PATIENCE, LONGEST = 300.0, 900.0
_MOST = 1 << 16


class Zygote:
    """Starts processes. Close it at the end.

    Args:
        modules: those whose functions it can start.
        options: of Python.
    """

    def __init__(self, modules: Sequence[str], options: Sequence[str] = ()) -> None:
        # Those that nobody has waited for: a test has failed meanwhile.
        self._alive: set[int] = set()
        self._environment = dict(os.environ)
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, *options, "-m", "tests.zygote", str(theirs.fileno()), *modules],
                pass_fds=[theirs.fileno()], cwd=ROOT,
            )  # fmt: skip

    def start(self, job: Callable[..., None], *arguments: Any, **options: Any) -> Running:
        """Starts a function of one of the modules; it is given a `Line` first."""
        return self.start_in(os.environ, job, *arguments, **options)

    def start_in(
        self,
        environment: Mapping[str, str],
        job: Callable[..., None],
        *arguments: Any,
        **options: Any,
    ) -> Running:
        """The same, with other variables than ours."""
        ours, theirs = socket.socketpair()
        errors = tempfile.TemporaryFile()  # noqa: SIM115 - it goes with the process
        name = (job.__module__, job.__name__)
        request = {
            "job": name, "arguments": arguments, "options": options,
            "environment": self._news(dict(environment)),
        }  # fmt: skip
        with theirs:
            message = [json.dumps(request).encode()]
            socket.send_fds(self._socket, message, [theirs.fileno(), errors.fileno()])
        pid = int(self._socket.recv(_MOST))
        self._alive.add(pid)
        return Running(self, pid, ours, errors)

    def _news(self, now: dict[str, str]) -> dict[str, str | None]:
        """Which variables are others than when this was made."""
        names = {name for name, _ in now.items() ^ self._environment.items()}
        return {name: now.get(name) for name in names}

    def run(self, job: Callable[..., None], *arguments: Any, **options: Any) -> list[str]:
        """Runs one to its end, which must be a good one; returns what it said."""
        running = self.start(job, *arguments, **options)
        said = running.rest()
        assert running.wait() == 0, running.complaints()
        return said

    def wait(self, pid: int) -> int:
        self._socket.send(json.dumps({"wait": pid}).encode())
        code = int(self._socket.recv(_MOST))
        self._alive.discard(pid)
        return code

    def close(self) -> None:
        for pid in self._alive:
            os.kill(pid, signal.SIGKILL)
        self._socket.close()
        self._process.wait(PATIENCE)


class Running:
    """A process that was started. What it says is read line by line.

    Attributes:
        pid: its number.
    """

    def __init__(self, zygote: Zygote, pid: int, connection: socket.socket, errors: Any) -> None:
        self._zygote = zygote
        self._socket = connection
        self._errors = errors
        self._text = b""
        self._ended = False
        self._complaints = ""
        self.pid = pid

    def send(self, number: int) -> None:
        """Sends a signal."""
        os.kill(self.pid, number)

    def say(self) -> None:
        """Says something: whatever the process waits for."""
        self._socket.send(b".")

    def line(self) -> str | None:
        """The next line; None when the process has ended."""
        while b"\n" not in self._text and not self._ended:
            self._read(PATIENCE)
        line, newline, self._text = self._text.partition(b"\n")
        return line.decode() if newline else None

    def until(self, wanted: str) -> list[str]:
        """All lines up to one that begins with this."""
        lines: list[str] = []
        while not lines or not lines[-1].startswith(wanted):
            line = self.line()
            assert line is not None, f"{wanted!r} was not said: {lines[-5:]}\n{self.complaints()}"
            lines.append(line)
        return lines

    def during(self, seconds: float) -> list[str]:
        """The lines that are said in this time."""
        end = time.monotonic() + seconds
        while not self._ended and time.monotonic() < end:
            self._read(max(end - time.monotonic(), 0.0), required=False)
        whole, _, self._text = self._text.rpartition(b"\n")
        return whole.decode().splitlines()

    def rest(self) -> list[str]:
        """All lines until the process has ended, which it must do."""
        lines = []
        end = time.monotonic() + LONGEST
        while (line := self.line()) is not None:
            lines.append(line)
            assert time.monotonic() < end, f"it does not end\n{self.complaints()}"
        return lines

    def wait(self) -> int:
        """Waits for its end; returns its exit code."""
        try:
            self.rest()
        except AssertionError:
            self.send(signal.SIGKILL)
            self._end()
            raise
        return self._end()

    def _end(self) -> int:
        code = self._zygote.wait(self.pid)
        self._complaints = self.complaints()
        self._socket.close()
        self._errors.close()
        return code

    def complaints(self) -> str:
        """What it wrote where errors go."""
        if not self._errors.closed:
            self._errors.seek(0)
            self._complaints = self._errors.read().decode(errors="replace")
        return self._complaints

    def _read(self, seconds: float, required: bool = True) -> None:
        ready, _, _ = select.select([self._socket], [], [], seconds)
        assert ready or not required, f"nothing was heard for {seconds} s\n{self.complaints()}"
        if ready:
            try:
                data = self._socket.recv(_MOST)
            except ConnectionResetError:
                # It was killed with something unread.
                data = b""
            self._text += data
            self._ended = not data


# ---- the other side


class Line:
    """The connection of a process with whoever has started it."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self.number = connection.fileno()

    def tell(self, text: object) -> None:
        """Says a line."""
        self._socket.sendall(f"{text}\n".encode())

    def heard(self, seconds: float | None = None) -> bool:
        """Whether something was said; waits for it."""
        ready, _, _ = select.select([self._socket], [], [], seconds)
        return bool(ready and self._socket.recv(1))


def _next_job(connection: socket.socket) -> tuple[dict[str, Any], Line]:
    """Starts processes as it is told; returns in each of them, and never here."""
    while True:
        message, files, _, _ = socket.recv_fds(connection, _MOST, 2)
        if not message:
            os._exit(0)
        request = json.loads(message)
        if "wait" in request:
            _, status = os.waitpid(request["wait"], 0)
            connection.send(str(os.waitstatus_to_exitcode(status)).encode())
            continue
        child = os.fork()
        if child:
            for file in files:
                os.close(file)
            connection.send(str(child).encode())
            continue
        connection.close()
        os.dup2(files[1], 1)
        os.dup2(files[1], 2)
        os.close(files[1])
        return request, Line(socket.socket(fileno=files[0]))


if __name__ == "__main__":
    # As at a terminal: a shell starts what runs in the background with these switched off.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    # All of it here, and not in each of them.
    for name in sys.argv[2:]:
        imported = importlib.import_module(name)
        if hasattr(imported, "prepare"):
            imported.prepare()
    gc.collect()
    gc.freeze()
    request, line = _next_job(socket.socket(fileno=int(sys.argv[1])))
    for name, value in request["environment"].items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value
    module, function = request["job"]
    getattr(sys.modules[module], function)(line, *request["arguments"], **request["options"])
