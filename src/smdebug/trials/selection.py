"""What of a run is asked for: tensors, a mode, a worker, steps."""

from __future__ import annotations

import copy
import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from smdebug.config.collection import CollectionKeys
from smdebug.exceptions import SMDebugValueError
from smdebug.mode_keys import ModeKeys
from smdebug.storage.arrow import from_numpy, to_numpy
from smdebug.storage.format.keys import END_KEY
from smdebug.storage.segment_summary import one_array, places_among
from smdebug.trials.select import filter_by_collection, meant, nearest, regex_of
from smdebug.trials.step_range import checked_range, in_range

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa

    from smdebug.reductions import Array
    from smdebug.trials.trial import Trial

    Tell = Callable[[int, int], None]

# So many rows of the index, and so many bytes of tensors, are in memory at a time.
MOST_ROWS, MOST_BYTES = 200_000, 64 << 20
# What it takes to choose rows, and to tell the steps of modes and workers apart.
KEYS = ("step", "mode", "mode_step", "worker", "tensor", "position")


class Selection:
    """A part of a run: its rows, some steps at a time.

    Args:
        trial: the run.
        tensor: only tensors in whose name this pattern is found.
        collection: only tensors of this collection.
        mode: only steps of this mode; `GLOBAL` for all.
        worker: only what this worker saved.
        steps: first global step (inclusive) and last one (exclusive); either may be None.

    Attributes:
        trial: see above.
        steps: the global steps within the range.
        workers: whose rows are chosen.
        modes: the modes that are chosen.
        whole: whether that is all there is.
        finished: whether the job had ended, so that no more steps will come.

    Raises:
        SMDebugValueError: nothing is chosen, or something is named that the run does not have.

    Example:
        >>> chosen = Selection(trial, collection="losses", steps=(0, 100))  # doctest: +SKIP
        >>> for table in chosen.tables(["tensor", "value"]):  # doctest: +SKIP
        ...     print(table)
    """

    def __init__(
        self,
        trial: Trial,
        *,
        tensor: str | None = None,
        collection: str | None = None,
        mode: ModeKeys = ModeKeys.GLOBAL,
        worker: str | None = None,
        steps: tuple[int | None, int | None] | None = None,
    ) -> None:
        self.trial = trial
        # Asked before looking: what is found afterwards is then all there is.
        self.finished = END_KEY in trial.store.list(END_KEY)
        if trial.dynamic_refresh:
            trial.refresh_data()
        self.steps = _chosen_steps(trial, checked_range(steps))
        self.workers = _chosen_workers(trial, worker)
        self.modes = _chosen_modes(trial, mode)
        self._names = _chosen_names(trial, tensor, collection)
        self._one_worker = worker is not None
        self._one_mode = mode is not ModeKeys.GLOBAL
        limited = self._one_worker or self._one_mode or self._names is not None
        self.whole = not limited and steps in (None, (None, None))

    def of_worker(self, worker: str) -> Selection:
        """The part of it that one worker saved."""
        part = copy.copy(self)
        part.workers, part._one_worker = [worker], True
        return part

    def tables(
        self, columns: Sequence[str], tell: Tell | None = None, most_rows: int = MOST_ROWS
    ) -> Iterator[pa.Table]:
        """Yields the rows, whole steps at a time, by step, worker and place within the step.

        Args:
            columns: which; `KEYS` are there as well.
            tell: is told how many steps of how many are done.
            most_rows: how many rows a table may have, unless one step has more.
        """
        needed = list(dict.fromkeys([*KEYS, *columns]))
        width = len(self.trial.tensor_names()) * max(len(self.trial.known_workers()), 1)
        at_once = max(most_rows // max(width, 1), 1)
        for begin in range(0, len(self.steps), at_once):
            part = self.steps[begin : begin + at_once]
            table = self.kept(self.trial.rows_between(part[0], part[-1] + 1, needed))
            if table.num_rows:
                yield _by_step(table)
            if tell is not None:
                tell(begin + len(part), len(self.steps))

    def kept(self, table: pa.Table) -> pa.Table:
        """The rows of a table that are chosen; their steps are for the caller to choose."""
        kept = np.ones(table.num_rows, bool)
        if self._one_worker:
            kept &= _named(table["worker"], set(self.workers))
        if self._one_mode:
            kept &= _named(table["mode"], {mode.name for mode in self.modes})
        if self._names is not None:
            kept &= _named(table["tensor"], self._names)
        return table if kept.all() else table.filter(from_numpy(kept))


def pieces(
    table: pa.Table, most_bytes: int | None = None, most_rows: int | None = None
) -> Iterator[pa.Table]:
    """The rows of a table, as many at a time as fit into memory with their tensors.

    Args:
        table: rows with the column `length`.
        most_bytes: how much their tensors may take, `MOST_BYTES` when None; one tensor may exceed
            it alone.
        most_rows: how many rows a piece may have, `MOST_ROWS` when None.
    """
    for begin, end in stretches(table["length"].to_pylist(), most_bytes, most_rows):
        yield table.slice(begin, end - begin)


def stretches(
    lengths: Sequence[int | None], most_bytes: int | None = None, most_rows: int | None = None
) -> Iterator[tuple[int, int]]:
    """The first row and the one behind the last of each piece; see `pieces`.

    Example:
        >>> list(stretches([4, None, 4, 9], most_bytes=8))
        [(0, 3), (3, 4)]
    """
    most_bytes = MOST_BYTES if most_bytes is None else most_bytes
    most_rows = MOST_ROWS if most_rows is None else most_rows
    begin, size = 0, 0
    for row, length in enumerate(lengths):
        size += length or 0
        if row > begin and (size > most_bytes or row - begin >= most_rows):
            yield begin, row
            begin, size = row, length or 0
    if begin < len(lengths):
        yield begin, len(lengths)


def groups(table: pa.Table, columns: Sequence[str]) -> Iterator[pa.Table]:
    """The stretches of a table within which none of the columns changes."""
    changes = np.zeros(max(table.num_rows - 1, 0), bool)
    for name in columns:
        codes = _codes(table[name])
        changes |= codes[1:] != codes[:-1]
    bounds = [0, *(np.flatnonzero(changes) + 1).tolist(), table.num_rows]
    for begin, end in itertools.pairwise(bounds):
        if end > begin:
            yield table.slice(begin, end - begin)


def _codes(column: pa.ChunkedArray) -> Array:
    """Numbers that differ where the values of a column do."""
    array: Any = one_array(column)
    if hasattr(array, "indices"):
        array = array.indices
    found: Array = to_numpy(array)
    return found


def _by_step(table: pa.Table) -> pa.Table:
    # The rows come by worker, so counting its changes puts the workers in order.
    codes = _codes(table["worker"])
    worker = np.concatenate([[0], np.cumsum(codes[1:] != codes[:-1])])
    order = np.lexsort((to_numpy(table["position"]), worker, to_numpy(table["step"])))
    return table.take(from_numpy(order))


def _named(column: pa.ChunkedArray, wanted: Iterable[str]) -> Array:
    hits: Array = places_among(column, list(wanted)) >= 0
    return hits


def _chosen_steps(trial: Trial, limits: tuple[int | None, int | None]) -> list[int]:
    steps = trial.steps(show_incomplete_steps=True)
    if not steps:
        raise SMDebugValueError(f"the run must hold saved steps, got {trial.path} with none")
    kept = np.array(steps, np.int64)
    kept = kept[in_range(kept, *limits)]
    if not len(kept):
        first, end = ("" if limit is None else limit for limit in limits)
        raise SMDebugValueError(
            f"the range of steps must hold saved ones, got {first}:{end}; {trial.path} has steps "
            f"from {steps[0]} to {steps[-1]}"
        )
    return [int(step) for step in kept]


def _chosen_workers(trial: Trial, worker: str | None) -> list[str]:
    known = trial.known_workers()
    if worker is None:
        return known
    if worker not in known:
        raise SMDebugValueError(_unknown("worker", worker, known, trial))
    return [worker]


def _chosen_modes(trial: Trial, mode: ModeKeys) -> list[ModeKeys]:
    known = trial.modes()
    if mode is ModeKeys.GLOBAL:
        return known
    if mode not in known:
        names = [each.name.lower() for each in known]
        raise SMDebugValueError(_unknown("mode", mode.name.lower(), names, trial))
    return [mode]


def _chosen_names(trial: Trial, tensor: str | None, collection: str | None) -> set[str] | None:
    if tensor is None and collection is None:
        return None
    names = trial.tensor_names()
    pattern = regex_of("the pattern of tensors", tensor)
    if tensor is not None and pattern is not None:
        found = [name for name in names if pattern.search(name)]
        if not found:
            hint = meant(tensor, names)
            raise SMDebugValueError(f"no tensor of {trial.path} matches {tensor!r}{hint}")
        names = found
    if collection is not None:
        known = list(trial.collections())
        if collection not in known and collection != CollectionKeys.ALL:
            raise SMDebugValueError(_unknown("collection", collection, known, trial))
        names = filter_by_collection(trial, collection, names)
        if not names:
            also = "" if tensor is None else f" that match {tensor!r}"
            raise SMDebugValueError(
                f"the collection must have saved tensors{also}, got {collection!r} with none"
            )
    return set(names)


def _unknown(what: str, given: str, known: list[str], trial: Trial) -> str:
    near = nearest(given, known, 1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return (
        f"the {what} must be one of {trial.path}: {', '.join(known) or 'it has none'}; got "
        f"{given!r}{hint}"
    )
