"""Two devices train one model with MirroredStrategy; each is a worker in the run.

The devices are two halves of the CPU here; with GPUs leave out the two lines that make them.

python examples/tensorflow/mirrored.py [DIRECTORY]
"""

import sys
import tempfile

import numpy as np
import tensorflow as tf
from tensorflow import keras

import smdebug.tensorflow as smd


def train(directory: str) -> None:
    halves = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], halves)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    keras.utils.set_random_seed(0)
    with strategy.scope():
        layers = [keras.layers.Dense(16, activation="tanh", name="hidden")]
        model = keras.Sequential([keras.Input((4,)), *layers, keras.layers.Dense(1, name="last")])
        model.compile(keras.optimizers.SGD(0.1), "mse")
    hook = smd.KerasHook(
        directory,
        include_collections=["inputs", "weights", "gradients"],
        include_workers="all",
        save_config=smd.SaveConfig(save_interval=20),
        reduction_config=smd.ReductionConfig(reductions=["std"], norms=["l2"]),
    )
    values = np.random.default_rng(0).normal(size=(3232, 4)).astype("float32")
    # Of every 64 rows each device gets 32; those of the second one are wider.
    values.reshape(-1, 32, 4)[1::2] *= 2
    model.fit(values, values.sum(axis=1), 64, verbose=0, shuffle=False, callbacks=[hook])
    hook.close()


if __name__ == "__main__":
    where = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="tornasole-")
    train(where)
    trial = smd.create_trial(where)
    print(trial)
    names = ("inputs", "gradients/hidden/kernelGrad", "hidden/weights/hidden/kernel:0")
    for name, reduction in zip(names, ("std", "l2", "l2"), strict=True):
        print(f"{reduction} of {name}")
        for worker in trial.workers():
            _, found = trial.tensor(name).series(reduction, worker=worker)
            print(f"  {worker}:", " ".join(f"{value:7.3f}" for value in found))
