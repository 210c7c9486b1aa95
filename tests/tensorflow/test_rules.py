"""Rules over Keras training with and without faults: during training, and afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf
from tests.tensorflow.models import SEED_WARNING

import smdebug.tensorflow as smd
from smdebug.exceptions import RuleEvaluationConditionMet
from smdebug.rules import rule_names, run_rules
from smdebug.trials import create_trial

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from smdebug.reductions import Array
    from smdebug.rules import Outcome

keras: Any = tf.keras
EVERY = smd.SaveConfig(save_interval=1)
TRAIN, EVAL = smd.modes.TRAIN, smd.modes.EVAL
# More than a test can wait for: such training ends only because it is stopped.
MANY = 100_000

# Keras calls numpy 2 in the way of numpy 1.
pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning:keras"),
    pytest.mark.filterwarnings(SEED_WARNING),
]


def numbers(rows: int = 64, columns: int = 4, seed: int = 1) -> Array:
    values: Array = np.random.default_rng(seed).normal(size=(rows, columns)).astype(np.float32)
    return values


def dense(*sizes: int, activation: Any = "tanh", bias: float = 0.0, scale: float = 1.0) -> Any:
    """Layers `dense_0`, `dense_1`, ... the last without an activation."""
    keras.utils.set_random_seed(5)
    return keras.Sequential(
        [
            keras.layers.Input((4,)),
            *(
                keras.layers.Dense(
                    size,
                    activation if place < len(sizes) - 1 else None,
                    name=f"dense_{place}",
                    bias_initializer=keras.initializers.Constant(bias),
                    kernel_initializer=keras.initializers.RandomNormal(stddev=scale, seed=place),
                )
                for place, size in enumerate(sizes)
            ),
        ]
    )


def fit(model: Any, hook: smd.KerasHook, x: Array, y: Array, **options: Any) -> Any:
    options = {"batch_size": 16, "epochs": 3, "verbose": 0, "shuffle": False, **options}
    return model.fit(x, y, callbacks=[hook], **options)


def outcomes(path: Path, *rules: Any) -> dict[str, Outcome]:
    """What rules say of a run that has ended."""
    report = run_rules(str(path), list(rules))
    return {outcome.rule: outcome for outcome in report.outcomes}


def found(hook: smd.KerasHook) -> set[str]:
    hook.close()
    return {finding.rule for finding in hook.findings()}


def failed(hook: smd.KerasHook) -> list[str]:
    return [each.rule for each in hook.rule_report().outcomes if each.status == "failed"]


# ---- each with and without its fault


def with_rule(out_dir: Path, rule: Any, **options: Any) -> smd.KerasHook:
    options = {"save_config": EVERY, "on_error": "raise", **options}
    return smd.KerasHook(out_dir, rules=[rule], **options)


@pytest.mark.parametrize("faulty", [True, False])
def test_vanishing_gradients(tmp_path: Path, faulty: bool) -> None:
    hook = with_rule(tmp_path, "VanishingGradient")
    model = dense(4, 4, 1, scale=1e-4 if faulty else 0.5)
    model.compile(keras.optimizers.SGD(1e-6 if faulty else 0.01), "mse")
    x = numbers()
    fit(model, hook, x, x[:, :1] * (1e-4 if faulty else 1))
    assert found(hook) == ({"VanishingGradient"} if faulty else set())
    assert all(each.tensor.startswith("gradients/") for each in hook.findings() if each.tensor)
    # And on the run, when it has ended.
    outcome = outcomes(tmp_path, "VanishingGradient")["VanishingGradient"]
    assert outcome.status == ("found" if faulty else "passed")


@pytest.mark.parametrize("rule", ["ExplodingTensor", "NonFinite"])
@pytest.mark.parametrize("faulty", [True, False])
def test_numbers_that_are_not_finite(tmp_path: Path, rule: str, faulty: bool) -> None:
    hook = with_rule(tmp_path, rule)
    model = dense(4, 1, activation="relu")
    model.compile(keras.optimizers.SGD(1e30 if faulty else 0.01), "mse")
    x = numbers()
    fit(model, hook, x, x[:, :1])
    assert found(hook) == ({rule} if faulty else set())
    assert not failed(hook)
    assert outcomes(tmp_path, rule)[rule].status == ("found" if faulty else "passed")


def test_first_non_finite_tensor_is_reported(tmp_path: Path) -> None:
    class Poison(keras.layers.Layer):
        """Its outputs hold a NaN when its inputs hold a large number."""

        def call(self, x: Any) -> Any:
            return tf.where(tf.abs(x) > 1e5, tf.constant(np.nan, x.dtype), x)

    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.layers.Input((4,)),
            Poison(name="poison"),
            keras.layers.Dense(1, name="last"),
        ]
    )
    model.compile(keras.optimizers.SGD(1e-3), "mse")
    x = numbers()
    y = x[:, :1].copy()
    x[35, 2] = 1e6
    hook = with_rule(tmp_path, "NonFinite", save_all=True)
    fit(model, hook, x, y, epochs=1)
    assert found(hook) == {"NonFinite"}
    first = hook.findings()[0]
    assert (first.step, first.tensor) == (2, "poison/outputs")


def relu_layers(bias: float) -> Any:
    keras.utils.set_random_seed(2)
    return keras.Sequential(
        [
            keras.layers.Input((4,)),
            keras.layers.Dense(8, name="a", bias_initializer=keras.initializers.Constant(bias)),
            keras.layers.ReLU(name="act"),
            keras.layers.Dense(8, name="b"),
            keras.layers.Activation("relu", name="again"),
            keras.layers.Dense(1, name="c"),
        ]
    )


@pytest.mark.parametrize(
    ("kind", "faulty"), [("layers", True), ("layers", False), ("activation", True)]
)
def test_dead_relus(tmp_path: Path, kind: str, faulty: bool) -> None:
    bias = -100.0 if faulty else 0.0
    model = relu_layers(bias) if kind == "layers" else dense(8, 1, activation="relu", bias=bias)
    model.compile(keras.optimizers.SGD(1e-6), "mse")
    hook = with_rule(tmp_path, "DeadRelu")
    x = numbers(128)
    fit(model, hook, x, x[:, :1])
    assert found(hook) == ({"DeadRelu"} if faulty else set())
    expected = ["act/outputs", "again/outputs"] if kind == "layers" else ["dense_0/outputs"]
    trial = create_trial(str(tmp_path))
    assert trial.tensor_names(collection="relu_output") == expected
    if faulty:
        assert hook.findings()[0].tensor == expected[0]
    # Evaluated, not skipped.
    (outcome,) = hook.rule_report().outcomes
    assert outcome.status == ("found" if faulty else "passed")


@pytest.mark.parametrize("name", ["tanh", "sigmoid"])
def test_saturated_activations_are_found_by_what_they_take(tmp_path: Path, name: str) -> None:
    keras.utils.set_random_seed(2)
    model = keras.Sequential(
        [
            keras.layers.Input((4,)),
            keras.layers.Dense(
                8, name="a", kernel_initializer=keras.initializers.RandomNormal(stddev=1000.0)
            ),
            keras.layers.Activation(name, name="act"),
            keras.layers.Dense(1, name="b"),
        ]
    )
    model.compile(keras.optimizers.SGD(1e-6), "mse")
    hook = with_rule(tmp_path, "SaturatedActivation")
    x = numbers(128)
    fit(model, hook, x, x[:, :1])
    assert found(hook) == {"SaturatedActivation"}
    assert hook.findings()[0].tensor == "act/inputs"


@pytest.mark.parametrize("faulty", [True, False])
def test_a_loss_that_does_not_decrease(tmp_path: Path, faulty: bool) -> None:
    model = dense(8, 1)
    model.compile(keras.optimizers.SGD(0.0 if faulty else 0.05), "mse")
    rule = "LossNotDecreasing:num_steps=2"
    hook = with_rule(tmp_path, rule)
    # One batch again and again: what Keras reports is the mean over the epoch so far.
    x = np.tile(numbers(4), (60, 1))
    fit(model, hook, x, x[:, :1], batch_size=4, epochs=1)
    assert found(hook) == ({"LossNotDecreasing"} if faulty else set())
    expected = "found" if faulty else "passed"
    assert outcomes(tmp_path, rule)["LossNotDecreasing"].status == expected


@pytest.mark.parametrize("faulty", [True, False])
def test_overfitting_is_training_against_evaluation(tmp_path: Path, faulty: bool) -> None:
    model = dense(16, 1)
    model.compile(keras.optimizers.Adam(0.05 if faulty else 0.001), "mse")
    hook = with_rule(tmp_path, "Overfit", include_collections=["losses"])
    x, other = numbers(16), numbers(16, seed=9)
    noise = np.random.default_rng(0).normal(size=(16, 1)).astype(np.float32)
    y = noise if faulty else x[:, :1]
    held_out = (other, -noise) if faulty else (x, y)
    fit(model, hook, x, y, epochs=15, validation_data=held_out)
    assert found(hook) == ({"Overfit"} if faulty else set())
    assert outcomes(tmp_path, "Overfit")["Overfit"].status == ("found" if faulty else "passed")


@pytest.mark.parametrize("faulty", [True, False])
def test_tensors_that_do_not_change(tmp_path: Path, faulty: bool) -> None:
    model = dense(4, 1)
    model.compile(keras.optimizers.SGD(0.0 if faulty else 0.1), "mse")
    rule = {"rule": "UnchangedTensor", "collection_names": "weights"}
    hook = with_rule(tmp_path, rule)
    x = numbers()
    fit(model, hook, x, x[:, :1])
    assert found(hook) == ({"UnchangedTensor"} if faulty else set())
    assert {each.tensor for each in hook.findings()} <= {
        *("dense_0/weights/dense_0/kernel:0", "dense_1/weights/dense_1/kernel:0"),
    }


def classifier(kind: str) -> tuple[Any, str]:
    keras.utils.set_random_seed(1)
    size, loss = {"sparse": (3, "sparse_categorical_crossentropy"),
                  "one hot": (3, "categorical_crossentropy"),
                  "binary": (1, "binary_crossentropy")}[kind]  # fmt: skip
    last = keras.layers.Dense(size, "sigmoid" if kind == "binary" else "softmax")
    return keras.Sequential([keras.layers.Input((4,)), last]), loss


@pytest.mark.parametrize("kind", ["sparse", "one hot", "binary"])
def test_rare_and_confused_classes(tmp_path: Path, kind: str) -> None:
    model, loss = classifier(kind)
    model.compile(keras.optimizers.SGD(0.0), loss)
    hook = smd.KerasHook(
        tmp_path, rules=["ClassImbalance", "Confusion"], save_config=EVERY, on_error="raise"
    )
    x = numbers(640)
    random = np.random.default_rng(0)
    labels = (random.random(640) < 0.01).astype(np.int64)
    y: Any = np.eye(3, dtype=np.float32)[labels] if kind == "one hot" else labels
    fit(model, hook, x, y, batch_size=64, epochs=1)
    assert found(hook) == {"ClassImbalance", "Confusion"}
    assert not failed(hook)
    trial = create_trial(str(tmp_path))
    assert trial.tensor_names(collection="labels") == ["labels"]
    assert trial.tensor_names(collection="predictions") == ["predictions"]
    np.testing.assert_array_equal(
        np.asarray(trial.tensor("labels").value(3)).reshape(-1), y[192:256].reshape(-1)
    )


def test_a_classifier_that_has_learned_is_not_confused(tmp_path: Path) -> None:
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(2)])
    model.compile(
        keras.optimizers.Adam(0.5), keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    hook = smd.KerasHook(
        tmp_path, rules=["ClassImbalance", "Confusion"], save_config=EVERY, on_error="raise"
    )
    x = numbers(640)
    x[:, 0] += np.sign(x[:, 0])
    fit(model, hook, x, (x[:, 0] > 0).astype(np.int64), batch_size=64, epochs=4)
    assert found(hook) == set()
    assert {each.status for each in hook.rule_report().outcomes} == {"passed"}


@pytest.mark.parametrize("faulty", [True, False])
def test_updates_that_are_too_large(tmp_path: Path, faulty: bool) -> None:
    model = dense(4, 1)
    model.compile(keras.optimizers.SGD(1e4 if faulty else 1e-3), "mae")
    hook = with_rule(tmp_path, "WeightUpdateRatio")
    x = numbers()
    fit(model, hook, x, x[:, :1])
    assert found(hook) == ({"WeightUpdateRatio"} if faulty else set())
    assert [each.status for each in hook.rule_report().outcomes] == [
        "found" if faulty else "passed"
    ]


def test_frozen_weights_are_no_finding(tmp_path: Path) -> None:
    model = dense(4, 4, 1)
    model.layers[1].trainable = False
    model.compile(keras.optimizers.SGD(0.01), "mse")
    rules = ["FrozenParameter", "WeightUpdateRatio"]
    hook = smd.KerasHook(tmp_path, rules=rules, save_config=EVERY, on_error="raise")
    x = numbers(640)
    fit(model, hook, x, x[:, :1])
    assert found(hook) == set()
    assert hook.get_collections()["frozen_parameters"].tensor_names == {
        *("dense_1/weights/dense_1/kernel:0", "dense_1/weights/dense_1/bias:0"),
    }


# ---- all of them


def test_every_rule_can_be_given_to_a_hook(tmp_path: Path) -> None:
    given: list[Any] = []
    for name in rule_names():
        rule: dict[str, Any] = {"rule": name}
        if name in ("AllZero", "UnchangedTensor", "TensorVariance"):
            rule["collection_names"] = "gradients"
        if name == "TensorVariance":
            rule["max_threshold"] = "1e9"
        if name != "SimilarAcrossRuns":
            given.append(rule)
    model = dense(8, 4, 1, activation="relu")
    model.compile(keras.optimizers.Adam(0.01), "mse")
    hook = smd.KerasHook(tmp_path, rules=given, save_config=EVERY, on_error="raise")
    x = numbers()
    fit(model, hook, x, x[:, :1])
    hook.close()
    assert len({outcome.rule for outcome in hook.rule_report().outcomes}) == len(given)
    assert not failed(hook)


def test_training_is_the_same_with_rules(tmp_path: Path) -> None:
    def weights(callback: Callable[[], list[Any]]) -> list[Array]:
        model = dense(8, 1, activation="relu")
        model.compile(keras.optimizers.Adam(0.01), "mse")
        x = numbers()
        model.fit(
            x, x[:, :1], batch_size=16, epochs=4, verbose=0, shuffle=False, callbacks=callback()
        )
        found: list[Array] = model.get_weights()
        return found

    rules = ["NonFinite", "VanishingGradient", "DeadRelu", "LossNotDecreasing", "GradientSpike"]
    expected = weights(list)
    watched = weights(lambda: [smd.KerasHook(tmp_path, rules=rules, on_error="raise")])
    assert all(np.array_equal(one, other) for one, other in zip(expected, watched, strict=True))


def test_without_a_schedule_losses_are_saved_at_every_step_and_the_rest_at_every_tenth(
    tmp_path: Path,
) -> None:
    model = dense(4, 1)
    model.compile(keras.optimizers.SGD(0.01), "mse")
    hook = smd.KerasHook(tmp_path, rules=["NonFinite"], on_error="raise")
    x = numbers()
    fit(model, hook, x, x[:, :1], epochs=6)
    hook.close()
    trial = create_trial(str(tmp_path))
    assert trial.tensor("loss").steps(TRAIN) == list(range(24))
    assert trial.tensor("gradients/dense_0/kernelGrad").steps(TRAIN) == [0, 10, 20]


# ---- stopping


def poisoned(at: int) -> tuple[Array, Array]:
    x = numbers(400)
    y = x[:, :1].copy()
    y[at * 4 : at * 4 + 4] = np.nan
    return x, y


def test_a_rule_stops_fit(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = dense(4, 1)
    model.compile(keras.optimizers.SGD(0.01), "mse")
    hook = smd.KerasHook(
        tmp_path, rules=["NonFinite"], on_finding="stop", save_config=EVERY, flush_seconds=0.05,
        on_error="raise",
    )  # fmt: skip
    x, y = poisoned(50)
    history = fit(model, hook, x, y, batch_size=4, epochs=MANY)
    assert hook.closed
    assert len(history.epoch) < MANY
    assert history.model.stop_training
    trial = create_trial(str(tmp_path))
    assert trial.loaded_all_steps
    assert trial.findings()[0].step == 50
    assert "training stops after step" in caplog.text
    assert "FunctionProxy" not in type(model.train_function).__name__


def test_rule_stops_a_custom_loop(tmp_path: Path) -> None:
    model = dense(4, 1)
    optimizer = keras.optimizers.SGD(0.01)
    hook = smd.KerasHook(
        tmp_path, rules=["NonFinite"], on_finding="stop", save_config=EVERY, flush_seconds=0.05
    )
    hook.register_model(model)
    x, y = poisoned(3)

    def train() -> None:
        for step in range(MANY):
            place = step % 100 * 4
            with hook.wrap_tape(tf.GradientTape()) as tape:
                loss = tf.reduce_mean((model(x[place : place + 4]) - y[place : place + 4]) ** 2)
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    with pytest.raises(RuleEvaluationConditionMet) as stopped:
        train()
    assert (stopped.value.rule_name, stopped.value.step) == ("NonFinite", 3)
    assert hook.closed


def test_findings_do_not_stop_training_by_default(tmp_path: Path) -> None:
    model = dense(4, 1)
    model.compile(keras.optimizers.SGD(0.01), "mse")
    hook = smd.KerasHook(tmp_path, rules=["NonFinite"], save_config=EVERY, on_error="raise")
    x, y = poisoned(3)
    history = fit(model, hook, x[:40], y[:40], batch_size=4, epochs=2)
    assert len(history.epoch) == 2
    assert found(hook) == {"NonFinite"}


# ---- when a tensor is not finite


def test_step_is_saved_when_an_observed_tensor_is_not_finite(tmp_path: Path) -> None:
    model = dense(4, 1)
    model.compile(keras.optimizers.SGD(0.01), "mse")
    config = smd.SaveConfig(save_interval=1000, start_step=1, when_nan=["^loss$"])
    hook = smd.KerasHook(
        tmp_path, save_config=config, include_collections=["gradients", "weights", "layers"],
        on_error="raise",
    )  # fmt: skip
    x, y = poisoned(7)
    fit(model, hook, x[:40], y[:40], batch_size=4, epochs=1)
    hook.close()
    trial = create_trial(str(tmp_path))
    # From the poisoned batch on the mean of the losses is no number.
    for name in ("gradients/dense_0/kernelGrad", "dense_0/outputs"):
        assert trial.tensor(name).steps(TRAIN) == [7, 8, 9]
    assert np.isfinite(trial.tensor("dense_0/outputs").value(7, TRAIN)).all()
    assert np.isnan(trial.tensor("gradients/dense_0/kernelGrad").value(7, TRAIN)).all()
    assert trial.tensor("dense_0/weights/dense_0/kernel:0").steps(TRAIN) == [7, 8, 9]


def test_gradients_are_observed(tmp_path: Path) -> None:
    model = dense(4, 1)
    model.compile(keras.optimizers.SGD(0.01), "mse")
    config = smd.SaveConfig(save_interval=1000, start_step=1, when_nan=["Grad$"])
    hook = smd.KerasHook(
        tmp_path, save_config=config, include_collections=["inputs", "outputs"], on_error="raise"
    )
    x, y = poisoned(2)
    fit(model, hook, x[:16], y[:16], batch_size=4, epochs=1)
    hook.close()
    trial = create_trial(str(tmp_path))
    assert trial.tensor("inputs").steps(TRAIN) == [2, 3]
    np.testing.assert_array_equal(trial.tensor("inputs").value(2, TRAIN), x[8:12])
    np.testing.assert_array_equal(trial.tensor("labels").value(2, TRAIN), y[8:12])
    assert not [name for name in trial.tensor_names() if "Grad" in name]
