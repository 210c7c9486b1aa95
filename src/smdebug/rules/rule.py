"""A rule: looks at the steps of a trial, and says when something is wrong."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from smdebug.analysis.utils import no_refresh
from smdebug.exceptions import RuleEvaluationConditionMet, SMDebugTypeError
from smdebug.rules.action.action import Actions
from smdebug.rules.required_tensors import RequiredTensors
from smdebug.storage.findings import Finding
from smdebug.trials.trial import Trial

if TYPE_CHECKING:
    from collections.abc import Sequence

    from smdebug.config.rule_requirements import TensorRequirement


class Rule(ABC):
    """Looks at a trial step by step; subclass it and say when it fires.

    Args:
        base_trial: the trial to look at.
        action_str: what to do when it fires, as JSON; see `smdebug.rules.action.Actions`.
        other_trials: further trials to compare with.

    Attributes:
        rule_name: the name of the class.
        rule_parameters: what the rule was told, where it was made from a name; for reports.
        req_tensors: what `set_required_tensors` asked for.
        report: for authors of rules to fill.

    Example:
        >>> class LargeGradient(Rule):
        ...     def invoke_at_step(self, step):
        ...         names = self.base_trial.tensor_names(collection="gradients", step=step)
        ...         tensors = [self.base_trial.tensor(name) for name in names]
        ...         return any(each.reduction_value(step, "max", abs=True) > 10 for each in tensors)
    """

    def __init__(
        self,
        base_trial: Trial,
        action_str: Any = "",
        other_trials: Sequence[Trial] | Trial | None = None,
    ) -> None:
        if other_trials is None and _are_trials(action_str):
            # As early releases had it: Rule(base_trial, other_trials).
            action_str, other_trials = "", action_str
        self.base_trial = base_trial
        self.other_trials = None if other_trials is None else _trials(other_trials)
        self.trials = [base_trial, *(self.other_trials or [])]
        self.rule_name = type(self).__name__
        self.rule_parameters: dict[str, Any] = {}
        self.req_tensors = RequiredTensors(base_trial, self.other_trials)
        self.logger = logging.getLogger("smdebug.rules")
        self.report: dict[str, Any] = {
            "RuleTriggered": 0,
            "Violations": 0,
            "Details": {},
            "Datapoints": 0,
            "RuleParameters": "",
        }
        self._actions = Actions(action_str, self.rule_name)

    @abstractmethod
    def invoke_at_step(self, step: int) -> bool:
        """Says whether something is wrong at a global step; it and all before it are there."""

    def set_required_tensors(self, step: int) -> None:
        """Adds what the rule needs at a step to `req_tensors`; by default nothing."""
        return

    def needs(self) -> tuple[TensorRequirement, ...]:
        """What a hook has to save so that the rule can run; by default nothing is known."""
        return ()

    def invoke(self, step: int) -> None:
        """Waits for a global step, looks at it, and acts when something is wrong.

        Raises:
            RuleEvaluationConditionMet: something is wrong.
            StepUnavailable, NoMoreData: the step is not there and will not come.
            TensorUnavailable, TensorUnavailableForStep: a required tensor is not there.
        """
        self.base_trial.wait_for_steps([step])
        with ExitStack() as stack:
            stack.enter_context(no_refresh(self.trials))
            self.req_tensors.clear()
            self.set_required_tensors(step)
            self.req_tensors.fetch()
            fired = bool(self.invoke_at_step(step))
        if fired:
            finding = self.finding_at(step)
            self.act(finding)
            raise RuleEvaluationConditionMet(
                self.rule_name, step, tensor=finding.tensor, message=finding.message
            )

    def finding_at(self, step: int) -> Finding:
        """What is recorded when the rule fires at a step."""
        mode, mode_step = self.base_trial.mode_modestep(step)
        kind = {} if mode is None else {"mode": mode, "mode_step": mode_step}
        return Finding(self.rule_name, step, "its condition was met", **kind)  # type: ignore[arg-type]

    def act(self, finding: Finding) -> None:
        """Carries out the actions of the rule; none of them can fail it."""
        self._actions.invoke(finding)

    def close(self) -> None:
        """Has its actions carried out to their end, for a bounded time."""
        self._actions.close()


def _are_trials(value: object) -> bool:
    each = value if isinstance(value, list | tuple) else [value]
    return any(isinstance(item, Trial) for item in each)


def _trials(value: object) -> list[Trial]:
    given = list(value) if isinstance(value, list | tuple) else [value]
    trials = [trial for trial in given if isinstance(trial, Trial)]
    if len(trials) < len(given):
        raise SMDebugTypeError(f"other_trials must be a trial or a list of them, got {value!r}")
    return trials
