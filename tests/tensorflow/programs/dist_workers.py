"""One of two processes that train one model together.

    python dist_workers.py <folder> <task> <ports> <scenario> [<scenario> ...]

The ports are those of the two on loopback, with a comma between. Each scenario has a folder of its
name: `run` is what the hooks saved, `truth_<task>.pickle` what Keras says.
"""

from __future__ import annotations

import json
import logging
import os
import pickle
import sys
from pathlib import Path
from typing import Any

TASK = int(sys.argv[2])
os.environ["TF_CONFIG"] = json.dumps(
    {
        "cluster": {"worker": [f"127.0.0.1:{port}" for port in sys.argv[3].split(",")]},
        "task": {"type": "worker", "index": TASK},
    }
)

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from tests.tensorflow.programs.dist_witness import Witness, rows  # noqa: E402

import smdebug.tensorflow as smd  # noqa: E402

keras: Any = tf.keras
BATCH = 8


def make_hook(folder: Path, workers: str) -> Any:
    return smd.KerasHook(
        folder / "run", save_config=smd.SaveConfig(save_interval=1), save_all=True,
        include_workers=workers, on_error="raise",
    )  # fmt: skip


def model_of(strategy: Any) -> Any:
    keras.utils.set_random_seed(5)
    with strategy.scope():
        layers = [keras.layers.Dense(3, "tanh", name="first"), keras.layers.Dense(2, name="last")]
        model = keras.Sequential([keras.Input((4,)), *layers])
        model.compile(keras.optimizers.SGD(0.05), "mse", metrics=["mae"])
    return model


def data() -> Any:
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return tf.data.Dataset.from_tensor_slices(rows(24)).batch(BATCH).with_options(options)


def fit(folder: Path, strategy: Any, workers: str) -> dict[str, Any]:
    model, witness = model_of(strategy), Witness()
    hooks = [] if workers == "bare" else [make_hook(folder, workers)]
    given = {"verbose": 0, "callbacks": [*hooks, witness]}
    history = model.fit(data(), epochs=2, **given)
    score = model.evaluate(data(), **given)
    for hook in hooks:
        hook.close()
    return {
        "final": model.get_weights(), "steps": witness.steps, "epochs": witness.epochs,
        "history": history.history, "score": score,
    }  # fmt: skip


def loop(folder: Path, strategy: Any, workers: str) -> dict[str, Any]:
    model = model_of(strategy)
    hook = None if workers == "bare" else make_hook(folder, workers)
    if hook is not None:
        hook.register_model(model)

    def replica_step(batch: Any) -> Any:
        x, y = batch
        tape = tf.GradientTape()
        with tape if hook is None else hook.wrap_tape(tape) as tape:
            loss = tf.reduce_sum(tf.square(model(x, training=True) - y)) / BATCH
        slopes = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply_gradients(zip(slopes, model.trainable_variables, strict=True))
        return loss, x, slopes

    @tf.function
    def step(batch: Any) -> Any:
        return strategy.run(replica_step, args=(batch,))

    steps = []
    for batch in strategy.experimental_distribute_dataset(data()):
        before = model.get_weights()
        loss, x, slopes = step(batch)
        steps.append(
            {
                "before": before, "loss": float(loss), "inputs": np.array(x),
                "slopes": [np.array(each) for each in slopes],
            }
        )  # fmt: skip
    if hook is not None:
        hook.close()
    return {"final": model.get_weights(), "loop": steps}


def main(folder: str, *scenarios: str) -> None:
    logging.basicConfig(level=logging.WARNING, format="%(name)s: %(message)s")
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    for scenario in scenarios:
        place = Path(folder) / scenario
        place.mkdir(exist_ok=True)
        kind, workers = scenario.split("_")
        truth = globals()[kind](place, strategy, workers)
        with (place / f"truth_{TASK}.pickle").open("wb") as file:
            pickle.dump(truth, file)
        sys.stdout.write(f"{scenario} done in this process\n")
        sys.stdout.flush()
        smd.del_hook()


if __name__ == "__main__":
    main(sys.argv[1], *sys.argv[4:])
