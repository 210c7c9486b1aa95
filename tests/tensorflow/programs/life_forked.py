"""Makes a hook, forks before TensorFlow has begun, and trains in both processes."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import smdebug.tensorflow as smd

keras: Any = tf.keras
place = Path(sys.argv[1])
hook = smd.KerasHook(
    place / "run", include_collections=["gradients"], save_config=smd.SaveConfig(save_interval=1)
)
child = os.fork()
if child == 0:
    logging.basicConfig(filename=place / "child.txt")
model = keras.Sequential([keras.layers.Dense(1, name="dense")])
model.compile("sgd", "mse")
x = np.ones((3, 2), np.float32)
model.fit(x, x[:, :1], batch_size=1, verbose=0, callbacks=[hook])
hook.close()
if child:
    _, status = os.waitpid(child, 0)
    sys.exit(os.waitstatus_to_exitcode(status))
