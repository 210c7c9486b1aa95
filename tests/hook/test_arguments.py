"""A hook with arguments of its own lists and describes those of every hook, too."""

from __future__ import annotations

import inspect
from typing import Any

from tests.hook.numpy_hook import NumpyHook

from smdebug.hook.arguments import inherit_arguments, merge_docstrings, merge_names
from smdebug.hook.hook import BaseHook

SHARED = list(inspect.signature(BaseHook).parameters)


@inherit_arguments
class DataHook(NumpyHook):
    """Saves arrays.

    Args:
        data: the data
            to save.
        dry_run: never done.
        size: how many.

    Example:
        >>> DataHook("run").data is None  # doctest: +SKIP
        True
    """

    def __init__(
        self, out_dir: Any = None, data: Any = None, *, actions: Any = None, size: int = 1,
        **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(out_dir, actions=actions, **options)
        self.data, self.size = data, size


@inherit_arguments
class PlainHook(NumpyHook):
    """Saves arrays."""


def test_own_arguments_follow_the_one_they_are_declared_after() -> None:
    names = list(inspect.signature(DataHook).parameters)
    assert names[:3] == ["out_dir", "data", "export_tensorboard"]
    assert names[names.index("size") - 1] == "actions"
    assert [name for name in names if name in SHARED] == SHARED


def test_inherited_arguments_keep_their_types_and_defaults() -> None:
    own, shared = (inspect.signature(each).parameters for each in (DataHook, BaseHook))
    assert own["size"].annotation == "int"
    for name in SHARED[1:]:
        assert own[name].default == shared[name].default
        if name != "actions":
            assert own[name].annotation == shared[name].annotation
            assert own[name].kind is inspect.Parameter.KEYWORD_ONLY


def test_the_docstring_describes_all_arguments_in_their_order() -> None:
    text = inspect.getdoc(DataHook) or ""
    begins = [text.index(f"\n    {name}: ") for name in inspect.signature(DataHook).parameters]
    assert begins == sorted(begins)
    assert "\n    data: the data\n        to save.\n    export_tensorboard: " in text
    assert "dry_run: never done." in text
    assert "log what would be saved" not in text
    assert text.startswith("Saves arrays.\n\nArgs:\n    out_dir: ")
    assert text.count("Args:") == text.count("Example:") == 1
    assert "run in `out_dir` first.\n\nExample:\n    >>> DataHook" in text


def test_a_hook_without_a_constructor_keeps_the_inherited_one() -> None:
    assert inspect.signature(PlainHook) == inspect.signature(BaseHook)
    text = inspect.getdoc(PlainHook) or ""
    assert all(f"\n    {name}: " in text for name in SHARED)


def test_a_subclass_has_the_signature_of_its_own_constructor() -> None:
    class Subclass(DataHook):
        def __init__(self, path: str) -> None:
            super().__init__(path)

    assert list(inspect.signature(Subclass).parameters) == ["path"]


def test_arguments_reach_the_constructor(tmp_path: Any) -> None:
    with DataHook(tmp_path / "run", 5, size=3, dry_run=True) as hook:
        assert (hook.data, hook.size, hook.dry_run) == (5, 3, True)


def test_merging() -> None:
    assert merge_names(["self", "a", "b"], ["self", "c"]) == ["self", "a", "b", "c"]
    own = "Does it.\n\n    Raises:\n        ValueError: no.\n    "
    shared = "Does.\n\n    Args:\n        a: one.\n\n        b: two:\n            three.\n    "
    expected = (
        "Does it.\n\nArgs:\n    b: two:\n        three.\n    a: one.\n\n"
        "Raises:\n    ValueError: no.\n"
    )
    assert merge_docstrings(own, shared, ["b", "a"]) == expected
