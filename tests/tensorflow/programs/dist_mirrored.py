"""Trains on two virtual devices of the host, one scenario after the other.

    python dist_mirrored.py <folder> <scenario> [<scenario> ...]

Each scenario has a folder of its name: `run` is what the hook saved, `truth.pickle` what Keras and
computations of our own say.
"""

from __future__ import annotations

import functools
import logging
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from tensorflow.python.ops import gen_dataset_ops
from tests.tensorflow.programs.dist_witness import (
    EVAL,
    PREDICT,
    TRAIN,
    Witness,
    parts_of,
    rows,
    seen_inside,
    write,
)

import smdebug.tensorflow as smd

if TYPE_CHECKING:
    from collections.abc import Callable

keras: Any = tf.keras
BATCH = 8
EVERY = smd.SaveConfig(save_interval=1)


class Scenario:
    """A training run with or without the hook."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.hooks: list[Any] = []
        self.witness = Witness()
        self.truth: dict[str, Any] = {}

    def hook(self, **options: Any) -> Any:
        given = {"save_config": EVERY, "save_all": True, "on_error": "raise"}
        hook = smd.KerasHook(self.folder / "run", **{**given, **options})
        self.hooks.append(hook)
        return hook

    @property
    def callbacks(self) -> list[Any]:
        return [*self.hooks, self.witness]

    def finish(self, model: Any, **more: Any) -> None:
        for hook in self.hooks:
            hook.close()
        weights = [] if model is None else model.get_weights()
        truth = {"final": weights, "steps": self.witness.steps, "epochs": self.witness.epochs}
        write(self.folder, {**self.truth, **truth, **more})


@functools.cache
def devices(strategy: str = "mirrored") -> Any:
    """A strategy; a process may have only one of a kind, or what their devices exchange mixes."""
    if strategy == "one":
        return tf.distribute.OneDeviceStrategy("/cpu:1")
    if strategy == "central":
        return tf.distribute.experimental.CentralStorageStrategy(["/cpu:0", "/cpu:1"])
    return tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])


def dense(units: int, name: str, activation: str | None = None) -> Any:
    return keras.layers.Dense(units, activation, name=name)


def normed() -> Any:
    layers = [dense(3, "first", "tanh"), keras.layers.BatchNormalization(name="norm")]
    return keras.Sequential([keras.Input((4,)), *layers, dense(2, "last")])


def plain() -> Any:
    return keras.Sequential([keras.Input((4,)), dense(3, "first", "tanh"), dense(2, "last")])


def dropping() -> Any:
    layers = [dense(8, "first", "tanh"), keras.layers.Dropout(0.4, name="drop")]
    return keras.Sequential([keras.Input((4,)), *layers, dense(2, "last")])


def embedding() -> Any:
    layers = [keras.layers.Embedding(11, 3, name="words"), keras.layers.Flatten(name="flat")]
    return keras.Sequential([keras.Input((4,), dtype="int32"), *layers, dense(2, "last")])


class Own(keras.Model):
    """Makes its variables at the first step, and computes the step itself."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = dense(3, "first", "tanh"), dense(2, "last")

    def call(self, x: Any, training: bool = False) -> Any:
        return self.last(self.first(x))

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(self(x, training=True) - y)) / BATCH
        slopes = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(slopes, self.trainable_variables, strict=True))
        return {"my_loss": loss}


def model_of(make: Callable[[], Any], strategy: Any, optimizer: Any = None, **more: Any) -> Any:
    keras.utils.set_random_seed(5)
    with strategy.scope():
        model = make()
        model.compile((optimizer or keras.optimizers.SGD)(0.05), "mse", **more)
    return model


def add_inside(
    run: Scenario, make: Callable[[], Any], data: dict[str, tuple[Any, Any]], replicas: int = 2
) -> None:
    """Return the tensors inside every step that the witness saw, for each replica."""
    twin = make()
    for step in run.witness.steps:
        x, y = (each[BATCH * step["batch"] :][:BATCH] for each in data[step["mode"]])
        parts = zip(step["apart"], parts_of(x, replicas), parts_of(y, replicas), strict=True)
        step["inside"] = [
            seen_inside(twin, weights, x_part, y_part, step["mode"], replicas)
            for weights, x_part, y_part in parts
        ]


def everything(run: Scenario, strategy: Any, make: Callable[[], Any] = normed) -> None:
    """Trains with validation, evaluates and predicts; the last batches are not full."""
    x, y = rows(21)
    model = model_of(make, strategy, metrics=["mae"])
    history = model.fit(
        x, y, batch_size=BATCH, epochs=2, shuffle=False, verbose=0, callbacks=run.callbacks,
        validation_data=(x[:13], y[:13]), validation_batch_size=BATCH,
    )  # fmt: skip
    score = model.evaluate(x[:13], y[:13], batch_size=BATCH, verbose=0, callbacks=run.callbacks)
    predicted = model.predict(x, batch_size=BATCH, verbose=0, callbacks=run.callbacks)
    if run.hooks:
        replicas = strategy.num_replicas_in_sync
        data = {TRAIN: (x, y), EVAL: (x[:13], y[:13]), PREDICT: (x, y)}
        add_inside(run, make, data, replicas)
    run.finish(model, history=history.history, score=score, predicted=predicted)


def bare(run: Scenario) -> None:
    everything(run, devices())


def first_replica(run: Scenario) -> None:
    run.hook()
    everything(run, devices())


def all_replicas(run: Scenario) -> None:
    run.hook(include_workers="all")
    everything(run, devices())


def one_device(run: Scenario) -> None:
    run.hook(include_workers="all")
    everything(run, devices("one"))


def one_device_bare(run: Scenario) -> None:
    everything(run, devices("one"))


# ---- a replica that gets nothing


def fit(run: Scenario, model: Any, x: Any, y: Any, **more: Any) -> None:
    given = {"batch_size": BATCH, "shuffle": False, "verbose": 0, "callbacks": run.callbacks}
    history = model.fit(x, y, **{**given, **more})
    run.truth["history"] = history.history


def idle(run: Scenario) -> None:
    x, y = rows(17)
    model = model_of(plain, devices())
    fit(run, model, x, y)
    if run.hooks:
        add_inside(run, plain, {TRAIN: (x, y)})
    run.finish(model)


def idle_bare(run: Scenario) -> None:
    idle(run)


def idle_all(run: Scenario) -> None:
    run.hook(
        include_workers="all",
        reduction_config=smd.ReductionConfig(
            ["min", "max", "mean", "median", "nans"], norms=["l2"], save_raw_tensor=True
        ),
    )
    idle(run)


# ---- kinds of models and training


def dropout(run: Scenario) -> None:
    x, y = rows(40)
    model = model_of(dropping, devices(), keras.optimizers.Adam)
    fit(run, model, x, y, epochs=2)
    run.finish(model)


def dropout_bare(run: Scenario) -> None:
    dropout(run)


def dropout_all(run: Scenario) -> None:
    hook = run.hook(include_workers="all", save_config=smd.SaveConfig(save_interval=3))
    dropout(run)
    assert hook.closed


def words(run: Scenario) -> None:
    """The gradient of an embedding has only some rows."""
    _, y = rows(16)
    x = np.arange(64, dtype=np.int32).reshape(16, 4) % 11
    model = model_of(embedding, devices())
    fit(run, model, x, y)
    if run.hooks:
        add_inside(run, embedding, {TRAIN: (x, y)})
    run.finish(model)


def words_bare(run: Scenario) -> None:
    words(run)


def words_all(run: Scenario) -> None:
    run.hook(include_workers="all", format="v1")
    words(run)


def own(run: Scenario) -> None:
    x, y = rows(24)
    model = model_of(Own, devices())
    fit(run, model, x, y)
    run.finish(model)


def own_bare(run: Scenario) -> None:
    own(run)


def own_all(run: Scenario) -> None:
    run.hook(include_workers="all")
    own(run)


def together(run: Scenario) -> None:
    """Two batches at once, and an odd number of them."""
    x, y = rows(40)
    model = model_of(plain, devices(), steps_per_execution=2)
    fit(run, model, x, y)
    run.finish(model)


def together_bare(run: Scenario) -> None:
    together(run)


def together_all(run: Scenario) -> None:
    run.hook(include_workers="all")
    together(run)


def eagerly(run: Scenario) -> None:
    x, y = rows(13)
    model = model_of(plain, devices(), run_eagerly=True)
    fit(run, model, x, y)
    if run.hooks:
        add_inside(run, plain, {TRAIN: (x, y)})
    run.finish(model)


def eagerly_bare(run: Scenario) -> None:
    eagerly(run)


def eagerly_all(run: Scenario) -> None:
    run.hook(include_workers="all")
    eagerly(run)


def central(run: Scenario) -> None:
    x, y = rows(16)
    model = model_of(plain, devices("central"))
    fit(run, model, x, y)
    run.finish(model)


def central_bare(run: Scenario) -> None:
    central(run)


def central_all(run: Scenario) -> None:
    run.hook(include_workers="all")
    central(run)


# ---- a loop of one's own


def loop(run: Scenario, hook: Any) -> None:
    x, y = rows(32)
    strategy = devices()
    model = model_of(plain, strategy)
    if hook is not None:
        hook.register_model(model)
    optimizer = model.optimizer
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH)
    data = strategy.experimental_distribute_dataset(data)

    def replica_step(batch: Any) -> Any:
        x, y = batch
        tape = tf.GradientTape()
        with tape if hook is None else hook.wrap_tape(tape) as tape:
            loss = tf.reduce_sum(tf.square(model(x, training=True) - y)) / BATCH
        slopes = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(slopes, model.trainable_variables, strict=True))
        return loss

    @tf.function
    def step(batch: Any) -> Any:
        losses = strategy.run(replica_step, args=(batch,))
        return strategy.experimental_local_results(losses)

    twin = plain()
    steps = []
    for number, batch in enumerate(data):
        before = model.get_weights()
        losses = [float(each) for each in step(batch)]
        part = slice(BATCH * number, BATCH * number + BATCH // 2)
        twin.set_weights(before)
        with tf.GradientTape() as tape:
            own_loss = tf.reduce_sum(tf.square(twin(x[part]) - y[part])) / BATCH
        slopes = [np.array(each) for each in tape.gradient(own_loss, twin.trainable_variables)]
        steps.append({"before": before, "losses": losses, "slopes": slopes})
    run.finish(model, loop=steps)


def loop_bare(run: Scenario) -> None:
    loop(run, None)


def loop_one(run: Scenario) -> None:
    loop(run, run.hook())


def loop_all(run: Scenario) -> None:
    loop(run, run.hook(include_workers="all"))


# ---- a job that is stopped


class Terminate(keras.callbacks.Callback):
    """Stop the job in the middle, as a scheduler would."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch == 2:
            signal.raise_signal(signal.SIGTERM)


def stopped(run: Scenario) -> None:
    """The first time it is stopped; started again, it comes to its end."""
    again = (run.folder / "run").exists()
    run.hook(include_workers="all")
    x, y = rows(48)
    model = model_of(plain, devices())
    fit(run, model, x, y, callbacks=[*run.callbacks, *([] if again else [Terminate()])])
    run.finish(model)


def keep_datasets() -> None:
    """Keep every dataset of a distributed iterator until the process ends.

    When such an iterator is dropped, TensorFlow frees its dataset before it stops the thread that
    reads it. Keras 3 drops one after the first batch, in every `fit`, `evaluate` and `predict`.
    TensorFlow 2.21 without a hook, five processes on two cores, each evaluating a model for 40
    seconds: a segmentation fault in 2 of 5 under OneDeviceStrategy on the second device (4 of 5 on
    the first), in 1 of 5 under MirroredStrategy. With the datasets kept: 0 of 5.
    """
    original, kept = gen_dataset_ops.multi_device_iterator_init, []

    def keeping(dataset: Any, *args: Any, **options: Any) -> Any:
        kept.append(dataset)
        return original(dataset, *args, **options)

    gen_dataset_ops.multi_device_iterator_init = keeping


def main(folder: str, *scenarios: str) -> None:
    logging.basicConfig(level=logging.WARNING, format="%(name)s: %(message)s")
    keep_datasets()
    (cpu,) = tf.config.list_physical_devices("CPU")
    both = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(cpu, both)
    for scenario in scenarios:
        run = Scenario(Path(folder) / scenario)
        run.folder.mkdir(exist_ok=True)
        began = time.process_time()
        try:
            globals()[scenario](run)
        except Exception:
            sys.stdout.write(f"{scenario} failed: {traceback.format_exc()}\n")
        else:
            sys.stdout.write(f"{scenario} done in {time.process_time() - began:.1f} s\n")
        sys.stdout.flush()
        smd.del_hook()


if __name__ == "__main__":
    main(*sys.argv[1:])
