"""What TensorBoard's own reader finds in a directory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from smdebug.histogram import histogram_of

if TYPE_CHECKING:
    from pathlib import Path

ALL = {"histograms": 0, "scalars": 0}


class Point(NamedTuple):
    """A scalar, or a histogram with the fields of its message, at a step."""

    step: int
    wall_time: float
    value: Any


Board = dict[str, list[Point]]


def read_board(folder: Path) -> Board:
    """Everything in the directory of one mode, by tag."""
    found = EventAccumulator(str(folder), size_guidance=ALL).Reload()
    board = {}
    for tag in found.Tags()["scalars"]:
        board[tag] = [Point(each.step, each.wall_time, each.value) for each in found.Scalars(tag)]
    for tag in found.Tags()["histograms"]:
        assert tag not in board
        board[tag] = [
            Point(each.step, each.wall_time, _plain(each.histogram_value))
            for each in found.Histograms(tag)
        ]
    return board


def read_boards(folder: Path) -> dict[str, Board]:
    """Everything below a directory, by mode (and worker)."""
    return {each.name: read_board(each) for each in sorted(folder.iterdir())}


def numbers(board: Board, tag: str) -> dict[int, float]:
    """The numbers of a tag by step."""
    return {point.step: point.value for point in board[tag]}


def _plain(message: Any) -> tuple[Any, ...]:
    fields = ("min", "max", "num", "sum", "sum_squares")
    lists = ("bucket_limit", "bucket")
    return (
        *(getattr(message, name) for name in fields),
        *(tuple(getattr(message, name)) for name in lists),
    )


def spread(array: Any) -> tuple[Any, ...]:
    """What TensorBoard should have of the numbers of an array."""
    found = histogram_of(np.asarray(array))
    assert found is not None
    assert found.counts.sum() == np.isfinite(np.asarray(array, np.float64)).sum()
    return (*found[:5], tuple(found.limits), tuple(found.counts))
