"""Gradients under FSDP: they appear on the shards when a backward has ended.

Autograd delivers gradients of the gathered parameters; what this process keeps is the shard that is
left after they were reduced. So the end of the backward is waited for, on the autograd engine's own
list of things to do then. What an earlier backward had left there is taken off again: gradients are
those of one backward, as elsewhere. Nothing here communicates with other processes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from smdebug.hook.naming import tensors_in
from smdebug.pytorch.naming import is_fsdp
from smdebug.pytorch.registration import Callback, HookSet
from smdebug.pytorch.tensors import local_tensor

if TYPE_CHECKING:
    from collections.abc import Callable

    from smdebug.pytorch.parameters import Gradients
    from smdebug.pytorch.registration import Registration


class FsdpGradients:
    """Takes the gradients of shards at the end of each backward of a saving step.

    Args:
        gradients: where they go.
        entered: a context for everything done in a callback.
    """

    def __init__(self, gradients: Gradients, entered: Callable[[], Any]) -> None:
        self._gradients = gradients
        self._entered = entered
        self._hooks = HookSet()
        self._backward = -1
        self._before: dict[int, _Mark | None] = {}

    def watch(self, registration: Registration) -> None:
        """Waits for the backward of the forward that is about to run."""
        self._hooks.remove()
        if not self._gradients.shards() or not any(map(is_fsdp, registration.modules.values())):
            return
        # Registered behind FSDP's own, so that what it does at the end is done before.
        callback = Callback(self._forward_ended, takes=3)
        self._hooks.add(registration.module.register_forward_hook(callback))

    def _forward_ended(self, module: torch.nn.Module, args: Any, output: Any) -> None:
        with self._entered():
            self._hooks.remove()
            for _, tensor in tensors_in(output, torch.Tensor):
                if tensor.requires_grad:
                    tensor.register_hook(self._backward_began)

    def stop(self) -> None:
        """Waits for no forward any more."""
        self._hooks.remove()

    def _backward_began(self, gradient: torch.Tensor) -> None:
        with self._entered():
            self._await_end()

    def _await_end(self) -> None:
        backward = torch._C._current_graph_task_id()
        if backward != self._backward:
            self._backward = backward
            self._before = {key: _mark(each.grad) for key, each in self._gradients.shards()}
            engine: Any = torch.autograd.Variable._execution_engine
            engine.queue_callback(self._backward_ended)

    def _backward_ended(self) -> None:
        with self._entered():
            self._take()

    def _take(self) -> None:
        before, self._before = self._before, {}
        for key, parameter in self._gradients.shards():
            shard, mark = _shard_of(parameter.grad), before.get(key)
            # Unchanged: gradients are kept back until a later backward.
            if shard is None or (mark is not None and shard._version == mark.version):
                continue
            self._gradients.take(key, shard if mark is None else shard - mark.copy)


class _Mark(NamedTuple):
    """The gradient of a shard as an earlier backward left it."""

    version: int
    copy: torch.Tensor


def _mark(gradient: torch.Tensor | None) -> _Mark | None:
    shard = _shard_of(gradient)
    return None if shard is None else _Mark(shard._version, shard.clone())


def _shard_of(gradient: torch.Tensor | None) -> torch.Tensor | None:
    return None if gradient is None else local_tensor(gradient, "gradient of a shard")
