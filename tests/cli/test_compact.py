"""`smdebug compact`: what it says, when it refuses, and what is left when it is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.command import smdebug

from smdebug.storage.check.run import check_run
from smdebug.storage.stores.local import LocalStore
from smdebug.testing import make_run
from smdebug.testing.runs import default_batch
from smdebug.trials import create_trial

if TYPE_CHECKING:
    from pathlib import Path

STEPS = 8
# A job that saves steps, says so, and goes on until it is killed.
JOB = """
import sys
from smdebug.storage.writer_lock import WriterLock
from smdebug.storage.stores.local import LocalStore
from smdebug.storage.writer import RunWriter
from smdebug.testing.runs import default_batch, default_collections

store = LocalStore(sys.argv[1])
claim = WriterLock(store, "worker_0")
claim.take()
writer = RunWriter(store)
writer.write_collections(default_collections().to_json())
for step in range(int(sys.argv[2])):
    writer.submit(default_batch("worker_0", step), finish=True)
    writer.flush()
print("saved", flush=True)
sys.stdin.readline()
"""

# The command, killed before the operation of this number on the index.
KILLED = """
import os, signal, sys
from smdebug.cli.main import main

left = int(sys.argv.pop(1))

def counted(function):
    def call(*arguments):
        global left
        if "/index/" in str(arguments[0]):
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments)
    return call

os.replace, os.unlink = counted(os.replace), counted(os.unlink)
sys.argv[0] = "smdebug"
main()
"""


def start_job(run: Path, steps: int = STEPS) -> subprocess.Popen[str]:
    """Starts a job and returns when it has saved its steps."""
    job = subprocess.Popen(
        [sys.executable, "-c", JOB, str(run), str(steps)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert job.stdout is not None
    assert job.stdout.readline() == "saved\n"
    return job


def kill(job: subprocess.Popen[str]) -> None:
    os.kill(job.pid, signal.SIGKILL)
    job.communicate()


def index_files(run: Path) -> list[Path]:
    return list((run / "index").rglob("*.parquet"))


def assert_whole(run: Path, steps: int = STEPS) -> None:
    trial = create_trial(run, wait_seconds=0)
    for name in ("loss", "fc.weight"):
        values = trial.tensor(name).values()
        assert list(values) == list(range(steps))
        for step, value in values.items():
            entries = {each.name: each.value for each in default_batch("worker_0", step).entries}
            assert value.tobytes() == entries[name].tobytes()  # type: ignore[union-attr]
    assert check_run(LocalStore(run)).damages == []


def test_a_job_at_work_and_after_its_end(tmp_path: Path) -> None:
    run = tmp_path / "run"
    job = start_job(run)
    try:
        refused = smdebug(tmp_path, "compact", "run", code=2)
        assert refused.stdout == ""
        assert f"a live process (number {job.pid}) writes to {run} as worker_0" in refused.stderr
        assert len(index_files(run)) == STEPS
    finally:
        kill(job)
    before = sum(path.stat().st_size for path in index_files(run))
    ended = smdebug(tmp_path, "compact", "run")
    assert ended.stderr == ""
    (path,) = index_files(run)
    assert ended.stdout == (
        f"index files: {STEPS} before, 1 after; bytes: {before:,} before, "
        f"{path.stat().st_size:,} after\n"
    )
    assert_whole(run)
    orphan = run / "events/000000000099/000000000099-000099_worker_0.tfevents"
    orphan.parent.mkdir()
    orphan.write_bytes(b"12345")
    ended = smdebug(tmp_path, "compact", "run", "--remove-orphans", "--json")
    assert json.loads(ended.stdout) == {
        "files_before": 1, "files_after": 1,
        "bytes_before": path.stat().st_size, "bytes_after": path.stat().st_size,
        "removed": [orphan.relative_to(run).as_posix()], "removed_bytes": 5,
    }  # fmt: skip
    assert_whole(run)


# Before the new file is there, before the first old one goes, between old ones, at the last one.
@pytest.mark.parametrize("operation", [0, 1, 2, 5, STEPS])
def test_killed_in_the_middle(operation: int, tmp_path: Path) -> None:
    run = tmp_path / "run"
    kill(start_job(run))
    command = [sys.executable, "-c", KILLED, str(operation), "compact", str(run)]
    ended = subprocess.run(command, capture_output=True, timeout=100, check=False)
    assert ended.returncode == -signal.SIGKILL
    left = len(index_files(run))
    assert left == (STEPS if operation == 0 else STEPS + 2 - operation)
    assert_whole(run)
    smdebug(tmp_path, "compact", "run", "--remove-orphans")
    assert len(index_files(run)) == 1
    assert list(run.rglob("*.tmp")) == []
    assert_whole(run)


def test_a_run_of_format_v1_and_none(tmp_path: Path) -> None:
    make_run(tmp_path / "old", format="v1")
    (tmp_path / "empty").mkdir()
    ended = smdebug(tmp_path, "compact", "old")
    assert ended.stdout == "nothing to compact: the run has no index files of format v2\n"
    for place in ("nowhere", "empty"):
        ended = smdebug(tmp_path, "compact", place, code=2)
        assert f"a hook has saved to, got '{place}'" in ended.stderr
