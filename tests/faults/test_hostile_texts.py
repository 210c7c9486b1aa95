"""Strings of a hostile run reach the terminal, HTML, CSV and the log escaped."""

from __future__ import annotations

import csv
import json
import os
import pty
import re
import sys
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import pytest
from tests.faults import hostile
from tests.faults.tally import amount

from smdebug.storage.findings import Finding, write_findings
from smdebug.storage.stores.local import LocalStore
from smdebug.trials.create import create_trial

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.faults.tally import Tally

MARK = "pwned"
TEXTS = [
    f"\x1b[31m{MARK}\x1b[2J",
    f"\x1b]8;;http://{MARK}/\x07link\x1b]8;;\x07",
    f"\x1b]52;c;{MARK}\x07",
    f"\x1b]0;{MARK}\x07",
    f"\x1bP{MARK}\x1b\\",
    f"\x9b31m{MARK}",
    f"\x9d0;{MARK}\x9c",
    f"\u202e{MARK}",
    f"\u2066{MARK}\u2069",
    f"\u200b{MARK}\u200d",
    f"\ufeff{MARK}",
    f"a\r{MARK}",
    f"a\n{MARK}",
    f"a\b\b{MARK}",
    f"\x00{MARK}",
    f"\x7f{MARK}",
    f"[red]{MARK}[/red]",
    f"[link=http://{MARK}]x[/link]",
    f":{MARK}_smile:",
    f"<script>{MARK}()</script>",
    f'"><img src=x onerror={MARK}()>',
    f"' onload='{MARK}()",
    f"javascript:{MARK}()",
    f"</title><script>{MARK}</script>",
    f"<!-- {MARK}",
    f"]]>{MARK}",
    f"&lt;{MARK}",
    f"=cmd|'{MARK}'!A0",
    f"+{MARK}",
    f"-{MARK}",
    f"@{MARK}",
    f"\t={MARK}",
    f"${MARK}$",
    f"$\\frac{{{MARK}",
    f"_{MARK}",
    f"%s %({MARK})s {{0.{MARK}}}",
    f"{MARK}\u2028{MARK}",
    "\U0001f600" * 5 + MARK,
    "w" * 2000 + MARK,
    f"\x1b[201~{MARK}",
    f"\x05{MARK}",
    f"\x0e{MARK}",
    f"loss \x1b[c{MARK}",
]
# What our own tables and plots say to a terminal: colours, and where a bar is cleared again.
OURS = re.compile(rb"\x1b\[[0-9;]*m|\x1b\[\?25[lh]|\x1b\[[12]K|\x1b\[\d*A|\r\n|\n")
HARM = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]"
)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run that is called, and calls everything, something harmful."""
    place = tmp_path / "runs" / f"\x1b[31m{MARK}\u202e<b>"
    collections = {text: {"tensor_names": [text], "include_regex": [text]} for text in TEXTS}
    collections["losses"] = {"tensor_names": list(TEXTS)}
    hostile.write_frame(place, collections)
    hostile.write_index(place, hostile.scalar_rows(TEXTS, 4))
    hostile.write_file(place, f"index/000000000/\x1b[2J{MARK}.txt", b"")
    found = [Finding(text, 1, f"{text} has {text}", text, 1.0, 2.0, worker=text) for text in TEXTS]
    write_findings(LocalStore(place), found)
    return place


def shown(arguments: Sequence[str]) -> bytes:
    """What a command writes to a terminal."""
    child, terminal = pty.fork()
    if child == 0:
        # Its locale and colours are those of a person.
        os.environ.update(TERM="xterm-256color", COLUMNS="200", LC_ALL="C.UTF-8")
        os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
        os.execv(sys.executable, [sys.executable, "-m", "smdebug", *arguments])
    written = b""
    try:
        while piece := os.read(terminal, 1 << 16):
            written += piece
    except OSError:
        pass  # the other end is closed
    os.close(terminal)
    os.waitpid(child, 0)
    return written


def commands(run: Path, out: Path) -> list[list[str]]:
    place, below = str(run), str(run.parent)
    return [
        ["show", place], ["ls", below], ["rules", place, "--all", "--no-record"],
        ["check", place], ["layers", place, "--regex", ".", "--reduction", "l2"],
        ["show", place, TEXTS[0]],
        ["diff", place, place], ["export", place, str(out / "x.csv"), "--format", "csv"],
        ["show", place, "--json"], ["export", place, place, "--format", "v1"],
        ["show", f"{place}-not-there"], ["compact", place],
        ["rules", place, "--rule", f"X{TEXTS[0]}"],
        ["show", place, "*", "--reduction", f"X{TEXTS[2]}"], ["ls", below, "--json"],
        ["export", place, str(out / "npz"), "--format", "npz"], ["check", place, "--json"],
        ["export", place, str(out / "t"), "--format", "tensorboard"],
    ]  # fmt: skip


def test_terminal_output_is_escaped(run: Path, tmp_path: Path, tally: Tally) -> None:
    every = commands(run, tmp_path)
    tried = every[: amount(len(every), 6)]
    bad: dict[str, Any] = {}
    told = 0
    for arguments in tried:
        written = shown(arguments)
        told += MARK.encode() in written
        rest = OURS.sub(b"", written).decode("utf-8", "replace")
        if HARM.search(rest) or b"Traceback" in written:
            at = HARM.search(rest)
            bad[arguments[0]] = rest[-800:] if at is None else rest[max(at.start() - 60, 0) :][:120]
    tally.add(
        6, "texts that a terminal would obey, shown by commands in one", len(TEXTS) * len(tried),
        len(TEXTS) * (len(tried) - len(bad)), f"{len(tried)} commands",
    )  # fmt: skip
    assert not bad
    # The texts themselves are there to be read.
    assert told >= len(tried) // 2


class _Elements(HTMLParser):
    """Gathers elements, attributes and what is no text."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append(tag)
        self.found += [name for name, _ in attrs]
        self.found += [f"{name}={value}" for name, value in attrs if name in ("href", "src")]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def handle_comment(self, data: str) -> None:
        self.found.append(f"comment {data}")

    def unknown_decl(self, data: str) -> None:
        self.found.append(f"declaration {data}")


def elements(page: str) -> _Elements:
    parser = _Elements()
    parser.feed(page)
    parser.close()
    return parser


def text_of(parsed: _Elements) -> str:
    # A carriage return is a space in HTML.
    return "".join(parsed.texts).replace("\r", " ")


def test_html_in_names_is_escaped_in_notebooks(run: Path, tally: Tally) -> None:
    trial = create_trial(str(run))
    plain = run.parent / "plain"
    harmless_names = [f"name{number}" for number in range(len(TEXTS))]
    hostile.write_frame(plain, {"losses": {"tensor_names": harmless_names}})
    hostile.write_index(plain, hostile.scalar_rows(harmless_names, 4))
    other = create_trial(str(plain))
    known = {
        *elements(other._repr_html_()).found,
        *elements(other.tensor("name0")._repr_html_()).found,
        *("ul", "li", "details", "summary", "b", "br", "span", "style", "class", "title"),
    }
    pages = [trial._repr_html_(), *(trial.tensor(name)._repr_html_() for name in TEXTS)]
    bad = {}
    for number, page in enumerate(pages):
        parsed = elements(page)
        strange = set(parsed.found) - known
        if strange or HARM.search(text_of(parsed)) or re.search(r"on\w+=", str(parsed.found)):
            bad[number] = strange or text_of(parsed)[:300]
    tally.add(
        6, "texts that a browser would obey, in pages and notebooks", len(pages),
        len(pages) - len(bad),
    )  # fmt: skip
    assert not bad


def test_html_in_names_is_escaped_in_reports(tmp_path: Path, tally: Tally) -> None:
    """The page about a run of XGBoost, by the rule that writes it, in a process of its own."""
    run = tmp_path / "run"
    names = [f"train-{text}" for text in TEXTS] + [f"feature_importance/weight/{t}" for t in TEXTS]
    hostile.write_frame(run, {"metrics": {"tensor_names": names}})
    hostile.write_index(run, hostile.scalar_rows(names, 4))
    outcome = hostile.read_in_child([run], ["rules", "smdebug rules"])
    from smdebug.rules.builtin.create_xgboost_report import REPORT_KEY, CreateXgboostReport
    from smdebug.rules.runner import RuleRunner

    trial = create_trial(str(run))
    runner = RuleRunner(trial, [CreateXgboostReport(trial)], record=False)
    list(runner.looks(False, None))
    runner.finish()
    page = (run / REPORT_KEY).read_text(encoding="utf-8")
    parsed = elements(page)
    scripts = {"script", "img", "iframe", "object", "embed", "a", "form", "onerror", "onload"}
    strange = scripts & set(parsed.found) | {each for each in parsed.found if " " in each}
    fine = not strange and not HARM.search(text_of(parsed)) and MARK in page
    tally.add(6, "texts that a browser would obey, in a report", len(names), fine * len(names))
    assert outcome.named, outcome.answers
    assert not strange
    assert not HARM.search(text_of(parsed))
    assert MARK in page


LOG = """
import logging, sys
from smdebug.trials import create_trial
from smdebug.config.log import install_log
trial = create_trial(sys.argv[1])
trial.tensor_names(regex="there is none")
logging.getLogger("smdebug.hook").warning("tensor %s of %s", {text!r}, {text!r}, stacklevel=1)
try:
    raise ValueError({text!r})
except ValueError:
    logging.getLogger("smdebug.rules").exception("failed")
"""


def test_logs_json_and_csv_are_escaped(run: Path, tmp_path: Path, tally: Tally) -> None:
    import subprocess

    bad = []
    for handlers in ({}, {"SMDEBUG_LOG_LEVEL": "info"}):
        program = LOG.replace("{text!r}", repr("".join(TEXTS[:16])))
        done = subprocess.run(
            [sys.executable, "-c", program, str(run)], capture_output=True, check=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **handlers},
        )  # fmt: skip
        said = (done.stdout + done.stderr).decode()
        if MARK not in said or HARM.search(said.replace("\n", "")):
            bad.append(said)
    out = tmp_path / "run.csv"
    shown(["export", str(run), str(out), "--format", "csv"])
    with out.open(encoding="utf-8", newline="") as file:
        cells = [cell for line in csv.reader(file) for cell in line]
    formulas = [
        cell for cell in cells if cell[:1] in tuple("=+@\t\r") or cell.startswith(f"-{MARK}")
    ]
    listed = json.loads(
        subprocess.run(
            [sys.executable, "-m", "smdebug", "show", str(run), "--json"], capture_output=True,
            check=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        ).stdout
    )  # fmt: skip
    tried = 2 * 16 + len(TEXTS)
    tally.add(
        6, "texts in the log, in JSON, and formulas in CSV", tried,
        tried - 16 * len(bad) - len(formulas),
    )  # fmt: skip
    assert not bad
    assert not formulas
    assert listed
    assert any(MARK in cell for cell in cells)
