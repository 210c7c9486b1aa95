"""A hostile run is read, shown, exported and resumed inside its own directory only."""

from __future__ import annotations

import json
import os
import socket
from typing import TYPE_CHECKING, Any

import crc32c
import numpy as np
import pytest
from tests.faults import hostile
from tests.faults.tally import amount

from smdebug.mode_keys import ModeKeys
from smdebug.storage.format.events import encode_tensor
from smdebug.storage.format.keys import END_KEY, collections_key, event_key, index_key
from smdebug.storage.v2.index import encode_index
from smdebug.storage.writer_lock import lock_key

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.faults.tally import Tally

    Poison = Callable[[Path, Path], object]

SECRET = "TOPSECRET"
EVENTS, INDEX = event_key(0, 0, hostile.WORKER), index_key(0, 0, hostile.WORKER)
LOSSES = {"losses": {"include_regex": ["loss"]}, "default": {"include_regex": [".*"]}}


def raw_row(tensor: str, event_file: str, record: bytes) -> dict[str, Any]:
    """A row that names a record."""
    length = len(record)
    checksum = int(crc32c.crc32c(record[12:-4]))
    return hostile.row(
        tensor, event_file=event_file, offset=0, length=length, checksum=checksum, value=None,
        shape=[2], l2=1.0,
    )  # fmt: skip


def raw_record(tensor: str, number: float = 1.0) -> bytes:
    event = encode_tensor(
        tensor, np.full(2, number, np.float32), step=0, mode=ModeKeys.TRAIN, mode_step=0,
        wall_time=1.0,
    )  # fmt: skip
    return hostile.record(b"".join(map(bytes, event)))


def sound_run(run: Path) -> None:
    """A run with a raw tensor, a scalar, and everything else a run can have."""
    record = raw_record("x")
    hostile.write_frame(run, LOSSES)
    hostile.write_file(run, EVENTS, record)
    rows = [raw_row("x", EVENTS, record), *hostile.scalar_rows(["loss"], 4)]
    hostile.write_index(run, rows)
    hostile.write_file(run, "control/stop-0000000000001-00000000.json", b"{}")
    hostile.write_file(run, lock_key(hostile.WORKER), b"1\n")


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """Files of the user: a run, and files with names that a run has."""
    place = tmp_path / "outside"
    sound_run(place / "run")
    hostile.write_index(place / "run", hostile.scalar_rows([SECRET, f"{SECRET} loss"]))
    for name in ("secret", "worker_0.lock", "training_job_end.ts", "metadata.json"):
        (place / name).write_text(f"{SECRET} {name}")
    record = raw_record("x", 41.0)
    hostile.write_file(place, "secret.tfevents", record)
    return place


def snapshot(place: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(place)): path.read_bytes() if path.is_file() else None
        for path in sorted(place.rglob("*"))
    }


# ---- what is tried


def names_event_file(event_file: Callable[[Path], str]) -> Poison:
    def poison(run: Path, outside: Path) -> None:
        record = raw_record("x", 41.0)
        hostile.write_index(run, [raw_row("x", event_file(outside), record)])
        v1 = {
            "meta": {"mode": "TRAIN", "mode_step": 1, "event_file_name": event_file(outside)},
            "tensor_payload": [{"tensorname": "y", "start_idx": 0, "length": len(record)}],
        }
        hostile.v1_index(run, v1, step=1)

    return poison


def link(key: str, target: str) -> Poison:
    """A link in the place of a file or of a folder, which is there otherwise."""

    def poison(run: Path, outside: Path) -> None:
        path = run / key
        if path.is_dir():
            path.rename(run.parent / f"{run.name}.was")
        else:
            path.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target if target.startswith((".", "/")) else outside / target)

    return poison


def special(key: str, kind: str) -> Poison:
    """A pipe, a socket, a directory or a device in the place of a file."""

    def poison(run: Path, outside: Path) -> None:
        path = run / key
        path.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        if kind == "pipe":
            os.mkfifo(path)
        elif kind == "folder":
            path.mkdir()
        elif kind == "socket":
            with socket.socket(socket.AF_UNIX) as listening:
                here = os.open(path.parent, os.O_RDONLY)
                try:
                    # By the number of its folder: the name of a socket must be short.
                    listening.bind(f"/proc/self/fd/{here}/s")
                finally:
                    os.close(here)
            (path.parent / "s").rename(path)
        else:
            path.symlink_to(kind)

    return poison


FILES = {
    "index": INDEX,
    "events": EVENTS,
    "collections": collections_key(hostile.WORKER),
    "end": END_KEY,
    "lock": lock_key(hostile.WORKER),
    "findings": "findings/0000000000001-00000000-00000000.parquet",
    "report": "findings/0000000000001-00000000-00000000.json",
    "control": "control/stop-0000000000001-00000000.json",
}
FOLDERS = (
    "index", "index/000000000", "events", "events/000000000000", "collections",
    "collections/000000000", "locks", "findings", "control", "tensorboard", "reports",
)  # fmt: skip


def poisons() -> dict[str, Poison]:
    found: dict[str, Poison] = {}
    paths: list[Callable[[Path], str]] = [
        lambda outside: "../outside/secret.tfevents",
        lambda outside: "events/../../outside/secret.tfevents",
        lambda outside: str(outside / "secret.tfevents"),
        lambda outside: f"file://{outside}/secret.tfevents",
        lambda outside: "events\\..\\..\\outside\\secret.tfevents",
        lambda outside: "C:\\secret.tfevents",
        lambda outside: "events/a\0b",
        lambda outside: "~/secret.tfevents",
        lambda outside: "events/" + "x" * 5000,
        lambda outside: "",
        lambda outside: "events/000000000000",
    ]
    for number, path in enumerate(paths):
        found[f"path {number}"] = names_event_file(path)
    for name, key in FILES.items():
        found[f"link {name}"] = link(key, "secret.tfevents" if name == "events" else "secret")
        found[f"round {name}"] = link(key, f"./{key.rpartition('/')[2]}")
        for kind in ("pipe", "socket", "folder"):
            found[f"{kind} {name}"] = special(key, kind)
    for device in ("/dev/zero", "/dev/full", "/dev/stdin"):
        for name in ("index", "collections", "events", "control"):
            found[f"{device} {name}"] = special(FILES[name], device)
    for folder in FOLDERS:
        inner = folder.replace("/000000000000", "").replace("/000000000", "")
        found[f"link {folder}/"] = link(folder, f"run/{inner}")
        found[f"round {folder}/"] = link(folder, ".")
    return found


POISONS = poisons()


def test_paths_cannot_leave_the_run(tmp_path: Path, outside: Path, tally: Tally) -> None:
    names = list(POISONS)
    tried = names[:: -(-len(names) // amount(len(names), 12))]
    before = snapshot(outside)
    runs = []
    for number, name in enumerate(tried):
        run = tmp_path / f"run{number}"
        sound_run(run)
        POISONS[name](run, outside)
        runs.append(run)
    outcome = hostile.read_in_child(runs, outside=[outside], seconds=600)
    leaks = [
        path.name
        for run in runs
        for path in (tmp_path / f"{run.name}.out").rglob("*")
        if path.is_file() and not path.is_symlink() and SECRET.encode() in path.read_bytes()
    ]
    wrong = {way.partition(":")[0] for way in outcome.unnamed}
    wrong |= {each.partition(":")[0] for each in outcome.opened}
    survived = 0 if outcome.code else len(tried) - len(wrong)
    told = {tried[int(name.removeprefix("run"))] for name in wrong}
    tally.add(
        6, "paths, links, pipes, sockets, devices and folders in the place of files",
        len(tried), survived, f"{len(outcome.answers)} ways to read",
    )  # fmt: skip
    assert outcome.code == 0, outcome.err[-3000:]
    assert not outcome.unnamed, (told, json.dumps(outcome.unnamed, indent=1))
    assert not outcome.opened, (told, outcome.opened)
    assert snapshot(outside) == before
    assert not leaks


NAMES = [
    "../../x", "/etc/x", "a/../../x", "..", ".", "C:\\x", "\\\\server\\x", "a\0b", "x" * 3000,
    "Name", "name", "NAME", "a//b", "con", "x.npy", "escaped/x", "smdebug", "__metadata__", "~/x",
    "*", "a[0-9]b", "it's", '"; drop table run; --', "x'; attach 'y' as z; --", "$(touch x)",
    "`touch x`", "-rf", " ", "\n", "a\tb", "\u202ex", "file", "allow_pickle",
]  # fmt: skip


def test_names_are_never_used_as_paths(tmp_path: Path, outside: Path, tally: Tally) -> None:
    before = snapshot(outside)
    place = tmp_path / "runs ' [a-z]* {x} ? \"; select"
    run = place / "run"
    named = {name: {"tensor_names": [name]} for name in NAMES if name.strip()}
    collections = {**named, **LOSSES, "losses": {"tensor_names": NAMES}}
    hostile.write_frame(run, collections, workers=2)
    frame = run / collections_key(hostile.WORKER)
    for seq, worker in enumerate(("../../w", "a/../../../b")):
        rows = [
            hostile.row(name, worker=worker, step=step, mode_step=step, l2=1.0, seq=seq)
            for name in NAMES
            for step in range(3)
        ]
        ordered = sorted(rows, key=lambda item: (item["tensor"], item["step"]))
        data = bytes(encode_index(hostile.table_of(ordered)))
        hostile.write_file(run, index_key(0, seq, worker), data)
        hostile.write_file(run, collections_key(worker), frame.read_bytes())
    frame.unlink()
    outcome = hostile.read_in_child([run], outside=[outside])
    there = {path.relative_to(place).parts[0] for path in place.rglob("*")}
    tally.add(
        6, "names of tensors and workers that look like paths, patterns and SQL", len(NAMES) + 2,
        0 if outcome.code or outcome.unnamed or outcome.opened else len(NAMES) + 2,
        f"{len(outcome.answers)} ways to read",
    )  # fmt: skip
    assert outcome.code == 0, outcome.err[-3000:]
    assert not outcome.unnamed, json.dumps(outcome.unnamed, indent=1)
    assert not outcome.opened
    assert {way: each for way, each in outcome.answers.items() if each != "fine"} == {}
    assert there == {"run", "run.out", "mpl", "told.json"}
    assert snapshot(outside) == before
    with np.load(next((place / "run.out" / "npz").rglob("*.npz"))) as arrays:
        assert not [name for name in arrays.files if name.startswith(("/", "..", "C:"))]
