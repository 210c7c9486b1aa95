"""Layout of rows of the index as a frame."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from smdebug.mode_keys import ModeKeys
from smdebug.trials.frame import Column, Frame
from smdebug.trials.index_rows import numbered

if TYPE_CHECKING:
    from smdebug.trials.index_rows import Bools, IndexRows


def lay_out(
    rows: IndexRows,
    reductions: tuple[str, ...],
    mode: ModeKeys = ModeKeys.GLOBAL,
    worker: str | None = None,
    per_worker: bool = False,
    names: list[str] | None = None,
    chosen: Bools | None = None,
) -> Frame:
    """Lay out rows of the index as a frame.

    Args:
        rows: the rows.
        reductions: the reductions that the frame can read.
        mode: only steps of this mode, in its numbering.
        worker: only rows of this worker.
        per_worker: give each worker columns of its own; else the first worker that has a step
            counts.
        names: the tensors, in the order of the columns; all of the rows, in theirs, when None.
        chosen: further conditions on the rows.
    """
    kept = np.ones(len(rows), bool) if chosen is None else chosen.copy()
    if mode is not ModeKeys.GLOBAL:
        kept &= rows.mode == mode.value
    if worker is not None:
        kept &= np.array([each == worker for each in rows.workers], bool)[rows.worker]
    tensor = rows.tensor
    if names is not None:
        place = {name: number for number, name in enumerate(names)}
        order = np.array([place.get(name, -1) for name in rows.tensors] or [-1], np.int64)
        tensor = order[tensor]
        kept &= tensor >= 0
    number = np.flatnonzero(kept)
    # The last of several rows of a cell stays: of the first worker, and its newest.
    if len(rows.workers) > 1 and not per_worker:
        number = number[np.lexsort((rows.step[number], -rows.worker[number]))]
    width = len(rows.workers) if per_worker else 1
    codes = tensor[number] * width + (rows.worker[number] if per_worker else 0)
    used, column = numbered(codes)
    steps, step = numbered(rows.steps(mode)[number])
    cells = np.full((len(steps), len(used)), -1, np.int64)
    cells[step, column] = number
    known = rows.tensors if names is None else names
    columns = [
        Column(known[code // width], rows.workers[code % width] if per_worker else "")
        for code in used.tolist()
    ]
    return Frame(steps, columns, reductions, mode, rows, cells)
