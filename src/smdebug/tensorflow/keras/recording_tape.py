"""Tapes that report what they do: the same objects, of a class made for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from smdebug.tensorflow.keras.recording import no_autograph

if TYPE_CHECKING:
    from smdebug.tensorflow.keras.tape import TapeSteps

# The recording class for each class of tapes.
_classes: dict[Any, Any] = {}


def make_recording(tape: Any, steps: list[TapeSteps]) -> None:
    """Make a tape report to these steps, besides those it reports to already."""
    kind = type(tape)
    if kind not in _classes.values():
        if kind not in _classes:
            _classes[kind] = _recording_class(kind)
        # Python looks up __enter__ and __exit__ on the class: patching the object has no effect.
        tape.__class__ = _classes[kind]
    tape.smdebug_steps = steps


def steps_of(tape: Any) -> list[TapeSteps]:
    """Return the steps that a tape reports to."""
    steps: list[TapeSteps] = getattr(tape, "smdebug_steps", [])
    return steps


def _recording_class(kind: Any) -> Any:
    class RecordingTape(kind):
        smdebug_steps: list[TapeSteps]
        # A Jacobian computes many gradients, none of which is that of a loss.
        smdebug_paused = False

        @no_autograph
        def __enter__(self) -> Any:
            for steps in self.smdebug_steps:
                steps.enter()
            return super().__enter__()

        @no_autograph
        def __exit__(self, *error: Any) -> Any:
            result = super().__exit__(*error)
            for steps in self.smdebug_steps:
                steps.exit()
            return result

        @no_autograph
        def gradient(self, target: Any, sources: Any, *args: Any, **kwargs: Any) -> Any:
            result = super().gradient(target, sources, *args, **kwargs)
            if not self.smdebug_paused:
                for steps in self.smdebug_steps:
                    steps.gradient(target, sources, result)
            return result

        @no_autograph
        def jacobian(self, *args: Any, **kwargs: Any) -> Any:
            return self._paused(super().jacobian, args, kwargs)

        @no_autograph
        def batch_jacobian(self, *args: Any, **kwargs: Any) -> Any:
            return self._paused(super().batch_jacobian, args, kwargs)

        @no_autograph
        def _paused(self, compute: Any, args: Any, kwargs: Any) -> Any:
            self.smdebug_paused = True
            try:
                return compute(*args, **kwargs)
            finally:
                self.smdebug_paused = False

    RecordingTape.__name__ = kind.__name__
    return RecordingTape
