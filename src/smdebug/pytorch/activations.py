"""What modules take and return during the forward of a saving step.

Which modules are of interest is learned from the first step of its kind, at which all of them are
watched: the names of their tensors are known only then. Afterwards only those with a tensor that is
wanted carry hooks, and only while the forward of the registered module runs.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import torch

from smdebug.hook.naming import StepNames, cares, tensors_in
from smdebug.pytorch.context import in_backward
from smdebug.pytorch.registration import Callback, HookSet

if TYPE_CHECKING:
    from collections.abc import Callable

    from smdebug.hook.plan import StepPlan
    from smdebug.pytorch.registration import Registration

logger = logging.getLogger("smdebug.hook")

_KINDS = ("input", "output")


class Activations:
    """Watches the modules of a registration while its forward runs.

    Args:
        offer: takes one tensor.
        entered: a context for everything done in a callback.
        known_regexes: those that have nothing to say about names of tensors that were not seen yet;
            the hook adds to them.
        of_rules: the collections that are there for rules only.
    """

    def __init__(
        self,
        offer: Callable[[str, torch.Tensor], None],
        entered: Callable[[], Any],
        known_regexes: set[str],
        of_rules: frozenset[str] = frozenset(),
    ) -> None:
        self._known_regexes = known_regexes
        self._of_rules = of_rules
        self._told = False
        self._offer_tensor = offer
        self._entered = entered
        self._hooks = HookSet()
        self._stance: Any = None
        self._names = StepNames()
        self._plan: StepPlan | None = None
        self._learning: dict[str, bool] | None = None
        self._registration: Registration | None = None

    @property
    def runs_eagerly(self) -> bool:
        """Whether the forward that is watched does not run as a compiled graph."""
        return self._stance is not None

    def begin_step(self) -> None:
        """Starts counting names anew."""
        self._names = StepNames()

    def watch(self, registration: Registration, plan: StepPlan, args: Any, kwargs: Any) -> bool:
        """Attaches to the modules that matter; the forward of the registration is about to run.

        Returns:
            False if none matters.
        """
        self.stop()
        self._registration, self._plan = registration, plan
        wanted = self._wanted(registration, plan)
        if not wanted:
            self._registration = self._plan = None
            return False
        if not registration.in_place:
            callback = Callback(self.root_ended, takes=4)
            handle = registration.module.register_forward_hook(
                callback, with_kwargs=True, always_call=True
            )
            self._hooks.add(handle)
        for path, inputs, outputs in wanted:
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
        inner = any(path != registration.name for path, _, _ in wanted)
        if inner and registration.compiled:
            # Hooks are invisible to a compiled graph. Nothing is compiled again for this.
            self._stance = torch.compiler.set_stance("force_eager")
        return True

    def _wanted(self, registration: Registration, plan: StepPlan) -> list[tuple[str, bool, bool]]:
        """The modules to watch, and whether for their inputs and for their outputs."""
        key = (registration, registration.version)
        known = plan.memory.get(key)
        if isinstance(known, list):
            return known
        if not registration.compiled:
            self._learning = {}
            return [(path, True, True) for path in registration.modules]
        # Learning would run the step eagerly, which rounds differently: think of names instead.
        everything = {f"{path}|{kind}": False for path in registration.modules for kind in _KINDS}
        wanted = self._learned(registration, plan, everything)
        rest = [each for each in wanted if each[0] != registration.name]
        plan.memory[key] = [(registration.name, True, True), *rest]
        return self._wanted(registration, plan)

    def offer(self, path: str, kind: str, value: Any, keywords: Any = None) -> None:
        """Names and offers the tensors of a value that a module takes or returns."""
        names = []
        for given in (value, keywords or {}):
            for keys, tensor in tensors_in(given, torch.Tensor):
                names.append(self._names.next(path, kind, keys))
                self._offer_tensor(names[-1], tensor)
        if self._learning is not None:
            place = f"{path}|{kind}"
            plan = self._plan
            wanted = plan is not None and any(plan.interesting(name) for name in names)
            self._learning[place] = self._learning.get(place, False) or wanted

    def stop(self) -> None:
        """Takes the hooks off the modules."""
        if self._stance is not None:
            self._stance.__exit__(None, None, None)
            self._stance = None
        self._hooks.remove()
        self._learning = self._plan = self._registration = None

    def _input_callback(self, path: str) -> Callable[..., None]:
        def before(module: torch.nn.Module, args: Any, kwargs: Any) -> None:
            if not in_backward():
                with self._entered():
                    self.offer(path, "input", args, kwargs)

        return before

    def _output_callback(self, path: str) -> Callable[..., None]:
        def after(module: torch.nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            if not in_backward():
                with self._entered():
                    self.offer(path, "output", output)

        return after

    def root_ended(self, module: torch.nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        """Takes what the registered module returned; its forward is over."""
        registration, plan = self._registration, self._plan
        if registration is None or plan is None:
            return
        with self._entered():
            try:
                # After an exception there is no output, and nothing to learn from half a forward.
                if output is not None:
                    self.offer(registration.name, "output", output)
                    if self._learning is not None:
                        key = (registration, registration.version)
                        plan.memory[key] = self._learned(registration, plan, self._learning)
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
                or self.cares(plan, path, kind, registration.compiled)
                for kind in _KINDS
            )
            if inputs or outputs:
                found.append((path, inputs, outputs))
        return found

    def cares(self, plan: StepPlan, path: str, kind: str, compiled: bool = False) -> bool:
        """Whether a tensor of a module, be it one that was not seen yet, would be wanted.

        A compiled module would have to run eagerly, which rounds differently: nobody asks for that
        who only names a rule.
        """
        key = (path, kind, compiled)
        if key not in plan.memory:
            besides = self._of_rules if compiled else ()
            plan.memory[key] = cares(plan, path, kind, self._known_regexes, besides)
            if compiled and not plan.memory[key] and cares(plan, path, kind, self._known_regexes):
                self._tell()
        return bool(plan.memory[key])

    def _tell(self) -> None:
        if not self._told:
            self._told = True
            logger.warning(
                "rules do not look into a compiled model: it would have to run eagerly. What it "
                "takes and returns, its parameters and gradients are looked at; compile it later, "
                "or ask for its layers by include_regex, to have them looked at too"
            )
