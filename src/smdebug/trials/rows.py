"""Finding the row of a step, mode and worker among the rows of one tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from smdebug.mode_keys import ModeKeys
from smdebug.storage.arrow import to_numpy
from smdebug.storage.segment_summary import mode_numbers, one_array

if TYPE_CHECKING:
    import pyarrow as pa


class RowIndex:
    """Where the rows of one tensor stand, by step, mode and worker.

    Args:
        table: the rows, with the columns worker, step, mode and mode_step, and others.
        version: of the trial they were read from.
    """

    def __init__(self, table: pa.Table, version: int) -> None:
        self.version = version
        self.table = table
        self._columns: dict[str, list[Any]] = {}
        self.step = to_numpy(table["step"])
        self._mode_step = to_numpy(table["mode_step"])
        self._mode = mode_numbers(one_array(table["mode"]))
        workers = one_array(table["worker"])
        codes = to_numpy(workers.indices)
        names = workers.dictionary.to_pylist()
        # Numbered in the order of their names; a name that no row has gets no number.
        used = sorted(np.unique(codes).tolist(), key=lambda code: str(names[code]))
        self.workers = [str(names[code]) for code in used]
        number = np.zeros(len(names) or 1, np.int64)
        number[used] = np.arange(len(used))
        self.worker = number[codes]
        self._maps: dict[ModeKeys, list[dict[int, int]]] = {}

    def _map(self, mode: ModeKeys) -> list[dict[int, int]]:
        """For every worker, step to row."""
        if mode not in self._maps:
            numbers = self.step if mode is ModeKeys.GLOBAL else self._mode_step
            hit = (
                np.ones(len(numbers), bool) if mode is ModeKeys.GLOBAL else self._mode == mode.value
            )
            maps = []
            for worker in range(len(self.workers)):
                rows = np.flatnonzero(hit & (self.worker == worker))
                maps.append(dict(zip(numbers[rows].tolist(), rows.tolist(), strict=True)))
            self._maps[mode] = maps
        return self._maps[mode]

    def row(self, step: int, mode: ModeKeys, worker: str | None) -> int | None:
        for name, rows in zip(self.workers, self._map(mode), strict=True):
            if (worker is None or name == worker) and step in rows:
                return rows[step]
        return None

    def column(self, name: str) -> list[Any]:
        """A column as Python values, None where it is null."""
        if name not in self._columns:
            self._columns[name] = self.table[name].to_pylist()
        return self._columns[name]

    def by_step(self, mode: ModeKeys, worker: str | None, reach: int | None) -> dict[int, int]:
        """Rows by step, ascending, of one worker, or of the first that has the step.

        Args:
            mode: the numbering of the steps.
            worker: whose rows.
            reach: the last global step; None for all.
        """
        found: dict[int, int] = {}
        for name, rows in zip(self.workers, self._map(mode), strict=True):
            if worker is None or name == worker:
                found = {**rows, **found}
        return {
            step: row
            for step, row in sorted(found.items())
            if reach is None or self.step[row] <= reach
        }

    def workers_at(self, step: int, mode: ModeKeys) -> list[str]:
        maps = zip(self.workers, self._map(mode), strict=True)
        return [name for name, rows in maps if step in rows]
