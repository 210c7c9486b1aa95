"""A model of Keras: fit with validation data, evaluate, predict; callbacks by place and by name."""

import hashlib
import sys

import numpy as np
import tensorflow as tf

keras = tf.keras
keras.utils.set_random_seed(1)
model = keras.Sequential(
    [keras.layers.Dense(8, activation="relu"), keras.layers.Dropout(0.2), keras.layers.Dense(3)]
)
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile("adam", loss, metrics=["accuracy"])
inputs = np.random.default_rng(0).normal(size=(64, 6)).astype("float32")
labels = np.arange(64) % 3
stopping = keras.callbacks.EarlyStopping(patience=5)
history = model.fit(inputs, labels, 16, 2, 0, [stopping], validation_data=(inputs, labels))
again = model.fit(inputs, labels, epochs=1, verbose=0)
for value in (*history.history["loss"], *history.history["val_loss"], *again.history["loss"]):
    print("loss", value)
print("evaluation", *model.evaluate(inputs, labels, verbose=0))
predictions = model.predict(inputs, verbose=0)
weights = b"".join(np.asarray(each).tobytes() for each in model.get_weights())
print("weights", hashlib.sha256(weights + predictions.tobytes()).hexdigest())
sys.exit(3)
