"""One live process per worker of a run."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from smdebug.exceptions import SMDebugRuntimeError, SMDebugValueError
from smdebug.storage.stores.local import LocalStore
from smdebug.storage.stores.memory import MemoryStore
from smdebug.storage.writer_lock import WriterLock, is_written, lock_key, locked_workers

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_HOLD = """
import sys
from smdebug.storage.writer_lock import WriterLock
from smdebug.storage.stores.local import LocalStore

claim = WriterLock(LocalStore(sys.argv[1]), "worker_0")
claim.take()
print("taken", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock of worker_0."""
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "taken\n"
    yield process
    if process.poll() is None:
        os.kill(process.pid, signal.SIGKILL)
    process.communicate()


def test_check_creates_no_file(tmp_path: Path) -> None:
    WriterLock(LocalStore(tmp_path / "run"), "worker_0").check()
    assert list(tmp_path.iterdir()) == []


def test_lock_is_taken_and_released(tmp_path: Path) -> None:
    first, second = (WriterLock(LocalStore(tmp_path), "worker_0") for _ in range(2))
    first.take()
    first.take()
    for attempt in (second.check, second.take):
        with pytest.raises(SMDebugRuntimeError, match=rf"\b{os.getpid()}\b"):
            attempt()
    first.release()
    first.release()
    second.check()
    second.take()
    with pytest.raises(SMDebugRuntimeError):
        first.take()
    second.release()


def test_message_has_process_worker_directory_and_remedy(
    tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    with pytest.raises(SMDebugRuntimeError) as caught:
        WriterLock(LocalStore(tmp_path), "worker_0").check()
    assert WriterLock(LocalStore(tmp_path), "worker_0").holder() == str(holder.pid)
    assert WriterLock(LocalStore(tmp_path), "worker_1").holder() is None
    message = str(caught.value)
    for part in (str(holder.pid), "worker_0", str(tmp_path), "out_dir", "worker="):
        assert part in message


def test_other_workers_are_not_locked(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    claim = WriterLock(LocalStore(tmp_path), "worker_1")
    claim.check()
    claim.take()
    claim.release()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_lock_ends_with_its_process(
    tmp_path: Path, holder: subprocess.Popen[str], how: signal.Signals
) -> None:
    os.kill(holder.pid, how)
    holder.wait()
    claim = WriterLock(LocalStore(tmp_path), "worker_0")
    claim.check()
    claim.take()
    claim.release()


def test_child_program_does_not_keep_the_lock(tmp_path: Path) -> None:
    claim = WriterLock(LocalStore(tmp_path), "worker_0")
    claim.take()
    command = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.readline()"]
    child = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, close_fds=False
    )
    try:
        # It runs: until then it may still have what it is about to give up.
        assert child.stdout is not None
        child.stdout.readline()
        claim.release()
        other = WriterLock(LocalStore(tmp_path), "worker_0")
        other.take()
        other.release()
    finally:
        child.communicate(b"\n")


@pytest.mark.parametrize(
    ("one", "other"),
    [("a/b", "a_b"), ("/job:worker/replica:0", "_job:worker_replica:0"), ("a b", "a%20b")],
)
def test_workers_with_similar_names_have_separate_locks(
    tmp_path: Path, one: str, other: str
) -> None:
    first, second = WriterLock(LocalStore(tmp_path), one), WriterLock(LocalStore(tmp_path), other)
    first.take()
    try:
        second.check()
        second.take()
        assert sorted(locked_workers(LocalStore(tmp_path))) == sorted([one, other])
    finally:
        first.release()
        second.release()


@pytest.mark.parametrize(
    "error", [OSError(38, "Function not implemented"), OSError(95, "No locks")]
)
def test_a_file_system_without_locks_locks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    def refuse(file: int, kind: int) -> None:
        if kind & fcntl.LOCK_NB:
            raise error

    monkeypatch.setattr(fcntl, "flock", refuse)
    first, second = (WriterLock(LocalStore(tmp_path), "worker_0") for _ in range(2))
    first.take()
    second.check()
    second.take()
    assert is_written(LocalStore(tmp_path)) is None
    first.release()
    second.release()


@pytest.mark.parametrize("ends", ["leaves", "dies"])
def test_a_forked_child_leaves_the_lock_to_its_parent(tmp_path: Path, ends: str) -> None:
    lock = WriterLock(LocalStore(tmp_path), "worker_0")
    lock.take()
    child = os.fork()
    if child == 0:  # pragma: no cover - another process
        if ends == "leaves":
            lock.leave()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert WriterLock(LocalStore(tmp_path), "worker_0").holder() == str(os.getpid())
    lock.release()


def test_concurrent_readers_are_not_taken_for_writers(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    lock = WriterLock(store, "worker_0")
    lock.take()
    lock.release()
    path = tmp_path / lock_key("worker_0")
    path.chmod(0o444)
    with path.open() as other:
        fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
        assert is_written(store) is False


def test_store_without_files_has_no_locks() -> None:
    store = MemoryStore()
    first, second = WriterLock(store, "worker_0"), WriterLock(store, "worker_0")
    first.take()
    second.check()
    second.take()
    first.release()
    second.release()


def test_lock_files_are_not_part_of_the_run(tmp_path: Path) -> None:
    from smdebug.testing import make_run
    from smdebug.trials import create_trial

    make_run(tmp_path, steps=[0, 1])
    claim = WriterLock(LocalStore(tmp_path), "worker_0")
    claim.take()
    assert create_trial(tmp_path, check=True).steps() == [0, 1]
    claim.release()


_JOIN = _HOLD.replace('"worker_0")', '"worker_0", compacting=True)')


def test_job_waits_for_compaction(tmp_path: Path) -> None:
    joining = subprocess.Popen(
        [sys.executable, "-c", _JOIN, str(tmp_path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert joining.stdout is not None
    assert joining.stdout.readline() == "taken\n"
    job = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(tmp_path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    joining.communicate("go\n")
    assert job.communicate("go\n")[0] == "taken\n"
    assert (joining.returncode, job.returncode) == (0, 0)
    assert WriterLock(LocalStore(tmp_path), "worker_0").holder() is None


# ---- whether a run is being written


def test_is_written_while_any_worker_holds_its_lock(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    assert is_written(store) is None
    first, second = WriterLock(store, "worker_0"), WriterLock(store, "worker_1")
    first.take()
    second.take()
    assert is_written(store) is True
    first.release()
    assert is_written(store) is True
    second.release()
    assert is_written(store) is False
    assert is_written(MemoryStore()) is None


def test_unreadable_lock_is_unknown(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    claim = WriterLock(store, "worker_0")
    claim.take()
    claim.release()
    (tmp_path / "locks" / "other.lock").symlink_to(tmp_path / "nowhere")
    assert is_written(store) is None


def test_writer_starts_while_a_reader_checks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(tmp_path)
    claim = WriterLock(store, "worker_0")
    claim.take()
    claim.release()
    path = store.path(lock_key("worker_0"))
    assert path is not None
    looking = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(looking, fcntl.LOCK_SH | fcntl.LOCK_NB)
        with pytest.raises(SMDebugRuntimeError, match="another live process"):
            claim.take()
        # The reader is gone before the writer stops waiting.
        monkeypatch.setattr(
            "smdebug.storage.writer_lock.time.sleep",
            lambda seconds: fcntl.flock(looking, fcntl.LOCK_UN),
        )
        claim.take()
        assert is_written(store) is True
    finally:
        os.close(looking)
        claim.release()


@pytest.mark.parametrize("folder", [False, True])
def test_lock_does_not_truncate_the_target_of_a_link(tmp_path: Path, folder: bool) -> None:
    run, outside = tmp_path / "run", tmp_path / "outside"
    outside.mkdir()
    precious = outside / "worker_0.lock"
    precious.write_text("precious")
    (run if folder else run / "locks").mkdir(parents=True)
    link, target = ("locks", outside) if folder else ("locks/worker_0.lock", precious)
    (run / link).symlink_to(target)
    claim = WriterLock(LocalStore(run), "worker_0")
    for attempt in (claim.take, claim.check):
        with pytest.raises(SMDebugValueError, match=r"own directory only"):
            attempt()
    with pytest.raises(SMDebugValueError, match=r"own directory only"):
        WriterLock(LocalStore(run), "worker_1" if folder else "worker_0").take()
    assert precious.read_text() == "precious"
    assert [path.name for path in outside.iterdir()] == ["worker_0.lock"]
    assert is_written(LocalStore(run)) is None


def test_lock_on_a_pipe_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "locks").mkdir()
    os.mkfifo(tmp_path / "locks" / "worker_0.lock")
    with pytest.raises(SMDebugValueError, match=r"is no file"):
        WriterLock(LocalStore(tmp_path), "worker_0").take()
    assert is_written(LocalStore(tmp_path)) is None
