"""Debian's chromium without a window, told what to do over a pipe (the DevTools protocol)."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

CHROMIUM = shutil.which("chromium")
# How long a page may take. One that takes longer on a machine at work is not seen in practice.
PATIENCE = 60.0

# Goes through a page, also inside of components that hide what they are made of.
_WALK = """
(() => {
  const found = [];
  const walk = (node) => {
    %s
    if (node.shadowRoot) walk(node.shadowRoot);
    if (!["STYLE", "SCRIPT"].includes(node.nodeName)) node.childNodes.forEach(walk);
  };
  walk(document.body);
  return %s;
})()
"""
_TEXT = _WALK % (
    "if (node.nodeType === Node.TEXT_NODE) found.push(node.textContent);",
    r'found.join(" ").replace(/\s+/g, " ")',
)
# A line with more corners than any icon has.
_CURVES = _WALK % (
    'if (node.nodeName === "path" && (node.getAttribute("d") || "").length > 300) found.push(1);',
    "found.length",
)


class Chromium:
    """A browser with one page.

    Args:
        folder: where it keeps what it needs.
    """

    def __init__(self, folder: Path) -> None:
        assert CHROMIUM is not None, "needs chromium: apt-get install chromium"
        told, self._tell = os.pipe()
        self._hear, said = os.pipe()
        self._heard = b""
        self._number = 0
        arguments = [
            CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            "--remote-debugging-pipe", "--no-first-run", f"--user-data-dir={folder}",
            "--window-size=1500,1100", "about:blank",
        ]  # fmt: skip
        # The protocol wants these two numbers.
        command = ["bash", "-c", f'exec "$@" 3<&{told} 4>&{said}', "bash", *arguments]
        self._process = subprocess.Popen(
            command, pass_fds=(told, said), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        os.close(told)
        os.close(said)
        targets = self._do("Target.getTargets")["targetInfos"]
        target = next(each["targetId"] for each in targets if each["type"] == "page")
        found = self._do("Target.attachToTarget", targetId=target, flatten=True)
        self._session = found["sessionId"]

    def open(self, url: str) -> None:
        """Goes to a page."""
        # One that differs from the present one behind the # only would not be loaded.
        self._on_page("Page.navigate", url="about:blank")
        self._on_page("Page.navigate", url=url)

    def run(self, script: str) -> Any:
        """The value of an expression of JavaScript."""
        return self._on_page("Runtime.evaluate", expression=script)["result"].get("value")

    def text(self) -> str:
        """What can be read on the page."""
        return str(self.run(_TEXT) or "")

    def wait_for(self, *wanted: str) -> str:
        """Waits until all of this can be read on the page; returns what can."""
        deadline = time.monotonic() + PATIENCE
        while True:
            text = self.text()
            missing = [each for each in wanted if each not in text]
            if not missing:
                return text
            assert time.monotonic() < deadline, f"{missing} did not appear in {text[:3000]}"
            threading.Event().wait(0.1)

    def wait_for_curves(self, number: int) -> None:
        """Waits until so many curves are drawn."""
        deadline = time.monotonic() + PATIENCE
        while (drawn := self.run(_CURVES)) < number:
            assert time.monotonic() < deadline, f"{drawn} of {number} curves were drawn"
            threading.Event().wait(0.1)

    def picture(self, path: Path) -> None:
        """Saves what the page looks like as a PNG."""
        found = self._on_page("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(found["data"]))

    def _on_page(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._do(method, self._session, **parameters)

    def _do(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        os.write(self._tell, json.dumps(message).encode() + b"\0")
        while True:
            answer = json.loads(self._next())
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result

    def _next(self) -> bytes:
        while b"\0" not in self._heard:
            ready, _, _ = select.select([self._hear], [], [], PATIENCE)
            assert ready, "chromium does not answer"
            data = os.read(self._hear, 1 << 16)
            assert data, "chromium has ended"
            self._heard += data
        message, _, self._heard = self._heard.partition(b"\0")
        return message

    def __enter__(self) -> Chromium:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        os.close(self._tell)
        os.close(self._hear)
        # It ends when nobody talks to it any more; its helpers end with it.
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
