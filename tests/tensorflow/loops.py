"""What the tests of tapes share: a small model, its data, and what a plain loop would see."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

import smdebug.tensorflow as smd
from smdebug.trials import create_trial

if TYPE_CHECKING:
    from pathlib import Path

    from smdebug.trials import Trial

keras: Any = tf.keras
KERAS_3 = hasattr(keras, "ops")
EVERY = smd.SaveConfig(save_interval=1)
TRAIN, EVAL = smd.modes.TRAIN, smd.modes.EVAL
RNG = np.random.default_rng(3)
X = RNG.normal(size=(6, 4)).astype(np.float32)
Y = RNG.normal(size=(6, 2)).astype(np.float32)
NAMES = ["first/kernel", "first/bias", "second/kernel", "second/bias"]
Array = np.ndarray[Any, Any]
Record = dict[str, Array]


def make_model(name: str = "net") -> Any:
    """Two layers with the same weights every time."""
    keras.utils.set_random_seed(7)
    return keras.Sequential(
        [
            keras.layers.Input((4,)),
            keras.layers.Dense(5, activation="tanh", name="first"),
            keras.layers.Dense(2, name="second"),
        ],
        name=name,
    )


def make_hook(path: Path, **options: Any) -> smd.KerasHook:
    return smd.KerasHook(path / "run", **{"save_config": EVERY, "save_all": True, **options})


def closed(hook: smd.KerasHook) -> Trial:
    """Closes a hook, which must not have failed, and opens what it wrote."""
    assert hook._pipeline.errors.failure is None
    hook.close()
    assert hook._pipeline.errors.failure is None
    return create_trial(hook.out_dir)


def mse(labels: Any, predictions: Any) -> Any:
    return tf.reduce_mean(tf.square(labels - predictions))


def no_autograph(tape: Any) -> Any:
    return tape


def names_at(trial: Trial, step: int) -> list[str]:
    return sorted(trial.tensor_names(step=step, mode=TRAIN))


def value(trial: Trial, name: str, step: int = 0, mode: Any = TRAIN) -> Array:
    return trial.tensor(name).value(step, mode=mode)


def check_same(
    trial: Trial,
    records: list[Record],
    steps: list[int] | None = None,
    but: tuple[str, ...] = (),
    place: str = "",
) -> None:
    """What was saved is what a plain loop saw, to the bit."""
    steps = list(range(len(records))) if steps is None else steps
    assert trial.steps(mode=TRAIN) == steps
    for number in steps:
        for name, expected in records[number].items():
            if name not in but:
                kind, _, rest = name.partition("/")
                saved = value(trial, f"{kind}/{place}{rest}" if rest else name, number)
                assert saved.dtype == expected.dtype
                np.testing.assert_array_equal(saved, expected, err_msg=f"{name} at {number}")
