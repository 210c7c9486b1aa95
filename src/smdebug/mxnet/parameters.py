"""The parameters of registered blocks."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from smdebug.config.log import WarnOnce

if TYPE_CHECKING:
    from collections.abc import Callable

    from smdebug.hook.pipeline import Pipeline
    from smdebug.hook.plan import StepCache, StepPlan
    from smdebug.mxnet.registration import Registration

logger = logging.getLogger("smdebug.hook")


class Parameters:
    """Finds the parameters that a step saves, and reads them.

    Args:
        pipeline: the pipeline.
        registrations: the registered blocks; the adapter adds to the list and removes from it.
    """

    def __init__(self, pipeline: Pipeline, registrations: list[Registration]) -> None:
        self._registrations = registrations
        self._relevant: StepCache[list[tuple[str, Any]]] = pipeline.new_cache()
        self._warnings = WarnOnce(logger)

    def relevant(self, plan: StepPlan, prefix: str = "") -> list[tuple[str, Any]]:
        """Return the parameters that may be saved at a step.

        Args:
            plan: the kind of step.
            prefix: what comes before their names; that of gradients finds parameters whose
                gradients may be saved.
        """
        registered = self._registrations
        versions = [(each, each.version) for each in registered]

        def compute() -> list[tuple[str, Any]]:
            found = [item for each in registered for item in each.parameters.items()]
            return [item for item in found if plan.is_relevant(prefix + item[0])]

        return self._relevant.get(plan, (prefix, *versions), compute)

    def read(self, name: str, arrays: Callable[[], list[Any]]) -> Any:
        """Return the array of the first device; None, with a warning, where there is none.

        Args:
            name: the parameter's name.
            arrays: its method `list_data` or `list_grad`.
        """
        try:
            return arrays()[0]
        except RuntimeError as error:
            # It was not used yet and has no shape, or it is row-sparse and gives only some rows.
            reason = str(error).split(".")[0]
            self._warnings.warning(name, "%s is not saved at this step: %s", name, reason)
            return None

    def warn_about_duplicates(self, registration: Registration) -> None:
        """Warn if a block has parameters named like those of a registered one."""
        known = {name: each for other in self._registrations
                 for name, each in other.parameters.items()}  # fmt: skip
        for name, parameter in registration.parameters.items():
            if known.get(name, parameter) is not parameter:
                logger.warning(
                    "%s and a block that was registered before both have a parameter %s: only one "
                    "of each such pair is saved; give the blocks different prefixes",
                    registration.name, name,
                )  # fmt: skip
                return
