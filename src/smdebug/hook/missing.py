"""What a run lacks because saving has failed, and how that is said."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from smdebug.hook.lost_steps import LostSteps

if TYPE_CHECKING:
    from smdebug.hook.capture import StepCapture
    from smdebug.hook.output import Output
    from smdebug.hook.plan import SavePlan
    from smdebug.hook.stats import HookStats
    from smdebug.hook.steps import Step

logger = logging.getLogger("smdebug.hook")


class Missing:
    """The steps that a hook did not give to its writer, which knows itself what it could not write.

    A hook tells it of a step only once there was a failure.
    """

    def __init__(self) -> None:
        self._steps = LostSteps()
        self._let_go = False

    def add(self, number: int) -> None:
        """Notes that a step, or something of it, is not saved."""
        self._steps.add(number)

    def add_rest(self, capture: StepCapture | None) -> None:
        """Notes that the rest of the present step is not saved, if there is any."""
        if capture is None:
            return
        if capture.holds_anything or (capture.plan is not None and capture.plan.saving):
            self.add(capture.step.number)

    def add_planned(self, step: Step, plan: SavePlan) -> None:
        """Notes that a step which begins is not saved, if the plan says that it would have been."""
        planned = plan.at(step.mode, step.mode_step)
        if planned is not None and planned.saving:
            self.add(step.number)

    def let_go(self, plan: SavePlan) -> None:
        """Lets go of what adapters keep for steps to come, which are not saved any more."""
        # Once: whoever gets no plan of a step any more puts nothing into one.
        if not self._let_go:
            plan.forget()
            self._let_go = True

    def correct(self, stats: HookStats, output: Output | None) -> None:
        """Has the stats of a hook say what is missing.

        Args:
            stats: count every step that was handed over.
            output: where they went.
        """
        given = () if output is None else output.lost_steps()
        stats.saved_steps = max(stats.saved_steps - len(given), 0)
        stats.lost_steps = self._steps.joined_with(given).count

    def say(self, out_dir: str, output: Output | None, failure: BaseException) -> None:
        """Says in the log what is missing, and why."""
        lost = self._steps.joined_with(() if output is None else output.lost_steps())
        logger.warning(
            "the run in %s is not complete (lost: %s): %s",
            out_dir, lost if lost.count else "no step", failure,
        )  # fmt: skip
