"""Step numbers: over all modes, and within each mode."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, NamedTuple

from smdebug.config import validation
from smdebug.exceptions import SMDebugTypeError, SMDebugValueError
from smdebug.mode_keys import ModeKeys
from smdebug.storage.format.keys import LAST_STEP

if TYPE_CHECKING:
    from collections.abc import Mapping


class Step(NamedTuple):
    """One step: its number over all modes, its mode, its number within the mode."""

    number: int
    mode: ModeKeys
    mode_step: int

    def continues(self, other: Step) -> bool:
        """Whether all steps since another one are of its mode."""
        steps = self.number - other.number
        return self.mode is other.mode and self.mode_step - other.mode_step == steps


class StepHistory:
    """The mode of every step so far, as far as it is known; it grows with changes of the mode only.

    Args:
        firsts: the first step of each sequence of steps of one mode, in order.

    Example:
        >>> history = StepHistory()
        >>> for number in range(3):
        ...     history.add(Step(number, ModeKeys.TRAIN, number))
        >>> history.mode_steps_at(1)
        {<ModeKeys.TRAIN: 1>: 1, <ModeKeys.GLOBAL: 4>: 1}
    """

    def __init__(self, firsts: list[Step] | None = None) -> None:
        self._firsts = firsts or []

    @classmethod
    def from_counts(cls, step: int, mode_steps: Mapping[ModeKeys, int]) -> StepHistory:
        """Return what the last step of each mode says, at a step over all modes."""
        # Training comes last: the steps that follow are most likely more of it.
        modes = sorted(mode_steps, key=lambda mode: mode is ModeKeys.TRAIN)
        return cls(
            [
                Step(step, mode, mode_steps[mode])
                for mode in modes
                if mode is not ModeKeys.GLOBAL and mode_steps[mode] >= 0
            ]
        )

    @property
    def first_step(self) -> int | None:
        """The first step whose mode is known; None without any."""
        return self._firsts[0].number if self._firsts else None

    def add(self, step: Step) -> None:
        """Add a step; it replaces those from it on, which were made before going back to it."""
        firsts = self._firsts
        while firsts and firsts[-1].number >= step.number:
            firsts.pop()
        if not firsts or not step.continues(firsts[-1]):
            firsts.append(step)

    def remove(self, number: int) -> None:
        """Remove the step that was added last."""
        if self._firsts and self._firsts[-1].number == number:
            self._firsts.pop()

    def prepend(self, earlier: StepHistory) -> None:
        """Add what another history has of the steps before the first one here."""
        end = LAST_STEP + 1 if self.first_step is None else self.first_step
        self._firsts[:0] = [first for first in earlier._firsts if first.number < end]

    def continue_after(self, number: int, mode_steps: Mapping[ModeKeys, int]) -> None:
        """Drop the steps after one that the job went back to, and keep the counts it had there.

        Without this, a count that was known by a later step only would be lost with that step.
        """
        self._firsts = [first for first in self._firsts if first.number <= number]
        counts = {mode: count for mode, count in mode_steps.items() if count >= 0}
        if number >= 0 and self.mode_steps_at(number) != counts:
            self._firsts += StepHistory.from_counts(number, counts)._firsts

    def mode_steps_at(self, number: int) -> dict[ModeKeys, int]:
        """Return the last step of every mode when a step was the last one over all modes.

        After the last known step, its mode is taken to continue.
        """
        before = [first for first in self._firsts if first.number <= number]
        counts: dict[ModeKeys, int] = {}
        for place, first in enumerate(before, 1):
            end = number if place == len(before) else max(before[place].number - 1, first.number)
            counts[first.mode] = first.mode_step + end - first.number
        if before:
            mode = before[-1].mode
            later = self._firsts[len(before) :]
            ends = [first.mode_step - 1 for first in later if first.mode is mode]
            counts[mode] = min([counts[mode], *ends])
        return {**counts, ModeKeys.GLOBAL: number}


class StepCounter:
    """The steps of a job.

    Attributes:
        step: the number of the last step over all modes; -1 before the first.
        mode: the mode of the next step; change it with `set_mode`.
        mode_step: the number of the last step of that mode; -1 before the first.
        begun: how many steps this process has begun.
        history: the mode of each step.

    Example:
        >>> steps = StepCounter()
        >>> steps.set_mode(ModeKeys.TRAIN)
        >>> steps.advance()
        Step(number=0, mode=<ModeKeys.TRAIN: 1>, mode_step=0)
    """

    def __init__(self) -> None:
        self.step = self.mode_step = -1
        self.mode = ModeKeys.GLOBAL
        self.begun = 0
        self.history = StepHistory()
        # Of the modes that were used, except the present one, whose count is `mode_step`.
        self._counts: dict[ModeKeys, int] = {}
        # The mode of the last step, unless it was restored; and the last step of other modes.
        self._last_mode: ModeKeys | None = None
        self._last_of: dict[ModeKeys, Step] = {}
        # What `cancel` goes back to.
        self._before: tuple[int, int, ModeKeys | None] | None = None

    @property
    def mode_steps(self) -> dict[ModeKeys, int]:
        """The number of the last step of every mode that was used."""
        return {**self._counts, self.mode: self.mode_step, ModeKeys.GLOBAL: self.step}

    def set_mode(self, mode: ModeKeys) -> None:
        """Set the mode of the next steps."""
        if mode is not self.mode:
            if self._last_mode is self.mode:
                self._last_of[self.mode] = Step(self.step, self.mode, self.mode_step)
            self._counts[self.mode] = self.mode_step
            self.mode = mode
            # Global steps are those of all modes.
            self.mode_step = self.step if mode is ModeKeys.GLOBAL else self._counts.get(mode, -1)

    def advance(self, number: int | None = None) -> Step:
        """Begin the next step.

        Args:
            number: the step's number, over all modes and in its own, where the framework counts;
                None for one more than the last.
        """
        self._before = (self.step, self.mode_step, self._last_mode)
        if self._last_mode is None:
            self.history.continue_after(self.step, self.mode_steps)
        self.step = self.step + 1 if number is None else number
        self.mode_step = self.mode_step + 1 if number is None else number
        self.begun += 1
        self._last_mode = self.mode
        step = Step(self.step, self.mode, self.mode_step)
        self.history.add(step)
        return step

    def skip(self) -> None:
        """Begin the next step after one of the same mode: `advance`, with less overhead."""
        self._before = (self.step, self.mode_step, self._last_mode)
        self.step += 1
        self.mode_step += 1
        self.begun += 1

    def cancel(self) -> None:
        """Undo the last step, once: it was begun and did not run."""
        if self._before is not None:
            self.history.remove(self.step)
            self.step, self.mode_step, self._last_mode = self._before
            self.begun -= 1
            self._before = None

    def restore(self, step: int, mode_steps: Mapping[ModeKeys, int]) -> None:
        """Take over the counts of an earlier process: the next step is the one after `step`."""
        self.step = step
        self._counts = {**mode_steps, ModeKeys.GLOBAL: step}
        self.mode_step = self._counts.get(self.mode, -1)
        # Values saved before the next step begins belong to it, as at the start of a job.
        self._last_mode, self._last_of, self._before = None, {}, None

    def go_to(self, number: int) -> None:
        """Make a step the last one, with the counts that the modes had at it, if they are known.

        Otherwise the count of the present mode moves by the same difference.
        """
        first = self.history.first_step
        if first is not None and first <= number:
            self.restore(number, self.history.mode_steps_at(number))
            return
        moved = max(self.mode_step + number - self.step, -1)
        known = {**self.mode_steps, self.mode: moved}
        self.restore(number, {mode: min(count, number) for mode, count in known.items()})

    def current(self) -> Step:
        """Return the step that a value saved now belongs to: the last one of the present mode.

        Before the first step of the mode it is the next step, so that a value saved before
        training begins belongs to step 0.
        """
        if self._last_mode is self.mode:
            return Step(self.step, self.mode, self.mode_step)
        # In GLOBAL it is the last one of any mode.
        mode = self._last_mode if self.mode is ModeKeys.GLOBAL else self.mode
        last = None if mode is None else self._last_of.get(mode)
        return last or self.to_come()

    def to_come(self) -> Step:
        """Return the next step, if it is of the present mode."""
        return Step(self.step + 1, self.mode, self.mode_step + 1)


def check_mode(mode: object) -> ModeKeys:
    """Return the value that the mode was set to.

    Raises:
        SMDebugValueError: it is not a mode.
    """
    if not isinstance(mode, ModeKeys):
        raise SMDebugValueError(
            f"mode must be one of modes.{', modes.'.join(m.name for m in ModeKeys)}, "
            f"got {validation.short_repr(mode)}"
        )
    return mode


def step_number(value: object) -> int:
    """Return the value that `hook.step` was set to.

    Raises:
        SMDebugTypeError: it is not a whole number.
        SMDebugValueError: it is out of range.
    """
    try:
        number = None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        number = None
    if number is None:
        raise SMDebugTypeError(f"step must be a whole number, got {validation.short_repr(value)}")
    if not -1 <= number <= LAST_STEP:
        raise SMDebugValueError(
            f"step must lie between -1, before the first step, and {LAST_STEP}, got {number}"
        )
    return number
