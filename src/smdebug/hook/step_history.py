"""Which step was of which mode, as far as it is known."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from smdebug.mode_keys import ModeKeys

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from smdebug.storage.segment_summary import StepArrays


class Step(NamedTuple):
    """One step: its number over all modes, its mode, its number within the mode."""

    number: int
    mode: ModeKeys
    mode_step: int

    def leads_to(self, other: Step) -> bool:
        """Whether all steps from this one to another are of one mode."""
        steps = other.number - self.number
        return self.mode is other.mode and other.mode_step - self.mode_step == steps


class StepHistory:
    """The steps so far, as stretches of one mode: it grows with changes of the mode only.

    Args:
        firsts: the first step of each stretch, in order.

    Example:
        >>> history = StepHistory()
        >>> for number in range(3):
        ...     history.add(Step(number, ModeKeys.TRAIN, number))
        >>> history.mode_steps_at(1)
        {<ModeKeys.GLOBAL: 4>: 1, <ModeKeys.TRAIN: 1>: 1}
    """

    def __init__(self, firsts: list[Step] | None = None) -> None:
        self._firsts = firsts or []

    @classmethod
    def of_state(cls, step: int, mode_steps: Mapping[ModeKeys, int]) -> StepHistory:
        """What is known by the counts at one step alone."""
        known = {mode: count for mode, count in mode_steps.items() if count >= 0}
        known.pop(ModeKeys.GLOBAL, None)
        # Training comes last: what follows is most likely more of it.
        modes = sorted(known, key=lambda mode: mode is ModeKeys.TRAIN)
        return cls([Step(step, mode, known[mode]) for mode in modes])

    @classmethod
    def of_rows(cls, rows: StepArrays) -> StepHistory:
        """What saved steps say, sorted by step, of those between them that were not saved."""
        history = cls()
        alike = (np.diff(rows.mode) == 0) & (np.diff(rows.mode_step) == np.diff(rows.step))
        starts = [0, *(np.flatnonzero(~alike) + 1).tolist()] if len(rows.step) else []
        reached: dict[ModeKeys, int] = {}
        before = Step(-1, ModeKeys.GLOBAL, -1)
        for place in starts:
            if place:
                before = _row(rows, place - 1)
                reached[before.mode] = before.mode_step
            first = _begun_at(_row(rows, place), before, reached.get)
            if first.mode is not before.mode:
                # Steps of the stretch before that were not saved have taken place, too.
                reached[before.mode] = before.mode_step + first.number - 1 - before.number
            history._firsts.append(first)
        return history

    def __bool__(self) -> bool:
        return bool(self._firsts)

    def add(self, step: Step) -> None:
        """Takes a step; later ones, from before it was gone back, count no more."""
        firsts = self._firsts
        while firsts and firsts[-1].number >= step.number:
            firsts.pop()
        if not firsts or not firsts[-1].leads_to(step):
            firsts.append(step)

    def remove(self, step: Step) -> None:
        """Takes the step that was added last back."""
        if self._firsts and self._firsts[-1] == step:
            self._firsts.pop()

    def put_before(self, earlier: StepHistory) -> None:
        """Adds what is known of the steps before the first one here."""
        if self._firsts:
            own = self._firsts[0].number
            self._firsts[:0] = [first for first in earlier._firsts if first.number < own]
        else:
            self._firsts = list(earlier._firsts)

    def begins_at(self) -> int | None:
        """The first step that is known; None when none is."""
        return self._firsts[0].number if self._firsts else None

    def mode_steps_at(self, number: int) -> dict[ModeKeys, int]:
        """The number of the last step of every mode when a step had been made.

        Behind what is known, the mode goes on that was the last.
        """
        found = {ModeKeys.GLOBAL: number}
        before = [first for first in self._firsts if first.number <= number]
        for place, first in enumerate(before):
            last = place == len(before) - 1
            end = number if last else max(before[place + 1].number - 1, first.number)
            count = first.mode_step + end - first.number
            if last:
                later = self._firsts[len(before) :]
                counts = [each.mode_step - 1 for each in later if each.mode is first.mode]
                count = min([count, *counts])
            if first.mode is not ModeKeys.GLOBAL:
                found[first.mode] = count
        return found


def _row(rows: StepArrays, place: int) -> Step:
    mode = ModeKeys(int(rows.mode[place]))
    return Step(int(rows.step[place]), mode, int(rows.mode_step[place]))


def _begun_at(step: Step, before: Step, reached: Callable[[ModeKeys, int], int]) -> Step:
    """The first step of the stretch that a saved step belongs to.

    Those of its mode that were not saved came right before it, as when only every tenth step of an
    evaluation is saved.
    """
    if before.mode is step.mode or step.mode is ModeKeys.GLOBAL:
        return step
    unsaved = step.mode_step - reached(step.mode, -1) - 1
    first = max(step.number - max(unsaved, 0), before.number + 1)
    return Step(first, step.mode, step.mode_step - (step.number - first))
