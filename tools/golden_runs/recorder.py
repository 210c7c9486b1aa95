"""The truth about a run: everything that reading it has to return, as a JSON file."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

Array = npt.NDArray[Any]

# Types that format v1 cannot store; it has float32 in their place (docs/formats.md).
_WIDENED_IN_V1 = frozenset({"bfloat16", "float8_e4m3fn", "float8_e5m2"})
_SHORT_FLOATS = frozenset({"float16", "float32", *_WIDENED_IN_V1})


@dataclass
class Record:
    """One tensor of one worker at one step.

    Attributes:
        worker: the worker that saved it.
        step: the global step.
        mode: the name of the mode.
        mode_step: the step within the mode.
        tensor: the tensor's name.
        shape: its shape.
        dtype: the element type that is read back; None where only reductions were saved.
        value: the elements; None where only reductions were saved. See `encode_array`.
        reductions: the saved reductions, as `float.hex` writes them.
        time: the time stamp that was given, in seconds since 1970; None where there was none.
    """

    worker: str
    step: int
    mode: str
    mode_step: int
    tensor: str
    shape: list[int]
    dtype: str | None = None
    value: Any = None
    reductions: dict[str, str] = field(default_factory=dict)
    time: float | None = None


@dataclass(frozen=True)
class Step:
    """The step that a script is at.

    Attributes:
        number: the global step.
        mode: the name of its mode.
        mode_step: the step within the mode.
        worker: the worker that saves it.
    """

    number: int
    mode: str
    mode_step: int
    worker: str = "worker_0"


class Recorder:
    """Collects what a script saves; one file per run.

    Args:
        run: the directory of the run; the truth is in `<run>.json` next to it.
        format: "v1" or "v2".
        written_with: versions of the packages that wrote the run, by name.
    """

    def __init__(self, run: Path, format: str, written_with: Mapping[str, str]) -> None:
        self.run = run
        self.format = format
        self._path = run.parent / f"{run.name}.json"
        self._head: dict[str, Any] = {"format": format, "written_with": dict(written_with)}
        self._records: dict[tuple[str, int, str], Record] = {}
        # Their values stay in event files, which never change.
        self._superseded: list[Record] = []
        if self._path.exists():
            # An earlier process of the same job has recorded its steps.
            known = json.loads(self._path.read_text("utf-8"))
            for each in known["records"]:
                self._add(Record(**each))
            self._superseded = [Record(**each) for each in known["superseded"]]

    def save(
        self,
        step: Step,
        tensor: str,
        array: Array,
        *,
        raw: bool = True,
        reductions: Iterable[str] = (),
        time: float | None = None,
    ) -> None:
        """Record a tensor that the hook is to save; one saved before at the same step is replaced.

        Args:
            step: the step it is saved at.
            tensor: its name.
            array: its elements, as the script has them.
            raw: whether the tensor itself is saved.
            reductions: the reductions that are saved, as the index spells them.
            time: the time stamp given to the hook.
        """
        reduced = {name: numpy_reduction(array, name).hex() for name in reductions}
        if self.format == "v1" and array.dtype.name in _WIDENED_IN_V1:
            array = array.astype(np.float32)
        self._add(
            Record(
                step.worker, step.number, step.mode, step.mode_step, tensor,
                list(array.shape),
                dtype_name(array.dtype) if raw else None,
                encode_array(array) if raw else None,
                reduced, time,
            )
        )  # fmt: skip

    def write(self) -> None:
        """Write what was recorded so far; a process that is about to be killed calls it first."""
        write_truth(self._path, {**self._head, **self._all_records()})

    def finish(self, finished: bool) -> None:
        """Complete the truth when all processes of the job have ended.

        Args:
            finished: whether the job has closed its hook.
        """
        records = list(self._records.values())
        workers = sorted({each.worker for each in records})
        collections = _stored_collections(self.run)
        names = sorted({each.tensor for each in records})
        write_truth(
            self._path,
            {
                **self._head,
                "finished": finished,
                "workers": workers,
                "last_complete_step": _last_complete_step(records, finished),
                "collections": collections,
                "members": {
                    name: [each for each in names if _is_member(each, collection)]
                    for name, collection in collections.items()
                },
                "failures": {},
                "check": {"status": 0, "files": []},
                **self._all_records(),
            },
        )

    def _all_records(self) -> dict[str, list[dict[str, Any]]]:
        return {
            "superseded": [_without_defaults(each) for each in self._superseded],
            "records": [_without_defaults(each) for each in self._records.values()],
        }

    def _add(self, record: Record) -> None:
        key = record.worker, record.step, record.tensor
        earlier = self._records.pop(key, None)
        if earlier is not None:
            self._superseded.append(earlier)
        self._records[key] = record


def write_truth(path: Path, truth: Mapping[str, Any]) -> None:
    """Write a truth file, one line per record, so that a change of one is a change of one line."""
    lines = []
    for name, value in truth.items():
        text = json.dumps(value)
        if name in ("records", "superseded") and value:
            text = "[\n{}\n]".format(",\n".join(json.dumps(each) for each in value))
        lines.append(f"{json.dumps(name)}: {text}")
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")


def _without_defaults(record: Record) -> dict[str, Any]:
    """Return the fields of a record that say something: there are many records."""
    return {name: value for name, value in asdict(record).items() if value not in (None, {})}


def encode_array(array: Array) -> Any:
    """Return the elements of an array in a form that JSON keeps exactly.

    Numbers are the hexadecimal digits of their little-endian bytes in C order; strings are lists,
    bytes lists of hexadecimal digits.

    Example:
        >>> encode_array(np.array([1, 258], np.int16))
        '01000201'
    """
    if array.dtype.kind in "US":
        flat = array.reshape(-1).tolist()
        return [each.hex() if isinstance(each, bytes) else each for each in flat]
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    return array.tobytes(order="C").hex()


def dtype_name(dtype: np.dtype[Any]) -> str:
    """Return the name of an element type; strings of any length are `str` or `bytes`."""
    return {"U": "str", "S": "bytes"}.get(dtype.kind) or dtype.newbyteorder("=").name


def numpy_reduction(array: Array, name: str) -> float:
    """Compute a reduction with numpy in float64, by its definition in docs/formats.md.

    Those of floats of at most 32 bits are rounded to float32, unless that makes them infinite or
    zero.
    """
    kind = array.dtype.name
    wide = np.asarray(array, np.complex128 if array.dtype.kind == "c" else np.float64).reshape(-1)
    plain = name.removeprefix("abs_")
    if plain != name:
        wide = np.abs(wide)
    with np.errstate(all="ignore"):
        value = float(_DEFINITIONS[plain](wide))
        short = float(np.float32(value))
    if kind not in _SHORT_FLOATS or (np.isinf(short) and np.isfinite(value)):
        return value
    return value if (short == 0) != (value == 0) else short


_DEFINITIONS: dict[str, Callable[[Array], Any]] = {
    "min": np.min,
    "max": np.max,
    "mean": np.mean,
    "std": np.std,
    "variance": np.var,
    "sum": np.sum,
    "prod": np.prod,
    "median": np.median,
    "l1": lambda x: np.sum(np.abs(x)),
    "l2": lambda x: np.sqrt(np.sum(np.square(np.abs(x)))),
    "nans": lambda x: np.count_nonzero(np.isnan(x)),
    "infs": lambda x: np.count_nonzero(np.isinf(x)),
    "zeros": lambda x: np.count_nonzero(x == 0),
}


def _stored_collections(run: Path) -> dict[str, Any]:
    """Return the collections of the first worker, with the tensor names of all, by name.

    Read from the JSON files themselves.
    """
    merged: dict[str, Any] = {}
    for path in sorted((run / "collections").rglob("*.json")):
        for name, content in json.loads(path.read_text("utf-8"))["collections"].items():
            known = merged.setdefault(name, content)
            known["tensor_names"] = sorted({*known["tensor_names"], *content["tensor_names"]})
    return merged


def _is_member(tensor: str, collection: Mapping[str, Any]) -> bool:
    if any(re.search(regex, tensor) for regex in collection.get("exclude_regex", [])):
        return False
    return tensor in collection["tensor_names"] or any(
        re.search(regex, tensor) for regex in collection["include_regex"]
    )


def _last_complete_step(records: list[Record], finished: bool) -> int:
    """Return the last step that all workers have saved, or the last of a finished run."""
    by_worker: dict[str, set[int]] = {}
    for each in records:
        by_worker.setdefault(each.worker, set()).add(each.step)
    steps = set.union(*by_worker.values()) if finished else set.intersection(*by_worker.values())
    return max(steps, default=-1)
