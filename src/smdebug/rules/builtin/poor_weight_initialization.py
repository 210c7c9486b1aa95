"""Weights that began so that the model can hardly learn."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from smdebug.config import validation
from smdebug.config.collection import CollectionKeys
from smdebug.config.rule_requirements import TensorRequirement
from smdebug.exceptions import ShapeUnavailableForStep
from smdebug.mode_keys import ModeKeys
from smdebug.rules.detectors.evaluation import by_mode
from smdebug.rules.rule import Rule
from smdebug.trials.frame import Column

if TYPE_CHECKING:
    from collections.abc import Iterator

    from smdebug.rules.tensor_choice import TensorChoice
    from smdebug.storage.findings import Finding
    from smdebug.trials.frame import Frame
    from smdebug.trials.trial import Trial

_COLLECTION = "relu_input"
_JUDGED = (ModeKeys.TRAIN, ModeKeys.GLOBAL)
# Inputs of this variance, times the threshold, are far beyond what data and weights of size 1 make.
_HUGE = 100.0
# A loss that has not come down by this share has stalled.
_STALL = 0.01
# At most 5 % of any numbers lie more than sqrt(19) deviations above their mean, or below it.
_SPREAD = 2 * math.sqrt(19)
# What is left of the deviation of equal numbers when it is computed in float32.
_EQUAL = 1e-6


class _Problem(NamedTuple):
    """Something that may be wrong with the weights."""

    message: str
    tensor: str
    value: float
    threshold: float
    # Whether it counts only when the loss has stalled.
    if_stalled: bool = True


@dataclass
class _Start:
    """How the training of one worker began.

    Attributes:
        losses: the loss at each saved step.
        since: the losses since the last of them.
        problem: what is wrong with the first weights.
        weights: whether weights were seen.
        inputs: whether inputs of activations were seen.
        equal: at how many saved steps in a row inputs of an activation were all equal.
    """

    losses: list[float] = field(default_factory=list)
    since: list[float] = field(default_factory=list)
    problem: _Problem | None = None
    weights: bool = False
    inputs: bool = False
    equal: int = 0


class PoorWeightInitialization(Rule):
    """Fires when a model begins with weights that it can hardly learn from.

    Looked at are the first `steps` saved steps of training that hold inputs of activations,
    gradients or weights. Two things are found by themselves, at the first of them:

    - The weights of a model with several layers are constant: of a weight with two or more axes all
      elements are the same number, which is neither 0 nor 1. Then all units of a layer learn the
      same.
    - The signal explodes: the variance of the inputs of an activation is more than `threshold`
      times that of the first activation, and more than 100 * `threshold`.

    Others happen to models that learn well: the usual initialisation of PyTorch lets the variance
    shrink by a factor of three with each layer, elements of the gradients of a large model are
    small, and a linear model may begin at zero. They count only when the loss has stalled too:

    - The largest variance of the inputs of activations is more than `threshold` times the smallest.
      Inputs that are all equal, the variance being 0, count by themselves when they are so at more
      than `patience` saved steps in a row.
    - The gradients are tiny: the 5th and the 95th percentile of each are less than
      `distribution_range` apart. That is certain when 2 * sqrt(19) standard deviations are less
      (Cantelli's inequality), and this is what is compared: reductions are enough for it.
    - All weights with two or more axes are zero.

    The loss at a saved step is the mean of the losses saved since the step before. It has stalled
    when at least `patience` of them have come after the first, none of them is below the first by
    1 %, and the mean of the later half of them is not below that of the earlier half by 1 %.

    Args:
        base_trial: the trial to look at.
        activation_inputs_regex: regexes of the inputs of activations, a list or a string with
            commas; the collection `relu_input` is looked at as well.
        threshold: the largest ratio of variances.
        distribution_range: the smallest spread of gradients.
        patience: how many saved steps the loss may take to come down.
        steps: how many saved steps are looked at.
        action_str: what to do when it fires; see `Rule`.

    Example:
        >>> run_rules("/tmp/run", ["PoorWeightInitialization:threshold=100"])  # doctest: +SKIP
    """

    reads = ("variance", "std", "mean")

    def __init__(
        self,
        base_trial: Trial | None,
        activation_inputs_regex: Any = ".*relu_input",
        threshold: Any = 10.0,
        distribution_range: Any = 0.001,
        patience: Any = 5,
        steps: Any = 10,
        action_str: Any = "",
    ) -> None:
        super().__init__(base_trial, action_str)
        self.threshold = validation.number("threshold", threshold, minimum=1)
        self.distribution_range = validation.number(
            "distribution_range", distribution_range, minimum=0
        )
        self.patience = validation.whole_number("patience", patience, minimum=1)
        self.steps = validation.whole_number("steps", steps, minimum=1)
        regexes = validation.comma_list("activation_inputs_regex", activation_inputs_regex)
        self.inputs = self.choose([_COLLECTION], regexes, required=False)
        self.gradients = self.choose([CollectionKeys.GRADIENTS], required=False)
        self.weights = self.choose([CollectionKeys.WEIGHTS], required=False)
        self.losses = self.choose([CollectionKeys.LOSSES])
        self._looked_at: dict[TensorChoice, tuple[str, ...]] = {
            self.inputs: ("variance",),
            self.gradients: ("std",),
            self.weights: ("std", "mean"),
        }
        self._looked = 0
        self._starts: dict[str, _Start] = {}

    def needs(self) -> tuple[TensorRequirement, ...]:
        """A few numbers of the first saved steps, and the losses."""
        return (
            TensorRequirement(
                _COLLECTION, ("variance",), include_regex=tuple(self.inputs.regexes),
                layers=("relu",), tensor="input", saves=self.steps,
            ),
            TensorRequirement(CollectionKeys.GRADIENTS, ("std",), saves=self.steps),
            TensorRequirement(CollectionKeys.WEIGHTS, ("std", "mean"), saves=self.steps),
            TensorRequirement(CollectionKeys.LOSSES, ("mean",)),
        )  # fmt: skip

    def start_over(self) -> None:
        """Forgets how training began."""
        super().start_over()
        self._looked = 0
        self._starts.clear()

    def missing(self) -> str:
        """What the rule needed and did not find, in words."""
        missing = super().missing()
        if missing or self.inputs.seen or self.gradients.seen:
            return missing
        return (
            f"the run has neither the variance of {self.inputs.described} nor the std of "
            f"{self.gradients.described}. {self.remedy()}"
        )

    def check(self, frame: Frame) -> Iterator[Finding]:
        """Looks at the first saved steps."""
        if self._looked >= self.steps:
            return
        cells = {choice: frame.where_saved(choice) for choice in self._looked_at}
        parts = [part for each in cells.values() for part in _training(frame, each)]
        steps = sorted({step for part in parts for step in part.steps.tolist()})
        losses = self._losses(frame)
        for step in steps[: self.steps - self._looked]:
            self._looked += 1
            while losses and losses[0][0] <= step:
                _, worker, value = losses.popleft()
                self._start(worker).since.append(value)
            yield from self._judge_step(frame, step, cells)
        if self._looked < self.steps:
            for _, worker, value in losses:
                self._start(worker).since.append(value)

    # ---- inside

    def _start(self, worker: str) -> _Start:
        return self._starts.setdefault(worker, _Start())

    def _losses(self, frame: Frame) -> deque[tuple[int, str, float]]:
        """Step, worker and value of the losses of training."""
        found = []
        for table in _training(frame, self.read(frame, "mean", self.losses)):
            for row, place in np.argwhere(table.present).tolist():
                value = float(table.values[row, place])
                found.append((int(table.steps[row]), table.columns[place].worker, value))
        return deque(sorted(found))

    def _judge_step(
        self, frame: Frame, step: int, cells: dict[TensorChoice, Frame]
    ) -> Iterator[Finding]:
        inputs, gradients, weights = (
            self._at(frame, step, choice, each, self._looked_at[choice])
            for choice, each in cells.items()
        )
        for worker in sorted({*inputs, *gradients, *weights}):
            start = self._start(worker)
            if start.since:
                start.losses.append(sum(start.since) / len(start.since))
                start.since.clear()
            if worker in weights and not start.weights:
                start.weights = True
                matrices = _matrices(frame, step, worker, weights[worker])
                start.problem = _of_weights(matrices)
            problems = [
                start.problem,
                *self._of_inputs(start, inputs.get(worker, {})),
                self._of_gradients(gradients.get(worker, {})),
            ]
            stalled = _has_stalled(start.losses, self.patience)
            found = [each for each in problems if each and (stalled or not each.if_stalled)]
            # What began badly did so once: there is nothing to find anew.
            if found and self.started(worker, True, step):
                problem, column = found[0], Column(found[0].tensor, worker)
                yield self.finding(
                    frame, step, problem.message, column, problem.value, problem.threshold
                )  # fmt: skip

    def _at(
        self,
        frame: Frame,
        step: int,
        choice: TensorChoice,
        cells: Frame,
        names: tuple[str, ...],
    ) -> dict[str, dict[str, list[float]]]:
        """Reductions of chosen tensors at a step, in the order they were saved, by worker."""
        where = np.zeros(cells.present.shape, bool)
        where[cells.steps == step] = True
        numbers, known = [], cells.present & where
        for name in names:
            values, here = self.read_cells(cells, name, choice, where)
            numbers.append(values)
            known = known & here
        rows, places = np.nonzero(known)
        order = np.argsort(cells.positions[rows, places], kind="stable")
        found: dict[str, dict[str, list[float]]] = {}
        for row, place in zip(rows[order].tolist(), places[order].tolist(), strict=True):
            tensor, worker = cells.columns[place]
            found.setdefault(worker, {})[tensor] = [float(each[row, place]) for each in numbers]
        return found

    def _of_inputs(self, start: _Start, found: dict[str, list[float]]) -> Iterator[_Problem]:
        """Problems with the variances of the inputs of activations."""
        if not found:
            return
        variances = {name: _or_infinite(numbers[0]) for name, numbers in found.items()}
        least, most = min(variances, key=variances.__getitem__), max(
            variances, key=variances.__getitem__
        )  # fmt: skip
        low, high = variances[least], variances[most]
        first = next(iter(variances.values()))
        if not start.inputs and high > self.threshold * max(first, _HUGE):
            ratio = high / first if first else math.inf
            yield _Problem(
                f"the signal explodes on its way through the model: the inputs of {most} begin "
                f"with a variance of {high:.3g}, {ratio:.3g} times that of the first activation",
                most, ratio, self.threshold, if_stalled=False,
            )  # fmt: skip
        start.inputs = True
        start.equal = start.equal + 1 if low == 0 else 0
        if low == 0:
            yield _Problem(
                f"all inputs of {least} are equal: nothing passes this layer",
                least, 0.0, 0.0, if_stalled=start.equal <= self.patience,
            )  # fmt: skip
        elif high > self.threshold * low:
            yield _Problem(
                f"the loss does not come down, and the variance of inputs differs between layers "
                f"by a factor of {high / low:.3g}: {low:.3g} in {least}, {high:.3g} in {most}",
                most, high / low, self.threshold,
            )  # fmt: skip

    def _of_gradients(self, found: dict[str, list[float]]) -> _Problem | None:
        """Gradients that are all tiny."""
        if not found:
            return None
        spreads = {name: _SPREAD * _or_infinite(std) for name, (std,) in found.items()}
        widest = max(spreads, key=spreads.__getitem__)
        if not spreads[widest] < self.distribution_range:
            return None
        return _Problem(
            f"the loss does not come down, and all gradients are tiny: 90 % of the elements of "
            f"{widest}, which vary most, lie within {spreads[widest]:.3g}",
            widest, spreads[widest], self.distribution_range,
        )  # fmt: skip


def _training(frame: Frame, table: Frame) -> list[Frame]:
    """The parts of a table that are training."""
    return [part for mode, part in by_mode(frame, table).items() if mode in _JUDGED]


def _matrices(
    frame: Frame, step: int, worker: str, weights: dict[str, list[float]]
) -> dict[str, list[float]]:
    """The weights with at least two axes; none when no element of any is alike."""
    if not any(_are_alike(*numbers) for numbers in weights.values()):
        return {}
    found = {}
    for name, numbers in weights.items():
        try:
            shape = frame.trial.tensor(name).shape(step, worker=worker)
        except ShapeUnavailableForStep:
            continue
        if sum(length > 1 for length in shape) > 1:
            found[name] = numbers
    return found


def _of_weights(matrices: dict[str, list[float]]) -> _Problem | None:
    """Weights that begin as constants."""
    constant = {
        name: mean for name, (std, mean) in matrices.items() if _are_alike(std, mean)
    }  # fmt: skip
    same = [name for name, mean in constant.items() if mean not in (0.0, 1.0)]
    if same and len(matrices) > 1:
        return _Problem(
            f"all elements of {same[0]} begin as {constant[same[0]]:.4g}: its units all learn the "
            "same",
            same[0], 0.0, 0.0, if_stalled=False,
        )  # fmt: skip
    if constant and len(constant) == len(matrices) and not any(constant.values()):
        name = next(iter(constant))
        return _Problem(
            f"the loss does not come down, and {name} and all other weights began as zero",
            name, 0.0, 0.0,
        )  # fmt: skip
    return None


def _are_alike(std: float, mean: float) -> bool:
    return std <= _EQUAL * abs(mean)


def _or_infinite(number: float) -> float:
    return number if math.isfinite(number) else math.inf


def _has_stalled(losses: list[float], patience: int) -> bool:
    """Whether a loss has not come down from where it began, nor since."""
    if len(losses) <= patience:
        return False
    first, *rest = (_or_infinite(loss) for loss in losses)
    half = len(rest) // 2
    early = sum(rest[:half]) / half if half else first
    late = sum(rest[half:]) / (len(rest) - half)
    return _not_below(min(rest), first) and _not_below(late, early)


def _not_below(value: float, other: float) -> bool:
    if math.isinf(other) or math.isinf(value):
        return math.isinf(value)
    return value > other - _STALL * abs(other)
