"""Inputs and outputs of modules during the forward pass of a saving step.

Which modules are relevant is learned at the first step of its kind, at which all of them are
watched: the names of their tensors are known only then. Afterwards only those with a tensor that is
saved have hooks, and only while the forward pass of the registered module runs.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import torch

from smdebug.config.log import WarnOnce
from smdebug.hook.naming import StepNames, may_be_relevant, tensors_in
from smdebug.pytorch.context import in_backward
from smdebug.pytorch.registration import Callback, HookSet

if TYPE_CHECKING:
    from collections.abc import Callable

    from smdebug.hook.pipeline import Pipeline
    from smdebug.hook.plan import StepCache, StepPlan
    from smdebug.pytorch.registration import Registration

logger = logging.getLogger("smdebug.hook")

_KINDS = ("input", "output")
_NOT_INTO_COMPILED = (
    "rules do not look into a compiled model: it would have to run eagerly. Its inputs and "
    "outputs, parameters and gradients are checked; compile it later, or name its layers in "
    "include_regex, to have them checked, too"
)


class Activations:
    """Watches the modules of a registration while its forward pass runs.

    Args:
        pipeline: the pipeline of the hook.
        known_regexes: those that say nothing about names of tensors that were not seen yet; the
            adapter adds to them.
    """

    def __init__(self, pipeline: Pipeline, known_regexes: set[str]) -> None:
        self._pipeline = pipeline
        self._known_regexes = known_regexes
        # Collections that exist for rules only.
        self._of_rules = frozenset(each.collection.name for each in pipeline.collections.of_rules)
        self._relevant: StepCache[bool] = pipeline.new_cache()
        self._watched: StepCache[list[tuple[str, bool, bool]]] = pipeline.new_cache()
        self._warnings = WarnOnce(logger)
        self._hooks = HookSet()
        self._stance: Any = None
        self._names = StepNames()
        self._plan: StepPlan | None = None
        self._learning: dict[str, bool] | None = None
        self._registration: Registration | None = None

    @property
    def runs_eagerly(self) -> bool:
        """Whether the forward pass that is watched does not run as a compiled graph."""
        return self._stance is not None

    def begin_step(self) -> None:
        """Start counting names again."""
        self._names = StepNames()

    def watch(self, registration: Registration, plan: StepPlan, args: Any, kwargs: Any) -> bool:
        """Attach to the relevant modules: the forward pass of the registration is about to run.

        Returns:
            False if none is relevant.
        """
        self.stop()
        self._registration, self._plan = registration, plan
        modules = self._modules_to_watch(registration, plan)
        if not modules:
            self._registration = self._plan = None
            return False
        if not registration.in_place:
            callback = Callback(self.root_ended, takes=4)
            handle = registration.module.register_forward_hook(
                callback, with_kwargs=True, always_call=True
            )
            self._hooks.add(handle)
        for path, inputs, outputs in modules:
            if path == registration.name:
                if inputs:
                    self.offer(path, "input", args, kwargs)
                continue
            module = registration.modules[path]
            if inputs:
                callback = Callback(self._input_callback(path), takes=3)
                self._hooks.add(module.register_forward_pre_hook(callback, with_kwargs=True))
            if outputs:
                callback = Callback(self._output_callback(path), takes=4)
                self._hooks.add(module.register_forward_hook(callback, with_kwargs=True))
        inner = any(path != registration.name for path, _, _ in modules)
        if inner and registration.compiled:
            # Hooks are invisible to a compiled graph. Nothing is compiled again for this.
            self._stance = torch.compiler.set_stance("force_eager")
        return True

    def _modules_to_watch(
        self, registration: Registration, plan: StepPlan
    ) -> list[tuple[str, bool, bool]]:
        """Return the modules, and whether to watch their inputs and their outputs."""
        key = (registration, registration.version)
        known = self._watched.peek(plan, key)
        if known is not None:
            return known
        if not registration.compiled:
            self._learning = {}
            return [(path, True, True) for path in registration.modules]
        # Learning would run the step eagerly, which rounds differently: guess from the names.
        everything = {f"{path}|{kind}": False for path in registration.modules for kind in _KINDS}
        modules = self._learned(registration, plan, everything)
        rest = [each for each in modules if each[0] != registration.name]
        known = [(registration.name, True, True), *rest]
        self._watched.put(plan, key, known)
        return known

    def offer(self, path: str, kind: str, value: Any, keywords: Any = None) -> None:
        """Name and offer the tensors in an input or output of a module."""
        names = []
        for given in (value, keywords or {}):
            for keys, tensor in tensors_in(given, torch.Tensor):
                names.append(self._names.next(path, kind, keys))
                self._pipeline.offer(names[-1], tensor)
        if self._learning is not None:
            key, plan = f"{path}|{kind}", self._plan
            relevant = plan is not None and any(plan.is_relevant(name) for name in names)
            self._learning[key] = self._learning.get(key, False) or relevant

    def stop(self) -> None:
        """Remove the hooks from the modules."""
        if self._stance is not None:
            self._stance.__exit__(None, None, None)
            self._stance = None
        self._hooks.remove()
        self._learning = self._plan = self._registration = None

    def _input_callback(self, path: str) -> Callable[..., None]:
        def before(module: torch.nn.Module, args: Any, kwargs: Any) -> None:
            if not in_backward():
                with self._pipeline.guarded:
                    self.offer(path, "input", args, kwargs)

        return before

    def _output_callback(self, path: str) -> Callable[..., None]:
        def after(module: torch.nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            if not in_backward():
                with self._pipeline.guarded:
                    self.offer(path, "output", output)

        return after

    def root_ended(self, module: torch.nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        """Capture the output of the registered module; its forward pass is over."""
        registration, plan = self._registration, self._plan
        if registration is None or plan is None:
            return
        with self._pipeline.guarded:
            try:
                # After an exception there is no output, and the relevant modules are not all known.
                if output is not None:
                    self.offer(registration.name, "output", output)
                    if self._learning is not None:
                        key = (registration, registration.version)
                        learned = self._learned(registration, plan, self._learning)
                        self._watched.put(plan, key, learned)
            finally:
                self.stop()

    def _learned(
        self, registration: Registration, plan: StepPlan, seen: dict[str, bool]
    ) -> list[tuple[str, bool, bool]]:
        found = []
        for path in registration.modules:
            inputs, outputs = (
                # A module that was not called may be called the next time.
                seen.get(f"{path}|{kind}", True)
                or self.may_be_relevant(plan, path, kind, registration.compiled)
                for kind in _KINDS
            )
            if inputs or outputs:
                found.append((path, inputs, outputs))
        return found

    def may_be_relevant(self, plan: StepPlan, path: str, kind: str, compiled: bool = False) -> bool:
        """Return whether a tensor of a module, even one not seen yet, would be saved.

        A compiled module would have to run eagerly, which rounds differently: the collections of
        rules do not count there.
        """

        def compute() -> bool:
            ignored = self._of_rules if compiled else ()
            known = self._known_regexes
            relevant = may_be_relevant(plan, path, kind, known, ignored)
            if compiled and not relevant and may_be_relevant(plan, path, kind, known):
                self._warnings.warning("compiled", _NOT_INTO_COMPILED)
            return relevant

        return self._relevant.get(plan, (path, kind, compiled), compute)
