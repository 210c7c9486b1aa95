"""What was tried and what survived: the table that `make faults` prints."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

# `make faults` sets it; the checks do a part of everything.
FULL = os.environ.get("TORNASOLE_FAULTS") == "full"

# The promises of docs/guarantees.md, by number.
PROMISES = {
    1: "Training is never harmed",
    2: "A published step is never lost",
    3: "A wrong value is never returned",
    4: "Readers and writers in parallel",
    5: "Bounded",
    6: "Hostile runs",
    7: "Secrets",
    8: "Forks, threads, signals",
}


def amount(full: int, short: int) -> int:
    """How many there are of something: in `make faults`, and in the checks."""
    return full if FULL else short


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        promise: its number.
        fault: what was done to it.
        tried: how often.
        survived: how often everything was as promised.
        remark: what else was seen.
    """

    promise: int
    fault: str
    tried: int
    survived: int
    remark: str = ""


class Tally:
    """Counts for one test; `add` before asserting, so that what failed is in the table.

    Args:
        record: takes a name and a value that go into the report of the test, as pytest's
            `record_property` does.
    """

    PROPERTY = "faults"

    def __init__(self, record: Callable[[str, object], None]) -> None:
        self._record = record

    def add(self, promise: int, fault: str, tried: int, survived: int, remark: str = "") -> None:
        """Adds a line to the table."""
        assert promise in PROMISES
        # A tuple: reports travel between processes.
        self._record(self.PROPERTY, (promise, fault, tried, survived, remark))


def table(rows: Iterable[Row]) -> Table:
    """The rows as a person reads them; those of one test and fault are added up."""
    sums: dict[tuple[int, str], Row] = {}
    for row in rows:
        before = sums.get((row.promise, row.fault))
        if before is not None:
            remarks = dict.fromkeys(filter(None, (before.remark, row.remark)))
            row = Row(
                row.promise, row.fault, before.tried + row.tried, before.survived + row.survived,
                "; ".join(remarks),
            )  # fmt: skip
        sums[row.promise, row.fault] = row
    shown = Table(title="Faults: what was tried, and what survived", title_justify="left")
    for name in ("promise", "what was done", "tried", "survived", "remark"):
        shown.add_column(name, justify="right" if name in ("tried", "survived") else "left")
    last = 0
    for (promise, fault), row in sorted(sums.items()):
        if promise != last and last:
            shown.add_section()
        title = f"{promise}. {PROMISES[promise]}" if promise != last else ""
        style = None if row.survived == row.tried else "bold red"
        shown.add_row(title, fault, f"{row.tried:,}", f"{row.survived:,}", row.remark, style=style)
        last = promise
    return shown
