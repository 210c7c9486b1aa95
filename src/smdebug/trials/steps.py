"""Which steps a trial knows, in which mode, and whether all workers have delivered them."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from smdebug.mode_keys import ModeKeys
from smdebug.storage.segment_summary import StepArrays

if TYPE_CHECKING:
    from collections.abc import Mapping

Ints = npt.NDArray[np.int64]


class StepState(Enum):
    """What can be said of a step now."""

    UNAVAILABLE = 0
    AVAILABLE = 1
    NOT_YET_AVAILABLE = 2


class StepTable:
    """All known steps of a trial, as of one refresh.

    A step is complete when every worker has delivered it. Steps before the last complete one
    count as complete too: their missing workers have moved on. When more than `window` steps wait
    behind it, the older half of the window is given up waiting for.

    Args:
        workers: the steps of each worker.
        num_workers: how many workers must deliver a step.
        finished: the job has ended, so everything is complete.
        window: how many steps may wait for a slow worker.
        range_steps: first step (inclusive) and last step (exclusive) to know of.
        complete_to: a step that was complete before, and so stays.
    """

    def __init__(
        self,
        workers: Mapping[str, StepArrays],
        num_workers: int = 1,
        finished: bool = False,
        window: int = 1000,
        range_steps: tuple[int | None, int | None] = (None, None),
        complete_to: int = -1,
    ) -> None:
        self._begin, self._end = range_steps
        self._finished = finished
        pieces = [_newest(_within(each, self._begin, self._end)) for each in workers.values()]
        # Several workers bring the same step; several segments may bring it again.
        delivered = [np.unique(piece.step) for piece in pieces]
        self._known, counts = np.unique(_joined(delivered), return_counts=True)
        last = self._last_complete(counts, num_workers, window)
        self.last_complete_step = max(last, complete_to)
        self._read_modes(StepArrays.concatenate(pieces))

    def _last_complete(self, counts: Ints, num_workers: int, window: int) -> int:
        if not len(self._known):
            return -1
        if self._finished:
            return int(self._known[-1])
        complete = np.flatnonzero(counts >= num_workers)
        last = int(complete[-1]) if len(complete) else -1
        waiting = len(self._known) - (last + 1)
        while waiting > window:
            last += max(window // 2, 1)
            waiting = len(self._known) - (last + 1)
        return int(self._known[last]) if last >= 0 else -1

    def _read_modes(self, all_steps: StepArrays) -> None:
        order = np.argsort(all_steps.step, kind="stable")
        step, mode = all_steps.step[order], all_steps.mode[order]
        mode_step = all_steps.mode_step[order]
        self._mode_of = _Lookup(step, np.arange(len(step)))
        self._mode, self._mode_step = mode, mode_step
        self._by_mode: dict[ModeKeys, _Lookup] = {}
        for key in ModeKeys:
            hits = mode == key.value
            if hits.any():
                self._by_mode[key] = _Lookup(mode_step[hits], step[hits])

    def steps(self, mode: ModeKeys = ModeKeys.GLOBAL, incomplete: bool = False) -> list[int]:
        """The sorted steps of a mode, in the numbering of that mode."""
        if mode is ModeKeys.GLOBAL:
            found = self._known
            return [int(s) for s in found[found <= self._reach(incomplete)]]
        lookup = self._by_mode.get(mode)
        if lookup is None:
            return []
        return [int(s) for s in lookup.keys[lookup.values <= self._reach(incomplete)]]

    def _reach(self, incomplete: bool) -> int:
        return int(self._known[-1]) if incomplete and len(self._known) else self.last_complete_step

    def step_after(self, step: int) -> int | None:
        """The first complete global step behind a step; None when there is none yet."""
        place = int(np.searchsorted(self._known, step, side="right"))
        if place == len(self._known) or self._known[place] > self.last_complete_step:
            return None
        return int(self._known[place])

    def nearest(self, step: int, mode: ModeKeys) -> tuple[int, ...]:
        """Return up to two saved steps on either side of a step."""
        known = np.array(self.steps(mode), np.int64)
        place = int(np.searchsorted(known, step))
        return tuple(known[max(place - 2, 0) : place + 2].tolist())

    def modes(self) -> list[ModeKeys]:
        """The modes seen, GLOBAL left out."""
        return [mode for mode in self._by_mode if mode is not ModeKeys.GLOBAL]

    def has_mode(self, mode: ModeKeys) -> bool:
        return mode is ModeKeys.GLOBAL or mode in self._by_mode

    def mode_of(self, global_step: int) -> tuple[ModeKeys, int] | None:
        """The mode and mode step of a global step; None when it is unknown."""
        row = self._mode_of.get(global_step)
        return None if row is None else (ModeKeys(int(self._mode[row])), int(self._mode_step[row]))

    def global_step(self, mode: ModeKeys, mode_step: int) -> int | None:
        """The global step of a mode's step; None when it is unknown."""
        if mode is ModeKeys.GLOBAL:
            return mode_step
        lookup = self._by_mode.get(mode)
        return None if lookup is None else lookup.get(mode_step)

    def state(self, step: int, mode: ModeKeys = ModeKeys.GLOBAL) -> StepState:
        """Whether a step is there, may still come, or never will."""
        if mode is ModeKeys.GLOBAL and self._begin is not None and step < self._begin:
            return StepState.UNAVAILABLE
        known = self._known if mode is ModeKeys.GLOBAL else self._mode_steps(mode)
        place = int(np.searchsorted(known, step))
        if place == len(known):
            over = self._finished or (mode is ModeKeys.GLOBAL and self._behind_range(step))
            return StepState.UNAVAILABLE if over else StepState.NOT_YET_AVAILABLE
        next_global = self.global_step(mode, int(known[place]))
        complete = next_global is not None and next_global <= self.last_complete_step
        if int(known[place]) == step:
            return StepState.AVAILABLE if complete else StepState.NOT_YET_AVAILABLE
        return StepState.UNAVAILABLE if complete else StepState.NOT_YET_AVAILABLE

    def _mode_steps(self, mode: ModeKeys) -> Ints:
        lookup = self._by_mode.get(mode)
        return np.zeros(0, np.int64) if lookup is None else lookup.keys

    def _behind_range(self, step: int) -> bool:
        return self._end is not None and step >= self._end


class _Lookup:
    """A sorted map of ints to ints; of equal keys the last one given counts."""

    def __init__(self, keys: Ints, values: Ints) -> None:
        order = np.argsort(keys, kind="stable")
        keys, values = keys[order], values[order]
        last = np.ones(len(keys), bool)
        last[:-1] = keys[1:] != keys[:-1]
        self.keys, self.values = keys[last], values[last]

    def get(self, key: int) -> int | None:
        place = int(np.searchsorted(self.keys, key))
        if place == len(self.keys) or self.keys[place] != key:
            return None
        return int(self.values[place])


def _newest(steps: StepArrays) -> StepArrays:
    """Of every step of a worker, what its newest segment says; it may be in several modes."""
    order = np.lexsort((steps.seq, steps.step))
    step, seq = steps.step[order], steps.seq[order]
    _, place, counts = np.unique(step, return_index=True, return_counts=True)
    newest = np.repeat(seq[place + counts - 1], counts) if len(step) else seq
    kept = order[seq == newest]
    return StepArrays(steps.step[kept], steps.mode[kept], steps.mode_step[kept], steps.seq[kept])


def _within(steps: StepArrays, begin: int | None, end: int | None) -> StepArrays:
    if begin is None and end is None:
        return steps
    kept = np.ones(len(steps.step), bool)
    if begin is not None:
        kept &= steps.step >= begin
    if end is not None:
        kept &= steps.step < end
    return StepArrays(steps.step[kept], steps.mode[kept], steps.mode_step[kept], steps.seq[kept])


def _joined(pieces: list[Ints]) -> Ints:
    return np.concatenate(pieces) if pieces else np.zeros(0, np.int64)
