"""Jobs that are killed with SIGKILL again and again have the run of one that was left in peace."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.spot import contents

if TYPE_CHECKING:
    from collections.abc import Callable

PROGRAM = Path(__file__).parent / "programs" / "spot.py"
TIMEOUT_SECONDS = 110


def train(place: Path, way: str, format: str, kills: int, processes: int = 1) -> dict[str, Any]:
    """Trains in processes of their own; returns what the run holds."""
    place.mkdir()
    config = place / "checkpoint_config.json"
    config.write_text(json.dumps({"LocalPath": str(place / "checkpoints")}), encoding="utf-8")
    environment = dict(os.environ)
    environment.pop("CHECKPOINT_CONFIG_FILE_PATH", None)
    # The program uses what tests of other frameworks use too.
    root = str(Path(__file__).parent.parent.parent)
    environment["PYTHONPATH"] = os.pathsep.join(
        [root, *filter(None, [environment.get("PYTHONPATH")])]
    )
    if way == "directory":
        environment["CHECKPOINT_CONFIG_FILE_PATH"] = str(config)
    arguments = [place, way, format, kills, kills + len(way), processes]
    done = subprocess.run(
        [sys.executable, str(PROGRAM), *map(str, arguments)],
        env=environment, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return contents(place / "run")


@pytest.fixture(scope="module")
def in_peace(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict[str, Any]]:
    """The contents of the run of a job that was not killed."""
    known: dict[tuple[str, str, int], dict[str, Any]] = {}

    def of(way: str, format: str, processes: int = 1) -> dict[str, Any]:
        # Only one of the ways makes a difference to what is saved.
        key = ("run" if way == "run" else "step", format, processes)
        if key not in known:
            place = tmp_path_factory.mktemp("in_peace") / "job"
            known[key] = train(place, key[0], format, 0, processes)
        return known[key]

    return of


@pytest.mark.parametrize("format", ["v1", "v2"])
@pytest.mark.parametrize("way", ["directory", "step", "run"])
def test_run_after_twenty_kills_equals_an_uninterrupted_run(
    tmp_path: Path, in_peace: Callable[..., dict[str, Any]], way: str, format: str
) -> None:
    expected = in_peace(way, format)
    # Losses are saved as scalars at every step of training.
    assert expected["steps"]["TRAIN"] == list(range(80))
    assert expected["steps"]["EVAL"] == list(range(0, 30, 1 if way == "run" else 2))
    found = train(tmp_path / "job", way, format, 20)
    assert found.keys() == expected.keys()
    assert found == expected


def test_run_of_two_killed_processes_equals_an_uninterrupted_run(
    tmp_path: Path, in_peace: Callable[..., dict[str, Any]]
) -> None:
    expected = in_peace("step", "v2", processes=2)
    assert expected["workers"] == ["worker_0", "worker_1"]
    found = train(tmp_path / "job", "step", "v2", 6, processes=2)
    assert found.keys() == expected.keys()
    assert found == expected
