"""The hook in an Estimator, which the last TensorFlow that has one trains."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf

import smdebug.tensorflow as smd
from smdebug.tensorflow.session import EstimatorHook

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(
    not hasattr(tf, "estimator"), reason="this TensorFlow has no Estimator"
)

v1 = tf.compat.v1
EVERY = smd.SaveConfig(save_interval=1)
RNG = np.random.default_rng(1)
IMAGES = RNG.normal(size=(20, 4)).astype(np.float32)
LABELS = (IMAGES.sum(1) > 0).astype(np.int32)


def data(repeat: int = 1) -> Any:
    made = tf.data.Dataset.from_tensor_slices(({"x": IMAGES}, LABELS))
    return made.shuffle(20, seed=2).batch(5).repeat(repeat)


def estimator(folder: Path, hook: EstimatorHook | None, checkpoints: int | None = None) -> Any:
    def model(features: Any, labels: Any, mode: Any) -> Any:
        w1 = v1.get_variable("dense/kernel", [4, 6])
        bias = v1.get_variable("dense/bias", [6])
        hidden = tf.nn.relu(tf.matmul(features["x"], w1) + bias, name="relu")
        if mode == "train":
            hidden = tf.nn.dropout(hidden, rate=0.2)
        logits = tf.matmul(hidden, v1.get_variable("out/kernel", [6, 2]), name="logits")
        classes = tf.argmax(logits, 1)
        if mode == "infer":
            return tf.estimator.EstimatorSpec(mode, predictions={"classes": classes})
        loss = v1.losses.sparse_softmax_cross_entropy(labels, logits)
        accuracy = v1.metrics.accuracy(labels, classes, name="accuracy")
        v1.summary.scalar("accuracy", accuracy[1])
        optimizer = v1.train.AdamOptimizer(0.05)
        if hook is not None:
            hook.add_to_collection("losses", loss)
            optimizer = hook.wrap_optimizer(optimizer)
        train = optimizer.minimize(loss, v1.train.get_global_step())
        return tf.estimator.EstimatorSpec(
            mode, loss=loss, train_op=train, eval_metric_ops={"accuracy": accuracy}
        )

    config = tf.estimator.RunConfig(
        str(folder), tf_random_seed=4, save_summary_steps=3, log_step_count_steps=4,
        save_checkpoints_secs=None if checkpoints else 600, save_checkpoints_steps=checkpoints,
    )  # fmt: skip
    with warnings.catch_warnings():
        # Of Estimator itself, about its own name.
        warnings.simplefilter("ignore")
        return tf.estimator.Estimator(model, str(folder), config)


def weights(made: Any) -> dict[str, Any]:
    return {name: made.get_variable_value(name) for name in made.get_variable_names()}


def test_train_evaluate_predict_and_train_again(tmp_path: Path) -> None:
    hook = EstimatorHook(
        tmp_path / "run", save_config=EVERY, include_collections=["weights", "biases", "gradients"]
    )
    made = estimator(tmp_path / "model", hook)
    hook.set_mode(smd.modes.TRAIN)
    made.train(lambda: data(), hooks=[hook])
    hook.set_mode(smd.modes.EVAL)
    result = made.evaluate(lambda: data(), hooks=[hook])
    hook.set_mode(smd.modes.PREDICT)
    predicted = list(made.predict(lambda: data(), hooks=[hook]))
    hook.set_mode(smd.modes.TRAIN)
    made.train(lambda: data(), hooks=[hook], steps=3)
    hook.close()
    assert len(predicted) == 20
    trial = smd.create_trial(hook.out_dir)
    assert trial.steps(mode=smd.modes.TRAIN) == [0, 1, 2, 3, 4, 5, 6]
    assert trial.steps(mode=smd.modes.EVAL) == [0, 1, 2, 3]
    assert trial.steps(mode=smd.modes.PREDICT) == [0, 1, 2, 3]
    assert trial.steps() == list(range(15))
    (loss,) = trial.tensor_names(collection="losses")
    losses = [trial.tensor(loss).value(step, mode=smd.modes.EVAL) for step in range(4)]
    assert np.mean(losses) == pytest.approx(result["loss"], rel=1e-5)
    assert trial.tensor_names(collection="weights") == ["dense/kernel:0", "out/kernel:0"]
    assert trial.tensor_names(collection="biases") == ["dense/bias:0"]
    assert len(trial.tensor_names(collection="gradients")) == 3
    # What a checkpoint at the end holds is what was saved last.
    last = trial.tensor("dense/kernel:0").value(6, mode=smd.modes.TRAIN)
    assert np.array_equal(last, made.get_variable_value("dense/kernel"))


@pytest.mark.parametrize("interval", [1, 3])
def test_training_is_the_same_to_the_last_bit(tmp_path: Path, interval: int) -> None:
    plain = estimator(tmp_path / "plain", None)
    plain.train(lambda: data(3))
    hook = EstimatorHook(
        tmp_path / "run", save_config=smd.SaveConfig(save_interval=interval), save_all=True
    )
    watched = estimator(tmp_path / "watched", hook)
    watched.train(lambda: data(3), hooks=[hook])
    hook.close()
    expected, values = weights(plain), weights(watched)
    assert expected.keys() == values.keys()
    for name, value in expected.items():
        assert np.array_equal(value, values[name]), name
    trial = smd.create_trial(hook.out_dir)
    assert trial.steps() == list(range(0, 12, interval))
    assert "relu:0" in trial.tensor_names()


def test_train_and_evaluate(tmp_path: Path) -> None:
    hook = EstimatorHook(tmp_path / "run", save_config=EVERY)
    made = estimator(tmp_path / "model", hook)
    tf.estimator.train_and_evaluate(
        made,
        tf.estimator.TrainSpec(lambda: data(2), hooks=[hook], max_steps=6),
        tf.estimator.EvalSpec(lambda: data(), hooks=[hook], steps=2, throttle_secs=0),
    )
    hook.close()
    assert smd.create_trial(hook.out_dir).steps() == list(range(8))


def test_evaluation_in_the_middle_of_a_training_step(tmp_path: Path) -> None:
    hook = EstimatorHook(
        tmp_path / "run", save_config=EVERY, include_collections=["weights", "gradients"]
    )
    made = estimator(tmp_path / "model", hook, checkpoints=2)
    tf.estimator.train_and_evaluate(
        made,
        tf.estimator.TrainSpec(lambda: data(2), hooks=[hook], max_steps=6),
        tf.estimator.EvalSpec(lambda: data(), hooks=[hook], steps=2, throttle_secs=0),
    )
    hook.close()
    trial = smd.create_trial(hook.out_dir)
    # Three evaluations run before the session of the training tells that its step has ended.
    assert trial.steps() == list(range(12))
    for name in ("out/kernel:0", *trial.tensor_names(collection="gradients")):
        assert trial.tensor(name).steps() == list(range(12)), name


def test_a_rule_ends_the_training(tmp_path: Path) -> None:
    def model(features: Any, labels: Any, mode: Any) -> Any:
        weight = v1.get_variable("w", [4, 1])
        loss = tf.reduce_mean(tf.square(tf.matmul(features["x"], weight)))
        step = v1.train.get_global_step()
        train = v1.train.GradientDescentOptimizer(0.1).minimize(loss, step)
        # Not the loss itself, which Estimator watches, too.
        hook.add_to_collection("losses", tf.math.log(5.0 - tf.cast(step, tf.float32), name="log"))
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train)

    hook = EstimatorHook(
        tmp_path / "run", save_config=EVERY, rules=["NonFinite"], on_finding="stop",
        flush_seconds=0.01,
    )  # fmt: skip
    config = tf.estimator.RunConfig(save_summary_steps=None, log_step_count_steps=None)
    made = tf.estimator.Estimator(model, str(tmp_path / "model"), config)
    made.train(lambda: data(1_000_000), hooks=[hook])
    assert hook.closed
    assert hook.findings()[0].rule == "NonFinite"
