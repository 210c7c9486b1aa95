"""Trains and ends without closing the hook: by itself, or in the middle of a fit."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import smdebug.tensorflow as smd

keras: Any = tf.keras
place, how = Path(sys.argv[1]), sys.argv[2]


class Ending(keras.callbacks.Callback):
    """Ends the script at the fifth batch."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch == 4 and how == "interrupt":
            raise KeyboardInterrupt


hook = smd.KerasHook(
    place / "run", include_collections=["gradients"], save_config=smd.SaveConfig(save_interval=1)
)
model = keras.Sequential([keras.layers.Dense(1, name="dense")])
model.compile("sgd", "mse")
x = np.ones((6, 2), np.float32)
model.fit(x, x[:, :1], batch_size=1, verbose=0, callbacks=[hook, Ending()])
