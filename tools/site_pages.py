"""Pages of the site that are made of files outside of `docs`; a hook of MkDocs.

The programs of each folder in `examples` become one page. ARCHITECTURE.md and CHANGELOG.md become
pages. Links between all of these are written for people who read the files where they lie; here
they are turned into links between pages.
"""

from __future__ import annotations

import ast
import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

# What is published beside the pages of `docs`: where it lies, and which page it becomes.
TEXTS = {"ARCHITECTURE.md": "architecture.md", "CHANGELOG.md": "changelog.md"}
# Examples that need no framework lie directly in `examples`.
NO_FRAMEWORK = "core"
TITLES = {
    NO_FRAMEWORK: "No framework",
    "mxnet": "MXNet",
    "pytorch": "PyTorch",
    "tensorflow": "TensorFlow and Keras",
    "unmodified": "Scripts as they are",
    "xgboost": "XGBoost",
}
_LINK = re.compile(r"\]\((?!\w+:)([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages."""
    root = _root(config)
    for source, page in TEXTS.items():
        text = (root / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=text))
    for folder in example_folders(root):
        content = example_page(folder)
        files.append(File.generated(config, f"examples/{page_of(folder)}.md", content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turns links to files into links to the pages that they became."""
    here = page.file.src_uri
    made_of = {made: source for source, made in TEXTS.items()}
    # Where the reader of the file stands, seen from the root.
    source = made_of.get(here, posixpath.join("docs", here))

    def turned(link: re.Match[str]) -> str:
        meant = posixpath.normpath(posixpath.join(posixpath.dirname(source), link[1]))
        found = target(meant, _root(config))
        if found is None:
            return link[0]
        to, anchor = found
        way = posixpath.relpath(to, posixpath.dirname(here) or ".")
        return f"]({way}{link[2] or anchor})"

    return _LINK.sub(turned, markdown)


def target(path: str, root: Path) -> tuple[str, str] | None:
    """The page, and the place on it, that a file of the project became.

    Args:
        path: the file, seen from the root of the project.
        root: that root.
    """
    if path in TEXTS:
        return TEXTS[path], ""
    first, _, rest = path.partition("/")
    if first == "docs":
        return rest, ""
    if first != "examples" or not (root / path).exists():
        return None
    if path == "examples":
        return f"examples/{NO_FRAMEWORK}.md", ""
    found = root / path
    folder = found if found.is_dir() else found.parent
    return f"examples/{page_of(folder)}.md", "" if found.is_dir() else f"#{found.stem}"


def example_folders(root: Path) -> list[Path]:
    """Every folder with examples."""
    return sorted({path.parent for path in (root / "examples").rglob("*.py")})


def page_of(folder: Path) -> str:
    """The name of the page about the examples of a folder."""
    return NO_FRAMEWORK if folder.name == "examples" else folder.name


def example_page(folder: Path) -> str:
    """One page with all programs of a folder: what each does, then its code."""
    lines = [f"# {TITLES[page_of(folder)]}"]
    for path in sorted(folder.glob("*.py")):
        code = path.read_text(encoding="utf-8")
        said = ast.get_docstring(ast.parse(code)) or ""
        # The docstring stands above the code; there it would be read twice.
        rest = code.split('"""', 2)[2].lstrip("\n")
        lines += [f"## {path.stem} {{ #{path.stem} }}"]
        for paragraph in said.split("\n\n"):
            is_command = paragraph.startswith(("python ", "smdebug "))
            lines.append(f"```sh\n{paragraph}\n```" if is_command else paragraph)
        lines += [f'```python title="{path.name}"\n{rest}```']
    return "\n\n".join(lines) + "\n"


def _root(config: MkDocsConfig) -> Path:
    return Path(config.docs_dir).parent
