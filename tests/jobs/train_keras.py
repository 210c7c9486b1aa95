"""train_keras.py [get_hook|from_json]: a script for SageMaker, in the manner of AWS's examples.

It prints what Keras says at the end of every batch in JSON, and the weights at the end.
"""

import json
import sys

import numpy as np
import tensorflow as tf

import smdebug.tensorflow as smd

keras = tf.keras


def tell(mode, logs):
    print(json.dumps([mode, {name: float(value) for name, value in (logs or {}).items()}]))


class Teller(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        tell("TRAIN", logs)

    def on_test_batch_end(self, batch, logs=None):
        tell("EVAL", logs)

    def on_epoch_end(self, epoch, logs=None):
        tell("epoch", logs)


def main(way):
    keras.utils.set_random_seed(0)
    random = np.random.default_rng(0)
    x = random.normal(size=(64, 6)).astype("float32")
    y = x[:, :3].argmax(axis=1)
    layers = [keras.layers.Dense(8, activation="relu", name="hidden")]
    layers.append(keras.layers.Dense(3, name="scores"))
    model = keras.Sequential([keras.layers.Input((6,)), *layers])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1), loss, metrics=["accuracy"])
    if way == "get_hook":
        hook = smd.get_hook(hook_type="keras", create_if_not_exists=True)
    else:
        hook = smd.KerasHook.create_from_json_file()
    callbacks = [Teller(), hook] if hook else [Teller()]
    model.fit(
        x[:48], y[:48], batch_size=16, epochs=2, validation_data=(x[48:], y[48:]),
        shuffle=False, verbose=0, callbacks=callbacks,
    )  # fmt: skip
    if hook:
        hook.save_scalar("learning_rate", 0.1, sm_metric=True)
    print(json.dumps(["weights", [each.tolist() for each in model.get_weights()]]))


if __name__ == "__main__":
    main(*sys.argv[1:])
