"""How a cost grows with a size, and how that is shown."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.bench import last_line
from benchmarks.figure import PEERS, number, row

if TYPE_CHECKING:
    from collections.abc import Callable

OURS = "ours"
# How steep a line is in a picture with logarithmic axes, and what that is called.
FLAT, LINEAR, STEEP = 0.15, 0.8, 1.2


@dataclass(frozen=True)
class Curve:
    """A cost at several sizes.

    Attributes:
        along: what grows: "steps", "tensors" or such.
        what: what was measured.
        unit: of the values.
        whose: "ours", or which peer's.
        points: pairs of a size and the values measured there.
        note: why there are no more of them.
    """

    along: str
    what: str
    unit: str
    whose: str
    points: list[tuple[int, list[float]]]
    note: str = ""

    @property
    def medians(self) -> dict[int, float]:
        return {size: statistics.median(values) for size, values in self.points if values}

    @property
    def slope(self) -> float | None:
        """The power of the size that the cost grows with, fitted to all points."""
        medians = {size: value for size, value in self.medians.items() if value > 0}
        if len(medians) < 2:
            return None
        logs = [math.log(size) for size in medians]
        return statistics.linear_regression(logs, list(map(math.log, medians.values()))).slope

    @property
    def kind(self) -> str:
        """The slope in a word."""
        if self.slope is None:
            return ""
        if self.slope < -FLAT:
            return "falls"
        if self.slope < FLAT:
            return "flat"
        if self.slope < LINEAR:
            return "less than linear"
        return "linear" if self.slope <= STEEP else "MORE THAN LINEAR"


class Curves:
    """Gathers what is measured along one size.

    Args:
        along: what grows.
        costs: what each cost is called, and its unit.
        notes: why a peer is not measured everywhere.
    """

    def __init__(
        self, along: str, costs: dict[str, tuple[str, str]], notes: dict[str, str] | None = None
    ) -> None:
        self._along, self._costs, self._notes = along, costs, dict(notes or {})
        self._failed: set[str] = set()
        self._found: dict[tuple[str, str], list[tuple[int, list[float]]]] = {}

    def measure(self, whose: str, size: int, work: Callable[[], list[dict[str, Any]]]) -> None:
        """Does some work, which returns all costs that it knows, once per repetition.

        A peer's failure is a note; ours is an error.
        """
        print(f"    {size:,} {self._along}, {whose}", flush=True)
        try:
            results = work()
        except RuntimeError as error:
            if whose == OURS:
                raise
            self._notes[whose] = f"failed at {size:,}: {last_line(error)}"
            self._failed.add(whose)
            return
        for cost in self._costs.keys() & results[0].keys():
            values = [float(each[cost]) for each in results]
            self._found.setdefault((cost, whose), []).append((size, values))

    def all(self) -> list[Curve]:
        """A cost's curves one after the other."""
        return [
            Curve(self._along, *names, whose, points, self._notes.get(whose, ""))
            for cost, names in self._costs.items()
            for whose in (OURS, *PEERS)
            if (points := self._found.get((cost, whose), [])) or whose in self._failed
        ]


def sizes_of(curves: list[Curve]) -> list[int]:
    """All sizes that anybody was measured at."""
    return sorted({size for curve in curves for size in curve.medians})


def growth_table(curves: list[Curve]) -> str:
    """The curves along one size as a Markdown table."""
    sizes = sizes_of(curves)
    factor = 10 if len(sizes) > 1 and sizes[-1] >= 10 * sizes[-2] else 2
    heads = [f"{curves[0].along}:", "", *(f"{size:,}" for size in sizes), f"{factor} times as many"]
    lines = [row(heads), "|" + "---|" * len(heads)]
    for curve in curves:
        medians = curve.medians
        cells = [number(medians[size]) if size in medians else "-" for size in sizes]
        grows = "" if curve.slope is None else f"{number(factor**curve.slope)} x, {curve.kind}"
        lines.append(row([f"{curve.what}, {curve.unit}", curve.whose, *cells, grows]))
    notes = [f"`-` for {curve.whose}: {curve.note}." for curve in curves if curve.note]
    return "\n".join([*lines, "", *dict.fromkeys(notes)]).rstrip()
