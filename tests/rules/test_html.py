"""The drawings of pages: well-formed, within their frame, and true to the numbers."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smdebug.markup import cut, escape, tag
from smdebug.rules.html.bars import bar_chart, histogram
from smdebug.rules.html.lines import Curve, line_chart
from smdebug.rules.html.matrix import matrix_chart
from smdebug.rules.html.page import Card, Fact, Section, page, table
from smdebug.rules.html.ranges import range_chart
from smdebug.rules.html.scale import padded, short, tick_texts, ticks

PLACES = ("x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "r", "width", "height")


def drawing(markup: str) -> ElementTree.Element:
    """The one drawing of some markup, parsed; everything in it lies within its frame."""
    (text,) = re.findall(r"<svg.*?</svg>", markup, re.DOTALL)
    root = ElementTree.fromstring(text)
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    for element in root.iter():
        for name in PLACES:
            if name in element.attrib:
                place = float(element.attrib[name])
                across = name in ("x", "x1", "x2", "cx", "width")
                assert -1 <= place <= (width if across else height) + 1, (element.attrib, name)
        for point in element.attrib.get("points", "").split():
            x, y = map(float, point.split(","))
            assert -1 <= x <= width + 1
            assert -1 <= y <= height + 1
    return root


def texts(root: ElementTree.Element) -> list[str]:
    return [element.text or "" for element in root.iter("text")]


def hints(root: ElementTree.Element) -> list[str]:
    return [element.text or "" for element in root.iter("title")]


# ---- numbers


@given(
    st.floats(-1e12, 1e12), st.floats(1e-9, 1e12), st.integers(2, 9), st.booleans()
)  # fmt: skip
def test_ticks_are_few_evenly_spaced_and_within(
    low: float, span: float, most: int, whole: bool
) -> None:
    high = low + span
    if not high > low or span < 1e-9 * max(abs(low), abs(high)):
        return
    found = ticks(low, high, most, whole)
    assert len(found) <= most + 1
    room = 1e-6 * span + 1e-6 * max(abs(low), abs(high)) + (1e-8 if whole else 0)
    assert all(low - room <= each <= high + room for each in found)
    if whole:
        assert all(each == round(each) for each in found)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.0, 0.25, 0.5], ["0", "0.25", "0.5"]),
        ([0.0, 1000.0, 2000.0], ["0", "1,000", "2,000"]),
        ([0.91, 0.92, 0.93], ["0.91", "0.92", "0.93"]),
        ([0.0, 1e-6, 2e-6], ["0", "1e-06", "2e-06"]),
        ([0.0, 2e7, 4e7], ["0", "2e+07", "4e+07"]),
        ([-0.0], ["0"]),
    ],
)
def test_texts_of_ticks(values: list[float], expected: list[str]) -> None:
    assert tick_texts(values) == expected


@given(st.floats(-1e15, 1e15), st.floats(-1e15, 1e15))
def test_a_range_has_room(one: float, other: float) -> None:
    low, high = padded(min(one, other), max(one, other))
    assert low < high
    assert low <= min(one, other) <= max(one, other) <= high


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (0.5, "0.5"),
        (12345.6, "12,346"),
        (1e9, "1e+09"),
        (-3e-5, "-3e-05"),
        (np.nan, "nan"),
    ],
)
def test_short_numbers(value: float, text: str) -> None:
    assert short(value) == text


# ---- text


@pytest.mark.parametrize(
    "text", ["<script>alert(1)</script>", "a&b", '"', "'", "]]>", "\x00\x1b\ud800"]
)
def test_any_text_is_only_text(text: str) -> None:
    parsed = ElementTree.fromstring(tag("text", escape(text), class_=text))
    expected = re.sub("[\x00-\x1f\ud800]", "\ufffd", text)
    assert (parsed.text, parsed.attrib["class"]) == (expected, expected)


def test_long_texts_are_cut_in_the_middle() -> None:
    assert cut("short", 10) == "short"
    assert cut("a_long_name_with_an_end", 11) == "a_long\u2026_end"
    assert len(cut("x" * 500, 26)) == 26


# ---- charts


def curve(values: Any, name: str = "train", color: int = 0, mark: float | None = None) -> Curve:
    return Curve(
        name, np.arange(len(values), dtype=np.float64), np.asarray(values, np.float64), color, mark
    )


def points(root: ElementTree.Element) -> list[list[tuple[float, float]]]:
    return [
        [
            (float(x), float(y))
            for x, y in (each.split(",") for each in line.attrib["points"].split())
        ]
        for line in root.iter("polyline")
    ]


def test_curves_lie_where_their_numbers_are() -> None:
    markup = line_chart(
        [curve([3.0, 1.0, 2.0], mark=1), curve([2.0, 2.0, 2.0], "validation", 1)], "t"
    )
    root = drawing(markup)
    first, second = points(root)
    assert first[0][1] < second[0][1] == first[2][1] < first[1][1]
    assert first[0][0] < first[1][0] < first[2][0]
    (mark,) = [line for line in root.iter("line") if line.attrib["class"] == "mark"]
    assert float(mark.attrib["x1"]) == first[1][0]
    assert "train, 0: 3" in hints(root)
    assert markup.index("train") < markup.index("validation")
    assert 'class="legend"' in markup


def test_one_round() -> None:
    root = drawing(line_chart([curve([0.5])], "t"))
    assert texts(root).count("0") == 1
    assert len([each for each in root.iter("circle") if each.attrib["class"] == "f0"]) == 1


def test_many_rounds_keep_their_peaks() -> None:
    values = np.sin(np.arange(50_000) / 900)
    values[31_234], values[777] = 5.0, -5.0
    root = drawing(line_chart([curve(values)], "t"))
    (line,) = points(root)
    assert len(line) <= 1000
    heights = sorted(y for _, y in line)
    assert heights[1] - heights[0] > 50
    assert heights[-1] - heights[-2] > 50
    assert line == sorted(line, key=lambda point: point[0])


def test_gaps_where_numbers_are_not_finite() -> None:
    root = drawing(line_chart([curve([1.0, 2.0, np.nan, 3.0, np.inf, 4.0, 5.0])], "t"))
    assert [len(line) for line in points(root)] == [2, 1, 2]
    assert "no finite value" in line_chart([curve([np.nan])], "t")


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=30))
def test_any_curve_and_any_bars_fit(values: list[float]) -> None:
    drawing(line_chart([curve(values)], "t"))
    drawing(bar_chart([(f"f{n}", value) for n, value in enumerate(values)], "t"))
    drawing(histogram([("a", np.array(values))], "t", "x"))


def test_bars() -> None:
    root = drawing(bar_chart([("a", 2.0), ("b<", -1.0), ("c", 0.0)], "t"))
    bars = [each for each in root.iter("rect")]
    widths = [float(each.attrib["width"]) for each in bars]
    assert widths[0] == pytest.approx(2 * widths[1], rel=0.01)
    assert [each.attrib["class"] for each in bars] == ["f0", "f1", "f0"]
    assert texts(root) == ["a", "2", "b<", "-1", "c", "0"]


def test_a_histogram_counts_everything() -> None:
    random = np.random.default_rng(0)
    values = np.concatenate([random.standard_normal(5000), [1e6, np.nan]])
    markup = histogram([("errors", values)], "t", "x")
    counts = [int(hint.rpartition(": ")[2].replace(",", "")) for hint in hints(drawing(markup))]
    assert sum(counts) == 5001
    assert "further out" in markup
    assert "further out" not in histogram([("errors", random.random(100))], "t", "x")


def test_two_histograms_have_the_same_intervals() -> None:
    groups = [("label 0", np.linspace(0, 0.4, 100)), ("label 1", np.linspace(0.6, 1, 300))]
    found = hints(drawing(histogram(groups, "t", "x")))
    counts = {
        name: sum(int(hint.rpartition(": ")[2]) for hint in found if hint.startswith(name))
        for name, _ in groups
    }
    assert counts == {"label 0": 100, "label 1": 300}


@pytest.mark.parametrize("size", [1, 2, 12, 20])
def test_a_matrix(size: int) -> None:
    counts = np.random.default_rng(size).integers(0, 5000, (size, size))
    names = [f"class {number}" for number in range(size)]
    root = drawing(matrix_chart(counts, names, "t"))
    assert len([each for each in root.iter("rect")]) == size**2
    assert hints(root)[0].startswith(f"label class 0, predicted class 0: {counts[0, 0]:,}")


def test_ranges() -> None:
    values = np.linspace(0, 1, 101)
    root = drawing(
        range_chart([("class 0", values), ("class 1", values / 2)], (0.0, 1.0), "t", "x")
    )
    assert hints(root) == [
        "class 0: 101 samples; 5%: 0.05, 25%: 0.25, 50%: 0.5, 75%: 0.75, 95%: 0.95",
        "class 1: 101 samples; 5%: 0.025, 25%: 0.125, 50%: 0.25, 75%: 0.375, 95%: 0.475",
    ]


# ---- pages


def test_a_page() -> None:
    sections = [Section("Full", [Card("card<", "<b>x</b>", "note&")]), Section("Empty", [])]
    text = page("title<", "sub<", [Fact("f<", "v<", "n<")], sections, "foot<")
    for part in (
        "title&lt;",
        "sub&lt;",
        "f&lt;",
        "v&lt;",
        "n&lt;",
        "foot&lt;",
        "card&lt;",
        "note&amp;",
    ):
        assert part in text
    assert "<b>x</b>" in text
    assert "Empty" not in text
    assert "prefers-color-scheme:dark" in text


def test_a_table() -> None:
    root = ElementTree.fromstring(table(["a", "b"], [["x<", "1"], ["y", "2"]], (1,)))
    assert [cell.text for cell in root.iter("td")] == ["x<", "1", "y", "2"]
    assert [cell.attrib.get("class") for cell in root.iter("td")] == [None, "n", None, "n"]
