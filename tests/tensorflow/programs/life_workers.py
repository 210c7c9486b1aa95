"""Trains on data that other processes make, which Keras forks while the hook is at work."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import smdebug.tensorflow as smd

keras: Any = tf.keras


def data() -> Any:
    """The data of either Keras."""
    kind = getattr(keras.utils, "PyDataset", None) or keras.utils.Sequence

    class Data(kind):  # type: ignore[misc, valid-type]
        def __len__(self) -> int:
            return 4

        def __getitem__(self, place: int) -> Any:
            x = np.full((2, 2), place, np.float32)
            return x, x[:, :1]

    return Data


if __name__ == "__main__":
    run = Path(sys.argv[1]) / "run"
    hook = smd.KerasHook(
        run, include_collections=["gradients", "inputs"],
        save_config=smd.SaveConfig(save_interval=1), on_error="raise",
    )  # fmt: skip
    model = keras.Sequential([keras.layers.Dense(1, name="dense")])
    model.compile("sgd", "mse")
    how: dict[str, Any] = {"workers": 2, "use_multiprocessing": True}
    options = {"verbose": 0, "callbacks": [hook], "shuffle": False}
    if hasattr(keras.utils, "PyDataset"):
        model.fit(data()(**how), **options)
    else:
        model.fit(data()(), **options, **how)
    hook.close()
