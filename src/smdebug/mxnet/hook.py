"""The hook for MXNet's Gluon."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import mxnet as mx

from smdebug.config import validation
from smdebug.exceptions import SMDebugTypeError
from smdebug.hook.arguments import inherit_arguments
from smdebug.hook.hook import BaseHook
from smdebug.mxnet.adapter import MxnetAdapter

if TYPE_CHECKING:
    from smdebug.hook.handles import Handle
    from smdebug.mxnet.collection import Collection


@inherit_arguments
class Hook(BaseHook):
    """Saves tensors of a training job with MXNet's Gluon.

    Every forward pass of a registered block is a step; where a batch is split across devices, the
    forward passes of its parts are one step. At the steps of its save schedule the hook saves the
    tensors of its collections: `weights` and `biases` (after the update), `gradients` (as the
    backward pass left them), `losses`, and inputs and outputs of blocks. Parameters and gradients
    that are on several devices are saved from the first.

    Example:
        >>> hook = Hook("/tmp/run", include_collections=["gradients"])  # doctest: +SKIP
        >>> hook.register_block(net)  # doctest: +SKIP
        >>> hook.register_block(loss_function)  # doctest: +SKIP
    """

    adapter_class = MxnetAdapter

    def register_block(self, block: Any) -> Handle:
        """Save tensors of a block, whose forward passes are steps, or of a loss.

        Args:
            block: the outermost block that training calls, or a `gluon.loss.Loss`. It may be
                initialized and hybridized before or after.

        Returns:
            A handle that removes the registration; also a context manager.

        Raises:
            SMDebugTypeError: it is not a block.

        Example:
            >>> hook.register_block(net)  # doctest: +SKIP
            >>> hook.register_block(gluon.loss.SoftmaxCrossEntropyLoss())  # doctest: +SKIP
        """
        if not isinstance(block, mx.gluon.Block):
            raise SMDebugTypeError(
                f"block must be a mxnet.gluon.Block, got {validation.short_repr(block)} of type "
                f"{type(block).__name__}"
            )
        return cast("Handle", self._adapter.register(block))

    def register_hook(self, block: Any) -> Handle:
        """Do the same as `register_block`."""
        return self.register_block(block)

    def get_collection(self, name: str, create: bool = True) -> Collection:
        """Return a collection of this hook, created if it does not exist; see `BaseHook`."""
        return cast("Collection", super().get_collection(name, create))

    @property
    def registered_blocks(self) -> set[Any]:
        """All registered blocks, losses included."""
        return set(self._adapter.handles)

    @property
    def model(self) -> Any:
        """The block that was registered first; None before."""
        return next((each.block for each in self._adapter.registrations), None)


TornasoleHook = Hook
