"""Trains a network with `fit`, saves weights and gradients, and looks at them.

python examples/tensorflow/keras_fit.py [DIRECTORY]
"""

import sys
import tempfile

import numpy as np
from tensorflow import keras

import smdebug.tensorflow as smd


def train(directory: str) -> None:
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Dense(32, activation="tanh", name=name) for name in ("first", "second")]
    model = keras.Sequential([keras.Input((2,)), *layers, keras.layers.Dense(2, name="scores")])
    loss_function = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss_function, metrics=["accuracy"])
    hook = smd.KerasHook(
        directory,
        include_collections=["weights", "gradients"],
        save_config=smd.SaveConfig(save_interval=20),
        reduction_config=smd.ReductionConfig(norms=["l2"], abs_reductions=["mean"]),
    )
    points = np.random.default_rng(0).normal(size=(1600, 2)).astype("float32")
    outside = np.linalg.norm(points, axis=1) > 1.2
    model.fit(points, outside, epochs=6, verbose=0, validation_split=0.2, callbacks=[hook])
    hook.close()
    print(hook.stats())


if __name__ == "__main__":
    where = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="tornasole-")
    train(where)
    trial = smd.create_trial(where)
    print(trial)
    print("epoch  val_loss  val_accuracy")
    losses, accuracies = (trial.tensor(f"val_{name}").series()[1] for name in ("loss", "accuracy"))
    for epoch, (loss, accuracy) in enumerate(zip(losses, accuracies, strict=True)):
        print(f"{epoch:5}  {loss:8.4f}  {accuracy:12.4f}")
    for name in trial.tensor_names(regex="kernel"):
        steps, norms = trial.tensor(name).series("l2", mode=smd.modes.TRAIN)
        print(f"{name:32}", " ".join(f"{norm:6.3f}" for norm in norms[::2]))
