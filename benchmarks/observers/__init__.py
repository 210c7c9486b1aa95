"""What watches a training: one module per library, in which `observe(setup, training, folder)`
starts to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import torch


class Observer(Protocol):
    """Something that watches a training, through hooks of its own or after every step."""

    def after_step(self, loss: torch.Tensor) -> None: ...

    def close(self) -> None: ...


class Nothing:
    """No observer: the training alone."""

    def after_step(self, loss: torch.Tensor) -> None:
        pass

    def close(self) -> None:
        pass
