"""The store in a directory."""

from __future__ import annotations

import multiprocessing
import os
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from smdebug.exceptions import SMDebugValueError
from smdebug.storage.stores.local import LocalStore, populate
from smdebug.testing import StoreContract

if TYPE_CHECKING:
    from collections.abc import Iterator

    from smdebug.storage.stores.base import Buffer, Store

_LARGE = 1 << 17


def files_below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


class TestLocalStore(StoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return LocalStore(tmp_path / "run")


# ---- writing


def test_opening_touches_nothing(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "run")
    assert list(store.list()) == []
    with pytest.raises(KeyError):
        store.read("x")
    assert list(tmp_path.iterdir()) == []


def test_failing_chunks_leave_no_file(tmp_path: Path) -> None:
    def chunks() -> Iterator[Buffer]:
        yield bytes(3 << 20)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        LocalStore(tmp_path).write("events/x", chunks())
    assert files_below(tmp_path) == []


def test_temporary_files_are_invisible(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.write("index/x", [b"1"])
    (tmp_path / "index" / "y.123.tmp").write_bytes(b"half")
    assert list(store.list()) == ["index/x"]


def test_the_folder_may_vanish_between_writes(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.write("a/x", [b"1"])
    store.delete("a/x")
    (tmp_path / "a").rmdir()
    store.write("a/x", [b"2"])
    assert bytes(store.read("a/x")) == b"2"


def test_a_write_inside_a_write_of_the_same_key(tmp_path: Path) -> None:
    """Two writers of one process and one key; the later one finishes first."""
    store = LocalStore(tmp_path)

    def chunks() -> Iterator[Buffer]:
        yield b"a" * (2 << 20)
        LocalStore(tmp_path).write("x", [b"inner"])
        assert bytes(store.read("x")) == b"inner"
        yield b"a"
        assert bytes(store.read("x")) == b"inner"

    store.write("x", chunks())
    assert bytes(store.read("x")) == b"a" * ((2 << 20) + 1)
    assert files_below(tmp_path) == ["x"]


def test_threads_that_write_the_same_key(tmp_path: Path) -> None:
    """What several writers of one process do with the marker of the run's end."""
    start = threading.Barrier(4)
    failures: list[BaseException] = []

    def write(letter: bytes) -> None:
        store = LocalStore(tmp_path)
        start.wait()
        try:
            for _ in range(50):
                store.write("training_job_end.ts", [letter * 1000] * 1000)
        except OSError as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(letter,)) for letter in (b"a", b"b", b"c")]
    for thread in threads:
        thread.start()
    start.wait()
    for thread in threads:
        thread.join()
    assert failures == []
    data = bytes(LocalStore(tmp_path).read("training_job_end.ts"))
    assert data == data[:1] * 1_000_000
    assert files_below(tmp_path) == ["training_job_end.ts"]


def _write_often(folder: str, letter: bytes, gate: threading.Barrier) -> None:
    store = LocalStore(folder)
    gate.wait()
    for _ in range(50):
        store.write("x", [letter * 4096] * 300)


def test_processes_that_write_the_same_key(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    gate = context.Barrier(2)
    processes = [
        context.Process(target=_write_often, args=(str(tmp_path), letter, gate))
        for letter in (b"a", b"b")
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0]
    data = bytes(LocalStore(tmp_path).read("x"))
    assert data == data[:1] * (4096 * 300)
    assert files_below(tmp_path) == ["x"]


# ---- reading


@pytest.mark.parametrize("size", [10, _LARGE])
def test_a_view_outlives_its_file(tmp_path: Path, size: int) -> None:
    store = LocalStore(tmp_path)
    store.write("x", [b"z" * size])
    view = store.read("x")
    populate(view, 0, size)
    store.delete("x")
    assert bytes(view) == b"z" * size


def test_a_view_outlives_an_overwrite(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.write("x", [b"1" * _LARGE])
    view = store.read("x")
    store.write("x", [b"2" * _LARGE])
    assert bytes(view) == b"1" * _LARGE


@pytest.mark.parametrize("first", [0, 5, 5000, _LARGE, 2**63 - 1, -1])
@pytest.mark.parametrize("length", [0, 1, _LARGE, 2**40, 2**63 - 1, -1])
def test_populating_is_only_a_hint(tmp_path: Path, first: int, length: int) -> None:
    """The numbers may come from a hostile index."""
    store = LocalStore(tmp_path)
    store.write("x", [b"z" * _LARGE])
    populate(store.read("x"), first, length)


@pytest.mark.parametrize("start", [0, 1, 4095, 4096, 4097, 65536])
def test_mapped_ranges(tmp_path: Path, start: int) -> None:
    data = os.urandom(3 * _LARGE)
    store = LocalStore(tmp_path)
    store.write("x", [data])
    assert bytes(store.read("x", start, _LARGE)) == data[start : start + _LARGE]


# ---- links and other things that are no plain file


@pytest.fixture
def linked(tmp_path: Path) -> LocalStore:
    """A run with links to a file and a folder outside it."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    run = tmp_path / "run"
    (run / "events").mkdir(parents=True)
    (run / "events" / "file").symlink_to(outside / "secret")
    (run / "folder").symlink_to(outside)
    (run / "events" / "deep").symlink_to(outside, target_is_directory=True)
    return LocalStore(run)


@pytest.mark.parametrize("key", ["events/file", "folder/secret", "events/deep/secret"])
@pytest.mark.parametrize("length", [None, 0])
def test_links_that_lead_out_are_refused(linked: LocalStore, key: str, length: int | None) -> None:
    with pytest.raises(SMDebugValueError, match=r"symbolic link|outside"):
        linked.read(key, 0, length)


@pytest.mark.parametrize("prefix", ["", "folder/", "folder/s", "events/deep/"])
def test_files_reached_by_links_are_not_listed(linked: LocalStore, prefix: str) -> None:
    assert [key for key in linked.list(prefix) if "secret" in key] == []


@pytest.mark.parametrize("key", ["folder/new", "events/deep/new"])
def test_nothing_is_written_through_a_link(linked: LocalStore, key: str, tmp_path: Path) -> None:
    with pytest.raises(SMDebugValueError, match="outside"):
        linked.write(key, [b"x"])
    assert files_below(tmp_path / "outside") == ["secret"]


def test_nothing_is_deleted_through_a_link(linked: LocalStore, tmp_path: Path) -> None:
    with pytest.raises(SMDebugValueError, match="outside"):
        linked.delete("folder/secret")
    assert files_below(tmp_path / "outside") == ["secret"]


def test_path_of_the_run_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real" / "run").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    store = LocalStore(tmp_path / "link" / "run")
    store.write("events/x", [b"1"])
    assert bytes(store.read("events/x")) == b"1"
    assert list(LocalStore(tmp_path / "real" / "run").list()) == ["events/x"]


def test_a_pipe_does_not_block_the_reader(tmp_path: Path) -> None:
    (tmp_path / "index").mkdir()
    pipe = tmp_path / "index" / "pipe"
    os.mkfifo(pipe)
    answers: list[object] = []

    def read() -> None:
        try:
            answers.append(bytes(LocalStore(tmp_path).read("index/pipe")))
        except (KeyError, SMDebugValueError, OSError) as error:
            answers.append(error)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    thread.join(5)
    blocked = thread.is_alive()
    if blocked:  # open the other end, so that the thread can go
        pipe.open("wb").close()
        thread.join(5)
    assert not blocked
    assert isinstance(answers[0], KeyError | SMDebugValueError)


# ---- the root


def test_home_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    LocalStore("~/run").write("x", [b"1"])
    assert (tmp_path / "run" / "x").read_bytes() == b"1"


def test_a_relative_root_stays_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = LocalStore("run")
    monkeypatch.chdir("/")
    store.write("x", [b"1"])
    assert (tmp_path / "run" / "x").read_bytes() == b"1"
    assert store.url == str(tmp_path / "run")


@pytest.mark.parametrize("name", ["with space", "a__b", "100%", "ünï", "a:b"])
def test_unusual_paths(tmp_path: Path, name: str) -> None:
    store = LocalStore(tmp_path / name)
    store.write("a/x", [b"1"])
    assert list(LocalStore(f"{tmp_path / name}/").list()) == ["a/x"]


def test_full_or_unwritable_directory_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OSError, match="file"):
        LocalStore(tmp_path / "file").write("a/x", [b"1"])
    with pytest.raises(KeyError):
        LocalStore(tmp_path / "file").read("a/x")
    assert list(LocalStore(tmp_path / "file").list("a/")) == []


def test_cache_of_folders_is_bounded(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    for step in range(1100):
        store.write(f"events/{step:012d}/x", [b"x"])
    assert len(store._made) <= 1000
    assert len(store._inside) <= 1000
    assert bytes(store.read("events/000000000000/x")) == b"x"


def test_paths_that_are_not_files_are_reported(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        here = Path.cwd()
        os.chdir(tmp_path)  # the name of a socket must be short
        try:
            listening.bind("socket")
        finally:
            os.chdir(here)
        for key in ("pipe", "socket"):
            with pytest.raises(SMDebugValueError, match="is no file"):
                LocalStore(tmp_path).read(key)


def test_the_path_of_a_key_stays_inside(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "folder").symlink_to(tmp_path)
    store = LocalStore(tmp_path / "run")
    assert store.path("other/x") == str(tmp_path / "run" / "other" / "x")
    with pytest.raises(SMDebugValueError, match="own directory only"):
        store.path("folder/x")
