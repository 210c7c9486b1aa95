"""The page of the figures is well formed, whatever was measured. Nothing is measured here."""

from __future__ import annotations

import json
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.__main__ import ALONE, FIGURES
from benchmarks.bench import Bench, last_line
from benchmarks.figure import FLOOR, ORIGINAL, PEERS, TENSORBOARD, WANDB, Figure, number, table
from benchmarks.growth import OURS, Curve, Curves, growth_table
from benchmarks.page import page, write_page
from benchmarks.results import Measured, Results

ROOT = Path(__file__).parent.parent

FIGURE = Figure(
    "a step", "<= 1.1 x", [1.02, 1.04, 1.09], "x", 1.1, digits=4,
    peers={ORIGINAL: [3.0, 5.0, 4.0], WANDB: "no | such thing\nto see", FLOOR: [1.01]},
)  # fmt: skip
FASTER = Figure(
    "a run", "1/20 of smdebug 1.0.34", [0.5, 0.4], "s", 20, at_least=True,
    peers={ORIGINAL: [20.0, 12.0]}, ratios=[40.0, 30.0],
)  # fmt: skip
BROKEN = Figure("a rule", "< 1 s", [], "s", 1.0, failed="it broke")


def power(exponent: float, whose: str = OURS, sizes: tuple[int, ...] = (10, 100, 1000)) -> Curve:
    points = [(size, [0.9 * size**exponent, 1.0 * size**exponent]) for size in sizes]
    return Curve("steps", "a cost", "µs", whose, points)


CURVES = [power(0), power(1, ORIGINAL, (10, 100)), power(0.5, FLOOR)]


def results() -> Results:
    first = Measured(
        "first", [FIGURE, FASTER, BROKEN], CURVES, seconds=60, versions={"numpy": "2.0"}
    )
    second = Measured("second", failed="RuntimeError: no room", seconds=30)
    third = Measured("third", [FIGURE], versions={"numpy": "1.23"}, seconds=30)
    measured = {each.module: each for each in (first, second, third)}
    return Results({"processor": "A computer", "cores": "2"}, measured)


def rows_of(text: str) -> list[list[str]]:
    """The cells of a Markdown table's lines."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def tables_of(text: str) -> list[list[list[str]]]:
    """All tables of a page."""
    return [rows_of(part) for part in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)]


def test_a_line_shows_everybody() -> None:
    heads, rule, step, run, rule_line = rows_of(table([FIGURE, FASTER, BROKEN]))
    assert heads == ["what", "must reach", "ours", *PEERS, "reached"]
    assert set(rule) == {"---"}
    cells = dict(zip(heads, step, strict=True))
    assert cells["ours"] == "1.04 x (1.02 to 1.09, 3 times)"
    assert cells[ORIGINAL] == "4 x"
    assert cells[WANDB] == r"failed: no \| such thing to see"
    assert (cells[TENSORBOARD], cells[FLOOR], cells["reached"]) == ("-", "1.01 x", "yes")
    assert run[-1] == "yes, 35 x"
    assert (rule_line[2], rule_line[-1]) == ("failed: it broke", "NO")


@pytest.mark.parametrize(
    ("limit", "at_least", "word"),
    [(1.03, False, "NO"), (1.04, False, "yes"), (1.05, True, "NO"), (None, False, "")],
)
def test_the_median_has_to_reach_the_limit(limit: float | None, at_least: bool, word: str) -> None:
    figure = Figure("a step", "", [1.0, 1.04, 9.0], "x", limit, at_least)
    assert figure.reached == word


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (1.0, "1"), (0.123456, "0.123"), (0.0000123456, "0.000012"), (99.96, "100"),
     (123.4, "123"), (12345.6, "12,346"), (-74.62, "-74.6"), (1e9, "1,000,000,000")],
)  # fmt: skip
def test_numbers_are_read_without_powers(value: float, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("exponent", "kind"),
    [(-0.5, "falls"), (0, "flat"), (0.5, "less than linear"), (1, "linear"),
     (2, "MORE THAN LINEAR")],
)  # fmt: skip
def test_growth_has_a_name(exponent: float, kind: str) -> None:
    curve = power(exponent)
    assert curve.slope == pytest.approx(exponent)
    assert curve.kind == kind


def test_what_was_not_measured_is_a_dash() -> None:
    heads, _, ours, theirs, _ = rows_of(growth_table(CURVES))
    assert heads == ["steps:", "", "10", "100", "1,000", "10 times as many"]
    assert ours == ["a cost, µs", OURS, "0.95", "0.95", "0.95", "1 x, flat"]
    assert theirs[4] == "-"
    # Workers double.
    heads, *_ = rows_of(growth_table([power(1, OURS, (1, 2, 4))]))
    assert heads[-1] == "2 times as many"
    single = growth_table([power(1, OURS, (5,))])
    assert rows_of(single)[2][-1] == ""


def test_a_peer_that_fails_is_a_note(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> list[dict[str, float]]:
        raise RuntimeError("Traceback\nit is too old")

    curves = Curves("rows", {"open": ("open", "s"), "sql": ("SQL", "s")}, {FLOOR: "it is straight"})
    for size in (10, 100):
        curves.measure(OURS, size, lambda: [{"open": 2.0, "sql": 1.0, "more": 0.0}])
    curves.measure(FLOOR, 10, lambda: [{"open": 1.0}, {"open": 3.0}])
    curves.measure(ORIGINAL, 10, fail)
    text = growth_table(curves.all())
    _, _, *lines = rows_of(text)
    assert [cells[:4] for cells in lines] == [
        ["open, s", OURS, "2", "2"],
        ["open, s", ORIGINAL, "-", "-"],
        ["open, s", FLOOR, "2", "-"],
        ["SQL, s", OURS, "1", "1"],
        ["SQL, s", ORIGINAL, "-", "-"],
    ]
    assert text.endswith(
        f"`-` for {ORIGINAL}: failed at 10: it is too old.\n`-` for {FLOOR}: it is straight."
    )
    assert "10 rows, ours" in capsys.readouterr().out
    with pytest.raises(RuntimeError, match="too old"):
        curves.measure(OURS, 1000, fail)


def test_page(tmp_path: Path) -> None:
    path = tmp_path / "performance.md"
    write_page(path, results())
    text = path.read_text(encoding="utf-8")
    assert text.startswith("<!-- Generated")
    assert "${" not in text
    for lines in tables_of(text):
        assert len({len(cells) for cells in lines}) == 1, lines
    machine, figures, growth = tables_of(text)
    assert ["processor", "A computer"] in machine
    assert ["libraries", "numpy 2.0 and 1.23, smdebug 1.0.34"] in machine
    assert [cells[0] for cells in figures[2:]] == ["a step", "a run", "a rule", "second", "a step"]
    assert figures[5][2] == "failed: RuntimeError: no room"
    assert [cells[1] for cells in growth[2:]] == [OURS, ORIGINAL, FLOOR]
    assert "one run of 2 minutes" in text
    (picture,) = re.findall(r"!\[.*\]\((.*)\)", text)
    content = (tmp_path / picture).read_bytes()
    assert content.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", content[16:24])
    assert width > height > 100


def test_a_page_says_that_it_was_tried_out() -> None:
    found = results()
    assert "mean nothing" not in page(found)
    found.measured["third"] = Measured("third", [FIGURE], quick=True)
    assert "mean nothing" in page(found)


def test_results_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    assert Results.load(path) == Results()
    results().save(path)
    kept = Results.load(path)
    assert kept == results()
    assert page(kept) == page(results())
    # What failed, or was but tried out, is measured again.
    assert kept.has("first", quick=False)
    assert not kept.has("first", quick=True)
    assert not kept.has("second", quick=False)
    assert not kept.has("fourth", quick=False)


def test_a_page_from_what_is_kept(tmp_path: Path) -> None:
    """All modules are kept but one, which fails: a line of the page, and the exit code."""
    kept = Results({"cores": "2"}, {name: Measured(name, [FIGURE]) for name in FIGURES[:-1]})
    kept.measured[FIGURES[-1]] = Measured(FIGURES[-1], failed="it broke before")
    kept.save(tmp_path / "results.json")
    # Where it wants a folder.
    (tmp_path / FIGURES[-1]).touch()
    command = [
        sys.executable, "-m", "benchmarks", "--resume", "--folder", str(tmp_path), "--page",
        str(tmp_path / "page.md"),
    ]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert f"1/{len(FIGURES)} {FIGURES[0]}: kept" in done.stdout
    content = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert list(content["measured"]) == list(FIGURES)
    failed = content["measured"][FIGURES[-1]]["failed"]
    assert failed == f"FileExistsError: [Errno 17] File exists: '{FIGURES[-1]}'"
    (line,) = [
        cells
        for lines in tables_of((tmp_path / "page.md").read_text(encoding="utf-8"))
        for cells in lines
        if cells[0] == FIGURES[-1]
    ]
    assert line[2] == f"failed: {failed}"


def test_trying_out(tmp_path: Path) -> None:
    """A tenth of a real module, without a peer, on a page; how long it took is not the point."""
    command = [
        sys.executable, "-m", "benchmarks", "--quick", "--only", "against_original", "--folder",
        str(tmp_path), "--page", str(tmp_path / "page.md"),
    ]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert "mean nothing" in text
    assert str(tmp_path) not in text
    machine, figures = tables_of(text)
    assert {"processor", "cores", "memory", "kernel", "Python", "day", "libraries"} == {
        cells[0] for cells in machine[2:]
    }
    assert [cells[0].rpartition(": ")[2] for cells in figures[2:]] == [
        "time to write", "time to open and read all, value by value", "size on disk",
    ]  # fmt: skip
    # Nobody to be compared with, but by hand it was done.
    for cells in figures[2:]:
        assert cells[3] == "-"
        assert re.fullmatch(r"[\d.,]+ (s|MB)", cells[6])
        assert cells[7] == ""


def test_every_module_is_there() -> None:
    for name in (*FIGURES, *ALONE):
        text = (ROOT / "benchmarks" / f"{name}.py").read_text(encoding="utf-8")
        assert "\ndef measure(bench: Bench) -> list[" in text, name


def test_a_tenth_is_never_nothing() -> None:
    quick = Bench(Path(), quick=True)
    assert [quick.times(each) for each in (1, 5, 40)] == [1, 1, 4]
    assert Bench(Path()).times(40) == 40


def test_an_error_in_one_line() -> None:
    error = RuntimeError(f"a program failed:\nTraceback\nOSError: no room in {ROOT}/x, 3 / 4")
    assert last_line(error) == "OSError: no room in x, 3 / 4"
    assert last_line(ValueError()) == "ValueError"
