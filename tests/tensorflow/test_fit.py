"""What is saved of `fit`, `evaluate` and `predict`, against what TensorFlow itself computes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf
from tests.tensorflow.models import (
    BATCH,
    CLASSES,
    FEATURES,
    KERAS_3,
    SEED_WARNING,
    Subclassed,
    Watcher,
    batches,
    compiled,
    data,
    fit,
    functional,
    names_at,
    own_gradients,
    saver,
    seeded,
    sequential,
    trial_of,
)

import smdebug.tensorflow as smd
from smdebug import modes
from smdebug.exceptions import TensorUnavailableForStep

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from smdebug.reductions import Array

keras: Any = tf.keras
pytestmark = pytest.mark.filterwarnings(
    SEED_WARNING, "ignore:Your input ran out of data:UserWarning"
)
STEPS = 5
KERNEL, BIAS = "first/weights/first/kernel:0", "first/weights/first/bias:0"
WEIGHTS = [KERNEL, BIAS, "second/weights/second/kernel:0", "second/weights/second/bias:0"]
GRADIENTS = [
    "gradients/first/kernelGrad", "gradients/first/biasGrad", "gradients/second/kernelGrad",
    "gradients/second/biasGrad",
]  # fmt: skip
INSIDE = ["first/inputs", "first/outputs", "second/inputs", "second/outputs"]
DATA = ["inputs", "labels", "predictions"]


def make(optimizer: Any = "sgd", kind: Any = sequential, **options: Any) -> Any:
    """A model that starts with the same weights at every call; XLA only on request."""
    seeded()
    return compiled(kind(), optimizer, **{"jit_compile": False, **options})


def copy_of(weights: list[Array], **options: Any) -> Any:
    """Another model with these weights."""
    model = compiled(sequential(), **{"jit_compile": False, **options})
    model.set_weights(weights)
    return model


def value(trial: Any, name: str, step: int, mode: Any = modes.TRAIN) -> Array:
    found: Array = trial.tensor(name).value(step, mode=mode)
    return found


def steps(trial: Any, name: str, mode: Any = modes.TRAIN) -> list[int]:
    found: list[int] = trial.tensor(name).steps(mode=mode)
    return found


def assert_inside(
    trial: Any, step: int, weights: list[Array], x: Array, y: Array, **options: Any
) -> None:
    """All tensors inside a train step, computed again."""
    model = copy_of(weights)
    for name, expected in zip(GRADIENTS, own_gradients(model, x, y, **options), strict=True):
        np.testing.assert_allclose(value(trial, name, step), expected, rtol=1e-5, atol=1e-7)
    assert_forward(trial, step, model, x)
    assert np.array_equal(value(trial, "labels", step).reshape(-1), y)


def assert_forward(trial: Any, step: int, model: Any, x: Array, mode: Any = modes.TRAIN) -> None:
    first = np.maximum(x @ model.get_weights()[0] + model.get_weights()[1], 0)
    second = first @ model.get_weights()[2] + model.get_weights()[3]
    expected = {
        "inputs": x, "first/inputs": x, "first/outputs": first, "second/inputs": first,
        "second/outputs": second, "predictions": second,
    }  # fmt: skip
    for name, tensor in expected.items():
        np.testing.assert_allclose(value(trial, name, step, mode), tensor, rtol=1e-4, atol=1e-5)


# ---- every collection


@pytest.fixture(scope="module")
def ordinary(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Watcher, Any]:
    """Two epochs of `fit` with a partial last batch, every collection at every step."""
    out_dir = tmp_path_factory.mktemp("fit") / "run"
    model, watcher = make("adam"), Watcher()
    hook = saver(out_dir)
    history = fit(model, *data(36), hook, epochs=2, callbacks=[watcher])
    hook.close()
    smd.del_hook()
    return trial_of(out_dir), watcher, history


def rows_of(step: int, rows: int = 36) -> tuple[Array, Array]:
    x, y = data(rows)
    begin = step % -(-rows // BATCH) * BATCH
    return x[begin : begin + BATCH], y[begin : begin + BATCH]


@pytest.mark.parametrize("step", [0, 1, 4, 5, 9])
def test_tensors_inside_a_step(ordinary: Any, step: int) -> None:
    trial, watcher, _ = ordinary

    assert_inside(trial, step, watcher.before[step], *rows_of(step))


def test_a_partial_batch_has_its_own_rows(ordinary: Any) -> None:
    trial, _, _ = ordinary

    for name in (*DATA, *INSIDE):
        assert [len(value(trial, name, step)) for step in range(6)] == [8, 8, 8, 8, 4, 8]


def test_weights_are_those_after_the_update(ordinary: Any) -> None:
    trial, watcher, _ = ordinary

    for step, weights in enumerate(watcher.after):
        for name, expected in zip(WEIGHTS, weights, strict=True):
            assert np.array_equal(value(trial, name, step), expected)
            assert value(trial, name, step).dtype == expected.dtype


def test_optimizer_variables_are_those_after_the_update(ordinary: Any) -> None:
    trial, watcher, _ = ordinary
    names = trial.tensor_names(collection="optimizer_variables")

    assert len(names) == len(watcher.optimizer[0])
    for step, variables in enumerate(watcher.optimizer):
        saved = sorted(value(trial, name, step).reshape(-1).tolist() for name in names)
        assert saved == sorted(each.reshape(-1).tolist() for each in variables)


def test_losses_and_metrics_are_what_keras_reports(ordinary: Any) -> None:
    trial, watcher, _ = ordinary

    for step, logs in enumerate(watcher.logs["train"]):
        assert set(logs) == {"loss", "accuracy"}
        for name, number in logs.items():
            saved = value(trial, name, step)
            assert saved.shape == (1,)
            assert saved.dtype == np.float64
            assert saved[0] == number
        assert value(trial, "batch", step)[0] == step % STEPS


def test_an_epoch_is_at_its_last_step(ordinary: Any) -> None:
    trial, _, history = ordinary

    assert steps(trial, "epoch") == [4, 9]
    assert [value(trial, "epoch", step)[0] for step in (4, 9)] == [0, 1]
    assert [value(trial, "loss", step)[0] for step in (4, 9)] == history["loss"]


def test_every_tensor_is_in_its_collections(ordinary: Any) -> None:
    trial, _, _ = ordinary
    expected = {
        "weights": {WEIGHTS[0], WEIGHTS[2]}, "biases": {WEIGHTS[1], WEIGHTS[3]},
        "gradients": set(GRADIENTS), "layers": set(INSIDE), "inputs": {"inputs"},
        "outputs": {"labels", "predictions"}, "losses": {"loss"},
        "metrics": {"accuracy", "batch", "epoch"},
    }  # fmt: skip

    assert {name: set(trial.tensor_names(collection=name)) for name in expected} == expected
    others = set(trial.tensor_names(collection="optimizer_variables"))
    assert set(trial.tensor_names()) == set().union(others, *expected.values())
    assert not others & set().union(*expected.values())


def test_steps_are_counted_in_all_epochs(ordinary: Any) -> None:
    trial, _, _ = ordinary

    assert trial.steps(mode=modes.TRAIN) == list(range(10))
    assert set(trial.modes()) == {modes.TRAIN}


# ---- evaluate and predict


def test_evaluate_saves_what_the_batches_are(tmp_path: Path) -> None:
    model, watcher, hook = make(), Watcher(), saver(tmp_path / "run")
    x, y = data(36)
    model.evaluate(x, y, batch_size=BATCH, verbose=0, callbacks=[hook, watcher])
    hook.close()
    trial = trial_of(tmp_path / "run")

    assert trial.steps(mode=modes.EVAL) == list(range(STEPS))
    assert trial.steps(mode=modes.TRAIN) == []
    for step in range(STEPS):
        assert_forward(trial, step, model, rows_of(step)[0], modes.EVAL)
        assert np.array_equal(value(trial, "labels", step, modes.EVAL).ravel(), rows_of(step)[1])
        for name, number in watcher.logs["test"][step].items():
            assert value(trial, name, step, modes.EVAL)[0] == number
        for name, weights in zip(WEIGHTS, model.get_weights(), strict=True):
            assert np.array_equal(value(trial, name, step, modes.EVAL), weights)
    assert names_at(trial, 0, modes.EVAL) == {
        *WEIGHTS, *INSIDE, *DATA, "loss", "accuracy", "batch"
    }  # fmt: skip


def test_predict_saves_what_the_batches_are(tmp_path: Path) -> None:
    model, hook = make(), saver(tmp_path / "run")
    x, _ = data(36)
    found = model.predict(x, batch_size=BATCH, verbose=0, callbacks=[hook])
    hook.close()
    trial = trial_of(tmp_path / "run")

    assert np.array_equal(
        found, np.concatenate([value(trial, "predictions", s, modes.PREDICT) for s in range(STEPS)])
    )
    for step in range(STEPS):
        assert_forward(trial, step, model, rows_of(step)[0], modes.PREDICT)
    assert names_at(trial, 0, modes.PREDICT) == {
        *WEIGHTS, *INSIDE, "inputs", "predictions", "batch"
    }  # fmt: skip


def test_predict_of_a_model_that_was_never_compiled(tmp_path: Path) -> None:
    seeded()
    model, hook = sequential(), saver(tmp_path / "run")
    x, _ = data(16)
    found = model.predict(x, batch_size=BATCH, verbose=0, callbacks=[hook])
    hook.close()
    trial = trial_of(tmp_path / "run")

    assert np.array_equal(value(trial, "predictions", 1, modes.PREDICT), found[BATCH:])


def test_predict_returns_what_it_returns_without_a_hook(tmp_path: Path) -> None:
    model = make(kind=functional)
    x, _ = data(36)
    expected = model.predict(x, batch_size=BATCH, verbose=0)
    hook = saver(tmp_path / "run", save_config=smd.SaveConfig(save_interval=2))
    found = model.predict(x, batch_size=BATCH, verbose=0, callbacks=[hook])
    hook.close()

    assert np.array_equal(found, expected)


@pytest.mark.parametrize("how", ["data", "split", "dataset"])
def test_validation_is_of_the_mode_eval(how: str, tmp_path: Path) -> None:
    model, watcher, hook = make(), Watcher(), saver(tmp_path / "run")
    x, y = data(36)
    given: Any = {
        "data": {"validation_data": (x[:12], y[:12]), "validation_batch_size": 4},
        "split": {"validation_split": 1 / 3, "validation_batch_size": 4},
        "dataset": {"validation_data": batches(x[:12], y[:12], size=4)},
    }[how]
    history = fit(model, x, y, hook, epochs=2, callbacks=[watcher], **given)
    hook.close()
    trial = trial_of(tmp_path / "run")
    train = 3 if how == "split" else STEPS
    held = x[24:] if how == "split" else x[:12]

    assert trial.steps(mode=modes.TRAIN) == list(range(2 * train))
    assert trial.steps(mode=modes.EVAL) == list(range(6))
    for name in ("val_loss", "val_accuracy"):
        assert steps(trial, name) == [train - 1, 2 * train - 1]
        assert steps(trial, name, modes.EVAL) == []
        assert [value(trial, name, step)[0] for step in steps(trial, name)] == history[name]
    model = copy_of(watcher.after[train - 1])
    for step in range(3):
        assert_forward(trial, step, model, held[4 * step : 4 * step + 4], modes.EVAL)
    model = copy_of(watcher.after[2 * train - 1])
    assert_forward(trial, 5, model, held[8:], modes.EVAL)
    for step, logs in enumerate(watcher.logs["test"]):
        assert value(trial, "loss", step, modes.EVAL)[0] == logs["loss"]
    assert value(trial, "loss", train - 1)[0] == history["loss"][0]
    assert "val_loss" in trial.tensor_names(collection="losses")
    assert "val_accuracy" in trial.tensor_names(collection="metrics")


def test_all_modes_in_one_run(tmp_path: Path) -> None:
    model, hook = make(), saver(tmp_path / "run")
    x, y = data(16)
    fit(model, x, y, hook)
    model.evaluate(x, y, batch_size=BATCH, verbose=0, callbacks=[hook])
    model.predict(x, batch_size=BATCH, verbose=0, callbacks=[hook])
    fit(model, x, y, hook)
    hook.close()
    trial = trial_of(tmp_path / "run")

    assert trial.steps(mode=modes.TRAIN) == [0, 1, 2, 3]
    assert trial.steps(mode=modes.EVAL) == [0, 1]
    assert trial.steps(mode=modes.PREDICT) == [0, 1]
    assert trial.steps() == list(range(8))
    assert [trial.mode(step) for step in range(8)] == [
        modes.TRAIN, modes.TRAIN, modes.EVAL, modes.EVAL, modes.PREDICT, modes.PREDICT,
        modes.TRAIN, modes.TRAIN,
    ]  # fmt: skip
    assert steps(trial, GRADIENTS[0]) == [0, 1, 2, 3]
    assert steps(trial, GRADIENTS[0], modes.EVAL) == []


# ---- reductions


def test_reductions_are_those_of_the_tensors(tmp_path: Path) -> None:
    wanted = ["min", "max", "mean", "std", "variance", "sum", "median"]
    reductions = smd.ReductionConfig(
        reductions=wanted, abs_reductions=["max", "mean"], norms=["l1", "l2"], save_raw_tensor=True
    )
    model = make()
    hook = saver(tmp_path / "run", reduction_config=reductions)
    fit(model, *data(16), hook)
    hook.close()
    trial = trial_of(tmp_path / "run")

    for name in (*GRADIENTS, *INSIDE, KERNEL, "inputs", "predictions"):
        for step in range(2):
            raw = value(trial, name, step).astype(np.float64)
            expected = {
                **{each: getattr(np, {"variance": "var"}.get(each, each))(raw) for each in wanted},
                "l1": np.abs(raw).sum(), "l2": np.sqrt((raw**2).sum()),
            }  # fmt: skip
            for each, number in expected.items():
                saved = trial.tensor(name).reduction_value(step, each, mode=modes.TRAIN)
                assert saved == pytest.approx(number, rel=1e-5, abs=1e-6), (name, each)
            saved = trial.tensor(name).reduction_value(step, "mean", mode=modes.TRAIN, abs=True)
            assert saved == pytest.approx(np.abs(raw).mean(), rel=1e-5)


def test_reductions_alone(tmp_path: Path) -> None:
    hook = saver(tmp_path / "run", ["gradients", "weights"])
    hook.get_collection("gradients").reduction_config = smd.ReductionConfig(norms=["l2"])
    watcher, model = Watcher(), make()
    fit(model, *data(16), hook, callbacks=[watcher])
    hook.close()
    trial = trial_of(tmp_path / "run")
    x, y = rows_of(1, 16)
    expected = own_gradients(copy_of(watcher.before[1]), x, y)

    for name, gradient in zip(GRADIENTS, expected, strict=True):
        saved = trial.tensor(name).reduction_value(1, "l2", mode=modes.TRAIN)
        assert saved == pytest.approx(np.linalg.norm(gradient.astype(np.float64)), rel=1e-5)
        with pytest.raises(TensorUnavailableForStep):
            value(trial, name, 1)
    assert np.array_equal(value(trial, KERNEL, 1), watcher.after[1][0])


# ---- schedules


def test_collections_have_their_own_save_schedules(tmp_path: Path) -> None:
    hook = saver(tmp_path / "run", save_config=smd.SaveConfig(save_interval=4))
    schedules = {
        "gradients": smd.SaveConfig(save_interval=3, start_step=1),
        "layers": smd.SaveConfig(save_interval=5, end_step=9),
        "weights": smd.SaveConfig(save_steps=[7], save_interval=1000),
        "losses": smd.SaveConfig(save_interval=1),
    }
    for name, schedule in schedules.items():
        hook.get_collection(name).save_config = schedule
    model, watcher = make("adam"), Watcher()
    fit(model, *data(40), hook, epochs=3, callbacks=[watcher])
    hook.close()
    trial = trial_of(tmp_path / "run")

    assert steps(trial, GRADIENTS[0]) == [3, 6, 9, 12]
    assert steps(trial, "first/outputs") == [0, 5]
    assert steps(trial, KERNEL) == [0, 7]
    assert steps(trial, BIAS) == [0, 4, 8, 12]
    assert steps(trial, "loss") == list(range(15))
    assert steps(trial, "inputs") == [0, 4, 8, 12]
    # The epochs end at 4, 9 and 14.
    assert steps(trial, "accuracy") == [0, 4, 8, 9, 12, 14]
    assert steps(trial, "batch") == [0, 4, 8, 12]
    for step in (3, 12):
        x, y = rows_of(step, 40)
        for name, expected in zip(
            GRADIENTS, own_gradients(copy_of(watcher.before[step]), x, y), strict=True
        ):
            np.testing.assert_allclose(value(trial, name, step), expected, rtol=1e-5, atol=1e-7)
    for name in ("inputs", "predictions"):
        assert np.isfinite(value(trial, name, 8)).all()
    assert np.array_equal(value(trial, "inputs", 12), rows_of(12, 40)[0])


def test_metrics_begin_again_with_every_epoch(tmp_path: Path) -> None:
    hook, model, watcher = saver(tmp_path / "run"), make("adam"), Watcher()
    fit(model, *data(40), hook, epochs=2, callbacks=[watcher])
    hook.close()
    trial = trial_of(tmp_path / "run")

    right = []
    for step in range(10):
        x, y = rows_of(step, 40)
        found = copy_of(watcher.before[step]).predict(x, verbose=0).argmax(axis=1)
        right.append((found == np.asarray(y).reshape(-1)).mean())
    for step in range(10):
        # Of an epoch so far; an epoch has five steps.
        expected = np.mean(right[step - step % 5 : step + 1])
        assert value(trial, "accuracy", step) == pytest.approx(expected, abs=1e-6), step


def test_modes_have_their_own_save_schedules(tmp_path: Path) -> None:
    schedule = smd.SaveConfig(
        {
            modes.TRAIN: smd.SaveConfigMode(save_interval=3),
            modes.EVAL: smd.SaveConfigMode(save_interval=2, start_step=1),
            modes.PREDICT: smd.SaveConfigMode(save_steps=[1], save_interval=1000, start_step=1),
        }
    )
    hook = saver(tmp_path / "run", save_config=schedule)
    model = make()
    x, y = data(40)
    fit(model, x, y, hook, validation_data=(x, y))
    model.predict(x, batch_size=BATCH, verbose=0, callbacks=[hook])
    hook.close()
    trial = trial_of(tmp_path / "run")

    for name in (KERNEL, "inputs", "first/outputs", "predictions"):
        assert steps(trial, name) == [0, 3]
        assert steps(trial, name, modes.EVAL) == [2, 4]
        assert steps(trial, name, modes.PREDICT) == [1]
    assert steps(trial, GRADIENTS[0]) == [0, 3]
    assert steps(trial, "loss", modes.EVAL) == [2, 4]
    assert steps(trial, "val_loss") == [4]


@pytest.mark.parametrize("kind", [sequential, Subclassed])
def test_a_late_start(kind: Any, tmp_path: Path) -> None:
    hook = saver(tmp_path / "run", save_config=smd.SaveConfig(save_interval=1, start_step=7))
    model, watcher = make(kind=kind), Watcher()
    fit(model, *data(40), hook, epochs=2, callbacks=[watcher])
    hook.close()
    trial = trial_of(tmp_path / "run")

    assert steps(trial, GRADIENTS[0]) == [7, 8, 9]
    assert steps(trial, "first/outputs") == [7, 8, 9]
    assert steps(trial, "epoch") == [4, 9]
    assert steps(trial, "accuracy") == [4, 7, 8, 9]
    assert_inside(trial, 7, watcher.before[7], *rows_of(7, 40))


def test_save_steps(tmp_path: Path) -> None:
    schedule = smd.SaveConfig(save_steps=[1, 4, 6], save_interval=1000, start_step=1)
    hook = saver(tmp_path / "run", save_config=schedule)
    model, watcher = make(), Watcher()
    fit(model, *data(40), hook, epochs=2, callbacks=[watcher])
    hook.close()
    trial = trial_of(tmp_path / "run")

    assert steps(trial, GRADIENTS[0]) == [1, 4, 6]
    for step in (1, 4, 6):
        assert_inside(trial, step, watcher.before[step], *rows_of(step, 40))


def test_default_collections_are_saved(tmp_path: Path) -> None:
    hook = smd.KerasHook(tmp_path / "run", save_config=smd.SaveConfig(save_interval=2))
    fit(make(), *data(40), hook)
    hook.close()
    trial = trial_of(tmp_path / "run")

    assert set(trial.tensor_names()) == {"loss", "accuracy", "batch", "epoch"}
    assert steps(trial, "loss") == [0, 2, 4]


def test_regex_selects_one_tensor_of_each_kind(tmp_path: Path) -> None:
    hook = saver(tmp_path / "run", [], include_regex=["^gradients/second/bias", "first/outputs$"])
    fit(make(), *data(16), hook)
    hook.close()
    trial = trial_of(tmp_path / "run")

    assert set(trial.tensor_names()) == {
        "gradients/second/biasGrad", "first/outputs", "loss", "accuracy", "batch", "epoch"
    }  # fmt: skip


@pytest.mark.parametrize("pattern", ["^gradients/second/", "^second/outputs$", "^second/weights/"])
@pytest.mark.parametrize("kind", ["subclassed", "sequential"])
def test_a_regex_for_a_model_that_is_not_built(kind: str, pattern: str, tmp_path: Path) -> None:
    seeded()
    model: Any = Subclassed()
    if kind == "sequential":
        model = keras.Sequential(
            [keras.layers.Dense(4, name="first"), keras.layers.Dense(CLASSES, name="second")]
        )
    compiled(model, jit_compile=False)
    hook = saver(tmp_path / "run", [], include_regex=[pattern])
    fit(model, *data(24), hook)
    hook.close()
    trial = trial_of(tmp_path / "run")
    found = trial.tensor_names(regex=pattern)

    assert found
    for name in found:
        assert steps(trial, name) == [0, 1, 2]


# ---- where data comes from


class Rows(getattr(keras.utils, "PyDataset", keras.utils.Sequence)):  # type: ignore[misc]
    """Batches by number."""

    def __init__(self) -> None:
        if KERAS_3:
            super().__init__()

    def __len__(self) -> int:
        return STEPS

    def __getitem__(self, index: int) -> Any:
        return rows_of(index)


def generated() -> Iterator[Any]:
    while True:
        for step in range(STEPS):
            yield rows_of(step)


@pytest.mark.parametrize("source", ["arrays", "tensors", "dataset", "unknown", "dict", "sequence"])
def test_sources_of_data(source: str, tmp_path: Path) -> None:
    x, y = data(36)
    given: Any = {
        "arrays": (x, y),
        "tensors": (tf.constant(x), tf.constant(y)),
        "dataset": (batches(x, y), None),
        "unknown": (batches(x, y).filter(lambda *_: True), None),
        "dict": (batches({"given": x}, y), None),
        "sequence": (Rows(), None),
    }[source]
    model, watcher, hook = make(kind=sequential), Watcher(), saver(tmp_path / "run")
    if source == "dict":
        model = make(kind=named_input)
    fit(model, given[0], given[1], hook, epochs=2, callbacks=[watcher])
    hook.close()
    trial = trial_of(tmp_path / "run")

    assert steps(trial, GRADIENTS[0]) == list(range(10))
    for step in (0, 4, 6):
        assert_inside(trial, step, watcher.before[step], *rows_of(step))


def named_input() -> Any:
    given = keras.Input((FEATURES,), name="given")
    inner = keras.layers.Dense(8, "relu", name="first")(given)
    return keras.Model({"given": given}, keras.layers.Dense(CLASSES, name="second")(inner))


def test_a_generator(tmp_path: Path) -> None:
    model, watcher, hook = make(), Watcher(), saver(tmp_path / "run")
    fit(model, generated(), None, hook, steps_per_epoch=3, epochs=2, callbacks=[watcher])
    hook.close()
    trial = trial_of(tmp_path / "run")

    assert steps(trial, GRADIENTS[0]) == list(range(6))
    assert steps(trial, "epoch") == [2, 5]
    for step in range(6):
        assert_inside(trial, step, watcher.before[step], *rows_of(step))


def test_shuffled_rows_are_those_that_were_trained(tmp_path: Path) -> None:
    model, watcher, hook = make(), Watcher(), saver(tmp_path / "run")
    fit(model, *data(36), hook, shuffle=True, callbacks=[watcher])
    hook.close()
    trial = trial_of(tmp_path / "run")

    for step in range(STEPS):
        x, y = value(trial, "inputs", step), value(trial, "labels", step).reshape(-1)
        assert_inside(trial, step, watcher.before[step], x, y)
    rows = np.concatenate([value(trial, "inputs", step) for step in range(STEPS)])
    assert {row.tobytes() for row in rows} == {row.tobytes() for row in data(36)[0]}


# ---- weights of classes and rows


def test_class_weights(tmp_path: Path) -> None:
    model, watcher, hook = make(), Watcher(), saver(tmp_path / "run")
    weight = {0: 1.0, 1: 4.0, 2: 0.25}
    fit(model, *data(16), hook, class_weight=weight, callbacks=[watcher])
    hook.close()
    trial = trial_of(tmp_path / "run")
    x, y = rows_of(1, 16)
    of_rows = tf.constant([weight[each] for each in y.tolist()])

    assert_inside(trial, 1, watcher.before[1], x, y, sample_weight=of_rows)


@pytest.mark.parametrize("as_dataset", [False, True])
def test_row_weights(as_dataset: bool, tmp_path: Path) -> None:
    model, watcher, hook = make(), Watcher(), saver(tmp_path / "run")
    x, y = data(16)
    weight = np.linspace(0, 3, 16).astype(np.float32)
    if as_dataset:
        fit(model, batches(x, y, weight), None, hook, callbacks=[watcher])
    else:
        fit(model, x, y, hook, sample_weight=weight, callbacks=[watcher])
    hook.close()
    trial = trial_of(tmp_path / "run")

    assert set(trial.tensor_names(collection="inputs")) == {"inputs"}
    x, y = rows_of(1, 16)
    assert_inside(trial, 1, watcher.before[1], x, y, sample_weight=tf.constant(weight[8:]))


# ---- several steps at once, XLA, eager


@pytest.mark.parametrize("at_once", [2, 3, 8])
def test_several_steps_at_once(at_once: int, tmp_path: Path) -> None:
    """Such a step is looked at from outside."""
    model, watcher = make("adam", steps_per_execution=at_once), Watcher()
    hook = saver(tmp_path / "run")
    fit(model, *data(40), hook, epochs=2, callbacks=[watcher])
    hook.close()
    trial = trial_of(tmp_path / "run")
    in_epoch = -(-STEPS // at_once)
    count = 2 * in_epoch

    assert len(watcher.before) == count
    assert int(model.optimizer.iterations) == 2 * STEPS
    assert not set(trial.tensor_names()) & {*GRADIENTS, *INSIDE, *DATA}
    for step in range(count):
        for name, weights in zip(WEIGHTS, watcher.after[step], strict=True):
            assert np.array_equal(value(trial, name, step), weights)
        assert value(trial, "loss", step)[0] == watcher.logs["train"][step]["loss"]
    names = trial.tensor_names(collection="optimizer_variables")
    saved = sorted(value(trial, name, 1).reshape(-1).tolist() for name in names)
    assert saved == sorted(each.reshape(-1).tolist() for each in watcher.optimizer[1])
    assert steps(trial, "epoch") == [in_epoch - 1, count - 1]


def test_several_steps_at_once_in_an_evaluation(tmp_path: Path) -> None:
    model, watcher, hook = make(steps_per_execution=2), Watcher(), saver(tmp_path / "run")
    x, y = data(40)
    expected = model.evaluate(x, y, batch_size=BATCH, verbose=0)
    found = model.evaluate(x, y, batch_size=BATCH, verbose=0, callbacks=[hook, watcher])
    hook.close()
    trial = trial_of(tmp_path / "run")

    assert found == expected
    assert steps(trial, KERNEL, modes.EVAL) == [0, 1, 2]
    for step, logs in enumerate(watcher.logs["test"]):
        assert value(trial, "loss", step, modes.EVAL)[0] == logs["loss"]


XLA = [True, "auto"] if KERAS_3 else [True]


@pytest.mark.parametrize("jit_compile", XLA)
def test_by_xla(jit_compile: Any, tmp_path: Path) -> None:
    model, watcher, hook = make(jit_compile=jit_compile), Watcher(), saver(tmp_path / "run")
    fit(model, *data(16), hook, callbacks=[watcher])
    hook.close()
    trial = trial_of(tmp_path / "run")

    for step in range(2):
        assert_inside(trial, step, watcher.before[step], *rows_of(step, 16))
        assert np.array_equal(value(trial, KERNEL, step), watcher.after[step][0])


def test_eagerly(tmp_path: Path) -> None:
    model, watcher, hook = make(run_eagerly=True), Watcher(), saver(tmp_path / "run")
    x, y = data(20)
    fit(model, x, y, hook, callbacks=[watcher], validation_data=(x, y))
    model.predict(x, batch_size=BATCH, verbose=0, callbacks=[hook])
    hook.close()
    trial = trial_of(tmp_path / "run")

    for step in range(3):
        assert_inside(trial, step, watcher.before[step], *rows_of(step, 20))
        assert np.array_equal(value(trial, KERNEL, step), watcher.after[step][0])
        for mode in (modes.EVAL, modes.PREDICT):
            assert_forward(trial, step, model, rows_of(step, 20)[0], mode)


# ---- several training runs with one hook


def test_a_new_optimizer_of_the_same_kind(tmp_path: Path) -> None:
    model, hook = make("adam"), saver(tmp_path / "run")
    fit(model, *data(16), hook)
    compiled(model, keras.optimizers.Adam(0.5), jit_compile=False)
    watcher = Watcher()
    fit(model, *data(16), hook, callbacks=[watcher])
    hook.close()
    trial = trial_of(tmp_path / "run")
    names = trial.tensor_names(collection="optimizer_variables")
    at_three = [name for name in names if 3 in steps(trial, name)]

    saved = sorted(value(trial, name, 3).reshape(-1).tolist() for name in at_three)
    assert saved == sorted(each.reshape(-1).tolist() for each in watcher.optimizer[1])


def test_freezing_a_layer_between_two_training_runs(tmp_path: Path) -> None:
    model, hook = make(), saver(tmp_path / "run")
    fit(model, *data(16), hook)
    model.get_layer("first").trainable = False
    compiled(model, jit_compile=False)
    fit(model, *data(16), hook)
    hook.close()
    trial = trial_of(tmp_path / "run")

    assert steps(trial, GRADIENTS[0]) == [0, 1]
    assert steps(trial, GRADIENTS[2]) == [0, 1, 2, 3]
    assert steps(trial, KERNEL) == [0, 1, 2, 3]
    assert np.array_equal(value(trial, KERNEL, 1), value(trial, KERNEL, 3))


def test_another_model_with_the_same_hook(tmp_path: Path) -> None:
    hook, watchers = saver(tmp_path / "run"), [Watcher(), Watcher()]
    for number, watcher in enumerate(watchers):
        seeded(number)
        model = compiled(sequential(), jit_compile=False)
        fit(model, *data(16), hook, callbacks=[watcher])
    hook.close()
    trial = trial_of(tmp_path / "run")

    assert not np.array_equal(watchers[0].before[0][0], watchers[1].before[0][0])
    for step in range(4):
        watcher = watchers[step // 2]
        assert_inside(trial, step, watcher.before[step % 2], *rows_of(step % 2, 16))
        assert np.array_equal(value(trial, KERNEL, step), watcher.after[step % 2][0])


def test_an_epoch_with_a_larger_batch(tmp_path: Path) -> None:
    model, watcher, hook = make(), Watcher(), saver(tmp_path / "run")
    fit(model, *data(16), hook, callbacks=[watcher])
    fit(model, *data(16), hook, batch_size=16, callbacks=[watcher])
    hook.close()
    trial = trial_of(tmp_path / "run")

    assert_inside(trial, 2, watcher.before[2], *data(16))


def test_a_metric_with_the_name_of_a_tensor(tmp_path: Path) -> None:
    """What the model is given stays what it was: two tensors have not one name."""
    model = make(metrics=[keras.metrics.SparseCategoricalAccuracy(name="predictions")])
    hook = saver(tmp_path / "run")
    fit(model, *data(16), hook)
    hook.close()
    trial = trial_of(tmp_path / "run")

    assert value(trial, "predictions", 0).shape == (BATCH, CLASSES)
