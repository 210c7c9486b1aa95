"""Collections that take Gluon's blocks and parameters, too."""

from __future__ import annotations

import re
from typing import Any

import mxnet as mx

from smdebug.config.collection import Collection as BaseCollection
from smdebug.exceptions import SMDebugTypeError
from smdebug.mxnet.naming import block_name

_Block: Any = mx.gluon.Block
_Parameter: Any = mx.gluon.Parameter


class Collection(BaseCollection):
    """A named set of tensors; see `smdebug.Collection`.

    Example:
        >>> collection = Collection("relu")
        >>> collection.add_block_tensors(mx.gluon.nn.Activation("relu", prefix="relu0_"))
        >>> collection.include_regex
        ['^relu0_output_']
    """

    def add(self, tensor_names: Any) -> None:
        """Add tensors: names, parameters (without their gradients), or blocks.

        Args:
            tensor_names: a name, a parameter, a block (its parameters and its outputs), or lists
                of them.
        """
        if isinstance(tensor_names, _Block):
            super().add(list(tensor_names.collect_params().keys()))
            self.add_block_tensors(tensor_names)
        elif isinstance(tensor_names, _Parameter):
            super().add(tensor_names.name)
        elif isinstance(tensor_names, mx.nd.NDArray) or tensor_names is None:
            raise SMDebugTypeError(
                f"collection {self.name!r}: expected names, parameters or blocks, got "
                f"{type(tensor_names).__name__}, which has no name; use hook.save_tensor to save "
                "an array"
            )
        elif isinstance(tensor_names, list | tuple | set | frozenset):
            for each in tensor_names:
                self.add(each)
        else:
            super().add(tensor_names)

    def add_block_tensors(self, block: Any, inputs: bool = False, outputs: bool = True) -> None:
        """Add the inputs or outputs of a block.

        Args:
            block: a registered block, or one inside it, by the first step.
            inputs: add its inputs.
            outputs: add its outputs.

        Raises:
            SMDebugTypeError: it is not a block.

        Example:
            >>> collection = Collection("head")
            >>> collection.add_block_tensors(mx.gluon.nn.Dense(2, prefix="head_"), inputs=True)
            >>> collection.include_regex
            ['^head_input_', '^head_output_']
        """
        if not isinstance(block, _Block):
            raise SMDebugTypeError(
                f"collection {self.name!r}: block must be a mxnet.gluon.Block, got "
                f"{type(block).__name__}"
            )
        kinds = [kind for kind, add in (("input", inputs), ("output", outputs)) if add]
        regexes = [f"^{re.escape(block_name(block))}_{kind}_" for kind in kinds]
        self.include([regex for regex in regexes if regex not in self.include_regex])
