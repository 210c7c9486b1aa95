"""Names of the inputs and outputs of modules."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection as Sized
    from collections.abc import Iterator

    from smdebug.hook.plan import StepPlan

GRADIENT_PREFIX = "gradient/"
# How many numbered tensors of a module are considered before they are seen.
_PROBED = 10


def tensors_in(
    value: Any, kind: type, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield every tensor in an input or output of a module, with the keys that lead to it.

    Dicts, dataclasses and named tuples have keys; `StepNames` counts the items of tuples and lists.

    Args:
        value: the input or output.
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
            yield from tensors_in(item, kind, (*_without_index(path), str(key)))
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        for key, item in zip(value._fields, value, strict=True):
            yield from tensors_in(item, kind, (*_without_index(path), str(key)))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors_in(item, kind, (*_without_index(path), ""))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            item = getattr(value, field.name, None)
            yield from tensors_in(item, kind, (*_without_index(path), field.name))


def _without_index(path: tuple[str, ...]) -> tuple[str, ...]:
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
        """Return the name of the next tensor of a module."""
        keys = _without_index(path)
        name = "_".join((module, kind, *keys))
        counted = not keys or path[-1] == ""
        while True:
            number = self._counts.get(name, 0)
            self._counts[name] = number + 1
            full = f"{name}_{number}" if counted or number else name
            # A key may be a number, too.
            if full not in self._given:
                self._given.add(full)
                return full


def may_be_relevant(
    plan: StepPlan, module: str, kind: str, known: Sized[str], ignored: Sized[str] = ()
) -> bool:
    """Return whether a tensor of a module, even one not seen yet, would be relevant at a step.

    Args:
        plan: the kind of step.
        module: the module's name.
        kind: "input" or "output".
        known: regexes that say nothing about names of tensors that were not seen yet.
        ignored: names of collections that do not count.
    """
    # Keys can be any word; those that matter are in the regexes and names of the plan.
    ends = [*map(str, range(_PROBED)), *plan.words(known)]
    return any(plan.is_relevant(f"{module}_{kind}_{end}", ignored) for end in ends)
