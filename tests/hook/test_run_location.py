"""The directory or bucket a hook writes to: refused, replaced, waited for."""

from __future__ import annotations

import logging
import os
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.hook.numpy_hook import NumpyHook

from smdebug.config.json_config import parse_json_config
from smdebug.config.options import HookOptions
from smdebug.config.save_config import SaveConfig
from smdebug.exceptions import SMDebugRuntimeError, SMDebugValueError
from smdebug.hook.run import overwrite
from smdebug.hook.run.run_location import require_free
from smdebug.hook.worker import Worker
from smdebug.storage.end_marker import EndMarker
from smdebug.storage.findings import Finding, write_findings
from smdebug.storage.format.keys import END_KEY, collections_key
from smdebug.storage.stop_requests import StopRequest, write_stop
from smdebug.storage.stores.base import open_store
from smdebug.storage.stores.memory import MemoryStore
from smdebug.storage.writer_lock import WriterLock, WriterLocked
from smdebug.trials.create import create_trial

if TYPE_CHECKING:
    from pathlib import Path

    from smdebug.storage.stores.base import Store

EVERY = SaveConfig(save_interval=1)
CHIEF, SECOND = Worker("worker_0", 2, True), Worker("worker_1", 2, False)


def save_steps(out_dir: Any, steps: int, close: bool = True, **options: Any) -> NumpyHook:
    hook = NumpyHook(out_dir, save_config=EVERY, save_all=True, **options)
    for step in range(steps):
        hook.run(loss=np.float32(step), weight=np.full(3, step, np.float32))
    if close:
        hook.close()
    return hook


def free(store: Store, worker: Worker = CHIEF, **options: Any) -> bool:
    return require_free(store, HookOptions(store.url, **options), store.url, worker)


def test_finished_run_is_rejected_with_three_suggestions(tmp_path: Path) -> None:
    save_steps(tmp_path, 2)
    with pytest.raises(SMDebugRuntimeError) as caught:
        NumpyHook(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path} already contains a finished run. Use another out_dir, pass overwrite=True to "
        "replace it, or resume=True to continue it."
    )


@pytest.mark.parametrize("format", ["v1", "v2"])
def test_overwrite_replaces_a_finished_run(tmp_path: Path, format: str) -> None:
    save_steps(tmp_path, 5, format="v2" if format == "v1" else "v1", export_tensorboard=True)
    store = open_store(str(tmp_path))
    write_findings(store, [Finding("NonFinite", 1, "loss is not finite", tensor="loss")])
    write_stop(store, StopRequest("enough"))
    own = [
        "notes.txt", "index/notes.txt", "events/mine.tfevents", "collections/readme.md",
        "tensorboard/events.out.tfevents.1", "findings/why.txt", "control/other.json", "reports/x",
    ]  # fmt: skip
    for name in own:
        store.write(name, [b"mine"])
    hook = save_steps(tmp_path, 2, format=format, overwrite=True)
    # The stop request and the findings were about the old run.
    assert hook.stats().saved_steps == 2
    trial = create_trial(str(tmp_path))
    assert trial.steps() == [0, 1]
    assert trial.findings() == []
    assert all(bytes(store.read(name)) == b"mine" for name in own)
    assert not list(store.list("tensorboard/TRAIN"))
    assert not list(store.list("control/stop-"))


def test_overwrite_where_there_is_no_run(tmp_path: Path) -> None:
    save_steps(tmp_path / "new", 2, overwrite=True)
    assert create_trial(str(tmp_path / "new")).steps() == [0, 1]


@pytest.mark.parametrize("marker", [EndMarker(1.0, interrupted=True), None])
def test_overwrite_replaces_an_interrupted_run(tmp_path: Path, marker: EndMarker | None) -> None:
    save_steps(tmp_path, 5)
    (tmp_path / END_KEY).unlink()
    if marker is not None:
        (tmp_path / END_KEY).write_bytes(marker.encode())
    save_steps(tmp_path, 2, overwrite=True)
    assert create_trial(str(tmp_path)).steps() == [0, 1]


def test_overwrite_in_a_store_without_locks() -> None:
    url = "memory://test_run_location/overwrite"
    save_steps(url, 5)
    save_steps(url, 2, overwrite=True)
    assert create_trial(url).steps() == [0, 1]
    # Without an end marker, a live process may be writing to it.
    MemoryStore.named(url).delete(END_KEY)
    with pytest.raises(
        SMDebugRuntimeError, match="no end marker, so another process may be writing"
    ):
        NumpyHook(url, overwrite=True)
    assert create_trial(url, wait_seconds=0).steps() == [0, 1]


def test_a_run_that_a_live_process_writes_to_is_not_overwritten(tmp_path: Path) -> None:
    hook = save_steps(tmp_path, 2, close=False)
    hook.flush()
    before = sorted(open_store(str(tmp_path)).list())
    with pytest.raises(WriterLocked):
        NumpyHook(tmp_path, overwrite=True)
    assert sorted(open_store(str(tmp_path)).list()) == before
    hook.close()


def test_overwrite_follows_no_links(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    save_steps(outside, 3)
    files = sorted(path for path in outside.rglob("*") if path.is_file())
    run = tmp_path / "run"
    run.mkdir()
    (run / "index").symlink_to(outside / "index")
    (run / "collections").symlink_to(outside / "collections")
    (run / END_KEY).symlink_to(outside / END_KEY)
    assert not free(open_store(str(run)), overwrite=True)
    assert sorted(path for path in outside.rglob("*") if path.is_file()) == files
    assert not (run / END_KEY).is_symlink()


def test_rules_see_the_steps_of_the_new_run(tmp_path: Path) -> None:
    """The files of the new run have the names of those that were deleted."""
    save_steps(tmp_path, 3)
    hook = save_steps(tmp_path, 2, close=False, overwrite=True, rules=["NonFinite"])
    hook.run(loss=np.float32("nan"), weight=np.zeros(3, np.float32))
    hook.close()
    assert [finding.step for finding in create_trial(str(tmp_path)).findings()] == [2]


class TestWorkers:
    """A job of several workers, which start one after another."""

    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        """A finished run of three workers."""
        for worker in ("worker_0", "worker_1", "worker_2"):
            save_steps(tmp_path, 3, worker=worker, include_workers="all")
            (tmp_path / END_KEY).unlink(missing_ok=True)
        (tmp_path / END_KEY).touch()
        return open_store(str(tmp_path))

    def test_the_chief_deletes_the_files_of_all(self, store: Store) -> None:
        assert free(store, CHIEF, overwrite=True) is False
        assert [key for key in store.list() if not key.startswith("locks/")] == []

    def test_another_worker_deletes_nothing(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(overwrite, "_PATIENCE", 0.0)
        before = list(store.list())
        with pytest.raises(SMDebugRuntimeError, match="worker_0 has not deleted it within 0 s"):
            free(store, SECOND, overwrite=True)
        assert list(store.list()) == before

    def test_an_early_worker_waits(self, store: Store, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO)
        early = threading.Thread(target=free, args=(store, SECOND), kwargs={"overwrite": True})
        early.start()
        early.join(0.3)
        assert early.is_alive()
        free(store, CHIEF, overwrite=True)
        early.join(60)
        assert not early.is_alive()
        assert "Waiting for worker_0 to delete the run" in caplog.text

    def test_a_late_worker_leaves_what_was_written_since(self, store: Store) -> None:
        chief = NumpyHook(store.url, save_config=EVERY, include_workers="all", overwrite=True)
        chief.run(loss=np.float32(1))
        chief.flush()
        before = list(store.list())
        assert free(store, SECOND, overwrite=True) is False
        assert list(store.list()) == before
        chief.close()
        # The end of this very job, without files of the late worker, is no reason to refuse it.
        assert free(store, Worker("worker_9", 10, False)) is False

    def test_a_worker_that_starts_again_does_not_wait(self, store: Store) -> None:
        """Its own files are those of this job where the chief worker is at work."""
        lock = WriterLock(store, CHIEF.name)
        lock.take()
        before = list(store.list())
        # The lock is held by this process: checked from another one.
        pid = os.fork()
        if not pid:
            os._exit(0 if free(store, SECOND, overwrite=True) is False else 1)
        assert os.waitpid(pid, 0)[1] == 0
        assert list(store.list()) == before
        lock.release()

    def test_running_worker_keeps_its_files(self, store: Store) -> None:
        """One without old files does not wait, and may have saved steps before the chief starts."""
        lock = WriterLock(store, "worker_2")
        lock.take()
        free(store, CHIEF, overwrite=True)
        lock.release()
        left = [key for key in store.list() if not key.startswith("locks/")]
        assert left
        assert all("worker_2" in key for key in left)
        assert collections_key("worker_2") in left


def test_overwrite_is_a_bool_and_a_key_of_the_json_config(tmp_path: Path) -> None:
    with pytest.raises(SMDebugValueError, match="overwrite must be true or false"):
        NumpyHook(tmp_path, overwrite="perhaps")  # type: ignore[arg-type]
    config = parse_json_config({"LocalPath": "/tmp/x", "HookParameters": {"overwrite": "true"}})
    assert config.options.overwrite is True


def test_overwrite_and_resume_contradict_each_other(tmp_path: Path) -> None:
    with pytest.raises(SMDebugValueError, match="resume and overwrite must not be given together"):
        NumpyHook(tmp_path, overwrite=True, resume=True)
