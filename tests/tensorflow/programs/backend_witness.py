"""Trains Keras 3 on PyTorch or JAX, one scenario after the other.

    KERAS_BACKEND=torch python backend_witness.py <folder> <scenario> [<scenario> ...]

Each scenario has a folder of its name: `run` is what the hook saved, `truth.pickle` what Keras and
computations of our own say. With BLOCK_TENSORFLOW=1 there is no TensorFlow.
"""

from __future__ import annotations

import functools
import importlib.machinery
import logging
import os
import pickle
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class Without(importlib.machinery.PathFinder):
    """Finds no TensorFlow, as where it is not installed."""

    @classmethod
    def find_spec(cls, fullname: str, path: Any = None, target: Any = None) -> Any:
        if fullname.split(".")[0] == "tensorflow":
            return None
        return super().find_spec(fullname, path, target)


if os.environ.get("BLOCK_TENSORFLOW"):
    place = sys.meta_path.index(importlib.machinery.PathFinder)
    sys.meta_path[place] = Without

import keras  # noqa: E402
import numpy as np  # noqa: E402

import smdebug.tensorflow as smd  # noqa: E402

BATCH = 4
EVERY = smd.SaveConfig(save_interval=1)
TORCH = keras.backend.backend() == "torch"


class Witness(keras.callbacks.Callback):
    """Takes down what the model is before and after every batch, and what Keras reports."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[dict[str, Any]] = []

    def _weights(self) -> Any:
        if hasattr(self.model, "jax_state_sync"):
            self.model.jax_state_sync()
        return self.model.get_weights()

    def _begin(self, mode: str, batch: int) -> None:
        self.steps.append({"mode": mode, "batch": batch, "before": self._weights()})

    def _end(self, logs: Any) -> None:
        numbers = {name: float(value) for name, value in (logs or {}).items()}
        after = self._weights()
        optimizer = getattr(self.model, "optimizer", None)
        slots = [] if optimizer is None else optimizer.variables
        values = {each.path: np.array(keras.ops.convert_to_numpy(each)) for each in slots}
        self.steps[-1].update(after=after, logs=numbers, optimizer=values)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._begin("TRAIN", batch)

    def on_test_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._begin("EVAL", batch)

    def on_predict_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._begin("PREDICT", batch)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._end(logs)

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        self._end(logs)

    def on_predict_batch_end(self, batch: int, logs: Any = None) -> None:
        self._end(None)


class Scenario:
    """A training run with or without the hook."""

    def __init__(self, folder: Path, hooked: bool) -> None:
        self.folder, self.hooked = folder, hooked
        self.witness = Witness()
        self.hooks: list[Any] = []

    def callbacks(self, **options: Any) -> list[Any]:
        if self.hooked and not self.hooks:
            given = {"save_config": EVERY, "save_all": True, "on_error": "raise"}
            self.hooks = [smd.KerasHook(self.folder / "run", **{**given, **options})]
        return [*self.hooks, self.witness]

    def finish(self, model: Any, **more: Any) -> None:
        for hook in self.hooks:
            hook.close()
        truth = {"final": model.get_weights(), "steps": self.witness.steps, **more}
        with (self.folder / "truth.pickle").open("wb") as file:
            pickle.dump(truth, file)


def rows(count: int) -> tuple[Any, Any]:
    random = np.random.default_rng(0)
    x = random.normal(size=(count, 4)).astype(np.float32)
    return x, random.normal(size=(count, 2)).astype(np.float32)


def dense(units: int, name: str, activation: str | None = None) -> Any:
    return keras.layers.Dense(units, activation, name=name)


def normed() -> Any:
    layers = [dense(3, "first", "tanh"), keras.layers.BatchNormalization(name="norm")]
    return keras.Sequential([keras.Input((4,)), *layers, dense(2, "last")])


def plain() -> Any:
    return keras.Sequential([keras.Input((4,)), dense(3, "first", "tanh"), dense(2, "last")])


def dropping() -> Any:
    layers = [dense(8, "first", "relu"), keras.layers.Dropout(0.4, name="drop")]
    return keras.Sequential([keras.Input((4,)), *layers, dense(2, "last")])


def compiled(make: Callable[[], Any], optimizer: Any = None, **options: Any) -> Any:
    keras.utils.set_random_seed(5)
    model = make()
    model.compile(optimizer or keras.optimizers.SGD(0.1, 0.9), "mse", **options)
    return model


def inside(step: dict[str, Any], x: Any, y: Any) -> dict[str, Any]:
    """The tensors inside a step of `normed`, computed by PyTorch alone."""
    import torch

    names = ["kernel", "bias", "gamma", "beta", "mean", "variance", "kernel2", "bias2"]
    parts = {n: torch.tensor(v) for n, v in zip(names, step["before"], strict=True)}
    slopes_of = ["kernel", "bias", "gamma", "beta", "kernel2", "bias2"]
    for name in slopes_of:
        parts[name].requires_grad_()
    given, labels = torch.tensor(x), torch.tensor(y)
    hidden = torch.tanh(given @ parts["kernel"] + parts["bias"])
    mean, variance = parts["mean"], parts["variance"]
    if step["mode"] == "TRAIN":
        mean, variance = hidden.mean(0), hidden.var(0, unbiased=False)
    normal = (hidden - mean) / torch.sqrt(variance + 1e-3) * parts["gamma"] + parts["beta"]
    result = normal @ parts["kernel2"] + parts["bias2"]
    seen = {
        "inputs": given, "first/inputs": given, "first/outputs": hidden, "norm/inputs": hidden,
        "norm/outputs": normal, "last/inputs": normal, "last/outputs": result,
        "predictions": result,
    }  # fmt: skip
    if step["mode"] != "PREDICT":
        seen["labels"] = labels
    if step["mode"] == "TRAIN":
        loss = ((result - labels) ** 2).mean()
        slopes = torch.autograd.grad(loss, [parts[name] for name in slopes_of])
        paths = ["first/kernel", "first/bias", "norm/gamma", "norm/beta"]
        paths += ["last/kernel", "last/bias"]
        for path, slope in zip(paths, slopes, strict=True):
            seen[f"gradients/{path}Grad"] = slope
    return {name: value.detach().numpy() for name, value in seen.items()}


# ---- scenarios


def everything(run: Scenario) -> None:
    """Trains with validation, evaluates and predicts; the last batches are not full."""
    x, y = rows(10)
    model = compiled(normed, metrics=["mae"])
    callbacks = run.callbacks()
    history = model.fit(
        x, y, batch_size=BATCH, epochs=2, shuffle=False, verbose=0, callbacks=callbacks,
        validation_data=(x[:6], y[:6]), validation_batch_size=BATCH,
    )  # fmt: skip
    score = model.evaluate(x[:6], y[:6], batch_size=BATCH, verbose=0, callbacks=callbacks)
    predicted = model.predict(x, batch_size=BATCH, verbose=0, callbacks=callbacks)
    if TORCH:
        for step in run.witness.steps:
            x_part, y_part = (each[BATCH * step["batch"] :][:BATCH] for each in (x, y))
            if step["mode"] == "EVAL":
                x_part, y_part = (each[:6][BATCH * step["batch"] :][:BATCH] for each in (x, y))
            step["inside"] = inside(step, x_part, y_part)
    # Whatever was looked at, the model is what it was.
    again = model.predict(x, batch_size=BATCH, verbose=0)
    model.save(run.folder / "model.keras")
    loaded = keras.models.load_model(run.folder / "model.keras").predict(x, verbose=0)
    run.finish(
        model, history=history.history, score=score, predicted=predicted, again=again,
        loaded=loaded,
    )  # fmt: skip


def dropout(run: Scenario) -> None:
    x, y = rows(20)
    model = compiled(dropping, keras.optimizers.Adam(0.05))
    callbacks = run.callbacks(save_config=smd.SaveConfig(save_interval=2))
    model.fit(x, y, batch_size=BATCH, epochs=2, verbose=0, callbacks=callbacks)
    run.finish(model)


def jit(run: Scenario) -> None:
    if TORCH:
        import torch

        # As any compiler sees it, without one of C++.
        torch.compile = functools.partial(torch.compile, backend="eager")
        torch._dynamo.config.recompile_limit = 1
    x, y = rows(12)
    model = compiled(plain, keras.optimizers.SGD(0.1), jit_compile=True)
    callbacks = run.callbacks(save_config=smd.SaveConfig(save_interval=2))
    model.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0, callbacks=callbacks)
    run.finish(model)


def numbers(run: Scenario) -> None:
    """Only reductions, and not at every step."""
    x, y = rows(16)
    model = compiled(normed)
    callbacks = run.callbacks(
        save_all=False, include_collections=["weights", "gradients"],
        save_config=smd.SaveConfig(save_interval=2),
        reduction_config=smd.ReductionConfig(["mean"], norms=["l2"]),
    )  # fmt: skip
    model.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0, callbacks=callbacks)
    run.finish(model)


def inplace(run: Scenario) -> None:
    """Layers that write to what they are given."""

    class InPlace(keras.layers.Layer):
        def call(self, x: Any) -> Any:
            return x.mul_(2.0) if hasattr(x, "mul_") else x * 2.0

        def compute_output_shape(self, shape: Any) -> Any:
            return shape

    x, y = rows(12)

    def make() -> Any:
        layers = [dense(3, "first"), InPlace(name="double"), dense(2, "last")]
        return keras.Sequential([keras.Input((4,)), *layers])

    model = compiled(make)
    callbacks = run.callbacks()
    model.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0, callbacks=callbacks)
    run.finish(model)


def own(run: Scenario) -> None:
    """A step as the guide of Keras writes it for PyTorch."""
    import torch

    class Own(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = dense(3, "first", "tanh"), dense(2, "last")

        def call(self, x: Any) -> Any:
            return self.last(self.first(x))

        def train_step(self, data: Any) -> dict[str, Any]:
            x, y = data
            self.zero_grad()
            loss = ((self(x) - y) ** 2).sum()
            loss.backward()
            weights = list(self.trainable_weights)
            slopes = [weight.value.grad for weight in weights]
            with torch.no_grad():
                self.optimizer.apply(slopes, weights)
            return {"my_loss": loss.detach()}

    x, y = rows(12)
    keras.utils.set_random_seed(5)
    model = Own()
    model.compile(keras.optimizers.SGD(0.01))
    callbacks = run.callbacks()
    model.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0, callbacks=callbacks)
    run.finish(model)


def sessions(run: Scenario) -> None:
    """Without TensorFlow there is Keras, and there are no sessions."""
    assert "tensorflow" not in sys.modules
    for kind in (smd.SessionHook, smd.EstimatorHook):
        try:
            kind(run.folder / "session")
        except Exception as error:
            sys.stdout.write(f"refused: {type(error).__name__}: {error}\n")
        else:
            sys.stdout.write(f"{kind.__name__} was made\n")
    everything(run)


def main(folder: str, *scenarios: str) -> None:
    logging.basicConfig(level=logging.WARNING, format="%(name)s: %(message)s")
    for scenario in scenarios:
        name, kind = scenario.split("_")
        run = Scenario(Path(folder) / scenario, kind == "hooked")
        run.folder.mkdir()
        try:
            globals()[name](run)
        except Exception:
            sys.stdout.write(f"{scenario} failed: {traceback.format_exc()}\n")
        else:
            sys.stdout.write(f"{scenario} done\n")
        sys.stdout.flush()
        smd.del_hook()


if __name__ == "__main__":
    main(*sys.argv[1:])
