"""The raw tensors of a run as files of arrays, one for each step: safetensors or npz."""

from __future__ import annotations

import hashlib
import json
import re
import zipfile
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

import numpy as np
from numpy.lib import format as npy

from smdebug.exceptions import SMDebugRuntimeError, SMDebugValueError
from smdebug.mode_keys import ModeKeys
from smdebug.storage.format.dtypes import dtype_name, is_extended, widen_for_v1
from smdebug.storage.raw_tensors import VALUE_COLUMNS
from smdebug.storage.stores.local import TEMPORARY_SUFFIX
from smdebug.trials.export.target import ChunkSink, ExportResult, target_directory
from smdebug.trials.selection import groups, pieces

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from smdebug.reductions import Array
    from smdebug.storage.stores.base import Store
    from smdebug.trials.selection import Selection, Tell
    from smdebug.trials.trial import Trial

    Named = Iterator[tuple[str, Array]]

# What an npz file says of itself; and where tensors are whose names make no path in a zip file.
ABOUT_KEY, ESCAPED_PREFIX = "smdebug", "escaped/"
# A name in the header of a safetensors file that is no tensor's.
_METADATA_KEY = "__metadata__"
_LONGEST_NAME = 1000
# Names that unzip might put elsewhere, or that numpy would look up as another's.
_UNSAFE = re.compile(r"(?:^|/)(?:\.{0,2})(?:/|$)|[\\\x00-\x1f\x7f]|^[A-Za-z]:|\.npy$")


class StepFile(NamedTuple):
    """What a file of arrays is of."""

    run: str
    worker: str
    mode: str
    step: int
    mode_step: int


def export_safetensors(
    selection: Selection, out: str, *, force: bool = False, tell: Tell | None = None
) -> ExportResult:
    """Writes the raw tensors of a run as safetensors files, one for each step.

    A file is `step_000000000040.safetensors`, in a folder of its mode and of its worker where
    there are several. Its metadata say `run`, `worker`, `mode`, `step` and `mode_step`.

    Args:
        selection: what of the run.
        out: a directory or a URL.
        force: replace safetensors files that are there.
        tell: is told how many steps of how many are done.

    Raises:
        SMDebugRuntimeError: safetensors is not installed.
        SMDebugValueError: there is something already, or no raw tensor to write.

    Example:
        >>> export_safetensors(Selection(trial), "steps")  # doctest: +SKIP
        ExportResult(out='steps', files=10, steps=10, rows=800, left_out={}, widened={})
    """
    return _export(selection, out, _Safetensors(), force, tell)


def export_npz(
    selection: Selection, out: str, *, force: bool = False, tell: Tell | None = None
) -> ExportResult:
    """Writes the raw tensors of a run as npz files of numpy, one for each step.

    Files lie as those of `export_safetensors` do. bfloat16 and float8, which numpy cannot name,
    become float32, which holds all their numbers. A name that would make a bad path in a zip file
    is replaced by one that begins with `escaped/`. The entry `smdebug` is a JSON text that says
    what the file is of, and which names and types were others.

    Args:
        selection: what of the run.
        out: a directory or a URL.
        force: replace npz files that are there.
        tell: is told how many steps of how many are done.

    Raises:
        SMDebugValueError: there is something already, or no raw tensor to write.
    """
    return _export(selection, out, _Npz(), force, tell)


def _export(
    selection: Selection, out: str, kind: _Kind, force: bool, tell: Tell | None
) -> ExportResult:
    done, seen = ExportResult(out), -1
    own = _own_files(selection.trial, kind.ending)
    store = target_directory(selection.trial.path, out, force, own)
    for table in selection.tables(VALUE_COLUMNS, tell):
        for group in groups(table, ("step", "worker", "mode")):
            about = _about(selection, group)
            named = _counted(_named(selection, group), kind, done)
            first = next(named, None)
            if first is None:
                # Only reductions were saved of this step.
                continue
            key = _folder(selection, about) + f"step_{about.step:012d}{kind.ending}"
            kind.write(store, key, about, _with_first(first, named), done)
            done.files += 1
            done.steps += about.step != seen
            seen = about.step
    if not done.files:
        raise SMDebugValueError(
            f"there must be raw tensors to write, got none of {selection.trial.path} that "
            f"{kind.name} can hold; reductions go into --format parquet or csv"
        )
    return done


def _about(selection: Selection, group: pa.Table) -> StepFile:
    row = group.slice(0, 1).select(["worker", "mode", "step", "mode_step"]).to_pylist()[0]
    return StepFile(selection.trial.name, **row)


def _folder(selection: Selection, about: StepFile) -> str:
    folder = f"{about.mode.lower()}/" if len(selection.modes) > 1 else ""
    return folder + (f"{_worker_folder(about.worker)}/" if len(selection.workers) > 1 else "")


def _worker_folder(worker: str) -> str:
    folder = quote(worker, safe="")
    return folder.replace(".", "%2E", 1) if folder.startswith(".") else folder


def _own_files(trial: Trial, ending: str) -> re.Pattern[str]:
    """Matches the files that an export of this run writes, or one of another run like it."""
    modes = "|".join(mode.name.lower() for mode in ModeKeys)
    workers = [re.escape(_worker_folder(worker)) for worker in trial.known_workers()]
    folders = rf"(?:(?:{modes})/)?(?:(?:{'|'.join([*workers, r'worker_[0-9]+'])})/)?"
    return re.compile(rf"{folders}step_[0-9]{{12}}{re.escape(ending)}")


def _named(selection: Selection, group: pa.Table) -> Named:
    """The tensors of a step that were saved whole."""
    for piece in pieces(group):
        names = piece["tensor"].to_pylist()
        for name, value in zip(names, selection.trial.row_values(piece), strict=True):
            if value is not None:
                yield name, value


def _counted(named: Named, kind: _Kind, done: ExportResult) -> Named:
    for name, value in named:
        why = kind.lacks(name, value)
        if why:
            done.left_out[name] = why
        else:
            done.rows += 1
            yield name, value


def _with_first(first: tuple[str, Array], rest: Named) -> Named:
    yield first
    yield from rest


class _Kind(ABC):
    """A kind of files of arrays."""

    name = ""
    ending = ""

    @abstractmethod
    def lacks(self, name: str, value: Array) -> str:
        """Why it cannot hold a tensor; empty when it can."""

    @abstractmethod
    def write(
        self, store: Store, key: str, about: StepFile, named: Named, done: ExportResult
    ) -> None:
        """Writes a file."""


class _Safetensors(_Kind):
    name = "safetensors"
    ending = ".safetensors"

    def __init__(self) -> None:
        try:
            from safetensors import SafetensorError
            from safetensors import numpy as library
        except ImportError as error:
            raise SMDebugRuntimeError(
                "--format safetensors needs safetensors: pip install 'tornasole[export]'"
            ) from error
        self._library: Any = library
        self._error = SafetensorError
        self._known: dict[np.dtype[Any], bool] = {}

    def lacks(self, name: str, value: Array) -> str:
        if name == _METADATA_KEY:
            return f"safetensors has the name {_METADATA_KEY} for itself"
        return "" if self._has(value.dtype) else f"safetensors has no {dtype_name(value.dtype)}"

    def _has(self, dtype: np.dtype[Any]) -> bool:
        if dtype.kind in "USO":
            return False
        if dtype not in self._known:
            try:
                # Asked, not listed: what it has depends on its version.
                self._library.save({"x": np.zeros(1, dtype)})
                self._known[dtype] = True
            except (self._error, KeyError, ValueError, TypeError):
                self._known[dtype] = False
        return self._known[dtype]

    def write(
        self, store: Store, key: str, about: StepFile, named: Named, done: ExportResult
    ) -> None:
        tensors = dict(named)
        metadata = {field: str(value) for field, value in about._asdict().items()}
        path = store.path(key)
        if path is None:
            store.write(key, [self._library.save(tensors, metadata)])
            return
        # From where the tensors are mapped to the file, without a copy of the step in memory.
        final = Path(path)
        final.parent.mkdir(parents=True, exist_ok=True)
        temporary = final.with_name(final.name + TEMPORARY_SUFFIX)
        try:
            self._library.save_file(tensors, str(temporary), metadata)
            temporary.replace(final)
        except self._error as error:
            raise SMDebugRuntimeError(f"cannot write {path}: {error}") from error
        finally:
            temporary.unlink(missing_ok=True)


class _Npz(_Kind):
    name = "npz"
    ending = ".npz"

    def lacks(self, name: str, value: Array) -> str:
        return ""

    def write(
        self, store: Store, key: str, about: StepFile, named: Named, done: ExportResult
    ) -> None:
        store.write(key, self._chunks(about, named, done))

    def _chunks(self, about: StepFile, named: Named, done: ExportResult) -> Iterator[bytes]:
        # Not by numpy.savez: it takes names for its own arguments, and all tensors at once.
        sink = ChunkSink()
        escaped: dict[str, str] = {}
        widened: dict[str, str] = {}
        with zipfile.ZipFile(sink, "w", zipfile.ZIP_STORED) as archive:
            for name, value in named:
                if is_extended(value.dtype):
                    widened[name] = dtype_name(value.dtype)
                key = escaped_name(name)
                if key != name:
                    escaped[key] = name
                _add(archive, key, widen_for_v1(value))
                yield from sink.take()
            content = {**about._asdict(), "widened": widened, "escaped": escaped}
            _add(archive, ABOUT_KEY, np.array(json.dumps(content)))
        yield from sink.take()
        done.widened.update(widened)


def _add(archive: zipfile.ZipFile, key: str, value: Array) -> None:
    # The date is fixed, so that the same tensors make the same file.
    info = zipfile.ZipInfo(f"{key}.npy")
    with archive.open(info, "w", force_zip64=True) as file:
        npy.write_array(file, value, allow_pickle=False)


def escaped_name(name: str) -> str:
    """The key of a tensor in an npz file: its name, or another one where that makes a bad path.

    Example:
        >>> escaped_name("fc/weight:0")
        'fc/weight:0'
        >>> escaped_name("../weight")
        'escaped/4b78ec7e9eb0048d'
    """
    own = name == ABOUT_KEY or name.startswith(ESCAPED_PREFIX)
    if not own and len(name.encode()) <= _LONGEST_NAME and not _UNSAFE.search(name):
        return name
    return ESCAPED_PREFIX + hashlib.sha256(name.encode()).hexdigest()[:16]
