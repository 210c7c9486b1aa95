"""A registered block: its parts, their names, and its parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from smdebug.hook.layers import MODEL

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
    """

    def __init__(self, block: Any) -> None:
        self.block = block
        self.name = block_name(block)
        self.calls = 0
        self._parameters: dict[str, Any] = {}
        self._look: list[tuple[int, int]] | None = None

    def parts(self) -> Iterator[tuple[str, Any, bool]]:
        """Yields what each block inside is called, the block, and whether it is ever called."""
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
        inside = [(name, str(block._alias()).lower()) for name, block, _ in self.parts()]
        return [(self.name, MODEL), *inside]

    def devices(self) -> list[str]:
        """Where its parameters are; nowhere if it has none, or none is initialised."""
        for parameter in self.parameters().values():
            try:
                return [device_of(context) for context in parameter.list_ctx()]
            except RuntimeError:
                continue
        return []

    def parameters(self) -> dict[str, Any]:
        """All parameters by name; looked up again when blocks or parameters were added."""
        blocks = [self.block, *(block for _, block, _ in self.parts())]
        look = [(id(block), len(block.params.keys())) for block in blocks]
        if look != self._look:
            self._look, self._parameters = look, dict(self.block.collect_params().items())
        return self._parameters
