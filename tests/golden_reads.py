"""Everything that reading a golden run returns, compared with the truth that was recorded."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.golden_runs.recorder import Record, dtype_name, encode_array

from smdebug import create_trial, modes
from smdebug.core.reader import FileReader
from smdebug.exceptions import TensorUnavailableForStep
from smdebug.reductions import REDUCTION_NAMES, REDUCTIONS_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from smdebug.reductions import Array
    from smdebug.trials import Tensor, Trial

    # What is read, how, and the truth about it.
    Read = tuple[str, Callable[[], Any], Any]
    Fields = dict[str, Any]

GOLDEN = Path(__file__).parent / "golden"
_MODES = (modes.GLOBAL, modes.TRAIN, modes.EVAL, modes.PREDICT)


class Unexpected(AssertionError):
    """A read returns something else than the truth."""


def load_truth(name: str, directory: Path = GOLDEN) -> dict[str, Any]:
    """Return the truth about a golden run; a damaged run has the records of the intact one."""
    truth: dict[str, Any] = json.loads((directory / f"{name}.json").read_text("utf-8"))
    for key in {"records", "superseded"} & set(truth):
        truth[key] = [asdict(Record(**each)) for each in truth[key]]
    if "copy_of" in truth:
        truth = {**load_truth(truth["copy_of"], directory), **truth}
    return truth


def apply_damage(run: Path, damage: dict[str, Any]) -> None:
    """Damage a file of a run.

    Args:
        run: the directory of the run.
        damage: the `file`, and what happens to it: the bit at `flip` (byte and bit) is flipped,
            all bytes from `truncate` on are lost, or the file is `missing`.
    """
    path = run / damage["file"]
    if damage.get("missing"):
        path.unlink()
        return
    data = bytearray(path.read_bytes())
    if "flip" in damage:
        byte, bit = damage["flip"]
        data[byte] ^= 1 << bit
    else:
        del data[damage["truncate"] :]
    path.write_bytes(data)


def read_everything(run: Path, truth: dict[str, Any]) -> dict[str, str]:
    """Read everything in a run and compare it with the truth.

    Returns:
        The reads that raise an exception, with the name of its class.

    Raises:
        Unexpected: a read returns something else than the truth.
    """
    failures: dict[str, str] = {}
    _attempt(
        "open with check=True", lambda: _is_finished(_open(run, check=True)), truth["finished"],
        failures,
    )  # fmt: skip
    _attempt("open", lambda: _is_finished(_open(run)), truth["finished"], failures)
    if "open" not in failures:
        for what, read, expected in _trial_reads(_open(run), truth):
            _attempt(what, read, expected, failures)
    for what, read, expected in _event_file_reads(run, truth):
        _attempt(what, read, expected, failures)
    return failures


def _open(run: Path, **options: Any) -> Trial:
    return create_trial(str(run), wait_seconds=0, **options)


def _is_finished(trial: Trial) -> bool:
    return trial.loaded_all_steps


def _attempt(what: str, read: Callable[[], Any], expected: Any, failures: dict[str, str]) -> None:
    try:
        found = read()
    except Exception as error:
        failures[what] = type(error).__name__
        return
    if found != expected:
        raise Unexpected(f"{what}: {found!r}\nexpected {expected!r}")


def _by(records: list[Fields], key: str) -> dict[Any, list[Fields]]:
    groups: dict[Any, list[Fields]] = defaultdict(list)
    for record in records:
        groups[record[key]].append(record)
    return groups


def _trial_reads(trial: Trial, truth: dict[str, Any]) -> Iterator[Read]:
    # Names and steps first: that one of them is missing says more than that it cannot be read.
    yield from _overview_reads(trial, truth)
    yield from _collection_reads(trial, truth)
    yield from _index_reads(trial, truth)
    for name, records in _by(truth["records"], "tensor").items():
        yield from _tensor_reads(trial, name, records, truth)


# ---- steps, modes, workers, collections


def _overview_reads(trial: Trial, truth: dict[str, Any]) -> Iterator[Read]:
    records = truth["records"]
    names = sorted({record["tensor"] for record in records})
    yield "tensor_names", trial.tensor_names, names
    yield "workers", trial.workers, truth["workers"]
    yield "num_workers", lambda: trial.num_workers, len(truth["workers"])
    yield "last_complete_step", lambda: trial.last_complete_step, truth["last_complete_step"]
    used = {record["mode"] for record in records}
    yield "modes", lambda: {mode.name for mode in trial.modes()}, used - {"GLOBAL"}
    for mode in _MODES:
        for incomplete in (False, True):
            yield (
                f"steps, {mode.name}, show_incomplete_steps={incomplete}",
                partial(trial.steps, mode, incomplete),
                _steps(records, mode.name, None if incomplete else truth["last_complete_step"]),
            )
        if mode.name in used:
            yield (
                f"tensor_names, {mode.name}",
                partial(trial.tensor_names, mode=mode),
                sorted({r["tensor"] for r in _in_mode(records, mode.name)}),
            )
    for step, at_step in _by(records, "step").items():
        mode, mode_step = modes[at_step[0]["mode"]], at_step[0]["mode_step"]
        yield (
            f"mode of step {step}",
            partial(trial.mode_modestep, step),
            (mode, mode_step),
        )
        yield (
            f"global step of {mode.name} {mode_step}",
            partial(trial.global_step, mode, mode_step),
            step,
        )
        here = sorted({record["tensor"] for record in at_step})
        yield (
            f"tensor_names of step {step}",
            partial(trial.tensor_names, step=step),
            here,
        )
        yield (
            f"tensor_names of {mode.name} {mode_step}",
            partial(trial.tensor_names, step=mode_step, mode=mode),
            here,
        )


def _collection_reads(trial: Trial, truth: dict[str, Any]) -> Iterator[Read]:
    if truth["collections"] is None:
        # Another hook has added its own.
        return
    yield (
        "collections",
        lambda: {name: found.to_json_dict() for name, found in trial.collections().items()},
        truth["collections"],
    )
    for name, members in truth["members"].items():
        # `all` means every tensor, whatever its regexes.
        members = sorted({r["tensor"] for r in truth["records"]}) if name == "all" else members
        yield (
            f"tensor_names, collection {name}",
            partial(trial.tensor_names, collection=name),
            members,
        )


def _in_mode(records: list[Fields], mode: str) -> list[Fields]:
    return [record for record in records if mode in ("GLOBAL", record["mode"])]


def _steps(records: list[Fields], mode: str, last: int | None = None) -> list[int]:
    """Return the steps of a mode, in its numbering, up to a global step."""
    number = "step" if mode == "GLOBAL" else "mode_step"
    return sorted({r[number] for r in _in_mode(records, mode) if last is None or r["step"] <= last})


# ---- the index as a table


def _index_reads(trial: Trial, truth: dict[str, Any]) -> Iterator[Read]:
    columns = ["worker", "step", "tensor", "mode", "mode_step"]
    if truth["format"] == "v2":
        # An index file of format v1 stores neither, for tensors that have a record.
        columns += ["shape"]
    order = columns[:3]

    def key(row: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(row[name] for name in order)

    yield (
        "to_arrow",
        lambda: sorted(trial.to_arrow(columns).to_pylist(), key=key),
        sorted(({name: r[name] for name in columns} for r in truth["records"]), key=key),
    )
    if truth["format"] == "v2":
        timed = [record for record in truth["records"] if record["time"] is not None]
        names = {record["tensor"] for record in timed}
        table = [*order, "time"]
        yield (
            "to_arrow, time",
            lambda: sorted(
                (row for row in trial.to_arrow(table).to_pylist() if row["tensor"] in names),
                key=key,
            ),
            sorted(({name: r[name] for name in table} for r in timed), key=key),
        )


# ---- tensors


def _tensor_reads(
    trial: Trial, name: str, records: list[Fields], truth: dict[str, Any]
) -> Iterator[Read]:
    tensor = trial.tensor(name)
    for mode in _MODES:
        yield (
            f"steps of {name}, {mode.name}",
            partial(tensor.steps, mode),
            _steps(records, mode.name, truth["last_complete_step"]),
        )
    for step, at_step in _by(records, "step").items():
        yield (
            f"workers of {name} at {step}",
            partial(tensor.workers, step),
            sorted(record["worker"] for record in at_step),
        )
    for record in records:
        yield from _record_reads(tensor, record)
    for worker, saved in _by(records, "worker").items():
        yield from _series_reads(tensor, worker, saved)


def _record_reads(tensor: Tensor, record: Fields) -> Iterator[Read]:
    step, worker = record["step"], record["worker"]
    mode, mode_step = modes[record["mode"]], record["mode_step"]
    where = f"of {tensor.name} at {step}, {worker}"
    expected = _expected_value(record)

    def value(number: int, mode: modes) -> Any:
        try:
            return _described(tensor.value(number, mode, worker))
        except TensorUnavailableForStep:
            if record["value"] is not None:
                raise
            return None

    yield f"value {where}", lambda: value(step, modes.GLOBAL), expected
    yield f"value by mode {where}", lambda: value(mode_step, mode), expected
    yield f"shape {where}", lambda: list(tensor.shape(step, worker=worker)), record["shape"]
    yield f"reductions {where}", lambda: _reductions(tensor, step, worker), record["reductions"]


def _expected_value(record: Fields) -> Any:
    if record["value"] is None:
        return None
    return record["dtype"], record["shape"], record["value"]


def _described(value: Array) -> tuple[str, list[int], Any]:
    return dtype_name(value.dtype), list(value.shape), encode_array(value)


def _reductions(tensor: Tensor, step: int, worker: str) -> dict[str, str]:
    found = tensor.reduction_values(step, worker=worker)
    return {
        f"abs_{name}" if is_absolute else name: float(value).hex()
        for (name, is_absolute), value in found.items()
    }


def _series_reads(tensor: Tensor, worker: str, records: list[Fields]) -> Iterator[Read]:
    """Reads of many steps at once."""
    records = sorted(records, key=lambda record: record["step"])
    yield (
        f"values of {tensor.name}, {worker}",
        lambda: {step: _described(v) for step, v in tensor.values(worker=worker).items()},
        {r["step"]: _expected_value(r) for r in records if r["value"] is not None},
    )
    for reduction in REDUCTION_NAMES:
        saved = [record for record in records if reduction in record["reductions"]]
        if not saved or len(saved) < len(records):
            continue
        yield (
            f"series of {reduction} of {tensor.name}, {worker}",
            partial(_series, tensor, reduction, worker),
            [(r["step"], r["reductions"][reduction]) for r in saved],
        )


def _series(tensor: Tensor, reduction: str, worker: str) -> list[tuple[int, str]]:
    steps, values = tensor.series(reduction, worker=worker)
    return [(int(step), float(v).hex()) for step, v in zip(steps, values, strict=True)]


# ---- event files by themselves


def _event_file_reads(run: Path, truth: dict[str, Any]) -> Iterator[Read]:
    saved: dict[tuple[int, str], list[Fields]] = defaultdict(list)
    # A step that was saved again leaves its earlier values in an event file.
    for record in (*truth["records"], *truth["superseded"]):
        saved[record["step"], record["tensor"]].append(record)
    for path in sorted((run / "events").rglob("*.tfevents")):
        yield (
            f"event file {path.relative_to(run).as_posix()}",
            partial(_unknown_tensors, path, saved),
            [],
        )
        yield (
            f"time stamps in {path.relative_to(run).as_posix()}",
            partial(_wrong_times, path, saved),
            [],
        )


def _unknown_tensors(path: Path, saved: dict[tuple[int, str], list[Fields]]) -> list[Any]:
    """Return the tensors of an event file that the script has not saved."""
    unknown = []
    for name, step, value, mode, mode_step in FileReader(str(path)).read_tensors():
        reduction = None
        if name.startswith(REDUCTIONS_PREFIX):
            # Format v1 stores reductions as tensors.
            reduction, _, name = name.removeprefix(REDUCTIONS_PREFIX).partition("/")
        for record in saved[step, name]:
            if reduction is None:
                same = _described(value) == _expected_value(record)
            else:
                same = float(value).hex() == record["reductions"].get(reduction)
            if same and (mode.name, mode_step) == (record["mode"], record["mode_step"]):
                break
        else:
            unknown.append((name, reduction, step, mode.name, mode_step, value))
    return unknown


def _wrong_times(path: Path, saved: dict[tuple[int, str], list[Fields]]) -> list[Any]:
    """Return the tensors of an event file with another time stamp than the script gave."""
    wrong = []
    for event in FileReader(str(path)).read_events():
        given = {record["time"] for record in saved[event["step"], event["name"]]} - {None}
        if given and event["timestamp"] not in given:
            wrong.append((event["name"], event["timestamp"], given))
    return wrong
