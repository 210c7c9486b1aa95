"""Invoking one rule step after step, as scripts for smdebug 1.0 do."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from smdebug.exceptions import (
    NoMoreData,
    RuleEvaluationConditionMet,
    StepUnavailable,
    TensorUnavailable,
    TensorUnavailableForStep,
)
from smdebug.rules.rule import Rule
from smdebug.trials.steps import StepState
from smdebug.trials.wait import POLL_SECONDS, pause

if TYPE_CHECKING:
    from smdebug.rules.rule import Rule
    from smdebug.trials.trial import Trial

logger = logging.getLogger("smdebug.rules")


def invoke_rule(
    rule_obj: Rule,
    start_step: int = 0,
    end_step: int | None = None,
    raise_eval_cond: bool = False,
) -> None:
    """Invokes a rule at step after step, waiting for those that are yet to come.

    Returns when the job has ended and all of its steps were looked at, or at `end_step`.

    Args:
        rule_obj: the rule.
        start_step: the first global step.
        end_step: the step to stop before; None goes on to the end of the run.
        raise_eval_cond: raise when the rule fires, instead of logging it and going on.

    Raises:
        RuleEvaluationConditionMet: the rule fired, and `raise_eval_cond` is True.
        InsufficientInformationForRuleInvocation: nothing that a built-in rule needs was saved.

    Example:
        >>> invoke_rule(VanishingGradient(trial), raise_eval_cond=True)  # doctest: +SKIP
    """
    step, trial, came = start_step, rule_obj.base_trial, -1
    ends = [end for end in (end_step, trial.range_steps[1]) if end is not None]
    while all(step < end for end in ends):
        try:
            rule_obj.invoke(step)
        except NoMoreData:
            break
        except (StepUnavailable, TensorUnavailable, TensorUnavailableForStep) as error:
            if _may_still_come(trial, step):
                continue
            if step != came and _has_come(trial, step, error):
                # Once: another trial of the rule may lack it for good.
                came = step
                continue
            logger.debug("%s is not invoked at step %d: %s", rule_obj.rule_name, step, error)
        except RuleEvaluationConditionMet as fired:
            if raise_eval_cond:
                raise
            logger.info("%s", fired)
            if fired.end_of_rule:
                break
        step = _next_step(trial, step)
    if rule_obj.by_frame:
        _finish(rule_obj, end_step, raise_eval_cond)
    rule_obj.close()


def _finish(rule: Rule, end_step: int | None, raise_eval_cond: bool) -> None:
    """Has a rule say what can be said only at the end of a run."""
    if end_step is None:
        for finding in rule.finish():
            rule.act(finding)
            if raise_eval_cond:
                raise RuleEvaluationConditionMet(
                    rule.rule_name, finding.step, tensor=finding.tensor, message=finding.message
                )
            logger.info("%s", finding)
    rule.require_information()


def _next_step(trial: Trial, step: int) -> int:
    """The step to look at next: those that were passed over need not be asked for one by one."""
    if trial.has_passed_step(step + 1) is not StepState.UNAVAILABLE:
        return step + 1
    later = trial.step_after(step)
    return step + 1 if later is None else later


def _has_come(trial: Trial, step: int, error: Exception) -> bool:
    """Whether a step that was said not to be there has come since."""
    if not isinstance(error, StepUnavailable):
        return False
    return trial.has_passed_step(step) is StepState.AVAILABLE


def _may_still_come(trial: Trial, step: int) -> bool:
    """Whether a step is behind all others of a job whose workers have not all ended; pauses then.

    The first worker to close marks the end of the job.
    """
    if trial.loaded_all_steps or trial.step_after(step - 1) is not None:
        return False
    pause(POLL_SECONDS)
    trial.refresh_data()
    return True
