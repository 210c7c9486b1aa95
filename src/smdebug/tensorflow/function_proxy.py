"""What stands in the place of the function that a Keras model runs for every batch."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any, Protocol

from smdebug.tensorflow.functions import CaptureRequest, StepFunction, is_from_tracing

if TYPE_CHECKING:
    from smdebug.tensorflow.functions import Kind

logger = logging.getLogger("smdebug.hook")


class Observer(Protocol):
    """Somebody who wants to see what is inside of a step."""

    def receive(self, inside: dict[str, tuple[Any, ...]]) -> None:
        """Takes what a step has shown: for each name a tensor of every replica."""

    def give_up(self, why: str) -> None:
        """Takes note that the steps of the model cannot be looked into."""


class FunctionProxy:
    """What a model finds in place of its function while it trains, evaluates or predicts.

    Several hooks may look at one model: they share it.

    Args:
        model: the model.
        kind: which of its functions.

    Attributes:
        own: the model's own function, which runs unless somebody waits for what is inside.
        running: whether one of the two runs.
    """

    def __init__(self, model: Any, kind: Kind) -> None:
        self.own = getattr(model, kind.function)
        self.running = False
        self._model = model
        self._kind = kind
        self._questions: dict[Observer, CaptureRequest] = {}
        self._waiting: list[Observer] = []
        self._function: StepFunction | None = None
        # Nothing is seen; the model's own function has run.
        self._given_up = self._own_ran = self._said = False

    def function(self, asker: Observer, question: CaptureRequest) -> StepFunction:
        """Returns the function that answers a question, and all others that were asked."""
        known = self._questions.get(asker)
        if known is None or known.about != question.about:
            self._questions[asker] = question
            self._function = None
        if self._function is None:
            self._function = StepFunction(self._model, self._kind, self.own, self._all_questions())
        return self._function

    def let_run(self, asker: Observer, needed: bool) -> None:
        """Has the function that tells run at the next step, or not, as far as it is up to one."""
        # A step that was begun and not made has left its wish behind.
        self._waiting = [each for each in self._waiting if each is not asker]
        if needed:
            self._waiting.append(asker)

    def __call__(self, *args: Any) -> Any:
        waiting = [] if _is_by_hand(sys._getframe(1)) else self._waiting
        self.running = True
        try:
            return self._run(waiting, args) if waiting else self._run_own(args)
        finally:
            self.running = False

    def _run_own(self, args: tuple[Any, ...]) -> Any:
        function = self._function
        if function is not None and function.alone:
            return self._run([], args)
        try:
            result = self.own(*args)
        except Exception as error:
            may = function is not None and function.called and not self._own_ran
            if not may or self._given_up or not is_from_tracing(self._model, error):
                raise
            assert function is not None
            # Without the hook it would have been traced first, and would have worked.
            function.alone = True
            return self._run([], args)
        self._own_ran = True
        return result

    def _run(self, waiting: list[Observer], args: tuple[Any, ...]) -> Any:
        self._waiting = []
        function = self._function
        if function is None or self._given_up:
            return self._run_own(args)
        try:
            result = function(*args)
        except Exception as error:
            if function.ran or not is_from_tracing(self._model, error):
                raise
            self._give_up(f"its step could not be traced a second time: {_shown(error)}")
            return self._run_own(args)
        if function.alone:
            self._say_alone()
        if function.failed is not None:
            self._give_up(f"its step could not be traced a second time: {_shown(function.failed)}")
        elif function.hidden:
            self._give_up("its function does not run its step")
        inside, function.inside = function.inside, {}
        for asker in waiting:
            asker.receive(inside)
        return result

    def _say_alone(self) -> None:
        if not self._said:
            self._said = True
            logger.warning(
                "%s.%s can be traced only once: the function of the hook runs at every step",
                type(self._model).__name__, self._kind.step,
            )  # fmt: skip

    def _give_up(self, why: str) -> None:
        """Leaves a model alone whose step cannot be looked into."""
        self._given_up = True
        for asker in self._questions:
            asker.give_up(f"the inside of {type(self._model).__name__} is not saved: {why}")

    def _all_questions(self) -> CaptureRequest:
        questions = tuple(self._questions.values())
        optimizers = tuple(each for question in questions for each in question.optimizers)
        layers = any(question.layers for question in questions)
        return CaptureRequest(
            None,
            lambda name: any(question.wanted(name) for question in questions),
            optimizers,
            layers,
        )

    def __getattr__(self, name: str) -> Any:
        # Somebody may look at the function; a copy that is being made has none yet.
        if name == "own" or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.own, name)


def _is_by_hand(caller: Any) -> bool:
    """Whether a function is called for a batch that somebody else gave, in the middle of `fit`."""
    return caller.f_code.co_name in ("train_on_batch", "test_on_batch", "predict_on_batch")


def _shown(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def put_in_place(model: Any, kind: Kind, known: FunctionProxy | None) -> FunctionProxy | None:
    """Puts something in the place of a model's function; None if there is no function.

    Args:
        model: the model.
        kind: which of its functions.
        known: what was in its place before: it serves again if the function is still the same.
    """
    own = getattr(model, kind.function, None)
    if own is None or isinstance(own, FunctionProxy):
        # It may be of a training that ended in an exception.
        return own
    same = known is not None and known.own is own
    stand_in = known if known is not None and same else FunctionProxy(model, kind)
    setattr(model, kind.function, stand_in)
    return stand_in


def take_away(model: Any, kind: Kind, stand_in: FunctionProxy) -> None:
    """Gives a model its own function back, unless it has got another one since."""
    if getattr(model, kind.function, None) is stand_in:
        setattr(model, kind.function, stand_in.own)
