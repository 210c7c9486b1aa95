"""What Keras itself reports about training, and what a test computes independently."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

keras: Any = tf.keras
TRAIN, EVAL, PREDICT = "TRAIN", "EVAL", "PREDICT"


class Witness(keras.callbacks.Callback):
    """Takes down what the model is before and after every batch, and what Keras reports."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[dict[str, Any]] = []
        self.epochs: list[dict[str, Any]] = []

    def _begin(self, mode: str, batch: int) -> None:
        before = self.model.get_weights()
        step = {"mode": mode, "batch": batch, "before": before, "apart": self._apart()}
        self.steps.append(step)

    def _apart(self) -> list[list[Any]]:
        """The weights of each replica: Keras 2 lets statistics differ until they are read."""
        results = self.model.distribute_strategy.experimental_local_results
        each = [results(getattr(weight, "_value", weight)) for weight in self.model.weights]
        count = max((len(values) for values in each), default=1)
        return [[np.array(values[n % len(values)]) for values in each] for n in range(count)]

    def _end(self, batch: int, logs: Any) -> None:
        numbers = {name: float(value) for name, value in (logs or {}).items()}
        self.steps[-1].update(after=self.model.get_weights(), logs=numbers, last=batch)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._begin(TRAIN, batch)

    def on_test_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._begin(EVAL, batch)

    def on_predict_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._begin(PREDICT, batch)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._end(batch, logs)

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        self._end(batch, logs)

    def on_predict_batch_end(self, batch: int, logs: Any = None) -> None:
        self._end(batch, None)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        numbers = {name: float(value) for name, value in logs.items()}
        last = max(n for n, step in enumerate(self.steps) if step["mode"] == TRAIN)
        self.epochs.append({"step": last, "logs": numbers})


def rows(count: int, seed: int = 0) -> tuple[Any, Any]:
    """So many rows of data."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(count, 4)).astype(np.float32)
    return x, random.normal(size=(count, 2)).astype(np.float32)


def parts_of(array: Any, replicas: int) -> list[Any]:
    """The rows of a batch that each replica gets: the first ones have one more if need be."""
    size = -(-len(array) // replicas)
    return [array[size * each : size * (each + 1)] for each in range(replicas)]


def seen_inside(twin: Any, weights: Sequence[Any], x: Any, y: Any, mode: str, share: int) -> Any:
    """The tensors inside a step, computed by calling the layers of a separate model.

    Args:
        twin: a model like the one that is trained: layers one after the other.
        weights: what it has to start from.
        x: its input.
        y: the labels.
        mode: what runs.
        share: the number of replicas: the loss of each counts as its share of all.
    """
    twin.set_weights(weights)
    seen = {"inputs": x}
    with tf.GradientTape() as tape:
        hidden = tf.constant(x)
        for layer in twin.layers:
            if isinstance(layer, keras.layers.InputLayer):
                continue
            seen[f"{layer.name}/inputs"] = hidden
            if isinstance(layer, keras.layers.BatchNormalization):
                hidden = layer(hidden, training=mode == TRAIN)
            else:
                hidden = layer(hidden)
            seen[f"{layer.name}/outputs"] = hidden
        loss = keras.losses.MeanSquaredError(reduction="sum_over_batch_size")(y, hidden) / share
    seen["predictions"] = hidden
    if mode != PREDICT:
        seen["labels"] = y
    if mode == TRAIN:
        owned = [(layer, v) for layer in twin.layers for v in layer.trainable_variables]
        slopes = tape.gradient(loss, [variable for _, variable in owned])
        for (layer, variable), slope in zip(owned, slopes, strict=True):
            last = variable.name.rsplit("/", 1)[-1].split(":")[0]
            seen[f"gradients/{layer.name}/{last}Grad"] = tf.convert_to_tensor(slope)
    return {name: np.array(value) for name, value in seen.items()}


def write(folder: Path, truth: dict[str, Any]) -> None:
    with (folder / "truth.pickle").open("wb") as file:
        pickle.dump(truth, file)
