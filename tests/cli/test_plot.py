"""Curves as dots: read back from the characters, they lie where the numbers say."""

from __future__ import annotations

import io
import itertools
from typing import TYPE_CHECKING

import numpy as np
import pytest
from rich.console import Console
from rich.text import Text

from smdebug.cli.render.heatmap import Heatmap
from smdebug.cli.render.line_plot import PlotCurve, plot
from smdebug.cli.render.numbers import ago, byte_size, exact, short

if TYPE_CHECKING:
    from smdebug.reductions import Array

WIDTH, ROWS = 49, 6
# Two dots across and four down in each of the characters beside the axis.
ACROSS, DOWN = 2 * (WIDTH - 9), 4 * ROWS
BITS = {0x01: (0, 0), 0x02: (0, 1), 0x04: (0, 2), 0x08: (1, 0),
        0x10: (1, 1), 0x20: (1, 2), 0x40: (0, 3), 0x80: (1, 3)}  # fmt: skip


def drawn(*curves: PlotCurve, zero: bool = False) -> list[str]:
    output = Console(file=io.StringIO(), width=WIDTH, color_system=None)
    output.print(plot(list(curves), Text("title"), WIDTH, ROWS, zero))
    assert isinstance(output.file, io.StringIO)
    return output.file.getvalue().splitlines()


def dots(lines: list[str]) -> set[tuple[int, int]]:
    """Column and row of every dot, from the top left."""
    found = set()
    for row, line in enumerate(lines[1 : ROWS + 1]):
        for column, character in enumerate(line[9:]):
            bits = ord(character) - 0x2800
            for bit, (x, y) in BITS.items():
                if bits & bit:
                    found.add((2 * column + x, 4 * row + y))
    return found


def curve(values: list[float] | Array, first: int = 0) -> PlotCurve:
    return PlotCurve("it", np.arange(first, first + len(values)), np.asarray(values, np.float64))


def test_dots_lie_where_the_numbers_say() -> None:
    random = np.random.default_rng(0)
    values = random.uniform(-3, 8, ACROSS)
    found = dots(drawn(curve(values)))
    for column, value in enumerate(values):
        row = (values.max() - value) / (values.max() - values.min()) * (DOWN - 1)
        assert any((column, near) in found for near in (int(row), int(row) + 1)), column
    assert {column for column, _ in found} == set(range(ACROSS))


def test_a_spike_among_a_million_steps_is_seen() -> None:
    values = np.zeros(1_000_000)
    values[654_321] = 1.0
    found = dots(drawn(curve(values)))
    assert [column for column, row in found if row == 0] == [round(0.654321 * (ACROSS - 1))]


def test_few_points_are_joined() -> None:
    found = dots(drawn(curve([0.0, 1.0])))
    assert {(0, DOWN - 1), (ACROSS - 1, 0)} <= found
    assert {column for column, _ in found} == set(range(ACROSS))
    rows = [{row for column, row in found if column == each} for each in range(ACROSS)]
    assert all(min(after) <= max(before) for before, after in itertools.pairwise(rows))


def test_what_is_not_finite_has_a_row_and_no_line() -> None:
    nan, inf = float("nan"), float("inf")
    lines = drawn(curve([1.0, nan, 1.0, inf, 2.0, -inf, nan, 2.0]))
    marks = {line.split()[0]: line[9:] for line in lines[ROWS + 1 : -2]}
    counts = {name: len(row.split()) for name, row in marks.items()}
    assert counts == {"NaN": 2, "Inf": 1, "-Inf": 1}
    places = np.rint(np.arange(8) / 7 * (ACROSS - 1)).astype(int)
    assert marks["NaN"].index("x") == places[1] // 2
    assert marks["Inf"].index("▲") == places[3] // 2
    assert marks["-Inf"].index("▼") == places[5] // 2
    # Nothing is drawn through them.
    assert {column for column, _ in dots(lines)} == set(places[[0, 2, 4, 7]].tolist())


@pytest.mark.parametrize(
    ("values", "top", "bottom"),
    [
        ([5.0], "7.5", "2.5"),
        ([0.0, 0.0], "0.5", "-0.5"),
        ([-1.7e308, 1.7e308], "1.7e308", "-1.7e308"),
        ([float("nan")], "1", "0"),
        ([], "1", "0"),
        ([1e-300, 1e300], "1.0e300", "1.0e-300"),
        ([-5e-11, 5e-11], "5.0e-11", "-5.0e-11"),
        ([-2e-300, float("nan")], "-1.0e-300", "-3.0e-300"),
    ],
)
def test_the_ends_of_the_axis(values: list[float], top: str, bottom: str) -> None:
    lines = drawn(curve(values, first=7))
    assert lines[1].split()[0] == top
    assert lines[ROWS].split()[0] == bottom
    assert lines[-1].split()[0] == ("7" if values else "0")
    # All of it beside one axis, on as many columns as there are.
    axis = lines[1].index("┤")
    assert {line[axis] for line in lines[1:-1]} <= set("┤│└")
    assert max(len(line) for line in lines) <= WIDTH


def test_logarithms_where_numbers_differ_much() -> None:
    lines = drawn(curve(10.0 ** np.linspace(0, -6, ACROSS)))
    assert "logarithmic" in lines[0]
    assert lines[1 + ROWS // 2].split()[0] == "1.0e-3"
    found = dots(lines)
    for column in range(ACROSS):
        row = column / (ACROSS - 1) * (DOWN - 1)
        assert any((column, near) in found for near in (int(row), int(row) + 1))
    assert "logarithmic" not in drawn(curve([0.0, 1e6]))[0]
    assert "logarithmic" not in drawn(curve([1.0, 1e6]), zero=True)[0]


def test_heat() -> None:
    heat = Heatmap.of(np.array([2e-9, -5.0, np.nan, 0.0]))
    assert heat.exponents == (-9, 1)
    small, large = heat.style(2e-9), heat.style(-5.0)
    assert len({small, large, heat.style(1e-4), heat.style(0.0), heat.style(np.inf)}) == 5
    assert heat.style(np.nan) == heat.style(-np.inf)
    # One color for a decade, or some of them.
    assert heat.style(1.01e-9) == heat.style(9.9e-8)
    assert heat.cell(0.25, 9).plain == "    0.25 "
    assert heat.cell(None, 4).plain == "  · "
    assert Heatmap.of(np.array([])).exponents == (0, 1)
    assert "1e-9" in heat.legend().plain


def test_numbers() -> None:
    shown = [short(each) for each in (0, -3, 0.012345, 12.3456, 9999.6, 123456, -1e-5, 99999)]
    assert shown == ["0", "-3", "0.0123", "12.35", "1.0e4", "1.2e5", "-1.0e-5", "99999"]
    assert [exact(each) for each in (0.1, 1e-30, float("inf"))] == ["0.1", "1e-30", "Inf"]
    assert [byte_size(each) for each in (0, 1023, 1 << 20, 1 << 60)] == [
        "0 B", "1023 B", "1.0 MiB", "1024.0 PiB",
    ]  # fmt: skip
    assert [ago(each) for each in (0, 59, 60, 90000)] == ["now", "59 s ago", "1 min ago", "1 d ago"]
