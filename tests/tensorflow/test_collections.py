"""Which tensors of a Keras model are saved, when, and what of them: collections."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf
from tests.tensorflow.models import SEED_WARNING

import smdebug.tensorflow as smd
from smdebug.exceptions import (
    InvalidCollectionConfiguration,
    SMDebugError,
    SMDebugTypeError,
    SMDebugValueError,
    TensorUnavailable,
)

if TYPE_CHECKING:
    from pathlib import Path

    from smdebug.reductions import Array
    from smdebug.trials import Trial

keras: Any = tf.keras
EVERY, OFF = smd.SaveConfig(save_interval=1), smd.SaveConfig(end_step=0)
TRAIN = smd.modes.TRAIN
KERNELS = ["first/weights/first/kernel:0", "last/weights/last/kernel:0"]
BIASES = ["first/weights/first/bias:0", "last/weights/last/bias:0"]
GRADIENTS = [
    *("gradients/first/biasGrad", "gradients/first/kernelGrad"),
    *("gradients/last/biasGrad", "gradients/last/kernelGrad"),
]
LAYERS = ["first/inputs", "first/outputs", "last/inputs", "last/outputs"]
DATA = ["inputs", "labels", "predictions"]
LOGS = ["batch", "epoch", "loss", "mae"]

# Keras calls numpy 2 in the way of numpy 1.
pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning:keras"),
    pytest.mark.filterwarnings(SEED_WARNING),
]


def build() -> Any:
    keras.utils.set_random_seed(3)
    return keras.Sequential(
        [
            keras.layers.Input((3,)),
            keras.layers.Dense(4, activation="relu", name="first"),
            keras.layers.Dense(1, name="last"),
        ]
    )


def data(steps: int = 2, columns: int = 3) -> tuple[Array, Array]:
    random = np.random.default_rng(1)
    x = random.normal(size=(2 * steps, columns)).astype(np.float32)
    return x, x[:, :1]


def fit(model: Any, callbacks: list[Any], steps: int = 2, eager: bool = True) -> Any:
    """Trains, without functions: that takes less time than to trace them."""
    model.compile(keras.optimizers.SGD(0.1), "mse", metrics=["mae"], run_eagerly=eager)
    x, y = data(steps)
    model.fit(x, y, batch_size=2, shuffle=False, verbose=0, callbacks=callbacks)
    return model


def train(hook: smd.KerasHook, steps: int = 2, model: Any = None, eager: bool = True) -> Trial:
    """Trains with a hook, closes it and opens the run."""
    fit(model or build(), [hook], steps, eager)
    hook.close()
    return smd.create_trial(hook.out_dir)


def hooked(out_dir: Path, *collections: str, **options: Any) -> smd.KerasHook:
    options = {"save_config": EVERY, "on_error": "raise", **options}
    return smd.KerasHook(out_dir, include_collections=list(collections), **options)


def collection(hook: smd.KerasHook, name: str) -> smd.Collection:
    found = hook.get_collection(name)
    assert isinstance(found, smd.Collection)
    return found


def besides_logs(trial: Trial) -> list[str]:
    return [name for name in trial.tensor_names() if name not in LOGS]


def steps_of(trial: Trial, name: str) -> list[int]:
    try:
        return list(trial.tensor(name).steps())
    except TensorUnavailable:
        return []


def collections_file(out_dir: Path) -> dict[str, Any]:
    (path,) = out_dir.rglob("worker_0_collections.json")
    found: dict[str, Any] = json.loads(path.read_text())["collections"]
    return found


# ---- those that are there from the start


@pytest.mark.parametrize("eager", [True, False])
def test_contents_of_each_collection(tmp_path: Path, eager: bool) -> None:
    names = ["weights", "biases", "gradients", "layers", "inputs", "outputs"]
    trial = train(hooked(tmp_path, *names, "labels", "predictions"), eager=eager)
    found = {name: trial.tensor_names(collection=name) for name in trial.collections()}
    assert found["weights"] == KERNELS
    assert found["biases"] == BIASES
    assert found["gradients"] == GRADIENTS
    assert found["layers"] == LAYERS
    assert found["inputs"] == ["inputs"]
    assert found["outputs"] == ["labels", "predictions"]
    assert found["labels"] == ["labels"]
    assert found["predictions"] == ["predictions"]
    assert found["losses"] == ["loss"]
    assert found["metrics"] == ["batch", "epoch", "mae"]
    assert besides_logs(trial) == sorted([*KERNELS, *BIASES, *GRADIENTS, *LAYERS, *DATA])


def test_save_all_saves_everything(tmp_path: Path) -> None:
    hook = hooked(tmp_path, save_all=True)
    model = build()
    trial = train(hook, model=model)
    expected = {*KERNELS, *BIASES, *GRADIENTS, *LAYERS, *DATA}
    assert expected <= set(besides_logs(trial))
    # The rest are the variables of the optimizer.
    variables = trial.tensor_names(collection="optimizer_variables")
    assert set(besides_logs(trial)) - expected == set(variables)
    of_keras = model.optimizer.variables
    of_keras = of_keras() if callable(of_keras) else of_keras
    assert len(variables) == len(of_keras)


def test_the_default_is_losses_and_metrics(tmp_path: Path) -> None:
    hook = hooked(tmp_path)
    assert hook.has_default_configuration()
    assert hook.include_collections == {"losses", "metrics", "sm_metrics", "searchable_scalars"}
    assert train(hook).tensor_names() == LOGS


@pytest.mark.parametrize("name", ["bias", "biases"])
def test_the_older_name_of_biases(tmp_path: Path, name: str) -> None:
    assert besides_logs(train(hooked(tmp_path, name))) == BIASES


def test_biases_are_found_by_variable_name(tmp_path: Path) -> None:
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [
            keras.layers.Input((3,)),
            keras.layers.Dense(3, name="bias"),
            keras.layers.BatchNormalization(name="biased_norm"),
            keras.layers.Dense(2, name="debiased", use_bias=False),
            keras.layers.Dense(1, name="weights"),
        ]
    )
    trial = train(hooked(tmp_path, "weights", "biases", "gradients"), model=model)
    assert trial.tensor_names(collection="biases") == [
        *("bias/weights/bias/bias:0", "weights/weights/weights/bias:0"),
    ]
    weights = trial.tensor_names(collection="weights")
    assert {
        *("bias/weights/bias/kernel:0", "debiased/weights/debiased/kernel:0"),
        *("weights/weights/weights/kernel:0", "biased_norm/weights/biased_norm/gamma:0"),
        *("biased_norm/weights/biased_norm/moving_mean:0",),
    } <= set(weights)
    assert len(weights) == 3 + 4
    assert not [name for name in weights if "Grad" in name]
    assert len(trial.tensor_names(collection="gradients")) == 3 + 2 + 2


def test_layers_that_regexes_choose(tmp_path: Path) -> None:
    hook = hooked(tmp_path, "layers")
    hook.get_collection("layers").include("first")
    assert besides_logs(train(hook)) == LAYERS[:2]


def test_tensors_not_in_layers(tmp_path: Path) -> None:
    hook = hooked(tmp_path, "layers", "gradients")
    hook.get_collection("layers").exclude(["inputs", "^last"])
    hook.get_collection("gradients").exclude("bias")
    assert besides_logs(train(hook)) == ["first/outputs", GRADIENTS[1], GRADIENTS[3]]


@pytest.mark.parametrize(
    "regex",
    [r"^(gradients/)?last/", ["^last/", "^gradients/last", "^nothing"], ("^(gradients/)?last",)],
)
def test_include_regex(tmp_path: Path, regex: Any) -> None:
    trial = train(hooked(tmp_path, include_regex=regex))
    expected = [
        *("gradients/last/biasGrad", "gradients/last/kernelGrad", "last/inputs", "last/outputs"),
        *("last/weights/last/bias:0", "last/weights/last/kernel:0"),
    ]
    assert besides_logs(trial) == expected
    assert trial.tensor_names(collection="default") == expected


# ---- those of the user


def test_variables_names_and_lists_are_added(tmp_path: Path) -> None:
    model = build()
    hook = hooked(tmp_path, "mine", "yours")
    collection(hook, "mine").add(model.layers[0].kernel)
    collection(hook, "mine").add(["last/outputs", (model.layers[1].bias,)])
    hook.add_to_collection("yours", {"gradients/first/kernelGrad", "no such tensor"})
    trial = train(hook, model=model)
    assert trial.tensor_names(collection="mine") == [KERNELS[0], "last/outputs", BIASES[1]]
    assert trial.tensor_names(collection="yours") == ["gradients/first/kernelGrad"]
    assert steps_of(trial, KERNELS[0]) == [0, 1]
    np.testing.assert_array_equal(
        trial.tensor(KERNELS[0]).value(1), model.layers[0].get_weights()[0]
    )


def test_a_variable_that_is_added_in_the_middle(tmp_path: Path) -> None:
    model = build()
    hook = hooked(tmp_path, "mine")
    collection(hook, "mine").include("nothing yet")
    fit(model, [hook])
    collection(hook, "mine").add(model.weights)
    fit(model, [hook])
    hook.close()
    trial = smd.create_trial(tmp_path)
    assert trial.tensor_names(collection="mine") == sorted([*KERNELS, *BIASES])
    assert steps_of(trial, KERNELS[0]) == [2, 3]


def test_a_variable_of_the_optimizer_is_added(tmp_path: Path) -> None:
    model = build()
    model.compile(keras.optimizers.Adam(0.1), "mse", run_eagerly=True)
    model.optimizer.build(model.trainable_variables)
    hook = hooked(tmp_path, "mine")
    variables = model.optimizer.variables
    variables = variables() if callable(variables) else variables
    momentum = next(each for each in variables if "kernel" in each.name or "/m/" in each.name)
    collection(hook, "mine").add(momentum)
    x, y = data()
    model.fit(x, y, batch_size=2, shuffle=False, verbose=0, callbacks=[hook])
    hook.close()
    trial = smd.create_trial(tmp_path)
    (name,) = trial.tensor_names(collection="mine")
    np.testing.assert_array_equal(trial.tensor(name).value(1), momentum.numpy())


def test_tensors_and_operations_of_a_graph_have_names() -> None:
    mine = smd.Collection("mine")
    with tf.Graph().as_default():
        tensor = tf.constant([1.0], name="number")
        parts = tf.split(tf.constant([1.0, 2.0]), 2, name="parts")
        mine.add(tensor)
        mine.add(parts[0].op)
        mine.add([tensor.op])
    assert mine.tensor_names == {"number:0", "parts:0", "parts:1"}


@pytest.mark.parametrize(
    ("inputs", "outputs", "expected"),
    [
        (None, None, ["first/outputs"]),
        (True, None, ["first/inputs", "first/outputs"]),
        (True, False, ["first/inputs"]),
    ],
)
def test_a_layer_is_added(tmp_path: Path, inputs: Any, outputs: Any, expected: list[str]) -> None:
    model = build()
    hook = hooked(tmp_path, "mine")
    given = {"inputs": inputs, "outputs": outputs}
    options = {key: value for key, value in given.items() if value is not None}
    collection(hook, "mine").add_keras_layer(model.get_layer("first"), **options)
    trial = train(hook, model=model)
    assert besides_logs(trial) == trial.tensor_names(collection="mine") == expected


class Two(keras.Model):
    """Two parts with a layer of the same name each, and one with a name that ends like it."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = keras.Sequential([keras.layers.Dense(4, name="dense")], name="encoder")
        self.decoder = keras.Sequential([keras.layers.Dense(1, name="dense")], name="decoder")
        self.other = keras.layers.Dense(4, name="my_dense")

    def call(self, x: Any) -> Any:
        return self.decoder(self.other(self.encoder(x)))


def test_layer_with_a_shared_name_is_added_alone(tmp_path: Path) -> None:
    model = Two()
    hook = hooked(tmp_path, "mine", "other")
    collection(hook, "mine").add_keras_layer(model.encoder.layers[0])
    collection(hook, "other").add_keras_layer(model.other, inputs=True)
    trial = train(hook, model=model)
    assert trial.tensor_names(collection="mine") == ["encoder/dense/outputs"]
    assert trial.tensor_names(collection="other") == ["my_dense/inputs", "my_dense/outputs"]


def test_a_model_inside_a_model_is_added(tmp_path: Path) -> None:
    model = Two()
    hook = hooked(tmp_path, "mine")
    collection(hook, "mine").add_keras_layer(model.decoder, inputs=True)
    trial = train(hook, model=model)
    assert besides_logs(trial) == ["decoder/inputs", "decoder/outputs"]


def test_a_layer_whose_name_is_a_regex(tmp_path: Path) -> None:
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.layers.Input((3,)),
            keras.layers.Dense(2, name="a.b"),
            keras.layers.Dense(1, name="axb"),
        ]
    )
    hook = hooked(tmp_path, "mine")
    collection(hook, "mine").add_keras_layer(model.layers[0])
    assert besides_logs(train(hook, model=model)) == ["a.b/outputs"]


def test_all_tensors_of_a_layer_that_is_called_twice(tmp_path: Path) -> None:
    keras.utils.set_random_seed(0)
    shared = keras.layers.Dense(3, name="shared")
    x = keras.layers.Input((3,))
    model = keras.Model(x, keras.layers.Dense(1, name="last")(shared(shared(x))))
    hook = hooked(tmp_path, "mine")
    collection(hook, "mine").add_keras_layer(shared, inputs=True)
    assert besides_logs(train(hook, model=model)) == [
        *("shared/inputs_0", "shared/inputs_1", "shared/outputs_0", "shared/outputs_1"),
    ]


def test_collections_made_before_there_is_a_hook(tmp_path: Path) -> None:
    model = build()
    smd.get_collection("mine").add_keras_layer(model.layers[0])
    smd.get_collection("weights").save_config = smd.SaveConfig(save_interval=2)
    smd.add_to_collection("mine", model.layers[1].kernel)
    smd.add_to_default_collection("last/outputs")
    assert "mine" in smd.get_collections()
    hook = hooked(tmp_path, "mine", "weights", "default")
    assert smd.get_collection("mine") is hook.get_collection("mine")
    trial = train(hook, 3, model)
    assert trial.tensor_names(collection="mine") == ["first/outputs", KERNELS[1]]
    assert trial.tensor_names(collection="default") == ["last/outputs"]
    assert steps_of(trial, KERNELS[0]) == [0, 2]
    smd.reset_collections()
    assert "mine" not in smd.get_collections()


def test_a_collection_given_to_the_hook(tmp_path: Path) -> None:
    hook = hooked(tmp_path, "mine")
    hook.add_collection(smd.Collection("mine", include_regex="outputs$", exclude_regex="^last"))
    assert besides_logs(train(hook)) == ["first/outputs"]


# ---- when and what


def test_collections_have_their_own_save_schedules(tmp_path: Path) -> None:
    hook = hooked(tmp_path, "weights", "gradients", "layers", save_config=EVERY)
    hook.get_collection("weights").save_config = smd.SaveConfig(save_interval=3)
    hook.get_collection("gradients").save_config = smd.SaveConfig(save_steps=[1, 4], end_step=0)
    hook.get_collection("layers").save_config = {
        TRAIN: smd.SaveConfigMode(start_step=2, save_interval=1),
    }
    hook.get_collection("losses").save_config = OFF
    trial = train(hook, 6, eager=False)
    assert steps_of(trial, KERNELS[0]) == [0, 3]
    assert steps_of(trial, GRADIENTS[0]) == [1, 4]
    assert steps_of(trial, "first/outputs") == [2, 3, 4, 5]
    # What an epoch came to is always saved.
    assert steps_of(trial, "loss") == [5]
    assert steps_of(trial, "mae") == list(range(6))


def test_collections_may_change_in_the_middle_of_fit(tmp_path: Path) -> None:
    hook = hooked(tmp_path, "mine", "gradients")
    hook.get_collection("mine").include("first/outputs")

    class Change(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch == 1:
                hook.get_collection("mine").include("last/inputs")
            if batch == 2:
                hook.get_collection("gradients").save_config = OFF

    fit(build(), [hook, Change()], 5, eager=False)
    hook.close()
    trial = smd.create_trial(tmp_path)
    assert steps_of(trial, "first/outputs") == list(range(5))
    assert steps_of(trial, "last/inputs") == [2, 3, 4]
    assert steps_of(trial, GRADIENTS[0]) == [0, 1, 2]


def test_collections_have_their_own_reductions(tmp_path: Path) -> None:
    hook = hooked(
        tmp_path, "weights", "biases", "gradients", "layers",
        reduction_config=smd.ReductionConfig(["max"], abs_norms=["l1"]),
    )  # fmt: skip
    hook.get_collection("biases").reduction_config = smd.ReductionConfig(
        ["mean"], save_raw_tensor=True
    )
    hook.get_collection("gradients").reduction_config = smd.ReductionConfig(
        abs_reductions=["min"], norms=["l2"]
    )
    hook.get_collection("layers").reduction_config = smd.ReductionConfig(save_shape=True)
    model = build()
    trial = train(hook, 1, model)

    def saved(name: str) -> tuple[set[str], bool]:
        tensor = trial.tensor(name)
        reductions = {f"{'abs_' if a else ''}{key}" for key, a in tensor.reduction_values(0)}
        return reductions, bool(tensor.values())

    assert saved(KERNELS[0]) == ({"max", "abs_l1"}, False)
    assert saved(BIASES[0]) == ({"mean"}, True)
    assert saved(GRADIENTS[0]) == ({"abs_min", "l2"}, False)
    assert saved("first/outputs") == (set(), False)
    assert trial.tensor("first/outputs").shape(0) == (2, 4)
    assert saved("loss") == (set(), True)
    kernel = model.layers[0].get_weights()[0].astype(np.float64)
    found = trial.tensor(KERNELS[0]).reduction_values(0)
    assert found["max", False] == kernel.max()
    assert found["l1", True] == pytest.approx(np.abs(kernel).sum(), rel=1e-6)


def test_tensor_of_several_collections_is_saved_once_with_all_reductions(
    tmp_path: Path,
) -> None:
    hook = hooked(tmp_path, "weights", "mine", reduction_config=smd.ReductionConfig(["max"]))
    hook.get_collection("mine").include("first/kernel:0$")
    hook.get_collection("mine").reduction_config = smd.ReductionConfig(
        ["min"], save_raw_tensor=True
    )
    hook.get_collection("mine").save_config = smd.SaveConfig(save_interval=2)
    trial = train(hook, 3)
    tensor = trial.tensor(KERNELS[0])
    names = [{key for key, _ in tensor.reduction_values(number)} for number in range(3)]
    assert names == [{"min", "max"}, {"max"}, {"min", "max"}]
    assert sorted(tensor.values()) == [0, 2]


def test_the_collections_file(tmp_path: Path) -> None:
    hook = hooked(tmp_path, "weights", "mine")
    hook.get_collection("mine").include("outputs")
    hook.get_collection("mine").save_histogram = False
    model = build()
    collection(hook, "mine").add(model.layers[0].bias)
    train(hook, model=model)
    stored = collections_file(tmp_path)
    assert set(stored) >= {
        *("all", "default", "weights", "biases", "gradients", "losses", "metrics", "inputs"),
        *("outputs", "layers", "optimizer_variables", "sm_metrics", "searchable_scalars"),
    }
    assert stored["weights"]["tensor_names"] == KERNELS
    assert stored["weights"]["save_config"] == EVERY.to_json_dict()
    assert stored["weights"]["save_histogram"] is True
    assert stored["losses"]["save_histogram"] is False
    assert stored["mine"]["save_histogram"] is False
    assert {"first/outputs", "last/outputs", BIASES[0]} <= set(stored["mine"]["tensor_names"])
    assert stored["metrics"]["tensor_names"] == ["batch", "epoch", "mae"]


# ---- the hook of the process


def test_get_hook_by_its_kind(tmp_path: Path) -> None:
    hook = hooked(tmp_path)
    assert smd.get_hook() is smd.get_hook("keras") is smd.get_hook(hook_type="keras") is hook
    # A hook of another kind is forgotten, and not closed.
    assert smd.get_hook("session") is None
    assert smd.get_hook() is None
    assert not hook.closed
    smd.set_hook(hook)
    assert smd.get_hook("keras") is hook
    hook.close()


@pytest.mark.parametrize("kind", ["Keras", "tf", 7])
def test_unknown_hook_type(kind: Any) -> None:
    with pytest.raises(SMDebugValueError, match=r"hook_type must be one of 'keras'.*got") as caught:
        smd.get_hook(hook_type=kind)
    assert str(kind) in str(caught.value)


def test_creating_a_hook_requires_a_hook_type() -> None:
    with pytest.raises(SMDebugValueError, match=r"hook_type must be.*got None; pass one of them"):
        smd.get_hook(create_if_not_exists=True)


# ---- what makes no sense


@pytest.mark.parametrize(("name", "near"), [("gradient", "gradients"), ("layer", "layers")])
def test_a_misspelled_collection_is_rejected(tmp_path: Path, name: str, near: str) -> None:
    with pytest.raises(SMDebugValueError, match=f"Unknown collection '{name}'.*'{near}'"):
        smd.KerasHook(tmp_path, include_collections=[name])


def test_a_collection_that_names_nothing_is_rejected_in_fit(tmp_path: Path) -> None:
    hook = smd.KerasHook(tmp_path, include_collections=["mine"])
    with pytest.raises(InvalidCollectionConfiguration, match=r"\bmine\b"):
        fit(build(), [hook])
    # It can be corrected, and then continues.
    hook.get_collection("mine").include("outputs")
    fit(build(), [hook])
    hook.close()
    assert "first/outputs" in smd.create_trial(tmp_path).tensor_names()


@pytest.mark.parametrize("value", [7, None, [7], ["a", None], object()])
def test_objects_without_a_name_cannot_be_added(value: Any) -> None:
    with pytest.raises(SMDebugTypeError, match=r"collection 'mine': expected names.*got") as caught:
        smd.Collection("mine").add(value)
    wrong = value[-1] if isinstance(value, list) else value
    assert type(wrong).__name__ in str(caught.value)


def test_a_tensor_that_has_a_value_cannot_be_added() -> None:
    with pytest.raises(SMDebugTypeError, match=r"'mine'.*no name; use hook\.save_tensor"):
        smd.Collection("mine").add(tf.constant([1.0]))


@pytest.mark.parametrize("value", [None, "first", 7, np.ones(2), tf.constant(1.0)])
def test_add_keras_layer_takes_a_layer(value: Any) -> None:
    with pytest.raises(SMDebugTypeError, match=r"'mine': layer must be a Keras layer, got"):
        smd.Collection("mine").add_keras_layer(value)


def test_add_keras_layer_takes_no_class() -> None:
    with pytest.raises(SMDebugTypeError, match=r"'mine': layer must be a Keras layer, got"):
        smd.Collection("mine").add_keras_layer(keras.layers.Dense)


@pytest.mark.parametrize("value", [7, smd.SaveConfigMode(save_interval=1), "1"])
def test_a_schedule_of_a_collection_is_for_modes(tmp_path: Path, value: Any) -> None:
    with pytest.raises(SMDebugTypeError, match=r"'weights': save_config must be a SaveConfig"):
        smd.KerasHook(tmp_path).get_collection("weights").save_config = value


@pytest.mark.parametrize(
    ("options", "fragments"),
    [
        ({"include_regex": "["}, ["include_regex", "'['"]),
        ({"include_regex": 7}, ["include_regex", "7"]),
        ({"include_collections": 7}, ["include_collections", "7"]),
        ({"save_config": "often"}, ["save_config", "'often'"]),
        ({"reduction_config": ["max"]}, ["reduction_config", "ReductionConfig"]),
        ({"include_workers": "some"}, ["include_workers", "'some'", "one, all"]),
        ({"format": "v3"}, ["format", "'v3'", "v1"]),
        ({"on_error": "ignore"}, ["on_error", "'ignore'", "warn"]),
        ({"save_all": "maybe"}, ["save_all", "'maybe'"]),
        ({"queue_bytes": -1}, ["queue_bytes", "-1"]),
        ({"rules": ["NonFinite"], "before_update": True}, ["before_update", "Keras", "stop"]),
    ],
)
def test_invalid_arguments(tmp_path: Path, options: dict[str, Any], fragments: list[str]) -> None:
    with pytest.raises(SMDebugError) as caught:
        smd.KerasHook(tmp_path, **options)
    assert [each for each in fragments if each not in str(caught.value)] == []


def test_a_hook_without_a_directory() -> None:
    with pytest.raises(SMDebugError, match="out_dir is required: a directory or a URL"):
        smd.KerasHook()


@pytest.mark.parametrize("value", [None, "model", 7, np.ones(2), keras.layers.Dense])
def test_register_model_takes_a_model(tmp_path: Path, value: Any) -> None:
    with pytest.raises(SMDebugTypeError, match=r"model must be a Keras model, got .*; pass the"):
        smd.KerasHook(tmp_path).register_model(value)


@pytest.mark.parametrize("mode", ["train", None, 1])
def test_invalid_mode(tmp_path: Path, mode: Any) -> None:
    with pytest.raises(SMDebugValueError, match=r"mode must be one of modes\.TRAIN"):
        smd.KerasHook(tmp_path).set_mode(mode)
