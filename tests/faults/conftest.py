"""Counts what the tests try, and prints it when they have ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console
from tests.faults.tally import Row, Tally, table
from tests.zygote import Zygote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

JOBS = [f"tests.faults.{name}" for name in ("jobs", "ending_jobs", "process_jobs", "thread_jobs")]


@pytest.fixture
def tally(record_property: Callable[[str, object], None]) -> Tally:
    """Takes what a test has tried, and how often everything was as promised."""
    return Tally(record_property)


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    """Starts processes that train, in no time: they are forks of one that has imported it all."""
    made = Zygote(JOBS)
    yield made
    made.close()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Prints the table, also of tests that ran in other processes."""
    reports = [each for group in terminalreporter.stats.values() for each in group]
    rows = [
        Row(*value)
        for report in reports
        if getattr(report, "when", "") == "call"
        for name, value in report.user_properties
        if name == Tally.PROPERTY
    ]
    if not rows:
        return
    console = Console(width=max(terminalreporter._tw.fullwidth, 118))
    with console.capture() as printed:
        console.print(table(rows))
    terminalreporter.write_line("")
    terminalreporter.write(printed.get())
