"""The names of what modules take and return: by module, kind and place."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection as Sized
    from collections.abc import Iterator

    from smdebug.hook.plan import StepPlan

GRADIENT_PREFIX = "gradient/"
# How many numbered tensors of a module are thought of before they are seen.
_PROBED = 10


def tensors_in(
    value: Any, kind: type, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yields every tensor in a value that a module takes or returns, with the keys that lead to it.

    Dicts, dataclasses and named tuples have keys; the places in tuples and lists are counted by
    `StepNames`.

    Args:
        value: what the module takes or returns.
        kind: the class of the framework's tensors.
        path: the keys that led to the value.

    Example:
        >>> [path for path, _ in tensors_in({"a": [1.5], "b": {"c": 2.5}}, float)]
        [('a', ''), ('b', 'c')]
    """
    if isinstance(value, kind):
        yield path, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from tensors_in(item, kind, (*_without_place(path), str(key)))
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        for key, item in zip(value._fields, value, strict=True):
            yield from tensors_in(item, kind, (*_without_place(path), str(key)))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors_in(item, kind, (*_without_place(path), ""))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            item = getattr(value, field.name, None)
            yield from tensors_in(item, kind, (*_without_place(path), field.name))


def _without_place(path: tuple[str, ...]) -> tuple[str, ...]:
    # Nested lists are counted through, as if they were one.
    return path[:-1] if path and path[-1] == "" else path


class StepNames:
    """Names the inputs and outputs of modules within one step.

    A tensor without a key gets the next number of its module and kind; one with a key gets the
    key, and a number only when the key comes again.

    Example:
        >>> names = StepNames()
        >>> names.next("fc", "output", ("",)), names.next("fc", "output", ("",))
        ('fc_output_0', 'fc_output_1')
        >>> names.next("net", "output", ("logits",)), names.next("net", "output", ("logits",))
        ('net_output_logits', 'net_output_logits_1')
    """

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._given: set[str] = set()

    def next(self, module: str, kind: str, path: tuple[str, ...]) -> str:
        """Returns the name of the next tensor of a module."""
        keys = _without_place(path)
        name = "_".join((module, kind, *keys))
        counted = not keys or path[-1] == ""
        while True:
            number = self._counts.get(name, 0)
            self._counts[name] = number + 1
            full = f"{name}_{number}" if counted or number else name
            # A key may be a number too.
            if full not in self._given:
                self._given.add(full)
                return full


def cares(
    plan: StepPlan, module: str, kind: str, known: Sized[str], besides: Sized[str] = ()
) -> bool:
    """Whether a tensor of a module, be it one that was not seen yet, would be of interest.

    Args:
        plan: the kind of step.
        module: what the module is called.
        kind: "input" or "output".
        known: regexes that have nothing to say about names of tensors that were not seen yet.
        besides: collections that do not count.
    """
    # Keys are anybody's words; those that matter stand in what was asked for.
    ends = [*map(str, range(_PROBED)), *plan.words(known)]
    return any(plan.interesting(f"{module}_{kind}_{end}", besides) for end in ends)
