"""The steps of a trial as frames for rules: all tensors, a column for each worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smdebug.trials.frame_layout import lay_out
from smdebug.trials.index_rows import IndexRows, needed_columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from smdebug.trials.frame import Frame
    from smdebug.trials.trial import Trial

# Rows of the index in a frame: some hundred megabytes, whatever the run.
MAX_ROWS = 4_000_000


def frame_of_steps(trial: Trial, begin: int, end: int, reads: Iterable[str]) -> Frame:
    """Return the steps `begin <= step < end` of a trial: all tensors, a column for each worker."""
    reductions = tuple(dict.fromkeys(reads))
    columns = [*needed_columns(reductions, raw=True), "time", "position"]
    rows = IndexRows(trial, trial.rows_between(begin, end, columns), reductions)
    return lay_out(rows, reductions, per_worker=True)


def rule_frames(trial: Trial, begin: int, reads: Iterable[str]) -> Iterator[Frame]:
    """Yield the complete steps of a trial from `begin` on, in frames that fit into memory."""
    if trial.step_after(begin - 1) is None:
        # The common case of a rule that is invoked step by step; listing all steps takes long.
        return
    steps = [step for step in trial.steps() if step >= begin]
    width = max(len(trial.tensor_names()) * max(len(trial.known_workers()), 1), 1)
    at_once = max(MAX_ROWS // width, 1)
    for start in range(0, len(steps), at_once):
        part = steps[start : start + at_once]
        yield frame_of_steps(trial, part[0], part[-1] + 1, reads)
