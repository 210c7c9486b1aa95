"""A loss that does not go down."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from smdebug.config import validation
from smdebug.mode_keys import ModeKeys
from smdebug.rules.detectors.evaluation import Evaluations, by_mode, choose_losses, is_validation
from smdebug.rules.detectors.loss_trend import LossTrend
from smdebug.rules.rule import Rule
from smdebug.storage.findings import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from smdebug.config.rule_requirements import TensorRequirement
    from smdebug.rules.detectors.evaluation import Evaluation
    from smdebug.rules.detectors.loss_trend import TrendProblem
    from smdebug.trials.frame import Column, Frame
    from smdebug.trials.index_rows import Bools, Floats, Ints
    from smdebug.trials.trial import Trial

_JUDGED = (ModeKeys.EVAL, ModeKeys.TRAIN, ModeKeys.GLOBAL)
# How many times num_steps a loss may stay flat from the beginning.
_FLAT_FACTOR = 10


class LossNotDecreasing(Rule):
    """Fires when a loss does not go down.

    Asked about one step (`invoke_at_step`, `invoke_rule`), it compares two values: it fires when
    the loss is not lower than at the newest saved step that lies at least `num_steps` before, by
    `diff_percent` percent of the size of that one. Steps are counted within the mode. Where no such
    step was saved it does not fire; a loss that is not finite is not lower than any.

    The loss of one batch is noisy, so such a comparison fails every few steps in any healthy
    training. What is *found* (and recorded, and acted upon by a runner) is therefore one of the
    following, looked at with every tenth saved value of a loss. Levels are medians of values. The
    noise s of one value is the median size of the differences of values that follow each other
    (times 1.05, which makes it a standard deviation), and e = s * sqrt(1/n + 1/m) is how far the
    levels of n and of m values differ by chance. "Enough" is 5 %, or `diff_percent` if it is more.

    - Flat: at least 20 values and 10 * `num_steps` steps have come, and the level of the second
      half of all values is not below that of the first half by more than `diff_percent` percent or
      0.6 e, while 3 e is less than enough, so that a fall would be seen in the noise. Also when it
      is above that of the first half by 3 e.
    - A loss that has come down once is not flat any more, however long it stays where it is: it may
      well sit at its floor, and training that goes on there is what `Overtraining` looks for. It
      has come down when the level of the last half of the values (at most 200) is below that of the
      first 1, 5, 20 or 50 by enough and by 4 e.
    - Risen: a loss that had come down has come up again by half of that, and by 8 e, going by the
      last 20 values. It is found anew when in between it was up by less than half as much.
    - Not finite: half of the last 10 values.

    The finding stands at the first step from then on at which the two values compared say the same.
    A run that goes on from a checkpoint at its floor, in a directory of its own, is flat.

    In EVAL a value is the mean of an evaluation: at least 20 evaluations must have come, however
    many steps they had, and the finding stands at the first step after the evaluation.

    Args:
        base_trial: the trial to look at.
        collection_names: collections of losses: a list or a string with commas.
        tensor_regex: regexes of losses: a list or a string with commas.
        use_losses_collection: look at the collection `losses` as well.
        num_steps: how far back to compare.
        diff_percent: by how many percent the loss must be lower.
        mode: the steps to look at: `"EVAL"`, `"TRAIN"`, or `"GLOBAL"` for all of them in one
            series. None looks at EVAL, TRAIN and the steps of scripts without modes, each as a
            series of its own.
        action_str: what to do when it fires; see `Rule`.

    Example:
        >>> run_rules("/tmp/run", ["LossNotDecreasing:num_steps=100"])  # doctest: +SKIP
    """

    reads = ("mean",)

    def __init__(
        self,
        base_trial: Trial | None,
        collection_names: Any = None,
        tensor_regex: Any = None,
        use_losses_collection: Any = True,
        num_steps: Any = 10,
        diff_percent: Any = 0.0,
        mode: Any = None,
        action_str: Any = "",
    ) -> None:
        super().__init__(base_trial, action_str)
        self.losses = choose_losses(self, collection_names, tensor_regex, use_losses_collection)
        self.num_steps = validation.whole_number("num_steps", num_steps, minimum=1)
        self.diff_percent = validation.number("diff_percent", diff_percent, minimum=0, maximum=100)
        self.mode = _mode(mode)
        # The steps and values a new one may be compared with, by series.
        self._before: dict[object, tuple[Ints, Floats]] = {}
        self._courses: dict[object, LossTrend] = {}
        self._rounds = Evaluations()
        # For `invoke_at_step`: the column, its loss and what it should be below.
        self._compared: dict[int, tuple[Column, float, float]] = {}

    def needs(self) -> tuple[TensorRequirement, ...]:
        """The losses."""
        return self.losses.needs("loss_not_decreasing", ("mean",))

    def start_over(self) -> None:
        """Forgets what the losses were."""
        super().start_over()
        self._before.clear()
        self._courses.clear()
        self._rounds.clear()
        self._compared.clear()

    def check(self, frame: Frame) -> Iterator[Finding]:
        """Compares every loss with what it was."""
        table = self.read(frame, "mean", self.losses, self.mode or ModeKeys.GLOBAL)
        if self.mode is ModeKeys.GLOBAL:
            yield from self._judge_series(frame, self.mode, table, table.steps)
            return
        for mode, part in by_mode(frame, table).items():
            if mode in _JUDGED:
                yield from self._judge_series(frame, mode, part, part.mode_steps)
        if self.mode is not ModeKeys.TRAIN:
            for done in self._rounds.add(frame, table):
                yield from self._judge_evaluation(done)

    def finish(self) -> Iterator[Finding]:
        """Looks at the last evaluation."""
        for done in self._rounds.end():
            yield from self._judge_evaluation(done)

    def finding_at(self, step: int) -> Finding:
        """What was found at a step, or the two values that were compared there."""
        if step in self._found or step not in self._compared:
            return super().finding_at(step)
        column, value, limit = self._compared[step]
        mode, mode_step = self.base_trial.mode_modestep(step)
        message = (
            f"{column.tensor} is {value:.4g}, not below {limit:.4g}, as it should be by what it "
            f"was {self.num_steps} or more steps before"
        )
        return Finding(
            self.rule_name, step, message, column.tensor, value, limit,
            mode or ModeKeys.GLOBAL, mode_step, column.worker,
        )  # fmt: skip

    # ---- steps

    def _judge_series(
        self, frame: Frame, mode: ModeKeys, table: Frame, numbers: Ints
    ) -> Iterator[Finding]:
        for place, column in enumerate(table.columns):
            rows = np.flatnonzero(table.present[:, place])
            steps, values = table.steps[rows], table.values[rows, place]
            holds, limits = self._compare((mode, column), numbers[rows], values)
            self._note(column, steps, values, holds, limits)
            if mode is ModeKeys.EVAL or (self.mode is None and is_validation(column.tensor)):
                continue
            course = self._course((mode, column))
            for row, number in enumerate(numbers[rows].tolist()):
                verdict = course.add(number, float(values[row]))
                if verdict is not None and holds[row] and not course.reported:
                    course.reported = True
                    message = f"{column.tensor} {_said(verdict)}"
                    yield self.finding(
                        frame, int(steps[row]), message, column, verdict.now, verdict.before
                    )

    def _compare(self, key: object, numbers: Ints, values: Floats) -> tuple[Bools, Floats]:
        """Where values are not below what they should be, and what that is; NaN for nothing."""
        values = np.where(np.isfinite(values), values, np.inf)
        old_numbers, old = self._before.get(key, (numbers[:0], values[:0]))
        all_numbers = np.maximum.accumulate(np.concatenate([old_numbers, numbers]))
        line = np.concatenate([old, values])
        places = np.searchsorted(all_numbers, numbers - self.num_steps, side="right") - 1
        earlier = np.where(places >= 0, line[places], np.nan)
        sizes = np.where(np.isfinite(earlier), np.abs(earlier), 0.0)
        limits = earlier - sizes * self.diff_percent / 100
        # What the next values may be compared with: the newest that is old enough, and those after.
        keep = 0
        if len(all_numbers):
            last = all_numbers[-1] - self.num_steps
            keep = max(int(np.searchsorted(all_numbers, last, side="right")) - 1, 0)
        self._before[key] = (all_numbers[keep:], line[keep:])
        return (places >= 0) & ~(values < limits), limits

    def _note(
        self, column: Column, steps: Ints, values: Floats, holds: Bools, limits: Floats
    ) -> None:
        """Notes where a comparison fails, for `invoke_at_step`."""
        if self._held_at is None:
            return
        for place in np.flatnonzero(holds).tolist():
            step = int(steps[place])
            self.note(step)
            self._compared.setdefault(
                step, (column, float(values[place]), float(limits[place]))
            )  # fmt: skip

    # ---- evaluations

    def _judge_evaluation(self, done: Evaluation) -> Iterator[Finding]:
        column, moment = done.column, done.known
        key = (ModeKeys.EVAL, column)
        course = self._courses.setdefault(key, LossTrend(self.diff_percent / 100))
        verdict = course.add(done.last, done.validation)
        if verdict is not None and not course.reported:
            course.reported = True
            yield Finding(
                self.rule_name, moment.step, f"{column.tensor} in evaluations {_said(verdict)}",
                column.tensor, verdict.now, verdict.before, moment.mode, moment.mode_step,
                column.worker,
            )  # fmt: skip

    def _course(self, key: object) -> LossTrend:
        if key not in self._courses:
            self._courses[key] = LossTrend(self.diff_percent / 100, _FLAT_FACTOR * self.num_steps)
        return self._courses[key]


def _said(verdict: TrendProblem) -> str:
    if verdict.kind == "flat":
        return f"does not go down: it began at {verdict.before:.4g} and is at {verdict.now:.4g}"
    if verdict.kind == "risen":
        return f"has gone up again: it was at {verdict.before:.4g} and is at {verdict.now:.4g}"
    return "is not finite any more, and so cannot go down"


def _mode(given: Any) -> ModeKeys | None:
    if given is None or given in _JUDGED:
        return given  # type: ignore[no-any-return]  # one of the modes
    names = [mode.name for mode in _JUDGED]
    return ModeKeys[validation.choice("mode", str(getattr(given, "name", given)).upper(), names)]
