"""Weights and gradients at a saving step.

Weights are copied when the step begins, before they are used; gradients when autograd delivers
them, before they are added to those of an earlier backward pass.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import torch

from smdebug.hook.naming import GRADIENT_PREFIX
from smdebug.pytorch.context import in_backward, is_transformed
from smdebug.pytorch.staging_buffers import BufferLayout, Slot, StagingBuffer, fits_in_buffer
from smdebug.pytorch.tensors import local_tensor

if TYPE_CHECKING:
    from collections.abc import Callable

    from smdebug.hook.capture import StepCapture
    from smdebug.hook.pipeline import Pipeline
    from smdebug.hook.plan import StepCache, StepPlan
    from smdebug.pytorch.registration import Registration

_Named = list[tuple[str, torch.Tensor]]


class Weights:
    """What a kind of step saves of the parameters of a module, computed once.

    Args:
        parameters: the parameters by name.
        plan: the kind of step.
    """

    def __init__(self, parameters: _Named, plan: StepPlan) -> None:
        slots: list[Slot] = []
        self._buffered: list[torch.Tensor] = []
        self._others: _Named = []
        for name, parameter in parameters:
            request = plan.request(name)
            tensor = None if request is None else local_tensor(parameter, name)
            if request is None or tensor is None:
                continue
            if request.histogram is None and fits_in_buffer(tensor):
                slots.append(Slot.of(name, tensor, request))
                self._buffered.append(parameter)
            else:
                self._others.append((name, parameter))
        self._layout = BufferLayout(slots) if slots else None
        self._sharded = any(hasattr(parameter, "to_local") for parameter in self._buffered)

    def capture(self, current: StepCapture, offer: Callable[[str, torch.Tensor], None]) -> bool:
        """Capture the weights as they are now; return False if none are saved."""
        if self._layout is not None:
            sources = self._buffered
            if self._sharded:
                locals_ = [local_tensor(parameter, "") for parameter in sources]
                sources = [each for each in locals_ if each is not None]
            buffer = self._layout.buffer()
            buffer.fill(sources)
            current.add(buffer)
        for name, parameter in self._others:
            offer(name, parameter)
        return self._layout is not None or bool(self._others)


class _GradientPlan:
    """What a kind of step saves of gradients.

    Attributes:
        names: the names of a parameter's gradient, by the parameter's identity.
        parameters: the parameters.
        positions: the position in the buffer, by name.
        layout: the buffer's layout; None without any.
    """

    def __init__(self, named: _Named, plan: StepPlan) -> None:
        self.names: dict[int, list[str]] = {}
        self.parameters: list[torch.Tensor] = []
        self.positions: dict[str, int] = {}
        slots: list[Slot] = []
        for parameter_name, parameter in named:
            name = GRADIENT_PREFIX + parameter_name
            request = plan.request(name)
            if not plan.is_relevant(name):
                continue
            if id(parameter) not in self.names:
                self.parameters.append(parameter)
            self.names.setdefault(id(parameter), []).append(name)
            if request is None or request.histogram is not None or plan.armed:
                continue
            if type(parameter) is not torch.nn.Parameter:
                continue
            if fits_in_buffer(parameter) and local_tensor(parameter, name) is not None:
                self.positions[name] = len(slots)
                slots.append(Slot.of(name, parameter, request))
        self.layout = BufferLayout(slots) if slots else None


class Gradients:
    """The gradients of all registered parameters, captured as autograd delivers them.

    The hooks on the parameters stay while step after step saves gradients, and are removed at the
    first that does not: at that step they would cost training time for nothing.

    Args:
        pipeline: the pipeline of the hook.

    Attributes:
        frozen: the names of parameters whose gradients are requested and that do not train.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._guarded = pipeline.guarded
        self._plans: StepCache[_GradientPlan] = pipeline.new_cache()
        self.frozen: tuple[str, ...] = ()
        self._hooked: dict[int, tuple[torch.Tensor, Callable[[], None]]] = {}
        self._names: dict[int, list[str]] = {}
        self._current: StepCapture | None = None
        self._positions: dict[str, int] = {}
        self._layout: BufferLayout | None = None
        self._buffer: StagingBuffer | None = None

    def begin(self, current: StepCapture, registrations: list[Registration]) -> bool:
        """Watch for the gradients of a step; return False if it saves none."""
        plan = current.plan
        assert plan is not None
        found = self._plans.get(
            plan,
            tuple((each, each.version) for each in registrations),
            lambda: _GradientPlan(
                [item for each in registrations for item in each.parameters()], plan
            ),
        )
        if not found.names:
            self.stop()
            return False
        self._current, self._layout = current, found.layout
        self._positions, self._names = found.positions, found.names
        self._buffer = None
        frozen: list[str] = []
        for parameter in found.parameters:
            if not parameter.requires_grad:
                frozen += found.names[id(parameter)]
            # One that was frozen may train by now.
            elif id(parameter) not in self._hooked:
                self._hooked[id(parameter)] = (parameter, self._attach(parameter))
        self.frozen = tuple(name.removeprefix(GRADIENT_PREFIX) for name in frozen)
        return True

    def _attach(self, parameter: Any) -> Callable[[], None]:
        """Put a hook on a parameter; return what removes it."""
        key, before = id(parameter), parameter._backward_hooks

        def delivered(gradient: torch.Tensor) -> None:
            if self._current is not None and not is_transformed():
                self.capture(key, gradient)

        handle = parameter.register_hook(delivered)
        thread = threading.get_ident()

        def detach() -> None:
            handle.remove()
            # A backward pass in another thread, or around this call, may iterate over them.
            alone = threading.get_ident() == thread and not in_backward()
            # Autograd would look into the empty dict at every backward pass.
            if before is None and not parameter._backward_hooks and alone:
                parameter._backward_hooks = None

        return detach

    def capture(self, key: int, gradient: torch.Tensor) -> None:
        """Capture a gradient, by the identity of its parameter."""
        with self._guarded:
            for name in self._names.get(key, ()):
                position = self._positions.get(name)
                if position is None or type(gradient) is not torch.Tensor or gradient.is_sparse:
                    self._pipeline.offer(name, gradient)
                    continue
                buffer = self._buffer
                if self._current is None:
                    # Stopped by another thread, meanwhile.
                    return
                if buffer is None:
                    assert self._layout is not None
                    buffer = self._buffer = self._layout.buffer()
                    self._current.add(buffer)
                # It has a graph only if the backward pass is differentiated itself.
                plain = gradient.detach() if gradient.requires_grad else gradient
                buffer.put(position, plain)

    def shards(self) -> list[tuple[int, torch.Tensor]]:
        """Return the parameters of which this process has only a shard, as FSDP keeps them."""
        if self._current is None:
            return []
        hooked = self._hooked.items()
        return [(key, each) for key, (each, _) in hooked if hasattr(each, "to_local")]

    def handed_over(self) -> None:
        """Use new memory for further gradients, also of the same step."""
        self._buffer = None

    def forget(self, registration: Registration) -> None:
        """Remove the hooks from the parameters of one module."""
        for _, parameter in registration.parameters():
            _, detach = self._hooked.pop(id(parameter), (None, None))
            if detach is not None:
                detach()

    def stop(self) -> None:
        """Remove the hooks from all parameters."""
        # The layout keeps memory for the steps to come.
        self._current = self._buffer = self._layout = None
        hooked, self._hooked = self._hooked, {}
        for _, detach in hooked.values():
            detach()
