"""Decides at which steps of a Keras model the instrumented function runs, and keeps its results."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from smdebug.mode_keys import ModeKeys
from smdebug.tensorflow.backend import keras_backend, tf
from smdebug.tensorflow.keras.function_proxy import FunctionProxy, install_proxy, remove_proxy
from smdebug.tensorflow.keras.step_function import MODEL_FUNCTIONS, CaptureRequest
from smdebug.tensorflow.naming import gradient_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from smdebug.hook.pipeline import Pipeline
    from smdebug.hook.plan import SavePlan, StepCache, StepPlan
    from smdebug.tensorflow.keras.layers import ModelNames, NamedModel

logger = logging.getLogger("smdebug.hook")

_LIMITS = (
    "tensors inside a step cannot be saved: weights, optimizer variables, losses and metrics are "
    "saved; gradients, layers, inputs, labels and predictions are not"
)
# How many numbered names are probed: a regex that matches higher numbers usually matches these.
_PROBED = 10
_USUAL_WEIGHTS = ("kernel", "bias")


class StepInspector:
    """Records the tensors inside the steps of one model at a time.

    Args:
        pipeline: the pipeline.
        named: names the layers and variables of the model.
        warn_once: logs a warning, unless it was logged before.
    """

    def __init__(
        self, pipeline: Pipeline, named: NamedModel, warn_once: Callable[[str], None]
    ) -> None:
        self._pipeline = pipeline
        self._named = named
        self._warn_once = warn_once
        self._needed: StepCache[bool] = pipeline.new_cache()
        self._model: Any = None
        self._installed: dict[ModeKeys, FunctionProxy] = {}
        # The last proxy of each mode, with the functions that were traced for it.
        self._proxies: dict[ModeKeys, FunctionProxy] = {}
        # The request of each mode and what it depends on; None where nothing is ever recorded.
        self._requests: dict[ModeKeys, tuple[object, CaptureRequest | None]] = {}
        # Whether the model was built when the last request was made.
        self._complete = True
        self._recorded: dict[str, tuple[Any, ...]] = {}

    def install(self, model: Any, mode: ModeKeys) -> None:
        """Put a proxy in the place of a model's function."""
        if model is not self._model:
            self.remove()
            self._proxies.clear()
            self._model = model
        self._recorded = {}
        proxy = install_proxy(model, MODEL_FUNCTIONS[mode], self._proxies.get(mode))
        if proxy is not None:
            self._installed[mode] = self._proxies[mode] = proxy

    def remove(self) -> None:
        """Give the model its own functions back."""
        self._recorded = {}
        for mode, proxy in self._installed.items():
            remove_proxy(self._model, MODEL_FUNCTIONS[mode], proxy)
        self._installed.clear()

    def forget(self) -> None:
        """Drop the model and everything that was made for it."""
        self.remove()
        self._requests.clear()
        self._proxies.clear()
        self._model = None

    @property
    def running(self) -> bool:
        """Whether a step of the model runs."""
        return any(proxy.running for proxy in self._installed.values())

    def prepare(self, mode: ModeKeys, step: StepPlan | None, optimizers: tuple[Any, ...]) -> None:
        """Have the instrumented function run at the next step, if that needs it.

        Args:
            mode: the mode of the step.
            step: its plan; None when nothing is saved at it.
            optimizers: optimizers that the model does not hold.
        """
        self._recorded = {}
        proxy = self._installed.get(mode)
        if proxy is None:
            return
        plan = self._pipeline.plan
        # Another function is needed after the model was compiled, or the plan has changed.
        key = (proxy.original, plan, optimizers)
        known = self._requests.get(mode)
        if known is not None and known[1] is None and not self._complete:
            # It may have got layers and variables since.
            known = None
        if known is None or known[0] != key:
            names, request = self._named.names(), None
            self._complete = names.complete
            if self._can_be_needed(mode, plan, names):
                layers = any(plan.ever(mode, name) for name in _layer_names(names))
                request = CaptureRequest(
                    key, lambda name: plan.ever(mode, name), optimizers, layers
                )
            known = self._requests[mode] = key, request
        if known[1] is None:
            return
        function = proxy.function(self, known[1])
        # The first call finds out whether the two functions may alternate.
        needed = not function.called or function.stateful or self._is_needed(step)
        proxy.set_needed(self, needed)

    def _can_be_needed(self, mode: ModeKeys, plan: SavePlan, names: ModelNames) -> bool:
        """Return whether any step of a mode saves tensors inside the step; warn if it cannot."""
        if not any(plan.ever(mode, name) for name in _possible_names(mode, names)):
            return False
        if keras_backend() == "jax":
            self._warn_once(f"on the JAX backend of Keras {_LIMITS}")
        elif not _can_alternate(self._model):
            self._warn_once(f"under {type(self._model.distribute_strategy).__name__} {_LIMITS}")
        elif _steps_per_execution(self._model) > 1:
            self._warn_once(f"with steps_per_execution > 1 {_LIMITS}")
        else:
            return True
        return False

    def _is_needed(self, step: StepPlan | None) -> bool:
        if step is None:
            return False
        return self._needed.get(
            step,
            "recording",
            lambda: any(map(step.is_relevant, _possible_names(step.mode, self._named.names()))),
        )

    def take(self) -> dict[str, tuple[Any, ...]]:
        """Return the tensors inside the last step: for each name one of every replica."""
        recorded, self._recorded = self._recorded, {}
        return recorded

    def receive(self, recorded: dict[str, tuple[Any, ...]]) -> None:
        """Receive the tensors inside a step from the proxy."""
        self._recorded = recorded

    def give_up(self, reason: str) -> None:
        """Log why the steps of the model cannot be instrumented."""
        logger.warning(reason)


def _can_alternate(model: Any) -> bool:
    """Return whether a second function may run in turn with the model's own.

    Processes that train together must run the same functions at the same time.
    """
    if keras_backend() != "tensorflow":
        return keras_backend() == "torch"
    strategy = model.distribute_strategy
    known = tf.distribute.MirroredStrategy, tf.distribute.OneDeviceStrategy
    return isinstance(strategy, known) or "Default" in type(strategy).__name__


def _steps_per_execution(model: Any) -> int:
    steps = getattr(model, "_steps_per_execution", None)
    if steps is None:
        steps = getattr(model, "steps_per_execution", None) or 1
    return int(steps.numpy()) if hasattr(steps, "numpy") else int(steps)


def _possible_names(mode: ModeKeys, names: ModelNames) -> Iterator[str]:
    """Yield names that tensors inside a step may have."""
    yield from _numbered(["inputs", "labels", "predictions"], 10 * _PROBED)
    yield from _layer_names(names)
    if mode is ModeKeys.TRAIN:
        yield from (weight.gradient for weight in names.weights)
        if not names.complete:
            layers = ["layer", *(name for _, name in names.named_layers)]
            yield from (gradient_name(f"{each}/{w}") for each in layers for w in _USUAL_WEIGHTS)


def _layer_names(names: ModelNames) -> Iterator[str]:
    layers = [name for _, name in names.named_layers]
    # A model that is not built may get layers later.
    layers += [] if names.complete else ["layer"]
    return _numbered(f"{layer}/{kind}" for layer in layers for kind in ("inputs", "outputs"))


def _numbered(bases: Iterable[str], numbers: int = _PROBED) -> Iterator[str]:
    for base in bases:
        yield base
        yield from (f"{base}_{number}" for number in range(numbers))
