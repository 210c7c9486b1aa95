"""The pages of the documentation: their code, where it runs, and the commands they show."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"

# The nox session that runs the Python code of a page: one for all blocks, or one for each of them.
# `tests/test_docs_pages.py` asserts that every page is here, and that a test of the session asks
# for its code.
SESSIONS: dict[str, str | tuple[str, ...]] = {
    "README.md": ("pytorch", "pytorch", "core"),
    "docs/actions.md": "core",
    "docs/adapters.md": "core",
    "docs/command_line.md": "core",
    "docs/concepts.md": "pytorch",
    "docs/configuration.md": "pytorch",
    "docs/formats.md": "core",
    "docs/index.md": "pytorch",
    "docs/mxnet.md": "mxnet",
    "docs/object_storage.md": "pytorch",
    "docs/pytorch.md": "pytorch",
    "docs/quickstart/keras.md": "tensorflow",
    "docs/quickstart/mxnet.md": "mxnet",
    "docs/quickstart/pytorch.md": "pytorch",
    "docs/quickstart/unmodified.md": "pytorch",
    "docs/quickstart/xgboost.md": "xgboost",
    "docs/resume.md": "pytorch",
    "docs/rules.md": ("pytorch", *("core",) * 5, "pytorch", *("core",) * 3),
    "docs/sagemaker.md": ("pytorch", "core"),
    "docs/tensorboard.md": "pytorch",
    "docs/tensorflow.md": "tensorflow",
    "docs/trials.md": "core",
    "docs/unmodified.md": "pytorch",
    "docs/xgboost.md": "xgboost",
}


class Block(NamedTuple):
    """A piece of code on a page.

    Args:
        line: how many lines of the page are before it.
        code: the code.
    """

    line: int
    code: str


def pages() -> list[str]:
    """Every page that people read, seen from the root of the project."""
    found = [*ROOT.glob("*.md"), *DOCS.rglob("*.md")]
    return sorted(path.relative_to(ROOT).as_posix() for path in found)


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def fenced(page: str, language: str) -> list[Block]:
    """All blocks of a page in a language."""
    text = text_of(page)
    found = re.finditer(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return [Block(text.count("\n", 0, each.start(1)), each[1]) for each in found]


def sessions_of(page: str) -> list[str]:
    """The session of each Python block of a page."""
    told = SESSIONS[page]
    return [told] * len(fenced(page, "python")) if isinstance(told, str) else list(told)


def blocks(page: str, session: str) -> list[str]:
    """The Python blocks of a page that a session runs."""
    found = zip(fenced(page, "python"), sessions_of(page), strict=True)
    return [block.code for block, where in found if where == session]


def program(page: str, session: str) -> str:
    """The same as one program, on the lines it has on the page, so that a traceback names them."""
    lines = [""] * (text_of(page).count("\n") + 1)
    for block, where in zip(fenced(page, "python"), sessions_of(page), strict=True):
        if where == session:
            part = block.code.splitlines()
            lines[block.line : block.line + len(part)] = part
    return "\n".join(lines)


def examples(folder: str) -> list[Path]:
    """The examples of a folder; "" has those that need no framework.

    `tests/test_examples.py` asserts that a test asks for every folder.
    """
    return sorted((ROOT / "examples" / folder).glob("*.py"))


def printed(page: str) -> str:
    """What a page says that its program prints: its only block of text."""
    (block,) = fenced(page, "text")
    return block.code


def without_numbers(text: str) -> str:
    """A text to compare where the digits depend on the machine."""
    return re.sub(r"\d+(?:\.\d+)?(?:e-?\d+)?", "#", re.sub(r" +", " ", text))


def commands(page: str) -> list[str]:
    """The command lines of a page: in blocks for a shell, and indented ones."""
    text = text_of(page)
    lines = [line for block in fenced(page, "sh") for line in block.code.splitlines()]
    for block in fenced(page, "console"):
        lines += [line[2:] for line in block.code.splitlines() if line.startswith("$ ")]
    outside = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    lines += re.findall(r"^    (\w.*)$", outside, re.MULTILINE)
    return lines


def smdebug_commands(page: str) -> list[list[str]]:
    """What is given to `smdebug` on a page, in blocks and indented."""
    lines = [line for line in commands(page) if "[" not in line]
    return [words for line in lines if (words := _given(line)) is not None]


def synopses(page: str) -> list[str]:
    """Lines that show all that a command takes: `smdebug ls PATH [--json]`."""
    return [line for line in commands(page) if line.startswith("smdebug ") and "[" in line]


def smdebug_mentions(page: str) -> list[list[str]]:
    """The same in the middle of a text, where the rest of a command may be left out."""
    found = re.findall(r"`(smdebug [^`]+)`", text_of(page))
    return [words for line in found if (words := _given(line)) is not None]


def _given(line: str) -> list[str] | None:
    """What a command line gives to `smdebug`; None where it is about something else."""
    words = _words(line)
    if words and words[0] == "smdebug":
        return words[1:]
    if "smdebug" in words and words[words.index("smdebug") - 1] == "-m":
        return words[words.index("smdebug") + 1 :]
    return None


def start(line: str, place: Path, code: int = 0) -> str:
    """Runs `smdebug ...` as somebody in a clone does; returns what is printed.

    Args:
        line: the command line.
        place: a directory that stands for the clone.
        code: what it has to end with.
    """
    if not (place / "examples").exists():
        (place / "examples").symlink_to(ROOT / "examples")
    name, *words = shlex.split(line, comments=True)
    assert name == "smdebug"
    done = subprocess.run(
        [sys.executable, "-m", "smdebug", *words],
        cwd=place, env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == code, (line, done.stdout, done.stderr)
    return done.stdout + done.stderr


def _words(line: str) -> list[str]:
    """The words of the first command of a line; none where it is no command line."""
    reader = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    reader.whitespace_split = True
    words: list[str] = []
    try:
        for word in reader:
            if set(word) <= set("|&;<>"):
                break
            words.append(word)
    except ValueError:
        return []
    return words
