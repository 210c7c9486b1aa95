"""One measured figure, and what others need for the same."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field

ORIGINAL, WANDB, TENSORBOARD, FLOOR = "smdebug 1.0.34", "wandb", "tensorboard", "floor"
PEERS = (ORIGINAL, WANDB, TENSORBOARD, FLOOR)


@dataclass(frozen=True)
class Figure:
    """A line of the table.

    Attributes:
        what: what was measured.
        target: what it must reach, as text.
        values: ours, one per repetition; the median counts.
        unit: "x", "s", "MB" or such.
        limit: the number to reach.
        at_least: whether more is better.
        failed: why there are no values.
        digits: how many of a number are shown.
        peers: what others need for the same, in the same unit; or why that is not known. Who
            cannot do it is left out.
        ratios: what is compared with the limit, where that is not our value alone: pairs of ours
            and a peer's, measured in turn.
    """

    what: str
    target: str
    values: list[float]
    unit: str
    limit: float | None = None
    at_least: bool = False
    failed: str = ""
    digits: int = 3
    peers: dict[str, list[float] | str] = field(default_factory=dict)
    ratios: list[float] = field(default_factory=list)

    @property
    def judged(self) -> float:
        """The number that is compared with the limit."""
        return statistics.median(self.ratios or self.values)

    @property
    def reached(self) -> str:
        """A word on the limit, and the ratio where it is one's limit."""
        if self.limit is None:
            return ""
        if self.failed:
            return "NO"
        good = self.judged >= self.limit if self.at_least else self.judged <= self.limit
        ratio = f", {number(self.judged, self.digits)} x" if self.ratios else ""
        return ("yes" if good else "NO") + ratio


def table(figures: list[Figure]) -> str:
    """The figures as a Markdown table."""
    heads = ["what", "must reach", "ours", *PEERS, "reached"]
    lines = [row(heads), "|" + "---|" * len(heads)]
    for figure in figures:
        others = [peer_cell(figure, peer) for peer in PEERS]
        lines.append(row([figure.what, figure.target, own_cell(figure), *others, figure.reached]))
    return "\n".join(lines)


def row(cells: list[str]) -> str:
    """A line of a Markdown table; what a library said about itself cannot break it."""
    return "| " + " | ".join(" ".join(cell.split()).replace("|", r"\|") for cell in cells) + " |"


def own_cell(figure: Figure) -> str:
    """Median, spread and number of the values."""
    if figure.failed:
        return f"failed: {figure.failed}"
    if len(figure.values) == 1:
        return shown(figure.values[0], figure)
    ends = (number(end(figure.values), figure.digits) for end in (min, max))
    median = shown(statistics.median(figure.values), figure)
    return f"{median} ({' to '.join(ends)}, {len(figure.values)} times)"


def peer_cell(figure: Figure, peer: str) -> str:
    """The median of what a peer needs."""
    values = figure.peers.get(peer)
    if not values:
        return "-"
    if isinstance(values, str):
        return f"failed: {values}"
    return shown(statistics.median(values), figure)


def shown(value: float, figure: Figure) -> str:
    return f"{number(value, figure.digits)} {figure.unit}"


def number(value: float, digits: int = 3) -> str:
    """So many digits, and never a power of ten."""
    if value and abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    text = f"{value:.{digits}g}"
    return f"{value:.{digits + 3}f}".rstrip("0") if "e" in text else text
