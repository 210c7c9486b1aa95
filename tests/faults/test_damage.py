"""A wrong value is never returned: runs and files are damaged at random and queried.

Every damage is drawn from `SEED`, the kind of run and a number, which failures name: run
`try_damages(kind, [number])` of `damaged.py` to see one again.
"""

from __future__ import annotations

import os
import random
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.faults.damaged import KINDS, SEED, Outcome, plain, run_of, try_damages
from tests.faults.tally import FULL, amount

from smdebug.exceptions import SMDebugError
from smdebug.histogram import histogram_of
from smdebug.mode_keys import ModeKeys
from smdebug.storage.check.run import check_run
from smdebug.storage.stores.local import LocalStore
from smdebug.storage.stores.memory import MemoryStore
from smdebug.storage.tensorboard.files import ModeFiles, number_event
from smdebug.storage.tensorboard.summaries import encode_histogram
from smdebug.storage.v1.event_file import FileReader
from smdebug.testing import make_run

if TYPE_CHECKING:
    from pathlib import Path

    from tests.faults.tally import Tally

_PIECE = 50
REMARKS = {
    "a file deleted": "nothing is wrong; what nothing else names is absent",
    "a file of an earlier time": "a collections file is believed: it was right once",
}


def spread(kind: str, count: int) -> Outcome:
    """Tries damages, in several processes where there are many."""
    outcome = Outcome()
    if not FULL:
        outcome += try_damages(kind, range(count))
        return outcome
    pieces = [range(at, min(at + _PIECE, count)) for at in range(0, count, _PIECE)]
    with ProcessPoolExecutor(min(os.cpu_count() or 1, 8), get_context("spawn")) as pool:
        for each in pool.map(partial(try_damages, kind), pieces):
            outcome += each
    return outcome


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_run_gives_right_answers_or_errors(
    kind: str, tally: Tally, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SMDEBUG_MISSING_EVENT_FILE_RETRY_LIMIT", "0")
    outcome = spread(kind, amount(2572, 70))
    for what, tried in outcome.tried.items():
        wrong = {
            each.partition(f": {what}: ")[0] for each in outcome.wrong if f": {what}: " in each
        }
        tally.add(3, f"runs: {what}", tried, tried - len(wrong), REMARKS.get(what, ""))
    named = sum(outcome.checked.values())
    missed = len(outcome.unnamed)
    tally.add(3, "runs: damage that check has to name, and names", named + missed, named)
    assert outcome.wrong == []
    assert outcome.unnamed == []


@pytest.mark.parametrize("kind", KINDS)
def test_an_intact_run_returns_what_was_saved(kind: str, tally: Tally) -> None:
    """The truth that damaged runs are compared with is itself compared with the arrays."""
    from tests.faults.damaged import STEPS, batch_of

    run = run_of(kind)
    _, workers, resumed, _ = KINDS[kind]
    saved = {
        (worker, step): batch_of(worker, step, 2 if resumed and step >= 4 else 1)
        for worker in workers
        for step in (*STEPS, *((6,) if resumed else ()))
    }
    tried = right = 0
    for (worker, step), batch in saved.items():
        for entry in batch.entries:
            if entry.value is None:
                continue
            value = entry.value
            if kind.startswith("v1") and value.dtype.name == "bfloat16":
                value = value.astype(np.float32)
            tried += 1
            found = run.truth[f"values {entry.name} {worker}"].get(step)
            right += found == plain(np.asarray(value))
    tally.add(3, "values of sound runs, beside the arrays that were saved", tried, right)
    assert right == tried


# ---- TensorBoard files, and event files by themselves


def board_files(folder: Path, number: int) -> None:
    """Numbers and histograms of two modes, and something that is not finite."""
    rng = np.random.default_rng(number)
    files = ModeFiles(str(folder / "tensorboard"))
    for step in range(8):
        mode = ModeKeys.EVAL if step % 3 == 2 else ModeKeys.TRAIN
        loss = float("nan") if step == 4 else float(rng.random())
        spread_out = histogram_of(rng.standard_normal(50))
        assert spread_out is not None
        events = [
            number_event("loss", loss, step=step, wall_time=1e9 + number + step),
            encode_histogram("weights", spread_out, step=step, wall_time=1e9 + number + step),
        ]
        files.write(mode, step, 1e9 + number, events)
    files.close()


def events_of(path: Path) -> list[Any]:
    return [
        (each["timestamp"], each["step"], each["name"], plain(each["value"]))
        for each in FileReader(str(path)).read_events()
    ]


def spoiled(data: bytes, other: bytes, rng: random.Random) -> tuple[str, bytes]:
    """A file after something has happened to it."""
    what = rng.choice(["bits flipped", "cut off", "bytes appended", "a block zeroed", "spliced"])
    at = rng.randrange(len(data))
    size = rng.randint(1, 600)
    if what == "bits flipped":
        changed = bytearray(data)
        for _ in range(rng.choice([1, 1, 2, 8])):
            changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        return what, bytes(changed)
    if what == "cut off":
        return what, data[:at]
    if what == "bytes appended":
        return what, data + rng.choice([rng.randbytes(size), bytes(size)])
    if what == "a block zeroed":
        return what, data[:at] + bytes(len(data[at : at + size])) + data[at + size :]
    return what, data[:at] + other[at : at + size] + data[at + size :]


def test_damaged_tensorboard_files_give_right_events_or_errors(
    tmp_path: Path, tally: Tally
) -> None:
    """Each record is checked on its own: what is read was written, completely."""
    board_files(tmp_path / "own", 1)
    board_files(tmp_path / "other", 2)
    paths = sorted((tmp_path / "own").rglob("*.tfevents"))
    others = sorted((tmp_path / "other").rglob("*.tfevents"))
    assert len(paths) == len(others) == 2
    truth = {path: events_of(path) for path in paths}
    foreign = {path: events_of(other) for path, other in zip(paths, others, strict=True)}
    sound = {path: path.read_bytes() for path in paths}
    key = f"tensorboard/TRAIN/{paths[1].name}"
    spoilt = tmp_path / "spoilt.tfevents"
    tried, right, named, read = 0, 0, 0, 0
    wrong: list[str] = []
    for number in range(amount(2000, 110)):
        rng = random.Random(f"{SEED} tensorboard {number}")
        path = rng.choice(paths)
        other = others[paths.index(path)].read_bytes()
        what, data = spoiled(sound[path], other, rng)
        spoilt.write_bytes(data)
        tried += 1
        try:
            found = events_of(spoilt)
        except SMDebugError:
            found = []
        allowed = truth[path] + (foreign[path] if what == "spliced" else [])
        good = all(each in allowed for each in found)
        read += bool(found)
        # The run is finished, so a file that ends too soon is damaged.
        store = MemoryStore()
        store.write(key, [data])
        store.write("training_job_end.ts", [b""])
        told = any(each.file == key for each in check_run(store).damages)
        named += told
        if not told and data != sound[path] and found == truth[path]:
            good = False
        right += good
        if not good:
            wrong.append(f"number {number} of seed {SEED}: {what}: {path.name}")
    remark = f"{named} named by check, {read} read: whole records, cut or of another run"
    tally.add(3, "TensorBoard files damaged", tried, right, remark)
    assert wrong == []


@pytest.mark.parametrize("format", ["v1", "v2"])
def test_damaged_event_files_read_alone_give_right_tensors_or_errors(
    format: str, tmp_path: Path, tally: Tally
) -> None:
    """`FileReader` on one event file of a run; the records of v1 have their checksums elsewhere."""
    for number, name in enumerate(("own", "other")):
        make_run(tmp_path / name, range(number, 3 + number), format=format)
    (path, *_) = sorted((tmp_path / "own").rglob("*.tfevents"))
    (other, *_) = sorted((tmp_path / "other").rglob("*.tfevents"))
    sound = path.read_bytes()

    def tensors(path: Path = path) -> list[Any]:
        found = FileReader(str(path)).read_tensors()
        return [(name, step, plain(value), mode, last) for name, step, value, mode, last in found]

    truth, foreign = tensors(), tensors(other)
    wrong: list[str] = []
    tried = 0
    for number in range(amount(1000, 100)):
        rng = random.Random(f"{SEED} alone {format} {number}")
        what, data = spoiled(sound, other.read_bytes(), rng)
        path.write_bytes(data)
        tried += 1
        try:
            found = tensors()
        except SMDebugError:
            continue
        # A file of format v2 that is cut between two records is a shorter one, and a record of
        # another run is as good as any.
        allowed = truth + (foreign if what == "spliced" else [])
        good = all(each in allowed for each in found) if format == "v2" else found == truth
        if not good:
            wrong.append(f"number {number} of seed {SEED}: {what}")
    path.write_bytes(sound)
    assert check_run(LocalStore(tmp_path / "own")).damages == []
    tally.add(3, f"event files of {format} damaged, read alone", tried, tried - len(wrong))
    assert wrong == []
