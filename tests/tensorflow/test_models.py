"""Models of all kinds: what their tensors are called, and that their values are the true ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
    Watcher,
    batches,
    compiled,
    data,
    features,
    fit,
    image_model,
    images,
    labels,
    names_at,
    own_gradients,
    saver,
    seeded,
    sequences,
    sequential,
    targets,
    tokens,
    trial_of,
)

from smdebug import modes
from smdebug.tensorflow.keras.recording import Recording

if TYPE_CHECKING:
    from pathlib import Path

    from smdebug.reductions import Array

keras: Any = tf.keras
layers: Any = keras.layers
pytestmark = pytest.mark.filterwarnings(SEED_WARNING)
INSIDE = ["gradients", "layers", "inputs", "outputs", "weights", "biases"]
NUMBERS = {"loss", "accuracy", "batch", "epoch"}
ROWS = 16


class Run:
    """A short training and what was saved of it.

    Attributes:
        trial: the run.
        model: the trained model.
        watcher: the weights before and after every step.
        last: the number of the last step.
    """

    def __init__(
        self, out_dir: Path, model: Any, x: Any, y: Any = None, collections: Any = INSIDE,
        regexes: Any = None, **options: Any,
    ) -> None:  # fmt: skip
        self.model, self.watcher = model, Watcher()
        hook = saver(out_dir, collections, include_regex=regexes)
        fit(model, x, y, hook, callbacks=[self.watcher], **options)
        hook.close()
        self.trial = trial_of(out_dir)
        self.last = len(self.watcher.before) - 1

    def value(self, name: str, step: int | None = None) -> Array:
        found: Array = self.trial.tensor(name).value(
            self.last if step is None else step, mode=modes.TRAIN
        )
        return found

    def names(self, pattern: str = "") -> set[str]:
        """The names of the last step, but for what Keras reports."""
        found = names_at(self.trial, self.last) - NUMBERS
        return {name for name in found if pattern in name}

    def start(self) -> Any:
        """The model with the weights before the last step."""
        self.model.set_weights(self.watcher.before[self.last])
        return self.model

    def assert_gradients(self, x: Any, y: Any, names: list[str]) -> None:
        """The gradients of the last step are those of a tape."""
        expected = own_gradients(self.start(), x, y)
        assert len(expected) == len(names)
        for name, gradient in zip(names, expected, strict=True):
            np.testing.assert_allclose(
                self.value(f"gradients/{name}Grad"), gradient, rtol=1e-4, atol=1e-6
            )


def made(model: Any, optimizer: Any = "sgd", **options: Any) -> Any:
    return compiled(model, optimizer, **{"jit_compile": False, **options})


def assert_close(found: Array, expected: Any) -> None:
    np.testing.assert_allclose(found, np.asarray(expected), rtol=1e-4, atol=1e-5)


def rows(x: Array, step: int = 1) -> Array:
    """The rows of a step."""
    return x[BATCH * step : BATCH * (step + 1)]


def of_layer(layer: str, *variables: str, inputs: int = 1, outputs: int = 1) -> set[str]:
    """All names that a layer has."""
    found = {f"{layer}/weights/{layer}/{each}:0" for each in variables}
    found |= {f"gradients/{layer}/{each}Grad" for each in variables if "moving" not in each}
    for kind, count in (("inputs", inputs), ("outputs", outputs)):
        found |= (
            {f"{layer}/{kind}"} if count == 1 else {f"{layer}/{kind}_{i}" for i in range(count)}
        )
    return found


DATA = {"inputs", "labels", "predictions"}


# ---- the kinds of models


def test_subclassed_and_unbuilt(tmp_path: Path) -> None:
    seeded()
    x, y = data(ROWS)
    run = Run(tmp_path / "run", made(Subclassed()), x, y)

    expected = {*DATA, *of_layer("first", "kernel", "bias"), *of_layer("second", "kernel", "bias")}
    assert run.names() == expected
    assert names_at(run.trial, 0) - NUMBERS == expected
    run.assert_gradients(
        rows(x), rows(y), ["first/kernel", "first/bias", "second/kernel", "second/bias"]
    )


def test_a_sequential_model_without_an_input(tmp_path: Path) -> None:
    seeded()
    x, y = data(ROWS)
    model = keras.Sequential(
        [layers.Dense(4, "tanh", name="first"), layers.Dense(CLASSES, name="second")]
    )
    run = Run(tmp_path / "run", made(model), x, y)

    expected = {*DATA, *of_layer("first", "kernel", "bias"), *of_layer("second", "kernel", "bias")}
    assert run.names() == expected
    assert names_at(run.trial, 0) - NUMBERS == expected
    assert_close(run.value("first/outputs"), run.start().layers[0](rows(x)))


def block(name: str) -> Any:
    return keras.Sequential(
        [keras.Input((FEATURES,)), layers.Dense(FEATURES, "tanh", name="dense")], name=name
    )


def test_equal_names_in_nested_models(tmp_path: Path) -> None:
    seeded()
    x, y = data(ROWS)
    given = keras.Input((FEATURES,), name="given")
    inner = block("enc")(given)
    outer = block("dec")(inner)
    model = made(keras.Model(given, layers.Dense(CLASSES, name="head")(outer), name="whole"))
    run = Run(tmp_path / "run", model, x, y)

    found = run.names()
    assert {name for name in found if name.endswith(("/outputs", "/inputs"))} == {
        f"{layer}/{kind}"
        for layer in ("enc/dense", "dec/dense", "enc", "dec", "head")
        for kind in ("inputs", "outputs")
    }
    assert {name for name in found if name.startswith("gradients/")} == {
        f"gradients/{layer}/{each}Grad"
        for layer in ("enc/dense", "dec/dense", "head")
        for each in ("kernel", "bias")
    }
    assert {name for name in found if name.endswith(":0")} == {
        f"{layer}/weights/{layer}/{each}:0"
        for layer in ("enc/dense", "dec/dense", "head")
        for each in ("kernel", "bias")
    }
    model = run.start()
    first = model.get_layer("enc")(rows(x))
    assert_close(run.value("enc/dense/outputs"), first)
    assert_close(run.value("dec/dense/inputs"), first)
    assert_close(run.value("dec/dense/outputs"), model.get_layer("dec")(first))
    weights = {each.tobytes() for each in run.watcher.after[run.last]}
    saved = {run.value(name).tobytes() for name in found if name.endswith(":0")}
    assert saved == weights
    expected = own_gradients(run.start(), rows(x), rows(y))
    for layer, number in (("enc/dense", 0), ("dec/dense", 2), ("head", 4)):
        assert_close(run.value(f"gradients/{layer}/kernelGrad"), expected[number])
        assert_close(run.value(f"gradients/{layer}/biasGrad"), expected[number + 1])


def test_models_in_models_in_models(tmp_path: Path) -> None:
    seeded()
    x, y = data(ROWS)
    middle = [
        keras.Sequential([keras.Input((FEATURES,)), block("leaf")], name=f"branch{number}")
        for number in range(2)
    ]
    model = keras.Sequential([keras.Input((FEATURES,)), *middle, layers.Dense(CLASSES, name="end")])
    run = Run(tmp_path / "run", made(model), x, y)

    assert {name for name in run.names() if "kernel" in name} == {
        *(f"gradients/branch{n}/leaf/dense/kernelGrad" for n in range(2)),
        *(f"branch{n}/leaf/dense/weights/branch{n}/leaf/dense/kernel:0" for n in range(2)),
        "gradients/end/kernelGrad",
        "end/weights/end/kernel:0",
    }
    assert {"branch0/leaf/dense/outputs", "branch1/leaf/dense/outputs"} <= run.names()
    saved = {run.value(name).tobytes() for name in run.names() if name.endswith(":0")}
    assert saved == {each.tobytes() for each in run.watcher.after[run.last]}


def test_a_shared_layer(tmp_path: Path) -> None:
    seeded()
    x, y = data(ROWS)
    first, second = keras.Input((FEATURES,), name="a"), keras.Input((FEATURES,), name="b")
    layer = layers.Dense(3, name="same")
    both = layers.Concatenate(name="both")([layer(first), layer(second)])
    model = made(keras.Model([first, second], layers.Dense(CLASSES, name="head")(both)))
    run = Run(tmp_path / "run", model, [x, -x], y)

    assert run.names() == {
        "inputs_0", "inputs_1", "labels", "predictions",
        *of_layer("same", "kernel", "bias", inputs=2, outputs=2), *of_layer("both", inputs=2),
        *of_layer("head", "kernel", "bias"),
    }  # fmt: skip
    assert np.array_equal(run.value("inputs_0"), rows(x))
    assert np.array_equal(run.value("inputs_1"), -rows(x))
    assert np.array_equal(run.value("same/inputs_1"), -rows(x))
    layer = run.start().get_layer("same")
    assert_close(run.value("same/outputs_0"), layer(rows(x)))
    assert_close(run.value("same/outputs_1"), layer(-rows(x)))


def two_sided(as_dict: bool) -> Any:
    seeded()
    first, second = keras.Input((FEATURES,), name="zeta"), keras.Input((FEATURES,), name="alpha")
    hidden = layers.Dense(4, name="hidden")(layers.Concatenate(name="both")([first, second]))
    numbers, kinds = layers.Dense(1, name="numbers")(hidden), layers.Dense(2, name="kinds")(hidden)
    if as_dict:
        model = keras.Model({"zeta": first, "alpha": second}, {"z": numbers, "b": kinds})
        loss: Any = {"z": "mse", "b": "mae"}
    else:
        model = keras.Model([first, second], [numbers, kinds])
        loss = ["mse", "mae"]
    model.compile("sgd", loss=loss, jit_compile=False)
    return model


@pytest.mark.parametrize("as_dataset", [False, True])
def test_several_inputs_and_outputs_in_a_dict(as_dataset: bool, tmp_path: Path) -> None:
    x, numbers = targets(ROWS)
    kinds = np.repeat(numbers, 2, 1) + 7
    given: Any = {"zeta": x, "alpha": -x}, {"z": numbers, "b": kinds}
    run = Run(
        tmp_path / "run", two_sided(True), *((batches(*given), None) if as_dataset else given)
    )

    # In the order of the keys.
    assert np.array_equal(run.value("inputs_0"), -rows(x))
    assert np.array_equal(run.value("inputs_1"), rows(x))
    assert np.array_equal(run.value("labels_0"), rows(kinds))
    assert np.array_equal(run.value("labels_1"), rows(numbers))
    found = run.start()({"zeta": rows(x), "alpha": -rows(x)})
    assert_close(run.value("predictions_0"), found["b"])
    assert_close(run.value("predictions_1"), found["z"])
    assert {name for name in run.names() if "/" not in name} - NUMBERS <= {
        "inputs_0", "inputs_1", "labels_0", "labels_1", "predictions_0", "predictions_1",
        "z_loss", "b_loss", "kinds_loss", "numbers_loss",
    }  # fmt: skip


def test_several_inputs_and_outputs_in_a_list(tmp_path: Path) -> None:
    x, numbers = targets(ROWS)
    kinds = np.repeat(numbers, 2, 1) + 7
    run = Run(tmp_path / "run", two_sided(False), [x, -x], [numbers, kinds])

    assert np.array_equal(run.value("inputs_1"), -rows(x))
    assert np.array_equal(run.value("labels_0"), rows(numbers))
    assert np.array_equal(run.value("labels_1"), rows(kinds))
    found = run.start()([rows(x), -rows(x)])
    assert_close(run.value("predictions_0"), found[0])
    assert_close(run.value("predictions_1"), found[1])
    assert_close(run.value("numbers/outputs"), found[0])


def test_a_model_that_returns_a_tuple_and_ignores_an_input(tmp_path: Path) -> None:
    class Odd(Subclassed):
        def call(self, given: Any, training: bool | None = None) -> Any:
            return super().call(given["wanted"])

    seeded()
    x, y = data(ROWS)
    run = Run(tmp_path / "run", made(Odd()), {"wanted": x, "number": np.arange(ROWS)}, y)

    assert np.array_equal(run.value("inputs_0").ravel(), np.arange(8, 16))
    assert np.array_equal(run.value("inputs_1"), rows(x))
    assert np.array_equal(run.value("first/inputs"), rows(x))


def test_more_than_ten_inputs(tmp_path: Path) -> None:
    seeded()
    x, y = data(ROWS)
    given = [keras.Input((FEATURES,), name=f"given{number:02}") for number in range(12)]
    model = keras.Model(given, layers.Dense(CLASSES, name="end")(layers.Add(name="sum")(given)))
    arrays = [x * number for number in range(12)]
    run = Run(tmp_path / "run", made(model), arrays, y, [], regexes=["^(sum/)?inputs_1[01]$"])

    assert run.names() == {"inputs_10", "inputs_11", "sum/inputs_10", "sum/inputs_11"}
    assert np.array_equal(run.value("inputs_11"), rows(arrays[11]))


# ---- the kinds of layers


@pytest.mark.parametrize("eagerly", [False, True])
def test_recurrent_layers(eagerly: bool, tmp_path: Path) -> None:
    seeded()
    x, y = sequences(ROWS, length=3), labels(features(ROWS))
    model = keras.Sequential(
        [
            keras.Input((3, 3)),
            layers.Bidirectional(layers.LSTM(2, return_sequences=True), name="both"),
            layers.SimpleRNN(2, name="simple"),
            layers.Dense(CLASSES, name="head"),
        ]
    )
    run = Run(tmp_path / "run", made(model, run_eagerly=eagerly), x, y)

    first, second, _ = run.start().layers
    assert_close(run.value("both/outputs"), first(rows(x)))
    assert_close(run.value("simple/outputs"), second(first(rows(x))))
    expected = own_gradients(run.start(), rows(x), rows(y))
    found = {name for name in run.names() if name.startswith("gradients/")}
    assert len(found) == len(expected) == 11
    saved = sorted((run.value(name).shape, np.abs(run.value(name)).sum()) for name in found)
    truth = sorted((each.shape, np.abs(each).sum()) for each in expected)
    for (shape, total), (true_shape, true_total) in zip(saved, truth, strict=True):
        assert shape == true_shape
        assert total == pytest.approx(true_total, rel=1e-4)
    # What is called in a loop is not saved, however Keras runs.
    assert not run.names("cell/inputs")
    assert not run.names("cell/outputs")


def test_a_stateful_layer(tmp_path: Path) -> None:
    seeded()
    x, y = sequences(24), labels(features(24))
    given = keras.Input(batch_shape=(BATCH, 5, 3))
    inner = layers.LSTM(3, stateful=True, name="memory")(given)
    model = made(keras.Model(given, layers.Dense(CLASSES, name="head")(inner)), "adam")
    start = model.get_weights()
    run = Run(tmp_path / "run", model, x, y)

    model.set_weights(start)
    layer = model.get_layer("memory")
    layer.reset_states() if hasattr(layer, "reset_states") else layer.reset_state()
    for step in range(3):
        model.set_weights(run.watcher.before[step])
        assert_close(run.value("memory/outputs", step), layer(rows(x, step)))


def test_embedding_gradients_are_dense(tmp_path: Path) -> None:
    seeded()
    x, y = tokens(ROWS), labels(features(ROWS))
    model = keras.Sequential(
        [
            keras.Input((5,), dtype="int32"),
            layers.Embedding(11, 4, name="words"),
            layers.Flatten(name="flat"),
            layers.Dense(CLASSES, name="head"),
        ]
    )
    run = Run(tmp_path / "run", made(model, "adam"), x, y)

    assert run.value("gradients/words/embeddingsGrad").shape == (11, 4)
    run.assert_gradients(rows(x), rows(y), ["words/embeddings", "head/kernel", "head/bias"])
    assert np.array_equal(run.value("words/inputs"), rows(x))


def test_masked_words(tmp_path: Path) -> None:
    seeded()
    x, y = tokens(ROWS), labels(features(ROWS))
    model = keras.Sequential(
        [
            keras.Input((5,), dtype="int32"),
            layers.Embedding(11, 4, mask_zero=True, name="words"),
            layers.GRU(3, name="memory"),
            layers.Dense(CLASSES, name="head"),
        ]
    )
    run = Run(tmp_path / "run", made(model), x, y)

    assert run.names("memory/inputs") == {"memory/inputs"}
    assert_close(run.value("memory/outputs"), keras.Sequential(run.start().layers[:2])(rows(x)))


def test_attention(tmp_path: Path) -> None:
    seeded()
    x, y = sequences(ROWS), labels(features(ROWS))
    given = keras.Input((5, 3))
    mixed = layers.MultiHeadAttention(2, 2, name="look")(given, given)
    pooled = layers.GlobalAveragePooling1D(name="pool")(mixed)
    model = made(keras.Model(given, layers.Dense(CLASSES, name="head")(pooled)))
    run = Run(tmp_path / "run", model, x, y)

    expected = run.start().get_layer("look")(rows(x), rows(x))
    assert_close(run.value("look/outputs"), expected)
    for number in range(2):
        assert np.array_equal(run.value(f"look/inputs_{number}"), rows(x))
    for part in ("query", "key", "value", "attention_output"):
        for each in ("kernel", "bias"):
            assert f"look/weights/look/{part}/{each}:0" in run.names()
            assert f"gradients/look/{part}/{each}Grad" in run.names()


def test_inputs_by_keyword(tmp_path: Path) -> None:
    class Looking(keras.Model):  # type: ignore[misc, unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.look = layers.MultiHeadAttention(1, 2, name="look")
            self.end = layers.Dense(CLASSES, name="end")

        def call(self, given: Any) -> Any:
            return self.end(self.look(given, value=given * 2, key=given * 3)[:, 0])

    seeded()
    x, y = sequences(ROWS), labels(features(ROWS))
    run = Run(tmp_path / "run", made(Looking()), x, y)

    saved = [run.value(name) for name in sorted(run.names("look/inputs"))]
    assert len(saved) == 3
    for times, tensor in enumerate(saved, 1):
        assert_close(tensor, rows(x) * times)


def test_batch_normalization(tmp_path: Path) -> None:
    seeded()
    x, y = images(ROWS), labels(features(ROWS))
    run = Run(tmp_path / "run", made(image_model(), "adam"), x, y)

    assert run.names("norm") == of_layer("norm", "gamma", "beta", "moving_mean", "moving_variance")
    assert run.names("relu") == of_layer("relu")
    conv, norm, relu = run.start().layers[:3]
    inner = conv(rows(x))
    assert_close(run.value("conv/outputs"), inner)
    outer = norm(inner, training=True)
    assert_close(run.value("norm/outputs"), outer)
    assert_close(run.value("relu/outputs"), relu(outer))
    for number, name in enumerate(("gamma", "beta", "moving_mean", "moving_variance"), 2):
        saved = run.value(f"norm/weights/norm/{name}:0")
        assert np.array_equal(saved, run.watcher.after[run.last][number])
    names = ["conv/kernel", "conv/bias", "norm/gamma", "norm/beta", "head/kernel", "head/bias"]
    run.assert_gradients(rows(x), rows(y), names)


class Scaled(layers.Layer):  # type: ignore[misc, unused-ignore]
    """A layer with layers and variables of its own."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.inner = layers.Dense(5, name="inner")
        self.parts = [layers.Dense(4, name="part"), layers.Dense(4, name="part")]

    def build(self, shape: Any) -> None:
        self.factor = self.add_weight(shape=(4,), initializer="ones", name="factor")
        self.bias = self.add_weight(shape=(4,), name="bias")
        self.count = self.add_weight(shape=(), trainable=False, name="count")
        if KERAS_3:
            # Keras 2 gives layers that are built here other names.
            self.inner.build(shape)
            for part in self.parts:
                part.build((None, 5))
        super().build(shape)

    def call(self, given: Any) -> Any:
        self.count.assign(self.count + 1)
        inner = self.inner(given)
        return (self.parts[0](inner) + self.parts[1](inner)) * self.factor + self.bias


def test_a_layer_of_layers(tmp_path: Path) -> None:
    seeded()
    x, y = data(ROWS)
    model = keras.Sequential(
        [keras.Input((FEATURES,)), Scaled(name="mine"), layers.Dense(CLASSES, name="head")]
    )
    run = Run(tmp_path / "run", made(model), x, y)

    weights = {name for name in run.names() if name.endswith(":0")}
    assert {name for name in weights if not name.startswith("head/")} >= {
        "mine/weights/mine/factor:0", "mine/weights/mine/bias:0", "mine/weights/mine/count:0",
        "mine/weights/mine/inner/kernel:0", "mine/weights/mine/inner/bias:0",
    }  # fmt: skip
    assert len(weights) == len(model.weights) == 11
    assert sorted(run.value(name).tobytes() for name in weights) == sorted(
        each.tobytes() for each in run.watcher.after[run.last]
    )
    assert {"mine/outputs", "inner/outputs"} <= run.names()
    assert len(run.names("part/outputs")) + len(run.names("part_1/outputs")) == 2
    expected = own_gradients(run.start(), rows(x), rows(y))
    found = run.names("gradients/")
    assert len(found) == len(expected) == 10
    saved = sorted(float(np.abs(run.value(name)).sum()) for name in found)
    assert saved == pytest.approx(sorted(float(np.abs(each).sum()) for each in expected), rel=1e-4)
    layer = run.start().get_layer("mine")
    assert_close(run.value("inner/outputs"), layer.inner(rows(x)))
    assert_close(run.value("mine/outputs"), layer(rows(x)))


class OwnVariable(Subclassed):
    """A model that has a variable besides its layers."""

    def __init__(self) -> None:
        super().__init__()
        self.temperature = self.add_weight(shape=(), initializer="ones", name="temperature")

    def call(self, given: Any, training: bool | None = None) -> Any:
        return super().call(given) / self.temperature


def test_a_model_with_a_variable_of_its_own(tmp_path: Path) -> None:
    seeded()
    x, y = data(ROWS)
    run = Run(tmp_path / "run", made(OwnVariable()), x, y)

    (name,) = (name for name in run.names("temperature") if name.endswith(":0"))
    (gradient,) = run.names("temperatureGrad")
    assert "weights/" in name
    place = [each.shape for each in run.watcher.after[run.last]].index(())
    assert run.value(name) == run.watcher.after[run.last][place]
    expected = own_gradients(run.start(), rows(x), rows(y))
    assert run.value(gradient) == pytest.approx(expected[place], rel=1e-4)
    assert len({*run.names()}) == 3 + 1 + 1 + 2 * 6


def test_a_variable_that_two_layers_have(tmp_path: Path) -> None:
    class Tied(layers.Layer):  # type: ignore[misc, unused-ignore]
        def __init__(self, other: Any, **options: Any) -> None:
            super().__init__(**options)
            self.other = other

        def call(self, given: Any) -> Any:
            return tf.matmul(given, tf.convert_to_tensor(self.other.kernel), transpose_b=True)

    seeded()
    x, _ = data(ROWS)
    first = layers.Dense(3, name="first")
    model = keras.Sequential([keras.Input((FEATURES,)), first, Tied(first, name="back")])
    model.compile("sgd", "mse", jit_compile=False)
    run = Run(tmp_path / "run", model, x, x)

    assert run.names("kernel") == {
        "first/weights/first/kernel:0", "gradients/first/kernelGrad"
    }  # fmt: skip
    assert_close(
        run.value("gradients/first/kernelGrad"), own_gradients(run.start(), rows(x), rows(x))[0]
    )


def test_frozen_layers_have_no_gradients(tmp_path: Path) -> None:
    seeded()
    model = sequential()
    model.get_layer("first").trainable = False
    x, y = data(ROWS)
    run = Run(tmp_path / "run", made(model), x, y)

    assert run.names("first") == {
        "first/inputs", "first/outputs", "first/weights/first/kernel:0",
        "first/weights/first/bias:0",
    }  # fmt: skip
    run.assert_gradients(rows(x), rows(y), ["second/kernel", "second/bias"])


def test_variables_the_loss_does_not_depend_on_have_no_gradient(tmp_path: Path) -> None:
    class Unused(Subclassed):
        def __init__(self) -> None:
            super().__init__()
            self.spare = layers.Dense(2, name="spare")

        def call(self, given: Any, training: bool | None = None) -> Any:
            self.spare(given)
            return super().call(given)

        def train_step(self, given: Any) -> Any:
            x, y = given[:2]
            with tf.GradientTape() as tape:
                loss = self.compute_loss(x=x, y=y, y_pred=self(x, training=True))
            gradients = tape.gradient(loss, self.trainable_variables)
            pairs = zip(gradients, self.trainable_variables, strict=True)
            self.optimizer.apply_gradients([pair for pair in pairs if pair[0] is not None])
            return {"loss": loss}

    seeded()
    run = Run(tmp_path / "run", made(Unused(), metrics=None), *data(ROWS))

    assert not run.names("gradients/spare")
    assert run.names("spare") == of_layer("spare", "kernel", "bias") - {
        "gradients/spare/kernelGrad", "gradients/spare/biasGrad"
    }  # fmt: skip
    assert len(run.names("gradients/")) == 4


# ---- steps of one's own


class OwnStep(Subclassed):
    """A model with its own train and test step."""

    def train_step(self, given: Any) -> Any:
        x, y = given[:2]
        with tf.GradientTape() as tape:
            loss = 3 * self.compute_loss(x=x, y=y, y_pred=self(x, training=True))
        variables = self.trainable_variables
        gradients = tape.gradient(loss, variables)
        self.optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return {"loss": loss, "my_loss": loss / 3, "sizes": {"a": 1.0}, "mine": loss * 0 + 7}

    def test_step(self, given: Any) -> Any:
        x, y = given[:2]
        return {"far": tf.reduce_mean(self(2 * x, training=False)) + 0 * tf.cast(y[0], tf.float32)}


def test_custom_train_steps(tmp_path: Path) -> None:
    seeded()
    x, y = data(ROWS)
    run = Run(tmp_path / "run", made(OwnStep(), metrics=None), x, y, validation_data=(x[:8], y[:8]))

    expected = own_gradients(run.start(), rows(x), rows(y))
    names = ["first/kernel", "first/bias", "second/kernel", "second/bias"]
    for name, gradient in zip(names, expected, strict=True):
        assert_close(run.value(f"gradients/{name}Grad"), 3 * gradient)
    logs = run.watcher.logs["train"][run.last]
    for name in ("loss", "my_loss", "mine"):
        assert run.value(name)[0] == logs[name]
    assert "my_loss" in run.trial.tensor_names(collection="losses")
    assert "mine" in run.trial.tensor_names(collection="metrics")
    saved = run.trial.tensor("first/inputs").value(0, mode=modes.EVAL)
    assert_close(saved, 2 * x[:8])
    assert run.trial.tensor("far").steps(mode=modes.EVAL) == [0]


class Gan(keras.Model):  # type: ignore[misc, unused-ignore]
    """Two networks with an optimizer each, held in one of several ways."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.maker = keras.Sequential(
            [keras.Input((2,)), layers.Dense(FEATURES, name="make")], name="maker"
        )
        self.critic = keras.Sequential(
            [keras.Input((FEATURES,)), layers.Dense(1, name="judge")], name="critic"
        )

    def compile(self, first: Any, second: Any) -> None:
        super().compile()
        if self.how == "attributes":
            self.first, self.second = first, second
        elif self.how == "dict":
            self.both: Any = {"maker": first, "critic": second}
        else:
            self.both = [first, second]

    def optimizers(self) -> tuple[Any, Any]:
        if self.how == "attributes":
            return self.first, self.second
        return tuple(self.both.values() if self.how == "dict" else self.both)

    def train_step(self, real: Any) -> Any:
        first, second = self.optimizers()
        noise = tf.ones((tf.shape(real)[0], 2))
        with tf.GradientTape() as tape:
            made = self.maker(noise, training=True)
            critic_loss = tf.reduce_mean(self.critic(made) - self.critic(real))
        variables = self.critic.trainable_variables
        gradients = tape.gradient(critic_loss, variables)
        second.apply_gradients(zip(gradients, variables, strict=True))
        with tf.GradientTape() as tape:
            loss = -tf.reduce_mean(self.critic(self.maker(noise, training=True)))
        variables = self.maker.trainable_variables
        first.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return {"critic_loss": critic_loss, "maker_loss": loss}


@pytest.mark.parametrize("how", ["attributes", "dict", "list"])
def test_two_optimizers(how: str, tmp_path: Path) -> None:
    seeded()
    model, x = Gan(how), features(ROWS)
    model.compile(keras.optimizers.Adam(0.01), keras.optimizers.SGD(0.1, momentum=0.9))
    before: list[Any] = []
    hook = saver(tmp_path / "run", [*INSIDE, "optimizer_variables"])
    seen = keras.callbacks.LambdaCallback(
        on_train_batch_begin=lambda batch, logs: before.append(model.get_weights())
    )
    model.fit(x, batch_size=BATCH, shuffle=False, verbose=0, callbacks=[seen, hook])
    hook.close()
    trial = trial_of(tmp_path / "run")

    def at(name: str) -> Array:
        found: Array = trial.tensor(name).value(1, mode=modes.TRAIN)
        return found

    # The critic's loss is linear in its kernel.
    kernel, bias, _, _ = before[1]
    made = np.ones((BATCH, 2), np.float32) @ kernel + bias
    expected = (made.mean(0) - rows(x).mean(0)).reshape(-1, 1)
    assert_close(at("gradients/judge/kernelGrad"), expected)
    judge = at("judge/weights/judge/kernel:0")
    assert_close(at("gradients/make/biasGrad"), -judge[:, 0])
    assert {"critic_loss", "maker_loss"} <= set(trial.tensor_names(collection="losses"))
    assert np.array_equal(at("inputs"), rows(x))
    assert {f"judge/outputs_{number}" for number in range(3)} <= set(trial.tensor_names())
    variables = " ".join(trial.tensor_names(collection="optimizer_variables")).lower()
    assert "adam" in variables
    assert "sgd" in variables


def test_several_updates_in_one_step(tmp_path: Path) -> None:
    class Often(Subclassed):
        def train_step(self, given: Any) -> Any:
            x, y = given[:2]
            variables = self.trainable_variables
            for number in range(2):
                with tf.GradientTape() as tape:
                    loss = self.compute_loss(x=x, y=y, y_pred=self(x, training=True))
                gradients = tape.gradient(loss, variables)
                gradients = [each * (number + 1.0) for each in gradients]
                self.optimizer.apply_gradients(zip(gradients, variables, strict=True))
            return {"loss": loss}

    seeded()
    x, y = data(ROWS)
    model = Often()
    model(x)
    run = Run(tmp_path / "run", made(model, metrics=None), x, y)

    first = own_gradients(run.start(), rows(x), rows(y))
    assert_close(run.value("gradients/second/biasGrad"), first[3])
    weights = [
        weight - np.float32(0.01) * each
        for weight, each in zip(run.watcher.before[run.last], first, strict=True)
    ]
    second = own_gradients(model, rows(x), rows(y), weights)
    assert_close(run.value("gradients/second/biasGrad_1"), 2 * second[3])
    assert {"predictions_0", "predictions_1", "first/outputs_1"} <= run.names()
    assert "gradients/second/biasGrad_1" in run.trial.tensor_names(collection="gradients")


def test_a_model_that_is_trained_by_another_class(tmp_path: Path) -> None:
    """A wrapper with a `call` that never runs has no predictions, and everything else."""

    class Distilled(keras.Model):  # type: ignore[misc, unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.student, self.teacher = sequential(name="student"), sequential(name="teacher")
            self.teacher.trainable = False

        def train_step(self, given: Any) -> Any:
            x = given[0]
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((self.student(x, training=True) - self.teacher(x)) ** 2)
            variables = self.student.trainable_variables
            gradients = tape.gradient(loss, variables)
            self.optimizer.apply_gradients(zip(gradients, variables, strict=True))
            return {"loss": loss}

    seeded()
    x, y = data(ROWS)
    model = Distilled()
    model.compile("sgd", jit_compile=False)
    run = Run(tmp_path / "run", model, x, y)

    assert run.names("gradients/") == {
        f"gradients/student/{layer}/{each}Grad"
        for layer in ("first", "second")
        for each in ("kernel", "bias")
    }
    teacher = model.teacher
    assert_close(run.value("teacher/second/outputs"), teacher(rows(x)))
    assert_close(run.value("teacher/outputs"), teacher(rows(x)))
    assert np.array_equal(run.value("inputs"), rows(x))
    assert "predictions" not in run.names()
    assert {"student/first/outputs", "teacher/first/outputs"} <= run.names()


# ---- functions inside functions


class Branches(Subclassed):
    """Layers inside a `tf.function`, a condition and a loop."""

    def __init__(self) -> None:
        super().__init__()
        self.chosen = layers.Dense(8, name="chosen")
        self.often = layers.Dense(8, name="often")
        self.hidden = layers.Dense(8, name="hidden")

    @tf.function
    def inner(self, given: Any) -> Any:
        return self.hidden(given)

    def call(self, given: Any, training: bool | None = None) -> Any:
        found = self.first(given)
        found = tf.cond(
            tf.reduce_sum(given) > 0, lambda: self.chosen(found), lambda: self.chosen(-found)
        )
        _, found = tf.while_loop(
            lambda number, _: number < 2,
            lambda number, inner: (number + 1, self.often(inner)),
            (0, found),
        )
        return self.second(self.inner(found))


@pytest.mark.parametrize("eagerly", [False, True])
def test_layers_inside_functions(eagerly: bool, tmp_path: Path) -> None:
    seeded()
    model = Branches()
    x, y = data(ROWS)
    model(x)
    run = Run(tmp_path / "run", made(model, run_eagerly=eagerly), x, y)

    assert len(run.names("gradients/")) == 10
    expected = own_gradients(run.start(), rows(x), rows(y))
    saved = sorted(float(np.abs(run.value(name)).sum()) for name in run.names("gradients/"))
    assert saved == pytest.approx(sorted(float(np.abs(each).sum()) for each in expected), rel=1e-4)
    assert_close(run.value("first/outputs"), model.first(rows(x)))
    assert_close(run.value("second/outputs"), model(rows(x)))
    assert not run.names("hidden/outputs")


def test_model_inside_a_function(tmp_path: Path) -> None:
    class Decorated(Subclassed):
        @tf.function
        def call(self, given: Any, training: bool | None = None) -> Any:
            return super().call(given)

    seeded()
    model = Decorated()
    x, y = data(ROWS)
    model(x)
    run = Run(tmp_path / "run", made(model), x, y)

    assert run.names("gradients/") == {
        f"gradients/{layer}/{each}Grad"
        for layer in ("first", "second")
        for each in ("kernel", "bias")
    }
    assert_close(run.value("predictions"), run.start()(rows(x)))


class SparseInside(Subclassed):
    """A step inside its own `tf.function`, with a sparse gradient in it."""

    def __init__(self) -> None:
        super().__init__()
        self.words = layers.Embedding(7, 4, name="words")

    def call(self, given: Any, training: bool | None = None) -> Any:
        return super().call(tf.reduce_mean(self.words(given), axis=1))

    @tf.function
    def train_step(self, given: Any) -> Any:
        x, y = given
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.reduce_mean(self(x), axis=1) - y))
        variables = self.trainable_variables
        gradients = tape.gradient(loss, variables)
        self.optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return {"loss": loss}


def test_a_step_inside_a_function(tmp_path: Path) -> None:
    seeded()
    x, y = tokens(ROWS) % 7, np.ones(ROWS, np.float32)
    model = SparseInside()
    model(x)
    model.compile("sgd", jit_compile=False)
    run = Run(tmp_path / "run", model, x, y)

    # Nothing else can leave the function.
    assert run.names() == {"inputs", "labels", *(name for name in run.names("weights/"))}
    np.testing.assert_array_equal(run.value("inputs"), rows(x))


@pytest.mark.parametrize(
    ("layer", "has"),
    [
        (layers.LSTM(3), False),
        (layers.Lambda(lambda given: tf.numpy_function(np.sin, [given], tf.float32)), True),
    ],
    ids=["recurrent", "Python"],
)
def test_steps_that_cannot_be_undone(layer: Any, has: bool) -> None:
    model = keras.Sequential([keras.Input((4, 2)), layer])
    found = []

    @tf.function
    def step(given: Any) -> Any:
        recording = Recording(model)
        result = model(given)
        found.append(recording.has_other_effects())
        return result

    step(tf.ones((2, 4, 2)))
    assert found == [has]


# ---- optimizers


def test_gradients_before_they_are_clipped(tmp_path: Path) -> None:
    seeded()
    x, y = data(ROWS)
    run = Run(tmp_path / "run", made(sequential(), keras.optimizers.SGD(0.1, clipvalue=1e-4)), x, y)

    run.assert_gradients(
        rows(x), rows(y), ["first/kernel", "first/bias", "second/kernel", "second/bias"]
    )
    moved = np.abs(run.watcher.after[run.last][2] - run.watcher.before[run.last][2])
    assert moved.max() < 2e-5


def test_mixed_precision(tmp_path: Path) -> None:
    seeded()
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        model = made(sequential(), keras.optimizers.SGD(0.1))
    finally:
        keras.mixed_precision.set_global_policy("float32")
    x, y = data(ROWS)
    run = Run(tmp_path / "run", model, x, y)
    expected = own_gradients(
        compiled(sequential(), jit_compile=False), rows(x), rows(y), run.watcher.before[run.last]
    )

    names = ["first/kernel", "first/bias", "second/kernel", "second/bias"]
    for name, gradient in zip(names, expected, strict=True):
        saved = run.value(f"gradients/{name}Grad")
        np.testing.assert_allclose(saved, gradient, rtol=0.05, atol=2e-3)
    assert run.value("first/outputs").dtype == np.float16
    assert run.value("first/weights/first/kernel:0").dtype == np.float32


def test_scaled_gradients_that_are_not_finite(tmp_path: Path) -> None:
    """The scale is too large at first: such gradients are saved as they are."""
    seeded()
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        inner = keras.optimizers.SGD(0.1)
        scaled = keras.mixed_precision.LossScaleOptimizer(inner, initial_scale=2.0**40)
        model = made(sequential(), scaled)
    finally:
        keras.mixed_precision.set_global_policy("float32")
    run = Run(tmp_path / "run", model, *data(ROWS))

    assert not np.isfinite(run.value("gradients/first/kernelGrad")).all()
    for before, after in zip(run.watcher.before[0], run.watcher.after[0], strict=True):
        assert np.array_equal(before, after)
    assert np.isfinite(run.value("first/weights/first/kernel:0")).all()


@pytest.mark.skipif(not KERAS_3, reason="Keras 2 accumulates no gradients")
def test_accumulated_gradients_are_those_of_each_batch(tmp_path: Path) -> None:
    seeded()
    x, y = data(ROWS)
    optimizer = keras.optimizers.SGD(0.1, gradient_accumulation_steps=2)
    run = Run(tmp_path / "run", made(sequential(), optimizer), x, y)

    run.assert_gradients(
        rows(x), rows(y), ["first/kernel", "first/bias", "second/kernel", "second/bias"]
    )
    assert np.array_equal(run.watcher.before[0][0], run.watcher.after[0][0])


def test_moving_averages_are_optimizer_variables(tmp_path: Path) -> None:
    seeded()
    optimizer = keras.optimizers.SGD(
        0.1, use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=None
    )
    x, y = data(ROWS)
    run = Run(tmp_path / "run", made(sequential(), optimizer), x, y, ["optimizer_variables"])

    names = run.trial.tensor_names(collection="optimizer_variables")
    assert len(set(names)) == len(run.watcher.optimizer[1])
    saved = sorted(run.value(name).ravel().tolist() for name in names)
    assert saved == sorted(each.ravel().tolist() for each in run.watcher.optimizer[1])


# ---- names


@pytest.mark.parametrize(
    "name",
    # Of a layer called `weights` Keras 2 has optimizer variables that are named like weights.
    [*(["weights"] if KERAS_3 else []), "bias", "my_weights", "loss", "gradients", "inputs",
     "outputs", "labels", "batch", "x.y", "x-y", "Grad", "outputs_0"],
)  # fmt: skip
def test_unusual_layer_names(name: str, tmp_path: Path) -> None:
    seeded()
    model = keras.Sequential(
        [
            keras.Input((FEATURES,)),
            layers.Dense(4, "relu", name=name),
            layers.Dense(CLASSES, name="end"),
        ]
    )
    x, y = data(ROWS)
    run = Run(tmp_path / "run", made(model), x, y)

    expected = {*DATA, *of_layer(name, "kernel", "bias"), *of_layer("end", "kernel", "bias")}
    assert run.names() == expected
    collections = {
        "weights": {f"{name}/weights/{name}/kernel:0", "end/weights/end/kernel:0"},
        "biases": {f"{name}/weights/{name}/bias:0", "end/weights/end/bias:0"},
        "gradients": {each for each in expected if each.endswith("Grad")},
        "layers": {f"{layer}/{kind}" for layer in (name, "end") for kind in ("inputs", "outputs")},
        "inputs": {"inputs"},
        "outputs": {"labels", "predictions"},
        "losses": {"loss"},
    }
    found = {each: set(run.trial.tensor_names(collection=each)) for each in collections}
    assert found == collections
    run.assert_gradients(
        rows(x), rows(y), [f"{name}/kernel", f"{name}/bias", "end/kernel", "end/bias"]
    )


@pytest.mark.skipif(KERAS_3, reason="Keras 3 allows no / in the name of a layer")
def test_names_of_layers_with_a_slash(tmp_path: Path) -> None:
    seeded()
    model = keras.Sequential(
        [
            keras.Input((FEATURES,)),
            layers.Dense(4, "relu", name="a/b"),
            layers.Dense(4, "relu", name="b/layers/c"),
            layers.Dense(CLASSES, name="c"),
        ]
    )
    x, y = data(ROWS)
    run = Run(tmp_path / "run", made(model), x, y)

    for name in ("a/b", "b/layers/c", "c"):
        assert of_layer(name, "kernel", "bias") <= run.names()
    assert set(run.trial.tensor_names(collection="layers")) == {
        f"{name}/{kind}" for name in ("a/b", "b/layers/c", "c") for kind in ("inputs", "outputs")
    }
    assert len(run.trial.tensor_names(collection="weights")) == 3


def test_an_added_layer_is_saved_alone(tmp_path: Path) -> None:
    seeded()
    model = made(sequential())
    hook = saver(tmp_path / "run", ["mine"])
    mine: Any = hook.get_collection("mine")
    mine.add_keras_layer(model.get_layer("second"), inputs=True)
    mine.add(model.get_layer("first").kernel)
    fit(model, *data(ROWS), hook)
    hook.close()
    trial = trial_of(tmp_path / "run")

    assert set(trial.tensor_names(collection="mine")) == {
        "second/inputs", "second/outputs", "first/weights/first/kernel:0"
    }  # fmt: skip


# ---- data that are no arrays of numbers


def test_words_as_inputs(tmp_path: Path) -> None:
    seeded()
    words = np.array([["a b"], ["b c"], ["c a"], ["a a"]] * 4)
    vectors = layers.TextVectorization(output_mode="int", output_sequence_length=2, name="split")
    vectors.adapt(words)
    model = keras.Sequential(
        [
            keras.Input((1,), dtype="string"),
            vectors,
            layers.Embedding(8, 4, name="words"),
            layers.Flatten(name="flat"),
            layers.Dense(CLASSES, name="end"),
        ]
    )
    _, y = data(ROWS)
    run = Run(tmp_path / "run", made(model), batches(tf.constant(words), y))

    assert run.value("inputs").ravel().tolist() == rows(words).ravel().tolist()
    assert run.value("split/outputs").shape == (BATCH, 2)
    assert run.value("gradients/words/embeddingsGrad").shape == (8, 4)


@pytest.mark.skipif(KERAS_3, reason="Keras 3 has no ragged inputs")
def test_ragged_inputs_are_skipped(tmp_path: Path) -> None:
    seeded()
    model = keras.Sequential(
        [
            keras.Input((None,), dtype="int32", ragged=True),
            layers.Embedding(8, 4, name="words"),
            layers.GlobalAveragePooling1D(name="pool"),
            layers.Dense(CLASSES, name="end"),
        ]
    )
    x = tf.ragged.constant([[1, 2, 3], [4], [5, 6], [7]] * 4, dtype=tf.int32)
    _, y = data(ROWS)
    run = Run(tmp_path / "run", made(model), x, y)

    assert run.value("end/outputs").shape == (BATCH, CLASSES)
    assert run.value("gradients/words/embeddingsGrad").shape == (8, 4)


def test_losses_that_layers_add(tmp_path: Path) -> None:
    seeded()
    x, _ = data(ROWS)
    model = keras.Sequential(
        [
            keras.Input((FEATURES,)),
            layers.Dense(3, kernel_regularizer="l2", name="code"),
            layers.ActivityRegularization(l2=0.1, name="small"),
            layers.Dense(FEATURES, name="back"),
        ]
    )
    model.compile("sgd", "mse", jit_compile=False)
    run = Run(tmp_path / "run", model, x, x)

    run.assert_gradients(rows(x), rows(x), ["code/kernel", "code/bias", "back/kernel", "back/bias"])


def test_no_labels_at_all(tmp_path: Path) -> None:
    class Small(Subclassed):
        def train_step(self, given: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(self(given, training=True) ** 2)
            variables = self.trainable_variables
            gradients = tape.gradient(loss, variables)
            self.optimizer.apply_gradients(zip(gradients, variables, strict=True))
            return {"loss": loss}

    seeded()
    x, _ = data(ROWS)
    run = Run(
        tmp_path / "run",
        made(Small(), metrics=None),
        tf.data.Dataset.from_tensor_slices(x).batch(8),
    )

    assert run.names() & {"labels", "inputs", "predictions"} == {"inputs", "predictions"}
    assert np.array_equal(run.value("inputs"), rows(x))
