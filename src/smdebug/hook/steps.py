"""Counting steps: over all modes, and within each."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

from smdebug.config import validation
from smdebug.exceptions import SMDebugTypeError, SMDebugValueError
from smdebug.hook.step_history import Step, StepHistory
from smdebug.mode_keys import ModeKeys
from smdebug.storage.format.keys import LAST_STEP

if TYPE_CHECKING:
    from collections.abc import Mapping


class StepCounter:
    """The steps of a job.

    Attributes:
        step: the number of the last step over all modes; -1 before the first.
        mode: the mode the next step will have.
        mode_steps: the number of the last step of every mode that was used.
        begun: how many steps there were in this process.
        history: which step was of which mode.

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
        self._last: dict[ModeKeys, Step] = {}
        self._before: tuple[int, dict[ModeKeys, int], dict[ModeKeys, Step]] | None = None

    @property
    def next_mode_step(self) -> int:
        """The number that the next step has within the present mode."""
        return self.mode_steps[self.mode] + 1

    def set_mode(self, mode: ModeKeys) -> None:
        """Sets the mode of the steps to come."""
        self.mode = mode
        self.mode_steps.setdefault(mode, -1)

    def advance(self, number: int | None = None) -> Step:
        """Begins the next step.

        Args:
            number: the step's number, over all modes and in its own, where the framework counts;
                None for one more than the last.
        """
        self._before = (self.step, dict(self.mode_steps), dict(self._last))
        mode_step = self.mode_steps[self.mode] + 1 if number is None else number
        self.step = self.step + 1 if number is None else number
        self.begun += 1
        self.mode_steps[self.mode] = mode_step
        self.mode_steps[ModeKeys.GLOBAL] = self.step
        step = Step(self.step, self.mode, self.mode_steps[self.mode])
        # A mode of GLOBAL means whatever step came last.
        self._last[self.mode] = self._last[ModeKeys.GLOBAL] = step
        self.history.add(step)
        return step

    def restore(self, step: int, mode_steps: Mapping[ModeKeys, int]) -> None:
        """Takes the counts of an earlier process: the next step is the one behind `step`."""
        self.step = step
        self.mode_steps = {**mode_steps, ModeKeys.GLOBAL: step}
        self.mode_steps.setdefault(self.mode, -1)
        # What is said before the next step begins belongs to it, as at the start of a job.
        self._last = {}
        self._before = None

    def go_to(self, number: int) -> None:
        """Makes a step the last one, with the counts of the modes it had, as far as they are known.

        Where nothing is known of it, the present mode moves by the same difference.
        """
        first = self.history.begins_at()
        if first is not None and first <= number:
            self.restore(number, self.history.mode_steps_at(number))
            return
        moved = max(self.mode_steps[self.mode] + number - self.step, -1)
        known = {**self.mode_steps, self.mode: moved}
        self.restore(number, {mode: min(count, number) for mode, count in known.items()})

    def take_back(self) -> None:
        """Takes the last step back, once: it was begun and did not take place."""
        if self._before is not None:
            self.history.remove(self._last[ModeKeys.GLOBAL])
            self.step, self.mode_steps, self._last = self._before
            self.mode_steps.setdefault(self.mode, -1)
            self.begun -= 1
            self._before = None

    def current(self) -> Step:
        """The step that something said now belongs to.

        That is the last step of the present mode. Before its first step it is the step to come, so
        that a value saved before training begins is step 0's.
        """
        return self._last.get(self.mode) or self.to_come(self.mode)

    def to_come(self, mode: ModeKeys) -> Step:
        """Return the next step, if it is of this mode."""
        return Step(self.step + 1, mode, self.mode_steps[mode] + 1)


def check_mode(mode: object) -> ModeKeys:
    """Return what the user set the mode to.

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
    """Returns what somebody set `hook.step` to.

    Raises:
        SMDebugTypeError: it is no whole number.
        SMDebugValueError: there is no such step.
    """
    if isinstance(value, bool):
        raise SMDebugTypeError(f"step must be a whole number, got {value!r}")
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise SMDebugTypeError(
            "step must be a whole number: that of the last step, "
            f"got {validation.short_repr(value)}"
        ) from error
    if not -1 <= number <= LAST_STEP:
        raise SMDebugValueError(
            f"step must lie between -1, before the first step, and {LAST_STEP}, got {number}"
        )
    return number
