"""No code of the documentation stands there without being run, and every command line parses."""

from __future__ import annotations

import ast
import re
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from tests.pages import (
    ROOT,
    fenced,
    pages,
    sessions_of,
    smdebug_commands,
    smdebug_mentions,
    synopses,
    text_of,
)
from typer.core import TyperGroup, TyperOption
from typer.main import get_command

from smdebug.cli.main import app

if TYPE_CHECKING:
    from pathlib import Path


def all_commands(command: Any, path: tuple[str, ...] = ()) -> dict[str, Any]:
    """Every command that does something, by its words."""
    # What typer makes; its click may be one of its own.
    if not isinstance(command, TyperGroup):
        return {" ".join(path): command}
    found: dict[str, Any] = {}
    for name, each in command.commands.items():
        found |= all_commands(each, (*path, name))
    return found


FRAMEWORKS = ("interop", "mxnet", "pytorch", "site", "tensorflow", "xgboost")
# Functions of `tests.pages` whose first arguments are a page and a session.
ASKING = ("blocks", "program")
WITH_CODE = [page for page in pages() if fenced(page, "python")]
WITH_COMMANDS = [page for page in pages() if smdebug_commands(page)]
COMMANDS = all_commands(get_command(app))
GROUPS = [[name.split(" ")[0]] for name in COMMANDS if " " in name]


def session_of(path: Path) -> str:
    """The session that runs the tests of a file."""
    folder = path.relative_to(ROOT / "tests").parts[0]
    return folder if folder in FRAMEWORKS else "core"


@cache
def asked_for() -> set[tuple[str, str]]:
    """Pages and sessions whose code some test of that session asks for."""
    found = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        text = path.read_text(encoding="utf-8")
        if "pages" not in text:
            continue
        for call in ast.walk(ast.parse(text)):
            if not isinstance(call, ast.Call) or called(call) not in ASKING:
                continue
            given = [each.value for each in call.args if isinstance(each, ast.Constant)]
            if len(given) == 2 and given[1] == session_of(path):
                found.add((str(given[0]), str(given[1])))
    return found


def called(call: ast.Call) -> str:
    """The name of the function that is called, with or without its module."""
    return str(getattr(call.func, "id", getattr(call.func, "attr", "")))


@pytest.mark.parametrize("page", WITH_CODE)
def test_the_code_of_a_page_is_run(page: str) -> None:
    sessions = sessions_of(page)
    assert len(sessions) == len(fenced(page, "python")), f"tests/pages.py: blocks of {page}"
    for session in set(sessions):
        assert (page, session) in asked_for(), f"no test of {session} runs the code of {page}"


@pytest.mark.parametrize("page", pages())
def test_links_lead_to_files(page: str) -> None:
    """For those who read pages where they lie; the strict build is about the site."""
    text = re.sub(r"^```.*?^```", "", text_of(page), flags=re.DOTALL | re.MULTILINE)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, place = link.partition("#")
        if re.match(r"\w+:", link):
            continue
        target = (ROOT / page).parent / path if path else ROOT / page
        assert target.exists(), f"{page} leads to {link}"
        if place:
            assert place in places(target), f"{page} leads to {link}"


def places(page: Path) -> set[str]:
    """The names that headings have as targets of links."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", each).lower().replace(" ", "-") for each in headings}


def leaf(words: list[str]) -> tuple[Any, list[str]]:
    """The command that words name, and what is left for it."""
    command: Any = get_command(app)
    while isinstance(command, TyperGroup):
        assert words, "a command is missing"
        name, *words = words
        if name.startswith("-"):
            return command, [name, *words]
        assert name in command.commands, f"there is no command {name}"
        command = command.commands[name]
    return command, words


def parse(words: list[str]) -> None:
    """Parses a command line, and does nothing."""
    command, rest = leaf(words)
    command.make_context("smdebug", rest, obj=[])


@pytest.mark.parametrize("page", WITH_COMMANDS)
def test_commands_parse(page: str) -> None:
    for words in smdebug_commands(page):
        if words != ["--version"]:
            parse(words)


@pytest.mark.parametrize("page", pages())
def test_synopses_have_options_that_exist(page: str) -> None:
    for line in synopses(page):
        command, _ = leaf([word for word in line.split()[1:] if re.match(r"[a-z]+$", word)])
        known = {name for option in command.params for name in option.opts}
        assert set(re.findall(r"(?<![\w-])--[a-z-]+", line)) <= known, line


@pytest.mark.parametrize("page", pages())
def test_what_is_mentioned_exists(page: str) -> None:
    for words in smdebug_mentions(page):
        if words[0] in ("COMMAND", "--help", "--version") or words in GROUPS:
            continue
        try:
            parse(words)
        except Exception as error:
            # The script, or the run, may be left out.
            if type(error).__name__ != "MissingParameter":
                raise


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["runn"], "no command"),
        (["run", "--evry", "3", "train.py"], "(?i)no such option"),
        (["run", "--every", "x", "train.py"], "integer"),
        (["run"], "(?i)missing parameter"),
    ],
)
def test_a_wrong_command_does_not_parse(words: list[str], complaint: str) -> None:
    with pytest.raises((AssertionError, Exception), match=complaint):
        parse(words)


def section_of(command: str) -> str:
    """What the page says of a command, with the pages it sends the reader to."""
    text = text_of("docs/command_line.md")
    first = command.split(" ", maxsplit=1)[0]
    parts = [part for part in text.split("\n## ") if part.startswith(f"smdebug {first}\n")]
    assert len(parts) == 1, f"docs/command_line.md must have one section: ## smdebug {first}"
    linked = [page for page in pages() if f"]({page.removeprefix('docs/')}" in parts[0]]
    return "\n".join([parts[0], *(text_of(page) for page in linked)])


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_and_option_is_documented(command: str) -> None:
    section = section_of(command)
    assert f"smdebug {command} " in section or f"`{command}`" in section, command
    for option in COMMANDS[command].params:
        if isinstance(option, TyperOption) and not option.hidden:
            longest = max(option.opts, key=len)
            told = re.search(rf"(?<![\w-]){longest}(?![\w-])", section)
            assert told, f"{longest} of smdebug {command} is not documented"
