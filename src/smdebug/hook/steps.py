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

    def remove(self, step: Step) -> None:
        """Remove the step that was added last."""
        if self._firsts and self._firsts[-1] == step:
            self._firsts.pop()

    def prepend(self, earlier: StepHistory) -> None:
        """Add what another history has of the steps before the first one here."""
        end = LAST_STEP + 1 if self.first_step is None else self.first_step
        self._firsts[:0] = [first for first in earlier._firsts if first.number < end]

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
        mode: the mode of the next step.
        mode_steps: the number of the last step of every mode that was used.
        begun: how many steps this process has made.
        history: the mode of each step.

    Example:
        >>> steps = StepCounter()
        >>> steps.set_mode(ModeKeys.TRAIN)
        >>> steps.advance()
        Step(number=0, mode=<ModeKeys.TRAIN: 1>, mode_step=0)
    """

    def __init__(self) -> None:
        self.step = -1
        self.mode = ModeKeys.GLOBAL
        self.mode_steps: dict[ModeKeys, int] = {ModeKeys.GLOBAL: -1}
        self.begun = 0
        self.history = StepHistory()
        self._latest: Step | None = None
        self._latest_of: dict[ModeKeys, Step | None] = {}
        # What `cancel` puts back.
        self._before: tuple[int, int, Step | None, Step | None] | None = None

    def set_mode(self, mode: ModeKeys) -> None:
        """Set the mode of the next steps."""
        if not isinstance(mode, ModeKeys):
            raise SMDebugValueError(
                f"mode must be one of modes.{', modes.'.join(m.name for m in ModeKeys)}, "
                f"got {validation.short_repr(mode)}"
            )
        self.mode = mode
        self.mode_steps.setdefault(mode, -1)

    def advance(self, number: int | None = None) -> Step:
        """Begin the next step.

        Args:
            number: the step's number, over all modes and in its own, where the framework counts;
                None for one more than the last.
        """
        mode, counts, last = self.mode, self.mode_steps, self._latest
        mode_step = counts[mode]
        self._before = (self.step, mode_step, last, self._latest_of.get(mode))
        if number is None:
            self.step += 1
            mode_step += 1
        else:
            self.step = mode_step = number
        counts[mode] = mode_step
        counts[ModeKeys.GLOBAL] = self.step
        self.begun += 1
        self._latest = self._latest_of[mode] = step = Step(self.step, mode, mode_step)
        if last is None or last.number != self.step - 1 or not step.continues(last):
            self.history.add(step)
        return step

    def restore(self, step: int, mode_steps: Mapping[ModeKeys, int]) -> None:
        """Take over the counts of an earlier process: the next step is the one after `step`."""
        self.step = step
        self.mode_steps = {**mode_steps, ModeKeys.GLOBAL: step}
        self.mode_steps.setdefault(self.mode, -1)
        # Values saved before the next step begins belong to it, as at the start of a job.
        self._latest, self._latest_of = None, {}
        self._before = None

    def go_to(self, number: int) -> None:
        """Make a step the last one, with the counts that the modes had at it, if they are known.

        Otherwise the count of the present mode moves by the same difference.
        """
        first = self.history.first_step
        if first is not None and first <= number:
            self.restore(number, self.history.mode_steps_at(number))
            return
        moved = max(self.mode_steps[self.mode] + number - self.step, -1)
        known = {**self.mode_steps, self.mode: moved}
        self.restore(number, {mode: min(count, number) for mode, count in known.items()})

    def cancel(self) -> None:
        """Undo `advance`, once: the step was begun and did not take place."""
        if self._before is not None and self._latest is not None:
            canceled = self._latest
            self.history.remove(canceled)
            self.step, mode_step, self._latest, self._latest_of[canceled.mode] = self._before
            self.mode_steps[canceled.mode] = mode_step
            self.mode_steps[ModeKeys.GLOBAL] = self.step
            self.begun -= 1
            self._before = None

    def current(self) -> Step:
        """Return the step that a value saved now belongs to: the last one of the present mode.

        Before the first step of the mode it is the next step, so that a value saved before
        training begins belongs to step 0.
        """
        is_global = self.mode is ModeKeys.GLOBAL
        last = self._latest if is_global else self._latest_of.get(self.mode)
        return last or Step(self.step + 1, self.mode, self.mode_steps[self.mode] + 1)


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
