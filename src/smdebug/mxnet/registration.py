"""A registered block: its parts, their names, and its parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from smdebug.hook.rule_layers import MODEL

if TYPE_CHECKING:
    from collections.abc import Iterator


def block_name(block: Any) -> str:
    """What a block is called: its name, or its class where it was made with an empty prefix."""
    return str(block.name or type(block).__name__.lower())


def device_of(context: Any) -> str:
    """The device that a context is; memory that it shares with others is its own, too."""
    kind = "gpu" if context.device_type == "gpu" else "cpu"
    return f"{kind}({context.device_id})"


def is_hybridized(block: Any) -> bool:
    """Whether a block runs as one graph, so that its children are never called."""
    return bool(getattr(block, "_active", False))


class Registration:
    """A block that was registered: each of its forwards is a step.

    Args:
        block: the block.

    Attributes:
        block: the block.
        name: what it is called.
        calls: how often its forward was seen.
        parts: for each block inside what it is called, the block, and whether it is ever called.
        parameters: all parameters by name.
        version: changes when `refresh` has found others.
    """

    def __init__(self, block: Any) -> None:
        self.block = block
        self.name = block_name(block)
        self.calls = self.version = 0
        self.parts: list[tuple[str, Any, bool]] = []
        self.parameters: dict[str, Any] = {}
        self._look: list[tuple[Any, ...]] = []
        self.refresh()

    def refresh(self) -> None:
        """Looks whether blocks or parameters were added, replaced, or hybridised."""
        # Asked twice at a saving step: two microseconds a block.
        if self._look_around() != self._look:
            self.parts = list(self._walk())
            self.parameters = dict(self.block.collect_params().items())
            self.version += 1
            self._look = self._look_around()

    def _look_around(self) -> list[tuple[Any, ...]]:
        blocks = [self.block, *[block for _, block, _ in self.parts]]
        return [
            (*map(id, block._children.values()), is_hybridized(block), len(block.params.keys()))
            for block in blocks
        ]

    def _walk(self) -> Iterator[tuple[str, Any, bool]]:
        seen = {id(self.block)}
        waiting = [(self.block, not is_hybridized(self.block))]
        while waiting:
            parent, visible = waiting.pop(0)
            for child in parent._children.values():
                if id(child) not in seen:
                    seen.add(id(child))
                    yield block_name(child), child, visible
                    waiting.append((child, visible and not is_hybridized(child)))

    def kinds(self) -> list[tuple[str, str]]:
        """What each block is called, and of which kind it is: a ReLU, an embedding, the whole."""
        # The alias of an activation is its function.
        inside = [(name, str(block._alias()).lower()) for name, block, _ in self.parts]
        return [(self.name, MODEL), *inside]

    def devices(self) -> list[str]:
        """Where its parameters are; nowhere if it has none, or none is initialised."""
        for parameter in self.parameters.values():
            try:
                return [device_of(context) for context in parameter.list_ctx()]
            except RuntimeError:
                continue
        return []
