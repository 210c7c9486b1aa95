"""TensorBoard files of a run that was saved without them."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from smdebug.config.collection import (
    NON_HISTOGRAM_COLLECTIONS,
    NON_REDUCTION_COLLECTIONS,
    CollectionKeys,
)
from smdebug.config.schedule import by_schedule
from smdebug.exceptions import SMDebugError, SMDebugRuntimeError, SMDebugValueError
from smdebug.histogram import histogram_of
from smdebug.mode_keys import ModeKeys
from smdebug.reductions import REDUCTION_NAMES
from smdebug.storage.arrow import from_numpy, to_numpy
from smdebug.storage.batch import Entry
from smdebug.storage.format.dtypes import dtype_name
from smdebug.storage.format.keys import TENSORBOARD_FOLDER
from smdebug.storage.raw_tensors import VALUE_COLUMNS
from smdebug.storage.tensorboard.files import (
    ModeFiles,
    files_in,
    number_event,
    remove_files,
    tensor_events,
)
from smdebug.trials.export.protection import require_outside_runs
from smdebug.trials.selection import Selection, pieces

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pyarrow as pa

    from smdebug.config.collection import Collection
    from smdebug.config.save_config import SaveConfigMode
    from smdebug.reductions import Array
    from smdebug.storage.stores.base import Buffer
    from smdebug.trials.trial import Trial

# So many rows of the index, and so many bytes of tensors, are in memory at a time.
_MOST_ROWS, _MOST_BYTES = 100_000, 64 << 20
# A histogram of a few numbers can be 25 kB.
_MOST_EVENTS = 2000
_FIRST_WORKER = "worker_0"
_KEYS = ("worker", "mode", "step", "mode_step", "tensor")


@dataclass
class Exported:
    """What an export wrote.

    Attributes:
        steps: how many steps it wrote something of.
        scalars: how many numbers.
        histograms: how many histograms.
        left_out: tensors of which nothing is shown, at some step at least, and why.
    """

    steps: int = 0
    scalars: int = 0
    histograms: int = 0
    left_out: dict[str, str] = field(default_factory=dict)


class Shown(NamedTuple):
    """How TensorBoard shows a tensor.

    Attributes:
        number: as its own value, which is one number.
        collection: otherwise, the collection that its reductions and histogram stand under.
        histogram: whether it has one.
    """

    number: bool
    collection: str
    histogram: bool


def export_tensorboard(
    trial: Trial,
    directory: str,
    force: bool = False,
    tell: Callable[[int, int], None] | None = None,
    selection: Selection | None = None,
) -> Exported:
    """Writes the TensorBoard files that a hook with `export_tensorboard` would have written.

    Tags, steps, modes and times are those that the hook would have given them. Histograms are
    of tensors that were saved whole: where only reductions were, there are only those.

    Args:
        trial: the run.
        directory: a directory or a URL; each mode gets a directory in it.
        force: replace files of this kind that are there.
        tell: is told how many steps of how many are done.
        selection: what of the run; all of it when None.

    Raises:
        SMDebugValueError: the run has no steps, there are such files already, or the directory is
            a run or lies in one.
        SMDebugRuntimeError: the directory cannot be written to.

    Example:
        >>> export_tensorboard(create_trial("runs/one"), "board/one")  # doctest: +SKIP
        Exported(steps=100, scalars=300, histograms=800, left_out={})
    """
    selection = Selection(trial) if selection is None else selection
    steps = selection.steps
    # Where a hook puts them, too.
    if directory.rstrip("/") == f"{trial.path.rstrip('/')}/{TENSORBOARD_FOLDER}":
        trial.store.path(f"{TENSORBOARD_FOLDER}/x")  # which must not be a link to elsewhere
    else:
        require_outside_runs(trial.path, directory)
    there = files_in(directory)
    if there and not force:
        raise SMDebugValueError(
            f"the directory must be one without TensorBoard files of a run, got {directory}, which "
            f"holds {there[0]}; choose another one, or replace them (--force)"
        )
    export = _Export(selection, directory)
    try:
        remove_files(directory, there)
        with export.files:
            for begin in range(0, len(steps), export.steps_at_once):
                part = steps[begin : begin + export.steps_at_once]
                export.write(part[0], part[-1])
                if tell is not None:
                    tell(begin + len(part), len(steps))
    except OSError as error:
        if isinstance(error, SMDebugError):
            raise
        raise SMDebugRuntimeError(f"cannot write TensorBoard files: {error}") from error
    return export.done


class _Export:
    """An export under way.

    Attributes:
        done: what was written so far.
        files: closes the files.
        steps_at_once: how many steps to write at a time.
    """

    def __init__(self, selection: Selection, directory: str) -> None:
        self._selection = selection
        self._trial = trial = selection.trial
        self._directory = directory
        self._collections = ShownCollections(trial.collections().values())
        self._columns = trial.present_columns()
        self._reductions = [name for name in REDUCTION_NAMES if name in self._columns]
        self._files: dict[str, ModeFiles] = {}
        self._last = -1
        self.done = Exported()
        self.files = ExitStack()
        workers = max(len(trial.known_workers()), 1)
        width = max(len(trial.tensor_names()) * workers, 1)
        self.steps_at_once = max(_MOST_ROWS // width, 1)

    def write(self, first: int, last: int) -> None:
        """Writes the steps from one to another."""
        needed = dict.fromkeys([*_KEYS, *VALUE_COLUMNS, "position", "time", *self._reductions])
        table = self._trial.rows_between(first, last + 1, list(needed))
        table = self._selection.kept(table)
        order = np.lexsort((to_numpy(table["position"]), to_numpy(table["step"])))
        for piece in pieces(table.take(from_numpy(order)), _MOST_BYTES, _MOST_EVENTS):
            self._write_rows(piece)
        for files in self._files.values():
            files.flush()

    def _write_rows(self, table: pa.Table) -> None:
        rows = table.select([*_KEYS, *self._reductions]).to_pylist()
        shown = [self._shown(row) for row in rows]
        wanted = [row for row, each in enumerate(shown) if each.number or each.histogram]
        found = self._trial.row_values(table.take(from_numpy(np.array(wanted)))) if wanted else []
        values: dict[int, Array | None] = dict(zip(wanted, found, strict=True))
        times = self._trial.row_times(table)
        steps: dict[tuple[str, str, int], list[tuple[float, list[Buffer]]]] = {}
        for place, row in enumerate(rows):
            moment = times[place] or 0.0
            key = row["worker"], row["mode"], row["step"]
            events = self._events(row, shown[place], values.get(place), moment)
            if not events:
                why = _lacks(shown[place], values.get(place))
                self.done.left_out[row["tensor"]] = why
            for event in events:
                steps.setdefault(key, []).append((moment, event))
        for (worker, mode, step), timed in steps.items():
            files = self._files_of(worker)
            files.write(ModeKeys[mode], step, timed[0][0], [event for _, event in timed])
            self.done.steps += step != self._last
            self._last = step

    def _shown(self, row: dict[str, Any]) -> Shown:
        return self._collections.shown(row["tensor"], ModeKeys[row["mode"]], row["mode_step"])

    def _events(
        self, row: dict[str, Any], shown: Shown, value: Array | None, time: float
    ) -> list[list[Buffer]]:
        name, step = row["tensor"], row["step"]
        if shown.number:
            number = Entry(name, value).number
            self.done.scalars += number is not None
            return [] if number is None else [number_event(name, number, step=step, wall_time=time)]
        reductions = {key: row[key] for key in self._reductions if row[key] is not None}
        histogram = None if value is None else histogram_of(value)
        self.done.scalars += len(reductions)
        self.done.histograms += histogram is not None
        return list(
            tensor_events(shown.collection, name, reductions, histogram, step=step, wall_time=time)
        )

    def _files_of(self, worker: str) -> ModeFiles:
        if worker not in self._files:
            other = None if worker == _FIRST_WORKER else worker
            files = self._files[worker] = ModeFiles(self._directory, other)
            self.files.callback(files.close)
        return self._files[worker]


def _lacks(shown: Shown, value: Array | None) -> str:
    """Why TensorBoard shows nothing of a tensor."""
    if not (shown.number or shown.histogram):
        return f"the collection {shown.collection} has no histograms"
    if value is None:
        return "its value was not saved"
    if not value.size:
        return "it is empty"
    if value.dtype.kind in ("USOc" if shown.number else "USOcb"):
        what = "number" if shown.number else "histogram"
        return f"there is no {what} of {dtype_name(value.dtype)}"
    return "it is not one number" if shown.number else "it has no finite numbers"


class ShownCollections:
    """Finds out for which collections a tensor was saved at a step.

    Args:
        collections: those of the run, in their order.
    """

    def __init__(self, collections: Iterable[Collection]) -> None:
        self._collections = list(collections)
        self._schedules: dict[ModeKeys, list[tuple[SaveConfigMode, list[Collection]]]] = {}
        self._due: dict[tuple[ModeKeys, int], tuple[bool, ...]] = {}
        self._shown: dict[tuple[str, ModeKeys, tuple[bool, ...]], Shown] = {}

    def shown(self, tensor: str, mode: ModeKeys, mode_step: int) -> Shown:
        """How TensorBoard shows a tensor of a step."""
        if mode not in self._schedules:
            self._schedules[mode] = by_schedule(self._collections, mode)
        if (mode, mode_step) not in self._due:
            # Rows come by step, so one is enough.
            configs = [config for config, _ in self._schedules[mode]]
            due = tuple(config.should_save_step(mode_step) for config in configs)
            self._due = {(mode, mode_step): due}
        key = tensor, mode, self._due[mode, mode_step]
        if key not in self._shown:
            self._shown[key] = _shown(list(self._saved_for(*key)))
        return self._shown[key]

    def _saved_for(
        self, tensor: str, mode: ModeKeys, due: tuple[bool, ...]
    ) -> Iterable[Collection]:
        schedules = zip(self._schedules[mode], due, strict=True)
        saving = [each for (_, group), now in schedules if now for each in group]
        # The names in a collections file are those that were saved; one that ends early may miss
        # some. A step that no schedule names was saved for a tensor that was not finite.
        return (
            [each for each in saving if tensor in each.tensor_names]
            or [each for each in self._collections if tensor in each.tensor_names]
            or [each for each in self._collections if each.matches(tensor)]
        )


def _shown(collections: list[Collection]) -> Shown:
    names = [each.name for each in collections]
    if not NON_REDUCTION_COLLECTIONS.isdisjoint(names):
        return Shown(True, names[0], False)
    of_histogram = [
        each.name
        for each in collections
        if each.save_histogram and each.name not in NON_HISTOGRAM_COLLECTIONS
    ]
    if of_histogram:
        return Shown(False, of_histogram[0], True)
    return Shown(False, names[0], False) if names else Shown(False, CollectionKeys.DEFAULT, True)
