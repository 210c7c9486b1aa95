"""Whether somebody lives who writes to a run."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from smdebug.exceptions import SMDebugRuntimeError
from smdebug.storage.claim import Claim
from smdebug.storage.local import LocalStore
from smdebug.storage.locks import is_written, lock, lock_path, unlock
from smdebug.storage.memory import MemoryStore

if TYPE_CHECKING:
    from pathlib import Path


def test_who_writes(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    assert is_written(store) is None
    first, second = Claim(store, "worker_0"), Claim(store, "worker_1")
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
    claim = Claim(store, "worker_0")
    claim.take()
    claim.release()
    (tmp_path / "locks" / "other.lock").symlink_to(tmp_path / "nowhere")
    assert is_written(store) is None


def test_a_writer_that_comes_while_somebody_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(tmp_path)
    claim = Claim(store, "worker_0")
    claim.take()
    claim.release()
    path = lock_path(store, "worker_0")
    assert path is not None
    looking = os.open(path, os.O_RDONLY)
    try:
        assert lock(looking, shared=True)
        with pytest.raises(SMDebugRuntimeError, match="another live process"):
            claim.take()
        # Whoever looks is gone before the writer has lost its patience.
        monkeypatch.setattr("smdebug.storage.claim.time.sleep", lambda seconds: unlock(looking))
        claim.take()
        assert is_written(store) is True
    finally:
        os.close(looking)
        claim.release()
