"""A callback for the `Trainer` of Hugging Face."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import transformers

from smdebug.pytorch.trainers import WatchedTraining

if TYPE_CHECKING:
    import os

    from smdebug.pytorch.hook import Hook


class TrainerCallback(transformers.TrainerCallback):
    """Saves what happens inside of a model that a Hugging Face `Trainer` trains.

    Every forward of the model is a step, in the mode TRAIN or EVAL. The loss is `loss_output_0`;
    what the trainer logs becomes scalars.

    Args:
        hook: a hook of your own, or where the run goes: a directory or a URL.
        options: the other arguments of `Hook`, when it is made here.

    Attributes:
        hook: the hook; it is closed with `close`, or when the interpreter ends.

    Example:
        >>> callback = TrainerCallback("runs/bert", include_collections=["gradients"])
        ... # doctest: +SKIP
        >>> Trainer(model, arguments, callbacks=[callback]).train()  # doctest: +SKIP
    """

    def __init__(self, hook: Hook | str | os.PathLike[str], **options: Any) -> None:
        self._training = WatchedTraining(hook, options)
        self.hook = self._training.hook

    def on_train_begin(
        self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any
    ) -> None:
        """Begins to watch the model; the trainer calls it."""
        self._training.begin(model)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Saves what the trainer logs; the trainer calls it."""
        self._training.log(logs or {})

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Publishes what was saved; the trainer calls it. More trainings may follow."""
        self._training.end()
