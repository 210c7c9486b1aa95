"""The hook as a callback: modes, steps, other callbacks, and the model as Keras left it."""

from __future__ import annotations

import copy
import gc
import json
import logging
import pickle
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf
from tests.tensorflow.models import SEED_WARNING

import smdebug.tensorflow as smd
from smdebug.exceptions import SMDebugTypeError, TensorUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from smdebug.reductions import Array
    from smdebug.trials import Trial

keras: Any = tf.keras
KERAS_3 = hasattr(keras, "ops")
PROGRAMS = Path(__file__).parent / "programs"
EVERY = smd.SaveConfig(save_interval=1)
INSIDE = ["weights", "biases", "gradients", "layers", "inputs", "outputs"]
TRAIN, EVAL, PREDICT = smd.modes.TRAIN, smd.modes.EVAL, smd.modes.PREDICT
KERNEL, GRADIENT = "first/weights/first/kernel:0", "gradients/first/kernelGrad"
LIMIT = 100

# Keras calls numpy 2 in the way of numpy 1.
pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning:keras"),
    pytest.mark.filterwarnings(SEED_WARNING),
]


def batches(rows: int = 12, seed: int = 1) -> tuple[Array, Array]:
    """With a batch of 4: three batches, in this order."""
    random = np.random.default_rng(seed)
    return (
        random.normal(size=(rows, 3)).astype(np.float32),
        random.normal(size=(rows, 1)).astype(np.float32),
    )


def build(seed: int = 3, names: tuple[str, str] = ("first", "last"), graph: bool = False) -> Any:
    """A model; by default it runs eagerly, which takes less time than tracing."""
    keras.utils.set_random_seed(seed)
    model = keras.Sequential(
        [
            keras.layers.Input((3,)),
            keras.layers.Dense(4, activation="tanh", name=names[0]),
            keras.layers.Dense(1, name=names[1]),
        ]
    )
    model.compile(
        keras.optimizers.SGD(0.1, momentum=0.5), "mse", metrics=["mae"], run_eagerly=not graph
    )
    return model


def fit(model: Any, callbacks: Any = (), epochs: int = 1, **more: Any) -> Any:
    x, y = batches()
    options = {"batch_size": 4, "shuffle": False, "verbose": 0, **more}
    return model.fit(x, y, epochs=epochs, callbacks=list(callbacks), **options)


def evaluate(model: Any, callbacks: Any = (), rows: int = 8) -> Any:
    x, y = batches(rows, 2)
    return model.evaluate(x, y, batch_size=4, verbose=0, callbacks=list(callbacks))


def predict(model: Any, callbacks: Any = (), rows: int = 8) -> Any:
    x, _ = batches(rows, 2)
    return model.predict(x, batch_size=4, verbose=0, callbacks=list(callbacks))


def hooked(out_dir: Path, *collections: str, **options: Any) -> smd.KerasHook:
    """A hook that saves at every step, and fails rather than lose something."""
    options = {"save_config": EVERY, "on_error": "raise", **options}
    return smd.KerasHook(out_dir, include_collections=list(collections or INSIDE), **options)


class Witness(keras.callbacks.Callback):
    """What a callback of the user's sees: for every batch its mode, its logs and the weights."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[Any, dict[str, float], dict[str, Array]]] = []
        self.epochs: list[dict[str, float]] = []

    def see(self, mode: Any, logs: Any) -> None:
        numbers = {} if mode is PREDICT else {key: float(logs[key]) for key in logs or {}}
        weights = {
            f"{layer.name}/weights/{layer.name}/{part}:0": value
            for layer in self.model.layers
            for part, value in zip(("kernel", "bias"), layer.get_weights(), strict=True)
        }
        self.seen.append((mode, numbers, weights))

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.see(TRAIN, logs)

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        self.see(EVAL, logs)

    def on_predict_batch_end(self, batch: int, logs: Any = None) -> None:
        self.see(PREDICT, logs)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.epochs.append({key: float(value) for key, value in (logs or {}).items()})

    def check(self, trial: Trial) -> None:
        """Every batch is a step: with these weights and these numbers, in this mode."""
        assert trial.steps() == list(range(len(self.seen)))
        for mode in (TRAIN, EVAL, PREDICT):
            places = [place for place, each in enumerate(self.seen) if each[0] is mode]
            if not places:
                assert mode not in trial.modes()
                continue
            assert trial.steps(mode) == list(range(len(places)))
            for step, place in enumerate(places):
                _, logs, weights = self.seen[place]
                for name, value in weights.items():
                    np.testing.assert_array_equal(trial.tensor(name).value(step, mode), value)
                    np.testing.assert_array_equal(trial.tensor(name).value(place), value)
                for name, number in logs.items():
                    assert trial.tensor(name).value(step, mode).tolist() == [number]


class At(keras.callbacks.Callback):
    """Does something at one or all of the moments of one kind."""

    def __init__(self, moment: str, do: Callable[..., Any], number: int | None = None) -> None:
        super().__init__()
        self.count = 0

        def call(*args: Any, **kwargs: Any) -> None:
            if number is None or self.count == number:
                do()
            self.count += 1

        setattr(self, moment, call)


def steps_of(trial: Trial, name: str, mode: Any = None) -> list[int]:
    try:
        found = trial.tensor(name).steps(*(() if mode is None else (mode,)))
    except TensorUnavailable:
        return []
    return list(found)


def same_weights(first: Any, second: Any) -> bool:
    pairs = zip(first.get_weights(), second.get_weights(), strict=True)
    return all(np.array_equal(one, other) for one, other in pairs)


def kind_of_function(model: Any, name: str = "train_function") -> type:
    return type(getattr(model, name))


# ---- modes and steps


def test_modes_are_those_of_what_runs(tmp_path: Path) -> None:
    model, witness = build(graph=True), Witness()
    hook = hooked(tmp_path)
    x, y = batches(8, 2)
    fit(model, [witness, hook], 2, validation_data=(x, y), validation_batch_size=4)
    evaluate(model, [witness, hook])
    predict(model, [witness, hook])
    hook.close()
    assert [mode for mode, _, _ in witness.seen] == [
        *([TRAIN] * 3 + [EVAL] * 2) * 2, *[EVAL] * 2, *[PREDICT] * 2,
    ]  # fmt: skip
    trial = smd.create_trial(tmp_path)
    witness.check(trial)
    assert hook.mode_steps == {TRAIN: 5, EVAL: 5, PREDICT: 1, smd.modes.GLOBAL: 13}
    assert steps_of(trial, GRADIENT, TRAIN) == list(range(6))
    for mode, count in ((TRAIN, 6), (EVAL, 6), (PREDICT, 2)):
        for name in ("first/inputs", "first/outputs", "inputs", "predictions"):
            assert steps_of(trial, name, mode) == list(range(count)), (name, mode)
    assert steps_of(trial, "labels", EVAL) == list(range(6))
    assert steps_of(trial, "labels", PREDICT) == steps_of(trial, GRADIENT, EVAL) == []


def test_steps_continue_across_fit_evaluate_and_predict(tmp_path: Path) -> None:
    model, witness = build(), Witness()
    hook = hooked(tmp_path)
    both = [witness, hook]
    evaluate(model, both)
    fit(model, both)
    predict(model, both)
    fit(model, both, 2)
    evaluate(model, both)
    # Batches without the hook are not counted.
    fit(model)
    evaluate(model)
    fit(model, both)
    hook.close()
    witness.check(smd.create_trial(tmp_path))
    assert hook.step == 2 + 3 + 2 + 6 + 2 + 3 - 1


def test_an_evaluation_and_a_prediction_in_a_callback_in_the_middle_of_fit(tmp_path: Path) -> None:
    model, witness = build(), Witness()
    hook = hooked(tmp_path)

    def look() -> None:
        evaluate(model, [witness, hook])
        predict(model, [witness, hook])
        predict(model)
        evaluate(model)

    fit(model, [witness, hook, At("on_train_batch_end", look, 1)], 2)
    hook.close()
    assert [mode for mode, _, _ in witness.seen] == [
        TRAIN, TRAIN, EVAL, EVAL, PREDICT, PREDICT, *[TRAIN] * 4
    ]  # fmt: skip
    trial = smd.create_trial(tmp_path)
    witness.check(trial)
    assert steps_of(trial, GRADIENT, TRAIN) == list(range(6))
    plain = build()
    fit(plain, epochs=2)
    assert same_weights(plain, model)


def test_epoch_results_are_saved_at_the_last_step_regardless_of_the_save_schedule(
    tmp_path: Path,
) -> None:
    model, witness = build(), Witness()
    never = smd.SaveConfig(save_interval=1000, start_step=1)
    hook = hooked(tmp_path, save_config=never)
    x, y = batches(8, 2)
    fit(model, [hook, witness], 3, validation_data=(x, y), validation_batch_size=4)
    hook.close()
    trial = smd.create_trial(tmp_path)
    assert trial.steps() == [2, 7, 12]
    assert trial.steps(TRAIN) == [2, 5, 8]
    assert trial.steps(EVAL) == []
    for epoch, logs in enumerate(witness.epochs):
        found = {name: trial.tensor(name).value(2 + 3 * epoch, TRAIN) for name in logs}
        assert {name: value.tolist() for name, value in found.items()} == {
            name: [value] for name, value in logs.items()
        }
        assert all(value.dtype == np.float64 for value in found.values())
        assert trial.tensor("epoch").value(2 + 3 * epoch, TRAIN).tolist() == [epoch]
    assert set(witness.epochs[0]) == {"loss", "mae", "val_loss", "val_mae"}
    assert trial.tensor_names(collection="losses") == ["loss", "val_loss"]
    assert trial.tensor_names(collection="metrics") == ["epoch", "mae", "val_mae"]


def test_metrics_are_reset_at_every_epoch(tmp_path: Path) -> None:
    model, witness = build(), Witness()
    hook = hooked(tmp_path)
    fit(model, [hook, witness], 3)
    hook.close()
    trial = smd.create_trial(tmp_path)
    witness.check(trial)
    for step in range(9):
        assert trial.tensor("batch").value(step, TRAIN).tolist() == [step % 3]
    # The last batch and the epoch say the same.
    for epoch, logs in enumerate(witness.epochs):
        assert trial.tensor("loss").value(2 + 3 * epoch, TRAIN).tolist() == [logs["loss"]]


def counting(traces: list[int]) -> Any:
    """A model that takes note of how often its step is traced."""

    class Counting(keras.Sequential):
        def train_step(self, *args: Any) -> Any:
            traces.append(1)
            return super().train_step(*args)

    keras.utils.set_random_seed(0)
    model = Counting([keras.layers.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", metrics=["mae"])
    return model


def test_default_hook_saves_losses_and_metrics_every_500_steps(
    tmp_path: Path,
) -> None:
    plain: list[int] = []
    fit(counting(plain))
    traces: list[int] = []
    model = counting(traces)
    hook = smd.KerasHook(tmp_path)
    x = np.ones((503, 3), np.float32)
    model.fit(x, x[:, :1], batch_size=1, verbose=0, callbacks=[hook])
    hook.close()
    trial = smd.create_trial(tmp_path)
    assert trial.tensor_names() == ["batch", "epoch", "loss", "mae"]
    assert steps_of(trial, "batch") == [0, 500]
    # And what the epoch came to.
    assert steps_of(trial, "loss") == steps_of(trial, "mae") == [0, 500, 502]
    assert hook.has_default_configuration()
    # Nothing of the model's step is needed: it is not instrumented.
    assert traces == plain


def test_inside_of_a_step_is_captured_with_one_additional_function(tmp_path: Path) -> None:
    plain: list[int] = []
    fit(counting(plain))
    traces: list[int] = []
    model = counting(traces)
    hook = hooked(tmp_path, "gradients", save_config=smd.SaveConfig(save_interval=2))
    fit(model, [hook], 3)
    fit(model, [hook], 2)
    hook.close()
    assert len(traces) <= 2 * len(plain)
    trial = smd.create_trial(tmp_path)
    (gradient,) = [name for name in trial.tensor_names() if name.endswith("kernelGrad")]
    assert steps_of(trial, gradient, TRAIN) == list(range(0, 15, 2))


def test_mode_set_by_the_user_is_used(tmp_path: Path) -> None:
    model, witness = build(), Witness()
    hook = hooked(tmp_path)
    hook.set_mode(EVAL)
    fit(model, [witness, hook])
    hook.set_mode(smd.modes.GLOBAL)
    evaluate(model, [witness, hook])
    hook.set_mode(TRAIN)
    predict(model, [witness, hook])
    hook.close()
    witness.check(smd.create_trial(tmp_path))


def test_training_is_bit_identical_through_all_of_it(tmp_path: Path) -> None:
    plain, watched = build(graph=True), build(graph=True)
    hook = hooked(tmp_path, save_config=smd.SaveConfig(save_interval=2))

    def script(model: Any, callbacks: Any) -> list[Any]:
        x, y = batches(8, 2)
        return [
            fit(model, callbacks, 2, validation_data=(x, y)).history,
            evaluate(model, callbacks),
            predict(model, callbacks).tolist(),
            fit(model, callbacks).history,
        ]

    assert script(plain, []) == script(watched, [hook])
    assert same_weights(plain, watched)


# ---- what the user saves


def test_numbers_saved_in_callbacks_land_at_the_step_and_mode_of_the_moment(
    tmp_path: Path,
) -> None:
    model = build()
    hook = hooked(tmp_path, "losses")
    x, y = batches(8, 2)
    moments = [
        *("on_train_batch_begin", "on_train_batch_end", "on_epoch_end", "on_train_end"),
        *("on_test_batch_begin", "on_test_batch_end"),
    ]
    count = iter(range(1000))

    def saver(moment: str) -> Any:
        return At(moment, lambda: hook.save_scalar(moment, next(count)))

    savers = [saver(moment) for moment in moments]
    fit(model, [hook, *savers], 2, validation_data=(x, y), validation_batch_size=4)
    hook.close()
    trial = smd.create_trial(tmp_path)
    for moment in moments[:2]:
        assert steps_of(trial, f"scalar/{moment}", TRAIN) == list(range(6))
        assert steps_of(trial, f"scalar/{moment}") == [0, 1, 2, 5, 6, 7]
        assert steps_of(trial, f"scalar/{moment}", EVAL) == []
    # After the validation: of the epoch's last step again.
    assert steps_of(trial, "scalar/on_epoch_end", TRAIN) == [2, 5]
    assert steps_of(trial, "scalar/on_train_end", TRAIN) == [5]
    for moment in moments[4:]:
        assert steps_of(trial, f"scalar/{moment}", EVAL) == list(range(4))
        assert steps_of(trial, f"scalar/{moment}", TRAIN) == []
    # In the order they were saved.
    assert [trial.tensor("scalar/on_train_batch_begin").value(step, TRAIN)[0] for step in (0, 1)] \
        == [0, 2]  # fmt: skip


def test_tensors_saved_in_callbacks_follow_their_collections_schedule(tmp_path: Path) -> None:
    model = build()
    hook = hooked(tmp_path, "losses", save_config=smd.SaveConfig(save_interval=2))
    number = iter(range(1000))

    def save() -> None:
        value = next(number)
        hook.save_tensor("numpy", np.full((2, 2), value))
        hook.save_tensor("eager", tf.fill([3], value), ["mine", "default"])
        hook.save_tensor("variable", model.layers[0].kernel, "mine")
        hook.save_scalar("tensor", tf.constant(float(value)))

    hook.get_collection("mine").save_config = smd.SaveConfig(save_interval=3)
    hook.get_collection("mine").include("nothing of the model")
    fit(model, [hook, At("on_train_batch_end", save)], 2)
    hook.close()
    trial = smd.create_trial(tmp_path)
    assert steps_of(trial, "numpy", TRAIN) == [0, 2, 4]
    assert steps_of(trial, "eager", TRAIN) == [0, 2, 3, 4]
    assert steps_of(trial, "variable", TRAIN) == [0, 3]
    assert steps_of(trial, "scalar/tensor", TRAIN) == list(range(6))
    assert trial.tensor("eager").value(3, TRAIN).tolist() == [3, 3, 3]
    assert trial.tensor("numpy").value(4, TRAIN).tolist() == [[4, 4], [4, 4]]
    assert trial.tensor("variable").value(0, TRAIN).shape == (3, 4)


def test_scalar_saved_before_fit_belongs_to_the_first_step(tmp_path: Path) -> None:
    hook = hooked(tmp_path, "losses")
    hook.save_scalar("before", 7)
    fit(build(), [hook])
    hook.save_scalar("after", 8)
    hook.close()
    trial = smd.create_trial(tmp_path)
    assert steps_of(trial, "scalar/before", TRAIN) == [0]
    assert steps_of(trial, "scalar/after", TRAIN) == [2]


def test_a_tensor_without_a_value_is_rejected_with_advice(tmp_path: Path) -> None:
    hook = hooked(tmp_path, "losses")

    @tf.function(autograph=False)
    def step(x: Any) -> Any:
        hook.save_scalar("inside", x)
        return x

    with pytest.raises(SMDebugTypeError, match=r"value must be .*inside a graph.*outside"):
        step(tf.constant(1.0))


# ---- publishing


@pytest.mark.parametrize("format", ["v1", "v2"])
def test_everything_is_there_when_fit_returns(tmp_path: Path, format: str) -> None:
    model, witness = build(), Witness()
    hook = hooked(tmp_path, format=format, flush_seconds=1000)
    fit(model, [hook, witness])
    trial = smd.create_trial(tmp_path)
    witness.check(trial)
    assert not trial.loaded_all_steps
    # Forces a refresh: soon after a slow refresh, answers come from the cache.
    evaluate(model, [hook, witness])
    trial.refresh_data()
    witness.check(trial)
    predict(model, [hook, witness])
    trial.refresh_data()
    witness.check(trial)
    hook.close()
    trial.refresh_data()
    witness.check(trial)
    assert trial.loaded_all_steps


def test_another_process_reads_the_run_in_the_middle_of_fit(tmp_path: Path) -> None:
    model = build()
    hook = hooked(tmp_path)
    reader = (
        "import json, sys\nfrom smdebug.trials import create_trial\n"
        "trial = create_trial(sys.argv[1])\n"
        f"tensor = trial.tensor({KERNEL!r})\n"
        "values = {step: tensor.value(step).tolist() for step in tensor.steps()}\n"
        "print(json.dumps([trial.steps(), trial.loaded_all_steps, values]))\n"
        "assert 'tensorflow' not in sys.modules\n"
    )
    read: list[Any] = []

    def look() -> None:
        hook.flush()
        done = subprocess.run(
            [sys.executable, "-c", reader, str(tmp_path)],
            capture_output=True, text=True, timeout=LIMIT, check=True,
        )  # fmt: skip
        read.extend([json.loads(done.stdout), model.layers[0].get_weights()[0].tolist()])

    fit(model, [hook, At("on_train_batch_end", look, 4)], 2)
    (steps, ended, values), weights = read
    assert steps == [0, 1, 2, 3, 4]
    assert not ended
    assert values["4"] == weights
    hook.close()
    assert smd.create_trial(tmp_path).steps() == list(range(6))


def test_a_dry_run_writes_nothing_and_says_what_it_would(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "smdebug")
    plain, model = build(), build()
    fit(plain)
    hook = hooked(tmp_path / "run", dry_run=True)
    fit(model, [hook])
    hook.close()
    assert not (tmp_path / "run").exists()
    assert GRADIENT in caplog.text
    assert same_weights(plain, model)
    assert hook.stats().saved_steps == 3


def test_stats_of_the_hook(tmp_path: Path) -> None:
    model = build()
    hook = hooked(tmp_path, "gradients", save_config=smd.SaveConfig(save_interval=2))
    assert (hook.stats().steps, hook.stats().saved_steps) == (0, 0)
    fit(model, [hook], 2)
    evaluate(model, [hook])
    stats = hook.stats()
    # Three in training, one in evaluation, and two ends of epochs.
    assert stats.steps == 8
    assert stats.saved_steps == len(smd.create_trial(tmp_path).steps())
    assert stats.seconds > 0
    assert stats.collections["gradients"].tensors == 3 * 4
    assert stats.collections["gradients"].bytes == 3 * 4 * (12 + 4 + 4 + 1)
    hook.close()
    assert hook.stats().steps == 8


# ---- other callbacks


def test_early_stopping_stops_the_same_way(tmp_path: Path) -> None:
    def script(hook: smd.KerasHook | None = None, order: int = 1) -> Any:
        model = build()
        stopping = keras.callbacks.EarlyStopping(
            "loss", patience=1, min_delta=0.5, restore_best_weights=True
        )
        callbacks = [stopping] if hook is None else [stopping, hook][::order]
        return model, fit(model, callbacks, 10)

    plain, expected = script()
    assert len(expected.epoch) < 10
    for order in (1, -1):
        out_dir = tmp_path / str(order)
        hook = hooked(out_dir)
        model, history = script(hook, order)
        hook.close()
        assert history.history == expected.history
        assert same_weights(plain, model)
        steps = list(range(3 * len(history.epoch)))
        assert smd.create_trial(out_dir).steps(TRAIN) == steps


@pytest.mark.parametrize("order", [1, -1])
def test_checkpoints_of_every_batch(tmp_path: Path, order: int) -> None:
    model = build()
    hook = hooked(tmp_path / "run")
    path = str(tmp_path / "{epoch}-{batch}.keras")
    checkpoint = keras.callbacks.ModelCheckpoint(path, save_freq=1)
    weights = keras.callbacks.ModelCheckpoint(
        str(tmp_path / "{epoch}.weights.h5"), save_weights_only=True
    )
    fit(model, [hook, checkpoint, weights][::order], 2)
    hook.close()
    trial = smd.create_trial(tmp_path / "run")
    files = sorted(tmp_path.glob("*.keras"))
    assert len(files) == 6
    for step, file in enumerate(files):
        loaded = keras.models.load_model(file)
        np.testing.assert_array_equal(
            loaded.layers[0].get_weights()[0], trial.tensor(KERNEL).value(step, TRAIN)
        )
    fresh = build(9)
    fit(fresh)
    fresh.load_weights(tmp_path / "2.weights.h5")
    assert same_weights(fresh, model)
    # What was loaded trains on like the one that was saved.
    fit(loaded)
    fit(model)
    assert same_weights(loaded, model)


def test_tensorboards_own_callback_together_with_the_hook(tmp_path: Path) -> None:
    plain, model = build(graph=True), build(graph=True)
    fit(plain, [keras.callbacks.TensorBoard(str(tmp_path / "plain"), update_freq=1)], 2)
    hook = hooked(tmp_path / "run")
    board = keras.callbacks.TensorBoard(
        str(tmp_path / "board"), update_freq=1, histogram_freq=1, write_graph=True
    )
    x, y = batches(8, 2)
    fit(model, [board, hook], 1, validation_data=(x, y))
    fit(model, [hook, board], 1)
    hook.close()
    assert same_weights(plain, model)
    assert smd.create_trial(tmp_path / "run").steps(TRAIN) == list(range(6))
    assert list((tmp_path / "board").rglob("*.tfevents*"))


@pytest.mark.parametrize("order", [1, -1])
def test_resumed_training(tmp_path: Path, order: int) -> None:
    whole = build()
    fit(whole, epochs=4)

    def backup() -> Any:
        return keras.callbacks.BackupAndRestore(str(tmp_path / "backup"))

    def interrupt() -> None:
        raise KeyboardInterrupt

    first, first_hook = build(), hooked(tmp_path / "first")
    breaking = At("on_train_batch_begin", interrupt, 7)
    with pytest.raises(KeyboardInterrupt):
        fit(first, [*[first_hook, backup()][::order], breaking], 4)
    first_hook.close()
    second, second_hook = build(), hooked(tmp_path / "second")
    fit(second, [second_hook, backup()][::order], 4)
    second_hook.close()
    assert same_weights(whole, second)
    assert smd.create_trial(tmp_path / "first").steps(TRAIN) == list(range(7))
    assert smd.create_trial(tmp_path / "second").steps(TRAIN) == list(range(6))


def test_the_other_callbacks_of_keras(tmp_path: Path) -> None:
    def others(place: Path) -> list[Any]:
        return [
            keras.callbacks.ReduceLROnPlateau("loss", patience=0, min_delta=10),
            keras.callbacks.TerminateOnNaN(),
            keras.callbacks.CSVLogger(str(place)),
            keras.callbacks.LearningRateScheduler(lambda epoch, lr: lr * 0.9),
            keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: None),
        ]

    plain, model = build(), build()
    fit(plain, others(tmp_path / "plain.csv"), 3)
    hook = hooked(tmp_path / "run")
    fit(model, [hook, *others(tmp_path / "hooked.csv")], 3)
    hook.close()
    assert same_weights(plain, model)
    assert (tmp_path / "plain.csv").read_text() == (tmp_path / "hooked.csv").read_text()
    trial = smd.create_trial(tmp_path / "run")
    assert trial.tensor("loss").steps(TRAIN) == list(range(9))


def test_stop_training_still_stops_training(tmp_path: Path) -> None:
    model = build()
    hook = hooked(tmp_path)

    def stop() -> None:
        model.stop_training = True

    fit(model, [hook, At("on_epoch_end", stop, 1)], 5)
    assert smd.create_trial(tmp_path).steps(TRAIN) == list(range(6))
    fit(model, [hook])
    hook.close()
    assert smd.create_trial(tmp_path).steps(TRAIN) == list(range(9))


def test_a_list_of_callbacks_made_by_the_user(tmp_path: Path) -> None:
    model = build()
    hook = hooked(tmp_path)
    x, y = batches()
    callbacks = keras.callbacks.CallbackList([hook], add_history=True, model=model)
    model.fit(x, y, batch_size=4, shuffle=False, verbose=0, callbacks=callbacks)
    hook.close()
    assert smd.create_trial(tmp_path).tensor(GRADIENT).steps(TRAIN) == [0, 1, 2]


# ---- the model as Keras left it


def test_original_functions_are_restored(tmp_path: Path) -> None:
    plain, model = build(graph=True), build(graph=True)
    names = ["train_function", "test_function", "predict_function"]

    def kinds(each: Any, callbacks: Any) -> list[list[type]]:
        found = []
        for run in (evaluate, predict, fit):
            run(each, callbacks)
            found.append([kind_of_function(each, name) for name in names])
        return found

    hook = hooked(tmp_path)
    expected = kinds(plain, [])
    attributes = set(vars(plain))
    assert kinds(model, [hook])[-1] == expected[-1]
    assert set(vars(model)) == attributes
    assert not any("apply" in key for key in vars(model.optimizer))
    layer = keras.layers.Layer.__call__
    hook.close()
    assert keras.layers.Layer.__call__ is layer
    assert "smdebug" not in layer.__module__


@pytest.mark.parametrize(
    ("error", "moment", "order"),
    [
        (KeyboardInterrupt, "on_train_batch_begin", 1),
        (KeyboardInterrupt, "on_train_batch_end", -1),
        (ZeroDivisionError, "on_train_batch_begin", -1),
        (ZeroDivisionError, "on_epoch_end", 1),
    ],
)
def test_after_an_exception_in_a_callback(
    tmp_path: Path, error: type[BaseException], moment: str, order: int
) -> None:
    graph = moment == "on_train_batch_end"
    plain, model = build(graph=graph), build(graph=graph)

    def fail() -> None:
        raise error

    hook = hooked(tmp_path)
    with pytest.raises(error):
        fit(plain, [At(moment, fail, 0)])
    with pytest.raises(error):
        fit(model, [hook, At(moment, fail, 0)][::order])
    # As in the next cell of a notebook.
    fit(plain)
    fit(model)
    evaluate(plain)
    evaluate(model, [hook])
    assert same_weights(plain, model)
    steps = smd.create_trial(tmp_path).steps(EVAL)
    assert steps == [0, 1]
    fit(plain)
    fit(model, [hook])
    assert same_weights(plain, model)
    hook.close()
    assert kind_of_function(model) is kind_of_function(plain)
    trial = smd.create_trial(tmp_path)
    assert steps_of(trial, GRADIENT, TRAIN)[-3:] == trial.steps(TRAIN)[-3:]


def test_closed_in_the_middle_of_fit(tmp_path: Path) -> None:
    plain, model = build(), build()
    hook = hooked(tmp_path)
    kinds: list[type] = []

    def close() -> None:
        hook.close()
        kinds.append(kind_of_function(model))

    fit(plain, epochs=2)
    fit(model, [hook, At("on_train_batch_end", close, 3)], 2)
    fit(model, [hook])
    fit(plain)
    assert kinds == [kind_of_function(plain)] == [kind_of_function(model)]
    assert same_weights(plain, model)
    trial = smd.create_trial(tmp_path)
    assert trial.steps(TRAIN) == [0, 1, 2, 3]
    assert steps_of(trial, GRADIENT) == [0, 1, 2, 3]
    assert trial.loaded_all_steps


def test_closed_between_the_beginning_and_the_end_of_a_batch(tmp_path: Path) -> None:
    plain, model = build(graph=True), build(graph=True)
    hook = hooked(tmp_path)
    fit(plain)
    fit(model, [hook, At("on_train_batch_begin", hook.close, 1)])
    assert same_weights(plain, model)
    assert kind_of_function(plain) is kind_of_function(model)
    assert steps_of(smd.create_trial(tmp_path), GRADIENT) == [0]


def test_closed_hook_in_fit_warns_and_does_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plain, model = build(), build()
    hook = hooked(tmp_path / "run")
    hook.close()
    x, y = batches(8, 2)
    fit(plain, validation_data=(x, y))
    fit(model, [hook], validation_data=(x, y))
    predict(model, [hook])
    assert same_weights(plain, model)
    assert caplog.text.count("saves nothing: it was closed") == 1
    assert not (tmp_path / "run").exists()


def test_compiled_again_between_two_fits(tmp_path: Path) -> None:
    plain, model = build(), build()
    hook = hooked(tmp_path, *INSIDE, "optimizer_variables")

    def script(each: Any, callbacks: Any) -> None:
        fit(each, callbacks)
        each.layers[0].trainable = False
        each.compile(keras.optimizers.Adam(0.1), "mae")
        fit(each, callbacks)

    script(plain, [])
    script(model, [hook])
    hook.close()
    assert same_weights(plain, model)
    trial = smd.create_trial(tmp_path)
    assert steps_of(trial, GRADIENT) == [0, 1, 2]
    assert steps_of(trial, "gradients/last/kernelGrad") == list(range(6))
    momenta = [name for name in trial.tensor_names() if "momentum" in name and "last" in name]
    assert {tuple(steps_of(trial, name)) for name in momenta} <= {(0, 1, 2), (3, 4, 5)}


def test_the_last_layer_is_replaced_between_two_fits(tmp_path: Path) -> None:
    model, witness = build(), Witness()
    hook = hooked(tmp_path)
    fit(model, [hook, witness])
    model.pop()
    model.add(keras.layers.Dense(1, name="new"))
    model.compile("sgd", "mse", metrics=["mae"])
    fit(model, [hook, witness])
    hook.close()
    trial = smd.create_trial(tmp_path)
    witness.check(trial)
    assert steps_of(trial, "gradients/last/kernelGrad") == [0, 1, 2]
    assert steps_of(trial, "gradients/new/kernelGrad") == [3, 4, 5]
    assert steps_of(trial, "last/weights/last/kernel:0") == [0, 1, 2]


def test_function_rebuilt_in_the_middle_of_fit(tmp_path: Path) -> None:
    plain, model = build(graph=True), build(graph=True)
    hook = hooked(tmp_path)

    def script(each: Any, callbacks: Any) -> None:
        def unfreeze() -> None:
            each.layers[0].trainable = False
            each.compile(keras.optimizers.SGD(0.01), "mse", metrics=["mae"])
            each.make_train_function(force=True)

        fit(each, [*callbacks, At("on_epoch_begin", unfreeze, 1)], 2)

    script(plain, [])
    script(model, [hook])
    hook.close()
    assert same_weights(plain, model)
    trial = smd.create_trial(tmp_path)
    assert steps_of(trial, GRADIENT) == [0, 1, 2]
    assert steps_of(trial, "gradients/last/kernelGrad") == list(range(6))
    assert steps_of(trial, "first/outputs") == list(range(6))
    assert kind_of_function(plain) is kind_of_function(model)


# ---- several models, several hooks


def test_one_hook_for_two_models(tmp_path: Path) -> None:
    one, other = build(), build(7, ("front", "back"))
    witness, hook = Witness(), hooked(tmp_path)
    for model in (one, other, one, other):
        fit(model, [witness, hook])
        evaluate(model, [witness, hook])
    hook.close()
    trial = smd.create_trial(tmp_path)
    assert trial.steps() == list(range(20))
    names = {"first": [0, 1, 2, 6, 7, 8], "front": [3, 4, 5, 9, 10, 11]}
    for layer, steps in names.items():
        assert steps_of(trial, f"gradients/{layer}/kernelGrad", TRAIN) == steps
        assert steps_of(trial, f"{layer}/outputs", TRAIN) == steps
    for place, (_, _, weights) in enumerate(witness.seen):
        saved = {name for name in trial.tensor_names(step=place) if "/weights/" in name}
        assert saved == set(weights)
        for name, value in weights.items():
            np.testing.assert_array_equal(trial.tensor(name).value(place), value)


def test_another_model_that_is_evaluated_with_the_hook_in_the_middle_of_fit(
    tmp_path: Path,
) -> None:
    model, other = build(), build(7, ("front", "back"))
    witness, hook = Witness(), hooked(tmp_path)
    look = At("on_epoch_end", lambda: evaluate(other, [hook]))
    fit(model, [hook, witness, look], 2)
    hook.close()
    trial = smd.create_trial(tmp_path)
    assert trial.steps(TRAIN) == list(range(6))
    assert steps_of(trial, GRADIENT, TRAIN) == list(range(6))
    assert steps_of(trial, "gradients/front/kernelGrad") == []
    assert steps_of(trial, "front/outputs", EVAL) == [0, 1, 2, 3]
    for step, (_, _, weights) in enumerate(witness.seen):
        for name, value in weights.items():
            np.testing.assert_array_equal(trial.tensor(name).value(step, TRAIN), value)


def test_two_hooks_on_one_model(tmp_path: Path) -> None:
    plain, model = build(graph=True), build(graph=True)
    first = hooked(tmp_path / "first", "gradients", "layers")
    second = hooked(
        tmp_path / "second", "gradients", "inputs", save_config=smd.SaveConfig(save_interval=2)
    )
    x, y = batches(8, 2)
    more = {"validation_data": (x, y), "validation_batch_size": 4}
    fit(plain, epochs=2, **more)
    fit(model, [first, second], 2, **more)
    first.close()
    # The remaining one continues.
    fit(plain)
    fit(model, [first, second])
    second.close()
    assert same_weights(plain, model)
    assert kind_of_function(plain) is kind_of_function(model)
    one, two = smd.create_trial(tmp_path / "first"), smd.create_trial(tmp_path / "second")
    assert steps_of(one, GRADIENT, TRAIN) == list(range(6))
    assert steps_of(one, "first/outputs", TRAIN) == list(range(6))
    assert steps_of(one, "first/outputs", EVAL) == list(range(4))
    assert steps_of(two, GRADIENT, TRAIN) == [0, 2, 4, 6, 8]
    assert steps_of(two, "inputs", EVAL) == [0, 2]
    for step in (0, 2, 4):
        np.testing.assert_array_equal(
            one.tensor(GRADIENT).value(step, TRAIN), two.tensor(GRADIENT).value(step, TRAIN)
        )


def test_a_hook_that_is_given_twice_counts_once(tmp_path: Path) -> None:
    plain, model, witness = build(), build(), Witness()
    hook = hooked(tmp_path)
    fit(plain)
    fit(model, [hook, witness, hook])
    hook.close()
    assert same_weights(plain, model)
    trial = smd.create_trial(tmp_path)
    witness.check(trial)
    assert steps_of(trial, GRADIENT) == [0, 1, 2]


@pytest.mark.parametrize("moment", ["on_train_batch_begin", "on_train_batch_end"])
def test_train_on_batch_next_to_fit(tmp_path: Path, moment: str) -> None:
    other_x = np.full((4, 3), 9, np.float32)

    def script(model: Any, callbacks: Any) -> None:
        def by_hand() -> None:
            model.train_on_batch(other_x, np.zeros((4, 1), np.float32))
            model.test_on_batch(other_x, np.zeros((4, 1), np.float32))
            model.predict_on_batch(other_x)

        by_hand()
        fit(model, [*callbacks, At(moment, by_hand, 1)])
        by_hand()

    plain, model = build(graph=True), build(graph=True)
    script(plain, [])
    hook = hooked(tmp_path)
    script(model, [hook])
    hook.close()
    assert same_weights(plain, model)
    trial = smd.create_trial(tmp_path)
    assert trial.steps(TRAIN) == [0, 1, 2]
    assert EVAL not in trial.modes()
    x, _ = batches()
    for step in range(3):
        np.testing.assert_array_equal(
            trial.tensor("inputs").value(step, TRAIN), x[4 * step : 4 * step + 4]
        )


def test_fit_in_a_thread(tmp_path: Path) -> None:
    plain, model, witness = build(), build(), Witness()
    fit(plain, epochs=2)
    hook = hooked(tmp_path)
    thread = threading.Thread(target=lambda: fit(model, [hook, witness], 2))
    thread.start()
    thread.join(LIMIT)
    hook.close()
    assert same_weights(plain, model)
    trial = smd.create_trial(tmp_path)
    witness.check(trial)
    assert steps_of(trial, GRADIENT) == list(range(6))


def test_two_models_in_two_threads_with_a_hook_each(tmp_path: Path) -> None:
    models = [build(seed, graph=True) for seed in (1, 2)]
    plain = [build(seed, graph=True) for seed in (1, 2)]
    for each in plain:
        fit(each, epochs=3)
    hooks = [hooked(tmp_path / str(number)) for number in range(2)]
    threads = [
        threading.Thread(target=fit, args=(model, [hook], 3))
        for model, hook in zip(models, hooks, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    for number, hook in enumerate(hooks):
        hook.close()
        assert same_weights(plain[number], models[number])
        trial = smd.create_trial(tmp_path / str(number))
        assert steps_of(trial, GRADIENT) == list(range(9))
        assert steps_of(trial, "first/outputs") == list(range(9))
        np.testing.assert_array_equal(
            trial.tensor(KERNEL).value(8), models[number].layers[0].get_weights()[0]
        )
    assert "smdebug" not in keras.layers.Layer.__call__.__module__


# ---- saved, cloned, copied


def copies(model: Any, place: Path) -> list[Any]:
    """What people make of a model."""
    model.save(place / "model.keras")
    model.save_weights(place / "model.weights.h5")
    made = [keras.models.load_model(place / "model.keras"), keras.models.clone_model(model)]
    made[-1].set_weights(model.get_weights())
    made.append(type(model).from_config(model.get_config()))
    made[-1].set_weights(model.get_weights())
    made.append(copy.deepcopy(model))
    made.append(pickle.loads(pickle.dumps(model)))
    return made


@pytest.mark.filterwarnings("ignore::UserWarning:keras")
def test_a_model_is_saved_and_copied_while_the_hook_is_attached_and_after(tmp_path: Path) -> None:
    model = build()
    hook = hooked(tmp_path / "run")
    hook.register_model(model)
    assert hook.wrap_optimizer(model.optimizer) is model.optimizer
    made: list[Any] = []
    x, _ = batches()

    def look() -> None:
        place = tmp_path / str(len(made))
        place.mkdir()
        expected = model(x).numpy()
        for each in copies(model, place):
            np.testing.assert_array_equal(each(x), expected)
            made.append(each)

    fit(model, [hook, At("on_train_batch_begin", look, 2)])
    hook.close()
    look()
    # A copy is a model without a hook.
    for each in made[-5:]:
        each.compile("sgd", "mse")
        fit(each)
    trial = smd.create_trial(tmp_path / "run")
    assert trial.steps(TRAIN) == [0, 1, 2]
    assert steps_of(trial, GRADIENT) == [0, 1, 2]


def test_a_model_is_exported_in_the_middle_of_fit(tmp_path: Path) -> None:
    model = build()
    hook = hooked(tmp_path / "run")
    x, _ = batches()
    expected: list[Array] = []

    def look() -> None:
        expected.append(model(x).numpy())
        if KERAS_3:
            model.export(tmp_path / "exported", verbose=False)
        else:
            tf.saved_model.save(model, str(tmp_path / "exported"))

    fit(model, [hook, At("on_train_batch_end", look, 1)])
    hook.close()
    loaded = tf.saved_model.load(str(tmp_path / "exported"))
    result = loaded.serve(x) if KERAS_3 else loaded(x)
    np.testing.assert_allclose(result, expected[0], rtol=1e-6)
    assert steps_of(smd.create_trial(tmp_path / "run"), GRADIENT) == [0, 1, 2]


def test_a_checkpoint_of_tensorflow_in_the_middle_of_fit(tmp_path: Path) -> None:
    model = build()
    hook = hooked(tmp_path / "run")
    checkpoint = tf.train.Checkpoint(model=model)
    saved: list[Any] = []

    def look() -> None:
        saved.append((checkpoint.save(str(tmp_path / "checkpoint")), model.get_weights()))

    fit(model, [hook, At("on_train_batch_end", look, 1)])
    hook.close()
    path, weights = saved[0]
    checkpoint.restore(path)
    for one, other in zip(model.get_weights(), weights, strict=True):
        np.testing.assert_array_equal(one, other)


def test_pickled_hook_saves_nothing(tmp_path: Path) -> None:
    plain, model = build(), build()
    hook = hooked(tmp_path / "run")
    fit(model, [hook])
    fit(plain)
    assert copy.deepcopy([hook])[0] is hook
    (loaded,) = pickle.loads(pickle.dumps([hook]))
    assert isinstance(loaded, smd.KerasHook)
    assert loaded.closed
    x, y = batches(8, 2)
    fit(plain, validation_data=(x, y))
    fit(model, [loaded], validation_data=(x, y))
    evaluate(model, [loaded])
    predict(model, [loaded])
    assert same_weights(plain, model)
    loaded.close()
    fit(model, [hook])
    hook.close()
    assert smd.create_trial(tmp_path / "run").steps(TRAIN) == list(range(6))


def test_a_pickled_hook_answers_every_method(tmp_path: Path) -> None:
    model, optimizer = build(), keras.optimizers.SGD()
    with hooked(tmp_path / "run") as hook:
        loaded = pickle.loads(pickle.dumps(hook))
    assert loaded.model is None
    loaded.register_model(model)
    assert loaded.wrap_optimizer(optimizer) is optimizer
    tape = tf.GradientTape()
    assert loaded.wrap_tape(tape) is tape
    variable = tf.Variable(3.0)
    with tape:
        loss = variable * variable
    assert tape.gradient(loss, variable).numpy() == 6.0
    for mode in smd.modes:
        loaded.set_mode(mode)
        assert loaded.mode is mode
        loaded.save_tape_logs(loss, loss)
        loaded.record_tensor_value("accuracy", loss)
        loaded.set_gradients(gradients_and_variables=[(loss, variable)])
        loaded.save_scalar("scalar", 1.0)
        loaded.save_tensor("tensor", loss)
    loaded.set_optimizer_variables([variable])
    assert not loaded.should_save_layer("first")
    loaded.get_collection("mine").add(variable)
    loaded.step = 7
    assert loaded.step == 7
    assert loaded.stats().saved_steps == 0
    assert loaded.worker == "worker_0"
    assert loaded.findings() == []
    loaded.export_collections()
    loaded.flush()
    loaded.close()


def test_a_model_that_holds_its_hook(tmp_path: Path) -> None:
    model = build()
    model.hook = hooked(tmp_path / "run")
    fit(model, [model.hook])
    model.save(tmp_path / "model.keras")
    model.hook.close()
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert same_weights(loaded, model)
    assert smd.create_trial(tmp_path / "run").steps() == [0, 1, 2]


# ---- what is left over


def test_a_closed_hook_keeps_no_model(tmp_path: Path) -> None:
    def gone(callbacks: list[Any]) -> bool:
        model = build()
        x, y = batches(8, 2)
        fit(model, callbacks, validation_data=(x, y))
        predict(model, callbacks)
        for each in callbacks:
            each.close()
        reference = weakref.ref(model)
        del model
        keras.backend.clear_session()
        gc.collect()
        return reference() is None

    # Otherwise it would be Keras that keeps it.
    assert gone([])
    hook = hooked(tmp_path)
    hook.wrap_optimizer(keras.optimizers.SGD(0.1))
    assert gone([hook])


def test_unreferenced_closed_hook_is_freed(tmp_path: Path) -> None:
    model = build()
    hook = hooked(tmp_path)
    fit(model, [hook])
    predict(model, [hook])
    hook.close()
    smd.del_hook()
    reference = weakref.ref(hook)
    del hook
    gc.collect()
    assert reference() is None


def test_steps_keep_no_tensors(tmp_path: Path) -> None:
    model = build()
    hook = hooked(tmp_path)
    counts: list[int] = []
    kind = type(tf.constant(1.0))

    def count() -> None:
        hook.flush()
        gc.collect()
        counts.append(sum(isinstance(each, kind) for each in gc.get_objects()))

    fit(model, [hook, At("on_epoch_end", count)], 3)
    hook.close()
    assert counts[-1] <= counts[1]


# ---- processes


def program(name: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(PROGRAMS / name), *map(str, arguments)],
        capture_output=True, text=True, timeout=LIMIT, check=False,
    )  # fmt: skip


def test_a_forked_process_trains_and_writes_nothing(tmp_path: Path) -> None:
    done = program("life_forked.py", tmp_path)
    assert done.returncode == 0, done.stderr
    assert smd.create_trial(tmp_path / "run").steps() == [0, 1, 2]
    assert "saves nothing" in (tmp_path / "child.txt").read_text()


def test_data_from_worker_processes(tmp_path: Path) -> None:
    done = program("life_workers.py", tmp_path)
    assert done.returncode == 0, done.stderr
    trial = smd.create_trial(tmp_path / "run")
    assert steps_of(trial, "inputs") == [0, 1, 2, 3]
    assert trial.loaded_all_steps


@pytest.mark.parametrize("how", ["end", "interrupt"])
def test_a_script_that_does_not_close_its_hook(tmp_path: Path, how: str) -> None:
    done = program("life_unclosed.py", tmp_path, how)
    assert done.returncode == {"end": 0, "interrupt": -2}[how], done.stderr
    trial = smd.create_trial(tmp_path / "run")
    assert trial.loaded_all_steps
    steps = 6 if how == "end" else 5
    assert steps_of(trial, "gradients/dense/kernelGrad") == list(range(steps))
