"""Which steps a hook has saved, and which it has lost because saving has failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smdebug.hook.run.lost_steps import LostSteps

if TYPE_CHECKING:
    from smdebug.hook.capture import StepCapture
    from smdebug.hook.run.output import Output
    from smdebug.hook.stats import HookStats
    from smdebug.hook.steps import Step
    from smdebug.mode_keys import ModeKeys


class SavedSteps:
    """Counts the steps that were handed over, and those that were not.

    Attributes:
        last: the last step at which something was saved, of those up to the current one; None
            without one, and where the user went back and it is not known.
    """

    def __init__(self) -> None:
        self.last: int | None = None
        self._last_of: dict[ModeKeys, int] = {}
        self._count = 0
        # Steps that were not handed over; the output has the other lost ones.
        self._lost = LostSteps()

    def add(self, step: Step) -> None:
        """Count a step that was handed over, in one part or several."""
        if self._last_of.get(step.mode) != step.number:
            self._last_of[step.mode] = step.number
            self._count += 1
        self.last = max(step.number, self.last or 0)

    def go_to(self, number: int, earlier: int | None) -> None:
        """Drop steps after one that the user went back to.

        Args:
            number: that step.
            earlier: the last step up to it at which an earlier job saved something, if known.
        """
        self._last_of = {mode: step for mode, step in self._last_of.items() if step <= number}
        known = [earlier, self.last, *self._last_of.values()]
        self.last = max(
            (each for each in known if each is not None and each <= number), default=None
        )

    def lose(self, number: int) -> None:
        """Count a step of which something is not saved."""
        self._lost.add(number)

    def lose_rest(self, capture: StepCapture | None) -> None:
        """Count a step whose rest is not saved, if there is any."""
        if capture is not None:
            planned = capture.plan is not None and capture.plan.saving
            if planned or capture.pending:
                self._lost.add(capture.step.number)

    def lost(self, output: Output | None) -> LostSteps:
        """Return the lost steps, those that the output could not publish included."""
        return self._lost.union(() if output is None else output.lost_steps())

    def update(self, stats: HookStats, output: Output | None, failed: bool) -> None:
        """Fill in what was saved, and what was lost."""
        stats.saved_steps = self._count
        if output is not None:
            output.update(stats)
        if failed:
            unpublished = () if output is None else output.lost_steps()
            stats.saved_steps = max(self._count - len(unpublished), 0)
            stats.lost_steps = self._lost.count + sum(s not in self._lost for s in unpublished)
