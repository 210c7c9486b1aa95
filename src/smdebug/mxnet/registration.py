"""A registered block: the blocks inside it, and its parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from smdebug.hook.rules.rule_layers import MODEL
from smdebug.mxnet.naming import block_name

if TYPE_CHECKING:
    from collections.abc import Iterator


def device_of(context: Any) -> str:
    """Return the device of a context; pinned and shared memory belong to the CPU."""
    kind = "gpu" if context.device_type == "gpu" else "cpu"
    return f"{kind}({context.device_id})"


class Registration:
    """A registered block, whose forward passes are steps.

    Args:
        block: the block.

    Attributes:
        block: the block.
        name: its name.
        calls: how many forward passes it had.
        descendants: for every block inside it: its name, the block, and whether it is visible, that
            is, not inside a hybridized block, which runs as one graph.
        parameters: all parameters by name.
        version: increases when `refresh` finds a change.
    """

    def __init__(self, block: Any) -> None:
        self.block = block
        self.name = block_name(block)
        self.calls = self.version = 0
        self.descendants: list[tuple[str, Any, bool]] = []
        self.parameters: dict[str, Any] = {}
        self._fingerprint: list[tuple[Any, ...]] = []
        self.refresh()

    def refresh(self) -> None:
        """Find blocks and parameters that were added, replaced or hybridized."""
        # Runs twice at a step that is saved; a fingerprint takes two microseconds per block.
        if self._compute_fingerprint() != self._fingerprint:
            self.descendants = list(self._find_descendants())
            self.parameters = dict(self.block.collect_params().items())
            self.version += 1
            self._fingerprint = self._compute_fingerprint()

    def _compute_fingerprint(self) -> list[tuple[Any, ...]]:
        blocks = [self.block, *[block for _, block, _ in self.descendants]]
        return [
            (*map(id, block._children.values()), _is_hybridized(block), len(block.params.keys()))
            for block in blocks
        ]

    def _find_descendants(self) -> Iterator[tuple[str, Any, bool]]:
        seen = {id(self.block)}
        queue = [(self.block, not _is_hybridized(self.block))]
        while queue:
            parent, visible = queue.pop(0)
            for child in parent._children.values():
                if id(child) not in seen:
                    seen.add(id(child))
                    yield block_name(child), child, visible
                    queue.append((child, visible and not _is_hybridized(child)))

    def layers(self) -> list[tuple[str, str]]:
        """Return the name and kind of each block, as `include_layers` takes them."""
        # The alias of an activation is its function, such as `relu`.
        inner = [(name, str(block._alias()).lower()) for name, block, _ in self.descendants]
        return [(self.name, MODEL), *inner]

    def devices(self) -> list[str]:
        """Return the devices of its parameters; none before they are initialized."""
        for parameter in self.parameters.values():
            try:
                return [device_of(context) for context in parameter.list_ctx()]
            except RuntimeError:
                continue
        return []


def _is_hybridized(block: Any) -> bool:
    return bool(getattr(block, "_active", False))
