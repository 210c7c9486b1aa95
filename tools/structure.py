"""The shape of the code in numbers: `python -m tools.structure [src]`.

Lines and modules per package, the classes with the most methods (inherited ones included), and the
accesses to another object's underscore names, which should not exist.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from pathlib import Path

_SHOWN = 10
# `self` and `cls` are the object itself; functions of the same module may share a private name.
_OWN = ("self", "cls", "super")


def main() -> None:
    """Print the tables."""
    source = Path(sys.argv[1] if len(sys.argv) > 1 else "src")
    modules = {path: ast.parse(path.read_text(encoding="utf-8")) for path in source.rglob("*.py")}
    lines, counts = Counter[str](), Counter[str]()
    for path in modules:
        package = "/".join(path.relative_to(source).parts[:2])
        package = package if not package.endswith(".py") else path.relative_to(source).parts[0]
        lines[package] += path.read_text(encoding="utf-8").count("\n")
        counts[package] += 1
    print(f"{sum(lines.values())} lines in {len(modules)} modules")
    for package, count in sorted(lines.items()):
        print(f"  {package:24} {count:6} lines {counts[package]:4} modules")
    print("methods, inherited ones included")
    classes = _classes(modules.values())
    sizes = {name: len(_methods(name, classes)) for name in classes}
    for name, count in sorted(sizes.items(), key=lambda item: -item[1])[:_SHOWN]:
        print(f"  {name:24} {count:6}")
    private = Counter(
        {str(path.relative_to(source)): foreign_accesses(tree) for path, tree in modules.items()}
    )
    print(f"accesses to another object's underscore names: {private.total()}")
    for name, count in private.most_common(_SHOWN):
        if count:
            print(f"  {name:40} {count:4}")


def foreign_accesses(tree: ast.Module) -> int:
    """Count `other._name`: private attributes of an object that is not `self`.

    Example:
        >>> foreign_accesses(ast.parse("self._a + other._b + other.c._d + other.__class__"))
        2
    """
    return sum(
        node.attr.startswith("_")
        and not node.attr.startswith("__")
        and not isinstance(node.value, ast.Call)
        and not (isinstance(node.value, ast.Name) and node.value.id in _OWN)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
    )


def _classes(trees: object) -> dict[str, ast.ClassDef]:
    found: dict[str, ast.ClassDef] = {}
    for tree in trees:  # type: ignore[attr-defined]
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, node)
    return found


def _methods(
    name: str, classes: dict[str, ast.ClassDef], seen: frozenset[str] = frozenset()
) -> set[str]:
    if name not in classes or name in seen:
        return set()
    node = classes[name]
    methods = {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
    for base in node.bases:
        inner = base.value if isinstance(base, ast.Subscript) else base
        parent = getattr(inner, "id", getattr(inner, "attr", ""))
        methods |= _methods(parent, classes, seen | {name})
    return methods


if __name__ == "__main__":
    main()
