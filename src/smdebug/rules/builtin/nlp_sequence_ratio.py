"""Sequences that are mostly padding, or mostly some other token."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from smdebug.config import validation
from smdebug.config.rule_requirements import TensorRequirement
from smdebug.exceptions import SMDebugValueError
from smdebug.rules.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from smdebug.mode_keys import ModeKeys
    from smdebug.storage.findings import Finding
    from smdebug.trials.frame import Frame
    from smdebug.trials.trial import Trial

_COLLECTION = "input_sequence"
# One small batch of short texts says nothing about the data.
_WINDOW_TOKENS = 1000
# Embeddings of what is no text: BERT's segments are nearly all 0, in the best of trainings.
_NO_TEXT = re.compile("token_type|segment|position", re.IGNORECASE)


class NLPSequenceRatio(Rule):
    """Fires when a token makes up too much of the sequences: padding, or words that are not known.

    For each token and at each step, the share is taken over the last steps that together hold at
    least 1000 tokens, of all workers together and of each mode by itself. It fires when the share,
    in percent, is above the limit of the token.

    The share of the token 0 is known from the reduction `zeros`; other tokens need the sequences
    themselves. Inputs of embeddings for positions and segments (`position`, `segment` or
    `token_type` in the name) are left out unless `tensor_regex` finds them.

    Args:
        base_trial: the trial to look at.
        tensor_regex: names of the sequences, in addition to the collection `input_sequence`.
        token_values: the tokens, such as `"0"` or `"0,1"`.
        token_thresholds_percent: their limits in percent, in the same order; more of them than
            tokens are not used.
        action_str: what to do when it fires; see `Rule`.

    Raises:
        SMDebugValueError: a token has no limit.

    Example:
        >>> rule = NLPSequenceRatio(None, token_values="0,100", token_thresholds_percent="40,10")
        >>> rule.limits
        {0.0: 40.0, 100.0: 10.0}
    """

    reads = ("zeros",)

    def __init__(
        self,
        base_trial: Trial | None,
        tensor_regex: Any = ".*embedding0_input_0",
        token_values: Any = "0",
        token_thresholds_percent: Any = "50,50",
        action_str: Any = "",
    ) -> None:
        super().__init__(base_trial, action_str)
        self.sequences = self.choose([_COLLECTION], tensor_regex)
        self._patterns = [re.compile(each) for each in self.sequences.regexes]
        tokens = [validation.number("token_values", each) for each in _items(token_values)]
        limits = [
            validation.number("token_thresholds_percent", each, 0, 100)
            for each in _items(token_thresholds_percent)
        ]
        if not tokens or len(limits) < len(tokens):
            raise SMDebugValueError(
                "token_values must name at least one token and token_thresholds_percent a limit "
                f"for each, got {validation.short_repr(token_values)} and "
                f"{validation.short_repr(token_thresholds_percent)}"
            )
        self.limits = dict(zip(tokens, limits, strict=False))
        self._windows: dict[tuple[str, ModeKeys], deque[_Counts]] = {}
        self._judged_any = False

    def needs(self) -> tuple[TensorRequirement, ...]:
        """The zeros in the inputs of embeddings, or the inputs themselves for other tokens."""
        raw = self._needs_raw
        return (
            TensorRequirement(
                _COLLECTION, reductions=() if raw else ("zeros",), raw=raw,
                include_regex=tuple(self.sequences.regexes), layers=("embedding",), tensor="input",
            ),
        )  # fmt: skip

    def start_over(self) -> None:
        """Forgets all tokens."""
        super().start_over()
        self._windows.clear()
        self._judged_any = False

    def check(self, frame: Frame) -> Iterable[Finding]:
        """Compares the share of every token with its limit."""
        counts = self._raw_counts(frame) if self._needs_raw else self._zero_counts(frame)
        for (step, tensor), group in groupby(counts, lambda each: (each.step, each.tensor)):
            of_step = list(group)
            added = _Counts(
                step,
                tensor,
                sum(each.tokens for each in of_step),
                np.sum([each.counts for each in of_step], axis=0),
            )
            window = self._windows.setdefault((tensor, frame.mode_at(step)[0]), deque())
            window.append(added)
            _drop_old(window)
            yield from self._look_at(frame, window)

    def missing(self) -> str:
        """Why nothing could be judged."""
        missing = super().missing()
        if missing or self._judged_any:
            return missing
        return f"fewer than {_WINDOW_TOKENS} tokens were saved"

    # ---- inside

    @property
    def _needs_raw(self) -> bool:
        return set(self.limits) != {0.0}

    def _wanted(self, tensor: str) -> bool:
        asked_for = any(pattern.search(tensor) for pattern in self._patterns)
        return asked_for or _NO_TEXT.search(tensor) is None

    def _zero_counts(self, frame: Frame) -> Iterator[_Counts]:
        table = self.read(frame, "zeros", self.sequences)
        sizes = table.sizes()
        for row, step in enumerate(table.steps.tolist()):
            order = sorted(range(len(table.columns)), key=lambda each: table.columns[each])
            for place in order:
                tensor = table.columns[place].tensor
                if sizes[row, place] and self._wanted(tensor):
                    zeros = np.array([table.values[row, place]])
                    yield _Counts(step, tensor, int(sizes[row, place]), zeros)

    def _raw_counts(self, frame: Frame) -> Iterator[_Counts]:
        for _, group in groupby(self.read_raw(frame, self.sequences), lambda value: value.step):
            for value in sorted(group, key=lambda value: value.column):
                array, tensor = value.array, value.column.tensor
                if array.size and array.dtype.kind not in "USO" and self._wanted(tensor):
                    counts = np.array([(array == token).sum() for token in self.limits])
                    yield _Counts(value.step, tensor, array.size, counts)

    def _look_at(self, frame: Frame, window: deque[_Counts]) -> Iterator[Finding]:
        tokens = sum(each.tokens for each in window)
        if tokens < _WINDOW_TOKENS:
            return
        self._judged_any = True
        step, tensor = window[-1].step, window[-1].tensor
        percents = 100 * np.sum([each.counts for each in window], axis=0) / tokens
        for (token, limit), percent in zip(self.limits.items(), percents.tolist(), strict=True):
            key = (tensor, frame.mode_at(step)[0], token)
            if self.started(key, percent > limit, step):
                message = (
                    f"{percent:.3g} % of the last {tokens} tokens in {tensor} are the token "
                    f"{token:g}, above {limit:.3g} %: much work goes into a token that says little"
                )
                # Of all workers together, so of none.
                found = self.finding(frame, step, message, None, percent, limit)
                yield replace(found, tensor=tensor, about=f"token {token:g}")


class _Counts(NamedTuple):
    """How often each token occurs in one tensor at one step."""

    step: int
    tensor: str
    tokens: int
    counts: Any


def _items(value: Any) -> list[Any]:
    if isinstance(value, list | tuple):
        return list(value)
    return validation.comma_list("token_values", value) if isinstance(value, str) else [value]


def _drop_old(window: deque[_Counts]) -> None:
    """Drops the oldest steps as long as the others hold enough tokens."""
    tokens = sum(each.tokens for each in window)
    while len(window) > 1 and tokens - window[0].tokens >= _WINDOW_TOKENS:
        tokens -= window.popleft().tokens
