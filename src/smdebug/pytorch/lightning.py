"""A callback for the `Trainer` of Lightning."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from smdebug.config.collection import CollectionKeys
from smdebug.mode_keys import ModeKeys
from smdebug.pytorch.trainers import WatchedTraining

if TYPE_CHECKING:
    import os

    from smdebug.pytorch.hook import Hook


def _lightning() -> Any:
    """The package that is there: it goes by two names."""
    names = ["lightning.pytorch", "pytorch_lightning"]
    # The one in use, if only one of them is.
    names.sort(key=lambda name: name not in sys.modules)
    for name in names:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError:
            continue
    raise ModuleNotFoundError("LightningCallback needs Lightning: pip install lightning")


_Callback: Any = _lightning().Callback


class LightningCallback(_Callback):
    """Saves what happens inside of a LightningModule.

    Every batch is a step, in the mode TRAIN, EVAL (validation and test) or PREDICT, whatever
    modules the steps of the LightningModule call. The loss is `loss_output_0`; what is logged
    becomes scalars at the steps that save something, and at the end of a validation or test.

    Args:
        hook: a hook of your own, or where the run goes: a directory or a URL.
        options: the other arguments of `Hook`, when it is made here.

    Attributes:
        hook: the hook; it is closed with `close`, or when the interpreter ends.

    Example:
        >>> callback = LightningCallback("runs/gan", include_collections=["gradients"])
        ... # doctest: +SKIP
        >>> Trainer(callbacks=[callback]).fit(module, data)  # doctest: +SKIP
    """

    def __init__(self, hook: Hook | str | os.PathLike[str], **options: Any) -> None:
        self._training = WatchedTraining(hook, options)
        self.hook = self._training.hook

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Begins to watch the module; the trainer calls it."""
        self._training.begin(pl_module, begins_steps=False)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, *batch: Any) -> None:
        """Begins a step; the trainer calls it, as the three that follow."""
        self._begin_step(pl_module, ModeKeys.TRAIN)

    def on_validation_batch_start(self, trainer: Any, pl_module: Any, *batch: Any) -> None:
        """Begins a step."""
        self._begin_step(pl_module, ModeKeys.EVAL)

    def on_test_batch_start(self, trainer: Any, pl_module: Any, *batch: Any) -> None:
        """Begins a step."""
        self._begin_step(pl_module, ModeKeys.EVAL)

    def on_predict_batch_start(self, trainer: Any, pl_module: Any, *batch: Any) -> None:
        """Begins a step."""
        self._begin_step(pl_module, ModeKeys.PREDICT)

    def on_train_batch_end(self, trainer: Any, *others: Any) -> None:
        """Saves what was logged, if the step saves something; the trainer calls it."""
        if not self.hook.closed and self.hook.should_save_tensor_or_collection(
            "", CollectionKeys.LOSSES
        ):
            self._training.log(trainer.callback_metrics)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Saves what was logged; the trainer calls it."""
        self._training.log(trainer.callback_metrics)

    def on_test_end(self, trainer: Any, pl_module: Any) -> None:
        """Saves what was logged; the trainer calls it."""
        self._training.log(trainer.callback_metrics)

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Publishes what was saved; the trainer calls it. More trainings may follow."""
        self._training.end()

    def _begin_step(self, module: Any, mode: ModeKeys) -> None:
        if not self.hook.closed:
            self.hook.set_mode(mode)
            self.hook.begin_step(module)
