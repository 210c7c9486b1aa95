"""A program of TensorFlow 1: a graph, placeholders and a monitored session.

python examples/tensorflow/session.py [DIRECTORY]
"""

import sys
import tempfile

import numpy as np
import tensorflow as tf

import smdebug.tensorflow as smd

v1 = tf.compat.v1


def train(directory: str) -> None:
    random = np.random.default_rng(0)
    wanted = np.array([[1.0], [-2.0], [0.5]])
    with tf.Graph().as_default():
        v1.set_random_seed(0)
        inputs = v1.placeholder(tf.float32, [None, 3], name="inputs")
        targets = v1.placeholder(tf.float32, [None, 1], name="targets")
        weight = v1.get_variable("weight", [3, 1])
        scores = tf.matmul(inputs, weight, name="scores")
        loss = v1.losses.mean_squared_error(targets, scores)
        hook = smd.SessionHook(
            directory,
            include_collections=["weights", "gradients"],
            include_regex="^scores:0$",
            save_config=smd.SaveConfig(save_interval=10),
        )
        # So that the hook sees its gradients.
        optimizer = hook.wrap_optimizer(v1.train.GradientDescentOptimizer(0.1))
        update = optimizer.minimize(loss)
        with v1.train.MonitoredTrainingSession(hooks=[hook]) as session:
            for _ in range(41):
                batch = random.normal(size=(32, 3))
                session.run(update, {inputs: batch, targets: batch @ wanted})
    hook.close()


if __name__ == "__main__":
    where = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="tornasole-")
    train(where)
    trial = smd.create_trial(where)
    print(trial, trial.tensor_names())
    (loss,) = trial.tensor_names(collection="losses")
    (gradient,) = trial.tensor_names(collection="gradients")
    for step in trial.steps():
        weight = trial.tensor("weight:0").value(step).ravel()
        norm = trial.tensor(gradient).reduction_value(step, "l2")
        value = trial.tensor(loss).value(step)
        print(f"step {step:2}: loss {value:.4f}, gradient {norm:.4f}, weight", weight.round(3))
