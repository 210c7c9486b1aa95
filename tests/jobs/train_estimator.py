"""train_estimator.py [get_hook|from_json]: a script for SageMaker, in the manner of AWS's examples.

It prints the mean losses of evaluations in JSON, and the weights at the end.
"""

import json
import sys
import tempfile

import numpy as np
import tensorflow as tf

import smdebug.tensorflow as smd

v1 = tf.compat.v1


def data():
    values = np.random.default_rng(0).normal(size=(128, 4)).astype("float32")
    labels = (values[:, :2].sum(axis=1) > 0).astype("int32")
    return tf.data.Dataset.from_tensor_slices((values, labels)).batch(32)


class Teller(v1.train.SessionRunHook):
    def __init__(self, mode):
        self.mode = mode

    def before_run(self, context):
        return v1.train.SessionRunArgs(v1.losses.get_losses()[0])

    def after_run(self, context, values):
        print(json.dumps(["loss", self.mode, float(values.results)]))


def main(way):
    if way == "get_hook":
        hook = smd.get_hook(hook_type="estimator", create_if_not_exists=True)
    else:
        hook = smd.EstimatorHook.create_from_json_file()
    hooks = [hook] if hook else []

    def model(features, labels, mode):
        kernel = v1.get_variable("kernel", [4, 2])
        logits = tf.matmul(features, kernel, name="logits")
        loss = v1.losses.sparse_softmax_cross_entropy(labels, logits)
        optimizer = v1.train.GradientDescentOptimizer(0.1)
        if hook:
            optimizer = hook.wrap_optimizer(optimizer)
        update = optimizer.minimize(loss, v1.train.get_global_step())
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=update)

    with tempfile.TemporaryDirectory() as folder:
        config = tf.estimator.RunConfig(folder, tf_random_seed=0)
        estimator = tf.estimator.Estimator(model, config=config)
        for _ in range(2):
            if hook:
                hook.set_mode(smd.modes.TRAIN)
            estimator.train(data, hooks=[Teller("TRAIN"), *hooks])
            if hook:
                hook.set_mode(smd.modes.EVAL)
            estimator.evaluate(data, hooks=[Teller("EVAL"), *hooks])
        print(json.dumps(["weights", estimator.get_variable_value("kernel").tolist()]))


if __name__ == "__main__":
    main(*sys.argv[1:])
