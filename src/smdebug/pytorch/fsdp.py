"""Gradients under FSDP: they appear on the shards when a backward pass has ended.

Autograd delivers gradients of the gathered parameters; this process keeps the shard that is left
after they were reduced. So they are captured in a callback that the autograd engine calls at the
end of the backward pass. What an earlier backward pass had left there is subtracted: gradients are
those of one backward pass, as elsewhere. Nothing here communicates with other processes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from smdebug.hook.naming import tensors_in
from smdebug.pytorch.naming import is_fsdp
from smdebug.pytorch.registration import Callback, HookSet
from smdebug.pytorch.tensors import local_tensor

if TYPE_CHECKING:
    from smdebug.hook.pipeline import Pipeline
    from smdebug.pytorch.parameters import Gradients
    from smdebug.pytorch.registration import Registration


class FsdpGradients:
    """Captures the gradients of shards at the end of each backward pass of a saving step.

    Args:
        pipeline: the pipeline of the hook.
        gradients: captures them.
    """

    def __init__(self, pipeline: Pipeline, gradients: Gradients) -> None:
        self._gradients = gradients
        self._guarded = pipeline.guarded
        self._hooks = HookSet()
        self._backward = -1
        self._before: dict[int, _Snapshot | None] = {}

    def watch(self, registration: Registration) -> None:
        """Wait for the backward pass of the forward pass that is about to run."""
        self._hooks.remove()
        if not self._gradients.shards() or not any(map(is_fsdp, registration.modules.values())):
            return
        # Registered after FSDP's own, so that what it does at the end is done before.
        callback = Callback(self._forward_ended, takes=3)
        self._hooks.add(registration.module.register_forward_hook(callback))

    def _forward_ended(self, module: torch.nn.Module, args: Any, output: Any) -> None:
        with self._guarded:
            self._hooks.remove()
            for _, tensor in tensors_in(output, torch.Tensor):
                if tensor.requires_grad:
                    tensor.register_hook(self._backward_began)

    def stop(self) -> None:
        """Wait for no forward pass anymore."""
        self._hooks.remove()

    def _backward_began(self, gradient: torch.Tensor) -> None:
        with self._guarded:
            backward = torch._C._current_graph_task_id()
            if backward != self._backward:
                self._backward = backward
                self._before = {key: _snapshot(each.grad) for key, each in self._gradients.shards()}
                engine: Any = torch.autograd.Variable._execution_engine
                engine.queue_callback(self._backward_ended)

    def _backward_ended(self) -> None:
        with self._guarded:
            before, self._before = self._before, {}
            for key, parameter in self._gradients.shards():
                shard, earlier = _shard_of(parameter.grad), before.get(key)
                # Unchanged: gradients are kept back until a later backward pass.
                if shard is None or (earlier is not None and shard._version == earlier.version):
                    continue
                self._gradients.capture(key, shard if earlier is None else shard - earlier.copy)


class _Snapshot(NamedTuple):
    """The gradient of a shard as an earlier backward pass left it."""

    version: int
    copy: torch.Tensor


def _snapshot(gradient: torch.Tensor | None) -> _Snapshot | None:
    shard = _shard_of(gradient)
    return None if shard is None else _Snapshot(shard._version, shard.clone())


def _shard_of(gradient: torch.Tensor | None) -> torch.Tensor | None:
    return None if gradient is None else local_tensor(gradient, "gradient of a shard")
