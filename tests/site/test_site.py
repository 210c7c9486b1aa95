"""The documentation as a site: it is complete, and needs nothing from another host."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import subprocess
import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from types import FunctionType
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.pages import ROOT, pages
from tools.site_pages import target

from smdebug.hook.hook import BaseHook

# What a browser fetches by itself; a link is followed by the reader alone.
FETCHING = {"audio", "embed", "iframe", "img", "input", "link", "object", "script", "source",
            "track", "video", "use", "image"}  # fmt: skip
ATTRIBUTES = {"src", "href", "srcset", "data", "poster", "xlink:href"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, as the session has built it, or built here."""
    built = os.environ.get("TORNASOLE_SITE")
    if built:
        return Path(built)
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


class Reader(HTMLParser):
    """Collects what a page fetches, where it leads to, and the places in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.fetched: set[str] = set()
        self.links: set[str] = set()
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id":
                self.ids.add(value or "")
            elif name == "style":
                self.fetched |= set(fetched_by_style(value or ""))
            elif name in ATTRIBUTES and value:
                (self.fetched if tag in FETCHING else self.links).add(value)


def fetched_by_style(text: str) -> list[str]:
    """What a style sheet has a browser fetch."""
    found = re.findall(r"url\(\s*['\"]?(.*?)['\"]?\s*\)", text)
    return found + re.findall(r"@import\s+['\"](.*?)['\"]", text)


@cache
def read(path: Path) -> Reader:
    return Reader(path.read_text(encoding="utf-8"))


def is_wrong_region(address: str) -> bool:
    return bool(urlsplit(address).netloc)


def test_what_is_elsewhere_is_found() -> None:
    page = Reader('<script src="//a.org/x.js"></script><a href="https://b.org">b</a><img src="c">')
    assert {each for each in page.fetched if is_wrong_region(each)} == {"//a.org/x.js"}
    sheet = "@font-face { src: url('https://c.org/f') }"
    assert [each for each in fetched_by_style(sheet) if is_wrong_region(each)] == [
        "https://c.org/f"
    ]


def test_nothing_is_fetched_from_another_host(site: Path) -> None:
    found = sorted(site.rglob("*.html"))
    assert len(found) > len(pages())
    for path in found:
        assert not [each for each in read(path).fetched if is_wrong_region(each)], path
    sheets = sorted(site.rglob("*.css"))
    assert sheets
    for path in sheets:
        text = path.read_text(encoding="utf-8")
        assert not [each for each in fetched_by_style(text) if is_wrong_region(each)], path


def test_what_pages_fetch_and_link_to_is_there(site: Path) -> None:
    for path in sorted(site.rglob("*.html")):
        if path.name == "404.html":
            # It does not know where it will be shown, and speaks of the root of the host.
            continue
        page = read(path)
        for each in page.fetched | page.links:
            parts = urlsplit(each)
            if parts.scheme or parts.netloc:
                continue
            target = path.parent / parts.path if parts.path else path
            assert target.exists(), f"{path.name} needs {each}"
            if parts.fragment and target.suffix == ".html" and parts.fragment != "__skip":
                assert parts.fragment in read(target).ids, f"{path.name} leads to {each}"


def test_every_page_and_every_example_is_published(site: Path) -> None:
    for page in pages():
        if page.startswith("docs/"):
            assert (site / page.removeprefix("docs/")).with_suffix(".html").exists(), page
    for example in (ROOT / "examples").rglob("*.py"):
        folder = example.parent.name if example.parent.name != "examples" else "core"
        shown = read(site / "examples" / f"{folder}.html")
        assert example.stem in shown.ids, example
    for name in ("architecture", "changelog"):
        assert (site / f"{name}.html").exists()


@pytest.mark.parametrize(
    ("path", "page"),
    [
        ("examples/pytorch/ddp.py", ("examples/pytorch.md", "#ddp")),
        ("examples/pytorch", ("examples/pytorch.md", "")),
        ("examples/quickstart.py", ("examples/core.md", "#quickstart")),
        ("docs/rules.md", ("rules.md", "")),
        ("CHANGELOG.md", ("changelog.md", "")),
        # What is not there, and what is no page, is left for the strict build to complain of.
        ("examples/pytorch/none.py", None),
        ("src/smdebug/__init__.py", None),
    ],
)
def test_what_becomes_of_a_link_to_a_file(path: str, page: tuple[str, str] | None) -> None:
    assert target(path, ROOT) == page


# What has no framework can be asked what it has.
MEMBERS = (FunctionType, classmethod, property, staticmethod)
PUBLIC_CLASSES = [
    "smdebug.Collection", "smdebug.ReductionConfig", "smdebug.SaveConfig",
    "smdebug.hook.hook.BaseHook", "smdebug.trials.Tensor", "smdebug.trials.Trial",
    "smdebug.trials.Frame", "smdebug.rules.Rule", "smdebug.rules.RuleReport",
]  # fmt: skip


@pytest.mark.parametrize("path", PUBLIC_CLASSES)
def test_every_method_is_among_the_public_names(path: str, site: Path) -> None:
    module, _, name = path.rpartition(".")
    kind: Any = getattr(importlib.import_module(module), name)
    shown = read(site / "api.html").ids
    ours = [each for each in kind.__mro__ if each.__module__.startswith("smdebug")]
    # By the class that has them; a second name of a method is not another method.
    members = {
        f".{owner.__name__}.{name}"
        for owner in ours
        for name, value in vars(owner).items()
        if not name.startswith("_") and isinstance(value, MEMBERS) and name == own_name(value)
    }
    assert members
    ends = {"." + ".".join(each.split(".")[-2:]) for each in shown}
    inherited = {f".{kind.__name__}.{each.rpartition('.')[2]}": each for each in members}
    missing = {each for each in members if each not in ends}
    missing -= {place for name, place in inherited.items() if name in ends}
    assert not missing, f"api.html lacks {sorted(missing)}"


def own_name(value: Any) -> str:
    inner: Any = value.fget if isinstance(value, property) else value
    return str(getattr(inner, "__func__", inner).__name__)


def test_a_hook_with_arguments_of_its_own_shows_those_of_every_hook(site: Path) -> None:
    text = (site / "api.html").read_text(encoding="utf-8")
    section = text.partition('id="smdebug.xgboost.Hook"')[2]
    table = section.partition('id="smdebug.xgboost.Hook.')[0]
    shown = re.findall(r"<td>\s*<code>(\w+)</code>\s*</td>\s*<td>\s*<code>", table)
    shared = list(inspect.signature(BaseHook).parameters)
    assert [name for name in shown if name in shared] == shared
    assert {"train_data", "validation_data", "shap_samples"} < set(shown)
