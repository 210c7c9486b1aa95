"""When something fails: in saving, in the model's own step, or in its data."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf
from tests.tensorflow.models import SEED_WARNING

import smdebug.tensorflow as smd
from smdebug.exceptions import InvalidCollectionConfiguration, WriteFailed
from smdebug.storage.format.keys import END_KEY

if TYPE_CHECKING:
    from pathlib import Path

    from smdebug.reductions import Array

keras: Any = tf.keras
EVERY = smd.SaveConfig(save_interval=1)
INSIDE = ["weights", "gradients", "layers", "inputs", "outputs"]

# Keras calls numpy 2 in the way of numpy 1.
pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning:keras"),
    pytest.mark.filterwarnings(SEED_WARNING),
]


def in_the_way(out_dir: Path, folder: str = "events") -> Path:
    """A directory that cannot be created: a file has its path."""
    out_dir.mkdir(exist_ok=True)
    (out_dir / folder).write_text("in the way")
    return out_dir


def data(rows: int = 12) -> tuple[Array, Array]:
    x = np.random.default_rng(1).normal(size=(rows, 3)).astype(np.float32)
    return x, x[:, :1]


def build(kind: Any = None, **options: Any) -> Any:
    keras.utils.set_random_seed(3)
    model = (kind or keras.Sequential)(
        [
            keras.layers.Input((3,)),
            keras.layers.Dense(4, activation="relu", name="first"),
            keras.layers.Dropout(0.5, seed=7, name="dropout"),
            keras.layers.Dense(1, name="last"),
        ]
    )
    model.compile(keras.optimizers.SGD(0.1), "mse", **options)
    return model


class Flushing(keras.callbacks.Callback):
    """Flushes after every batch, so that a failure is met by the next."""

    def __init__(self, hook: smd.KerasHook) -> None:
        super().__init__()
        self.hook = hook

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.hook.flush()


def fit(model: Any, *callbacks: Any, epochs: int = 2) -> list[Array]:
    x, y = data()
    model.fit(
        x, y, batch_size=4, epochs=epochs, shuffle=False, verbose=0, callbacks=list(callbacks)
    )
    weights: list[Array] = model.get_weights()
    return weights


def same(first: list[Array], second: list[Array]) -> bool:
    return all(np.array_equal(one, other) for one, other in zip(first, second, strict=True))


def errors_in(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [
        record
        for record in caplog.records
        if record.levelno >= logging.ERROR and record.name == "smdebug.hook"
    ]


def hooked(out_dir: Path, **options: Any) -> smd.KerasHook:
    options = {"include_collections": INSIDE, "save_config": EVERY, **options}
    return smd.KerasHook(out_dir, **options)


# ---- saving fails


@pytest.mark.parametrize(
    ("format", "folder", "flush"),
    [("v1", "events", True), ("v2", "index", True), ("v2", "events", False),
     ("v1", "collections", False)],
)  # fmt: skip
def test_training_is_not_affected_if_nothing_can_be_saved(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, format: str, folder: str, flush: bool
) -> None:
    expected = fit(build())
    out_dir = in_the_way(tmp_path / "run", folder)
    hook = hooked(out_dir, format=format)
    model = build()
    more = [Flushing(hook)] if flush else []
    assert same(fit(model, hook, *more), expected)
    assert "FunctionProxy" not in type(model.train_function).__name__
    hook.close()
    (error,) = errors_in(caplog)
    assert error.exc_info is not None
    assert isinstance(error.exc_info[1], WriteFailed)
    assert "saving has stopped" in error.getMessage()
    assert "is not complete" in caplog.text
    assert not (out_dir / END_KEY).exists()


def test_lost_steps_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    hook = hooked(tmp_path / "run", flush_seconds=1000)

    class Gone(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch == 1:
                hook.flush()
                # The directory is gone, and a file has its path.
                (tmp_path / "run").rename(tmp_path / "elsewhere")
                (tmp_path / "run").write_text("in the way")

    fit(build(), hook, Gone(), epochs=1)
    hook.close()
    (error,) = errors_in(caplog)
    assert "lost" in error.getMessage()
    assert smd.create_trial(tmp_path / "elsewhere").steps() == [0, 1]


def test_a_directory_that_cannot_be_made_is_a_failure_like_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("in the way")
    expected = fit(build())
    hook = hooked(tmp_path / "file" / "run")
    assert same(fit(build(), hook), expected)
    hook.save_scalar("x", 1.0)
    hook.save_tensor("y", tf.ones(2))
    hook.record_tensor_value("loss", tf.ones(1))
    hook.flush()
    hook.close()
    assert len(errors_in(caplog)) == 1
    assert (tmp_path / "file").read_text() == "in the way"


def test_on_error_raise_raises_in_fit(tmp_path: Path) -> None:
    hook = hooked(in_the_way(tmp_path / "run"), on_error="raise")
    model = build()
    with pytest.raises(WriteFailed, match="could not write"):
        fit(model, hook, Flushing(hook))
    # Raised once: training may catch it and continue.
    fit(model, hook)
    hook.close()
    assert "FunctionProxy" not in type(model.train_function).__name__


def test_a_queue_for_less_than_one_step_makes_training_wait_and_loses_nothing(
    tmp_path: Path,
) -> None:
    expected = fit(build())
    hook = hooked(tmp_path, queue_bytes=1, on_error="raise")
    assert same(fit(build(), hook), expected)
    hook.close()
    trial = smd.create_trial(tmp_path)
    assert trial.tensor("gradients/first/kernelGrad").steps() == list(range(6))
    assert trial.tensor("first/outputs").steps() == list(range(6))


class Odd(keras.callbacks.Callback):
    """Puts something into the logs that is no number."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        logs["odd"] = object()
        logs["text"] = "text"
        logs["several"] = np.ones(3)
        logs["none"] = None


def test_logs_of_other_callbacks_are_ignored(tmp_path: Path) -> None:
    hook = hooked(tmp_path, include_collections=["losses"], on_error="raise")
    fit(build(run_eagerly=True), Odd(), hook, epochs=1)
    hook.close()
    assert smd.create_trial(tmp_path).tensor_names() == ["batch", "epoch", "loss"]


def test_a_failure_inside_the_hook_leaves_training_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Breaks(float):
        """A number that cannot be read."""

        def __float__(self) -> float:
            raise ZeroDivisionError("not me")

        def __array__(self, *args: Any, **kwargs: Any) -> Any:
            raise ZeroDivisionError("not me")

    class Puts(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            logs["breaks"] = Breaks(1.0)

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            logs["breaks"] = Breaks(1.0)

    expected = fit(build())
    hook = hooked(tmp_path)
    model = build()
    assert same(fit(model, Puts(), hook), expected)
    hook.close()
    assert len(errors_in(caplog)) <= 1
    assert "FunctionProxy" not in type(model.train_function).__name__


@pytest.mark.parametrize("on_error", ["warn", "raise"])
def test_invalid_configuration_raises_with_any_on_error(tmp_path: Path, on_error: str) -> None:
    hook = hooked(tmp_path, include_collections=["mine"], on_error=on_error)
    model = build(run_eagerly=True)
    with pytest.raises(InvalidCollectionConfiguration, match="mine"):
        fit(model, hook, epochs=1)
    hook.close()


# ---- the model's own step fails


def model_of(step: Any, **options: Any) -> Any:
    """A model with a step that is a function of the model, the step of Keras and the data."""

    class Own(keras.Sequential):
        def train_step(self, batch: Any) -> Any:
            return step(self, super().train_step, batch)

    return build(Own, **options)


def outcome(model: Any, *callbacks: Any) -> tuple[type | None, str]:
    """What a fit ends with: the exception and the first line of what it says."""
    try:
        fit(model, *callbacks)
    except Exception as error:
        return type(error), str(error).partition("\n")[0]
    return None, ""


def at_tracing(model: Any, step: Any, batch: Any) -> Any:
    raise ZeroDivisionError("in the step")


def at_running(model: Any, step: Any, batch: Any) -> Any:
    counted = tf.convert_to_tensor(model.optimizer.iterations)
    with tf.control_dependencies([tf.debugging.assert_less(counted, tf.cast(3, counted.dtype))]):
        return step(batch)


def wrong_shapes(model: Any, step: Any, batch: Any) -> Any:
    x, y = batch[:2]
    return step((tf.concat([x, x], 1), y))


@pytest.mark.parametrize("step", [at_tracing, at_running, wrong_shapes])
@pytest.mark.parametrize("interval", [1, 2])
def test_a_step_that_fails_fails_the_same_way(tmp_path: Path, step: Any, interval: int) -> None:
    plain, model = model_of(step), model_of(step)
    hook = hooked(tmp_path, save_config=smd.SaveConfig(save_interval=interval), on_error="raise")
    expected, found = outcome(plain), outcome(model, hook)
    assert expected[0] is not None
    assert found[0] is expected[0]
    if step is not at_running:
        assert found[1] == expected[1]
    hook.close()
    assert same(plain.get_weights(), model.get_weights())
    assert type(model.train_function) is type(plain.train_function)
    if step is at_running:
        assert smd.create_trial(tmp_path).tensor("loss").steps()[-1] < 3


def test_a_model_whose_step_cannot_be_traced_again(tmp_path: Path) -> None:
    def traced_at_most(limit: float) -> tuple[Any, list[int]]:
        traces: list[int] = []

        def step(model: Any, original: Any, batch: Any) -> Any:
            if len(traces) >= limit:
                raise RuntimeError("traced too often")
            traces.append(1)
            return original(batch)

        return model_of(step), traces

    plain, traces = traced_at_most(np.inf)
    expected = fit(plain)
    # As often as Keras itself needs, and not once more.
    model, _ = traced_at_most(len(traces))
    hook = hooked(tmp_path, save_config=smd.SaveConfig(save_interval=2))
    assert same(fit(model, hook), expected)
    hook.close()
    assert smd.create_trial(tmp_path).tensor("loss").steps() == [0, 2, 4, 5]


def test_a_function_that_does_not_run_the_step(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Own(keras.Sequential):
        def make_train_function(self, force: bool = False) -> Any:
            def function(iterator: Any) -> Any:
                next(iter(iterator))
                return {"loss": tf.constant(7.0)}

            self.train_function = function
            return function

    hook = hooked(tmp_path)
    model = build(Own)
    weights = model.get_weights()
    assert same(fit(model, hook, epochs=1), weights)
    hook.close()
    trial = smd.create_trial(tmp_path)
    assert trial.tensor("loss").value(0).tolist() == [7.0]
    assert "first/weights/first/kernel:0" in trial.tensor_names()
    assert caplog.text.count("are not saved") == 1
    assert not errors_in(caplog)


# ---- the data


def batches(count: int, error: type[Exception] | None = None) -> Any:
    def generate() -> Any:
        x, y = data()
        for _ in range(count):
            yield x[:4], y[:4]
        if error is not None:
            raise error("no more")

    signature = (tf.TensorSpec((4, 3), tf.float32), tf.TensorSpec((4, 1), tf.float32))
    return tf.data.Dataset.from_generator(generate, output_signature=signature)


@pytest.mark.filterwarnings("ignore:Your input ran out of data:UserWarning")
def test_data_that_runs_out(tmp_path: Path) -> None:
    plain, model = build(), build()
    plain.fit(batches(5), epochs=2, steps_per_epoch=4, verbose=0, shuffle=False)
    hook = hooked(tmp_path, on_error="raise")
    model.fit(batches(5), epochs=2, steps_per_epoch=4, verbose=0, shuffle=False, callbacks=[hook])
    assert same(plain.get_weights(), model.get_weights())
    assert type(plain.train_function) is type(model.train_function)
    hook.close()
    steps = smd.create_trial(tmp_path).tensor("gradients/first/kernelGrad").steps()
    assert steps == list(range(5))


@pytest.mark.filterwarnings("ignore:Your input ran out of data:UserWarning")
@pytest.mark.parametrize("interval", [1, 2])
def test_data_of_unknown_length(tmp_path: Path, interval: int) -> None:
    plain, model = build(), build()
    plain.fit(batches(3), epochs=2, verbose=0, shuffle=False)
    hook = hooked(tmp_path, save_config=smd.SaveConfig(save_interval=interval), on_error="raise")
    model.fit(batches(3), epochs=2, verbose=0, shuffle=False, callbacks=[hook])
    hook.close()
    assert same(plain.get_weights(), model.get_weights())
    trial = smd.create_trial(tmp_path)
    gradients = trial.tensor("gradients/first/kernelGrad")
    # In Keras a batch begins that does not come: it is no step with tensors.
    assert len(gradients.steps()) == -(-6 // interval)
    assert all(len(gradients.value(step)) == 3 for step in gradients.steps())


def test_data_that_fails(tmp_path: Path) -> None:
    plain, model = build(), build()
    with pytest.raises(tf.errors.OpError):
        plain.fit(batches(2, ZeroDivisionError), verbose=0, shuffle=False)
    hook = hooked(tmp_path, on_error="raise")
    with pytest.raises(tf.errors.OpError):
        model.fit(batches(2, ZeroDivisionError), verbose=0, shuffle=False, callbacks=[hook])
    hook.close()
    assert same(plain.get_weights(), model.get_weights())
    assert smd.create_trial(tmp_path).tensor("gradients/first/kernelGrad").steps() == [0, 1]
