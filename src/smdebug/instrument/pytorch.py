"""Attaching to PyTorch: the outermost modules that an optimizer trains, and their losses."""

from __future__ import annotations

import gc
import logging
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules.loss import _Loss

from smdebug.hook.patch import patch
from smdebug.instrument.root_calls import RootCalls
from smdebug.pytorch.backward_losses import BackwardLosses
from smdebug.pytorch.context import is_traced
from smdebug.pytorch.hook import Hook
from smdebug.pytorch.registration import registered_parts

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from smdebug.hook.handles import Handle
    from smdebug.instrument.job import InstrumentedJob

logger = logging.getLogger("smdebug.instrument")

# Every call of every module asks a question as long as something is looked for. What was not
# called in that many steps is not looked for any longer.
_PATIENCE = 100


class PytorchWatch:
    """Registers what training calls, as a script of one's own would.

    A module counts when an optimizer holds one of its parameters; so neither the parts that a model
    tries out while it is built, nor a teacher or a metric, are taken for it. In a script without
    optimizers it counts as soon as a backward has followed its call. Modules that one optimizer
    trains together make common steps. Only the thread that trains first is watched.

    Args:
        job: has the hook.
    """

    def __init__(self, job: InstrumentedJob) -> None:
        self._job = job
        self._optimizers: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
        self._roots: dict[torch.nn.Module, Handle] = {}
        self._outermost = RootCalls(self._looks, self._called)
        self._since = 0
        self._calls: Handle | None = None
        self._thread: int | None = None
        self._collected = (0.0, 0.0)
        # Without optimizers: what was called, and what a backward was seen of.
        self._called_ones: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
        self._by_hand: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
        self._left_alone: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
        self._parts: tuple[object, set[int]] = (None, set())
        self._losses: BackwardLosses | None = None
        patch(torch.optim.Optimizer, "add_param_group", self._telling_optimizer)
        patch(torch, "compile", self._telling_compile)
        patch(torch.nn.Module, "compile", self._telling_compile)
        patch(torch.autograd, "backward", self._telling_backward)
        patch(_Loss, "__call__", self._telling_loss)
        self._look()

    def _hook(self) -> Hook | None:
        """The hook, once it watches something."""
        made = self._job.made
        return made if isinstance(made, Hook) and made.has_registered_module else None

    # ---- what stands in the place of PyTorch's functions

    def _telling_optimizer(self, add: Callable[..., Any]) -> Callable[..., Any]:
        def add_param_group(optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
            result = add(optimizer, *args, **kwargs)
            self._optimizers.add(optimizer)
            self._look()
            return result

        return add_param_group

    def _telling_compile(self, compile: Callable[..., Any]) -> Callable[..., Any]:
        def telling(*args: Any, **kwargs: Any) -> Any:
            result = compile(*args, **kwargs)
            given = args[0] if args else None
            if isinstance(given, torch.nn.Module) and given in self._roots:
                # From now on something else is called, or this one in another way.
                self._roots.pop(given).remove()
            self._look()
            return result

        return telling

    def _telling_backward(self, backward: Callable[..., Any]) -> Callable[..., Any]:
        def telling(*args: Any, **kwargs: Any) -> Any:
            if self._called_ones:
                self._by_hand |= self._called_ones
                self._called_ones.clear()
            return backward(*args, **kwargs)

        return telling

    def _telling_loss(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def loss_call(loss: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            # Not what was there before: others, such as torch.fx, replace it for a while too.
            output = torch.nn.Module.__call__(loss, *args, **kwargs)
            hook = self._hook()
            if hook is not None and not is_traced() and self._stands_alone(hook, loss):
                # Not registered: many models make one for every batch.
                hook.loss_computed(loss, args, kwargs, output)
            return output

        return loss_call

    def _stands_alone(self, hook: Hook, loss: torch.nn.Module) -> bool:
        """Whether a loss is no part of a registered model, which is watched with its parts."""
        mark = (registered_parts(), len(self._roots), hook.has_registered_module)
        if self._parts[0] != mark:
            self._parts = (mark, {id(each) for each in hook.module_set})
        return id(loss) not in self._parts[1]

    # ---- finding the modules

    def _look(self) -> None:
        """Has the calls of modules looked at from now on."""
        if self._job.has_trainer:
            return
        hook = self._hook()
        self._since = 0 if hook is None else hook.step
        if self._calls is None:
            self._calls = patch(torch.nn.Module, "__call__", self._outermost.telling)

    def _looks(self) -> bool:
        # In a graph that is compiled the first question is a constant. What torch.compile has kept
        # of a module asks the second one when nobody looks any more.
        return not torch.compiler.is_compiling() and self._calls is not None

    def _stop_looking(self) -> None:
        if self._calls is not None:
            self._calls.remove()
            self._calls = None

    def _called(self, module: torch.nn.Module) -> None:
        """Registers an outermost module if it is trained and not registered yet."""
        hook = self._hook()
        if self._job.has_trainer or (hook is not None and self._is_over(hook)):
            self._stop_looking()
            return
        if self._thread not in (None, threading.get_ident()) or not self._is_new(module):
            return
        # What makes no sense, or cannot be saved there, is an error of this call.
        hook = self._job.hook(Hook)
        if hook is None:
            self._stop_looking()
            return
        self._thread = threading.get_ident()
        try:
            self._drop(module)
            self._register(hook, module)
        except Exception as error:
            self._left_alone.add(module)
            logger.warning("%s is not watched: %s", type(module).__name__, error)

    def _is_over(self, hook: Hook) -> bool:
        return hook.closed or hook.step - self._since > _PATIENCE

    def _register(self, hook: Hook, module: torch.nn.Module) -> None:
        if not self._roots:
            # A job that goes on does not begin at 0.
            self._since = hook.step
        trainers = self._trainers(module)
        alone = not any(trainers & self._trainers(root) for root in self._roots)
        handle = hook.register_module(module, begins_steps=alone, follow_training=True)
        self._roots[module] = handle
        self._losses = self._losses or BackwardLosses(self._hook)
        logger.info("the hook watches %s", type(module).__name__)
        if not self._held() - self._covered():
            self._stop_looking()

    def _is_new(self, module: torch.nn.Module) -> bool:
        """Whether a module is trained, and no registered one has it for a part."""
        # A dataclass has no hash, and most of torch has no use for a module without one.
        if type(module).__hash__ is None or module in self._left_alone:
            return False
        parameters = {id(each) for each in module.parameters()}
        if parameters <= self._covered():
            return False
        if self._optimizers:
            return bool(parameters & (self._held() - self._covered()))
        # Other frameworks train modules of PyTorch too, by means of their own.
        if self._job.made is not None:
            return False
        if torch.is_grad_enabled():
            self._called_ones.add(module)
        return module in self._by_hand

    def _drop(self, module: torch.nn.Module) -> None:
        """Takes back what a new module has for a part, and what is no longer trained."""
        parts = {id(each) for each in module.modules()}
        if self._roots and self._optimizers:
            self._collect_garbage()
        for root, handle in list(self._roots.items()):
            if id(root) in parts or (self._optimizers and not self._trainers(root)):
                handle.remove()
                del self._roots[root]

    def _collect_garbage(self) -> None:
        """Finds optimizers that are gone: one and its scheduler hold each other."""
        ended, seconds = self._collected
        now = time.monotonic()
        # Some scripts make a model for every sample.
        if now - ended >= 100 * seconds:
            gc.collect()
            self._collected = (time.monotonic(), time.monotonic() - now)

    def _trainers(self, module: torch.nn.Module) -> set[int]:
        """The optimizers that hold a parameter of a module."""
        parameters = {id(each) for each in module.parameters()}
        return {id(each) for each in self._optimizers if parameters & _held_by(each)}

    def _held(self) -> set[int]:
        return {key for each in self._optimizers for key in _held_by(each)}

    def _covered(self) -> set[int]:
        hook = self._hook()
        parts = () if hook is None else hook.module_set
        return {id(each) for part in parts for each in part.parameters(recurse=False)}


def _held_by(optimizer: torch.optim.Optimizer) -> set[int]:
    return {id(each) for group in optimizer.param_groups for each in group["params"]}


def instrument(job: InstrumentedJob, package: ModuleType) -> None:
    """Instruments the package."""
    PytorchWatch(job)
