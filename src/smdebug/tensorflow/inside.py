"""What the hook for Keras sees inside of steps: which function runs at which step."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from smdebug.mode_keys import ModeKeys
from smdebug.tensorflow.backend import keras_backend, tf
from smdebug.tensorflow.functions import (
    KINDS,
    StandIn,
    StepFunction,
    can_look_inside,
    put_in_place,
    steps_per_execution,
    take_away,
)
from smdebug.tensorflow.naming import gradient_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from smdebug.hook.plan import SavePlan, StepPlan
    from smdebug.tensorflow.layers import ModelNames

logger = logging.getLogger("smdebug.hook")

_NOT_SEEN = (
    "the inside of a step cannot be seen: weights, optimizer variables, losses and metrics are "
    "saved; gradients, layers, inputs, labels and predictions are not"
)
# Names with higher numbers are found by their regexes.
_MOST_NUMBERS = 10


class Inside:
    """Looks into the steps of one model at a time.

    Args:
        say: logs a warning, once.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._model: Any = None
        self._places: dict[ModeKeys, StandIn] = {}
        self._functions: dict[ModeKeys, tuple[object, StepFunction | None]] = {}
        self._running: StepFunction | None = None

    def put_in_place(self, model: Any, mode: ModeKeys) -> None:
        """Makes room for another function in the place of a model's own."""
        if model is not self._model:
            self.take_away()
            self._model = model
        self._running = None
        stand_in = put_in_place(model, KINDS[mode])
        if stand_in is not None:
            self._places[mode] = stand_in

    def take_away(self) -> None:
        """Gives the model its own functions back."""
        self._running = None
        for mode, stand_in in self._places.items():
            take_away(self._model, KINDS[mode], stand_in)
        self._places.clear()

    def forget(self) -> None:
        """Lets go of the model and of everything that was made for it."""
        self.take_away()
        self._functions.clear()
        self._model = None

    def prepare(
        self,
        mode: ModeKeys,
        plan: SavePlan,
        step: StepPlan | None,
        names: Callable[[], ModelNames],
        optimizers: tuple[Any, ...],
    ) -> None:
        """Has another function run in the place of the model's own, if the next step needs it.

        Args:
            mode: the mode of the step.
            plan: what is ever saved.
            step: what is saved at this one.
            names: finds the names in the model.
            optimizers: those that the model does not hold itself.
        """
        self._running = None
        if mode not in self._places:
            return
        stand_in = self._places[mode]
        # Compiling a model, or asking for other tensors, makes it another function.
        key = (stand_in.own, plan, optimizers)
        known = self._functions.get(mode)
        if known is None or known[0] != key:
            function = None
            if self._is_ever_needed(mode, plan, names()):
                kind, own = KINDS[mode], stand_in.own
                wanted = _wanted_in(mode, plan)
                function = StepFunction(self._model, kind, own, wanted, optimizers)
            known = self._functions[mode] = key, function
        function = known[1]
        # The first step finds out whether the two functions may take turns.
        if function is not None and (
            not function.called or function.stateful or _is_needed(step, names)
        ):
            self._running = function
            stand_in.next = self._run

    @property
    def running(self) -> bool:
        """Whether a step of the model runs."""
        return any(place.running for place in self._places.values())

    def seen(self) -> dict[str, tuple[Any, ...]]:
        """Returns what the last step showed: for each name a tensor of every replica."""
        function, self._running = self._running, None
        if function is None:
            return {}
        inside, function.inside = function.inside, {}
        return inside

    def _run(self, *args: Any) -> Any:
        """Runs a step; Keras calls it in place of the model's own function."""
        function = self._running
        assert function is not None
        try:
            result = function(*args)
        except Exception as error:
            if function.ran or not _is_from_tracing(self._model, error):
                raise
            why = f"its step could not be traced a second time: {type(error).__name__}: {error}"
            self._give_up(function, why)
            return function.own(*args)
        if function.hidden:
            self._give_up(function, "its function does not run its step")
        return result

    def _give_up(self, function: StepFunction, why: str) -> None:
        """Leaves a model alone whose step cannot be looked into."""
        self._running = None
        for mode, (key, known) in self._functions.items():
            if known is function:
                self._functions[mode] = key, None
        logger.warning("the inside of %s is not saved: %s", type(self._model).__name__, why)

    def _is_ever_needed(self, mode: ModeKeys, plan: SavePlan, names: ModelNames) -> bool:
        if not any(plan.ever(mode, name) for name in _inside_names(mode, names)):
            return False
        if keras_backend() == "jax":
            self._say(f"on the JAX backend of Keras {_NOT_SEEN}")
        elif not can_look_inside(self._model):
            self._say(f"under {type(self._model.distribute_strategy).__name__} {_NOT_SEEN}")
        elif mode is ModeKeys.PREDICT and steps_per_execution(self._model) > 1:
            self._say(
                "predictions with steps_per_execution > 1 are not looked into: layers, inputs and "
                "predictions are saved with steps_per_execution=1"
            )
        else:
            return True
        return False


def _wanted_in(mode: ModeKeys, plan: SavePlan) -> Callable[[str], bool]:
    return lambda name: plan.ever(mode, name)


def _is_needed(step: StepPlan | None, names: Callable[[], ModelNames]) -> bool:
    """Whether a kind of step saves what is inside; found out once."""
    if step is None:
        return False
    known = step.memory.get("inside")
    if known is None:
        known = any(step.interesting(name) for name in _inside_names(step.mode, names()))
        step.memory["inside"] = known
    return bool(known)


def _inside_names(mode: ModeKeys, names: ModelNames) -> Iterator[str]:
    """Names that what is inside of a step may have."""
    layers = [name for _, name in names.named_layers]
    bases = ["inputs", "labels", "predictions"]
    # A model that has seen no data may get layers that it does not have yet.
    layers += [] if names.complete else ["layer"]
    bases += [f"{layer}/{kind}" for layer in layers for kind in ("inputs", "outputs")]
    for base in bases:
        yield base
        yield from (f"{base}_{place}" for place in range(_MOST_NUMBERS))
    if mode is ModeKeys.TRAIN:
        yield from (weight.gradient for weight in names.weights)
        if not names.complete:
            yield gradient_name("layer/kernel")


def _is_from_tracing(model: Any, error: Exception) -> bool:
    """Whether a failure came before anything was computed."""
    if keras_backend() != "tensorflow" or getattr(model, "run_eagerly", False):
        return False
    return not isinstance(error, StopIteration | tf.errors.OpError)
