"""Runs that are damaged at random, and everything that can be asked of them, as facts.

A fact is a key and what it holds, so that answers compare as dictionaries: all facts of the sound
run, or a part of them, or others.
"""

from __future__ import annotations

import logging
import os
import random
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from smdebug.config.collection import Collection
from smdebug.config.collection_manager import CollectionManager
from smdebug.exceptions import SMDebugError, TensorUnavailableForStep
from smdebug.mode_keys import ModeKeys
from smdebug.storage.batch import Entry, StepBatch
from smdebug.storage.check import check_run
from smdebug.storage.findings import Finding, read_reports, write_findings, write_report
from smdebug.storage.layout import END_KEY, parse_index_key
from smdebug.storage.memory import MemoryStore
from smdebug.storage.raw import VALUE_COLUMNS
from smdebug.storage.writer import RunWriter
from smdebug.trials.trial import Trial

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    Files = dict[str, bytes]
    Facts = dict[Any, Any]
    Group = tuple[str, Callable[[], Facts]]

SEED = 1034
STEPS = range(6)
# Each kind of run: its format, its workers, whether a second job went on with it, and whether its
# index files were joined at its end.
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
        truth: everything that the sound run says.
        before: everything that it said at the earlier moment.
    """

    files: Files
    earlier: Files
    other: Files
    truth: Facts
    before: Facts


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
            writer.flush()
            earlier = copied(store) if step == max(STEPS) - 1 else earlier
        writer.write_collections(collections_of(number, names, len(workers)))
        writer.flush()
    uncompacted = copied(store)
    for writer in writers:
        writer.close(end=True)
    if compacted:
        return earlier, copied(store)
    return earlier, {**uncompacted, END_KEY: b""}


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
    truth, before = facts_of(stored(files)), facts_of(stored(earlier))
    return Run(files, earlier, others, truth, before)


class RemoteStore(MemoryStore):
    """Memory that is read as an object store is: in ranges."""

    remote = True


def stored(files: Files, remote: bool = False) -> MemoryStore:
    store = RemoteStore() if remote else MemoryStore()
    for key, data in files.items():
        store.write(key, [data])
    return store


# ---- everything that can be asked


def plain(value: Any) -> Any:
    """Something that is equal only if every bit is: arrays, NaN and negative zeros too."""
    if isinstance(value, np.ndarray):
        content = repr(value.tolist()) if value.dtype.kind in "OUS" else value.tobytes()
        return (value.dtype.name if value.dtype.kind != "U" else "str", value.shape, content)
    if isinstance(value, float):
        return np.float64(value).tobytes()
    return repr(value)


def facts_of(store: MemoryStore) -> Facts:
    """All facts of a run that is sound."""
    found: Facts = {}
    trial = Trial("memory://run", store=store, wait_seconds=0)
    for _, answer in questions(trial, None):
        # Of what was not saved there is no fact.
        with suppress(TensorUnavailableForStep):
            found.update(answer())
    return found


def questions(trial: Trial, truth: Facts | None) -> Iterator[Group]:
    """Everything a trial can be asked, in groups that fail together.

    Args:
        trial: the run.
        truth: what there is to ask about; None asks about what the trial itself has.
    """
    # Asked about what there was, not about what is left of it.
    names = trial.tensor_names() if truth is None else truth["asked", "names"]
    steps = trial.steps() if truth is None else truth["asked", "steps"]
    workers = trial.workers() if truth is None else truth["asked", "workers"]
    if truth is None:
        asked = {("asked", "names"): names, ("asked", "steps"): steps}
        yield "asked", lambda: {**asked, ("asked", "workers"): workers}
    yield "steps", partial(_steps, trial, steps)
    yield "names", partial(_names, trial, steps)
    yield "collections", partial(_collections, trial)
    yield "arrow", partial(_arrow, trial)
    yield "times", partial(_times, trial)
    yield "findings", partial(_findings, trial)
    for name in names:
        yield "tensor", partial(_tensor, trial, name)
        for worker in workers:
            yield "values", partial(_values, trial, name, worker)
            for step in steps:
                yield "reductions", partial(_reductions, trial, name, worker, step)


def _steps(trial: Trial, steps: list[int]) -> Facts:
    found: Facts = {("mode", mode.name): True for mode in trial.modes()}
    for mode in ModeKeys:
        found |= {("step", mode.name, step): True for step in trial.steps(mode)}
    for step in steps:
        mode, mode_step = trial.mode_modestep(step)
        if mode is not None:
            found["mode of", step] = (mode.name, mode_step)
    return found


def _names(trial: Trial, steps: list[int]) -> Facts:
    found: Facts = {("name", name): True for name in trial.tensor_names()}
    for step in steps:
        found |= {("name at", step, name): True for name in trial.tensor_names(step=step)}
    return found


def _collections(trial: Trial) -> Facts:
    found: Facts = {("workers",): (trial.workers(), trial.num_workers)}
    for name, collection in trial.collections().items():
        found["collection", name] = collection.to_json()
        members = [each for each in trial.tensor_names() if collection.matches(each)]
        found |= {("member", name, member): True for member in members}
    return found


def _arrow(trial: Trial) -> Facts:
    rows = trial.to_arrow().to_pylist()
    return {
        ("row", row["worker"], row["step"], row["tensor"], column): plain(value)
        for row in rows
        for column, value in row.items()
        # Where a row lies is no answer, and changes when files are joined.
        if column not in ("seq", "position", "event_file", "offset", "length", "checksum", "digest")
    }


def _times(trial: Trial) -> Facts:
    table = trial.to_arrow([*VALUE_COLUMNS, "time", "worker", "tensor"])
    keys = zip(*(table[name].to_pylist() for name in ("worker", "step", "tensor")), strict=True)
    times = trial.row_times(table)
    return {("time", *key): time for key, time in zip(keys, times, strict=True)}


def _findings(trial: Trial) -> Facts:
    found: Facts = {("finding", each.message): str(each.to_dict()) for each in trial.findings()}
    reports = read_reports(trial.store)
    return {**found, **{("report", number): str(each) for number, each in enumerate(reports)}}


def _tensor(trial: Trial, name: str) -> Facts:
    tensor = trial.tensor(name)
    found: Facts = {("tensor step", name, step): True for step in tensor.steps()}
    found |= {("shape", name, step): shape for step, shape in tensor.shapes().items()}
    if name in ("loss", "big"):
        steps, values = tensor.series()
        found |= {("series", name, s): plain(v) for s, v in zip(steps.tolist(), values)}
    elif name != "text":
        steps, values = tensor.series("l2")
        found |= {("l2", name, s): plain(v) for s, v in zip(steps.tolist(), values.tolist())}
    return found


def _values(trial: Trial, name: str, worker: str) -> Facts:
    values = trial.tensor(name).values(worker=worker)
    return {("value", name, worker, step): plain(value) for step, value in values.items()}


def _reductions(trial: Trial, name: str, worker: str, step: int) -> Facts:
    found = trial.tensor(name).reduction_values(step, worker=worker)
    return {("reduction", name, worker, step, *which): plain(v) for which, v in found.items()}


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

    @property
    def changes(self) -> bool:
        return bool(self.keys)


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
    """Damages a run in the ways with these numbers, and asks it everything each time."""
    # Everything is over: nothing is waited for.
    os.environ["SMDEBUG_MISSING_EVENT_FILE_RETRY_LIMIT"] = "0"
    logging.getLogger("smdebug").setLevel(logging.CRITICAL)
    run = run_of(kind)
    outcome = Outcome()
    for number in numbers:
        rng = random.Random(f"{SEED} {kind} {number}")
        _try_one(run, damage(run, rng), rng.random() < 0.25, f"{kind}, number {number}", outcome)
    return outcome


def _try_one(run: Run, done: Damage, remote: bool, where: str, outcome: Outcome) -> None:
    outcome.tried[done.what] += 1
    about = f"{where}: {done.what}: {', '.join(done.keys)[:200]}"
    errors: list[str] = []
    absent = False
    for group, answer in _asked(stored(done.files, remote), run):
        try:
            facts = answer()
        except SMDebugError as error:
            errors.append(str(error))
            continue
        except Exception as error:
            outcome.wrong.append(f"{about}: {group} raised {error!r}")
            continue
        wrong, missing = compared(group, facts, run, done)
        absent |= missing
        if wrong is not None:
            outcome.wrong.append(f"{about}: {group} says {wrong}")
    said = _check(done, remote, about, outcome)
    outcome.refused[done.what] += bool(errors)
    outcome.checked[done.what] += said
    outcome.absent[done.what] += absent and not errors
    if done.changes and not said and not harmless(run, done):
        outcome.unnamed.append(f"{about}; errors: {errors[:1]}")


def _asked(store: MemoryStore, run: Run) -> Iterator[Group]:
    trial = None

    def opened() -> Facts:
        nonlocal trial
        trial = Trial("memory://run", store=store, wait_seconds=0)
        return {}

    yield "opening", opened
    if trial is not None:
        yield from questions(trial, run.truth)


_GROUPS = {
    "steps": ("mode", "step", "mode of"),
    "names": ("name", "name at"),
    "collections": ("workers", "collection", "member"),
    "arrow": ("row",),
    "times": ("time",),
    "findings": ("finding", "report"),
}


def compared(group: str, facts: Facts, run: Run, done: Damage) -> tuple[str | None, bool]:
    """What of an answer is wrong, and whether something of it is missing."""
    other = [key for key, value in facts.items() if run.truth.get(key) != value]
    if other and not may_be_earlier(group, other, facts, run, done):
        first = other[0]
        return f"{first}: {facts[first]!r:.80}, not {run.truth.get(first)!r:.80}", False
    expected = _expected(group, facts, run)
    missing = [key for key in expected if key not in facts]
    if missing and not may_be_absent(done):
        return f"nothing of {missing[0]}", False
    return None, bool(missing or other)


def _expected(group: str, facts: Facts, run: Run) -> list[Any]:
    """The facts that an answer of this group must have."""
    if group in _GROUPS:
        return [key for key in run.truth if key[0] in _GROUPS[group]]
    # Of a tensor and a worker: those that share the beginning of their keys.
    if group == "opening" or not facts:
        return []
    first = next(iter(facts))
    if group == "tensor":
        kinds = ("tensor step", "shape", "series", "l2")
        return [key for key in run.truth if key[0] in kinds and key[1] == first[1]]
    length = 3 if group == "values" else 4
    return [key for key in run.truth if key[:length] == first[:length]]


def may_be_absent(done: Damage) -> bool:
    """A file that is gone is missed only where another one names it."""
    return done.what == "a file deleted"


def may_be_earlier(group: str, other: list[Any], facts: Facts, run: Run, done: Damage) -> bool:
    """What a run said at an earlier time was right then, and nobody knows that time has passed.

    So it is with a collections file that is put back, and where the file that says that a step was
    saved again is deleted.
    """
    if done.what not in ("a file of an earlier time", "a file deleted"):
        return False
    if done.what == "a file of an earlier time":
        if not all(key.startswith("collections/") for key in done.keys):
            return False
        return group == "collections"
    return all(run.before.get(key) == facts[key] for key in other)


def harmless(run: Run, done: Damage) -> bool:
    """Whether a check may be silent: nothing that has a meaning is other than it was."""
    return done.what in ("a file deleted", "a file of an earlier time")


def _check(done: Damage, remote: bool, about: str, outcome: Outcome) -> bool:
    try:
        report = check_run(stored(done.files, remote))
    except Exception as error:
        outcome.wrong.append(f"{about}: check raised {error!r}")
        return True
    remarks = [each for each in report.remarks if not each.what.startswith("index files without")]
    return bool(report.damages or remarks)


def known_index(files: Files) -> list[str]:
    """The index files among files."""
    return [key for key in files if parse_index_key(key) is not None]
