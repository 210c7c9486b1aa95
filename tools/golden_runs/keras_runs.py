"""Golden runs of the Keras hook."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

import smdebug.tensorflow as smd
from tools.golden_runs.jobs import Job
from tools.golden_runs.recorder import Step

if TYPE_CHECKING:
    from tools.golden_runs.recorder import Array, Recorder

_LAYERS = ("hidden", "head")
_GRADIENT_REDUCTIONS = ("mean", "std", "l2", "abs_max", "zeros")
_ROWS, _BATCH = 8, 4


class KeepingSGD(keras.optimizers.SGD):
    """An optimizer that keeps the gradients it has received last."""

    gradients: dict[str, Array] = {}  # noqa: RUF012 - Keras copies class attributes of optimizers

    def apply(self, grads: Any, trainable_variables: Any = None) -> None:
        variables = trainable_variables or self._trainable_variables
        for variable, gradient in zip(variables, grads, strict=True):
            self.gradients[variable.path] = np.array(gradient)
        super().apply(grads, trainable_variables)


class Recording(keras.callbacks.Callback):
    """Records, batch by batch, what the hook is to save.

    Args:
        truth: what is recorded.
        hook: the hook, for what a script saves by itself.
        values: the inputs of all batches.
        optimizer: it keeps the gradients.
    """

    def __init__(self, truth: Recorder, hook: Any, values: Array, optimizer: KeepingSGD) -> None:
        super().__init__()
        self._truth = truth
        self._hook = hook
        self._values = values
        self._optimizer = optimizer
        self._step, self._mode_steps = -1, {"TRAIN": -1, "EVAL": -1}
        self._last = Step(0, "TRAIN", 0)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        step = self._next("TRAIN")
        self._save_batch(step, batch, logs)
        save = partial(self._truth.save, step)
        if step.mode_step % 2 == 0:
            for name in _LAYERS:
                weight = np.array(self.model.get_layer(name).kernel)
                save(f"{name}/weights/{name}/kernel:0", weight)
        for path, gradient in self._optimizer.gradients.items():
            name = "/".join(path.split("/")[-2:])
            save(f"gradients/{name}Grad", gradient, raw=False, reductions=_GRADIENT_REDUCTIONS)
        self._hook.save_scalar("rate", 0.5**step.number)
        self._hook.save_tensor("odd", np.arange(step.number, dtype=np.int16), "odd")
        save("scalar/rate", np.array([0.5**step.number]))
        save("odd", np.arange(step.number, dtype=np.int16))
        self._last = step

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        step = self._next("EVAL")
        self._save_batch(step, batch, logs)
        if step.mode_step % 2 == 0:
            for name in _LAYERS:
                weight = np.array(self.model.get_layer(name).kernel)
                self._truth.save(step, f"{name}/weights/{name}/kernel:0", weight)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        for name, value in {**(logs or {}), "epoch": epoch}.items():
            self._truth.save(self._last, name, np.array([value]))

    def _next(self, mode: str) -> Step:
        self._step += 1
        self._mode_steps[mode] += 1
        return Step(self._step, mode, self._mode_steps[mode])

    def _save_batch(self, step: Step, batch: int, logs: Any) -> None:
        for name, value in {**(logs or {}), "batch": batch}.items():
            self._truth.save(step, name, np.array([value]))
        first = _BATCH * batch
        self._truth.save(step, "inputs", self._values[first : first + _BATCH])


def train(truth: Recorder) -> None:
    """Two epochs with validation, through `fit`."""
    keras.utils.set_random_seed(0)
    random = np.random.default_rng(0)
    values = random.normal(size=(_ROWS, 4)).astype(np.float32)
    targets = random.normal(size=(_ROWS, 2)).astype(np.float32)
    layers = [keras.layers.Dense(4, "relu", name="hidden"), keras.layers.Dense(2, name="head")]
    model = keras.Sequential([keras.Input((4,)), *layers])
    optimizer = KeepingSGD(0.1)
    # Eagerly, so that the optimizer receives gradients and not symbols.
    model.compile(optimizer, "mse", metrics=["mae"], run_eagerly=True)
    hook = smd.KerasHook(
        str(truth.run),
        include_collections=["weights", "gradients", "inputs"],
        save_config=smd.SaveConfig(save_interval=1),
        format=truth.format,
        on_error="raise",
    )
    hook.get_collection("weights").save_config = smd.SaveConfig(save_interval=2)
    hook.get_collection("gradients").reduction_config = smd.ReductionConfig.from_dict(
        {"reductions": list(_GRADIENT_REDUCTIONS)}
    )
    recording = Recording(truth, hook, values, optimizer)
    model.fit(
        values, targets, batch_size=_BATCH, epochs=2, verbose=0, shuffle=False,
        validation_data=(values[:_BATCH], targets[:_BATCH]), callbacks=[hook, recording],
    )  # fmt: skip
    hook.close()


JOBS = [Job(f"keras_{format}", format, (train,)) for format in ("v2", "v1")]
