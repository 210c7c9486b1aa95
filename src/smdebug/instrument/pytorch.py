"""Instrument PyTorch: register the root modules that an optimizer updates, and their losses."""

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
from smdebug.instrument.calls import report_root_calls
from smdebug.pytorch.backward_losses import BackwardLosses
from smdebug.pytorch.context import is_traced
from smdebug.pytorch.hook import Hook
from smdebug.pytorch.registration import registered_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import ModuleType

    from smdebug.hook.handles import Handle
    from smdebug.instrument.job import InstrumentedJob

logger = logging.getLogger("smdebug.instrument")

# While modules are searched for, every call of a module runs Python code of ours. A module that is
# not called within this many steps is given up.
_MAX_SEARCH_STEPS = 100


def instrument(job: InstrumentedJob, package: ModuleType) -> None:
    """Register the modules and losses that training calls."""
    ModuleRegistration(job)


class ModuleRegistration:
    """Registers what training calls, as manual instrumentation would.

    A module is registered if an optimizer holds one of its parameters and no other module calls it.
    This excludes parts that a model tries out while it is built, teachers and metrics. In a script
    without optimizers a module is registered once a backward pass has followed its call. Modules
    that one optimizer updates together share their steps. Only the first thread that trains is
    instrumented.

    Args:
        job: creates the hook.
    """

    def __init__(self, job: InstrumentedJob) -> None:
        self._job = job
        self._optimizers: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
        self._roots: dict[torch.nn.Module, Handle] = {}
        self._skipped: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
        self._thread: int | None = None
        # The patch of Module.__call__ while modules are searched for, and the step it began at.
        self._search: Handle | None = None
        self._search_start = 0
        self._on_root_calls = report_root_calls(self._is_searching, self._on_root_call)
        # In scripts without optimizers: modules called, and those followed by a backward pass.
        self._called: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
        self._differentiated: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
        # The IDs of registered modules, and the registrations that they were collected for.
        self._registered: tuple[object, set[int]] = (None, set())
        self._losses: BackwardLosses | None = None
        # When the last garbage collection ended, and how long it took.
        self._last_collection = (0.0, 0.0)
        patch(torch.optim.Optimizer, "add_param_group", self._wrap_add_param_group)
        patch(torch, "compile", self._wrap_compile)
        patch(torch.nn.Module, "compile", self._wrap_compile)
        patch(torch.autograd, "backward", self._wrap_backward)
        patch(_Loss, "__call__", self._wrap_loss_call)
        self._start_search()

    def _active_hook(self) -> Hook | None:
        """Return the hook, once a module is registered with it."""
        hook = self._job.hook
        return hook if isinstance(hook, Hook) and hook.has_registered_module else None

    # ---- replacements of PyTorch's functions

    def _wrap_add_param_group(self, add: Callable[..., Any]) -> Callable[..., Any]:
        def add_param_group(optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
            result = add(optimizer, *args, **kwargs)
            self._optimizers.add(optimizer)
            self._start_search()
            return result

        return add_param_group

    def _wrap_compile(self, compile: Callable[..., Any]) -> Callable[..., Any]:
        def compile_model(*args: Any, **kwargs: Any) -> Any:
            result = compile(*args, **kwargs)
            model = args[0] if args else None
            if isinstance(model, torch.nn.Module) and model in self._roots:
                # From now on another module is called, or this one in another way.
                self._roots.pop(model).remove()
            self._start_search()
            return result

        return compile_model

    def _wrap_backward(self, backward: Callable[..., Any]) -> Callable[..., Any]:
        def backward_pass(*args: Any, **kwargs: Any) -> Any:
            if self._called:
                self._differentiated |= self._called
                self._called.clear()
            return backward(*args, **kwargs)

        return backward_pass

    def _wrap_loss_call(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def loss_call(loss: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            # Looked up at each call, because torch.fx replaces it for a while.
            output = torch.nn.Module.__call__(loss, *args, **kwargs)
            hook = self._active_hook()
            if hook is not None and not is_traced() and not self._is_registered(hook, loss):
                # Not registered: many models create a loss for every batch.
                hook.loss_computed(loss, args, kwargs, output)
            return output

        return loss_call

    def _is_registered(self, hook: Hook, loss: torch.nn.Module) -> bool:
        """Return whether a loss is part of a registered model."""
        registrations = (registered_parts(), len(self._roots), hook.has_registered_module)
        if self._registered[0] != registrations:
            self._registered = (registrations, {id(each) for each in hook.module_set})
        return id(loss) in self._registered[1]

    # ---- search for modules

    def _start_search(self) -> None:
        if self._job.has_trainer:
            return
        hook = self._active_hook()
        self._search_start = 0 if hook is None else hook.step
        if self._search is None:
            self._search = patch(torch.nn.Module, "__call__", self._on_root_calls)

    def _is_searching(self) -> bool:
        # While torch.compile traces, the first condition is a constant, so that no guard depends on
        # the second. Code that was compiled during a search evaluates the second one afterwards.
        return not torch.compiler.is_compiling() and self._search is not None

    def _stop_search(self) -> None:
        if self._search is not None:
            self._search.remove()
            self._search = None

    def _on_root_call(self, module: torch.nn.Module) -> None:
        """Register a root module if it is trained and not registered yet."""
        hook = self._active_hook()
        is_over = hook is not None and (
            hook.closed or hook.step - self._search_start > _MAX_SEARCH_STEPS
        )
        if self._job.has_trainer or is_over:
            self._stop_search()
            return
        if self._thread not in (None, threading.get_ident()) or not self._is_wanted(module):
            return
        # Errors in the config, or in writing to out_dir, are raised by this call of the module.
        hook = self._job.hook_for(Hook)
        if hook is None:
            self._stop_search()
            return
        self._thread = threading.get_ident()
        try:
            self._unregister_replaced(module)
            self._register(hook, module)
        except Exception as error:
            self._skipped.add(module)
            logger.warning("Not instrumenting %s: %s", type(module).__name__, error)

    def _is_wanted(self, module: torch.nn.Module) -> bool:
        """Return whether a module is trained and not part of a registered one."""
        # A dataclass has no hash, and most of PyTorch does not accept such a module.
        if type(module).__hash__ is None or module in self._skipped:
            return False
        parameters = _ids(module.parameters())
        if parameters <= self._registered_parameters():
            return False
        if self._optimizers:
            return bool(parameters & (self._optimized_parameters() - self._registered_parameters()))
        # Other frameworks train modules of PyTorch too, with optimizers of their own.
        if self._job.hook is not None:
            return False
        if torch.is_grad_enabled():
            self._called.add(module)
        return module in self._differentiated

    def _unregister_replaced(self, module: torch.nn.Module) -> None:
        """Unregister modules that are part of a new one, and those that are no longer trained."""
        parts = _ids(module.modules())
        if self._roots and self._optimizers:
            self._collect_garbage()
        for root, handle in list(self._roots.items()):
            if id(root) in parts or (self._optimizers and not self._optimizers_of(root)):
                handle.remove()
                del self._roots[root]

    def _collect_garbage(self) -> None:
        """Delete unused optimizers, which are in a reference cycle with their schedulers."""
        ended, seconds = self._last_collection
        now = time.monotonic()
        # At most 1 % of the time, for scripts that create a model for every sample.
        if now - ended >= 100 * seconds:
            gc.collect()
            self._last_collection = (time.monotonic(), time.monotonic() - now)

    def _register(self, hook: Hook, module: torch.nn.Module) -> None:
        if not self._roots:
            # A resumed job does not begin at step 0.
            self._search_start = hook.step
        optimizers = self._optimizers_of(module)
        begins_steps = not any(optimizers & self._optimizers_of(root) for root in self._roots)
        handle = hook.register_module(module, begins_steps=begins_steps, follow_training=True)
        self._roots[module] = handle
        self._losses = self._losses or BackwardLosses(self._active_hook)
        count = sum(1 for _ in module.parameters())
        logger.info("Attached to %s (%d parameters)", type(module).__name__, count)
        if self._optimized_parameters() <= self._registered_parameters():
            self._stop_search()

    def _optimizers_of(self, module: torch.nn.Module) -> set[int]:
        parameters = _ids(module.parameters())
        return {id(each) for each in self._optimizers if parameters & _parameters_of(each)}

    def _optimized_parameters(self) -> set[int]:
        return {key for each in self._optimizers for key in _parameters_of(each)}

    def _registered_parameters(self) -> set[int]:
        hook = self._active_hook()
        modules = () if hook is None else hook.module_set
        return {id(each) for module in modules for each in module.parameters(recurse=False)}


def _parameters_of(optimizer: torch.optim.Optimizer) -> set[int]:
    return _ids(each for group in optimizer.param_groups for each in group["params"])


def _ids(objects: Iterable[object]) -> set[int]:
    return {id(each) for each in objects}
