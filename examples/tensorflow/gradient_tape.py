"""A loop of one's own: a tape inside of a `tf.function`, and an evaluation after each epoch.

python examples/tensorflow/gradient_tape.py [DIRECTORY]
"""

import sys
import tempfile

import numpy as np
import tensorflow as tf
from tensorflow import keras

import smdebug.tensorflow as smd


def train(directory: str) -> None:
    keras.utils.set_random_seed(0)
    values = np.random.default_rng(0).normal(size=(1280, 4)).astype("float32")
    targets = np.sin(2 * values).prod(axis=1, keepdims=True)
    batches = tf.data.Dataset.from_tensor_slices((values[:1024], targets[:1024])).batch(64)
    layers = [keras.layers.Dense(32, activation="tanh", name=name) for name in ("first", "second")]
    model = keras.Sequential([keras.Input((4,)), *layers, keras.layers.Dense(1, name="last")])
    optimizer = keras.optimizers.Adam(0.01)
    optimizer.build(model.trainable_variables)
    hook = smd.KerasHook(
        directory,
        include_collections=["gradients", "layers"],
        save_config={"train": {"save_interval": 16}, "eval": {"save_interval": 1}},
        reduction_config=smd.ReductionConfig(reductions=["std"], norms=["l2"]),
    )
    hook.register_model(model)

    @tf.function  # traced once: what is to be saved is known by then
    def step(inputs: tf.Tensor, outputs: tf.Tensor) -> None:
        with hook.wrap_tape(tf.GradientTape()) as tape:
            loss = tf.reduce_mean(tf.square(model(inputs, training=True) - outputs))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    for _ in range(6):
        for inputs, outputs in batches:
            step(inputs, outputs)
        hook.set_mode(smd.modes.EVAL)
        hook.save_scalar("error", tf.reduce_mean(tf.abs(model(values[1024:]) - targets[1024:])))
    hook.close()


if __name__ == "__main__":
    where = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="tornasole-")
    train(where)
    trial = smd.create_trial(where)
    print(trial)
    steps, losses = trial.tensor("loss").series(mode=smd.modes.TRAIN)
    _, norms = trial.tensor("gradients/first/kernelGrad").series("l2", mode=smd.modes.TRAIN)
    _, errors = trial.tensor("scalar/error").series(mode=smd.modes.EVAL)
    for row in zip(steps, losses, norms, errors, strict=True):
        print("step {:2}: loss {:.4f}, gradient {:.4f}; error after the epoch {:.4f}".format(*row))
