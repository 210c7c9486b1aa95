"""Runs that are damaged at random, and everything that can be asked of them, as facts.

A fact is a key and what it holds, so that answers compare as dictionaries: all facts of the sound
run, or a part of them, or others.
"""

from __future__ import annotations

import json
import logging
import os
import random
from collections import Counter
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from smdebug.config.collection import Collection
from smdebug.config.collection_manager import CollectionManager
from smdebug.exceptions import SMDebugError
from smdebug.mode_keys import ModeKeys
from smdebug.storage.batch import Entry, StepBatch
from smdebug.storage.check.run import check_run
from smdebug.storage.findings import Finding, read_reports, write_findings, write_report
from smdebug.storage.format.keys import END_KEY, event_format, parse_index_key
from smdebug.storage.raw_tensors import VALUE_COLUMNS
from smdebug.storage.stores.memory import MemoryStore
from smdebug.storage.writer import RunWriter
from smdebug.trials.trial import Trial

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from smdebug.storage.check.report import CheckReport

    Files = dict[str, bytes]
    Facts = dict[Any, Any]
    Truth = dict[str, Facts]

SEED = 1034
STEPS = range(6)
# Each kind of run: its format, its workers, whether a second job resumed it, and whether its
# index files were compacted at its end.
KINDS: dict[str, tuple[str, tuple[str, ...], bool, bool]] = {
    "v2": ("v2", ("worker_0",), False, False),
    "v2, compacted": ("v2", ("worker_0",), False, True),
    "v2, two workers": ("v2", ("worker_0", "w/ 1"), False, True),
    "v2, resumed": ("v2", ("worker_0",), True, False),
    "v1": ("v1", ("worker_0",), False, False),
    "v1, two workers": ("v1", ("worker_0", "worker_1"), False, False),
    "v1, resumed": ("v1", ("worker_0",), True, False),
}


# ---- runs


@dataclass(frozen=True)
class Run:
    """A run, and what may be put in the place of its files.

    Attributes:
        files: the sound run.
        earlier: the same run at an earlier moment.
        other: a run of the same steps, tensors and shapes, with other values and one step more.
        asked: what to query.
        truth: everything that the sound run says, by question.
        before: everything that it said at the earlier moment.
        alone: everything that it would say with the index of one worker only, for each of several.
        remarks: what a check remarks about the sound run.
    """

    files: Files
    earlier: Files
    other: Files
    asked: Asked
    truth: Truth
    before: Truth
    alone: list[Truth]
    remarks: set[tuple[str, int]]


def batch_of(worker: str, step: int, number: int) -> StepBatch:
    """Scalars, records, strings, reductions and shapes; other values for another number."""
    rng = np.random.default_rng([number, step, *worker.encode()])
    noise = rng.standard_normal((2, 3)).astype(np.float32)
    norms = {"l2": float(rng.random()), "mean": float("nan"), "abs_max": float(rng.random())}
    entries = [
        Entry("loss", np.asarray(np.float32(rng.random()))),
        Entry("big", rng.integers(1 << 60, 1 << 62, ()) | 1),
        Entry("fc.weight", noise, norms),
        Entry("half", noise.astype(ml_dtypes.bfloat16)),
        Entry("text", np.array([f"a{rng.integers(1000)}", "b"])),
        Entry("norm", None, {"l2": float(rng.random())}, shape=(4, 5 + number), dtype="float32"),
        Entry("shape", shape=(7, number + step), dtype="int64"),
    ]
    if step == 3:
        entries.append(Entry("large", rng.standard_normal(140_000)))
    mode = ModeKeys.EVAL if step % 3 == 2 else ModeKeys.TRAIN
    return StepBatch(step, mode, step // 2, entries, time=1e9 + number + float(rng.random()))


def collections_of(number: int, names: Iterable[str], workers: int) -> str:
    weights = Collection("weights", include_regex=f"weight{'$' * number}")
    named = Collection("mine")
    named.add_tensor_name("loss")
    for name in names:
        named.add_tensor_name(name)
    manager = CollectionManager([weights, named])
    manager.set_num_workers(workers)
    return manager.to_json()


def copied(store: MemoryStore) -> Files:
    return {key: bytes(store.read(key)) for key in store.list()}


def write_job(
    store: MemoryStore, kind: str, steps: Iterable[int], number: int, names: Sequence[str] = ()
) -> tuple[Files, Files]:
    """Writes what a job saves; returns the files before its last step and its end, and all."""
    format, workers, _, compacted = KINDS[kind]
    writers = [RunWriter(store, worker, format, reopen=True) for worker in workers]
    earlier: Files = {}
    for worker, writer in zip(workers, writers, strict=True):
        writer.write_collections(collections_of(number, names[:-1], len(workers)))
        for step in steps:
            writer.submit(batch_of(worker, step, number))
            writer.finish_step()
            if step % 2:
                writer.flush()
                earlier = copied(store) if step == 3 else earlier
        writer.write_collections(collections_of(number, names, len(workers)))
        writer.flush()
    uncompacted = copied(store)
    for writer in writers:
        writer.close(end=True)
    # The end marker contains the time; no query depends on it.
    return earlier, {**(copied(store) if compacted else uncompacted), END_KEY: b""}


def add_findings(files: Files, number: int) -> Files:
    store = stored(files)
    found = [Finding("Rule", 1, f"finding {number}", "loss", 0.5 + number, time=1e9)]
    write_findings(store, found)
    write_report(store, {"trial": "x", "last_step": 3 + number, "rules": []})
    return copied(store)


@cache
def run_of(kind: str) -> Run:
    """Makes a run of a kind; once in a process."""
    store = MemoryStore()
    names = ("big", "half")
    earlier, files = write_job(store, kind, STEPS, 1, names)
    if KINDS[kind][2]:
        earlier = files
        store = stored(files)
        _, files = write_job(store, kind, range(4, 7), 2, (*names, "text"))
    files = add_findings(files, 1)
    other = MemoryStore()
    _, others = write_job(other, kind, range(len(STEPS) + 1), 7, ("text",))
    others = add_findings(others, 7)
    asked, truth = truth_of(stored(files))
    _, before = truth_of(stored(earlier), asked)
    alone = [truth_of(stored(of_worker(files, each)), asked)[1] for each in KINDS[kind][1]]
    report = check_run(stored(files))
    assert report.damages == []
    return Run(files, earlier, others, asked, truth, before, alone, remarks_of(report))


def of_worker(files: Files, worker: str) -> Files:
    """A run without the index files of other workers."""
    names = {key: parse_index_key(key) for key in files}
    return {key: data for key, data in files.items()
            if (name := names[key]) is None or name.worker == worker}  # fmt: skip


class RemoteStore(MemoryStore):
    """Memory that is read as an object store is: in ranges."""

    remote = True


def stored(files: Files, remote: bool = False) -> MemoryStore:
    store = RemoteStore() if remote else MemoryStore()
    for key, data in files.items():
        store.write(key, [data])
    return store


# ---- every query of a trial


def plain(value: Any) -> Any:
    """Something that is equal only if every bit is: arrays, NaN and negative zeros too."""
    if isinstance(value, np.ndarray):
        content = repr(value.tolist()) if value.dtype.kind in "OUS" else value.tobytes()
        return (value.dtype.name if value.dtype.kind != "U" else "str", value.shape, content)
    if isinstance(value, float):
        return np.float64(value).tobytes()
    return repr(value)


@dataclass(frozen=True)
class Asked:
    """What there is to ask about."""

    names: list[str]
    steps: list[int]
    workers: list[str]


def asked_of(trial: Trial) -> Asked:
    return Asked(trial.tensor_names(), trial.steps(), trial.workers())


def truth_of(store: MemoryStore, asked: Asked | None = None) -> tuple[Asked, Truth]:
    """All facts of a run that is sound, by question."""
    trial = Trial("memory://run", store=store, wait_seconds=0)
    asked = asked or asked_of(trial)
    found: Truth = {}
    for question, answer in questions(trial, asked):
        try:
            found[question] = answer()
        except SMDebugError as error:
            # What was not saved is an answer as well.
            found[question] = {"error": type(error).__name__}
    return asked, found


def questions(trial: Trial, asked: Asked) -> Iterator[tuple[str, Callable[[], Facts]]]:
    """Every query of a trial, about what was saved: not about what is left of it."""
    yield "steps", partial(_steps, trial, asked.steps)
    yield "names", partial(_names, trial, asked.steps)
    yield "collections", partial(_collections, trial)
    yield "arrow", partial(_arrow, trial)
    yield "times", partial(_times, trial)
    yield "findings", partial(_findings, trial)
    for name in asked.names:
        yield f"tensor {name}", partial(_tensor, trial, name)
        for worker in asked.workers:
            yield f"values {name} {worker}", partial(_values, trial, name, worker)
            step = asked.steps[len(name + worker) % len(asked.steps)]
            yield f"step {name} {worker}", partial(_at_step, trial, name, worker, step)


def _steps(trial: Trial, steps: list[int]) -> Facts:
    found: Facts = {("mode", mode.name): True for mode in trial.modes()}
    for mode in ModeKeys:
        found |= {("step", mode.name, step): True for step in trial.steps(mode)}
    for step in steps:
        mode_of, mode_step = trial.mode_modestep(step)
        if mode_of is not None:
            found["mode of", step] = (mode_of.name, mode_step)
    return found


def _names(trial: Trial, steps: list[int]) -> Facts:
    found: Facts = {("name", name): True for name in trial.tensor_names()}
    for step in steps:
        found |= {("name at", step, name): True for name in trial.tensor_names(step=step)}
    return found


def _collections(trial: Trial) -> Facts:
    found: Facts = {"workers": (trial.workers(), trial.num_workers)}
    for name, collection in trial.collections().items():
        found["collection", name] = collection.to_json()
        members = [each for each in trial.tensor_names() if collection.matches(each)]
        found |= {("member", name, member): True for member in members}
    return found


def _arrow(trial: Trial) -> Facts:
    rows = trial.to_arrow().to_pylist()
    return {
        (row["worker"], row["step"], row["tensor"], column): plain(value)
        for row in rows
        for column, value in row.items()
        # Where a row lies is no answer, and changes when files are joined.
        if column not in ("seq", "position", "event_file", "offset", "length", "checksum", "digest")
        and value is not None
    }


def _times(trial: Trial) -> Facts:
    table = trial.to_arrow([*VALUE_COLUMNS, "time", "worker", "tensor"])
    keys = zip(*(table[name].to_pylist() for name in ("worker", "step", "tensor")), strict=True)
    return dict(zip(keys, trial.row_times(table), strict=True))


def _findings(trial: Trial) -> Facts:
    found: Facts = {("finding", str(each.to_dict())): True for each in trial.findings()}
    reports = read_reports(trial.store)
    return {**found, **{("report", number): str(each) for number, each in enumerate(reports)}}


def _tensor(trial: Trial, name: str) -> Facts:
    tensor = trial.tensor(name)
    found: Facts = {("step", step): True for step in tensor.steps()}
    found |= {("shape", step): shape for step, shape in tensor.shapes().items()}
    if name != "text":
        steps, values = tensor.series(None if name in ("loss", "big") else "l2")
        pairs = zip(steps.tolist(), values.tolist(), strict=True)
        found |= {("series", step): plain(value) for step, value in pairs}
    return found


def _values(trial: Trial, name: str, worker: str) -> Facts:
    values = trial.tensor(name).values(worker=worker)
    return {step: plain(value) for step, value in values.items()}


def _at_step(trial: Trial, name: str, worker: str, step: int) -> Facts:
    tensor = trial.tensor(name)
    reductions = tensor.reduction_values(step, worker=worker)
    found: Facts = {which: plain(value) for which, value in reductions.items()}
    if name not in ("norm", "shape"):
        found["value"] = plain(tensor.value(step, worker=worker))
    return found


# ---- damages


@dataclass
class Damage:
    """What is done to the files of a run.

    Attributes:
        what: in a word.
        files: the run with the damage.
        keys: the files it touches.
    """

    what: str
    files: Files
    keys: list[str]


def damage(run: Run, rng: random.Random) -> Damage:
    """Damages a run in a way that is drawn."""
    what = rng.choice(list(_DAMAGES))
    files = dict(run.files)
    _DAMAGES[what](run, files, rng)
    keys = [key for key in {**files, **run.files} if files.get(key) != run.files.get(key)]
    return Damage(what, files, keys)


def _kind(key: str) -> tuple[str, str]:
    return key.partition("/")[0], key.rpartition(".")[2]


def _file(files: Files, rng: random.Random) -> str:
    """A file, drawn so that the few of a kind are hit as often as the many of another."""
    kinds = sorted({_kind(key) for key, data in files.items() if data})
    kind = rng.choice(kinds)
    return rng.choice(sorted(key for key, data in files.items() if data and _kind(key) == kind))


def _flip(run: Run, files: Files, rng: random.Random) -> None:
    key = _file(files, rng)
    data = bytearray(files[key])
    for _ in range(rng.choice([1, 1, 1, 2, 8])):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    files[key] = bytes(data)


def _truncate(run: Run, files: Files, rng: random.Random) -> None:
    key = _file(files, rng)
    files[key] = files[key][: rng.choice([0, rng.randrange(len(files[key]))])]


def _append(run: Run, files: Files, rng: random.Random) -> None:
    key = _file(files, rng)
    more = rng.choice([rng.randbytes(rng.randint(1, 64)), b"\n", b"\0" * 8, files[key]])
    files[key] += more


def _zero(run: Run, files: Files, rng: random.Random) -> None:
    key = _file(files, rng)
    data = files[key]
    at = rng.randrange(len(data))
    size = min(rng.choice([8, 512, 4096, len(data)]), len(data) - at)
    files[key] = data[:at] + bytes(size) + data[at + size :]


def _swap(run: Run, files: Files, rng: random.Random) -> None:
    key = _file(files, rng)
    like = sorted(each for each in files if _kind(each) == _kind(key))
    other = rng.choice(like)
    files[key], files[other] = files[other], files[key]


def _splice_file(run: Run, files: Files, rng: random.Random) -> None:
    key = _file(files, rng)
    like = sorted(each for each in run.other if _kind(each) == _kind(key))
    files[key] = run.other[key if key in run.other else rng.choice(like)]


def _splice_piece(run: Run, files: Files, rng: random.Random) -> None:
    key = _file(files, rng)
    like = sorted(each for each in run.other if _kind(each) == _kind(key))
    source = run.other[key if key in run.other else rng.choice(like)]
    at = rng.randrange(len(files[key]))
    size = rng.randint(1, len(files[key]))
    files[key] = files[key][:at] + source[at : at + size] + files[key][at + size :]


def _splice_step(run: Run, files: Files, rng: random.Random) -> None:
    """All files of a step, or of a worker's index, fit together and are of the other run."""
    keys = sorted(key for key in run.other if key.startswith("index/"))
    stem = rng.choice(keys).rpartition("/")[2].rpartition(".")[0]
    files.update({key: data for key, data in run.other.items() if stem in key})


def _splice_kind(run: Run, files: Files, rng: random.Random) -> None:
    """The files of one kind are those of the other run."""
    kind = _kind(_file(files, rng))
    for key in [key for key in files if _kind(key) == kind]:
        del files[key]
    files.update({key: data for key, data in run.other.items() if _kind(key) == kind})


def _stale(run: Run, files: Files, rng: random.Random) -> None:
    key = rng.choice(sorted(run.earlier))
    changed = [each for each in run.earlier if run.earlier[each] != files.get(each)]
    if changed:
        key = rng.choice(sorted(changed))
    files[key] = run.earlier[key]


def _duplicate(run: Run, files: Files, rng: random.Random) -> None:
    """The same file under another name that a file of its kind may have."""
    key = _file(files, rng)
    folder, _, name = key.rpartition("/")
    numbers = name.split("_", 1)[0]
    step = f"{rng.choice([0, 2, 5, 6, 40]):012d}"
    if key.startswith(("index/", "events/")) and rng.random() < 0.8:
        renamed = name.replace(numbers, step + numbers[12:], 1)
        if "-" in numbers and rng.random() < 0.5:
            renamed = name.replace(numbers, f"{numbers[:12]}-{rng.choice([0, 9, 99]):06d}", 1)
        files[f"{folder}/{renamed}"] = files[key]
    elif "worker_0" in name:
        files[f"{folder}/{name.replace('worker_0', 'worker_1')}"] = files[key]
    else:
        files[f"{folder}/1{name}"] = files[key]


def _delete(run: Run, files: Files, rng: random.Random) -> None:
    del files[_file(files, rng)]


_DAMAGES: dict[str, Callable[[Run, Files, random.Random], None]] = {
    "bits flipped": _flip,
    "cut off": _truncate,
    "bytes appended": _append,
    "a block zeroed": _zero,
    "two files swapped": _swap,
    "a file of another run": _splice_file,
    "a piece of another run": _splice_piece,
    "a step of another run": _splice_step,
    "a kind of files of another run": _splice_kind,
    "a file of an earlier time": _stale,
    "a file twice": _duplicate,
    "a file deleted": _delete,
}
DAMAGES = tuple(_DAMAGES)


# ---- judging


@dataclass
class Outcome:
    """What became of damages, by what was done.

    Attributes:
        tried: how often.
        wrong: what was answered wrongly, with the number of the damage; it should be empty.
        unnamed: what was changed and named neither by an error nor by a check.
        refused: how often some question ended in a named error.
        checked: how often a check named damage.
        absent: how often something was missing without an error.
    """

    tried: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    unnamed: list[str] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    checked: Counter[str] = field(default_factory=Counter)
    absent: Counter[str] = field(default_factory=Counter)

    def __iadd__(self, other: Outcome) -> Outcome:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)
        return self


def try_damages(kind: str, numbers: Sequence[int]) -> Outcome:
    """Damage a run in the ways with these numbers, and run every query each time."""
    # Everything is over: nothing is waited for.
    os.environ["SMDEBUG_MISSING_EVENT_FILE_RETRY_LIMIT"] = "0"
    logger = logging.getLogger("smdebug")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    run = run_of(kind)
    outcome = Outcome()
    try:
        for number in numbers:
            rng = random.Random(f"{SEED} {kind} {number}")
            which = f"{kind}, number {number}"
            _try_one(run, damage(run, rng), rng.random() < 0.25, which, outcome)
    finally:
        # In the checks this is the process of other tests, too.
        logger.setLevel(before)
        del os.environ["SMDEBUG_MISSING_EVENT_FILE_RETRY_LIMIT"]
    return outcome


def _try_one(run: Run, done: Damage, remote: bool, where: str, outcome: Outcome) -> None:
    outcome.tried[done.what] += 1
    about = f"{where}: {done.what}: {', '.join(done.keys)[:200]}"
    refused = absent = False
    for question, answer in _asked(stored(done.files, remote), run):
        expected = run.truth.get(question, {})
        try:
            facts = answer()
        except SMDebugError as error:
            refused |= expected.get("error") != type(error).__name__
            continue
        except Exception as error:
            outcome.wrong.append(f"{about}: {question} raised {error!r}")
            continue
        if facts == expected:
            continue
        if may_be(question, facts, run, done):
            absent = True
        else:
            outcome.wrong.append(f"{about}: {question}: {_difference(facts, expected)}")
    said = _check(run, done, remote, about, outcome)
    outcome.refused[done.what] += refused
    outcome.checked[done.what] += said
    outcome.absent[done.what] += absent
    if done.keys and not said and not may_be_silent(run, done):
        outcome.unnamed.append(f"{about}; refused: {refused}")


def _asked(store: MemoryStore, run: Run) -> Iterator[tuple[str, Callable[[], Facts]]]:
    trial = None

    def opened() -> Facts:
        nonlocal trial
        trial = Trial("memory://run", store=store, wait_seconds=0)
        return {}

    yield "opening", opened
    if trial is not None:
        yield from questions(trial, run.asked)


def _difference(facts: Facts, expected: Facts) -> str:
    for key in {**facts, **expected}:
        if facts.get(key) != expected.get(key):
            return f"{key} is {facts.get(key)!r:.90}, not {expected.get(key)!r:.90}"
    return ""


def may_be(question: str, facts: Facts, run: Run, done: Damage) -> bool:
    """Whether an answer is not that of the sound run, and yet as good as can be.

    A missing file is noticed only if another one refers to it; its values are then absent, or are
    those saved before it was written. A query without a worker returns the values of the first
    worker that has the step. An earlier version of a collections file is not noticed either.
    """
    before = run.before.get(question, {})
    if done.what == "a file deleted":
        known = [run.truth[question], before]
        if question.startswith("tensor "):
            known += [each[question] for each in run.alone]
        return all(value in [each.get(key) for each in known] for key, value in facts.items())
    stale = done.what == "a file of an earlier time" and question == "collections"
    return stale and facts == before


def may_be_silent(run: Run, done: Damage) -> bool:
    """Whether a check may say nothing: everything that leads anywhere is as it was written."""
    if done.what in ("a file deleted", "a file of an earlier time", "a file twice"):
        return True
    return all(_leads_nowhere(run, key, done.files.get(key, b"")) for key in done.keys)


def _leads_nowhere(run: Run, key: str, data: bytes) -> bool:
    """Whether only records of v1 have changed that no index names: they were saved again since."""
    sound = run.files.get(key, b"")
    if event_format(key) != "v1" or not sound:
        return False
    named = np.zeros(len(sound), bool)
    for each, content in run.files.items():
        index = json.loads(content) if each.startswith("index/") and content else {"meta": {}}
        if index["meta"].get("event_file_name") == key:
            for record in index["tensor_payload"]:
                named[record["start_idx"] : record["start_idx"] + record["length"]] = True
    if len(data) != len(sound):
        return not named.any()
    changed = np.frombuffer(data, np.uint8) != np.frombuffer(sound, np.uint8)
    return not (changed & named).any()


def _check(run: Run, done: Damage, remote: bool, about: str, outcome: Outcome) -> bool:
    try:
        report = check_run(stored(done.files, remote))
    except Exception as error:
        outcome.wrong.append(f"{about}: check raised {error!r}")
        return True
    return bool(report.damages) or remarks_of(report) != run.remarks


def remarks_of(report: CheckReport) -> set[tuple[str, int]]:
    return {(each.what, each.count) for each in report.remarks}
