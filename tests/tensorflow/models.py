"""Small models and data, the same at every call, and what a run says about them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

import smdebug.tensorflow as smd

if TYPE_CHECKING:
    from pathlib import Path

    from smdebug.reductions import Array

keras: Any = tf.keras
KERAS_3 = hasattr(keras, "ops")
FEATURES, CLASSES, ROWS, BATCH = 6, 3, 40, 8
# What Keras 2 says on Python 3.11 when a seed is set: for pytest.mark.filterwarnings.
SEED_WARNING = "ignore:non-integer arguments to randrange:DeprecationWarning"
EVERY_STEP = smd.SaveConfig(save_interval=1)
EVERYTHING = (
    "weights", "biases", "gradients", "layers", "inputs", "outputs", "optimizer_variables",
    "losses", "metrics",
)  # fmt: skip


def features(rows: int = ROWS, seed: int = 0, width: int = FEATURES) -> Array:
    """Numbers of a normal distribution."""
    return np.random.default_rng(seed).normal(size=(rows, width)).astype(np.float32)


def labels(values: Array, classes: int = CLASSES) -> Array:
    """Classes that the first two features tell."""
    score = values[:, 0] + values[:, 1]
    edges = np.quantile(score, np.linspace(0, 1, classes + 1)[1:-1])
    found: Array = np.digitize(score, edges).astype(np.int64)
    return found


def data(rows: int = ROWS, seed: int = 0) -> tuple[Array, Array]:
    """Features and their classes."""
    values = features(rows, seed)
    return values, labels(values)


def targets(rows: int = ROWS, seed: int = 0, width: int = 1) -> tuple[Array, Array]:
    """Features and numbers to predict from them."""
    values = features(rows, seed)
    return values, values[:, :1].repeat(width, axis=1) * np.float32(2) + np.float32(0.5)


def tokens(rows: int = ROWS, length: int = 5, words: int = 11, seed: int = 0) -> Array:
    """Sentences: numbers of words."""
    return np.random.default_rng(seed).integers(0, words, size=(rows, length)).astype(np.int32)


def sequences(rows: int = ROWS, length: int = 5, width: int = 3, seed: int = 0) -> Array:
    """Rows of several moments."""
    found = np.random.default_rng(seed).normal(size=(rows, length, width))
    return found.astype(np.float32)


def images(rows: int = 16, side: int = 8, channels: int = 1, seed: int = 0) -> Array:
    """Pictures of noise."""
    found = np.random.default_rng(seed).uniform(size=(rows, side, side, channels))
    return found.astype(np.float32)


def batches(*arrays: Any, size: int = BATCH, drop: bool = False) -> Any:
    """A `tf.data` of batches, in the order of the rows."""
    return tf.data.Dataset.from_tensor_slices(arrays).batch(size, drop_remainder=drop)


def sequential(*extra: Any, name: str = "net") -> Any:
    """Two dense layers, `first` and `second`, with other layers between them."""
    return keras.Sequential(
        [
            keras.Input((FEATURES,)),
            keras.layers.Dense(8, "relu", name="first"),
            *extra,
            keras.layers.Dense(CLASSES, name="second"),
        ],
        name=name,
    )


def functional(name: str = "net") -> Any:
    """The layers of `sequential` as a functional model, with a way around the first."""
    given = keras.Input((FEATURES,), name="given")
    inner = keras.layers.Dense(8, "relu", name="first")(given)
    both = keras.layers.Concatenate(name="both")([inner, given])
    return keras.Model(given, keras.layers.Dense(CLASSES, name="second")(both), name=name)


class Subclassed(keras.Model):  # type: ignore[misc, unused-ignore]
    """The layers of `sequential` as a class; it has no variables until it is called."""

    def __init__(self, name: str = "net") -> None:
        super().__init__(name=name)
        self.first = keras.layers.Dense(8, "relu", name="first")
        self.second = keras.layers.Dense(CLASSES, name="second")

    def call(self, given: Any, training: bool | None = None) -> Any:
        return self.second(self.first(given))


def image_model() -> Any:
    """A convolution with batch normalization and a dense layer, for `images()`."""
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Conv2D(4, 3, name="conv"),
            keras.layers.BatchNormalization(name="norm"),
            keras.layers.ReLU(name="relu"),
            keras.layers.GlobalAveragePooling2D(name="pool"),
            keras.layers.Dense(CLASSES, name="head"),
        ],
        name="picture",
    )


def compiled(model: Any, optimizer: Any = "sgd", **options: Any) -> Any:
    """The model, ready to be trained with classes; the seed is set."""
    options.setdefault("loss", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    options.setdefault("metrics", ["accuracy"])
    model.compile(optimizer=optimizer, **options)
    return model


def seeded(seed: int = 1) -> None:
    """Makes all random numbers the same again, and the names of layers too."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(seed)


def saver(out_dir: Path, collections: Any = EVERYTHING, **options: Any) -> smd.KerasHook:
    """A hook that saves whole tensors of some collections at every step."""
    options.setdefault("save_config", EVERY_STEP)
    options.setdefault("on_error", "raise")
    return smd.KerasHook(out_dir, include_collections=list(collections), **options)


def fit(model: Any, x: Any, y: Any = None, hook: Any = None, **options: Any) -> Any:
    """Trains one epoch without shuffling and without words; returns the history."""
    callbacks = [*options.pop("callbacks", ()), *([] if hook is None else [hook])]
    options.setdefault("batch_size", BATCH if y is not None else None)
    options.setdefault("shuffle", False)
    return model.fit(x, y, verbose=0, callbacks=callbacks, **options).history


class Watcher(keras.callbacks.Callback):  # type: ignore[misc, unused-ignore]
    """Keeps what Keras tells a callback, and the weights before and after every batch.

    Attributes:
        before: the weights at the begin of each train batch.
        after: the weights at the end of each train batch.
        logs: the logs of each batch, by "train", "test" and "predict".
        epochs: the logs of each epoch.
        optimizer: the variables of the optimizer after each train batch.
    """

    def __init__(self) -> None:
        super().__init__()
        self.before: list[list[Array]] = []
        self.after: list[list[Array]] = []
        self.optimizer: list[list[Array]] = []
        self.logs: dict[str, list[dict[str, float]]] = {"train": [], "test": [], "predict": []}
        self.epochs: list[dict[str, float]] = []

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        # A model of Keras 2 has no weights before it is built.
        self.before.append(self.model.get_weights() if self.model.built else [])

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.after.append(self.model.get_weights())
        self.optimizer.append(optimizer_values(self.model.optimizer))
        self.logs["train"].append(dict(logs or {}))

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        self.logs["test"].append(dict(logs or {}))

    def on_predict_batch_end(self, batch: int, logs: Any = None) -> None:
        self.logs["predict"].append(dict(logs or {}))

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.epochs.append(dict(logs or {}))
        # Where Keras does not know how many batches there are, it begins one too many.
        del self.before[len(self.after) :]


def optimizer_values(optimizer: Any) -> list[Array]:
    """The variables of an optimizer as arrays."""
    variables = optimizer.variables
    return [each.numpy() for each in (variables() if callable(variables) else variables)]


def own_gradients(model: Any, x: Any, y: Any, weights: Any = None, **options: Any) -> list[Array]:
    """The gradients of the model's loss by its trainable weights, by a tape of the test."""
    if weights is not None:
        model.set_weights(weights)
    with tf.GradientTape() as tape:
        found = model(x, training=True)
        loss = model.compute_loss(x=tf.constant(x), y=tf.constant(y), y_pred=found, **options)
    variables = model.trainable_variables
    gradients = tape.gradient(loss, [getattr(v, "value", v) if KERAS_3 else v for v in variables])
    return [np.array(tf.convert_to_tensor(each)) for each in gradients]


def trial_of(out_dir: Path) -> Any:
    """The run that a closed hook wrote."""
    return smd.create_trial(str(out_dir))


def names_at(trial: Any, step: int, mode: Any = smd.modes.TRAIN) -> set[str]:
    """The tensors of one step of one mode."""
    return {name for name in trial.tensor_names() if step in trial.tensor(name).steps(mode=mode)}
