"""Keras 3 computes with PyTorch; the hook is the same.

python examples/tensorflow/keras_torch.py [DIRECTORY]
"""

import os
import sys
import tempfile

os.environ["KERAS_BACKEND"] = "torch"  # before Keras is imported

import keras
import numpy as np

import smdebug.tensorflow as smd


def train(directory: str) -> None:
    keras.utils.set_random_seed(0)
    layers = [
        keras.Input((8, 8, 1)),
        keras.layers.Conv2D(8, 3, activation="relu", name="edges"),
        keras.layers.GlobalMaxPooling2D(name="largest"),
        keras.layers.Dense(2, name="scores"),
    ]
    model = keras.Sequential(layers)
    loss_function = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss_function, metrics=["accuracy"])
    # Bars, upright or lying, in noise.
    random = np.random.default_rng(0)
    lying, images = random.integers(2, size=640), random.normal(0, 0.3, size=(640, 8, 8, 1))
    for image, is_lying, place in zip(images, lying, random.integers(8, size=640), strict=True):
        image[(place, slice(None)) if is_lying else (slice(None), place)] += 1
    hook = smd.KerasHook(
        directory,
        include_collections=["weights", "gradients", "layers"],
        save_config=smd.SaveConfig(save_interval=20),
    )
    model.fit(images, lying, epochs=5, verbose=0, callbacks=[hook])
    hook.close()


if __name__ == "__main__":
    where = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="tornasole-")
    train(where)
    trial = smd.create_trial(where)
    print(trial, "computed by", keras.backend.backend())
    for name in ("loss", "accuracy"):
        _, found = trial.tensor(name).series()
        print(f"{name:8}", " ".join(f"{value:.3f}" for value in found))
    for name in trial.tensor_names(regex="kernel|edges/outputs"):
        _, norms = trial.tensor(name).series("l2")
        print(f"{name:30} {trial.tensor(name).shape(0)!s:15}", *(f"{norm:.2f}" for norm in norms))
