"""Reading frames from a trial: which rows, in how many chunks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from smdebug.exceptions import SMDebugTypeError, SMDebugValueError, TensorUnavailableForStep
from smdebug.mode_keys import ModeKeys
from smdebug.reductions import canonical_reduction
from smdebug.storage.arrow import from_numpy, pa, to_numpy
from smdebug.storage.format.keys import LAST_STEP
from smdebug.trials.frame_layout import lay_out
from smdebug.trials.index_rows import VALUE, IndexRows, needed_columns
from smdebug.trials.select import chosen, names_in, require_worker
from smdebug.trials.step_range import in_range

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from smdebug.config.collection import Collection
    from smdebug.trials.frame import Frame
    from smdebug.trials.index_rows import Bools
    from smdebug.trials.trial import Trial

# Rows of the index in memory at a time: some hundred megabytes.
MAX_ROWS = 4_000_000
# The index is sorted by tensor: the rows of a few are read without those of the others.
_FEW_TENSORS = 8
ALL_WORKERS = "all"


@dataclass(frozen=True)
class FrameQuery:
    """What a frame is to have; see `Trial.frame`."""

    trial: Trial
    names: list[str]
    reductions: tuple[str, ...]
    mode: ModeKeys = ModeKeys.GLOBAL
    worker: str | None = None
    steps: slice | tuple[int, ...] | None = None
    # Whether a tensor without reductions, such as one of strings, is an error.
    strict: bool = False
    # Whether reductions that were not saved are computed from raw values.
    compute: bool = True

    @classmethod
    def checked(
        cls,
        trial: Trial,
        tensors: str | Iterable[str] | None = None,
        reduction: str | Iterable[str] | None = None,
        *,
        collection: str | Collection | None = None,
        mode: ModeKeys = ModeKeys.GLOBAL,
        worker: str | None = None,
        steps: Iterable[int] | slice | None = None,
    ) -> FrameQuery:
        """Check the arguments of `Trial.frame`.

        Raises:
            SMDebugValueError: the run has no such tensor, reduction, mode or step.
            InvalidWorker: it has no such worker.
        """
        if worker != ALL_WORKERS:
            require_worker(trial, worker)
        everything = tensors is None and collection is None
        names = names_in(trial, mode) if everything else chosen(trial, tensors, collection, mode)
        given = [reduction] if reduction is None or isinstance(reduction, str) else [*reduction]
        if not given:
            raise SMDebugValueError("reduction must name at least one reduction, got an empty list")
        reductions = [VALUE if each is None else canonical_reduction(each) for each in given]
        if isinstance(steps, slice):
            if steps.step is not None:
                raise SMDebugValueError(f"steps must be a slice without a step, got {steps}")
        elif steps is not None:
            try:
                steps = tuple(int(step) for step in steps)
            except TypeError as error:
                raise SMDebugTypeError(
                    f"steps must be a list of steps or a slice, got {steps!r}"
                ) from error
        return cls(trial, names, tuple(dict.fromkeys(reductions)), mode, worker, steps)

    def read(self) -> Frame:
        """Return everything as one frame."""
        few = len(self.names) <= _FEW_TENSORS
        ranges = [self._span()] if few else list(self._ranges(None))

        def read(raw: bool) -> pa.Table:
            tables = [self._rows(begin, end, raw, few) for begin, end in ranges]
            return tables[0] if len(tables) == 1 else pa.concat_tables(tables)

        frame = self._frame(read)
        self._require_steps(frame)
        return frame

    def chunks(self, max_rows: int = MAX_ROWS) -> Iterator[Frame]:
        """Yield frames of consecutive steps, of at most so many rows of the index."""
        width = len(self.trial.tensor_names()) * max(len(self.trial.known_workers()), 1)
        for begin, end in self._ranges(max(max_rows // max(width, 1), 1)):
            frame = self._frame(lambda raw: self._rows(begin, end, raw, False))  # noqa: B023
            if len(frame):
                yield frame

    def _ranges(self, max_steps: int | None) -> Iterator[tuple[int, int]]:
        """Yield ranges of global steps to read, of at most so many saved steps each.

        Between steps that are listed, nothing is read.
        """
        begin, end = self._span()
        if max_steps is None and not isinstance(self.steps, tuple):
            yield begin, end
            return
        steps = np.array(self.trial.steps(show_incomplete_steps=True), np.int64)
        steps = steps[(steps >= begin) & (steps < end)]
        wanted = np.ones(len(steps), bool)
        if isinstance(self.steps, tuple):
            known = [self.trial.known_global_step(self.mode, step) for step in self.steps]
            wanted = np.isin(steps, [step for step in known if step is not None])
        edges = np.flatnonzero(np.diff(np.concatenate([[0], wanted, [0]])))
        for first, last in edges.reshape(-1, 2).tolist():
            for place in range(first, last, max_steps or len(steps)):
                part = steps[place : min(place + (max_steps or len(steps)), last)]
                yield int(part[0]), int(part[-1]) + 1
        if not len(edges):
            yield begin, begin

    def _span(self) -> tuple[int, int]:
        """Return the first global step and the one after the last; without incomplete steps."""
        # A worker that is named may be ahead of the others.
        last = None if self.worker not in (None, ALL_WORKERS) else self.trial.last_complete_step
        end = LAST_STEP + 1 if last is None else last + 1
        if isinstance(self.steps, slice) and self.mode is ModeKeys.GLOBAL:
            begin = self.steps.start or 0
            return begin, end if self.steps.stop is None else min(end, self.steps.stop)
        if isinstance(self.steps, tuple):
            known = [self.trial.known_global_step(self.mode, step) for step in self.steps]
            found = [step for step in known if step is not None]
            return min(found, default=0), min(max(found, default=-1) + 1, end)
        return 0, end

    def _frame(self, read: Callable[[bool], pa.Table]) -> Frame:
        """Lay out rows; read again with raw values if a reduction was not saved everywhere."""
        frame = self._laid_out(read(False))
        known = [frame.present, *(frame.read(each)[1] for each in self.reductions[1:])]
        missing = any(not np.array_equal(each, frame.saved) for each in known)
        if missing and self.compute and {"offset", VALUE} & {*self.trial.present_columns()}:
            frame = self._laid_out(read(True))
        return frame

    def _laid_out(self, table: pa.Table) -> Frame:
        rows = IndexRows(self.trial, table, self.reductions, self.strict)
        every_worker = self.worker == ALL_WORKERS
        return lay_out(
            rows, self.reductions, self.mode, None if every_worker else self.worker,
            every_worker, self.names, self._chosen(rows),
        )  # fmt: skip

    def _chosen(self, rows: IndexRows) -> Bools | None:
        """Return the rows of the wanted steps; None for all."""
        numbers = rows.steps(self.mode)
        if isinstance(self.steps, tuple):
            return np.isin(numbers, self.steps)
        if isinstance(self.steps, slice) and self.mode is not ModeKeys.GLOBAL:
            return in_range(numbers, self.steps.start, self.steps.stop)
        return None

    def _rows(self, begin: int, end: int, raw: bool, few: bool) -> pa.Table:
        columns = needed_columns(self.reductions, raw)
        if not few:
            return self.trial.rows_between(begin, end, columns)
        tables = [self.trial.rows(name, columns) for name in self.names]
        table = pa.concat_tables(tables) if len(tables) > 1 else tables[0]
        steps = to_numpy(table["step"])
        if len(steps) and (steps.min() < begin or steps.max() >= end):
            table = table.filter(from_numpy((steps >= begin) & (steps < end)))
        return table

    def _require_steps(self, frame: Frame) -> None:
        """Raise an error for a step that was asked for and is not in a frame."""
        if isinstance(self.steps, tuple) and len(frame) < len(set(self.steps)):
            step = next(step for step in self.steps if step not in frame.steps)
            self.trial.require_step(step, self.mode)
            raise TensorUnavailableForStep(self.names[0], step, self.mode)
