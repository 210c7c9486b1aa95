"""train_session.py [get_hook|from_json]: a script for SageMaker, with a monitored session.

It prints the losses in JSON as they come, and the weights at the end.
"""

import json
import sys

import numpy as np
import tensorflow as tf

import smdebug.tensorflow as smd

v1 = tf.compat.v1


def main(way):
    v1.disable_eager_execution()
    v1.set_random_seed(0)
    random = np.random.default_rng(0)
    wanted = np.array([[1.0], [-2.0], [0.5]])
    inputs = v1.placeholder(tf.float32, [None, 3], name="inputs")
    targets = v1.placeholder(tf.float32, [None, 1], name="targets")
    start = random.normal(size=(3, 1)).astype("float32")
    weight = v1.get_variable("weight", initializer=start)
    loss = v1.losses.mean_squared_error(targets, tf.matmul(inputs, weight))
    if way == "get_hook":
        hook = smd.get_hook(hook_type="session", create_if_not_exists=True)
    else:
        hook = smd.SessionHook.create_from_json_file()
    optimizer = v1.train.GradientDescentOptimizer(0.1)
    if hook:
        optimizer = hook.wrap_optimizer(optimizer)
        hook.set_mode(smd.modes.TRAIN)
    update = optimizer.minimize(loss)
    with v1.train.MonitoredTrainingSession(hooks=[hook] if hook else []) as session:
        for _ in range(7):
            batch = random.normal(size=(32, 3))
            found, _ = session.run([loss, update], {inputs: batch, targets: batch @ wanted})
            print(json.dumps(["loss", loss.name, float(found)]))
        print(json.dumps(["weights", session.run(weight, {inputs: batch}).tolist()]))


if __name__ == "__main__":
    main(*sys.argv[1:])
