"""What the hook costs `fit` of a Keras model in graph mode: with it and without it, in turn."""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from benchmarks.bench import last_line
from benchmarks.figure import FLOOR, TENSORBOARD, WANDB, Figure
from smdebug.config.reduction_config import ReductionConfig
from smdebug.tensorflow import KerasHook

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.bench import Bench

keras: Any = tf.keras

BATCH, STEPS, BLOCK = 64, 300, 50
REPETITIONS = 3
# They trace, and are not counted.
WARM_UP = 50
_FIVE = ReductionConfig(reductions=["min", "max", "mean", "std"], norms=["l2"])
_INSIDE = ["weights", "biases", "gradients"]
LOSSES = "losses and metrics every step"
SETUPS: dict[str, tuple[float, dict[str, Any]]] = {
    # The first step is not counted; no other one saves anything.
    "nothing saved at this step": (
        1.02,
        {"save_config": {"save_interval": 10**6}, "include_collections": [*_INSIDE, "layers"]},
    ),
    LOSSES: (1.05, {"save_config": {"save_interval": 1}}),
    "five reductions of weights and gradients every 10 steps": (
        1.10,
        {
            "save_config": {"save_interval": 10},
            "include_collections": _INSIDE,
            "reduction_config": _FIVE,
        },
    ),
    "all layer outputs, weights and gradients raw every 50 steps": (
        1.15,
        {
            "save_config": {"save_interval": 50},
            "include_collections": [*_INSIDE, "outputs_of_layers"],
        },
    ),
}


class Turns:
    """Lets two trainings run in turn, a block of steps each."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._turn = 0
        self._left: set[int] = set()

    def wait(self, who: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._turn == who or 1 - who in self._left)

    def give(self, who: int) -> None:
        with self._changed:
            self._turn = 1 - who
            self._changed.notify_all()

    def leave(self, who: int) -> None:
        with self._changed:
            self._left.add(who)
            self._changed.notify_all()


class Before(keras.callbacks.Callback):
    """The first callback of a training: waits for its turn and looks at the clock.

    Args:
        turns: who is to run.
        who: the number of the training.
    """

    def __init__(self, turns: Turns, who: int) -> None:
        super().__init__()
        self._turns, self._who = turns, who
        self.began = 0.0

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._turns.wait(self._who)
        self.began = time.perf_counter()


class After(keras.callbacks.Callback):
    """The last callback of a training: looks at the clock again.

    Args:
        before: the first one.
    """

    def __init__(self, before: Before) -> None:
        super().__init__()
        self._before = before
        self.seconds: list[float] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.seconds.append(time.perf_counter() - self._before.began)
        if len(self.seconds) % BLOCK == 0:
            self._before._turns.give(self._before._who)


class Plain(keras.callbacks.Callback):
    """The floor: the losses and metrics of a step as a line of a file.

    Args:
        path: the file.
    """

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path

    def on_train_begin(self, logs: Any = None) -> None:
        self._file = open(self._path, "w", encoding="ascii")  # noqa: PTH123, SIM115

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._file.write(f"{batch} {logs}\n")

    def on_train_end(self, logs: Any = None) -> None:
        self._file.close()


def measure(bench: Bench) -> list[Figure]:
    # Whoever else uses the machine is in the figures: ratios of 1.01 need one at rest.
    print(f"    Keras {tf.__version__} (load {os.getloadavg()[0]:.1f})", flush=True)
    # What a process does once is no part of what tracing costs.
    _model().fit(_data(), steps_per_epoch=2, verbose=0, shuffle=False)
    figures, first = [], []
    steps = BLOCK if bench.quick else STEPS
    for setup, (limit, options) in SETUPS.items():
        ratios: list[float] = []
        for repetition in range(bench.times(REPETITIONS)):
            alone, hooked = _trainings(partial(our_hook, options), repetition, steps)
            ratios += _ratios(alone, hooked)
            if "outputs_of_layers" in options.get("include_collections", ()):
                first.append(hooked[0] - alone[0])
        what = f"Keras fit, CNN of 1 M parameters, batch {BATCH}: {setup}"
        peers = _others(steps) if setup == LOSSES else {}
        figures.append(Figure(what, f"<= {limit:g} x", ratios, "x", limit, digits=4, peers=peers))
    traced = [1000 * each for each in first]
    figures.append(Figure("Keras fit: tracing the second function, once", "", traced, "ms"))
    return figures


def _others(steps: int) -> dict[str, list[float] | str]:
    """What others take for losses and metrics of every step."""
    found: dict[str, list[float] | str] = {}
    for name, observer in (
        (WANDB, wandb_logger), (TENSORBOARD, tensorboard_callback), (FLOOR, by_hand),
    ):  # fmt: skip
        try:
            found[name] = _ratios(*_trainings(observer, 0, steps))
        except Exception as error:
            # One that a library cannot do is a word in the table, not the end of it.
            found[name] = last_line(error)
    return found


@contextlib.contextmanager
def our_hook(options: dict[str, Any], place: str) -> Iterator[Any]:
    hook = KerasHook(f"{place}/run", **options)
    if "outputs_of_layers" in hook.include_collections:
        hook.get_collection("outputs_of_layers").include("/outputs$")
    yield hook
    hook.close()


@contextlib.contextmanager
def wandb_logger(place: str) -> Iterator[Any]:
    import wandb
    from wandb.integration.keras import WandbMetricsLogger

    for variable in ("WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR"):
        os.environ[variable] = place
    os.environ["WANDB_ERROR_REPORTING"] = "false"
    settings = wandb.Settings(silent=True)
    run = wandb.init(project="bench", mode="offline", dir=place, settings=settings)
    yield WandbMetricsLogger(log_freq=1)
    run.finish()


@contextlib.contextmanager
def tensorboard_callback(place: str) -> Iterator[Any]:
    yield keras.callbacks.TensorBoard(place, update_freq=1)


@contextlib.contextmanager
def by_hand(place: str) -> Iterator[Any]:
    yield Plain(f"{place}/lines.txt")


def _ratios(alone: list[float], observed: list[float]) -> list[float]:
    """Block by block, so that what else the machine does for a while spoils one of many."""
    blocks = [slice(first, first + BLOCK) for first in range(WARM_UP, len(alone), BLOCK)]
    return [sum(observed[block]) / sum(alone[block]) for block in blocks]


def _trainings(
    observe: Callable[[str], contextlib.AbstractContextManager[Any]], repetition: int, steps: int
) -> tuple[list[float], list[float]]:
    """Trains alone and observed; returns the seconds of every step of both."""
    turns = Turns()
    found: list[list[float]] = [[], []]
    with tempfile.TemporaryDirectory() as place, observe(place) as observer:
        # Each goes first every other time.
        threads = [
            threading.Thread(target=_train, args=(turns, who, each, found, WARM_UP + steps))
            for who, each in enumerate(([], [observer]) if repetition % 2 else ([observer], []))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return (found[0], found[1]) if repetition % 2 else (found[1], found[0])


def _train(
    turns: Turns, who: int, observers: list[Any], found: list[list[float]], steps: int
) -> None:
    before = Before(turns, who)
    after = After(before)
    model, data = _model(), _data()
    try:
        model.fit(data, steps_per_epoch=steps, verbose=0, shuffle=False,
                  callbacks=[before, *observers, after])  # fmt: skip
    finally:
        found[who] = after.seconds
        turns.leave(who)


def _model() -> Any:
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            layers.Conv2D(32, 3),
            layers.ReLU(),
            layers.MaxPooling2D(),
            layers.Conv2D(64, 3),
            layers.ReLU(),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(600, activation="relu"),
            layers.Dense(10),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, metrics=["accuracy"])
    return model


def _data() -> Any:
    random = np.random.default_rng(0)
    images = random.standard_normal((BATCH * 16, 28, 28, 1)).astype(np.float32)
    labels = random.integers(0, 10, BATCH * 16)
    data = tf.data.Dataset.from_tensor_slices((images, labels)).batch(BATCH).cache()
    return data.repeat()
