"""The first tensor of a step that is NaN or infinite."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from smdebug.config import validation
from smdebug.config.collection import CollectionKeys
from smdebug.config.rule_requirements import TensorRequirement
from smdebug.rules.detectors.non_finite import (
    CLUES,
    COUNTS,
    DATA,
    MEASURED,
    masked_cells,
    non_finite_cells,
)
from smdebug.rules.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from smdebug.rules.detectors.non_finite import NonFiniteCells
    from smdebug.storage.findings import Finding
    from smdebug.trials.frame import Column, Frame
    from smdebug.trials.index_rows import Bools, Ints
    from smdebug.trials.trial import Trial

# What a name says, the first that matches; `{}` is the layer.
_KINDS = (
    (r"^gradients?/(.*)$", "the gradient of {}"),
    (r"^(?:.*/)?(.*[Ll]oss.*)_input_\w+$", "an input of the loss {}"),
    (r"^(?:val_)?loss$|[Ll]oss.*_output_|^scalar/.*loss", "a loss"),
    (r"^(?:inputs|labels|predictions)(?:_\d+)?$", "data of the model"),
    (r"^(.*)_input_\w+$|^(.*)/inputs(?:[/_].*)?$", "an input of {}"),
    (r"^(.*)_output_\w+$|^(.*)/outputs(?:[/_].*)?$", "an output of {}"),
    (r"(?:^|/)weights/|weight|bias|kernel|embedding|gamma|beta", "a parameter"),
)


def described_by_name(tensor: str) -> str:
    """What a tensor is, as far as its name tells; empty when it does not.

    Example:
        >>> described_by_name("conv1_output_0"), described_by_name("gradient/Net_fc.weight")
        ('an output of conv1', 'the gradient of Net_fc.weight')
    """
    for pattern, words in _KINDS:
        match = re.search(pattern, tensor)
        if match:
            layer = next((group for group in match.groups() if group), "")
            return words.format(layer.removesuffix("Grad"))
    return ""


def _is_gradient(tensor: str) -> bool:
    return tensor.startswith("gradient")


class NonFinite(Rule):
    """Names the first tensor of a step, in the order of computation, that is NaN or infinite.

    Where one tensor is NaN, soon all are. The one that was computed first, forward or backward, is
    where it came from. There is one finding for each worker, at the first such step; the next
    comes only after every tensor that was NaN or infinite has been finite again.

    A layer's input or output whose only such elements are -inf is a mask until something else of
    the step is not finite either: attention is masked that way. A tensor that was once found to be
    a mask is not blamed later, unless it holds NaN or +inf.

    With mixed precision in float16 a gradient scaler tries out how far it can go: gradients of some
    steps overflow, the step is left out, and training is healthy. With `gradient_patience` at 3,
    say, gradients that are not finite while all else is are told of only at the third saved step in
    a row.

    Args:
        base_trial: the trial to look at.
        gradient_patience: how many saved steps in a row gradients alone must be NaN or infinite.
        action_str: what to do when it fires; see `Rule`.

    Example:
        >>> run_rules("/tmp/run", ["NonFinite"])  # doctest: +SKIP
    """

    reads = (*COUNTS, *CLUES)

    def __init__(
        self, base_trial: Trial | None, gradient_patience: Any = 1, action_str: Any = ""
    ) -> None:
        super().__init__(base_trial, action_str)
        self.gradient_patience = validation.whole_number(
            "gradient_patience", gradient_patience, minimum=1
        )
        self.tensors = self.choose(regexes=MEASURED)
        self._workers: dict[str, _Worker] = {}

    def needs(self) -> tuple[TensorRequirement, ...]:
        """The counts of everything that is computed; of inputs and outputs also the largest."""
        parameters = (CollectionKeys.WEIGHTS, CollectionKeys.BIASES, CollectionKeys.GRADIENTS)
        return (
            *(TensorRequirement(name, COUNTS) for name in parameters),
            TensorRequirement(CollectionKeys.LOSSES, raw=True),
            # The largest tells -inf, of which masks are made, from +inf.
            TensorRequirement("layer_outputs", (*COUNTS, "max"), include_regex=DATA),
        )

    def start_over(self) -> None:
        """Forgets what was not finite."""
        super().start_over()
        self._workers.clear()

    def check(self, frame: Frame) -> Iterable[Finding]:
        """Looks for the first tensor of every step of every worker."""
        cells = non_finite_cells(self, frame, self.tensors)
        table = cells.table
        waiting = any(each.ill or each.gradients for each in self._workers.values())
        if not cells.bad.any() and not waiting:
            return
        positions, masked = table.positions, masked_cells(self, frame, self.tensors, cells)
        for worker in dict.fromkeys(column.worker for column in table.columns):
            mine = [place for place, each in enumerate(table.columns) if each.worker == worker]
            state = self._workers.setdefault(worker, _Worker())
            for row in range(len(table.steps)):
                if state.ill or state.gradients or cells.bad[row, mine].any():
                    order = np.array(mine)[np.argsort(positions[row, mine], kind="stable")]
                    yield from self._judge_step(frame, row, order, cells, masked[row], state)

    def _judge_step(
        self,
        frame: Frame,
        row: int,
        order: Ints,
        cells: NonFiniteCells,
        masked: Bools,
        state: _Worker,
    ) -> Iterator[Finding]:
        """Judges one step of one worker, whose tensors are at `order`."""
        columns, step = cells.table.columns, int(cells.table.steps[row])
        bad = state.blamed(
            [columns[place] for place in order if cells.bad[row, place]],
            {columns[place] for place in order if masked[place]},
        )
        saved = [columns[place] for place in order if cells.known[row, place]]
        state.take(bad, saved, self.gradient_patience)
        if self.started(columns[order[0]].worker, bool(state.ill), step):
            place = columns.index(bad[0])
            count = float(cells.counted[row, place])
            message = _message(cells, row, place, len(bad) - 1, _only_gradients(bad))
            yield self.finding(
                frame, step, message, bad[0], None if np.isnan(count) else count, 0.0
            )  # fmt: skip


class _Worker:
    """What is known of one worker.

    Attributes:
        ill: the tensors that were not finite when they were last saved.
        masks: the tensors that are known to hold -inf on purpose.
        gradients: for how many saved steps gradients alone have not been finite.
    """

    def __init__(self) -> None:
        self.ill: set[Column] = set()
        self.masks: set[Column] = set()
        self.gradients = 0

    def blamed(self, bad: list[Column], masked: set[Column]) -> list[Column]:
        """Those of the tensors that are not finite which are no masks."""
        if all(column in masked for column in bad):
            self.masks |= masked
        return [column for column in bad if column not in masked or column not in self.masks]

    def take(self, bad: list[Column], saved: list[Column], patience: int) -> None:
        """Takes over what is not finite at a step, among all that was saved at it."""
        self.ill -= set(saved)
        if bad and _only_gradients(bad):
            self.gradients += 1
        elif bad or any(_is_gradient(column.tensor) for column in saved):
            # A step at which no gradients were saved says nothing of them.
            self.gradients = 0
        if self.gradients == 0 or self.gradients >= patience:
            self.ill |= set(bad)


def _only_gradients(columns: list[Column]) -> bool:
    return all(_is_gradient(column.tensor) for column in columns)


def _message(cells: NonFiniteCells, row: int, place: int, others: int, only_gradients: bool) -> str:
    tensor, count = cells.table.columns[place].tensor, cells.counted[row, place]
    words = [word for word, holds in (("NaN", cells.nan), ("Inf", cells.inf)) if holds[row, place]]
    what = " and ".join(words) or "NaN or Inf"
    many = "" if np.isnan(count) else f" in {count:.0f} element{'s' if count != 1 else ''}"
    kind = described_by_name(tensor)
    named = f"{tensor}, {kind}," if kind else tensor
    affected = f"{others} other tensors are" if others > 1 else "1 other tensor is"
    rest = f"{affected} affected" if others else "no other tensor is affected"
    hint = "; only gradients are, and a gradient scaler skips such a step" if only_gradients else ""
    return f"{named} is the first tensor of the step with {what}{many}; {rest}{hint}"
