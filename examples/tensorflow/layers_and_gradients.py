"""Twelve layers train with `fit`, in graph mode: what comes out of them, and what comes back.

python examples/tensorflow/layers_and_gradients.py [DIRECTORY]
"""

import sys
import tempfile

import numpy as np
import tensorflow as tf
from tensorflow import keras

import smdebug.tensorflow as smd

LAYERS = [f"layer_{number:02}" for number in range(12)]


class Deep(keras.Model):
    """A network that nobody has built to be looked into."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = [keras.layers.Dense(16, activation="sigmoid", name=name) for name in LAYERS]
        self.last = keras.layers.Dense(1, name="last")

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        for layer in self.hidden:
            inputs = layer(inputs)
        return self.last(inputs)


def train(directory: str) -> None:
    keras.utils.set_random_seed(0)
    values = np.random.default_rng(0).normal(size=(640, 8)).astype("float32")
    model = Deep()
    model.compile("sgd", "mse")
    hook = smd.KerasHook(
        directory,
        include_collections=["layers", "gradients"],
        save_config=smd.SaveConfig(save_interval=10),
        reduction_config=smd.ReductionConfig(reductions=["std"], norms=["l2"]),
    )
    hook.get_collection("layers").include("^layer_")
    model.fit(values, values.sum(axis=1), epochs=2, verbose=0, callbacks=[hook])
    hook.close()


if __name__ == "__main__":
    where = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="tornasole-")
    train(where)
    trial = smd.create_trial(where)
    print(trial)
    print("at step 30  spread of outputs  norm of the gradient")
    for layer in LAYERS:
        spread = trial.tensor(f"{layer}/outputs").reduction_value(30, "std")
        norm = trial.tensor(f"gradients/{layer}/kernelGrad").reduction_value(30, "l2")
        bar = "#" * max(0, round(2 * (np.log10(norm) + 10)))
        print(f"{layer:10}  {spread:17.5f}  {norm:10.1e}  {bar}")
