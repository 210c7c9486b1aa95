"""Weights and gradients at a saving step.

Weights are copied when the step begins, before they are used; gradients when autograd delivers
them, before they are added to what an earlier backward left.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import torch

from smdebug.hook.naming import GRADIENT_PREFIX
from smdebug.pytorch.context import in_backward, is_transformed
from smdebug.pytorch.staging_buffers import Row, RowBuffer, RowLayout, fits_in_rows
from smdebug.pytorch.tensors import local_tensor

if TYPE_CHECKING:
    from collections.abc import Callable

    from smdebug.hook.capture import StepCapture
    from smdebug.hook.errors import Entered
    from smdebug.hook.plan import StepPlan
    from smdebug.pytorch.registration import Registration

_Named = list[tuple[str, torch.Tensor]]


class Weights:
    """What a kind of step saves of the parameters of a module, found out once.

    Args:
        parameters: the parameters by name.
        plan: the kind of step.
    """

    def __init__(self, parameters: _Named, plan: StepPlan) -> None:
        rows: list[Row] = []
        self._in_rows: list[torch.Tensor] = []
        self._others: _Named = []
        for name, parameter in parameters:
            want = plan.want(name)
            tensor = None if want is None else local_tensor(parameter, name)
            if want is None or tensor is None:
                continue
            if want.histogram is None and fits_in_rows(tensor):
                rows.append(Row(name, tuple(tensor.shape), tensor.dtype, want))
                self._in_rows.append(parameter)
            else:
                self._others.append((name, parameter))
        self._layout = RowLayout(rows) if rows else None
        self._shards = any(hasattr(parameter, "to_local") for parameter in self._in_rows)

    def take(self, capture: StepCapture, offer: Callable[[str, torch.Tensor], None]) -> bool:
        """Takes the weights as they are now; False if none are wanted."""
        if self._layout is not None:
            sources = self._in_rows
            if self._shards:
                sources = [_local(parameter) for parameter in sources]
            buffer = self._layout.buffer()
            buffer.fill(sources)
            capture.add(buffer)
        for name, parameter in self._others:
            offer(name, parameter)
        return self._layout is not None or bool(self._others)


def _local(tensor: torch.Tensor) -> torch.Tensor:
    local = local_tensor(tensor, "")
    assert local is not None
    return local


class Gradients:
    """The gradients of all registered parameters, taken as autograd delivers them.

    The hooks on the parameters stay while step after step saves gradients, and go with the first
    that does not: at that step training pays nothing for them.

    Args:
        offer: takes one tensor the general way.
        inside: the context for everything done in a callback; one for all gradients.

    Attributes:
        frozen: the names of parameters whose gradients are wanted and that do not train.
    """

    def __init__(self, offer: Callable[[str, torch.Tensor], None], inside: Entered) -> None:
        self._offer = offer
        self._inside = inside
        self.frozen: tuple[str, ...] = ()
        self._hooked: dict[int, tuple[torch.Tensor, Callable[[], None]]] = {}
        self._names: dict[int, list[str]] = {}
        self._capture: StepCapture | None = None
        self._places: dict[str, int] = {}
        self._layout: RowLayout | None = None
        self._buffer: RowBuffer | None = None

    def begin(self, capture: StepCapture, registrations: list[Registration]) -> bool:
        """Watches for the gradients of a step; False if it wants none."""
        plan = capture.plan
        assert plan is not None
        key = ("gradients", *[(each, each.version) for each in registrations])
        if key not in plan.memory:
            named = [item for each in registrations for item in each.parameters()]
            plan.memory[key] = _GradientPlan(named, plan)
        found = plan.memory[key]
        assert isinstance(found, _GradientPlan)
        if not found.names:
            self.stop()
            return False
        self._capture, self._layout = capture, found.layout
        self._places, self._names = found.places, found.names
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
        """Puts a hook on a parameter; returns what takes it off."""
        before = parameter._backward_hooks
        handle = parameter.register_hook(self._hook_of(id(parameter)))
        thread = threading.get_ident()

        def detach() -> None:
            handle.remove()
            # A backward that is under way, in another thread or around this, goes through them.
            alone = threading.get_ident() == thread and not in_backward()
            # Autograd would go on to look into the empty dict, at every backward.
            if before is None and not parameter._backward_hooks and alone:
                parameter._backward_hooks = None

        return detach

    def _hook_of(self, key: int) -> Callable[[torch.Tensor], None]:
        def fired(gradient: torch.Tensor) -> None:
            if self._capture is not None and not is_transformed():
                self.take(key, gradient)

        return fired

    def take(self, key: int, gradient: torch.Tensor) -> None:
        """Takes a gradient, by the identity of its parameter."""
        with self._inside:
            for name in self._names.get(key, ()):
                place = self._places.get(name)
                if place is None or type(gradient) is not torch.Tensor or gradient.is_sparse:
                    self._offer(name, gradient)
                    continue
                buffer = self._buffer
                if self._capture is None:
                    # Stopped by another thread, meanwhile.
                    return
                if buffer is None:
                    assert self._layout is not None
                    buffer = self._buffer = self._layout.buffer()
                    self._capture.add(buffer)
                # Only a backward that is differentiated itself gives it a graph.
                plain = gradient.detach() if gradient.requires_grad else gradient
                buffer.views[place].copy_(plain)
                buffer.present[place] = 1
                buffer.order.append(place)

    def shards(self) -> list[tuple[int, torch.Tensor]]:
        """The parameters of which this process has only a shard, as FSDP keeps them."""
        if self._capture is None:
            return []
        hooked = self._hooked.items()
        return [(key, each) for key, (each, _) in hooked if hasattr(each, "to_local")]

    def handed_over(self) -> None:
        """What comes from now on, be it for the same step, needs new memory."""
        self._buffer = None

    def forget(self, registration: Registration) -> None:
        """Takes the hooks off the parameters of one module."""
        for _, parameter in registration.parameters():
            _, detach = self._hooked.pop(id(parameter), (None, None))
            if detach is not None:
                detach()

    def stop(self) -> None:
        """Takes the hooks off all parameters."""
        # The layout keeps memory for the steps to come.
        self._capture = self._buffer = self._layout = None
        hooked, self._hooked = self._hooked, {}
        for _, detach in hooked.values():
            detach()


class _GradientPlan:
    """What a kind of step saves of gradients."""

    def __init__(self, named: _Named, plan: StepPlan) -> None:
        self.names: dict[int, list[str]] = {}
        self.parameters: list[torch.Tensor] = []
        self.places: dict[str, int] = {}
        rows: list[Row] = []
        for parameter_name, parameter in named:
            name = GRADIENT_PREFIX + parameter_name
            want = plan.want(name)
            if not plan.interesting(name):
                continue
            if id(parameter) not in self.names:
                self.parameters.append(parameter)
            self.names.setdefault(id(parameter), []).append(name)
            if want is None or want.histogram is not None or plan.armed:
                continue
            if type(parameter) is not torch.nn.Parameter:
                continue
            if fits_in_rows(parameter) and local_tensor(parameter, name) is not None:
                self.places[name] = len(rows)
                rows.append(Row(name, tuple(parameter.shape), parameter.dtype, want))
        self.layout = RowLayout(rows) if rows else None
