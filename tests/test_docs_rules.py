"""The page of the rules says what the rules are, and its code runs."""

from __future__ import annotations

import ast
import inspect
import re
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest
from tests.pages import program

from smdebug.rules.registry import BUILTIN_RULES, RuleSpec, rule_class

PAGE = Path(__file__).parent.parent / "docs" / "rules.md"
TEXT = PAGE.read_text(encoding="utf-8")
REQUIRED = "required"
# What rules that look at nothing by themselves are told, so that they can say what they need.
TOLD: dict[str, dict[str, Any]] = {
    "AllZero": {"collection_names": "weights"},
    "SimilarAcrossRuns": {"other_trial": "runs/other"},
    "TensorVariance": {"collection_names": "weights", "max_threshold": 1},
    "UnchangedTensor": {"collection_names": "weights"},
}


def section(rule: str) -> str:
    """What the page says about a rule."""
    found = re.search(rf"^### {rule}\n(.*?)(?=^##|\Z)", TEXT, re.DOTALL | re.MULTILINE)
    assert found is not None, f"docs/rules.md has no section about {rule}"
    return found[1]


def documented(rule: str) -> dict[str, Any]:
    """The parameters of a rule and their defaults, as its table has them."""
    found: dict[str, Any] = {}
    for line in section(rule).splitlines():
        if line.startswith("| `"):
            names, defaults, meaning = line.strip("| ").split(" | ")
            assert meaning.endswith("."), line
            values = re.findall(r"`([^`]+)`", defaults) or [defaults]
            for name, value in zip(re.findall(r"`(\w+)`", names), values, strict=True):
                assert name not in found, f"{name} of {rule} is there twice"
                found[name] = value if value == REQUIRED else ast.literal_eval(value)
    return found


def actual(rule: str) -> dict[str, Any]:
    """The parameters of a rule and their defaults, as its constructor has them."""
    return {
        name: REQUIRED if parameter.default is parameter.empty else parameter.default
        for name, parameter in inspect.signature(rule_class(rule)).parameters.items()
        if name not in ("base_trial", "action_str")
    }


def test_every_section_is_about_a_rule() -> None:
    assert re.findall(r"^### (.*)$", TEXT, re.MULTILINE) == sorted(BUILTIN_RULES)


def test_every_rule_is_in_the_overview() -> None:
    rows = re.findall(r"^\| \[(\w+)\]\(#(\w+)\) \|", TEXT, re.MULTILINE)
    assert rows == [(rule, rule.lower()) for rule in sorted(BUILTIN_RULES)]


@pytest.mark.parametrize("rule", BUILTIN_RULES)
def test_parameters(rule: str) -> None:
    told, is_so = documented(rule), actual(rule)
    assert told == is_so
    # True and 1, or 0 and 0.0, are equal; a reader sees the difference.
    assert {name: type(value) for name, value in told.items()} == {
        name: type(value) for name, value in is_so.items()
    }


@pytest.mark.parametrize("rule", BUILTIN_RULES)
def test_what_is_saved(rule: str) -> None:
    (saved,) = re.findall(r"^- \*\*Saved:\*\* (.*?)(?=^- |\Z)", section(rule), re.DOTALL | re.M)
    words = set(re.findall(r"`([^`]+)`", saved))
    chosen = TOLD.get(rule, {}).get("collection_names")
    for need in RuleSpec({"rule": rule, **TOLD.get(rule, {})}).needs():
        assert need.collection in {*words, chosen}, f"{rule} needs {need.described}"
        # Numbers are saved as they are, whatever is asked for.
        if need.collection != "losses":
            assert set(need.reductions) <= words, f"{rule} needs {need.described}"
            if need.raw:
                # Importances are single numbers.
                assert "*raw*" in saved or rule == "FeatureImportanceOverweight"


@pytest.mark.parametrize("rule", BUILTIN_RULES)
def test_limits_are_told(rule: str) -> None:
    assert "- **Limits:** " in section(rule)


@pytest.mark.parametrize("rule", BUILTIN_RULES)
def test_pictures(rule: str) -> None:
    (target,) = re.findall(
        r"!\[What \w+ looks at\]\(([^)]+)\)\n\n\*[A-Z].+\.\*$", section(rule), re.M
    )
    assert target == f"pictures/rules/{rule}.png"
    content = (PAGE.parent / target).read_bytes()
    assert len(content) < 30_000
    chunks = png_chunks(content)
    assert [name for name, _ in chunks][:: len(chunks) - 1] == [b"IHDR", b"IEND"]
    width, height, bits, kind = struct.unpack(">IIBB", chunks[0][1][:10])
    assert (width, height, kind) == (700, 320, 3)
    rows = zlib.decompress(b"".join(data for name, data in chunks if name == b"IDAT"))
    assert len(rows) == height * (1 + -(-width * bits // 8))
    # Not a blank one.
    assert len(set(rows)) > 10


def test_no_other_pictures() -> None:
    files = (PAGE.parent / "pictures" / "rules").iterdir()
    assert sorted(file.stem for file in files) == sorted(BUILTIN_RULES)


def png_chunks(content: bytes) -> list[tuple[bytes, bytes]]:
    """The parts of a PNG, whose checksums are right."""
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, place = [], 8
    while place < len(content):
        (length,) = struct.unpack(">I", content[place : place + 4])
        name, data = content[place + 4 : place + 8], content[place + 8 : place + 8 + length]
        (checksum,) = struct.unpack(">I", content[place + 8 + length : place + 12 + length])
        assert checksum == zlib.crc32(name + data)
        chunks.append((name, data))
        place += 12 + length
    return chunks


def test_no_line_becomes_something_else() -> None:
    # A paragraph that was filled anew may have an operator at the beginning of a line.
    wrong = [line for line in TEXT.splitlines() if re.match(r" {0,3}(?:[*+>]|=+|\d+[.)]) ", line)]
    assert not wrong


def test_links() -> None:
    headings = {
        re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-")
        for heading in re.findall(r"^#+ (.*)$", TEXT, re.MULTILINE)
    }
    for target in re.findall(r"\]\(([^)]+)\)", TEXT):
        path, _, heading = target.partition("#")
        if path:
            assert (PAGE.parent / path).is_file(), target
        else:
            assert heading in headings, target


def test_code_runs(tmp_path: Path) -> None:
    # That for PyTorch runs in its session.
    page = tmp_path / "rules_page.py"
    page.write_text(program("docs/rules.md", "core"), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", page.name],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    # The report that the page shows.
    (shown,) = re.findall(r"^    made, up to step 99\n(?:    .*\n)+", TEXT, re.MULTILINE)
    for line in shown.splitlines():
        assert line.removeprefix("    ").removesuffix("...") in done.stdout
    assert "failed" not in done.stdout
    assert "LossAbove  found 1 thing" in done.stdout
    assert re.search(r"LargeWeight, step \d+: fc.weight reaches", done.stdout)
    assert "TensorVariance 7 fc.weight the variance" in done.stdout
