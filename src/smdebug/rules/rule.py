"""A rule: detects one kind of problem in a run.

It has more than 400 lines because it is the interface of smdebug 1.0 and that of rules over frames,
with a docstring for each method.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from smdebug.analysis.utils import no_refresh
from smdebug.exceptions import (
    InsufficientInformationForRuleInvocation,
    NoMoreData,
    RuleEvaluationConditionMet,
    SMDebugTypeError,
    SMDebugValueError,
    StepUnavailable,
    TensorUnavailable,
    TensorUnavailableForStep,
)
from smdebug.mode_keys import ModeKeys
from smdebug.rules.action.action import Actions
from smdebug.rules.required_tensors import RequiredTensors
from smdebug.rules.rule_frames import rule_frames
from smdebug.rules.tensor_choice import TensorChoice
from smdebug.storage.findings import Finding
from smdebug.trials.trial import Trial

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from smdebug.config.rule_requirements import TensorRequirement
    from smdebug.trials.frame import Column, Frame, RawValue
    from smdebug.trials.index_rows import Bools, Floats

COOLDOWN_STEPS = 20
_UNAVAILABLE = (StepUnavailable, NoMoreData, TensorUnavailable, TensorUnavailableForStep)


class Rule:
    """Detects one kind of problem; subclass it and implement one of two methods.

    `check(frame)` receives the steps of a run in chunks, each step once, as a `Frame` of all
    tensors with a column for each worker. What it remembers from one frame to the next it clears
    in `start_over`; a finding may depend on the steps up to its own, never on later ones.

    `invoke_at_step(step)` is called for one step after the other, as in smdebug 1.0.

    Either returns a bool, a sentence, a `Finding`, None, or yields several of them. A condition
    often holds for many steps in a row, or wavers around a threshold. `findings_where` and
    `started` turn that into one finding, at the step where it starts to hold; it can start again
    when it has not held for `cooldown_steps` steps.

    Args:
        base_trial: the trial to evaluate; None when the rule is only asked what it needs.
        action_str: what to do about findings, as JSON; see `smdebug.rules.action.Actions`.
        other_trials: further trials to compare with.

    Attributes:
        rule_name: the name of the class.
        rule_parameters: the parameters of a rule that was made from a name; for reports.
        req_tensors: the tensors that `set_required_tensors` requested.
        report: for authors of rules to fill.
        choices: the tensors it reads, and whether it cannot run without them.
        last_step: the last global step that was evaluated; -1 before the first.

    Example:
        >>> class LargeGradient(Rule):
        ...     reads = ("abs_max",)
        ...
        ...     def check(self, frame):
        ...         part = frame.select(lambda name: name.startswith("gradient/"))["abs_max"]
        ...         return self.findings_where(
        ...             frame, part, part.values > 10,
        ...             lambda column, value: f"{column.tensor} reaches {value:.3g}", 10.0
        ...         )
    """

    # The reductions that `check` reads of frames.
    reads: ClassVar[tuple[str, ...]] = ()
    # Whether it reads steps again that it has evaluated; a rule with `invoke_at_step` may.
    looks_back: ClassVar[bool] = False
    # For how many saved steps a condition must not have held before it is found again.
    cooldown_steps: ClassVar[int] = COOLDOWN_STEPS

    def __init__(
        self,
        base_trial: Trial | None,
        action_str: Any = "",
        other_trials: Sequence[Trial] | Trial | None = None,
    ) -> None:
        if not self.by_frame and type(self).invoke_at_step is Rule.invoke_at_step:
            raise SMDebugTypeError(
                f"{type(self).__name__} must implement check(self, frame) or "
                "invoke_at_step(self, step), got neither"
            )
        if other_trials is None and _are_trials(action_str):
            # As early releases had it: Rule(base_trial, other_trials).
            action_str, other_trials = "", action_str
        # A rule without a trial is only asked what it needs.
        self.base_trial: Trial = base_trial  # type: ignore[assignment]
        self.other_trials = None if other_trials is None else _trials(other_trials)
        self.trials: list[Trial] = [self.base_trial, *(self.other_trials or [])]
        self.rule_name = type(self).__name__
        self.rule_parameters: dict[str, Any] = {}
        self.req_tensors = RequiredTensors(self.base_trial, self.other_trials)
        self.logger = logging.getLogger("smdebug.rules")
        self.report: dict[str, Any] = {
            "RuleTriggered": 0,
            "Violations": 0,
            "Details": {},
            "Datapoints": 0,
            "RuleParameters": "",
        }
        self.choices: list[tuple[TensorChoice, bool]] = []
        self.last_step = -1
        self._actions = Actions(action_str, self.rule_name)
        self._found: dict[int, Finding] = {}
        # The steps at which a condition held; only for `invoke_at_step` of a rule with `check`.
        self._held_at: set[int] | None = None
        # For how many steps each condition has not held, up to `cooldown_steps`.
        self._cooldown: dict[object, int] = {}
        self._read: set[str] = set()
        # Of a rule with `invoke_at_step`: whether it could be invoked, why not, whether it ended.
        self._invoked = self._ended = False
        self._why = "the run has no steps"

    @property
    def by_frame(self) -> bool:
        """Whether it implements `check`."""
        return type(self).check is not Rule.check

    # ---- what a subclass implements

    def check(self, frame: Frame) -> Any:
        """Check the steps of a frame, which follow those of the previous one.

        Here for rules that implement `invoke_at_step`: invokes it for each step.
        """
        return self._invoke_steps(frame)

    def invoke_at_step(self, step: int) -> Any:
        """Check one global step; it and all steps before it are there.

        Here for rules that implement `check`: whether its condition holds at the step.
        """
        if self._held_at is None:
            self.start_over()
            self._held_at = set()
        # All steps that are there at once: none of them depends on a later one.
        for frame in rule_frames(self.base_trial, self.last_step + 1, self.reads):
            for _ in self.evaluate(frame):
                pass
        return step in self._held_at or step in self._found

    def set_required_tensors(self, step: int) -> None:
        """Add the tensors needed at a step to `req_tensors`; by default none."""
        return

    def needs(self) -> tuple[TensorRequirement, ...]:
        """Return what a hook has to save so that the rule can run; by default nothing."""
        return ()

    def idle(self, now: float) -> Iterable[Finding]:
        """Yield findings about a job that saves no step; `now` is in seconds since 1970."""
        return ()

    def finish(self) -> Iterable[Finding]:
        """Yield findings that are certain only when no step will follow."""
        return ()

    def start_over(self) -> None:
        """Forget everything about the steps evaluated so far."""
        self.last_step = -1
        self._held_at = None
        self._found.clear()
        self._cooldown.clear()
        self._invoked = self._ended = False
        self._why = "the run has no steps"

    def missing(self) -> str:
        """Return what the rule needed and did not find; empty when it could run."""
        if not self.by_frame:
            return "" if self._invoked else f"it could be invoked at no step: {self._why}"
        unseen = [choice for choice, required in self.choices if required and not choice.seen]
        if not unseen:
            return ""
        parts = []
        for choice in unseen:
            wanted = " and ".join(sorted(self._read)) or "their values"
            found = f"{choice.described}: saved without {wanted}" if choice.matched else (
                f"no {choice.described}"
            )  # fmt: skip
            parts.append(found)
        return f"the run has {'; '.join(parts)}. {self.remedy()}"

    def remedy(self) -> str:
        """Return a sentence about how to save what the rule needs."""
        needs = "; ".join(need.described for need in self.needs())
        return f'Hook(rules=["{self.rule_name}"]) saves what it needs: {needs}'

    # ---- reading

    def choose(
        self,
        collections: Any = None,
        regexes: Any = None,
        everything: bool = False,
        required: bool = True,
        key: str = "tensor_regex",
    ) -> TensorChoice:
        """Choose tensors; a rule cannot run if a required choice finds none."""
        choice = TensorChoice(collections, regexes, everything, key)
        self.choices.append((choice, required))
        return choice

    def choose_given(self, collection_names: Any, tensor_regex: Any) -> TensorChoice:
        """Choose the tensors of a rule that has none by default.

        Raises:
            SMDebugValueError: neither is given.
        """
        choice = self.choose(collection_names, tensor_regex)
        if not choice:
            raise SMDebugValueError(
                f"{self.rule_name} must be told collection_names or tensor_regex, got neither"
            )
        return choice

    def read(
        self,
        frame: Frame,
        reduction: str,
        choice: TensorChoice,
        mode: ModeKeys = ModeKeys.GLOBAL,
    ) -> Frame:
        """Return a reduction of chosen tensors, without steps and columns that have none."""
        part = frame.select(choice, mode)[reduction].known()
        self._read.add(reduction)
        choice.seen = choice.seen or bool(part.columns)
        return part

    def read_cells(
        self, cells: Frame, reduction: str, choice: TensorChoice, where: Bools | None = None
    ) -> tuple[Floats, Bools]:
        """Return a reduction for `Frame.where_saved` of chosen tensors, and where it is known."""
        values, known = cells.read(reduction, where)
        self._read.add(reduction)
        choice.seen = choice.seen or bool(known.any())
        return values, known

    def read_raw(
        self, frame: Frame, choice: TensorChoice, mode: ModeKeys = ModeKeys.GLOBAL
    ) -> Iterator[RawValue]:
        """Yield the raw values of chosen tensors."""
        self._read.add("the tensors themselves")
        for value in frame.select(choice, mode).raw_values():
            choice.seen = True
            yield value

    # ---- findings

    def note(self, step: int) -> None:
        """Record that the condition holds at a step, for `invoke_at_step`, without a finding."""
        if self._held_at is not None:
            self._held_at.add(step)

    def started(self, key: object, holds: bool, step: int) -> bool:
        """Record whether a condition holds at a step; return whether it has started to hold.

        Args:
            key: what the condition is about, such as a column.
            holds: whether it holds.
            step: the global step.
        """
        quiet = self._cooldown.get(key, self.cooldown_steps)
        self._cooldown[key] = 0 if holds else min(quiet + 1, self.cooldown_steps)
        if holds:
            self.note(step)
        return holds and quiet >= self.cooldown_steps

    def is_cooled_down(self, key: object) -> bool:
        """Return whether a condition would be found again."""
        return self._cooldown.get(key, self.cooldown_steps) >= self.cooldown_steps

    def findings_where(
        self,
        frame: Frame,
        part: Frame,
        holds: Bools,
        sentence: Callable[[Column, float], str],
        threshold: float | None = None,
        values: Floats | None = None,
        about: str = "",
    ) -> Iterator[Finding]:
        """Yield a finding for each column where a condition starts to hold.

        Args:
            frame: the frame that is checked.
            part: the steps and columns of the condition.
            holds: where it holds; ignored where `part` has no number.
            sentence: makes the message, given the column and the value.
            threshold: what the value was compared with.
            values: what was compared; those of `part` when None.
            about: distinguishes several conditions of one rule.
        """
        shown = part.values if values is None else values
        holds = holds & part.present
        keys = [(about, column) for column in part.columns]
        quiet = np.array([self._cooldown.get(key, self.cooldown_steps) for key in keys], np.int64)
        for row, step in enumerate(part.steps.tolist()):
            now = holds[row]
            if self._held_at is not None and now.any():
                self._held_at.add(step)
            for place in np.flatnonzero(now & (quiet >= self.cooldown_steps)).tolist():
                column, value = part.columns[place], float(shown[row, place])
                yield self.finding(
                    frame, step, sentence(column, value), column, value, threshold, about
                )  # fmt: skip
            quiet = np.where(now, 0, np.minimum(quiet + part.present[row], self.cooldown_steps))
        self._cooldown.update(zip(keys, quiet.tolist(), strict=True))

    def finding(
        self,
        frame: Frame,
        step: int,
        message: str,
        column: Column | None = None,
        value: float | None = None,
        threshold: float | None = None,
        about: str = "",
    ) -> Finding:
        """Make a finding at a step of a frame; `about` distinguishes conditions of one tensor."""
        mode, mode_step = frame.mode_at(step)
        tensor, worker = (None, None) if column is None else column
        return Finding(
            self.rule_name, step, message, tensor, value, threshold, mode, mode_step, worker,
            about=about,
        )  # fmt: skip

    # ---- evaluation

    def evaluate(self, frame: Frame) -> Iterator[Finding]:
        """Check a frame and yield its findings, sorted by step."""
        for choice, _ in self.choices:
            choice.look_at(frame.trial)
        last = int(frame.steps[-1]) if len(frame) else self.last_step
        found = self._as_findings(self.check(frame), last)
        if self.by_frame:
            # By step, as if each came alone: a rule may check one condition after the other.
            found = iter(sorted(found, key=lambda finding: finding.step))
        for finding in found:
            self._found.setdefault(finding.step, finding)
            yield finding
        self.last_step = last

    def invoke(self, step: int) -> None:
        """Wait for a global step, check it, and act on a finding.

        Raises:
            RuleEvaluationConditionMet: the rule found something.
            StepUnavailable, NoMoreData: the step is not there and will not come.
            TensorUnavailable, TensorUnavailableForStep: a required tensor is not there.
        """
        self.base_trial.wait_for_steps([step])
        finding = next(iter(self._invoked_at(step)), None)
        if finding is not None:
            self.act(finding)
            raise RuleEvaluationConditionMet(
                self.rule_name, step, tensor=finding.tensor, message=finding.message
            )

    def _invoke_steps(self, frame: Frame) -> Iterator[Finding]:
        """Invoke the rule at each step of a frame."""
        for step in frame.steps.tolist():
            if self._ended:
                return
            try:
                found = self._invoked_at(step)
            except RuleEvaluationConditionMet as fired:
                # Rules may raise it themselves, and end with it.
                self._ended = fired.end_of_rule
                found = [self.finding_at(step)]
            except _UNAVAILABLE as error:
                self._why = str(error)
                self.logger.debug("%s at step %d: %s", self.rule_name, step, error)
                continue
            self._invoked = True
            # Each condition by itself: one that holds step after step is one finding.
            for finding in found:
                if self.started((finding.tensor, finding.worker), True, step):
                    yield finding
            held = {(finding.tensor, finding.worker) for finding in found}
            for key in [key for key in self._cooldown if key not in held]:
                self.started(key, False, step)

    def _invoked_at(self, step: int) -> list[Finding]:
        with ExitStack() as stack:
            stack.enter_context(no_refresh(self.trials))
            self.req_tensors.clear()
            self.set_required_tensors(step)
            self.req_tensors.fetch()
            return list(self._as_findings(self.invoke_at_step(step), step))

    def _as_findings(self, result: Any, step: int) -> Iterator[Finding]:
        """Convert what a rule returns or yields: a bool, a sentence, a finding, or several."""
        if isinstance(result, Finding):
            yield result
        elif isinstance(result, str):
            if result:
                yield self._finding_at(step, result)
        elif isinstance(result, Iterable):
            for each in result:
                yield from self._as_findings(each, step)
        elif result is not None and bool(result):
            yield self.finding_at(step)

    def finding_at(self, step: int) -> Finding:
        """Return the finding at a step; where a condition goes on, the one where it started."""
        begun = [known for known in self._found if known <= step]
        if begun and self.by_frame:
            return self._found[max(begun)]
        summary = (inspect.getdoc(type(self)) or "").partition("\n")[0].rstrip(".")
        if not summary or type(self).__doc__ is None:
            summary = "invoke_at_step returned True"
        return self._finding_at(step, f"its condition holds ({summary})")

    def _finding_at(self, step: int, message: str) -> Finding:
        mode, mode_step = self.base_trial.mode_modestep(step)
        kind = {} if mode is None else {"mode": mode, "mode_step": mode_step}
        # The tensor, if the rule requires a single one.
        names = self.req_tensors.get_names()
        tensor = names[0] if len(names) == 1 else None
        return Finding(self.rule_name, step, message, tensor, **kind)  # type: ignore[arg-type]

    def act(self, finding: Finding) -> None:
        """Carry out the actions of the rule; none of them can fail it."""
        self._actions.invoke(finding)

    def close(self) -> None:
        """Wait for the actions of the rule, for a limited time."""
        self._actions.close()

    def require_information(self) -> None:
        """Raise an error if nothing that the rule needs was saved.

        Raises:
            InsufficientInformationForRuleInvocation: what is missing, and how to save it.
        """
        missing = self.missing()
        if missing:
            raise InsufficientInformationForRuleInvocation(self.rule_name, missing)


def _are_trials(value: object) -> bool:
    each = value if isinstance(value, list | tuple) else [value]
    return any(isinstance(item, Trial) for item in each)


def _trials(value: object) -> list[Trial]:
    given = list(value) if isinstance(value, list | tuple) else [value]
    trials = [trial for trial in given if isinstance(trial, Trial)]
    if len(trials) < len(given):
        raise SMDebugTypeError(f"other_trials must be a trial or a list of them, got {value!r}")
    return trials
