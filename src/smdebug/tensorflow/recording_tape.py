"""Tapes that tell what they do: the same objects, of a class made for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from smdebug.tensorflow.recording import no_autograph

if TYPE_CHECKING:
    from smdebug.tensorflow.tape import TapeSteps

# The class of tapes that tell, for each class of tapes.
_classes: dict[Any, Any] = {}


def make_tell(tape: Any) -> None:
    """Makes a tape tell those in its list `smdebug_steps` what it does."""
    kind = type(tape)
    if kind not in _classes.values():
        if kind not in _classes:
            _classes[kind] = _telling(kind)
        tape.__class__ = _classes[kind]


def _telling(kind: Any) -> Any:
    """Makes a class of tapes that tell what they do."""

    class TellingTape(kind):
        smdebug_steps: list[TapeSteps]
        # A Jacobian is many gradients, of which none is the loss's.
        smdebug_quiet = False

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
            if not self.smdebug_quiet:
                for steps in self.smdebug_steps:
                    steps.gradient(target, sources, result)
            return result

        @no_autograph
        def jacobian(self, *args: Any, **kwargs: Any) -> Any:
            return self._quietly(super().jacobian, args, kwargs)

        @no_autograph
        def batch_jacobian(self, *args: Any, **kwargs: Any) -> Any:
            return self._quietly(super().batch_jacobian, args, kwargs)

        @no_autograph
        def _quietly(self, compute: Any, args: Any, kwargs: Any) -> Any:
            self.smdebug_quiet = True
            try:
                return compute(*args, **kwargs)
            finally:
                self.smdebug_quiet = False

    TellingTape.__name__ = kind.__name__
    return TellingTape
