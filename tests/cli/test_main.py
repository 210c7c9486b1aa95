"""What all commands have in common: how they end, and what they say of a wrong path."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

import pytest
from tests.command import smdebug, started, watched
from typer.main import get_command

from smdebug.cli.main import app
from smdebug.cli.render.terminal import harmless
from smdebug.testing import make_run

if TYPE_CHECKING:
    from pathlib import Path


def test_nobody_reads_the_output(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    with started(tmp_path, "check", "run") as command:
        assert command.stdout is not None
        assert command.stderr is not None
        command.stdout.close()
        # Not 1, which says that there is damage.
        assert command.wait(timeout=60) == 141
        assert command.stderr.read() == ""


def test_a_path_that_is_no_run(tmp_path: Path) -> None:
    make_run(tmp_path / "first-run")
    (tmp_path / "file").touch()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thing").touch()
    for number in range(5):
        make_run(tmp_path / "my runs" / f"run{number}")
    (tmp_path / "my runs" / "notes").mkdir()
    several = "my runs/run0, my runs/run1, my runs/run2 and 2 more"
    for name in ("show", "layers", "rules", "check", "compact"):
        for path, said in (
            ("file", "got 'file', which is a file"),
            ("first-rum", "which does not exist; did you mean first-run?"),
            ("other", "other is not a run: it holds thing, but no collections, events or index"),
            ("my runs", f"It holds runs ({several}): name one of them, or list all with"),
            ("my runs", "smdebug ls 'my runs'\n"),
            ("s3://", "got 's3:'"),
        ):
            refused = smdebug(tmp_path, name, path, code=2)
            assert (refused.stdout, len(refused.stderr.splitlines())) == ("", 1)
            assert said in refused.stderr


@pytest.mark.parametrize("name", sorted(get_command(app).commands))  # type: ignore[attr-defined]
def test_help_has_examples_to_copy(name: str, tmp_path: Path) -> None:
    command = get_command(app).commands[name]  # type: ignore[attr-defined]
    examples = [each.strip() for each in command.help.partition("Examples:")[2].split("\n\n")]
    shown = smdebug(tmp_path, name, "--help", COLUMNS="80").stdout
    lines = {line.strip() for line in shown.splitlines()}
    # Each on one line, on any terminal.
    assert [each for each in examples if each and each not in lines] == []
    assert any(each.startswith(f"smdebug {name}") for each in examples)


@pytest.mark.parametrize("name", sorted(get_command(app).commands))  # type: ignore[attr-defined]
def test_help_shows_every_option_as_written(name: str, tmp_path: Path) -> None:
    command = get_command(app).commands[name]  # type: ignore[attr-defined]
    # As wide as it takes for one line each.
    shown = smdebug(tmp_path, name, "--help", COLUMNS="400").stdout
    lines = shown.splitlines()
    for param in command.params:
        assert param.help
        (line,) = (each for each in lines if f" {param.help} " in each)
        names = [param.metavar] if param.param_type_name == "argument" else param.opts
        assert all(re.search(rf"[ ,]{re.escape(each)}[ ,]", line) for each in names)
        if isinstance(param.show_default, str):
            assert f"[default: ({param.show_default})]" in line
        if getattr(param, "is_flag", False):
            # Nothing between the name and the help.
            assert re.search(rf"{re.escape(param.opts[-1])} +{re.escape(param.help)}", line)
    assert "bool" not in shown.lower()


def test_help_of_the_program_has_flags_without_a_type(tmp_path: Path) -> None:
    shown = smdebug(tmp_path, "--help", COLUMNS="400").stdout
    assert re.search("--version +Show the version and exit", shown)
    assert "bool" not in shown.lower()


def test_what_to_do_about_it(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    refused = smdebug(tmp_path, "show", "run", "[", code=2)
    said = "Tensor [ is not in this trial; smdebug show RUN lists what was saved\n"
    assert refused.stderr.endswith(said)
    (index,) = (tmp_path / "run").rglob("*.parquet")
    index.write_bytes(index.read_bytes()[:-9] + b"123456789")
    for name in ("show", "layers", "rules", "compact"):
        refused = smdebug(tmp_path, name, "run", code=2)
        said = "; smdebug check RUN lists what is damaged\n"
        assert refused.stderr.endswith(said)
        assert len(refused.stderr.splitlines()) == 1


# As where everything takes long, but for the time.
IMPATIENT = """
import sys
import smdebug.cli.render.progress as progress
from smdebug.cli.main import main
progress._DELAY_SECONDS = -1.0
main()
"""
# Nobody tells how much there is, and the output goes elsewhere.
UNTOLD = """
import sys
import smdebug.cli.render.progress as progress
progress._DELAY_SECONDS = -1.0
sys.stdout = open("output", "w")
with progress.Bar("things"):
    print("a line")
sys.stdout.close()
"""


@pytest.mark.parametrize(
    ("arguments", "bars"),
    [
        (["ls", "."], ["runs"]),
        (["show", "run"], ["opening", "tensors"]),
        (["show", "run", "--json"], ["opening", "tensors"]),
        (["layers", "run"], ["opening", "steps"]),
        (["rules", "run", "--no-record"], ["opening", "steps"]),
        (["diff", "run", "run"], ["opening", "steps"]),
        (["check", "run"], ["files"]),
        (["compact", "run"], ["workers"]),
        (["export", "run", "--format", "csv"], ["opening", "steps"]),
    ],
    ids=lambda each: each[0],
)
def test_what_takes_long_has_a_bar(arguments: list[str], bars: list[str], tmp_path: Path) -> None:
    """From the beginning, and not only once something is done."""
    make_run(tmp_path / "run", flush_every=1)
    code, shown = watched(tmp_path, [sys.executable, "-c", IMPATIENT, *arguments])
    assert code == 0, shown
    assert [each for each in bars if re.search(rf"{each} \S*━", shown)] == bars


def test_a_bar_leaves_the_output_alone(tmp_path: Path) -> None:
    code, shown = watched(tmp_path, [sys.executable, "-c", UNTOLD])
    assert (code, "things" in shown, "a line" in shown) == (0, True, False)
    assert (tmp_path / "output").read_text(encoding="utf-8") == "a line\n"


def test_a_name_stays_on_its_line() -> None:
    assert harmless("a\nb\tc\x1b[2J ü") == "a\\nb\\tc\\x1b[2J ü"
