"""The steps that are being captured: the current one, and those that have not begun yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smdebug.hook.capture import StepCapture

if TYPE_CHECKING:
    from collections.abc import Iterator

    from smdebug.hook.plan import StepPlan
    from smdebug.hook.steps import Step, StepCounter


class StepCaptures:
    """Keeps what was captured until it is handed over, under the step it belongs to.

    Args:
        steps: the step counter.

    Attributes:
        current: the current step; None when nothing is saved at it.
    """

    def __init__(self, steps: StepCounter) -> None:
        self._steps = steps
        self.current: StepCapture | None = None
        # What the user saved before the step it belongs to began.
        self._early: StepCapture | None = None

    @property
    def has_early(self) -> bool:
        """Whether the user has saved something for a step that has not begun."""
        return self._early is not None

    def begin(self, step: Step, plan: StepPlan | None) -> StepCapture | None:
        """Begin the capture of a step, with what was saved for it before.

        Args:
            step: the step.
            plan: what to save at it; None for nothing.

        Returns:
            The capture; None without a plan.
        """
        capture = StepCapture(step, plan)
        if self._early is not None:
            # The list itself: nothing is in two lists, whenever Ctrl-C comes.
            capture.pending = self._early.pending
        self.current, self._early = capture, None
        return None if plan is None else capture

    def of_user(self) -> StepCapture:
        """Return the capture of the step that something the user saves now belongs to.

        That is the last step of the present mode; before its first step, the step to come, whatever
        its mode will be. An older step is not open: it has to be handed over at once.
        """
        step = self._steps.current()
        if step.number > self._steps.step:
            if self._early is None:
                self._early = StepCapture(step, None)
            return self._early
        if self.current is None and step.number == self._steps.step:
            self.current = StepCapture(step, None)
        if self.current is not None and self.current.step == step:
            return self.current
        return StepCapture(step, None)

    def is_open(self, capture: StepCapture) -> bool:
        """Return whether a capture is handed over later."""
        return capture is self.current or capture is self._early

    def drain(self) -> Iterator[StepCapture]:
        """Yield everything that is open; what was saved for the step to come is not kept."""
        if self.current is not None:
            yield self.current
        if self._early is not None:
            # The user may have set the step, or the mode, since.
            self._early.step = self._steps.to_come()
            try:
                yield self._early
            finally:
                self._early = None

    def clear(self) -> None:
        """Drop everything."""
        self.current = self._early = None
