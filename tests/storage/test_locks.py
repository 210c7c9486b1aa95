"""Whether somebody lives who writes to a run."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from smdebug.exceptions import SMDebugRuntimeError, SMDebugValueError
from smdebug.storage.locks import is_written, lock, lock_key, unlock
from smdebug.storage.stores.local import LocalStore
from smdebug.storage.stores.memory import MemoryStore
from smdebug.storage.writer_lock import WriterLock

if TYPE_CHECKING:
    from pathlib import Path


def test_who_writes(tmp_path: Path) -> None:
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


def test_a_lock_that_nobody_may_look_at_says_nothing(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    claim = WriterLock(store, "worker_0")
    claim.take()
    claim.release()
    (tmp_path / "locks" / "other.lock").symlink_to(tmp_path / "nowhere")
    assert is_written(store) is None


def test_a_writer_that_comes_while_somebody_looks(
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
        assert lock(looking, shared=True)
        with pytest.raises(SMDebugRuntimeError, match="another live process"):
            claim.take()
        # Whoever looks is gone before the writer has lost its patience.
        monkeypatch.setattr(
            "smdebug.storage.writer_lock.time.sleep", lambda seconds: unlock(looking)
        )
        claim.take()
        assert is_written(store) is True
    finally:
        os.close(looking)
        claim.release()


@pytest.mark.parametrize("folder", [False, True])
def test_a_claim_empties_nothing_behind_a_link(tmp_path: Path, folder: bool) -> None:
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


def test_a_claim_on_a_pipe_is_refused(tmp_path: Path) -> None:
    (tmp_path / "locks").mkdir()
    os.mkfifo(tmp_path / "locks" / "worker_0.lock")
    with pytest.raises(SMDebugValueError, match=r"is no file"):
        WriterLock(LocalStore(tmp_path), "worker_0").take()
    assert is_written(LocalStore(tmp_path)) is None
