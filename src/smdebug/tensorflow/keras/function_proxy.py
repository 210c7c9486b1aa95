"""Replaces the function that a Keras model runs for every batch."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any, Protocol

from smdebug.tensorflow.keras.step_function import CaptureRequest, StepFunction, is_from_tracing

if TYPE_CHECKING:
    from smdebug.tensorflow.keras.step_function import ModelFunction

logger = logging.getLogger("smdebug.hook")

_USER_CALLS = ("train_on_batch", "test_on_batch", "predict_on_batch")


class Observer(Protocol):
    """Receives the tensors inside a step."""

    def receive(self, recorded: dict[str, tuple[Any, ...]]) -> None:
        """Receive the tensors of a step: for each name one of every replica."""

    def give_up(self, reason: str) -> None:
        """Receive the reason why the steps of the model cannot be instrumented."""


class FunctionProxy:
    """Runs a model's own function or its instrumented twin.

    It is in the place of the model's function while that trains, evaluates or predicts. Several
    hooks that observe one model share it.

    Args:
        model: the model.
        attributes: the attributes of the model for the mode.

    Attributes:
        original: the model's own function, which runs unless an observer needs the twin.
        running: whether one of the two runs.
    """

    def __init__(self, model: Any, attributes: ModelFunction) -> None:
        self.original = getattr(model, attributes.function)
        self.running = False
        self._model = model
        self._attributes = attributes
        self._requests: dict[Observer, CaptureRequest] = {}
        self._waiting: list[Observer] = []
        self._function: StepFunction | None = None
        self._given_up = self._original_ran = self._warned = False

    def function(self, observer: Observer, request: CaptureRequest) -> StepFunction:
        """Return the function that serves a request, and those of all other observers."""
        known = self._requests.get(observer)
        if known is None or known.key != request.key:
            self._requests[observer] = request
            self._function = None
        if self._function is None:
            requests = tuple(self._requests.values())
            merged = CaptureRequest(
                None,
                lambda name: any(each.wanted(name) for each in requests),
                tuple(optimizer for each in requests for optimizer in each.optimizers),
                any(each.layers for each in requests),
            )
            self._function = StepFunction(self._model, self._attributes, self.original, merged)
        return self._function

    def set_needed(self, observer: Observer, needed: bool) -> None:
        """Set whether an observer needs the instrumented function to run at the next step."""
        # A step that began and did not take place has left its entry.
        self._waiting = [each for each in self._waiting if each is not observer]
        if needed:
            self._waiting.append(observer)

    def __call__(self, *args: Any) -> Any:
        # Not for a batch that the user's own code trains on in the middle of `fit`.
        by_user = sys._getframe(1).f_code.co_name in _USER_CALLS
        waiting = [] if by_user else self._waiting
        self.running = True
        try:
            return self._run(waiting, args) if waiting else self._run_original(args)
        finally:
            self.running = False

    def _run_original(self, args: tuple[Any, ...]) -> Any:
        function = self._function
        if function is not None and function.exclusive:
            return self._run([], args)
        try:
            result = self.original(*args)
        except Exception as error:
            first = function is not None and function.called and not self._original_ran
            if not first or self._given_up or not is_from_tracing(self._model, error):
                raise
            assert function is not None
            # Without the hook it would have been traced first, and would have worked.
            function.exclusive = True
            return self._run([], args)
        self._original_ran = True
        return result

    def _run(self, waiting: list[Observer], args: tuple[Any, ...]) -> Any:
        self._waiting = []
        function = self._function
        if function is None or self._given_up:
            return self._run_original(args)
        try:
            result = function(*args)
        except Exception as error:
            if function.ran or not is_from_tracing(self._model, error):
                raise
            self._give_up_tracing(error)
            return self._run_original(args)
        if function.exclusive and not self._warned:
            self._warned = True
            logger.warning(
                "%s.%s can be traced only once: the instrumented function runs at every step",
                type(self._model).__name__, self._attributes.step,
            )  # fmt: skip
        if function.failure is not None:
            self._give_up_tracing(function.failure)
        elif function.bypassed:
            self._give_up("its function does not run its step")
        recorded, function.recorded = function.recorded, {}
        for observer in waiting:
            observer.receive(recorded)
        return result

    def _give_up_tracing(self, error: Exception) -> None:
        message = f"{type(error).__name__}: {error}"
        self._give_up(f"its step could not be traced a second time: {message}")

    def _give_up(self, reason: str) -> None:
        """Run only the model's own function from now on."""
        self._given_up = True
        model = type(self._model).__name__
        for observer in self._requests:
            observer.give_up(f"tensors inside a step of {model} are not saved: {reason}")

    def __getattr__(self, name: str) -> Any:
        # Keras reads attributes of the function; a copy that is being made has none yet.
        if name == "original" or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.original, name)


def install_proxy(
    model: Any, attributes: ModelFunction, previous: FunctionProxy | None
) -> FunctionProxy | None:
    """Put a proxy in the place of a model's function; None if there is no function.

    Args:
        model: the model.
        attributes: the attributes of the model for the mode.
        previous: the proxy that was there before: it is used again for the same function.
    """
    original = getattr(model, attributes.function, None)
    if original is None or isinstance(original, FunctionProxy):
        # A `fit` that ended in an exception leaves its proxy.
        return original
    if previous is None or previous.original is not original:
        previous = FunctionProxy(model, attributes)
    setattr(model, attributes.function, previous)
    return previous


def remove_proxy(model: Any, attributes: ModelFunction, proxy: FunctionProxy) -> None:
    """Give a model its own function back, unless it has got another one since."""
    if getattr(model, attributes.function, None) is proxy:
        setattr(model, attributes.function, proxy.original)
