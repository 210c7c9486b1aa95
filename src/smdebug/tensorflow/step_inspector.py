"""What the hook for Keras sees inside of steps: which function runs at which step."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from smdebug.mode_keys import ModeKeys
from smdebug.tensorflow.backend import keras_backend
from smdebug.tensorflow.function_proxy import FunctionProxy, put_in_place, take_away
from smdebug.tensorflow.functions import (
    KINDS,
    CaptureRequest,
    can_look_inside,
    steps_per_execution,
)
from smdebug.tensorflow.naming import gradient_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from smdebug.hook.plan import SavePlan, StepPlan
    from smdebug.tensorflow.layers import ModelNames

logger = logging.getLogger("smdebug.hook")

_NOT_SEEN = (
    "the inside of a step cannot be seen: weights, optimizer variables, losses and metrics are "
    "saved; gradients, layers, inputs, labels and predictions are not"
)
# How far one asks for what has numbers: a regex that finds higher ones finds these as a rule.
_MOST_NUMBERS = 10
_USUAL_WEIGHTS = ("kernel", "bias")


class StepInspector:
    """Looks into the steps of one model at a time.

    Args:
        say: logs a warning, once.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._model: Any = None
        self._places: dict[ModeKeys, FunctionProxy] = {}
        # Those that were in place before, with what was traced for them.
        self._before: dict[ModeKeys, FunctionProxy] = {}
        # What is asked in each mode; None where nothing of the inside is ever saved.
        self._known: dict[ModeKeys, tuple[object, CaptureRequest | None]] = {}
        self._received: dict[str, tuple[Any, ...]] = {}
        # Whether the model had all its layers and variables when that was found out.
        self._complete = True

    def put_in_place(self, model: Any, mode: ModeKeys) -> None:
        """Makes room for another function in the place of a model's own."""
        if model is not self._model:
            self.take_away()
            self._before.clear()
            self._model = model
        self._received = {}
        stand_in = put_in_place(model, KINDS[mode], self._before.get(mode))
        if stand_in is not None:
            self._places[mode] = self._before[mode] = stand_in

    def take_away(self) -> None:
        """Gives the model its own functions back."""
        self._received = {}
        for mode, stand_in in self._places.items():
            take_away(self._model, KINDS[mode], stand_in)
        self._places.clear()

    def forget(self) -> None:
        """Lets go of the model and of everything that was made for it."""
        self.take_away()
        self._known.clear()
        self._before.clear()
        self._model = None

    @property
    def running(self) -> bool:
        """Whether a step of the model runs."""
        return any(place.running for place in self._places.values())

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
        self._received = {}
        stand_in = self._places.get(mode)
        if stand_in is None:
            return
        # Compiling a model, or asking for other tensors, makes it another function.
        about = (stand_in.own, plan, optimizers)
        known = self._known.get(mode)
        if known is not None and known[1] is None and not self._complete:
            # It may have got layers and variables since.
            known = None
        if known is None or known[0] != about:
            question = None
            self._complete = names().complete
            if self._is_ever_needed(mode, plan, names()):
                layers = any(plan.ever(mode, name) for name in _layer_names(names()))
                question = CaptureRequest(about, _wanted_in(mode, plan), optimizers, layers)
            known = self._known[mode] = about, question
        if known[1] is None:
            return
        function = stand_in.function(self, known[1])
        # The first step finds out whether the two functions may take turns.
        needed = not function.called or function.stateful or _is_needed(step, names)
        stand_in.let_run(self, needed)

    def seen(self) -> dict[str, tuple[Any, ...]]:
        """Returns what the last step showed: for each name a tensor of every replica."""
        received, self._received = self._received, {}
        return received

    def receive(self, inside: dict[str, tuple[Any, ...]]) -> None:
        """Takes what a step has shown."""
        self._received = inside

    def give_up(self, why: str) -> None:
        """Says that the steps of the model cannot be looked into."""
        logger.warning(why)

    def _is_ever_needed(self, mode: ModeKeys, plan: SavePlan, names: ModelNames) -> bool:
        if not any(plan.ever(mode, name) for name in _inside_names(mode, names)):
            return False
        if keras_backend() == "jax":
            self._say(f"on the JAX backend of Keras {_NOT_SEEN}")
        elif not can_look_inside(self._model):
            self._say(f"under {type(self._model.distribute_strategy).__name__} {_NOT_SEEN}")
        elif steps_per_execution(self._model) > 1:
            self._say(f"with steps_per_execution > 1 {_NOT_SEEN}")
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
    yield from _numbered(["inputs", "labels", "predictions"], 10 * _MOST_NUMBERS)
    yield from _layer_names(names)
    if mode is ModeKeys.TRAIN:
        yield from (weight.gradient for weight in names.weights)
        if not names.complete:
            layers = ["layer", *(name for _, name in names.named_layers)]
            yield from (gradient_name(f"{each}/{w}") for each in layers for w in _USUAL_WEIGHTS)


def _layer_names(names: ModelNames) -> Iterator[str]:
    layers = [name for _, name in names.named_layers]
    # A model that has seen no data may get layers that it does not have yet.
    layers += [] if names.complete else ["layer"]
    return _numbered(f"{layer}/{kind}" for layer in layers for kind in ("inputs", "outputs"))


def _numbered(bases: Iterable[str], numbers: int = _MOST_NUMBERS) -> Iterator[str]:
    for base in bases:
        yield base
        yield from (f"{base}_{place}" for place in range(numbers))
