"""What the layers, variables and gradients of a Keras model are called."""

from __future__ import annotations

import re
from typing import Any

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from smdebug.tensorflow.keras.layers import ModelNames, distinct, variable_name
from smdebug.tensorflow.naming import (
    KERAS_COLLECTIONS,
    LAYER_TENSORS,
    NOT_OF_A_LAYER,
    gradient_name,
    numbered,
    without_output,
)

keras: Any = tf.keras
KERAS_3 = hasattr(keras, "ops")
# Keras 2 draws its seeds in a way that Python warns of.
pytestmark = pytest.mark.filterwarnings("ignore:non-integer arguments to randrange")


def dense(name: str | None = None, units: int = 2) -> Any:
    return keras.layers.Dense(units, name=name)


def sequential(*layers: Any, name: str | None = None) -> Any:
    return keras.Sequential([keras.Input((2,)), *layers], name=name)


def weights_of(model: Any) -> list[str]:
    return [weight.name for weight in ModelNames(model).weights]


def check_names(model: Any) -> ModelNames:
    """Every variable is named once, every name is one variable's."""
    names = ModelNames(model)
    assert [id(each.variable) for each in names.weights] == [id(each) for each in model.weights]
    for kind in ("name", "gradient"):
        found = [getattr(each, kind) for each in names.weights]
        assert len(set(found)) == len(found), found
    layers = list(names.layers.values())
    assert len(set(layers)) == len(layers), layers
    for each in names.weights:
        variable = names.variable(each.variable)
        assert each.name in {f"{layer}/weights/{variable}:0" for layer in layers}
        assert each.gradient == names.gradient(each.variable) == f"gradients/{variable}Grad"
    return names


# ---- numbers after names


@given(st.dictionaries(st.integers(), st.sampled_from(["a", "a_1", "a_1_1", "a_2", "b"])))
def test_distinct_names_are_all_different_and_lose_none(names: dict[int, str]) -> None:
    found = distinct(names)
    assert list(found) == list(names)
    assert len(set(found.values())) == len(found)
    for key, name in found.items():
        assert name == names[key] or re.fullmatch(re.escape(names[key]) + r"(_\d+)+", name)


@given(st.dictionaries(st.integers(), st.text(max_size=4), max_size=30))
def test_distinct_names_of_any_text(names: dict[int, str]) -> None:
    found = distinct(names)
    assert len(set(found.values())) == len(names)
    if len(set(names.values())) == len(names):
        assert found == names


@given(st.text(min_size=1), st.integers(0, 20))
def test_numbered_names(name: str, count: int) -> None:
    found = numbered(name, count)
    assert len(set(found)) == len(found) == count
    if count == 1:
        assert found == [name]
    else:
        assert found == [f"{name}_{place}" for place in range(count)]


def test_names_of_gradients() -> None:
    assert gradient_name("dense/kernel:0") == "gradients/dense/kernelGrad"
    assert gradient_name("dense/kernel") == "gradients/dense/kernelGrad"
    assert without_output("dense/kernel:0") == "dense/kernel"
    assert without_output("dense") == "dense"


def test_a_variable_without_a_model() -> None:
    assert variable_name(tf.Variable(1.0, name="alone")) == "alone"
    layer = dense("mine")
    layer.build((None, 2))
    # Keras 2 reports only what is inside the layer.
    assert variable_name(layer.kernel) in ("mine/kernel", "kernel")


# ---- models


def test_a_plain_model() -> None:
    model = sequential(dense("first"), dense("last"))
    names = check_names(model)
    assert weights_of(model) == [
        "first/weights/first/kernel:0", "first/weights/first/bias:0", "last/weights/last/kernel:0",
        "last/weights/last/bias:0",
    ]  # fmt: skip
    assert names.layer(model.layers[0]) == "first"
    assert names.layer(dense()) is None
    assert names.variable(tf.Variable(1.0)) is None
    assert names.gradient(tf.Variable(1.0)) is None


def test_a_variable_of_the_backend_is_known_by_its_own_name() -> None:
    model = sequential(dense("first"))
    names = ModelNames(model)
    kernel = model.layers[0].kernel
    assert names.variable(getattr(kernel, "_value", kernel)) == "first/kernel"


def test_models_in_models_keep_the_names_of_layers() -> None:
    inner = sequential(dense("deep"), name="inner")
    model = sequential(inner, dense("last"), name="outer")
    names = check_names(model)
    assert weights_of(model)[0] == "deep/weights/deep/kernel:0"
    assert names.layer(inner) == "inner"
    assert names.layer(inner.layers[0]) == "deep"


def test_layers_of_equal_names_in_several_models() -> None:
    encoder = sequential(dense("dense"), name="enc")
    decoder = sequential(dense("dense"), name="dec")
    model = sequential(encoder, decoder, dense("last"), name="both")
    names = check_names(model)
    assert names.layer(encoder.layers[0]) == "enc/dense"
    assert names.layer(decoder.layers[0]) == "dec/dense"
    assert weights_of(model)[0] == "enc/dense/weights/enc/dense/kernel:0"
    assert weights_of(model)[2] == "dec/dense/weights/dec/dense/kernel:0"


def test_models_of_the_same_name_in_several_models() -> None:
    def block(name: str) -> Any:
        return sequential(sequential(dense("dense"), name="inner"), name=name)

    check_names(sequential(block("a"), block("b"), block("c")))


def test_a_layer_called_like_the_model_it_is_in() -> None:
    model = sequential(dense("net"), dense("other"), name="net")
    names = check_names(model)
    assert names.layer(model.layers[0]) is not None


def test_a_shared_layer_is_named_once() -> None:
    shared = dense("shared")
    x = keras.Input((2,))
    model = keras.Model(x, shared(shared(x)))
    check_names(model)
    assert weights_of(model) == ["shared/weights/shared/kernel:0", "shared/weights/shared/bias:0"]


class Block(keras.layers.Layer):
    """A layer made of layers, with a variable of its own."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.inside = [dense("dense"), dense("dense_1")]
        self.also = {"named": dense("dense")}

    def build(self, shape: Any) -> None:
        self.scale = self.add_weight(name="scale", shape=(2,), initializer="ones")
        for each in (*self.inside, *self.also.values()):
            each.build(shape)
        super().build(shape)

    def call(self, x: Any) -> Any:
        for each in (*self.inside, *self.also.values()):
            x = each(x)
        return x * self.scale


def test_a_layer_made_of_layers_owns_their_variables() -> None:
    model = sequential(Block(name="block"), Block(name="block_1"), name="net")
    check_names(model)
    names = weights_of(model)
    assert len(names) == 14
    assert sum(name.startswith("block/weights/block/") for name in names) == 7
    assert sum(name.startswith("block_1/weights/block_1/") for name in names) == 7
    assert "block/weights/block/scale:0" in names


class Subclassed(keras.Model):
    """Has a variable that is no layer's, and a layer in a list."""

    def __init__(self) -> None:
        super().__init__(name="mine")
        self.parts = [dense("part"), dense("part")]
        self.block = Block(name="block")
        self.own = self.add_weight(name="own", shape=(2,), initializer="ones")

    def call(self, x: Any) -> Any:
        for each in self.parts:
            x = each(x)
        return self.block(x) * self.own


def test_a_subclassed_model_with_a_variable_of_its_own() -> None:
    model = Subclassed()
    model(tf.ones((1, 2)))
    names = check_names(model)
    (own,) = [each for each in names.weights if each.variable is model.own]
    assert own.name == "mine/weights/mine/own:0" or own.name == "mine/weights/own:0"


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_wrappers_and_cells_own_what_is_in_them() -> None:
    x = keras.Input((5, 3))
    hidden = keras.layers.Bidirectional(keras.layers.LSTM(2), name="both")(x)
    model = keras.Model(x, hidden)
    check_names(model)
    assert all(name.startswith("both/weights/both/") for name in weights_of(model))
    assert len(weights_of(model)) == 6


def test_normalization_dropout_and_attention() -> None:
    x = keras.Input((4, 6))
    hidden = keras.layers.MultiHeadAttention(2, 3, name="heads")(x, x)
    hidden = keras.layers.LayerNormalization(name="norm")(hidden + x)
    hidden = keras.layers.Dropout(0.5, name="drop")(hidden)
    hidden = keras.layers.BatchNormalization(name="batch")(hidden)
    model = keras.Model(x, hidden)
    check_names(model)
    names = weights_of(model)
    assert "batch/weights/batch/moving_mean:0" in names
    assert sum(name.startswith("heads/weights/heads/") for name in names) == 8


def test_a_model_without_variables() -> None:
    model = sequential(keras.layers.ReLU(name="relu"))
    assert check_names(model).weights == ()


# Names as people choose them; Keras 3 refuses `/`.
NAMES = st.sampled_from(
    ["dense", "dense_1", "bias", "weights", "inputs", "gradients", "a.b", "net"]
)
MODELS = st.recursive(
    NAMES, lambda inside: st.tuples(NAMES, st.lists(inside, min_size=1, max_size=3)), max_leaves=6
)


def build(shape: Any) -> Any:
    if isinstance(shape, str):
        return dense(shape)
    name, inside = shape
    return _Stack([build(each) for each in inside], name)


class _Stack(keras.Model):
    """Layers one after the other; names may be the same."""

    def __init__(self, parts: list[Any], name: str) -> None:
        super().__init__(name=name)
        self.parts = parts

    def call(self, x: Any) -> Any:
        for each in self.parts:
            x = each(x)
        return x


@settings(max_examples=25, deadline=None)
@given(NAMES, st.lists(MODELS, min_size=1, max_size=4))
def test_names_in_any_model(name: str, inside: list[Any]) -> None:
    model = build((name, inside))
    model(tf.ones((1, 2)))
    names = check_names(model)
    # Created again, they are the same: a resumed run has the names of the one before.
    again = ModelNames(model)
    assert [each.name for each in again.weights] == [each.name for each in names.weights]
    for each in names.weights:
        wanted = "biases" if each.variable.name.split(":")[0].endswith("bias") else "weights"
        assert of_model(each.name) == {wanted}, each.name
        assert of_model(each.gradient) == {"gradients"}, each.gradient
    for layer in names.layers.values():
        for kind in ("inputs", "outputs"):
            for tensor in numbered(f"{layer}/{kind}", 2):
                assert re.search(LAYER_TENSORS, tensor), tensor


# ---- collections


def of_model(name: str) -> set[str]:
    """The collections with regexes that match a name."""
    return {
        key
        for key, regexes in KERAS_COLLECTIONS.items()
        if any(re.search(regex, name) for regex in regexes)
    }


@pytest.mark.parametrize(
    ("name", "collections"),
    [
        ("dense/weights/dense/kernel:0", {"weights"}),
        ("dense/weights/dense/bias:0", {"biases"}),
        ("bias/weights/bias/kernel:0", {"weights"}),
        ("debias/weights/debias/bias:0", {"biases"}),
        ("lstm/weights/lstm/lstm_cell/recurrent_kernel:0", {"weights"}),
        ("norm/weights/norm/beta:0", {"weights"}),
        ("heads/weights/heads/query/bias:0", {"biases"}),
        ("table/weights/table/relative_attention_bias:0", {"biases"}),
        ("enc/dense/weights/enc/dense/bias:0", {"biases"}),
        ("weights/dense/kernel:0", {"weights"}),
        ("weights/dense/bias:0", {"biases"}),
        ("weights/kernel:0", {"weights"}),
        ("gradients/dense/kernelGrad", {"gradients"}),
        ("gradients/dense/biasGrad", {"gradients"}),
        ("gradients/dense/kernelGrad_1", {"gradients"}),
        ("gradients/weights/kernelGrad", {"gradients"}),
        ("gradients/my_lossGrad", {"gradients"}),
        ("loss", {"losses"}),
        ("val_loss", {"losses"}),
        ("loss_1", {"losses"}),
        ("my_loss", {"losses"}),
        ("first_output_loss", {"losses"}),
        ("accuracy", set()),
        ("loss_scale", set()),
        ("lossy", set()),
        ("inputs", {"inputs"}),
        ("inputs_3", {"inputs"}),
        ("labels", {"outputs", "labels"}),
        ("labels_0", {"outputs", "labels"}),
        ("predictions", {"outputs", "predictions"}),
        ("predictions_12", {"outputs", "predictions"}),
        ("dense/inputs", set()),
        ("dense/outputs_1", set()),
        ("loss/outputs", set()),
        ("weights/outputs", set()),
        ("scalar/rate", {"scalars"}),
        ("Adam/m/dense/kernel:0", set()),
    ],
)
def test_collections_of_a_tensor_name(name: str, collections: set[str]) -> None:
    known = collections
    if name == "weights/outputs":
        # A layer called `weights`, or a variable called `outputs` of a tape's model: both.
        assert of_model(name) <= {"weights"}
        return
    assert of_model(name) == known


@pytest.mark.parametrize(
    ("name", "of_layer"),
    [
        ("dense/outputs", True), ("dense/inputs_2", True), ("enc/dense/outputs", True),
        ("outputs/outputs", True), ("gradients_of/outputs", True), ("dense/outputs/x:0", False),
        ("inputs", False), ("gradients/dense/outputsGrad", False), ("loss", False),
        ("dense/weights/dense/kernel:0", False),
    ],
)  # fmt: skip
def test_names_of_layer_tensors(name: str, of_layer: bool) -> None:
    assert bool(re.search(LAYER_TENSORS, name)) is of_layer
    if of_layer:
        assert not re.search(NOT_OF_A_LAYER, name)
    elif not name.startswith("gradients/"):
        assert re.search(NOT_OF_A_LAYER, name)
