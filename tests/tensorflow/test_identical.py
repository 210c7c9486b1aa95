"""Training goes the same way with a hook as without, to the last bit."""

from __future__ import annotations

import functools
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf
from tests.tensorflow.models import (
    BATCH,
    CLASSES,
    FEATURES,
    KERAS_3,
    SEED_WARNING,
    Subclassed,
    batches,
    compiled,
    data,
    features,
    fit,
    functional,
    image_model,
    images,
    labels,
    optimizer_values,
    seeded,
    sequences,
    sequential,
    targets,
    tokens,
)

import smdebug.tensorflow as smd

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

keras: Any = tf.keras
layers: Any = keras.layers
pytestmark = pytest.mark.filterwarnings(
    SEED_WARNING, "ignore:Your input ran out of data:UserWarning"
)
EPOCHS = 2
AUTO = {"jit_compile": "auto"} if KERAS_3 else {}


class Arrays(list[Any]):
    """Arrays that are compared elsewhere."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Arrays)

    __hash__ = None


class Outcome:
    """All results of training, to the last bit."""

    def __init__(self, model: Any, history: Any, *more: Any) -> None:
        self.arrays = Arrays(model.get_weights())
        self.weights = [each.tobytes() for each in model.get_weights()]
        self.optimizer = [each.tobytes() for each in optimizer_values(model.optimizer)]
        if hasattr(model, "second_optimizer"):
            self.optimizer += [e.tobytes() for e in optimizer_values(model.second_optimizer)]
        self.history = history
        self.more = [np.asarray(each).tobytes() for each in more]

    def is_near(self, other: Outcome) -> bool:
        """Whether all weights are the same but for roundings."""
        return all(
            np.allclose(first, second, rtol=1e-4, atol=1e-5)
            for first, second in zip(self.arrays, other.arrays, strict=True)
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Outcome) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]


# ---- models


def classes(model: Any, optimizer: Any = "adam", **options: Any) -> Any:
    # XLA is slow: it is used only where it matters.
    return compiled(model, optimizer, **{"jit_compile": False, **options})


def dense() -> Any:
    return classes(sequential())


def dropout() -> Any:
    return classes(sequential(layers.Dropout(0.4), layers.GaussianNoise(0.1)))


class Noise(layers.Layer):  # type: ignore[misc, unused-ignore]
    """Adds random numbers of TensorFlow."""

    def call(self, given: Any) -> Any:
        drawn = tf.random.normal(tf.shape(given)) * tf.random.uniform([])
        return given + drawn + 0.1 * tf.random.shuffle(given) + tf.random.truncated_normal([1])


class Sampled(layers.Layer):  # type: ignore[misc, unused-ignore]
    """Adds a loss of some classes drawn at random."""

    def build(self, shape: Any) -> None:
        self.kernel = self.add_weight(shape=(20, shape[-1]), name="kernel")
        self.bias = self.add_weight(shape=(20,), name="bias")

    def call(self, given: Any) -> Any:
        drawn = tf.ones((tf.shape(given)[0], 1), tf.int64)
        self.add_loss(
            tf.reduce_mean(
                tf.nn.sampled_softmax_loss(
                    tf.convert_to_tensor(self.kernel),
                    tf.convert_to_tensor(self.bias),
                    drawn,
                    given,
                    num_sampled=4,
                    num_classes=20,
                )
            )
        )
        return given


class Generated(layers.Layer):  # type: ignore[misc, unused-ignore]
    """Adds random numbers of a generator that has a variable."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = tf.random.Generator.from_seed(3)

    def call(self, given: Any) -> Any:
        return given + self.generator.normal(tf.shape(given))


class Numpy(layers.Layer):  # type: ignore[misc, unused-ignore]
    """Adds random numbers of NumPy."""

    def call(self, given: Any) -> Any:
        drawn = tf.numpy_function(lambda: np.float32(np.random.normal()), [], tf.float32)
        return given + tf.reshape(drawn, [1, 1])


class Table(layers.Layer):  # type: ignore[misc, unused-ignore]
    """Counts in a table, which is no variable."""

    def __init__(self) -> None:
        super().__init__()
        self.table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, 0.0)

    def call(self, given: Any) -> Any:
        key = tf.constant([1], tf.int64)
        count = self.table.lookup(key)
        self.table.insert(key, count + 1)
        return given + tf.reshape(count, [1, 1])


def by_numpy() -> Any:
    return classes(sequential(Numpy(), Table()))


def noise() -> Any:
    return classes(sequential(Noise()))


def sampled() -> Any:
    return classes(sequential(Sampled()))


def generated() -> Any:
    return classes(sequential(Generated()))


def unbuilt() -> Any:
    return classes(Subclassed())


def pictures() -> Any:
    return classes(image_model())


def augmented() -> Any:
    return classes(
        keras.Sequential(
            [
                keras.Input((8, 8, 1)),
                layers.RandomFlip(),
                layers.RandomRotation(0.2),
                layers.Conv2D(2, 3),
                layers.BatchNormalization(),
                layers.SpatialDropout2D(0.2),
                layers.Flatten(),
                layers.Dense(CLASSES),
            ]
        )
    )


def recurrent() -> Any:
    return classes(
        keras.Sequential(
            [
                keras.Input((3, 3)),
                layers.Bidirectional(layers.SimpleRNN(3, dropout=0.2, recurrent_dropout=0.2)),
                layers.Dense(CLASSES),
            ]
        )
    )


def stateful() -> Any:
    given = keras.Input(batch_shape=(BATCH, 3, 3))
    inner = layers.SimpleRNN(3, stateful=True)(given)
    return classes(keras.Model(given, layers.Dense(CLASSES)(inner)))


def attention() -> Any:
    given = keras.Input((5,), dtype="int32")
    words = layers.Embedding(11, 4)(given)
    mixed = layers.MultiHeadAttention(2, 2, dropout=0.1)(words, words)
    both = layers.LayerNormalization()(layers.Add()([words, mixed]))
    return classes(keras.Model(given, layers.Dense(CLASSES)(layers.Flatten()(both))))


def shared() -> Any:
    first, second = keras.Input((FEATURES,), name="one"), keras.Input((FEATURES,), name="two")
    layer = layers.Dense(4, "tanh", name="same")
    both = layers.Concatenate()([layer(first), layers.Dropout(0.2)(layer(second))])
    outputs = {"a": layers.Dense(CLASSES, name="a")(both), "b": layers.Dense(1, name="b")(both)}
    model = keras.Model([first, second], outputs)
    model.compile(
        "adam",
        loss={"a": keras.losses.SparseCategoricalCrossentropy(from_logits=True), "b": "mse"},
        loss_weights={"a": 1.0, "b": 0.3},
    )
    return model


class OwnStep(Subclassed):
    """A model that trains in its own way."""

    def train_step(self, given: Any) -> Any:
        x, y = given[:2]
        with tf.GradientTape() as tape:
            found = self(x + tf.random.normal(tf.shape(x)), training=True)
            loss = self.compute_loss(x=x, y=y, y_pred=found)
        variables = self.trainable_variables
        gradients = tape.gradient(loss, variables)
        self.optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return {"loss": loss, "largest": tf.reduce_max(tf.abs(gradients[0]))}


def own_step() -> Any:
    return classes(OwnStep(), metrics=None)


class Gan(keras.Model):  # type: ignore[misc, unused-ignore]
    """Two networks, two optimizers, noise."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = keras.Sequential(
            [keras.Input((2,)), layers.Dense(4, "relu"), layers.Dense(FEATURES)], name="generator"
        )
        self.critic = keras.Sequential(
            [keras.Input((FEATURES,)), layers.Dense(4, "relu"), layers.Dropout(0.2),
             layers.Dense(1)], name="critic",
        )  # fmt: skip

    def call(self, given: Any) -> Any:
        return self.critic(given)

    def compile(self, first: Any, second: Any) -> None:
        super().compile(optimizer=first)
        self.second_optimizer = second

    def train_step(self, given: Any) -> Any:
        real = given[0] if isinstance(given, tuple) else given
        rows = tf.shape(real)[0]
        with tf.GradientTape() as tape:
            made = self.generator(tf.random.normal((rows, 2)), training=True)
            difference = self.critic(made, training=True) - self.critic(real, training=True)
            critic_loss = tf.reduce_mean(tf.square(difference - 1))
        _apply(tape, critic_loss, self.critic, self.second_optimizer)
        with tf.GradientTape() as tape:
            made = self.generator(tf.random.normal((rows, 2)), training=True)
            loss = -tf.reduce_mean(self.critic(made, training=True))
        _apply(tape, loss, self.generator, self.optimizer)
        return {"critic_loss": critic_loss, "loss": loss}


def _apply(tape: Any, loss: Any, model: Any, optimizer: Any) -> None:
    variables = model.trainable_variables
    optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))


def gan() -> Any:
    model = Gan()
    model.compile(keras.optimizers.Adam(0.01), keras.optimizers.SGD(0.1, momentum=0.9))
    return model


def scaled_gan() -> Any:
    model = Gan()
    scaled = keras.mixed_precision.LossScaleOptimizer
    model.compile(scaled(keras.optimizers.SGD(1e-6)), scaled(keras.optimizers.SGD(1e-6)))
    return model


def mixed() -> Any:
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        return classes(sequential(layers.Dropout(0.2)))
    finally:
        keras.mixed_precision.set_global_policy("float32")


def accumulated() -> Any:
    optimizer = keras.optimizers.Adam(0.01, gradient_accumulation_steps=3)
    return classes(sequential(layers.Dropout(0.2)), optimizer)


def scheduled() -> Any:
    rate = keras.optimizers.schedules.ExponentialDecay(0.1, 3, 0.5)
    optimizer = keras.optimizers.SGD(
        rate, momentum=0.9, clipnorm=0.1, use_ema=True, ema_momentum=0.8, ema_overwrite_frequency=4
    )
    model = functional()
    model.get_layer("first").trainable = False
    return classes(model, optimizer)


def eager() -> Any:
    return classes(sequential(layers.Dropout(0.3), Noise()), run_eagerly=True)


def together() -> Any:
    return classes(sequential(layers.Dropout(0.3)), steps_per_execution=2)


def together_without_chance() -> Any:
    return classes(sequential(), steps_per_execution=3)


def by_xla() -> Any:
    return classes(image_model(), jit_compile=True)


class Branches(Subclassed):
    """Layers inside a `tf.function`, a condition and a loop."""

    def __init__(self) -> None:
        super().__init__()
        self.drop = layers.Dropout(0.3)
        self.often = layers.Dense(8, name="often")

    @tf.function
    def inner(self, given: Any) -> Any:
        return self.drop(self.first(given), training=True)

    def call(self, given: Any, training: bool | None = None) -> Any:
        found = self.inner(given)
        found = tf.cond(
            tf.reduce_mean(given) > 0, lambda: self.often(found), lambda: self.often(-found)
        )
        _, found = tf.while_loop(
            lambda number, _: number < 2,
            lambda number, inner: (number + 1, self.often(inner)),
            (0, found),
        )
        return self.second(found)


def branches() -> Any:
    model = Branches()
    model(np.zeros((1, FEATURES), np.float32))
    return classes(model)


# ---- data


def rows() -> tuple[Any, Any]:
    return data(24)


def unknown_length() -> tuple[Any, Any]:
    given = batches(*data(24)).map(
        lambda x, y: (x + tf.random.stateless_normal(tf.shape(x), [1, 2]), y)
    )
    return given.filter(lambda x, y: True), None


def generator() -> tuple[Any, Any]:
    values, found = data(24)

    def give() -> Iterator[Any]:
        while True:
            for begin in range(0, len(values), BATCH):
                yield values[begin : begin + BATCH], found[begin : begin + BATCH]

    return give(), None


def picture_rows() -> tuple[Any, Any]:
    return images(16), labels(features(16))


def moments() -> tuple[Any, Any]:
    return sequences(24, length=3), labels(features(24))


def sentences() -> tuple[Any, Any]:
    return tokens(24), labels(features(24))


def two_inputs() -> tuple[Any, Any]:
    values, found = data(24)
    return [values, values[::-1].copy()], {"a": found, "b": targets(24)[1]}


class Row(NamedTuple):
    """A batch with names."""

    x: Any
    y: Any


class NamedStep(Subclassed):
    """A model that is given batches with names."""

    def train_step(self, given: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x=given.x, y=given.y, y_pred=self(given.x, training=True))
        variables = self.trainable_variables
        gradients = tape.gradient(loss, variables)
        self.optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return {"loss": loss}


def named_step() -> Any:
    return classes(NamedStep(), metrics=None)


def named_rows() -> tuple[Any, Any]:
    return tf.data.Dataset.from_tensor_slices(Row(*data(24))).batch(BATCH), None


class Training(NamedTuple):
    """A model, what it is trained with, and options of `fit`."""

    make: Callable[[], Any]
    given: Callable[[], tuple[Any, Any]] = rows
    options: Mapping[str, Any] = MappingProxyType({})


TRAININGS = {
    "dense, a partial batch": Training(dense, lambda: data(20)),
    "dropout, XLA if possible": Training(lambda: classes(sequential(layers.Dropout(0.3)), **AUTO)),
    "unknown length": Training(dropout, unknown_length),
    "generator": Training(dense, generator, {"steps_per_epoch": 3}),
    "subclassed, unbuilt": Training(unbuilt, options={"shuffle": True}),
    "dropout": Training(dropout),
    "tf.random": Training(noise),
    "sampled classes": Training(sampled),
    "numbers of NumPy, a table": Training(by_numpy),
    "tf.random.Generator": Training(generated),
    "convolution": Training(pictures, picture_rows),
    "augmentation": Training(augmented, picture_rows),
    "recurrent": Training(recurrent, moments),
    "stateful": Training(stateful, moments),
    "attention": Training(attention, sentences),
    "shared, two inputs and outputs": Training(shared, two_inputs),
    "own train_step": Training(own_step),
    "named tuples": Training(named_step, named_rows),
    "two optimizers": Training(gan, lambda: (features(24), np.zeros(24, np.float32))),
    "mixed precision": Training(mixed),
    "functional, clipped, moving average": Training(scheduled),
    "eager": Training(eager),
    "several steps at once": Training(together, lambda: data(40)),
    "three steps at once, unknown length": Training(together_without_chance, unknown_length),
    "by XLA": Training(by_xla, picture_rows),
    "tf.function, tf.cond, a loop": Training(branches),
    "validation": Training(
        dropout, options={"validation_split": 1 / 3, "class_weight": {0: 1.0, 1: 3.0, 2: 0.2}}
    ),
}
if KERAS_3:
    TRAININGS["accumulated"] = Training(accumulated)
    TRAININGS["two scaled optimizers"] = Training(
        scaled_gan, lambda: (features(24), np.zeros(24, np.float32))
    )
if not KERAS_3:
    # Dropout in a recurrent layer of Keras 2 is not the same from one training to the next.
    del TRAININGS["recurrent"]
if not KERAS_3:
    # Keras 2 must know how many steps there are.
    del TRAININGS["three steps at once, unknown length"]
CHANCE = ["dropout", "tf.random", "own train_step", "eager"]
# Random numbers whose state is the function's own, and several batches at once, leave only one
# function to run; and TensorFlow rounds differently if tensors in between are read.
FUSED = ["augmentation", "attention"]
ROUNDED = FUSED if not KERAS_3 else []
# The dropout of Keras 2 has its state in the function that draws: that of a hook starts again.
TWICE = ["dropout", "convolution"] if KERAS_3 else ["convolution"]


def trained(training: Training, hook: Any = None) -> Outcome:
    seeded(5)
    model = training.make()
    x, y = training.given()
    history = fit(model, x, y, hook, epochs=EPOCHS, **training.options)
    if hook is not None:
        hook.close()
    return Outcome(model, history)


@functools.cache
def without_hook(name: str) -> Outcome:
    return trained(TRAININGS[name])


def everything(out_dir: Path, **schedule: Any) -> smd.KerasHook:
    """A hook that saves all there is at the steps of a schedule."""
    return smd.KerasHook(
        out_dir, save_all=True, save_config=smd.SaveConfig(**schedule), on_error="raise"
    )


@pytest.mark.parametrize("name", TRAININGS)
def test_every_third_step(name: str, tmp_path: Path) -> None:
    hook = everything(tmp_path, save_interval=3)
    outcome = trained(TRAININGS[name], hook)

    assert hook.stats().steps > 1
    if name in ROUNDED:
        assert outcome.is_near(without_hook(name))
    else:
        assert outcome == without_hook(name)


@pytest.mark.parametrize("name", FUSED)
def test_bit_identical_without_saving_layers(name: str, tmp_path: Path) -> None:
    hook = smd.KerasHook(
        tmp_path, include_collections=["weights", "biases", "gradients", "inputs", "outputs"],
        save_config=smd.SaveConfig(save_interval=3), on_error="raise",
    )  # fmt: skip

    assert trained(TRAININGS[name], hook) == without_hook(name)


@pytest.mark.parametrize(
    "schedule", [{"save_interval": 1}, {"save_interval": 1, "start_step": 4}], ids=str
)
@pytest.mark.parametrize("name", CHANCE)
def test_other_schedules(name: str, schedule: dict[str, int], tmp_path: Path) -> None:
    assert trained(TRAININGS[name], everything(tmp_path, **schedule)) == without_hook(name)


def again(training: Training, first: Any = None, second: Any = None) -> Outcome:
    """Two training runs, an evaluation and a prediction, with a hook each."""
    seeded(5)
    model = training.make()
    x, y = training.given()
    history = fit(model, x, y, first)
    history = {**history, "again": fit(model, x, y, second, epochs=3, initial_epoch=1)}
    hooks = [] if second is None else [second]
    found = model.evaluate(x, y, batch_size=BATCH, verbose=0, callbacks=hooks)
    predicted = model.predict(x, batch_size=BATCH, verbose=0, callbacks=hooks)
    for hook in (first, second):
        if hook is not None:
            hook.close()
    return Outcome(model, history, found, predicted)


@functools.cache
def again_without_hook(name: str) -> Outcome:
    return again(TRAININGS[name])


@pytest.mark.parametrize("name", ["dropout", "convolution"])
def test_two_training_runs(name: str, tmp_path: Path) -> None:
    hook = everything(tmp_path, save_interval=2)

    assert again(TRAININGS[name], hook, hook) == again_without_hook(name)


@pytest.mark.parametrize("name", TWICE)
def test_only_the_first_training_has_a_hook(name: str, tmp_path: Path) -> None:
    hook = everything(tmp_path, save_interval=2)

    assert again(TRAININGS[name], hook) == again_without_hook(name)


@pytest.mark.parametrize("name", TWICE)
def test_only_the_second_training_has_a_hook(name: str, tmp_path: Path) -> None:
    hook = everything(tmp_path, save_interval=2)

    assert again(TRAININGS[name], None, hook) == again_without_hook(name)


@pytest.mark.parametrize("name", TWICE)
def test_each_training_has_its_own_hook(name: str, tmp_path: Path) -> None:
    first = everything(tmp_path / "first", save_interval=2)
    second = everything(tmp_path / "second", save_interval=2)

    assert again(TRAININGS[name], first, second) == again_without_hook(name)


def test_a_step_that_is_not_saved_runs_the_model_alone(tmp_path: Path) -> None:
    """What a step does to the world it does once."""
    calls: list[int] = []

    class Telling(layers.Layer):  # type: ignore[misc, unused-ignore]
        def call(self, given: Any) -> Any:
            tf.py_function(lambda: calls.append(1), [], [])
            return given

    seeded()
    model = classes(sequential(Telling()))
    fit(model, *data(40), everything(tmp_path, save_interval=2))

    assert len(calls) == 5
