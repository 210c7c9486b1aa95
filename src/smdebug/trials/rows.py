"""Finding the row of a step, mode and worker among the rows of one tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from smdebug.mode_keys import ModeKeys
from smdebug.storage.catalog import dictionary_array, mode_numbers

if TYPE_CHECKING:
    import pyarrow as pa


class RowIndex:
    """Where the rows of one tensor stand, by step, mode and worker.

    Args:
        table: the rows, with the columns worker, step, mode and mode_step.
        version: of the trial they were read from.
    """

    def __init__(self, table: pa.Table, version: int) -> None:
        self.version = version
        self.step = table["step"].to_numpy()
        self._mode_step = table["mode_step"].to_numpy()
        self._mode = mode_numbers(dictionary_array(table["mode"]))
        workers = dictionary_array(table["worker"])
        codes = workers.indices.to_numpy(zero_copy_only=False)
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

    def by_step(self, mode: ModeKeys, worker: str | None) -> dict[int, int]:
        found: dict[int, int] = {}
        for name, rows in zip(self.workers, self._map(mode), strict=True):
            if worker is None or name == worker:
                # The first worker that has a step speaks for it.
                found = {**rows, **found}
        return dict(sorted(found.items()))

    def steps(self, mode: ModeKeys, reach: int | None) -> list[int]:
        found = self.by_step(mode, None)
        return [step for step, row in found.items() if reach is None or self.step[row] <= reach]

    def workers_at(self, step: int, mode: ModeKeys) -> list[str]:
        maps = zip(self.workers, self._map(mode), strict=True)
        return [name for name, rows in maps if step in rows]
