"""Counting steps: over all modes, and within each."""

from __future__ import annotations

from typing import NamedTuple

from smdebug.config import checks
from smdebug.exceptions import SMDebugValueError
from smdebug.mode_keys import ModeKeys


class Step(NamedTuple):
    """One step: its number over all modes, its mode, its number within the mode."""

    number: int
    mode: ModeKeys
    mode_step: int


class StepCounter:
    """The steps of a job.

    Attributes:
        step: the number of the last step over all modes; -1 before the first.
        mode: the mode the next step will have.
        mode_steps: the number of the last step of every mode that was used.
        begun: how many steps there were in this process.

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
        self._last: dict[ModeKeys, Step] = {}
        self._before: tuple[int, dict[ModeKeys, int], dict[ModeKeys, Step]] | None = None

    def set_mode(self, mode: ModeKeys) -> None:
        """Sets the mode of the steps to come."""
        if not isinstance(mode, ModeKeys):
            raise SMDebugValueError(
                f"mode must be one of modes.{', modes.'.join(m.name for m in ModeKeys)}, "
                f"got {checks.shown(mode)}"
            )
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
        return step

    def take_back(self) -> None:
        """Takes the last step back, once: it was begun and did not take place."""
        if self._before is not None:
            self.step, self.mode_steps, self._last = self._before
            self.mode_steps.setdefault(self.mode, -1)
            self.begun -= 1
            self._before = None

    def current(self) -> Step:
        """The step that something said now belongs to.

        That is the last step of the present mode. Before its first step it is the step to come, so
        that a value saved before training begins is step 0's.
        """
        return self._last.get(self.mode) or Step(self.step + 1, self.mode, 0)
