"""The commands of the page on the command line work, and what is said about their options is so."""

from __future__ import annotations

import csv
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests import pages
from tests.command import smdebug

from smdebug.reductions import REDUCTION_NAMES
from smdebug.testing import make_run

PAGE = Path(__file__).parent.parent / "docs" / "command_line.md"
COMMANDS = ("export", "rules")


def section(command: str) -> str:
    text = PAGE.read_text(encoding="utf-8")
    found = re.search(rf"^## smdebug {command}\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    assert found is not None, f"docs/command_line.md has no section about {command}"
    return found[1]


def blocks(command: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", section(command), re.DOTALL)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_examples_run(command: str, tmp_path: Path) -> None:
    make_run(tmp_path / "runs" / "first", range(30))
    lines = [line for block in blocks(command, "bash") for line in block.splitlines()]
    assert lines
    for line in lines:
        program, *arguments = shlex.split(line)
        assert program == "smdebug", line
        smdebug(tmp_path, *arguments)
    for code in blocks(command, "python"):
        subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, timeout=100)


def test_all_code_of_the_page_is_run(tmp_path: Path) -> None:
    make_run(tmp_path / "runs" / "one")
    make_run(tmp_path / "runs" / "two")
    (compared,) = blocks("diff", "python")
    subprocess.run([sys.executable, "-c", compared], cwd=tmp_path, check=True, timeout=100)
    others = [code for command in COMMANDS for code in blocks(command, "python")]
    assert sorted([compared, *others]) == sorted(pages.blocks("docs/command_line.md", "core"))


def test_every_column_of_a_table_is_named(tmp_path: Path) -> None:
    make_run(tmp_path / "runs" / "first")
    smdebug(tmp_path, "export", "runs/first", "out.csv", "--format", "csv")
    with (tmp_path / "out.csv").open(encoding="utf-8", newline="") as file:
        columns = next(csv.reader(file))
    assert "position" in columns
    said = section("export").partition("- **parquet, csv**: ")[2].partition("\n- ")[0]
    assert set(columns) <= {*re.findall(r"`(\w+)`", said), *REDUCTION_NAMES}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_is_in_the_table(command: str, tmp_path: Path) -> None:
    rows = [line for line in section(command).splitlines() if line.startswith("| `--")]
    documented = {re.findall(r"--[a-z-]+", row)[0] for row in rows}
    # Options stand at the beginning of a line of the help.
    shown = smdebug(tmp_path, command, "--help").stdout
    known = set(re.findall(r"^\W*(--[a-z-]+)", shown, re.MULTILINE))
    assert documented == known - {"--help", "--format"}
