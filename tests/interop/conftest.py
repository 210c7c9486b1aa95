"""The other library: its programs, run once by its own Python, and what they left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

PROGRAMS = Path(__file__).parent / "peer"
PEER_VERSION = "1.0.34"
TIMEOUT_SECONDS = 100

RunPeer = Callable[..., None]
# What smdebug 1.0.34 says of a run; arrays stand in their places. See peer/read_run.py.
Seen = dict[str, Any]


@pytest.fixture(scope="session")
def run_peer(tmp_path_factory: pytest.TempPathFactory) -> RunPeer:
    """Runs a program of `peer/` with the Python that has smdebug 1.0.34."""
    python = os.environ.get("TORNASOLE_PEER_PYTHON")
    if not python or not Path(python).is_file():
        pytest.fail(
            "TORNASOLE_PEER_PYTHON must name the Python of a virtualenv with smdebug "
            f"{PEER_VERSION} and torch, got {python!r}; run `nox -s pytorch`, which makes one",
            pytrace=False,
        )
    home = tmp_path_factory.mktemp("peer-home")
    # Nothing of ours: the peer must not see this library, nor the caller's settings.
    environment = {
        "PATH": os.environ.get("PATH", ""),
        "HOME": str(home),
        "SMDEBUG_LOG_LEVEL": "error",
        "SMDEBUG_TRAINING_END_DELAY_REFRESH": "0",
    }

    def run(program: str, *arguments: str | Path) -> None:
        # -I: neither the working directory nor the user's site-packages are on the path.
        command = [python, "-I", str(PROGRAMS / program), *map(str, arguments)]
        # A session of its own, so that a program that hangs can be ended with its children.
        process = subprocess.Popen(
            command,
            env=environment,
            cwd=home,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            pytest.fail(f"{program} ran over {TIMEOUT_SECONDS} s:\n{output}", pytrace=False)
        if process.returncode:
            pytest.fail(f"{program} failed ({process.returncode}):\n{output}", pytrace=False)

    return run


@pytest.fixture(scope="session")
def ask_original(
    run_peer: RunPeer, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Path], Seen]:
    """Opens a run with smdebug 1.0.34 and returns all that it says."""

    def ask(run: Path) -> Seen:
        out = tmp_path_factory.mktemp("seen") / "seen"
        run_peer("read_run.py", run, out)
        with np.load(f"{out}.npz") as stored:
            arrays = dict(stored)

        def with_arrays(item: dict[str, Any]) -> Any:
            return arrays[item["array"]] if item.keys() == {"array"} else item

        text = Path(f"{out}.json").read_text(encoding="utf-8")
        seen: Seen = json.loads(text, object_hook=with_arrays)
        assert seen["version"] == PEER_VERSION
        return seen

    return ask
