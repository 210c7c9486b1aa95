"""Tapes in custom training loops, outside `tf.function`: each tape is a step."""

from __future__ import annotations

import gc
import inspect
import logging
import sys
import weakref
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
    Record,
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
from smdebug.config.collection import Collection
from smdebug.config.collection_manager import CollectionManager
from smdebug.exceptions import RuleEvaluationConditionMet, SMDebugTypeError
from smdebug.tensorflow.keras.adapter import KerasAdapter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

keras: Any = tf.keras
pytestmark = pytest.mark.filterwarnings(SEED_WARNING)
# Without a registered model a variable has its own name, which Keras 3 begins with the model's.
PLACE = "net/" if KERAS_3 else ""


def train(
    model: Any,
    wrap: Callable[[Any], Any],
    steps: int = 4,
    optimizer: Any = None,
    each: Callable[[int, Any, Any], None] = lambda number, batch, predictions: None,
) -> list[Record]:
    """Trains, and returns what happened at each step, as a plain loop sees it."""
    optimizer = optimizer or keras.optimizers.SGD(0.1)
    records = []
    for number in range(steps):
        batch = tf.constant(X + number)
        record = {f"weights/{n}:0": w for n, w in zip(NAMES, model.get_weights(), strict=True)}
        with wrap(tf.GradientTape()) as tape:
            predictions = model(batch, training=True)
            loss = mse(Y, predictions)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        each(number, batch, predictions)
        record["loss"] = loss.numpy()
        for name, gradient in zip(NAMES, gradients, strict=True):
            record[f"gradients/{name}Grad"] = gradient.numpy()
        record["predictions"] = predictions.numpy()
        records.append(record)
    return records


# ---- what is saved


def test_loss_gradients_and_the_weights_before_the_update_are_saved(tmp_path: Path) -> None:
    plain_model, model = make_model(), make_model()
    plain = train(plain_model, no_autograph)
    hook = make_hook(tmp_path)
    train(model, hook.wrap_tape)
    trial = closed(hook)
    check_same(trial, plain, but=("predictions",), place=PLACE)
    weights = {f"weights/{PLACE}{name}:0" for name in NAMES}
    gradients = {f"gradients/{PLACE}{name}Grad" for name in NAMES}
    assert set(trial.tensor_names()) == weights | gradients | {"loss"}
    for ours, own in zip(model.get_weights(), plain_model.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, own)


def test_collections_hold_what_their_names_say(tmp_path: Path) -> None:
    hook = make_hook(tmp_path)
    hook.register_model(model := make_model())
    train(model, hook.wrap_tape, steps=1)
    trial = closed(hook)
    held = {
        name: sorted(trial.tensor_names(collection=name))
        for name in ("losses", "weights", "biases", "gradients", "inputs", "predictions")
    }
    assert held == {
        "losses": ["loss"],
        "weights": ["weights/first/kernel:0", "weights/second/kernel:0"],
        "biases": ["weights/first/bias:0", "weights/second/bias:0"],
        "gradients": sorted(f"gradients/{name}Grad" for name in NAMES),
        "inputs": ["inputs"],
        "predictions": ["predictions"],
    }


def test_only_losses_are_saved_when_nothing_else_was_asked_for(tmp_path: Path) -> None:
    hook = make_hook(tmp_path, save_all=False)
    train(make_model(), hook.wrap_tape)
    assert closed(hook).tensor_names() == ["loss"]


def test_layers_of_a_registered_model_are_saved(tmp_path: Path) -> None:
    plain_model, model = make_model(), make_model()
    first = [np.array(plain_model.layers[0](X))]
    plain = train(plain_model, no_autograph)
    hook = make_hook(tmp_path)
    hook.register_model(model)
    train(model, hook.wrap_tape)
    trial = closed(hook)
    check_same(trial, plain)
    np.testing.assert_array_equal(value(trial, "first/outputs"), first[0])
    np.testing.assert_array_equal(value(trial, "second/inputs"), first[0])
    np.testing.assert_array_equal(value(trial, "second/outputs"), plain[0]["predictions"])
    for number in range(4):
        np.testing.assert_array_equal(value(trial, "first/inputs", number), X + number)
        np.testing.assert_array_equal(value(trial, "inputs", number), X + number)
    layers = {f"{each}/{kind}" for each in ("first", "second") for kind in ("inputs", "outputs")}
    assert {n for n in trial.tensor_names() if n.startswith(("first/", "second/"))} == layers


def test_a_model_that_is_called_twice_has_numbers(tmp_path: Path) -> None:
    model = make_model()
    hook = make_hook(tmp_path)
    hook.register_model(model)
    with hook.wrap_tape(tf.GradientTape()) as tape:
        loss = mse(model(X), model(X + 1))
    tape.gradient(loss, model.trainable_variables)
    trial = closed(hook)
    np.testing.assert_array_equal(value(trial, "first/inputs_0"), X)
    np.testing.assert_array_equal(value(trial, "first/inputs_1"), X + 1)
    assert not trial.has_tensor("first/inputs")


def test_layers_outside_a_tape_are_not_observed(tmp_path: Path) -> None:
    model = make_model()
    hook = make_hook(tmp_path)
    hook.register_model(model)
    before = type(model).__call__, keras.layers.Layer.__call__
    train(model, hook.wrap_tape, steps=2, each=lambda number, batch, _: model(batch * 100))
    assert (type(model).__call__, keras.layers.Layer.__call__) == before
    trial = closed(hook)
    np.testing.assert_array_equal(value(trial, "first/inputs", 1), X + 1)
    assert not trial.has_tensor("first/inputs_0")


def test_save_tape_logs_saves_inputs_and_predictions(tmp_path: Path) -> None:
    plain = train(make_model(), no_autograph)
    hook = make_hook(tmp_path)
    train(make_model(), hook.wrap_tape, each=lambda _, b, p: hook.save_tape_logs(b, p))
    trial = closed(hook)
    check_same(trial, plain, place=PLACE)
    for number in range(4):
        np.testing.assert_array_equal(value(trial, "inputs", number), X + number)
        np.testing.assert_array_equal(trial.inputs(number, TRAIN)[0], X + number)
        np.testing.assert_array_equal(
            trial.predictions(number, TRAIN)[0], plain[number]["predictions"]
        )


def test_save_tape_logs_takes_structures_and_what_numpy_has(tmp_path: Path) -> None:
    hook = make_hook(tmp_path)
    w = tf.Variable(2.0, name="w")
    with hook.wrap_tape(tf.GradientTape()) as tape:
        loss = w * w
        hook.save_tape_logs({"a": X, "b": [tf.constant(Y), None]}, (loss,))
    tape.gradient(loss, w)
    trial = closed(hook)
    np.testing.assert_array_equal(value(trial, "inputs_0"), X)
    np.testing.assert_array_equal(value(trial, "inputs_1"), Y)
    np.testing.assert_array_equal(value(trial, "predictions"), 4.0)


def test_registered_model_and_save_tape_logs_agree(tmp_path: Path) -> None:
    plain = train(make_model(), no_autograph)
    hook = make_hook(tmp_path)
    hook.register_model(model := make_model())
    train(model, hook.wrap_tape, each=lambda _, b, p: hook.save_tape_logs(b, p))
    trial = closed(hook)
    check_same(trial, plain)
    assert not [name for name in trial.tensor_names() if name.startswith("inputs_")]


def test_variables_of_a_wrapped_optimizer_are_saved(tmp_path: Path) -> None:
    def optimizer() -> Any:
        return keras.optimizers.SGD(0.1, momentum=0.9)

    plain_model, seen = make_model(), []
    own = optimizer()

    def slots(number: int, batch: Any, predictions: Any) -> None:
        variables = own.variables() if callable(own.variables) else own.variables
        seen.append([each.numpy() for each in variables])

    train(plain_model, no_autograph, optimizer=own, each=slots)
    hook = make_hook(tmp_path, save_all=False, include_collections=["optimizer_variables"])
    train(make_model(), hook.wrap_tape, optimizer=hook.wrap_optimizer(optimizer()))
    trial = closed(hook)
    names = trial.tensor_names(collection="optimizer_variables", step=2, mode=TRAIN)
    saved = [value(trial, name, 2) for name in names]
    # What step 1 left is what step 2 begins with.
    assert len(names) == len(seen[1])
    for expected in seen[1]:
        assert any(np.array_equal(expected, each) for each in saved)


def test_variables_set_as_optimizer_variables_are_saved(tmp_path: Path) -> None:
    hook = make_hook(tmp_path, save_all=False, include_collections=["optimizer_variables"])
    momentum = tf.Variable([0.5, 0.25], name="momentum")
    w = tf.Variable([1.0, 2.0], name="w")
    hook.set_optimizer_variables([momentum])
    for _ in range(2):
        with hook.wrap_tape(tf.GradientTape()) as tape:
            loss = tf.reduce_sum(w * w)
        gradient = tape.gradient(loss, w)
        momentum.assign(0.5 * momentum + gradient)
    trial = closed(hook)
    assert sorted(trial.tensor_names()) == ["loss", "momentum:0"]
    np.testing.assert_array_equal(value(trial, "momentum:0", 0), [0.5, 0.25])
    np.testing.assert_array_equal(value(trial, "momentum:0", 1), [2.25, 4.125])


def test_set_gradients_saves_at_the_step_of_the_last_tape(tmp_path: Path) -> None:
    model = make_model()
    hook = make_hook(tmp_path, save_all=False, include_collections=["gradients"])
    hook.register_model(model)
    for number in range(2):
        with hook.wrap_tape(tf.GradientTape()):
            mse(Y, model(X))
        doubled = [tf.fill(each.shape, float(number)) for each in model.trainable_variables]
        hook.set_gradients(doubled)
    trial = closed(hook)
    assert sorted(trial.tensor_names(collection="gradients")) == sorted(
        f"gradients/{name}Grad" for name in NAMES
    )
    for number in range(2):
        for name in NAMES:
            assert set(value(trial, f"gradients/{name}Grad", number).ravel()) == {float(number)}


def test_set_gradients_takes_pairs_and_refuses_gradients_of_nothing(tmp_path: Path) -> None:
    hook = make_hook(tmp_path)
    w, v = tf.Variable(1.0, name="w"), tf.Variable(1.0, name="v")
    with hook.wrap_tape(tf.GradientTape()):
        pass
    hook.set_gradients(gradients_and_variables=[(tf.constant(3.0), w), (None, v)])
    with pytest.raises(SMDebugTypeError, match="register_model"):
        hook.set_gradients([tf.constant(3.0)])
    trial = closed(hook)
    assert trial.tensor_names() == ["gradients/wGrad"]
    assert value(trial, "gradients/wGrad") == 3.0


def test_the_same_gradients_given_twice_are_one_tensor(tmp_path: Path) -> None:
    """Scripts for smdebug 1.0 hand over what the tape has already reported."""
    model = make_model()
    hook = make_hook(tmp_path)
    hook.register_model(model)
    with hook.wrap_tape(tf.GradientTape()) as tape:
        loss = mse(Y, model(X))
    gradients = tape.gradient(loss, model.trainable_variables)
    hook.set_gradients(gradients)
    trial = closed(hook)
    np.testing.assert_array_equal(value(trial, "gradients/first/kernelGrad"), gradients[0].numpy())


def test_values_saved_by_the_user_belong_to_the_last_tape(tmp_path: Path) -> None:
    hook = make_hook(tmp_path, save_config=smd.SaveConfig(save_interval=2))

    def by_hand(number: int, batch: Any, predictions: Any) -> None:
        hook.save_scalar("number", number)
        hook.save_tensor("twice", predictions * 2)
        hook.record_tensor_value("accuracy", tf.constant(number / 10))
        hook.record_tensor_value("aux_loss", tf.constant(float(number)))

    plain = train(make_model(), no_autograph)
    train(make_model(), hook.wrap_tape, each=by_hand)
    trial = closed(hook)
    for number in range(4):
        assert value(trial, "scalar/number", number) == number
    for number in (0, 2):
        np.testing.assert_array_equal(
            value(trial, "twice", number), plain[number]["predictions"] * 2
        )
        assert value(trial, "accuracy", number) == np.float32(number / 10)
    assert trial.tensor("twice").steps(mode=TRAIN) == [0, 2]
    assert trial.tensor("accuracy").steps(mode=TRAIN) == [0, 2]
    assert trial.tensor_names(collection="metrics") == ["accuracy"]
    assert sorted(trial.tensor_names(collection="losses")) == ["aux_loss", "loss"]


# ---- tapes of all kinds


def test_a_persistent_tape_has_several_losses(tmp_path: Path) -> None:
    model = make_model()
    hook = make_hook(tmp_path)
    hook.register_model(model)
    with hook.wrap_tape(tf.GradientTape(persistent=True)) as tape:
        predictions = model(X)
        first, second = mse(Y, predictions), tf.reduce_mean(tf.abs(predictions))
    kernel, bias = model.trainable_variables[:2]
    one = tape.gradient(first, kernel)
    two = tape.gradient(second, [kernel, bias])
    tape.gradient(first, [bias])
    trial = closed(hook)
    assert value(trial, "loss") == first.numpy()
    assert value(trial, "loss_1") == second.numpy()
    assert not trial.has_tensor("loss_2")
    np.testing.assert_array_equal(value(trial, "gradients/first/kernelGrad"), one.numpy())
    np.testing.assert_array_equal(value(trial, "gradients/first/kernelGrad_1"), two[0].numpy())
    np.testing.assert_array_equal(value(trial, "gradients/first/biasGrad"), two[1].numpy())
    assert trial.steps(mode=TRAIN) == [0]


def test_a_list_of_losses_is_numbered(tmp_path: Path) -> None:
    hook = make_hook(tmp_path)
    w = tf.Variable([1.0, 2.0], name="w")
    for _ in range(2):
        with hook.wrap_tape(tf.GradientTape()) as tape:
            losses = {"a": tf.reduce_sum(w), "b": w * w}
        gradient = tape.gradient(losses, w)
    trial = closed(hook)
    assert trial.tensor_names(collection="losses") == ["loss", "loss_1"]
    for number in range(2):
        assert value(trial, "loss", number) == 3.0
        np.testing.assert_array_equal(value(trial, "loss_1", number), [1.0, 4.0])
        np.testing.assert_array_equal(value(trial, "gradients/wGrad", number), gradient.numpy())


def test_structures_of_variables_are_kept(tmp_path: Path) -> None:
    hook = make_hook(tmp_path)
    b, a, c = (
        tf.Variable(number, name=name) for number, name in ((1.0, "b"), (2.0, "a"), (3.0, "c"))
    )
    structure = {"z": [b, {"y": a}], "k": (c,)}
    with hook.wrap_tape(tf.GradientTape()) as tape:
        loss = 10 * b + 20 * a + 30 * c
    gradients = tape.gradient(loss, structure)
    assert gradients["z"][1]["y"].numpy() == 20
    trial = closed(hook)
    for name, expected in (("b", 10), ("a", 20), ("c", 30)):
        assert value(trial, f"gradients/{name}Grad") == expected


def test_variables_without_a_gradient_are_saved_without_one(tmp_path: Path) -> None:
    hook = make_hook(tmp_path)
    used, unused = tf.Variable(2.0, name="used"), tf.Variable(5.0, name="unused")
    with hook.wrap_tape(tf.GradientTape()) as tape:
        loss = used * used
    gradients = tape.gradient(loss, [unused, used])
    assert gradients[0] is None
    trial = closed(hook)
    assert sorted(trial.tensor_names()) == [
        "gradients/usedGrad", "loss", "weights/unused:0", "weights/used:0"
    ]  # fmt: skip
    assert value(trial, "gradients/usedGrad") == 4.0
    assert value(trial, "weights/unused:0") == 5.0


def test_arguments_of_gradient_are_passed_on(tmp_path: Path) -> None:
    hook = make_hook(tmp_path)
    w, unused = tf.Variable([1.0, 2.0], name="w"), tf.Variable(5.0, name="unused")
    with hook.wrap_tape(tf.GradientTape()) as tape:
        target = w * w
    gradients = tape.gradient(
        target, [w, unused],
        output_gradients=tf.constant([1.0, 10.0]),
        unconnected_gradients=tf.UnconnectedGradients.ZERO,
    )  # fmt: skip
    np.testing.assert_array_equal(gradients[0].numpy(), [2.0, 40.0])
    trial = closed(hook)
    np.testing.assert_array_equal(value(trial, "gradients/wGrad"), [2.0, 40.0])
    assert value(trial, "gradients/unusedGrad") == 0.0


def test_gradients_by_tensors_are_returned_and_have_no_name(tmp_path: Path) -> None:
    hook = make_hook(tmp_path)
    model = make_model()
    images = tf.constant(X)
    with hook.wrap_tape(tf.GradientTape(persistent=True)) as tape:
        tape.watch(images)
        loss = mse(Y, model(images))
    by_images = tape.gradient(loss, images)
    both = tape.gradient(loss, [images, model.trainable_variables[0]])
    np.testing.assert_array_equal(by_images.numpy(), both[0].numpy())
    trial = closed(hook)
    assert sorted(trial.tensor_names()) == [
        f"gradients/{PLACE}first/kernelGrad", "loss", f"weights/{PLACE}first/kernel:0"
    ]  # fmt: skip
    saved = value(trial, f"gradients/{PLACE}first/kernelGrad")
    np.testing.assert_array_equal(saved, both[1].numpy())


def test_sparse_gradients_are_saved_dense_without_a_warning(tmp_path: Path) -> None:
    hook = make_hook(tmp_path, save_all=False, include_collections=["gradients"])
    table = tf.Variable(np.arange(12.0).reshape(6, 2), name="table")
    with hook.wrap_tape(tf.GradientTape()) as tape:
        loss = tf.reduce_sum(tf.gather(table, [1, 4, 1]))
    gradient = tape.gradient(loss, table)
    assert isinstance(gradient, tf.IndexedSlices)
    expected = np.zeros((6, 2))
    expected[[1, 4]] = [[2, 2], [1, 1]]
    np.testing.assert_array_equal(value(closed(hook), "gradients/tableGrad"), expected)


def test_only_what_a_tape_watches_has_gradients(tmp_path: Path) -> None:
    hook = make_hook(tmp_path)
    seen, unseen = tf.Variable(2.0, name="seen"), tf.Variable(3.0, name="unseen")
    with hook.wrap_tape(tf.GradientTape(watch_accessed_variables=False)) as tape:
        tape.watch(seen)
        loss = seen * unseen
    assert [each.numpy() for each in tape.watched_variables()] == [2.0]
    assert [None if g is None else g.numpy() for g in tape.gradient(loss, [seen, unseen])] == [
        3.0,
        None,
    ]
    trial = closed(hook)
    assert value(trial, "gradients/seenGrad") == 3.0
    assert not trial.has_tensor("gradients/unseenGrad")


def test_hook_does_not_make_tapes_watch_more(tmp_path: Path) -> None:
    hook = make_hook(tmp_path)
    w, unused = tf.Variable(2.0, name="w"), tf.Variable(3.0, name="unused")
    hook.set_optimizer_variables([momentum := tf.Variable(1.0, name="momentum")])
    with tf.GradientTape() as outer:
        with hook.wrap_tape(tf.GradientTape()) as tape:
            loss = w * w
        gradient = tape.gradient(loss, [w, unused])[0]
        penalty = gradient * gradient
    assert [each.numpy() for each in outer.watched_variables()] == [2.0]
    assert outer.gradient(penalty, w).numpy() == 16.0
    trial = closed(hook)
    assert value(trial, "weights/unused:0") == 3.0
    assert value(trial, "momentum:0") == momentum.numpy()


def test_a_jacobian_is_computed_and_does_no_harm(tmp_path: Path) -> None:
    hook = make_hook(tmp_path)
    w = tf.Variable([1.0, 2.0], name="w")
    with hook.wrap_tape(tf.GradientTape(persistent=True)) as tape:
        target = w * w
        loss = tf.reduce_sum(target)
    for pfor in (True, False):
        jacobian = tape.jacobian(target, w, experimental_use_pfor=pfor)
        np.testing.assert_array_equal(jacobian.numpy(), [[2.0, 0.0], [0.0, 4.0]])
    tape.gradient(loss, w)
    with hook.wrap_tape(tf.GradientTape()) as tape:
        loss = tf.reduce_sum(w)
    tape.gradient(loss, w)
    trial = closed(hook)
    assert trial.steps(mode=TRAIN) == [0, 1]
    assert value(trial, "loss", 0) == 5.0
    assert value(trial, "loss", 1) == 3.0
    np.testing.assert_array_equal(value(trial, "gradients/wGrad", 0), [2.0, 4.0])
    assert sorted(trial.tensor_names()) == ["gradients/wGrad", "loss", "weights/w:0"]


def test_a_batch_jacobian_is_computed_and_does_no_harm(tmp_path: Path) -> None:
    hook = make_hook(tmp_path)
    images = tf.constant(X)
    with hook.wrap_tape(tf.GradientTape()) as tape:
        tape.watch(images)
        target = images * images
    np.testing.assert_allclose(
        tape.batch_jacobian(target, images).numpy()[0], np.diag(2 * X[0]), rtol=1e-6
    )
    train(make_model(), hook.wrap_tape, steps=1)
    assert closed(hook).tensor("loss").steps(mode=TRAIN) == [1]


def test_recording_can_be_stopped_and_begun_again(tmp_path: Path) -> None:
    hook = make_hook(tmp_path)
    w = tf.Variable(3.0, name="w")
    with hook.wrap_tape(tf.GradientTape()) as tape:
        unseen = w * 100
        tape.reset()
        with tape.stop_recording():
            constant = w * w
        loss = w * constant + unseen
    assert tape.gradient(loss, w).numpy() == 9.0
    trial = closed(hook)
    assert trial.steps(mode=TRAIN) == [0]
    assert value(trial, "loss") == 327.0
    assert value(trial, "gradients/wGrad") == 9.0


def test_a_tape_that_is_entered_again_begins_another_step(tmp_path: Path) -> None:
    hook = make_hook(tmp_path)
    w = tf.Variable(3.0, name="w")
    tape = hook.wrap_tape(tf.GradientTape())
    for _ in range(2):
        with tape:
            loss = w * w
        w.assign_sub(tape.gradient(loss, w) * 0.5)
    trial = closed(hook)
    assert [value(trial, "loss", number) for number in range(2)] == [9.0, 0.0]
    assert [value(trial, "gradients/wGrad", number) for number in range(2)] == [6.0, 0.0]
    assert sorted(trial.tensor_names()) == ["gradients/wGrad", "loss", "weights/w:0"]


def test_wrapped_tape_keeps_its_identity_and_type(tmp_path: Path) -> None:
    class Own(tf.GradientTape):
        """A custom tape class."""

        asked = 0

        def gradient(self, *args: Any, **kwargs: Any) -> Any:
            self.asked += 1
            return super().gradient(*args, **kwargs)

    hook = make_hook(tmp_path)
    w = tf.Variable(3.0, name="w")
    tape = Own()
    assert hook.wrap_tape(tape) is tape
    assert isinstance(tape, Own)
    with tape as entered:
        assert entered is tape
        loss = w * w
    tape.gradient(loss, w)
    assert tape.asked == 1
    assert value(closed(hook), "loss") == 9.0


def test_wrapping_a_tape_leaves_other_tapes_alone(tmp_path: Path) -> None:
    hook = make_hook(tmp_path)
    before = dict(vars(tf.GradientTape))
    w = tf.Variable(3.0, name="w")
    with hook.wrap_tape(tf.GradientTape()) as tape:
        loss = w * w
    tape.gradient(loss, w)
    assert dict(vars(tf.GradientTape)) == before
    with tf.GradientTape() as other:
        loss = w * w
    other.gradient(loss, w)
    assert hook.step == 0


def test_the_same_tape_wrapped_twice_counts_once(tmp_path: Path) -> None:
    hook = make_hook(tmp_path)
    w = tf.Variable(3.0, name="w")
    with hook.wrap_tape(hook.wrap_tape(tf.GradientTape())) as tape:
        loss = w * w
    tape.gradient(loss, w)
    trial = closed(hook)
    assert trial.steps(mode=TRAIN) == [0]
    assert sorted(trial.tensor_names()) == ["gradients/wGrad", "loss", "weights/w:0"]


def test_tape_wrapped_by_two_hooks_reports_to_both(tmp_path: Path) -> None:
    one, two = make_hook(tmp_path / "one"), make_hook(tmp_path / "two")
    w = tf.Variable(3.0, name="w")
    for _ in range(2):
        with one.wrap_tape(two.wrap_tape(tf.GradientTape())) as tape:
            loss = w * w
        tape.gradient(loss, w)
    for hook in (one, two):
        trial = closed(hook)
        assert trial.steps(mode=TRAIN) == [0, 1]
        assert sorted(trial.tensor_names()) == ["gradients/wGrad", "loss", "weights/w:0"]


def test_tape_without_gradient_call_is_a_step(tmp_path: Path) -> None:
    model = make_model()
    hook = make_hook(tmp_path)
    hook.register_model(model)
    with hook.wrap_tape(tf.GradientTape()):
        model(X)
    with hook.wrap_tape(tf.GradientTape()) as tape:
        loss = mse(Y, model(X + 1))
    tape.gradient(loss, model.trainable_variables)
    trial = closed(hook)
    assert trial.steps(mode=TRAIN) == [0, 1]
    assert "loss" not in names_at(trial, 0)
    np.testing.assert_array_equal(value(trial, "first/inputs", 0), X)


def test_tape_that_was_never_entered_is_not_a_step(tmp_path: Path) -> None:
    hook = make_hook(tmp_path)
    hook.wrap_tape(tf.GradientTape())
    assert hook.step == -1


def test_wrap_tape_ignores_other_objects(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    hook = make_hook(tmp_path)
    w = tf.Variable(3.0)
    accumulator = tf.autodiff.ForwardAccumulator(w, tf.constant(1.0))
    with caplog.at_level(logging.WARNING):
        assert hook.wrap_tape(accumulator) is accumulator
        assert hook.wrap_tape(None) is None
    assert "ForwardAccumulator, which is not a tf.GradientTape" in caplog.text


# ---- several tapes at once


def test_an_inner_tape_has_its_own_step(tmp_path: Path) -> None:
    hook = make_hook(tmp_path)
    w = tf.Variable(3.0, name="w")
    with hook.wrap_tape(tf.GradientTape()) as outer:
        with hook.wrap_tape(tf.GradientTape()) as inner:
            cube = w * w * w
        slope = inner.gradient(cube, w)
        loss = cube + slope
    assert outer.gradient(loss, w).numpy() == 27.0 + 18.0
    trial = closed(hook)
    assert trial.steps(mode=TRAIN) == [0, 1]
    assert [value(trial, "loss", number) for number in range(2)] == [54.0, 27.0]
    assert value(trial, "gradients/wGrad", 0) == 45.0
    assert value(trial, "gradients/wGrad", 1) == 27.0
    assert names_at(trial, 0) == names_at(trial, 1)


def test_two_tapes_of_one_step_keep_their_own(tmp_path: Path) -> None:
    """A generator and a discriminator, as in most tutorials."""
    hook = make_hook(tmp_path)
    g, d = tf.Variable(2.0, name="g"), tf.Variable(5.0, name="d")
    for number in range(3):
        with hook.wrap_tape(tf.GradientTape()) as one, hook.wrap_tape(tf.GradientTape()) as two:
            fake = g * d * float(number)
            for_g, for_d = fake + 1, fake - 1
        of_g = one.gradient(for_g, g)
        of_d = two.gradient(for_d, d)
        assert (of_g.numpy(), of_d.numpy()) == (5.0 * number, 2.0 * number)
    trial = closed(hook)
    assert trial.steps(mode=TRAIN) == list(range(6))
    for number in range(3):
        step_g, step_d = 2 * number, 2 * number + 1
        assert names_at(trial, step_g) == ["gradients/gGrad", "loss", "weights/g:0"]
        assert names_at(trial, step_d) == ["gradients/dGrad", "loss", "weights/d:0"]
        assert value(trial, "loss", step_g) == 10.0 * number + 1
        assert value(trial, "loss", step_d) == 10.0 * number - 1


def test_a_tape_whose_step_saves_nothing_writes_into_no_other_step(tmp_path: Path) -> None:
    config = smd.SaveConfig(save_interval=1000, start_step=1000, save_steps=[1, 3])
    hook = make_hook(tmp_path, save_config=config)
    g, d = tf.Variable(2.0, name="g"), tf.Variable(5.0, name="d")
    for _ in range(2):
        with hook.wrap_tape(tf.GradientTape()) as one, hook.wrap_tape(tf.GradientTape()) as two:
            for_g, for_d = g * 10, d * 10
        one.gradient(for_g, g)
        two.gradient(for_d, d)
    trial = closed(hook)
    assert trial.steps(mode=TRAIN) == [1, 3]
    for step in (1, 3):
        assert names_at(trial, step) == ["gradients/dGrad", "loss", "weights/d:0"]
        assert value(trial, "loss", step) == 50.0


def test_layers_inside_two_tapes_are_seen_once(tmp_path: Path) -> None:
    model = make_model()
    hook = make_hook(tmp_path)
    hook.register_model(model)
    before = keras.layers.Layer.__call__
    with hook.wrap_tape(tf.GradientTape()) as one, hook.wrap_tape(tf.GradientTape()) as two:
        loss = mse(Y, model(X))
    assert keras.layers.Layer.__call__ is before
    one.gradient(loss, model.trainable_variables)
    two.gradient(loss, model.trainable_variables)
    trial = closed(hook)
    for step in (0, 1):
        np.testing.assert_array_equal(value(trial, "first/inputs", step), X)
    assert not [name for name in trial.tensor_names() if "puts_" in name]


def test_tapes_exited_in_the_order_of_entry(tmp_path: Path) -> None:
    model = make_model()
    hook = make_hook(tmp_path)
    hook.register_model(model)
    before = keras.layers.Layer.__call__
    one, two = hook.wrap_tape(tf.GradientTape()), hook.wrap_tape(tf.GradientTape())
    one.__enter__()
    two.__enter__()
    loss = mse(Y, model(X))
    one.__exit__(None, None, None)
    two.__exit__(None, None, None)
    assert keras.layers.Layer.__call__ is before
    np.testing.assert_array_equal(
        one.gradient(loss, model.trainable_variables)[0].numpy(),
        two.gradient(loss, model.trainable_variables)[0].numpy(),
    )
    train(model, hook.wrap_tape, steps=1)
    trial = closed(hook)
    assert trial.steps(mode=TRAIN) == [0, 1, 2]
    np.testing.assert_array_equal(value(trial, "first/inputs", 2), X)


def test_gradients_may_come_after_the_next_tape_has_begun(tmp_path: Path) -> None:
    hook = make_hook(tmp_path)
    w = tf.Variable(1.0, name="w")
    tapes = []
    for number in range(3):
        with hook.wrap_tape(tf.GradientTape()) as tape:
            loss = w * float(number)
        tapes.append((tape, loss))
    for tape, loss in tapes:
        tape.gradient(loss, w)
    trial = closed(hook)
    for number in range(3):
        assert value(trial, "loss", number) == number
        assert value(trial, "gradients/wGrad", number) == number


# ---- names


def test_variables_with_equal_names_are_distinguished(tmp_path: Path) -> None:
    hook = make_hook(tmp_path)
    variables = [tf.Variable(float(number)) for number in range(1, 4)]
    for _ in range(2):
        with hook.wrap_tape(tf.GradientTape()) as tape:
            loss = tf.add_n([each * each for each in variables])
        tape.gradient(loss, variables)
    trial = closed(hook)
    assert sorted(trial.tensor_names()) == [
        "gradients/VariableGrad", "gradients/Variable_1Grad", "gradients/Variable_2Grad", "loss",
        "weights/Variable:0", "weights/Variable_1:0", "weights/Variable_2:0",
    ]  # fmt: skip
    for number, name in enumerate(("Variable", "Variable_1", "Variable_2"), 1):
        for step in (0, 1):
            assert value(trial, f"weights/{name}:0", step) == number
            assert value(trial, f"gradients/{name}Grad", step) == 2 * number


def test_a_collection_takes_the_variable_it_was_given(tmp_path: Path) -> None:
    hook = make_hook(tmp_path, save_all=False, include_collections=["mine"])
    first, second = tf.Variable(1.0, name="w"), tf.Variable(2.0, name="w")
    hook.get_collection("mine").add(second)
    for _ in range(2):
        with hook.wrap_tape(tf.GradientTape()) as tape:
            loss = first * second
        tape.gradient(loss, [first, second])
    trial = closed(hook)
    (name,) = [name for name in trial.tensor_names() if name != "loss"]
    assert [value(trial, name, step) for step in (0, 1)] == [2.0, 2.0]


def test_two_models_with_equal_names_are_distinguished(tmp_path: Path) -> None:
    hook = make_hook(tmp_path)
    one, two = make_model("one"), make_model("two")
    two.set_weights([each + 1 for each in two.get_weights()])
    for _ in range(2):
        with hook.wrap_tape(tf.GradientTape()) as tape:
            loss = mse(one(X), two(X))
        tape.gradient(loss, one.trainable_variables + two.trainable_variables)
    trial = closed(hook)
    weights = [name for name in trial.tensor_names() if name.startswith("weights/")]
    assert len(weights) == 8
    saved = [value(trial, name) for name in weights]
    for expected in one.get_weights() + two.get_weights():
        assert any(np.array_equal(expected, each) for each in saved)


def test_modules_have_the_names_of_their_scopes(tmp_path: Path) -> None:
    class Linear(tf.Module):
        def __init__(self, name: str) -> None:
            super().__init__(name=name)
            with self.name_scope:
                self.w = tf.Variable(X[:2].T, name="w")
                self.bias = tf.Variable([0.0, 0.0], name="bias")

        def __call__(self, x: Any) -> Any:
            return x @ self.w + self.bias

    class Net(tf.Module):
        def __init__(self) -> None:
            super().__init__(name="net")
            with self.name_scope:
                self.layers = [Linear("linear"), Linear("linear")]

    hook = make_hook(tmp_path)
    net = Net()
    with hook.wrap_tape(tf.GradientTape()) as tape:
        loss = mse(Y, net.layers[0](X) + net.layers[1](X))
    tape.gradient(loss, net.trainable_variables)
    trial = closed(hook)
    weights = sorted(name for name in trial.tensor_names() if name.startswith("weights/"))
    assert len(weights) == 4
    assert {"weights/net/linear/bias:0", "weights/net/linear/w:0"} < set(weights)
    assert len(trial.tensor_names(collection="biases")) == 2
    with pytest.raises(SMDebugTypeError, match="Keras model"):
        hook.register_model(net)


def test_watched_variables_have_the_names_of_the_model(tmp_path: Path) -> None:
    hook = make_hook(tmp_path)
    hook.register_model(model := make_model())
    with hook.wrap_tape(tf.GradientTape()) as tape:
        loss = mse(Y, model(X))
    tape.gradient(loss, tape.watched_variables())
    trial = closed(hook)
    assert sorted(trial.tensor_names(collection="gradients")) == sorted(
        f"gradients/{name}Grad" for name in NAMES
    )


def test_variable_created_at_each_step_is_one_tensor_and_is_freed(tmp_path: Path) -> None:
    """What is added to an image to fool a network is such a variable."""
    hook = make_hook(tmp_path)
    model = make_model()
    gone: list[Any] = []

    def attack(number: int) -> None:
        delta = tf.Variable(np.full((6, 4), float(number), np.float32), name="delta")
        gone.append(weakref.ref(delta))
        with hook.wrap_tape(tf.GradientTape()) as tape:
            loss = mse(Y, model(X + tf.convert_to_tensor(delta)))
        tape.gradient(loss, delta)

    for number in range(3):
        attack(number)
        gc.collect()
    trial = closed(hook)
    gc.collect()
    assert all(each() is None for each in gone)
    assert sorted(trial.tensor_names()) == ["gradients/deltaGrad", "loss", "weights/delta:0"]
    assert [value(trial, "weights/delta:0", step)[0, 0] for step in range(3)] == [0, 1, 2]


@pytest.mark.parametrize("kept", [False, True])
def test_hook_and_model_do_not_keep_each_other_alive(tmp_path: Path, kept: bool) -> None:
    def run() -> tuple[Any, Any, Any]:
        hook = make_hook(tmp_path)
        model = make_model()
        hook.register_model(model)
        train(model, hook.wrap_tape, steps=2)
        closed(hook)
        smd.del_hook()
        return weakref.ref(hook), weakref.ref(model), model if kept else None

    hook, model, own = run()
    for _ in range(3):
        gc.collect()
    assert hook() is None
    assert model() is own


def test_registered_model_is_used_after_fit(tmp_path: Path) -> None:
    hook = make_hook(tmp_path)
    other = make_model("other")
    other.compile(keras.optimizers.SGD(0.1), "mse")
    other.fit(X, Y, batch_size=3, epochs=1, verbose=0, callbacks=[hook])
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(2, name="only")])
    hook.register_model(model)
    with hook.wrap_tape(tf.GradientTape()) as tape:
        loss = mse(Y, model(X))
    gradients = tape.gradient(loss, model.trainable_variables)
    trial = closed(hook)
    assert trial.steps(mode=TRAIN) == [0, 1, 2]
    np.testing.assert_array_equal(value(trial, "only/inputs", 2), X)
    np.testing.assert_array_equal(value(trial, "gradients/only/kernelGrad", 2), gradients[0])
    assert "weights/only/kernel:0" in names_at(trial, 2)


# ---- schedules and modes


def test_layers_are_not_inspected_at_steps_that_save_nothing(tmp_path: Path) -> None:
    hook = make_hook(tmp_path, save_config=smd.SaveConfig(save_interval=3))
    model = make_model()
    hook.register_model(model)
    patched = []
    before = keras.layers.Layer.__call__
    plain = train(make_model(), no_autograph, steps=7)
    for number in range(7):
        with hook.wrap_tape(tf.GradientTape()) as tape:
            patched.append(keras.layers.Layer.__call__ is not before)
            loss = mse(Y, model(X + number))
        gradients = tape.gradient(loss, model.trainable_variables)
        for gradient, variable in zip(gradients, model.trainable_variables, strict=True):
            variable.assign_sub(0.1 * gradient)
    assert patched == [True, False, False, True, False, False, True]
    trial = closed(hook)
    assert trial.steps(mode=TRAIN) == [0, 3, 6]
    for step in (0, 3, 6):
        np.testing.assert_allclose(value(trial, "loss", step), plain[step]["loss"], rtol=1e-5)


def test_a_step_that_saves_nothing_matches_no_regex(tmp_path: Path) -> None:
    hook = make_hook(tmp_path, save_config=smd.SaveConfig(save_interval=100))
    model = make_model()
    hook.register_model(model)
    hook.wrap_optimizer(optimizer := keras.optimizers.SGD(0.1))
    train(model, hook.wrap_tape, steps=2, optimizer=optimizer)
    matched = []

    def look(frame: Any, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename == inspect.getfile(Collection):
            matched.append(frame.f_code.co_name)

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        train(model, hook.wrap_tape, steps=3, optimizer=optimizer)
    finally:
        sys.setprofile(before)
    assert matched == []
    closed(hook)


def test_collections_may_have_their_own_save_schedules(tmp_path: Path) -> None:
    hook = make_hook(tmp_path, save_all=False, include_collections=["gradients", "layers"])
    hook.get_collection("gradients").save_config = smd.SaveConfig(save_interval=2)
    hook.get_collection("layers").save_config = smd.SaveConfig(save_steps=[1], save_interval=100)
    model = make_model()
    hook.register_model(model)
    train(model, hook.wrap_tape)
    trial = closed(hook)
    assert trial.tensor("loss").steps(mode=TRAIN) == [0, 1, 2, 3]
    assert trial.tensor("gradients/first/kernelGrad").steps(mode=TRAIN) == [0, 2]
    assert trial.tensor("first/outputs").steps(mode=TRAIN) == [0, 1]
    assert not trial.has_tensor("weights/first/kernel:0")


def test_reductions_are_those_of_numpy(tmp_path: Path) -> None:
    plain = train(make_model(), no_autograph, steps=2)
    hook = make_hook(
        tmp_path,
        reduction_config=smd.ReductionConfig(["min", "mean"], norms=["l2"], abs_reductions=["max"]),
    )
    train(make_model(), hook.wrap_tape, steps=2)
    trial = closed(hook)
    for step, record in enumerate(plain):
        for name in ("gradients/first/kernelGrad", "weights/second/kernel:0"):
            exact = record[name].astype(np.float64)
            kind, _, rest = name.partition("/")
            tensor = trial.tensor(f"{kind}/{PLACE}{rest}")
            for key, expected, absolute in (
                ("min", exact.min(), False),
                ("mean", exact.mean(), False),
                ("l2", np.sqrt((exact**2).sum()), False),
                ("max", np.abs(exact).max(), True),
            ):
                saved = tensor.reduction_value(step, key, mode=TRAIN, abs=absolute)
                np.testing.assert_allclose(saved, expected, rtol=1e-6)
        assert value(trial, "loss", step) == record["loss"]


def test_step_with_a_nan_loss_is_saved(tmp_path: Path) -> None:
    config = smd.SaveConfig(save_interval=1000, start_step=1000, when_nan=["loss"])
    hook = make_hook(tmp_path, save_config=config)
    model = make_model()
    hook.register_model(model)
    before: list[list[Array]] = []
    for number in range(4):
        before.append(model.get_weights())
        batch = X * (np.nan if number == 2 else 1.0)
        with hook.wrap_tape(tf.GradientTape()) as tape:
            loss = mse(Y, model(batch.astype(np.float32)))
        gradients = tape.gradient(loss, model.trainable_variables)
        if number != 2:
            for gradient, variable in zip(gradients, model.trainable_variables, strict=True):
                variable.assign_sub(0.1 * gradient)
    trial = closed(hook)
    assert trial.steps(mode=TRAIN) == [2]
    assert np.isnan(value(trial, "loss", 2))
    assert np.isnan(value(trial, "first/inputs", 2)).all()
    assert np.isnan(value(trial, "gradients/first/kernelGrad", 2)).any()
    np.testing.assert_array_equal(value(trial, "weights/first/kernel:0", 2), before[2][0])


def test_evaluation_in_between_is_not_training(tmp_path: Path) -> None:
    hook = make_hook(tmp_path)
    model = make_model()
    hook.register_model(model)
    for epoch in range(2):
        hook.set_mode(TRAIN)
        train(model, hook.wrap_tape, steps=2)
        hook.set_mode(EVAL)
        loss = mse(Y, model(X * 7))
        hook.save_scalar("val_loss", float(loss) * 0 + epoch)
    trial = closed(hook)
    assert trial.steps(mode=TRAIN) == [0, 1, 2, 3]
    assert trial.tensor("scalar/val_loss").steps(mode=TRAIN) == []
    assert value(trial, "scalar/val_loss", trial.steps(mode=EVAL)[-1], EVAL) == 1
    np.testing.assert_array_equal(value(trial, "first/inputs", 3), X + 1)


def test_values_of_an_evaluation_are_not_saved_in_training(tmp_path: Path) -> None:
    hook = make_hook(tmp_path)
    model = make_model()
    for _ in range(2):
        train(model, hook.wrap_tape, 1, each=lambda _, b, p: hook.save_tape_logs(b, p))
        hook.set_mode(EVAL)
        hook.save_tape_logs(X * 50, model(X * 50))
    trial = closed(hook)
    for step in (0, 1):
        np.testing.assert_array_equal(value(trial, "inputs", step), X)


def test_wrapping_sets_the_mode_to_training(tmp_path: Path) -> None:
    hook = make_hook(tmp_path)
    hook.set_mode(EVAL)
    train(make_model(), hook.wrap_tape, steps=1)
    assert hook.mode is TRAIN
    assert closed(hook).steps(mode=TRAIN) == [0]


def test_a_tape_wrapped_before_an_evaluation_is_a_step_of_training(tmp_path: Path) -> None:
    hook = make_hook(tmp_path)
    w = tf.Variable(3.0, name="w")
    tape = hook.wrap_tape(tf.GradientTape())
    for _ in range(2):
        with tape:
            loss = w * w
        tape.gradient(loss, w)
        hook.set_mode(EVAL)
    trial = closed(hook)
    assert trial.steps(mode=TRAIN) == [0, 1]


# ---- failures


def test_exception_inside_propagates_and_leaves_no_state(tmp_path: Path) -> None:
    hook = make_hook(tmp_path)
    model = make_model()
    hook.register_model(model)
    before = keras.layers.Layer.__call__

    def fail(x: Array) -> None:
        with hook.wrap_tape(tf.GradientTape()):
            model(x)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail(X)
    assert keras.layers.Layer.__call__ is before
    with pytest.raises(Exception, match=r"(?i)shape|dim|incompatible"):
        fail(X[:, :3])
    assert keras.layers.Layer.__call__ is before
    train(model, hook.wrap_tape, steps=1)
    trial = closed(hook)
    assert trial.steps(mode=TRAIN)[-1] == 2
    np.testing.assert_array_equal(value(trial, "first/inputs", 2), X)


def test_errors_of_the_tape_are_unchanged(tmp_path: Path) -> None:
    hook = make_hook(tmp_path)
    w = tf.Variable(3.0, name="w")
    with hook.wrap_tape(tf.GradientTape()) as tape:
        loss = w * w
        with pytest.raises(ValueError, match="still recording"):
            tape.__enter__()
    tape.gradient(loss, w)
    with pytest.raises(RuntimeError, match="persistent"):
        tape.gradient(loss, w)
    with hook.wrap_tape(tf.GradientTape()) as tape:
        loss = w * w
    assert tape.gradient(loss, w).numpy() == 6.0
    trial = closed(hook)
    assert value(trial, "loss", trial.steps(mode=TRAIN)[-1]) == 9.0
    assert len(trial.steps(mode=TRAIN)) == 2


def test_closed_hook_does_not_affect_training(tmp_path: Path) -> None:
    plain_model, model = make_model(), make_model()
    train(plain_model, no_autograph)
    hook = make_hook(tmp_path)
    hook.register_model(model)
    train(model, hook.wrap_tape, each=lambda number, *_: hook.close() if number == 1 else None)
    assert closed(hook).steps(mode=TRAIN) == [0, 1]
    for ours, own in zip(model.get_weights(), plain_model.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, own)


def test_a_hook_may_be_closed_inside_a_tape(tmp_path: Path) -> None:
    model = make_model()
    hook = make_hook(tmp_path)
    hook.register_model(model)
    before = keras.layers.Layer.__call__
    with hook.wrap_tape(tf.GradientTape()) as tape:
        loss = mse(Y, model(X))
        hook.close()
    assert keras.layers.Layer.__call__ is before
    assert tape.gradient(loss, model.trainable_variables)[0] is not None
    assert hook._pipeline.errors.failure is None


@pytest.mark.parametrize("options", [{}, {"save_all": False, "include_collections": ["weights"]}])
def test_names_are_matched_with_regexes_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    matches, serialized = [], []
    match, to_json = Collection.matches, CollectionManager.to_json

    def counted_match(self: Collection, tensor_name: str) -> bool:
        matches.append(tensor_name)
        return match(self, tensor_name)

    def counted_to_json(self: CollectionManager) -> str:
        serialized.append(self)
        return to_json(self)

    monkeypatch.setattr(Collection, "matches", counted_match)
    monkeypatch.setattr(CollectionManager, "to_json", counted_to_json)
    model = make_model()
    optimizer = keras.optimizers.Adam(0.1)
    # Some versions of Keras create the variables of an optimizer at its first update.
    optimizer.build(model.trainable_variables)
    hook = make_hook(tmp_path, **options)
    hook.register_model(model)
    hook.wrap_optimizer(optimizer)
    counts = []

    def count(number: int, batch: Any, predictions: Any) -> None:
        hook.save_tape_logs(batch, predictions)
        counts.append((len(matches), len(serialized)))

    train(model, hook.wrap_tape, optimizer=optimizer, each=count)
    assert counts[0][0] > 0
    # The collections file is written when the first step is handed over.
    assert counts[-1][0] == counts[0][0]
    assert counts[-1][1] <= counts[0][1] + 1
    trial = closed(hook)
    states = trial.tensor_names(collection="optimizer_variables", step=3, mode=TRAIN)
    assert len(states) >= (0 if options else 8)


def test_time_in_nested_sections_is_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, captures = [0.0], []
    capture = KerasAdapter.capture

    def slow_capture(self: KerasAdapter, name: str, *args: Any, **kwargs: Any) -> Any:
        now[0] += 1.0
        captures.append(name)
        return capture(self, name, *args, **kwargs)

    monkeypatch.setattr(KerasAdapter, "capture", slow_capture)
    monkeypatch.setattr("smdebug.hook.errors.time.perf_counter", lambda: now[0])
    hook = make_hook(tmp_path)
    hook.register_model(make_model())
    train(hook._adapter.registered, hook.wrap_tape)
    assert len(captures) > 20
    assert hook.stats().seconds == len(captures)
    monkeypatch.undo()
    hook.close()


def test_a_failure_to_save_does_not_reach_training(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plain_model, model = make_model(), make_model()
    train(plain_model, no_autograph)
    hook = make_hook(tmp_path)

    def break_it(number: int, batch: Any, predictions: Any) -> None:
        if number == 1:
            hook._pipeline.errors.caught(OSError("no space left"))

    train(model, hook.wrap_tape, each=break_it)
    hook.close()
    assert "no space left" in caplog.text
    for ours, own in zip(model.get_weights(), plain_model.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, own)


def test_a_finding_raises_before_the_next_step(tmp_path: Path) -> None:
    hook = make_hook(tmp_path, rules=["NonFinite"], on_finding="stop", flush_seconds=0.01)
    w = tf.Variable(1.0, name="w")
    steps = []

    def run() -> None:
        for number in range(100_000):
            with hook.wrap_tape(tf.GradientTape()) as tape:
                loss = w * (np.nan if number >= 2 else 1.0)
            tape.gradient(loss, w)
            steps.append(number)

    with pytest.raises(RuleEvaluationConditionMet, match="NonFinite"):
        run()
    assert hook.closed
    assert len(steps) == hook.step + 1
    # The loop may continue; nothing is saved any more.
    with hook.wrap_tape(tf.GradientTape()) as tape:
        loss = w * w
    assert tape.gradient(loss, w).numpy() == 2.0


# ---- models of all kinds


def test_model_wrapped_in_a_function_is_not_captured_inside(tmp_path: Path) -> None:
    """The loop is eager, the model is not."""
    plain = train(make_model(), no_autograph)
    model = make_model()
    run = tf.function(lambda x: model(x, training=True))
    hook = make_hook(tmp_path)
    hook.register_model(model)
    optimizer = keras.optimizers.SGD(0.1)
    for number in range(4):
        with hook.wrap_tape(tf.GradientTape()) as tape:
            loss = mse(Y, run(tf.constant(X + number)))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    trial = closed(hook)
    assert trial.steps(mode=TRAIN) == [0, 1, 2, 3]
    for number in range(4):
        np.testing.assert_allclose(value(trial, "loss", number), plain[number]["loss"], rtol=1e-5)
    assert not [name for name in trial.tensor_names() if "puts" in name]


def test_model_with_a_tf_function_call_is_saved_from_outside(tmp_path: Path) -> None:
    class Net(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.first = keras.layers.Dense(3, name="first")

        @tf.function
        def call(self, x: Any) -> Any:
            return self.first(x)

    hook = make_hook(tmp_path)
    hook.register_model(model := Net())
    predictions = []
    for number in range(3):
        with hook.wrap_tape(tf.GradientTape()) as tape:
            predictions.append(model(tf.constant(X + number)))
            loss = tf.reduce_sum(predictions[-1])
        tape.gradient(loss, model.trainable_variables)
    trial = closed(hook)
    for number in range(3):
        np.testing.assert_array_equal(value(trial, "predictions", number), predictions[number])
        assert value(trial, "loss", number) == tf.reduce_sum(predictions[number]).numpy()
    assert not trial.has_tensor("first/outputs")


def test_a_model_that_is_built_by_its_first_call(tmp_path: Path) -> None:
    class Net(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.inner = keras.Sequential([keras.layers.Dense(3, name="a")], name="inner")
            self.last = keras.layers.Dense(2, name="b")

        def call(self, x: Any) -> Any:
            return self.last(self.inner(x))

    hook = make_hook(tmp_path)
    hook.register_model(model := Net())
    for _ in range(2):
        with hook.wrap_tape(tf.GradientTape()) as tape:
            loss = mse(Y, model(X))
        gradients = tape.gradient(loss, model.trainable_variables)
    trial = closed(hook)
    for name, variable, gradient in zip(
        ("a/kernel", "a/bias", "b/kernel", "b/bias"),
        model.trainable_variables, gradients, strict=True,
    ):  # fmt: skip
        for step in (0, 1):
            np.testing.assert_array_equal(value(trial, f"weights/{name}:0", step), variable.numpy())
            np.testing.assert_array_equal(value(trial, f"gradients/{name}Grad", step), gradient)
    np.testing.assert_array_equal(value(trial, "a/inputs"), X)
    np.testing.assert_array_equal(value(trial, "b/outputs"), model(X))


def test_cells_of_recurrent_layers_are_not_captured(tmp_path: Path) -> None:
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [keras.layers.Input((3, 4)), keras.layers.SimpleRNN(2, name="rnn")], name="net"
    )
    hook = make_hook(tmp_path)
    hook.register_model(model)
    x = np.stack([X] * 3, 1)
    with hook.wrap_tape(tf.GradientTape()) as tape:
        predictions = model(x)
        loss = mse(Y, predictions)
    tape.gradient(loss, model.trainable_variables)
    trial = closed(hook)
    np.testing.assert_array_equal(value(trial, "rnn/outputs"), predictions.numpy())
    assert len([name for name in trial.tensor_names() if name.startswith("gradients/")]) == 3


def test_loops_with_the_losses_of_a_compiled_model(tmp_path: Path) -> None:
    def compiled() -> Any:
        model = make_model()
        model.compile(keras.optimizers.SGD(0.1), "mse")
        return model

    def loop(model: Any, wrap: Callable[[Any], Any]) -> list[float]:
        losses = []
        for number in range(3):
            with wrap(tf.GradientTape()) as tape:
                predictions = model(X + number, training=True)
                if KERAS_3:
                    loss = model.compute_loss(x=X, y=Y, y_pred=predictions)
                else:
                    loss = model.compiled_loss(tf.constant(Y), predictions)
            gradients = tape.gradient(loss, model.trainable_variables)
            model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            losses.append(float(loss))
        return losses

    plain_model, model = compiled(), compiled()
    plain = loop(plain_model, no_autograph)
    hook = make_hook(tmp_path)
    hook.register_model(model)
    assert loop(model, hook.wrap_tape) == plain
    trial = closed(hook)
    assert [float(value(trial, "loss", step)) for step in range(3)] == plain
    assert model.get_weights()[0].tolist() == plain_model.get_weights()[0].tolist()


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
        for _ in range(5):
            noise = tf.random.normal([6, 4])
            with wrap(tf.GradientTape()) as tape:
                loss = mse(Y, model(X + noise, training=True))
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return list(model.get_weights())

    plain = run(no_autograph, lambda model: None)
    hook = make_hook(tmp_path)
    ours = run(hook.wrap_tape, hook.register_model)
    closed(hook)
    for one, other in zip(ours, plain, strict=True):
        np.testing.assert_array_equal(one, other)


def test_ragged_and_sparse_tensors_do_not_stop_the_saving(tmp_path: Path) -> None:
    hook = make_hook(tmp_path)
    w = tf.Variable(2.0, name="w")
    ragged = tf.ragged.constant([[1.0], [2.0, 3.0]])
    sparse = tf.sparse.from_dense([[0.0, 1.0], [2.0, 0.0]])
    for _ in range(2):
        with hook.wrap_tape(tf.GradientTape()) as tape:
            loss = w * tf.reduce_sum(ragged)
        tape.gradient(loss, w)
        hook.save_tape_logs([ragged, sparse, tf.constant(X)], ragged)
    trial = closed(hook)
    assert [value(trial, "loss", step) for step in (0, 1)] == [12.0, 12.0]
    names = [name for name in trial.tensor_names() if name.startswith("inputs")]
    assert any(np.array_equal(value(trial, name), X) for name in names)
    for name in trial.tensor_names():
        assert value(trial, name).dtype.kind == "f", name


def test_a_function_that_runs_eagerly_is_like_a_loop(tmp_path: Path) -> None:
    hook = make_hook(tmp_path)
    hook.register_model(model := make_model())
    optimizer = keras.optimizers.SGD(0.1)

    @tf.function
    def step(batch: Any) -> Any:
        with hook.wrap_tape(tf.GradientTape()) as tape:
            loss = mse(Y, model(batch))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    tf.config.run_functions_eagerly(True)
    try:
        losses = [step(tf.constant(X + number)).numpy() for number in range(3)]
    finally:
        tf.config.run_functions_eagerly(False)
    trial = closed(hook)
    assert [value(trial, "loss", number) for number in range(3)] == losses
    np.testing.assert_array_equal(value(trial, "first/inputs", 2), X + 2)


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "complex64"])
def test_types_of_numbers_are_kept(tmp_path: Path, dtype: str) -> None:
    hook = make_hook(tmp_path)
    w = tf.Variable(tf.cast([1.0, 2.0], dtype), name="w")
    with hook.wrap_tape(tf.GradientTape()) as tape:
        loss = tf.reduce_sum(w * w)
    gradient = tape.gradient(loss, w)
    trial = closed(hook)
    for name, expected in (("loss", loss), ("gradients/wGrad", gradient), ("weights/w:0", w)):
        saved = value(trial, name)
        assert str(saved.dtype) == dtype
        np.testing.assert_array_equal(saved, expected.numpy())
