"""The contract of adapters, for `fit` of Keras and for loops with a GradientTape."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf
from tests.tensorflow.models import BATCH, KERAS_3, SEED_WARNING, compiled, data, seeded, sequential

import smdebug.tensorflow as smd
from smdebug.testing import AdapterContract, Trained

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from smdebug.mode_keys import ModeKeys
    from smdebug.reductions import Array

keras: Any = tf.keras
pytestmark = pytest.mark.filterwarnings(SEED_WARNING)


class TestFit(AdapterContract):
    tensor = "first/weights/first/kernel:0"

    def make_hook(self, out_dir: str, **options: Any) -> smd.KerasHook:
        return smd.KerasHook(out_dir, **options)

    def train(
        self, hook: Any, modes: Sequence[ModeKeys], after_step: Callable[[int], object]
    ) -> Trained:
        seeded()
        model = compiled(sequential(keras.layers.Dropout(0.3)), "adam", jit_compile=False)
        tensors: list[dict[str, Array]] = []

        class Observer(keras.callbacks.Callback):  # type: ignore[misc, unused-ignore]
            def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
                kernel = model.get_layer("first").get_weights()[0]
                tensors.append({TestFit.tensor: kernel, "loss": np.array([float(logs["loss"])])})
                after_step(len(tensors) - 1)

            on_test_batch_end = on_train_batch_end

        # After the hook: the step is complete when it is called.
        callbacks = [*([] if hook is None else [hook]), Observer()]
        for mode, steps in itertools.groupby(modes):
            x, y = data(BATCH * len(list(steps)))
            run = model.fit if mode is smd.modes.TRAIN else model.evaluate
            run(x, y, batch_size=BATCH, verbose=0, callbacks=callbacks)
        return Trained(tensors, model.get_weights(), _attributes(model))

    @pytest.mark.xfail(not KERAS_3, reason="Dropout of Keras 2 has a state in each function")
    def test_closing_detaches(self, tmp_path: Path, bare: Trained) -> None:
        super().test_closing_detaches(tmp_path, bare)


class TestTape(AdapterContract):
    # A validation has no tape.
    modes = (smd.modes.TRAIN,)
    tensor = "weights/first/kernel:0"

    def make_hook(self, out_dir: str, **options: Any) -> smd.KerasHook:
        return smd.KerasHook(out_dir, **options)

    def train(
        self, hook: Any, modes: Sequence[ModeKeys], after_step: Callable[[int], object]
    ) -> Trained:
        seeded()
        model = sequential(keras.layers.Dropout(0.3))
        loss_function = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        optimizer = keras.optimizers.SGD(0.1)
        if hook is not None:
            hook.register_model(model)
            hook.wrap_optimizer(optimizer)
        x, y = data(BATCH)
        tensors = []
        for step, _ in enumerate(modes):
            kernel = model.get_layer("first").get_weights()[0]
            tape = tf.GradientTape() if hook is None else hook.wrap_tape(tf.GradientTape())
            with tape:
                loss = loss_function(y, model(x, training=True))
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            tensors.append(
                {self.tensor: kernel, "loss": loss.numpy(),
                 "gradients/first/kernelGrad": gradients[0].numpy()}
            )  # fmt: skip
            after_step(step)
        return Trained(tensors, model.get_weights(), [*_attributes(model), *vars(optimizer)])


def _attributes(model: Any) -> list[str]:
    """The names and types of what is set on a model and its layers."""
    return [
        f"{each.name}.{name}: {type(value).__name__}"
        for each in (model, *model.layers)
        for name, value in sorted(vars(each).items())
    ]
