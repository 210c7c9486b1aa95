"""A callback for the `Trainer` of Lightning."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from smdebug.config.collection import CollectionKeys
from smdebug.mode_keys import ModeKeys
from smdebug.pytorch.trainers import TrainerHook

if TYPE_CHECKING:
    import os

    from smdebug.pytorch.hook import Hook


def _lightning() -> Any:
    """Return the installed package, which has two names."""
    names = ["lightning.pytorch", "pytorch_lightning"]
    # The imported one, if only one of them is.
    names.sort(key=lambda name: name not in sys.modules)
    for name in names:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError:
            continue
    raise ModuleNotFoundError("LightningCallback requires Lightning: pip install lightning")


_Callback: Any = _lightning().Callback


class LightningCallback(_Callback):
    """Saves tensors of a LightningModule.

    Every batch is a step, in the mode TRAIN, EVAL (validation and test) or PREDICT, whichever
    modules the LightningModule calls. The loss is `loss_output_0`. Logged metrics are saved as
    scalars at steps that save anything, and at the end of a validation or test.

    Args:
        hook: a hook, or the `out_dir` of a new one: a directory or a URL.
        options: the other arguments of a new `Hook`.

    Attributes:
        hook: the hook; call its `close`, or it is closed when the interpreter exits.

    Example:
        >>> callback = LightningCallback("runs/gan", include_collections=["gradients"])
        ... # doctest: +SKIP
        >>> Trainer(callbacks=[callback]).fit(module, data)  # doctest: +SKIP
    """

    def __init__(self, hook: Hook | str | os.PathLike[str], **options: Any) -> None:
        self._training = TrainerHook(hook, options)
        self.hook = self._training.hook

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Register the module; called by the trainer."""
        self._training.begin(pl_module, begins_steps=False)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, *batch: Any) -> None:
        """Begin a step in mode TRAIN; called by the trainer."""
        self._begin_step(pl_module, ModeKeys.TRAIN)

    def on_validation_batch_start(self, trainer: Any, pl_module: Any, *batch: Any) -> None:
        """Begin a step in mode EVAL; called by the trainer."""
        self._begin_step(pl_module, ModeKeys.EVAL)

    def on_test_batch_start(self, trainer: Any, pl_module: Any, *batch: Any) -> None:
        """Begin a step in mode EVAL; called by the trainer."""
        self._begin_step(pl_module, ModeKeys.EVAL)

    def on_predict_batch_start(self, trainer: Any, pl_module: Any, *batch: Any) -> None:
        """Begin a step in mode PREDICT; called by the trainer."""
        self._begin_step(pl_module, ModeKeys.PREDICT)

    def on_train_batch_end(self, trainer: Any, *others: Any) -> None:
        """Save logged metrics if the step saves anything; called by the trainer."""
        if not self.hook.closed and self.hook.should_save_tensor_or_collection(
            "", CollectionKeys.LOSSES
        ):
            self._training.log(trainer.callback_metrics)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Save logged metrics; called by the trainer."""
        self._training.log(trainer.callback_metrics)

    def on_test_end(self, trainer: Any, pl_module: Any) -> None:
        """Save logged metrics; called by the trainer."""
        self._training.log(trainer.callback_metrics)

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Publish all steps; called by the trainer. More training may follow."""
        self._training.end()

    def _begin_step(self, module: Any, mode: ModeKeys) -> None:
        if not self.hook.closed:
            self.hook.set_mode(mode)
            self.hook.begin_step(module)
