"""Trains on two devices with a tape, and prints what the replicas had.

Its argument is a directory. It trains inside and outside a function, with a hook and
without.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import smdebug.tensorflow as smd

keras: Any = tf.keras
EVERY = smd.SaveConfig(save_interval=1)


def train(strategy: Any, as_function: bool, hook: smd.KerasHook | None) -> dict[str, Any]:
    keras.utils.set_random_seed(7)
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(2, name="first")])
        optimizer = keras.optimizers.SGD(0.1)
    if hook is not None:
        hook.register_model(model)

    def step(x: Any) -> Any:
        tape = tf.GradientTape()
        with hook.wrap_tape(tape) if hook is not None else tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True)))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss, gradients[0]

    def run(x: Any) -> Any:
        return strategy.run(step, args=(x,))

    function = tf.function(run) if as_function else run
    images = np.random.default_rng(0).normal(size=(3, 8, 3)).astype(np.float32)
    result: dict[str, Any] = {"losses": [], "gradients": [], "inputs": [], "before": []}
    for batch in images:
        halves = np.split(batch, 2)

        def half(context: Any, halves: Any = halves) -> Any:
            return tf.constant(halves[context.replica_id_in_sync_group])

        result["before"].append(model.get_weights()[0].tolist())
        loss, gradient = function(strategy.experimental_distribute_values_from_function(half))
        losses = strategy.experimental_local_results(loss)
        assert len(losses) == 2
        result["losses"].append([float(each) for each in losses])
        first = strategy.experimental_local_results(gradient)[0]
        result["gradients"].append(first.numpy().tolist())
        result["inputs"].append(halves[0].tolist())
    result["weights"] = [each.tolist() for each in model.get_weights()]
    if hook is not None:
        result["step"] = hook.step
        hook.close()
    return result


def main(path: Path) -> None:
    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    results = {}
    for kind in ("function", "eager"):
        results[f"{kind} plain"] = train(strategy, kind == "function", None)
        hook = smd.KerasHook(path / kind, save_config=EVERY, save_all=True)
        results[f"{kind} hook"] = train(strategy, kind == "function", hook)
    sys.stdout.write(json.dumps(results) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
