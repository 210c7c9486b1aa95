"""`smdebug ls`: which runs it finds, what it says of them, and how it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pytest
from tests.command import on_terminal, smdebug

from smdebug.exceptions import SMDebugRuntimeError
from smdebug.storage.findings import Finding, write_findings
from smdebug.storage.stores.base import open_store
from smdebug.storage.stores.local import LocalStore
from smdebug.storage.writer_lock import WriterLock
from smdebug.testing import make_run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.unreliable import Unreliable


def listed(directory: Path, *arguments: str) -> dict[str, dict[str, Any]]:
    """What the command says of every run, in its order."""
    ended = smdebug(directory, "ls", *arguments, "--json")
    return {run["path"]: run for run in json.loads(ended.stdout)}


def size_of(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some runs, and what looks like one and is none."""
    root = tmp_path_factory.mktemp("runs")
    make_run(root / "a" / "one", range(0, 50, 5), workers=["w0", "w1"])
    make_run(root / "a" / "old", range(4), format="v1")
    make_run(root / "b" / "live", range(7), end=False)
    make_run(root / "b" / "none", steps=[])
    # A run in a run is a part of it, as checkpoints are.
    make_run(root / "a" / "one" / "checkpoints" / "inner")
    (root / "pages" / "index").mkdir(parents=True)
    (root / "pages" / "index" / "events.html").write_text("no run", encoding="utf-8")
    findings = [Finding("NonFinite", 2, "loss is NaN"), Finding("NonFinite", 3, "loss is NaN")]
    write_findings(LocalStore(root / "b" / "live"), [*findings, Finding("Stalled", 5, "it stands")])
    (root / "link").symlink_to(root / "a")
    # The newest file of each, from the oldest run to the newest.
    for age, run in enumerate(["b/live", "a/old", "a/one", "b/none"]):
        for file in (root / run).rglob("*"):
            os.utime(file, (1e9 + age, 1e9 + age))
    return root


def test_what_is_said_of_runs(runs: Path) -> None:
    found = listed(runs, ".")
    assert list(found) == ["a/old", "a/one", "b/live", "b/none"]
    one = found["a/one"]
    assert (one["steps"], one["last_step"], one["tensors"]) == (10, 45, 2)
    assert (one["state"], one["format"], one["workers"]) == ("finished", "v2", ["w0", "w1"])
    old = found["a/old"]
    assert (old["steps"], old["last_step"], old["tensors"]) == (4, 3, 2)
    assert (old["state"], old["format"]) == ("finished", "v1")
    assert found["b/live"]["findings"] == {"NonFinite": 2, "Stalled": 1}
    assert found["b/live"]["state"] == "live"
    none = found["b/none"]
    assert (none["steps"], none["last_step"], none["tensors"]) == (0, None, 0)
    assert none["state"] == "finished"
    for path, run in found.items():
        assert run["size"] == size_of(runs / path)
        assert run["problem"] is None
    assert [found[path]["modified"] for path in found] == [1e9 + 1, 1e9 + 2, 1e9, 1e9 + 3]


def test_the_table(runs: Path) -> None:
    ended = smdebug(runs, "ls")
    assert ended.stderr == ""
    head, *rows = [line.split() for line in ended.stdout.splitlines()]
    assert head == ["run", "steps", "last", "tensors", "size", "state", "written", "findings"]
    assert rows[1][:4] == ["a/one", "10", "45", "2"]
    # Whole, however wide that is: other programs read it.
    assert "3: NonFinite, Stalled" in smdebug(runs, "ls", COLUMNS="40").stdout


@pytest.mark.parametrize("columns", [80, 60, 40])
def test_a_narrow_terminal(tmp_path: Path, columns: int) -> None:
    make_run(tmp_path / "a-run-with-a-long-name", steps=[10**12 - 1])
    rules = ["LossNotDecreasing", "PoorWeightInitialization"]
    findings = [Finding(rule, 0, "found") for rule in rules]
    write_findings(LocalStore(tmp_path / "a-run-with-a-long-name"), findings)
    code, shown = on_terminal(tmp_path, "ls", COLUMNS=str(columns))
    # On a slow machine there was a bar, which moves about.
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)
    assert code == 0
    assert max(map(len, plain.splitlines())) <= columns
    # What is left of it is whole.
    assert "a-run-with-a-long-name" in "".join(line.split("  ")[0] for line in plain.splitlines())
    assert "finished" in plain
    for rule in rules if columns > 40 else []:
        assert rule in plain


def test_orders(runs: Path) -> None:
    assert list(listed(runs, "--sort", "time")) == ["b/none", "a/one", "a/old", "b/live"]
    assert list(listed(runs, "--sort", "steps")) == ["a/one", "b/live", "a/old", "b/none"]
    assert next(iter(listed(runs, "--sort", "findings"))) == "b/live"
    by_size = list(listed(runs, "--sort", "size"))
    assert by_size == sorted(by_size, key=lambda path: -size_of(runs / path))


def test_a_run_itself_and_a_place_without_any(runs: Path) -> None:
    assert list(listed(runs, "a/one")) == ["."]
    ended = smdebug(runs, "ls", "pages", "--json")
    assert json.loads(ended.stdout) == []
    assert ended.stderr == "smdebug: no runs found below pages\n"
    assert smdebug(runs, "ls", "pages").stdout == ""


def test_a_place_that_is_not_there(runs: Path) -> None:
    refused = smdebug(runs, "ls", "pagse", code=2)
    assert "got 'pagse'" in refused.stderr
    assert "did you mean pages?" in refused.stderr
    assert "no directory" in smdebug(runs, "ls", "pages/index/events.html", code=2).stderr


def test_damaged_runs_are_lines_like_others(tmp_path: Path) -> None:
    for name in ("bytes", "collections", "findings", "gone", "sound"):
        make_run(tmp_path / name)
    (index,) = (tmp_path / "bytes" / "index").rglob("*.parquet")
    content = bytearray(index.read_bytes())
    content[len(content) // 2] ^= 1
    index.write_bytes(content)
    (file,) = (tmp_path / "collections" / "collections").rglob("*.json")
    file.write_text("{", encoding="utf-8")
    key = write_findings(LocalStore(tmp_path / "findings"), [Finding("A", 1, "b")])
    (tmp_path / "findings" / str(key)).write_bytes(b"PAR1")
    (file,) = (tmp_path / "gone" / "collections").rglob("*.json")
    file.unlink()
    ended = smdebug(tmp_path, "ls", "--json")
    found = {run["path"]: run for run in json.loads(ended.stdout)}
    assert {path for path, run in found.items() if run["state"] == "damaged"} == {
        "bytes", "collections", "findings", "gone",
    }  # fmt: skip
    assert "checksum" in found["bytes"]["problem"]
    assert "not JSON" in found["collections"]["problem"]
    assert "checksum" in found["findings"]["problem"]
    assert "there is no collections file of worker worker_0" in found["gone"]["problem"]
    assert "4 of 5 runs are damaged; smdebug check" in ended.stderr
    shown = smdebug(tmp_path, "ls")
    assert shown.stdout.count("damaged") >= 4
    assert "finished" in shown.stdout


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
def writer(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A live process that has the claim on a run that has not ended."""
    make_run(tmp_path / "run", end=False)
    command = [sys.executable, "-c", _HOLD, str(tmp_path / "run")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "taken\n"
        yield process
        process.kill()


def test_a_run_that_nothing_can_open(tmp_path: Path) -> None:
    make_run(tmp_path / "run", workers=["w0", "w1"], num_workers=3)
    found = listed(tmp_path)["run"]
    assert found["state"] == "damaged"
    assert found["problem"] == "it has ended with 2 of 3 collections files"


def test_a_run_whose_process_is_gone(tmp_path: Path, writer: subprocess.Popen[str]) -> None:
    assert listed(tmp_path)["run"]["state"] == "live"
    # Looking takes nothing away.
    with pytest.raises(SMDebugRuntimeError, match=str(writer.pid)):
        WriterLock(LocalStore(tmp_path / "run"), "worker_0").check()
    os.kill(writer.pid, signal.SIGKILL)
    writer.wait()
    assert listed(tmp_path)["run"]["state"] == "stopped"
    make_run(tmp_path / "run", steps=range(5, 6))
    assert listed(tmp_path)["run"]["state"] == "finished"


def test_names_do_nothing_to_a_terminal(tmp_path: Path) -> None:
    make_run(tmp_path / "a\x1b[2Jb[red]c")
    ended = smdebug(tmp_path, "ls")
    assert "a\\x1b[2Jb[red]c" in ended.stdout
    assert "\x1b" not in ended.stdout


def test_an_object_store(bucket: str, proxy: Unreliable, tmp_path: Path) -> None:
    place = f"s3://{bucket}/experiments"
    store = open_store(place)
    sizes = {}
    for name, format in (("a/one", "v2"), ("a/old", "v1"), ("live", "v2"), ("bad", "v2")):
        make_run(tmp_path / name, range(4), format=format, end=name != "live")
        sizes[name] = size_of(tmp_path / name)
        for file in (tmp_path / name).rglob("*"):
            if file.is_file():
                key = f"{name}/{file.relative_to(tmp_path / name).as_posix()}"
                content = file.read_bytes()
                if name == "bad" and key.endswith(".parquet"):
                    content = content[:-1]
                store.write(key, [content])
    store.write("pages/index/events.html", [b"no run"])
    write_findings(open_store(f"{place}/live"), [Finding("NonFinite", 2, "loss is NaN")])
    proxy.asked.clear()
    found = listed(tmp_path, place)
    assert list(found) == ["a/old", "a/one", "bad", "live"]
    # Whether the place is there, and all that is in it; a run that is damaged is listed again.
    listings = {unquote(path) for _, path, _ in proxy.asked if "list-type" in path}
    assert {path.partition("prefix=")[2] for path in listings} == {
        "experiments/", "experiments/bad/",
    }  # fmt: skip
    states = [found[path]["state"] for path in found]
    assert states == ["finished", "finished", "damaged", "live"]
    assert found["a/one"]["size"] == sizes["a/one"]
    assert found["a/one"]["modified"] > 1.5e9
    for path in ("a/one", "a/old", "live"):
        run = found[path]
        assert (run["steps"], run["last_step"], run["tensors"]) == (4, 3, 2)
    assert found["live"]["findings"] == {"NonFinite": 1}
    assert list(listed(tmp_path, f"{place}/a/one")) == ["."]
    assert "no runs found" in smdebug(tmp_path, "ls", f"{place}/pages").stderr
    assert "nobucket" in smdebug(tmp_path, "ls", "s3://nobucket/x", code=2).stderr
