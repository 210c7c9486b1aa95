"""A callback for the `Trainer` of Hugging Face."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import transformers

from smdebug.pytorch.trainers import TrainerHook

if TYPE_CHECKING:
    import os

    from smdebug.pytorch.hook import Hook


class TrainerCallback(transformers.TrainerCallback):
    """Saves tensors of a model that a Hugging Face `Trainer` trains.

    Every forward pass of the model is a step, in the mode TRAIN or EVAL. The loss is
    `loss_output_0`. Logged metrics are saved as scalars.

    Args:
        hook: a hook, or the `out_dir` of a new one: a directory or a URL.
        options: the other arguments of a new `Hook`.

    Attributes:
        hook: the hook; call its `close`, or it is closed when the interpreter exits.

    Example:
        >>> callback = TrainerCallback("runs/bert", include_collections=["gradients"])
        ... # doctest: +SKIP
        >>> Trainer(model, arguments, callbacks=[callback]).train()  # doctest: +SKIP
    """

    def __init__(self, hook: Hook | str | os.PathLike[str], **options: Any) -> None:
        self._training = TrainerHook(hook, options)
        self.hook = self._training.hook

    def on_train_begin(
        self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any
    ) -> None:
        """Register the model; called by the trainer."""
        self._training.begin(model)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Save logged metrics; called by the trainer."""
        self._training.log(logs or {})

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Publish all steps; called by the trainer. More training may follow."""
        self._training.end()
