"""Tapes inside `tf.function`: traced once, a step whenever the function runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf
from tests.tensorflow.loops import (
    EVAL,
    KERAS_3,
    NAMES,
    TRAIN,
    Array,
    X,
    Y,
    check_same,
    closed,
    make_hook,
    make_model,
    mse,
    names_at,
    no_autograph,
    value,
)
from tests.tensorflow.models import SEED_WARNING

import smdebug.tensorflow as smd
from smdebug.trials import create_trial

if TYPE_CHECKING:
    from collections.abc import Callable

keras: Any = tf.keras
pytestmark = pytest.mark.filterwarnings(SEED_WARNING)
PROGRAMS = Path(__file__).parent / "programs"


def make_step(model: Any, wrap: Callable[[Any], Any], optimizer: Any = None, **options: Any) -> Any:
    """A training step as a function, which returns its loss, predictions and gradients."""
    optimizer = optimizer or keras.optimizers.SGD(0.1)

    @tf.function(**options)
    def step(x: Any, y: Any) -> Any:
        with wrap(tf.GradientTape()) as tape:
            predictions = model(x, training=True)
            loss = mse(y, predictions)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss, predictions, gradients

    return step


def train(model: Any, step: Any, steps: int = 4) -> list[dict[str, Array]]:
    """Trains, and returns what happened at each step, as the caller of the function sees it."""
    records = []
    for number in range(steps):
        record = {f"weights/{n}:0": w for n, w in zip(NAMES, model.get_weights(), strict=True)}
        loss, predictions, gradients = step(tf.constant(X + number), tf.constant(Y))
        record["loss"] = loss.numpy()
        record["predictions"] = predictions.numpy()
        for name, gradient in zip(NAMES, gradients, strict=True):
            record[f"gradients/{name}Grad"] = gradient.numpy()
        records.append(record)
    return records


def check_equal_weights(one: Any, other: Any) -> None:
    for ours, own in zip(one.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, own)


# ---- what is saved


@pytest.mark.parametrize("interval", [1, 2])
def test_functions_that_a_function_calls_are_steps_in_their_order(
    tmp_path: Path, interval: int
) -> None:
    model = make_model()
    hook = make_hook(tmp_path, save_config=smd.SaveConfig(save_interval=interval))
    optimizer = keras.optimizers.SGD(0.1)
    # Keras 2 makes its variables with the first gradients.
    getattr(optimizer, "build", lambda variables: None)(model.trainable_variables)

    @tf.function
    def gradients_of(x: Any, y: Any) -> Any:
        with hook.wrap_tape(tf.GradientTape()) as tape:
            loss = mse(y, model(x, training=True))
        return loss, tape.gradient(loss, model.trainable_variables)

    @tf.function
    def step(x: Any, y: Any) -> Any:
        # Nothing else orders the two calls.
        first, one = gradients_of(x, y)
        second, other = gradients_of(x + 1.0, y)
        both = [a + b for a, b in zip(one, other, strict=True)]
        optimizer.apply_gradients(zip(both, model.trainable_variables, strict=True))
        return first, second

    losses = [loss.numpy() for number in range(8) for loss in step(X + number, Y)]
    trial = closed(hook)
    saved = list(range(0, 16, interval))
    assert trial.steps(mode=TRAIN) == trial.tensor("loss").steps(mode=TRAIN) == saved
    assert [value(trial, "loss", step) for step in saved] == [losses[step] for step in saved]
    assert trial.tensor("gradients/net/first/kernelGrad" if KERAS_3 else
                        "gradients/first/kernelGrad").steps(mode=TRAIN) == saved  # fmt: skip


def test_everything_of_every_call_is_saved(tmp_path: Path) -> None:
    plain_model, model = make_model(), make_model()
    plain = train(plain_model, make_step(plain_model, no_autograph))
    hook = make_hook(tmp_path)
    hook.register_model(model)
    train(model, make_step(model, hook.wrap_tape))
    trial = closed(hook)
    check_same(trial, plain)
    check_equal_weights(model, plain_model)
    for number in range(4):
        np.testing.assert_array_equal(value(trial, "inputs", number), X + number)
        np.testing.assert_array_equal(value(trial, "first/inputs", number), X + number)
        np.testing.assert_array_equal(
            value(trial, "second/outputs", number), plain[number]["predictions"]
        )
    hidden = make_model().layers[0](X).numpy()
    np.testing.assert_allclose(value(trial, "first/outputs"), hidden, rtol=1e-6)
    assert names_at(trial, 0) == names_at(trial, 3)


def test_most_steps_may_save_nothing(tmp_path: Path) -> None:
    plain_model, model = make_model(), make_model()
    plain = train(plain_model, make_step(plain_model, no_autograph), steps=7)
    hook = make_hook(tmp_path, save_config=smd.SaveConfig(save_interval=3))
    hook.register_model(model)
    train(model, make_step(model, hook.wrap_tape), steps=7)
    assert hook.step == 6
    trial = closed(hook)
    check_same(trial, plain, steps=[0, 3, 6])
    check_equal_weights(model, plain_model)


def test_by_default_only_losses_are_added_to_the_function(
    tmp_path: Path,
) -> None:
    hook = make_hook(tmp_path, save_all=False)
    model = make_model()
    hook.register_model(model)
    train(model, make_step(model, hook.wrap_tape))
    assert closed(hook).tensor_names() == ["loss"]


def test_step_with_a_nan_loss_is_saved(tmp_path: Path) -> None:
    config = smd.SaveConfig(save_interval=1000, start_step=1000, when_nan=["loss"])
    hook = make_hook(tmp_path, save_config=config)
    model = make_model()
    hook.register_model(model)
    step = make_step(model, hook.wrap_tape)
    for number in range(3):
        before = model.get_weights()
        step(tf.constant(X * (np.nan if number == 2 else 1.0), tf.float32), tf.constant(Y))
    trial = closed(hook)
    assert trial.steps(mode=TRAIN) == [2]
    assert np.isnan(value(trial, "loss", 2))
    assert np.isnan(value(trial, "first/inputs", 2)).all()
    np.testing.assert_array_equal(value(trial, "weights/first/kernel:0", 2), before[0])


def test_tensors_handed_over_inside_the_function_are_saved(tmp_path: Path) -> None:
    hook = make_hook(tmp_path)
    w = tf.Variable([1.0, 2.0], name="w")
    momentum = tf.Variable([0.0, 0.0], name="momentum")
    hook.set_optimizer_variables([momentum])

    @tf.function
    def step(x: Any) -> Any:
        with hook.wrap_tape(tf.GradientTape()) as tape:
            predictions = w * x
            loss = tf.reduce_sum(predictions)
        hook.save_tape_logs({"a": x, "b": x + 1}, predictions)
        gradient = tape.gradient(loss, w)
        hook.set_gradients(gradients_and_variables=[(gradient * 10, momentum)])
        momentum.assign_add(gradient)

    for number in range(3):
        step(tf.constant([1.0, 1.0]) * number)
    trial = closed(hook)
    for number in range(3):
        np.testing.assert_array_equal(value(trial, "inputs_0", number), [number, number])
        np.testing.assert_array_equal(value(trial, "inputs_1", number), [number + 1, number + 1])
        np.testing.assert_array_equal(value(trial, "predictions", number), [number, 2 * number])
        np.testing.assert_array_equal(value(trial, "gradients/wGrad", number), [number, number])
        np.testing.assert_array_equal(
            value(trial, "gradients/momentumGrad", number), [10 * number, 10 * number]
        )
        before = sum(range(number))
        np.testing.assert_array_equal(value(trial, "momentum:0", number), [before, before])


def test_tensors_handed_over_between_calls_belong_to_the_last_call(tmp_path: Path) -> None:
    hook = make_hook(tmp_path)
    model = make_model()
    step = make_step(model, hook.wrap_tape)
    for number in range(3):
        _, predictions, _ = step(tf.constant(X + number), tf.constant(Y))
        hook.save_tape_logs(X + number, predictions)
        hook.save_scalar("number", number)
        hook.record_tensor_value("accuracy", tf.constant(float(number)))
        hook.save_tensor("mine", predictions)
    trial = closed(hook)
    assert trial.steps(mode=TRAIN) == [0, 1, 2]
    for number in range(3):
        np.testing.assert_array_equal(value(trial, "inputs", number), X + number)
        assert value(trial, "scalar/number", number) == number
        assert value(trial, "accuracy", number) == number


def test_handed_over_tensors_belong_to_the_last_function(tmp_path: Path) -> None:
    """Not to the one that was traced last."""
    hook = make_hook(tmp_path)
    w = tf.Variable(1.0, name="w")

    def made() -> Any:
        @tf.function
        def step(x: Any) -> Any:
            with hook.wrap_tape(tf.GradientTape()) as tape:
                loss = w * x
            tape.gradient(loss, w)
            return loss

        return step

    one, two = made(), made()
    order = [one, two, one, one, two, one]
    for number, step in enumerate(order):
        loss = step(tf.constant(float(number)))
        hook.save_tape_logs(tf.constant(float(number)), loss)
    trial = closed(hook)
    for number in range(len(order)):
        assert value(trial, "loss", number) == number
        assert value(trial, "inputs", number) == number


def test_variables_of_an_optimizer_that_is_built_while_tracing(tmp_path: Path) -> None:
    def optimizer() -> Any:
        return keras.optimizers.SGD(0.1, momentum=0.9)

    def variables(of: Any) -> list[Array]:
        found = of.variables() if callable(of.variables) else of.variables
        return [each.numpy() for each in found]

    plain_model, own = make_model(), optimizer()
    step, seen = make_step(plain_model, no_autograph, own), []
    for number in range(3):
        step(tf.constant(X + number), tf.constant(Y))
        seen.append(variables(own))
    hook = make_hook(tmp_path, save_all=False, include_collections=["optimizer_variables"])
    model = make_model()
    train(model, make_step(model, hook.wrap_tape, hook.wrap_optimizer(optimizer())), steps=3)
    trial = closed(hook)
    names = trial.tensor_names(collection="optimizer_variables", step=2, mode=TRAIN)
    saved = [value(trial, name, 2) for name in names]
    assert len(saved) == len(seen[1])
    for expected in seen[1]:
        assert any(np.array_equal(expected, each) for each in saved)


def test_sparse_gradients_are_saved_dense_without_a_warning(tmp_path: Path) -> None:
    hook = make_hook(tmp_path, save_config=smd.SaveConfig(save_interval=2))
    table = tf.Variable(np.arange(12.0).reshape(6, 2), name="table")

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int32)])
    def step(places: Any) -> Any:
        with hook.wrap_tape(tf.GradientTape()) as tape:
            loss = tf.reduce_sum(tf.gather(table, places))
        gradient = tape.gradient(loss, table)
        assert isinstance(gradient, tf.IndexedSlices)
        return gradient.indices

    for _ in range(3):
        step(tf.constant([1, 4, 1]))
    expected = np.zeros((6, 2))
    expected[[1, 4]] = [[2, 2], [1, 1]]
    trial = closed(hook)
    assert trial.steps(mode=TRAIN) == [0, 2]
    np.testing.assert_array_equal(value(trial, "gradients/tableGrad", 2), expected)


def test_a_sparse_gradient_is_not_made_dense_at_steps_that_save_nothing(tmp_path: Path) -> None:
    hook = make_hook(tmp_path)
    table = tf.Variable(np.zeros((6, 2)), name="table")

    @tf.function
    def step(places: Any) -> Any:
        with hook.wrap_tape(tf.GradientTape()) as tape:
            loss = tf.reduce_sum(tf.gather(table, places))
        return tape.gradient(loss, table).indices

    graph = step.get_concrete_function(tf.constant([1, 4, 1])).graph
    assert not [each.type for each in graph.get_operations() if "SegmentSum" in each.type]


def test_persistent_tapes_with_several_losses(tmp_path: Path) -> None:
    hook = make_hook(tmp_path)
    a, b = tf.Variable(2.0, name="a"), tf.Variable(3.0, name="b")

    @tf.function
    def step(x: Any) -> None:
        with hook.wrap_tape(tf.GradientTape(persistent=True)) as tape:
            first, second = a * x, a * b * x
        tape.gradient(first, {"a": a, "b": [b]})
        tape.gradient(second, [a, b])

    for number in range(2):
        step(tf.constant(float(number)))
    trial = closed(hook)
    for number in range(2):
        assert value(trial, "loss", number) == 2 * number
        assert value(trial, "loss_1", number) == 6 * number
        assert value(trial, "gradients/aGrad", number) == number
        assert value(trial, "gradients/aGrad_1", number) == 3 * number
        assert [name for name in names_at(trial, number) if name.startswith("weights")] == [
            "weights/a:0", "weights/b:0"
        ]  # fmt: skip
        # The first loss had no gradient by it, the second one's is its first.
        assert [name for name in names_at(trial, number) if "bGrad" in name] in (
            ["gradients/bGrad"], ["gradients/bGrad_1"]
        )  # fmt: skip


def test_two_tapes_of_one_function_keep_their_own(tmp_path: Path) -> None:
    hook = make_hook(tmp_path)
    g, d = tf.Variable(2.0, name="g"), tf.Variable(5.0, name="d")

    @tf.function
    def step(x: Any) -> Any:
        with hook.wrap_tape(tf.GradientTape()) as one, hook.wrap_tape(tf.GradientTape()) as two:
            fake = g * d * x
            for_g, for_d = fake + 1, fake - 1
        return one.gradient(for_g, g), two.gradient(for_d, d)

    for number in range(3):
        step(tf.constant(float(number)))
    trial = closed(hook)
    assert trial.steps(mode=TRAIN) == list(range(6))
    for number in range(3):
        step_g, step_d = 2 * number, 2 * number + 1
        assert names_at(trial, step_g) == ["gradients/gGrad", "loss", "weights/g:0"]
        assert names_at(trial, step_d) == ["gradients/dGrad", "loss", "weights/d:0"]
        assert value(trial, "loss", step_g) == 10.0 * number + 1
        assert value(trial, "loss", step_d) == 10.0 * number - 1


def test_a_tape_whose_step_saves_nothing_writes_into_no_other_step(tmp_path: Path) -> None:
    config = smd.SaveConfig(save_interval=1000, start_step=1000, save_steps=[1, 3, 4])
    hook = make_hook(tmp_path, save_config=config)
    g, d = tf.Variable(2.0, name="g"), tf.Variable(5.0, name="d")

    @tf.function
    def step() -> Any:
        with hook.wrap_tape(tf.GradientTape()) as one, hook.wrap_tape(tf.GradientTape()) as two:
            for_g, for_d = g * 10, d * 10
        return one.gradient(for_g, g), two.gradient(for_d, d)

    for _ in range(3):
        step()
    trial = closed(hook)
    assert trial.steps(mode=TRAIN) == [1, 3, 4]
    for number, name in ((1, "d"), (3, "d"), (4, "g")):
        assert names_at(trial, number) == [f"gradients/{name}Grad", "loss", f"weights/{name}:0"]


def test_layers_inside_two_tapes_are_seen_once(tmp_path: Path) -> None:
    hook = make_hook(tmp_path)
    hook.register_model(model := make_model())
    before = keras.layers.Layer.__call__

    @tf.function
    def step(x: Any) -> Any:
        with hook.wrap_tape(tf.GradientTape()) as one, hook.wrap_tape(tf.GradientTape()) as two:
            loss = mse(Y, model(x))
        weights = model.trainable_variables
        return one.gradient(loss, weights), two.gradient(loss, weights)

    for _ in range(2):
        step(tf.constant(X))
    assert keras.layers.Layer.__call__ is before
    trial = closed(hook)
    for number in range(4):
        np.testing.assert_array_equal(value(trial, "first/inputs", number), X)
    assert not [name for name in trial.tensor_names() if "puts_" in name]


def test_an_inner_tape_has_its_own_step(tmp_path: Path) -> None:
    hook = make_hook(tmp_path)
    w = tf.Variable(3.0, name="w")

    @tf.function
    def step() -> Any:
        with hook.wrap_tape(tf.GradientTape()) as outer:
            with hook.wrap_tape(tf.GradientTape()) as inner:
                cube = w * w * w
            loss = cube + inner.gradient(cube, w)
        return outer.gradient(loss, w)

    assert [step().numpy() for _ in range(2)] == [45.0, 45.0]
    trial = closed(hook)
    assert trial.steps(mode=TRAIN) == [0, 1, 2, 3]
    assert [value(trial, "loss", number) for number in range(4)] == [54.0, 27.0, 54.0, 27.0]
    assert [value(trial, "gradients/wGrad", n) for n in range(4)] == [45.0, 27.0, 45.0, 27.0]


def test_a_jacobian_is_computed_and_does_no_harm(tmp_path: Path) -> None:
    hook = make_hook(tmp_path)
    w = tf.Variable([1.0, 2.0], name="w")

    @tf.function
    def step() -> Any:
        with hook.wrap_tape(tf.GradientTape(persistent=True)) as tape:
            target = w * w
            loss = tf.reduce_sum(target)
        jacobian = tape.jacobian(target, w)
        tape.gradient(loss, w)
        return jacobian

    for _ in range(2):
        np.testing.assert_array_equal(step().numpy(), [[2.0, 0.0], [0.0, 4.0]])
    trial = closed(hook)
    assert sorted(trial.tensor_names()) == ["gradients/wGrad", "loss", "weights/w:0"]
    assert [value(trial, "loss", number) for number in range(2)] == [5.0, 5.0]


# ---- tracing


def test_functions_are_traced_again_for_new_shapes(tmp_path: Path) -> None:
    hook = make_hook(tmp_path)
    hook.register_model(model := make_model())
    step = make_step(model, hook.wrap_tape)
    sizes = [6, 3, 6, 2, 3]
    losses = [step(X[:size], Y[:size])[0].numpy() for size in sizes]
    trial = closed(hook)
    assert trial.steps(mode=TRAIN) == [0, 1, 2, 3, 4]
    for number, size in enumerate(sizes):
        assert value(trial, "loss", number) == losses[number]
        np.testing.assert_array_equal(value(trial, "inputs", number), X[:size])
        np.testing.assert_array_equal(value(trial, "first/inputs", number), X[:size])


def test_a_signature_leaves_the_size_of_a_batch_open(tmp_path: Path) -> None:
    signature = [tf.TensorSpec([None, 4], tf.float32), tf.TensorSpec([None, 2], tf.float32)]
    plain_model, model = make_model(), make_model()
    plain = make_step(plain_model, no_autograph, input_signature=signature)
    hook = make_hook(tmp_path)
    hook.register_model(model)
    step = make_step(model, hook.wrap_tape, input_signature=signature)
    for size in (6, 2, 5):
        assert step(X[:size], Y[:size])[0].numpy() == plain(X[:size], Y[:size])[0].numpy()
    assert step.experimental_get_tracing_count() == plain.experimental_get_tracing_count()
    trial = closed(hook)
    assert [value(trial, "inputs", number).shape[0] for number in range(3)] == [6, 2, 5]
    check_equal_weights(model, plain_model)


def test_the_hook_makes_no_function_traced_more_often(tmp_path: Path) -> None:
    counts = []
    for wrapped in (False, True):
        hook = make_hook(tmp_path / str(wrapped))
        model = make_model()
        hook.register_model(model)
        step = make_step(model, hook.wrap_tape if wrapped else no_autograph)
        for number in range(5):
            step(tf.constant(X + number), tf.constant(Y))
            hook.set_mode(EVAL)
            hook.save_scalar("eval", number)
        counts.append(step.experimental_get_tracing_count())
        closed(hook)
    assert counts[0] == counts[1]


def test_tracing_is_not_a_step(tmp_path: Path) -> None:
    hook = make_hook(tmp_path)
    model = make_model()
    step = make_step(model, hook.wrap_tape)
    traced = step.get_concrete_function(
        tf.TensorSpec([None, 4], tf.float32), tf.TensorSpec([None, 2], tf.float32)
    )
    assert hook.step == -1
    losses = [traced(tf.constant(X), tf.constant(Y))[0].numpy() for _ in range(2)]
    trial = closed(hook)
    assert trial.steps(mode=TRAIN) == [0, 1]
    assert [value(trial, "loss", number) for number in range(2)] == losses


def test_function_that_fails_to_trace_does_not_affect_training(tmp_path: Path) -> None:
    hook = make_hook(tmp_path)
    hook.register_model(model := make_model())
    before = keras.layers.Layer.__call__

    @tf.function
    def step(x: Any) -> Any:
        with hook.wrap_tape(tf.GradientTape()) as tape:
            loss = mse(Y, model(x))
        return loss, tape.gradient(loss, model.trainable_variables)

    with pytest.raises(Exception, match=r"(?i)shape|dim|incompatible"):
        step(tf.constant(X[:, :3]))
    assert keras.layers.Layer.__call__ is before
    assert hook.step == -1
    loss = step(tf.constant(X))[0].numpy()
    trial = closed(hook)
    assert value(trial, "loss", 0) == loss
    np.testing.assert_array_equal(value(trial, "first/inputs", 0), X)


def test_function_that_fails_while_running_does_not_affect_training(tmp_path: Path) -> None:
    hook = make_hook(tmp_path)
    w = tf.Variable(2.0, name="w")

    @tf.function
    def step(x: Any) -> Any:
        with hook.wrap_tape(tf.GradientTape()) as tape:
            tf.debugging.assert_positive(x)
            loss = w * x
        return tape.gradient(loss, w)

    step(tf.constant(1.0))
    with pytest.raises(tf.errors.InvalidArgumentError):
        step(tf.constant(-1.0))
    step(tf.constant(3.0))
    trial = closed(hook)
    assert hook.step == 2
    assert value(trial, "loss", 0) == 2.0
    # TensorFlow may or may not get to the loss before it fails.
    assert value(trial, "loss", 2) == 6.0
    assert value(trial, "gradients/wGrad", 2) == 3.0


def test_a_model_that_is_built_while_it_is_traced(tmp_path: Path) -> None:
    class Net(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.inner = keras.Sequential([keras.layers.Dense(3, name="a")], name="inner")
            self.last = keras.layers.Dense(2, name="b")

        def call(self, x: Any) -> Any:
            return self.last(self.inner(x))

    hook = make_hook(tmp_path)
    hook.register_model(model := Net())

    @tf.function
    def step(x: Any) -> Any:
        with hook.wrap_tape(tf.GradientTape()) as tape:
            loss = mse(Y, model(x))
        return tape.gradient(loss, model.trainable_variables)

    for number in range(2):
        gradients = step(tf.constant(X + number))
    trial = closed(hook)
    assert trial.steps(mode=TRAIN) == [0, 1]
    for number in range(2):
        np.testing.assert_array_equal(value(trial, "a/inputs", number), X + number)
        for name, weight in zip(
            ("a/kernel", "a/bias", "b/kernel", "b/bias"), model.get_weights(), strict=True
        ):
            np.testing.assert_array_equal(value(trial, f"weights/{name}:0", number), weight)
    np.testing.assert_array_equal(value(trial, "gradients/b/kernelGrad", 1), gradients[2].numpy())


def test_tensors_inside_another_function_are_not_saved(tmp_path: Path) -> None:
    hook = make_hook(tmp_path)
    hook.register_model(model := make_model())
    run = tf.function(lambda x: model(x))

    @tf.function
    def step(x: Any) -> Any:
        with hook.wrap_tape(tf.GradientTape()) as tape:
            loss = mse(Y, run(x))
        return loss, tape.gradient(loss, model.trainable_variables)

    losses = [step(tf.constant(X + number))[0].numpy() for number in range(2)]
    trial = closed(hook)
    assert [value(trial, "loss", number) for number in range(2)] == losses
    assert not [name for name in trial.tensor_names() if "puts" in name]


# ---- control flow


def test_control_flow_around_the_tape_is_still_rewritten(tmp_path: Path) -> None:
    hook = make_hook(tmp_path)
    w = tf.Variable(8.0, name="w")

    @tf.function
    def run(n: Any) -> Any:
        count = 0
        for _ in tf.range(n):
            with hook.wrap_tape(tf.GradientTape()) as tape:
                loss = w * w
            gradient = tape.gradient(loss, w)
            if gradient > 3.0:
                w.assign_sub(gradient * 0.25)
                count += 1
            else:
                w.assign_sub(gradient * 0.5)
        return count

    assert run(tf.constant(5)).numpy() == 3
    trial = closed(hook)
    assert trial.steps(mode=TRAIN) == [0, 1, 2, 3, 4]
    weights = [8.0, 4.0, 2.0, 1.0, 0.0]
    for number, expected in enumerate(weights):
        assert value(trial, "weights/w:0", number) == expected
        assert value(trial, "loss", number) == expected**2
        assert value(trial, "gradients/wGrad", number) == 2 * expected


def test_control_flow_inside_the_tape_is_still_rewritten(tmp_path: Path) -> None:
    hook = make_hook(tmp_path)
    w = tf.Variable(2.0, name="w")

    class Product(tf.Module):
        def __call__(self, x: Any) -> Any:
            if x > 0.0:
                return w * x
            return w * w * x

    model = Product()

    @tf.function
    def step(x: Any) -> Any:
        with hook.wrap_tape(tf.GradientTape()) as tape:
            loss = model(x)
            if x > 1000.0:
                loss = tf.zeros_like(loss)
            i = tf.constant(0)
            while i < 3:
                loss = loss * 2.0
                i += 1
            for _ in tf.range(2):
                loss = loss + 1.0
        return tape.gradient(loss, w)

    assert [step(tf.constant(x)).numpy() for x in (3.0, -1.0)] == [24.0, -32.0]
    trial = closed(hook)
    assert [value(trial, "loss", number) for number in range(2)] == [50.0, -30.0]
    assert [value(trial, "gradients/wGrad", number) for number in range(2)] == [24.0, -32.0]


@pytest.mark.skipif(KERAS_3, reason="Keras 3 does not have its layers rewritten")
def test_control_flow_inside_an_observed_layer_is_still_rewritten(tmp_path: Path) -> None:
    class Gate(keras.layers.Layer):
        def call(self, x: Any) -> Any:
            result = x
            if tf.reduce_sum(x) <= 0.0:
                result = -x
            for _ in tf.range(2):
                result = result * 2.0
            return result

    class Net(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.gate = Gate(name="gate")
            self.last = keras.layers.Dense(2, name="last")

        def call(self, x: Any) -> Any:
            if x[0, 0] > 1000.0:
                x = x * 0.0
            return self.last(self.gate(x))

    def made(wrap: Callable[[Any], Any]) -> tuple[Any, Any]:
        keras.utils.set_random_seed(3)
        model = Net()
        model(X)
        return model, make_step(model, wrap)

    plain_model, plain = made(no_autograph)
    hook = make_hook(tmp_path)
    model, step = made(hook.wrap_tape)
    hook.register_model(model)
    for sign in (1.0, -1.0):
        x = tf.constant(sign * np.abs(X))
        np.testing.assert_array_equal(step(x, Y)[1].numpy(), plain(x, Y)[1].numpy())
    trial = closed(hook)
    for number in range(2):
        np.testing.assert_array_equal(value(trial, "gate/outputs", number), 4 * np.abs(X))
    check_equal_weights(model, plain_model)


def test_gradients_inside_a_branch_are_saved(tmp_path: Path) -> None:
    """A step that is skipped when the loss is not finite."""
    hook = make_hook(tmp_path)
    w = tf.Variable(2.0, name="w")

    @tf.function
    def step(x: Any) -> Any:
        with hook.wrap_tape(tf.GradientTape()) as tape:
            loss = w * x
        if tf.math.is_finite(loss):
            w.assign_sub(0.1 * tape.gradient(loss, w))

    for x in (1.0, np.nan, 3.0):
        step(tf.constant(x, tf.float32))
    trial = closed(hook)
    assert hook.step == 2
    assert value(trial, "loss", 0) == 2.0
    assert value(trial, "gradients/wGrad", 0) == 1.0
    assert value(trial, "gradients/wGrad", 2) == 3.0
    assert trial.tensor("gradients/wGrad").steps(mode=TRAIN) == [0, 2]


def test_a_tape_in_a_branch_is_a_step_when_the_branch_is_taken(tmp_path: Path) -> None:
    hook = make_hook(tmp_path)
    w = tf.Variable(2.0, name="w")

    def taken() -> Any:
        with hook.wrap_tape(tf.GradientTape()) as tape:
            loss = w * w
        return tape.gradient(loss, w)

    @tf.function
    def step(train: Any) -> Any:
        return tf.cond(train, taken, lambda: tf.constant(-1.0))

    assert [step(tf.constant(x)).numpy() for x in (True, False, True)] == [4.0, -1.0, 4.0]
    trial = closed(hook)
    assert trial.steps(mode=TRAIN) == [0, 1]
    assert value(trial, "gradients/wGrad", 1) == 4.0


def test_every_turn_of_a_loop_is_a_step(tmp_path: Path) -> None:
    hook = make_hook(tmp_path)
    w = tf.Variable(0.0, name="w")

    @tf.function
    def run(n: Any) -> Any:
        def body(i: Any) -> Any:
            with hook.wrap_tape(tf.GradientTape()) as tape:
                loss = w * w + tf.cast(i, tf.float32)
            tape.gradient(loss, w)
            w.assign_add(1.0)
            return (i + 1,)

        return tf.while_loop(lambda i: i < n, body, (tf.constant(0),))

    run(tf.constant(60))
    run(tf.constant(60))
    trial = closed(hook)
    assert trial.steps(mode=TRAIN) == list(range(120))
    for number in range(120):
        assert value(trial, "weights/w:0", number) == number
        assert value(trial, "loss", number) == number**2 + number % 60


def test_an_epoch_may_be_one_function(tmp_path: Path) -> None:
    plain_model, model = make_model(), make_model()
    data = tf.data.Dataset.from_tensor_slices((np.stack([X, X + 1, X + 2]), np.stack([Y] * 3)))

    def epoch_of(of: Any, wrap: Callable[[Any], Any]) -> Any:
        step = make_step(of, wrap)

        @tf.function
        def epoch(dataset: Any) -> Any:
            total = 0.0
            for x, y in dataset:
                total += step(x, y)[0]
            return total

        return epoch

    plain = epoch_of(plain_model, no_autograph)
    hook = make_hook(tmp_path)
    hook.register_model(model)
    epoch = epoch_of(model, hook.wrap_tape)
    for _ in range(2):
        assert epoch(data).numpy() == plain(data).numpy()
    trial = closed(hook)
    assert trial.steps(mode=TRAIN) == [0, 1, 2, 3, 4, 5]
    for number in range(6):
        np.testing.assert_array_equal(value(trial, "inputs", number), X + number % 3)
    check_equal_weights(model, plain_model)


@pytest.mark.parametrize("inner", [False, True])
def test_a_compiled_function_trains_as_it_did(
    tmp_path: Path, inner: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """XLA takes no calls of Python: such a function must run, whatever is saved of it."""

    def run(wrap: Callable[[Any], Any]) -> Array:
        w = tf.Variable([1.0, 2.0], name="w")

        @tf.function(jit_compile=True)
        def compiled(x: Any) -> Any:
            if inner:
                return tf.reduce_sum(w * w * x)
            with wrap(tf.GradientTape()) as tape:
                loss = tf.reduce_sum(w * w * x)
            gradient = tape.gradient(loss, w)
            w.assign_sub(0.1 * gradient)
            return gradient

        @tf.function
        def around(x: Any) -> Any:
            with wrap(tf.GradientTape()) as tape:
                loss = compiled(x)
            gradient = tape.gradient(loss, w)
            w.assign_sub(0.1 * gradient)
            return gradient

        for number in range(3):
            (around if inner else compiled)(tf.constant(float(number)))
        result: Array = w.numpy()
        return result

    plain = run(no_autograph)
    hook = make_hook(tmp_path)
    np.testing.assert_array_equal(run(hook.wrap_tape), plain)
    if inner:
        trial = closed(hook)
        assert [value(trial, "loss", number) for number in range(2)][1] > 0
    else:
        assert "jit_compile" in caplog.text or "XLA" in caplog.text


# ---- the life of the hook and the life of the function


def test_evaluation_in_between_does_not_change_the_mode_of_training(tmp_path: Path) -> None:
    hook = make_hook(tmp_path)
    hook.register_model(model := make_model())
    step = make_step(model, hook.wrap_tape)
    evaluate = tf.function(lambda x: mse(Y, model(x)))
    for _ in range(2):
        for number in range(2):
            step(tf.constant(X + number), tf.constant(Y))
        hook.set_mode(EVAL)
        evaluate(tf.constant(X * 7))
    trial = closed(hook)
    assert trial.steps(mode=TRAIN) == [0, 1, 2, 3]
    assert trial.steps(mode=EVAL) == []
    np.testing.assert_array_equal(value(trial, "inputs", 2), X)


def test_save_tape_logs_in_an_evaluation_function_does_not_affect_training(tmp_path: Path) -> None:
    hook = make_hook(tmp_path)
    model = make_model()
    step = make_step(model, hook.wrap_tape)

    @tf.function
    def evaluate(x: Any) -> Any:
        predictions = model(x)
        hook.save_tape_logs(x, predictions)
        return predictions

    hook.set_mode(EVAL)
    evaluate(tf.constant(X * 7))
    for _ in range(2):
        step(tf.constant(X), tf.constant(Y))
        hook.save_tape_logs(X)
        hook.set_mode(EVAL)
        evaluate(tf.constant(X * 7))
        evaluate(tf.constant(X[:3]))
    trial = closed(hook)
    assert trial.steps(mode=TRAIN) == [0, 1]
    for number in range(2):
        np.testing.assert_array_equal(value(trial, "inputs", number), X)


def test_a_function_outlives_its_hook(tmp_path: Path) -> None:
    plain_model, model = make_model(), make_model()
    plain = train(plain_model, make_step(plain_model, no_autograph))
    hook = make_hook(tmp_path)
    hook.register_model(model)
    step = make_step(model, hook.wrap_tape)
    for number in range(4):
        loss = step(tf.constant(X + number), tf.constant(Y))[0]
        assert loss.numpy() == plain[number]["loss"]
        if number == 1:
            hook.close()
    # A new shape is traced with a closed hook.
    step(X[:2], Y[:2])
    assert create_trial(hook.out_dir).steps(mode=TRAIN) == [0, 1]
    assert hook._pipeline.errors.failure is None


def test_schedules_may_change_after_tracing(tmp_path: Path) -> None:
    hook = make_hook(tmp_path, save_all=False, include_collections=["gradients"])
    hook.register_model(model := make_model())
    step = make_step(model, hook.wrap_tape)
    for number in range(6):
        if number == 2:
            hook.get_collection("gradients").save_config = smd.SaveConfig(save_interval=5)
        step(tf.constant(X), tf.constant(Y))
    trial = closed(hook)
    assert trial.tensor("gradients/first/kernelGrad").steps(mode=TRAIN) == [0, 1, 5]
    assert trial.tensor("loss").steps(mode=TRAIN) == [0, 1, 2, 3, 4, 5]


def test_tensors_included_after_tracing_cause_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hook = make_hook(tmp_path, save_all=False, include_collections=["mine"])
    hook.get_collection("mine").include("nothing_yet")
    hook.register_model(model := make_model())
    step = make_step(model, hook.wrap_tape)
    step(tf.constant(X), tf.constant(Y))
    assert "traced" not in caplog.text
    hook.get_collection("mine").include("^gradients/")
    for _ in range(2):
        step(tf.constant(X), tf.constant(Y))
    # Traced again, it has them.
    step(X[:3], Y[:3])
    trial = closed(hook)
    assert "gradients/first/kernelGrad" in names_at(trial, 3)
    if "gradients/first/kernelGrad" not in names_at(trial, 1):
        assert caplog.text.count("traced") == 1


def test_a_finding_stops_the_function_by_the_name_of_the_rule(tmp_path: Path) -> None:
    hook = make_hook(tmp_path, rules=["NonFinite"], on_finding="stop", flush_seconds=0.01)
    w = tf.Variable(1.0, name="w")

    @tf.function
    def step(x: Any) -> Any:
        with hook.wrap_tape(tf.GradientTape()) as tape:
            loss = w * x
        return tape.gradient(loss, w)

    def run() -> None:
        for number in range(100_000):
            step(tf.constant(np.nan if number >= 2 else 1.0, tf.float32))

    with pytest.raises(Exception, match="NonFinite") as raised:
        run()
    assert "RuleEvaluationConditionMet" in f"{type(raised.value).__name__} {raised.value}"
    assert hook.closed
    assert step(tf.constant(4.0)).numpy() == 4.0


def test_training_with_random_numbers_is_the_same_to_the_bit(tmp_path: Path) -> None:
    def run(wrap: Callable[[Any], Any], register: Callable[[Any], None]) -> list[Array]:
        keras.utils.set_random_seed(5)
        model = keras.Sequential(
            [
                keras.layers.Input((4,)),
                keras.layers.Dense(8, name="first"),
                keras.layers.Dropout(0.5, name="drop"),
                keras.layers.BatchNormalization(name="norm"),
                keras.layers.Dense(2, name="second"),
            ]
        )
        register(model)
        optimizer = keras.optimizers.Adam(0.01)

        @tf.function
        def step() -> None:
            with wrap(tf.GradientTape()) as tape:
                noise = tf.random.normal([6, 4])
                loss = mse(Y, model(X + noise, training=True)) + tf.random.uniform([])
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

        for _ in range(5):
            step()
        return [*model.get_weights(), tf.random.normal([2]).numpy()]

    plain = run(no_autograph, lambda model: None)
    hook = make_hook(tmp_path, save_config=smd.SaveConfig(save_interval=2))
    ours = run(hook.wrap_tape, hook.register_model)
    closed(hook)
    for one, other in zip(ours, plain, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("eager", [False, True])
def test_tape_in_a_custom_train_step_belongs_to_the_batch(tmp_path: Path, eager: bool) -> None:
    def run(wrap: Callable[[Any], Any], callbacks: list[Any]) -> list[Array]:
        class Net(keras.Model):
            def __init__(self) -> None:
                super().__init__()
                self.first = keras.layers.Dense(2, name="first")

            def call(self, x: Any, training: bool = False) -> Any:
                return self.first(x)

            def train_step(self, data: Any) -> Any:
                x, y = data
                with wrap(tf.GradientTape()) as tape:
                    loss = mse(y, self(x, training=True))
                gradients = tape.gradient(loss, self.trainable_variables)
                self.optimizer.apply_gradients(
                    zip(gradients, self.trainable_variables, strict=True)
                )
                return {"loss": loss}

        keras.utils.set_random_seed(1)
        model = Net()
        model.compile(keras.optimizers.SGD(0.1), run_eagerly=eager, jit_compile=False)
        model.fit(X, Y, batch_size=2, shuffle=False, verbose=0, callbacks=callbacks)
        return list(model.get_weights())

    plain = run(no_autograph, [])
    hook = make_hook(tmp_path)
    ours = run(hook.wrap_tape, [hook])
    for one, other in zip(ours, plain, strict=True):
        np.testing.assert_array_equal(one, other)
    trial = closed(hook)
    assert trial.steps(mode=TRAIN) == [0, 1, 2]
    for number in range(3):
        names = names_at(trial, number)
        assert {"loss", "gradients/first/kernelGrad", "first/outputs"} < set(names)
        np.testing.assert_array_equal(
            value(trial, "inputs", number), X[2 * number : 2 * number + 2]
        )


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "complex64"])
def test_types_of_numbers_are_kept(tmp_path: Path, dtype: str) -> None:
    hook = make_hook(tmp_path)
    w = tf.Variable(tf.cast([1.0, 2.0], dtype), name="w")

    @tf.function
    def step() -> Any:
        with hook.wrap_tape(tf.GradientTape()) as tape:
            loss = tf.reduce_sum(w * w)
        return loss, tape.gradient(loss, w)

    loss, gradient = step()
    trial = closed(hook)
    for name, expected in (("loss", loss), ("gradients/wGrad", gradient), ("weights/w:0", w)):
        saved = value(trial, name)
        assert str(saved.dtype) == dtype
        np.testing.assert_array_equal(saved, expected.numpy())


# ---- several devices


@pytest.fixture(scope="module")
def mirrored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """Training on two devices, in a separate process: TensorFlow starts with its devices."""
    path = tmp_path_factory.mktemp("mirrored")
    done = subprocess.run(
        [sys.executable, str(PROGRAMS / "tape_mirrored.py"), str(path)],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert "saving has stopped" not in done.stderr
    return path, json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("kind", ["function", "eager"])
def test_first_of_several_replicas_is_saved(
    mirrored: tuple[Path, dict[str, Any]], kind: str
) -> None:
    path, results = mirrored
    plain, seen = results[f"{kind} plain"], results[f"{kind} hook"]
    assert seen["weights"] == plain["weights"]
    assert seen["losses"] == plain["losses"]
    assert seen["step"] == 2
    trial = create_trial(str(path / kind))
    assert trial.steps(mode=TRAIN) == [0, 1, 2]
    assert trial.workers() == ["worker_0"]
    for number in range(3):
        for name, expected in (
            ("loss", plain["losses"][number][0]),
            ("gradients/first/kernelGrad", plain["gradients"][number]),
            ("weights/first/kernel:0", plain["before"][number]),
            ("inputs", plain["inputs"][number]),
            ("first/inputs", plain["inputs"][number]),
        ):
            saved = value(trial, name, number)
            np.testing.assert_array_equal(saved, np.array(expected, np.float32), err_msg=name)
