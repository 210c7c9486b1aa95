"""What is handed to a writer: the tensors of one step, which from then on are the writer's."""

from __future__ import annotations

import time as clock
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from smdebug.exceptions import SMDebugValueError
from smdebug.reductions import REDUCTION_NAMES
from smdebug.storage.dtypes import check_dtype
from smdebug.storage.layout import LAST_STEP

if TYPE_CHECKING:
    from collections.abc import Mapping

    from smdebug.mode_keys import ModeKeys
    from smdebug.reductions import Array

_REDUCTIONS = frozenset(REDUCTION_NAMES)


@dataclass(frozen=True)
class Entry:
    """One tensor at one step.

    Attributes:
        name: the tensor's name.
        value: the raw value, when it is saved. The writer reads it later on another thread: hand
            over a copy, not memory that training goes on to change.
        reductions: saved reductions, named as `smdebug.reductions.REDUCTION_NAMES`.
        shape: of the tensor; needed only without a value.
        dtype: the element type's name; needed only without a value.
        time: seconds since 1970, when it differs from the step's.
        original_name: the name in the framework's graph, when it is another one; format v1 keeps
            it beside a shape.
    """

    name: str
    value: Array | None = None
    reductions: Mapping[str, float] = field(default_factory=dict)
    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    time: float | None = None
    original_name: str | None = None

    def __post_init__(self) -> None:
        if self.value is not None:
            check_dtype(self.value.dtype)
        if not self.reductions.keys() <= _REDUCTIONS:
            unknown = sorted(set(self.reductions) - _REDUCTIONS)
            raise SMDebugValueError(
                f"tensor {self.name} has unknown reductions {', '.join(map(str, unknown))}; "
                f"expected some of {', '.join(REDUCTION_NAMES)}"
            )
        if not self.name.isascii():
            try:
                self.name.encode()
            except UnicodeEncodeError as error:
                raise SMDebugValueError(
                    f"a tensor's name must be text that UTF-8 can hold, got {self.name!r}"
                ) from error

    @property
    def nbytes(self) -> int:
        """What the entry weighs in the writer's queue."""
        return 200 + (0 if self.value is None else self.value.nbytes)


@dataclass(frozen=True)
class StepBatch:
    """Tensors of one step; a step may come in several batches."""

    step: int
    mode: ModeKeys
    mode_step: int
    entries: list[Entry]
    time: float = field(default_factory=clock.time)

    def __post_init__(self) -> None:
        for name, number in (("step", self.step), ("mode_step", self.mode_step)):
            if not isinstance(number, (int, np.integer)) or not 0 <= number <= LAST_STEP:
                raise SMDebugValueError(
                    f"{name} must be an integer from 0 to {LAST_STEP}, got {number!r}"
                )

    @property
    def nbytes(self) -> int:
        return sum(entry.nbytes for entry in self.entries)
