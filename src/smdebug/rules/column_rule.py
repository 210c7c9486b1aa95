"""A rule that reads whole columns: many steps and tensors in one go."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from smdebug.exceptions import (
    InsufficientInformationForRuleInvocation,
    SMDebugValueError,
)
from smdebug.mode_keys import ModeKeys
from smdebug.rules.choice import TensorChoice
from smdebug.rules.rule import Rule
from smdebug.storage.findings import Finding
from smdebug.trials.frame import Frame, lay_out
from smdebug.trials.index_rows import IndexRows, needed_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from smdebug.config.rule_requirements import TensorRequirement
    from smdebug.trials.frame import Column, Frame, RawValue
    from smdebug.trials.index_rows import Bools, Floats
    from smdebug.trials.trial import Trial

# The rows a block may have: some hundred megabytes, whatever the run.
MOST_ROWS = 4_000_000
QUIET_STEPS = 20


class ColumnRule(Rule):
    """Judges the steps of a trial in blocks, in order, each step once.

    A subclass says what it needs (`needs`), which reductions it reads (`reads`), and yields what it
    finds (`judge`). What it must remember from one block to the next it keeps itself, and drops in
    `start_over`; a finding may depend on the steps up to its own, never on later ones.

    The condition of a rule often holds for many steps in a row, or wavers around a threshold.
    `hits` and `begins` turn that into one finding, at the step where it begins to hold; it begins
    anew when it has not held for `quiet_steps` steps.

    Args:
        base_trial: the trial; None when the rule is only asked what it needs.
        action_str: see `Rule`.
        other_trials: see `Rule`.
    """

    # The reductions that `judge` asks a block for.
    reads: ClassVar[tuple[str, ...]] = ()
    # Whether it goes back to steps that it has judged.
    looks_back: ClassVar[bool] = False
    # For so many saved steps a condition must not have held before it is found anew.
    quiet_steps: ClassVar[int] = QUIET_STEPS

    def __init__(
        self,
        base_trial: Trial | None,
        action_str: Any = "",
        other_trials: Sequence[Trial] | Trial | None = None,
    ) -> None:
        super().__init__(base_trial, action_str, other_trials)  # type: ignore[arg-type]  # see above
        self.choices: list[tuple[TensorChoice, bool]] = []
        self._judged = -1
        self._found: dict[int, Finding] = {}
        # The steps at which a condition held; kept for `invoke_at_step` only.
        self._held_at: set[int] | None = None
        # For how many steps each condition has not held, as far as that matters.
        self._quiet: dict[object, int] = {}
        self._asked: set[str] = set()

    # ---- what a rule says

    @abstractmethod
    def needs(self) -> tuple[TensorRequirement, ...]:
        """What a hook has to save so that the rule can run."""

    @abstractmethod
    def judge(self, block: Frame) -> Iterable[Finding]:
        """Yields what is wrong in the steps of a block, which follow those of the last one."""

    def idle(self, now: float) -> Iterable[Finding]:
        """Yields what is wrong although no step has come; `now` is in seconds since 1970."""
        return ()

    def finish(self) -> Iterable[Finding]:
        """Yields what can be said only when no step will come any more."""
        return ()

    def start_over(self) -> None:
        """Forgets everything about the steps judged so far."""
        self._judged = -1
        self._held_at = None
        self._found.clear()
        self._quiet.clear()

    def missing(self) -> str:
        """What the rule needed and did not find, in words; empty when it could run."""
        unseen = [choice for choice, required in self.choices if required and not choice.seen]
        if not unseen:
            return ""
        parts = []
        for choice in unseen:
            wanted = " and ".join(sorted(self._asked)) or "their values"
            found = f"{choice.described}: saved without {wanted}" if choice.matched else (
                f"no {choice.described}"
            )  # fmt: skip
            parts.append(found)
        return f"the run has {'; '.join(parts)}. {self._remedy()}"

    def _remedy(self) -> str:
        needs = "; ".join(need.described for need in self.needs())
        return f'Hook(rules=["{self.rule_name}"]) saves what it needs: {needs}'

    # ---- what a rule uses

    def choose(
        self,
        collections: Any = None,
        regexes: Any = None,
        everything: bool = False,
        required: bool = True,
        key: str = "tensor_regex",
    ) -> TensorChoice:
        """Makes a choice of tensors; if a required one finds none, the rule could not run."""
        choice = TensorChoice(collections, regexes, everything, key)
        self.choices.append((choice, required))
        return choice

    def choose_given(self, collection_names: Any, tensor_regex: Any) -> TensorChoice:
        """Makes the choice of a rule that has none of its own.

        Raises:
            SMDebugValueError: neither is given.
        """
        choice = self.choose(collection_names, tensor_regex)
        if not choice:
            raise SMDebugValueError(
                f"{self.rule_name} must be told collection_names or tensor_regex, got neither"
            )
        return choice

    def table(
        self,
        block: Frame,
        reduction: str,
        choice: TensorChoice,
        mode: ModeKeys = ModeKeys.GLOBAL,
    ) -> Frame:
        """A reduction of chosen tensors; notes whether there was any."""
        table = block.select(choice, mode)[reduction].known()
        self._asked.add(reduction)
        choice.seen = choice.seen or bool(table.columns)
        return table

    def numbers(
        self,
        block: Frame,
        reduction: str,
        cells: Frame,
        choice: TensorChoice,
        where: Bools | None = None,
    ) -> tuple[Floats, Bools]:
        """A reduction for `where_saved` of chosen tensors; notes whether there was any."""
        values, known = cells.read(reduction, where)
        self._asked.add(reduction)
        choice.seen = choice.seen or bool(known.any())
        return values, known

    def raw(
        self, block: Frame, choice: TensorChoice, mode: ModeKeys = ModeKeys.GLOBAL
    ) -> Iterator[RawValue]:
        """Chosen tensors themselves; notes whether there was any."""
        self._asked.add("the tensors themselves")
        for value in block.select(choice, mode).raw_values():
            choice.seen = True
            yield value

    @property
    def last_judged(self) -> int:
        """The last global step that was judged; -1 before the first."""
        return self._judged

    def note(self, step: int) -> None:
        """Notes that the rule fires at a step, for `invoke_at_step`, without a finding."""
        if self._held_at is not None:
            self._held_at.add(step)

    def begins(self, key: object, holds: bool, step: int) -> bool:
        """Notes whether a condition holds at a step, and says whether it began to hold.

        Args:
            key: what the condition is about, such as a column.
            holds: whether it holds.
            step: the global step.
        """
        quiet = self._quiet.get(key, self.quiet_steps)
        self._quiet[key] = 0 if holds else min(quiet + 1, self.quiet_steps)
        if holds:
            self.note(step)
        return holds and quiet >= self.quiet_steps

    def is_quiet(self, key: object) -> bool:
        """Whether a condition would be found anew."""
        return self._quiet.get(key, self.quiet_steps) >= self.quiet_steps

    def hits(
        self,
        block: Frame,
        table: Frame,
        holds: Bools,
        sentence: Callable[[Column, float], str],
        threshold: float | None = None,
        values: Floats | None = None,
        about: str = "",
    ) -> Iterator[Finding]:
        """Turns a matrix of where a condition holds into findings, one where it begins to hold.

        Args:
            block: the block.
            table: the steps and columns of the matrix.
            holds: the matrix; looked at only where the table has a number.
            sentence: what to say, given the column and the value.
            threshold: what the value was compared with.
            values: what was compared; the table's own when None.
            about: tells several conditions of one rule apart.
        """
        shown = table.values if values is None else values
        holds = holds & table.present
        keys = [(about, column) for column in table.columns]
        quiet = np.array([self._quiet.get(key, self.quiet_steps) for key in keys], np.int64)
        for row, step in enumerate(table.steps.tolist()):
            now = holds[row]
            if self._held_at is not None and now.any():
                self._held_at.add(step)
            for place in np.flatnonzero(now & (quiet >= self.quiet_steps)).tolist():
                column, value = table.columns[place], float(shown[row, place])
                yield self.finding(
                    block, step, sentence(column, value), column, value, threshold, about
                )  # fmt: skip
            quiet = np.where(now, 0, np.minimum(quiet + table.present[row], self.quiet_steps))
        self._quiet.update(zip(keys, quiet.tolist(), strict=True))

    def finding(
        self,
        block: Frame,
        step: int,
        message: str,
        column: Column | None = None,
        value: float | None = None,
        threshold: float | None = None,
        about: str = "",
    ) -> Finding:
        """Makes a finding at a step of a block; `about` tells conditions of one tensor apart."""
        mode, mode_step = block.mode_at(step)
        tensor, worker = (None, None) if column is None else column
        return Finding(
            self.rule_name, step, message, tensor, value, threshold, mode, mode_step, worker,
            about=about,
        )  # fmt: skip

    # ---- what the runner uses

    def look(self, block: Frame) -> list[Finding]:
        """Judges a block and remembers the steps at which something is wrong."""
        for choice, _ in self.choices:
            choice.look_at(block.trial)
        # By step, as if each came alone: a rule may look at one condition after the other.
        found = sorted(self.judge(block), key=lambda finding: finding.step)
        for finding in found:
            self._found.setdefault(finding.step, finding)
        if len(block):
            self._judged = int(block.steps[-1])
        return found

    # ---- the interface of Rule

    def invoke_at_step(self, step: int) -> bool:
        """Says whether something is wrong at a global step."""
        if self._held_at is None:
            self.start_over()
            self._held_at = set()
        # All steps that are there at once: none of them depends on a later one.
        for block in blocks_of(self.base_trial, self._judged + 1, self.reads):
            self.look(block)
        return step in self._held_at or step in self._found

    def finding_at(self, step: int) -> Finding:
        """What was found at a step; where it only went on, what began it."""
        begun = [known for known in self._found if known <= step]
        return self._found[max(begun)] if begun else super().finding_at(step)

    def require_information(self) -> None:
        """Raises if nothing the rule needs was saved.

        Raises:
            InsufficientInformationForRuleInvocation: what is missing, and how to save it.
        """
        missing = self.missing()
        if missing:
            raise InsufficientInformationForRuleInvocation(self.rule_name, missing)


def frame_of_steps(trial: Trial, begin: int, end: int, reads: Iterable[str]) -> Frame:
    """The steps `begin <= step < end` of a trial: all tensors, a column for each worker."""
    reductions = tuple(dict.fromkeys(reads))
    columns = [*needed_columns(reductions, raw=True), "time", "position"]
    rows = IndexRows(trial, trial.rows_between(begin, end, columns), reductions)
    return lay_out(rows, reductions, per_worker=True)


def blocks_of(trial: Trial, begin: int, reads: Iterable[str]) -> Iterator[Frame]:
    """The complete steps of a trial from `begin` on, in blocks that fit into memory."""
    if trial.step_after(begin - 1) is None:
        # The common case of a rule that is invoked step by step; listing all steps takes long.
        return
    steps = [step for step in trial.steps() if step >= begin]
    width = max(len(trial.tensor_names()) * max(len(trial.known_workers()), 1), 1)
    most = max(MOST_ROWS // width, 1)
    for start in range(0, len(steps), most):
        part = steps[start : start + most]
        yield frame_of_steps(trial, part[0], part[-1] + 1, reads)
