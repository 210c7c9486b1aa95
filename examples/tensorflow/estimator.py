"""An Estimator trains and evaluates; for TensorFlow up to 2.15, which has it.

python examples/tensorflow/estimator.py [DIRECTORY]
"""

import sys
import tempfile
from typing import Any

import numpy as np
import tensorflow as tf

import smdebug.tensorflow as smd

v1 = tf.compat.v1


def data() -> Any:
    values = np.random.default_rng(0).normal(size=(640, 4)).astype("float32")
    labels = (values[:, :2].sum(axis=1) > 0).astype("int32")
    return tf.data.Dataset.from_tensor_slices((values, labels)).batch(32)


def train(directory: str, model_directory: str) -> None:
    hook = smd.EstimatorHook(
        directory,
        include_collections=["weights", "gradients"],
        save_config={"train": {"save_interval": 10}, "eval": {"save_interval": 5}},
    )

    def model(features: Any, labels: Any, mode: str) -> Any:
        kernel = v1.get_variable("kernel", [4, 2])
        logits = tf.matmul(features, kernel, name="logits")
        loss = v1.losses.sparse_softmax_cross_entropy(labels, logits)
        # So that the hook sees its gradients.
        optimizer = hook.wrap_optimizer(v1.train.AdamOptimizer(0.05))
        update = optimizer.minimize(loss, v1.train.get_global_step())
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=update)

    config = tf.estimator.RunConfig(model_directory, tf_random_seed=0)
    estimator = tf.estimator.Estimator(model, config=config)
    for _ in range(3):
        hook.set_mode(smd.modes.TRAIN)
        estimator.train(data, hooks=[hook])
        hook.set_mode(smd.modes.EVAL)
        estimator.evaluate(data, hooks=[hook])
    hook.close()


if __name__ == "__main__":
    where = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="tornasole-")
    with tempfile.TemporaryDirectory() as folder:
        train(where, folder)
    trial = smd.create_trial(where)
    print(trial, trial.tensor_names())
    (loss,) = trial.tensor_names(collection="losses")
    for mode in (smd.modes.TRAIN, smd.modes.EVAL):
        steps, losses = trial.tensor(loss).series(mode=mode)
        print(mode.name, *(f"{step}: {each:.3f}" for step, each in zip(steps, losses, strict=True)))
