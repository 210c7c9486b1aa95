"""Summary of a part of the index without its values: steps and tensor names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from smdebug.exceptions import IndexReaderException
from smdebug.mode_keys import ModeKeys
from smdebug.storage.arrow import from_numpy, pa, pc, to_numpy

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class StepArrays:
    """The steps of one worker, as columns of equal length."""

    step: Ints
    mode: Ints
    mode_step: Ints
    seq: Ints

    @staticmethod
    def concatenate(chunks: list[StepArrays]) -> StepArrays:
        empty = [np.zeros(0, np.int64)]
        return StepArrays(
            *(
                np.concatenate([getattr(chunk, name) for chunk in chunks] or empty)
                for name in ("step", "mode", "mode_step", "seq")
            )
        )


class Segment(Protocol):
    """A part of the index of one worker, of either format.

    Attributes:
        worker: the worker that wrote it.
        steps: its steps.
        names: for every tensor, the modes it was saved in, as `mode_bit`s.
    """

    worker: str

    @property
    def steps(self) -> StepArrays: ...

    @property
    def names(self) -> dict[str, int]: ...

    def rows(
        self, tensor: str, columns: list[str], steps: set[int] | None = None
    ) -> pa.Table | None:
        """Return the rows of one tensor with columns of the v2 schema; None without any.

        With `steps`, rows of other steps may be missing if that avoids reading.
        """

    def step_range(self) -> tuple[int, int]:
        """Return the first and the last step; (0, -1) without any."""

    def names_within(self, begin: int, end: int) -> dict[str, int]:
        """Return the tensors of the steps `begin <= step < end`, with their modes as bits."""

    def table(self, columns: list[str] | None = None) -> pa.Table:
        """Return all rows."""

    def present_columns(self) -> set[str]:
        """Return the columns with at least one value."""


def mode_bit(mode: ModeKeys | int) -> int:
    """Return the bit of a mode in `Segment.names`."""
    return 1 << (mode.value if isinstance(mode, ModeKeys) else mode)


def one_array(column: Any) -> Any:
    """Return a column as one array; of strings, with one dictionary."""
    column = column.unify_dictionaries()
    if column.num_chunks == 1:
        return column.chunk(0)
    combined = column.combine_chunks()
    return combined.chunk(0) if isinstance(combined, pa.ChunkedArray) else combined


def places_among(column: Any, texts: Sequence[str]) -> Ints:
    """Return the index of each row of a dictionary column in a list of strings, or -1."""
    array = one_array(column)
    known = {text: index for index, text in enumerate(texts)}
    # One more, so that indexing works for a column without rows.
    indices = [*(known.get(text, -1) for text in array.dictionary.to_pylist()), -1]
    found: Ints = np.array(indices, np.int64)[to_numpy(array.indices)]
    return found


def mode_numbers(column: Any) -> Ints:
    """Convert a dictionary column of mode names to the numbers of the enum."""
    names = column.dictionary.to_pylist()
    unknown = [name for name in names if name not in ModeKeys.__members__]
    if unknown:
        raise IndexReaderException(f"the index has the unknown mode {unknown[0]!r}")
    values = [ModeKeys[name].value for name in names]
    codes: Ints = to_numpy(column.indices)
    return np.array(values or [0], np.int64)[codes]


def _first_of_each(keys: Any) -> Any:
    """Return the first row of each distinct key."""
    codes = from_numpy(keys).dictionary_encode()
    first = np.empty(len(codes.dictionary), np.int64)
    # The last of several assignments to one element stays, so go backwards.
    numbers = to_numpy(codes.indices)
    first[numbers[::-1]] = np.arange(len(keys) - 1, -1, -1)
    return first


def distinct_steps(columns: dict[str, Any], mode: Any) -> StepArrays:
    """Return the distinct steps of rows; `mode` has the numbers of their modes."""
    step, seq = to_numpy(columns["step"]), to_numpy(columns["seq"])
    # The newest row of a step counts.
    order = np.argsort(-seq.astype(np.int64), kind="stable")
    first = order[_first_of_each((step * 8 + mode)[order])]
    return StepArrays(
        step[first],
        mode[first],
        to_numpy(columns["mode_step"])[first],
        seq[first].astype(np.int64),
    )


def distinct_names(dictionary: Any, codes: Any, mode: Any) -> Iterable[tuple[str, int]]:
    """Return the distinct (tensor, mode) pairs of rows, with the mode as a bit."""
    keys = to_numpy(pc.unique(from_numpy(codes.astype(np.int64) * 8 + mode)))
    names = dictionary.take(from_numpy(keys // 8)).to_pylist()
    return zip(names, (1 << (keys % 8)).tolist(), strict=True)
