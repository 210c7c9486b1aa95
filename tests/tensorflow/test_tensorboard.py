"""TensorBoard reads what Keras and TensorFlow had, while it was trained or afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.board import read_boards, spread
from tests.tensorflow.models import (
    SEED_WARNING,
    Watcher,
    compiled,
    data,
    fit,
    own_gradients,
    saver,
    seeded,
    sequential,
    trial_of,
)

import smdebug.tensorflow as smd
from smdebug.trials.export.tensorboard import export_tensorboard

if TYPE_CHECKING:
    from pathlib import Path

    from tests.board import Board

pytestmark = pytest.mark.filterwarnings(SEED_WARNING)
WEIGHTS = {
    "weights/first/weights/first/kernel_0": 0, "biases/first/weights/first/bias_0": 1,
    "weights/second/weights/second/kernel_0": 2, "biases/second/weights/second/bias_0": 3,
}  # fmt: skip
GRADIENTS = {
    "gradients/gradients/first/kernelGrad": 0, "gradients/gradients/first/biasGrad": 1,
    "gradients/gradients/second/kernelGrad": 2, "gradients/gradients/second/biasGrad": 3,
}  # fmt: skip


def test_fit(tmp_path: Path) -> None:
    seeded()
    model, watcher = compiled(sequential(), jit_compile=False), Watcher()
    names = ["weights", "biases", "gradients", "outputs", "losses", "metrics"]
    hook = saver(tmp_path / "run", names, export_tensorboard=True)
    x, y = data()
    history = fit(model, x, y, hook, callbacks=[watcher], validation_data=data(16, 1), epochs=2)
    hook.close()
    boards = read_boards(tmp_path / "run" / "tensorboard")
    assert set(boards) == {"TRAIN", "EVAL"}
    check_scalars(boards["TRAIN"], watcher, history)
    check_histograms(boards["TRAIN"], watcher)
    trial = trial_of(tmp_path / "run")
    for name in ("predictions", "labels"):
        # Each mode has its own, at the steps over all modes.
        for mode, board in ((smd.modes.TRAIN, boards["TRAIN"]), (smd.modes.EVAL, boards["EVAL"])):
            (tag,) = [tag for tag in board if tag.endswith(f"/{name}")]
            values = trial.tensor(name).values(mode=mode)
            steps = {trial.global_step(mode, step): value for step, value in values.items()}
            assert {each.step: each.value for each in board[tag]} == {
                step: spread(value) for step, value in steps.items()
            }
    done = export_tensorboard(trial, str(tmp_path / "board"))
    assert read_boards(tmp_path / "board") == boards
    assert done.steps == len(trial.steps())


def check_scalars(board: Board, watcher: Watcher, history: dict[str, list[float]]) -> None:
    for name in ("loss", "accuracy"):
        logged = [each[name] for each in watcher.logs["train"]]
        assert [each.value for each in board[name]] == as_float32(logged)
    assert [each.value for each in board["val_loss"]] == as_float32(history["val_loss"])


def as_float32(values: list[float]) -> Any:
    """The numbers as TensorBoard has them."""
    return np.array(values, np.float32).tolist()


def check_histograms(board: Board, watcher: Watcher) -> None:
    for tag, place in WEIGHTS.items():
        assert [each.value for each in board[tag]] == [
            spread(weights[place]) for weights in watcher.after
        ]
    x, y = data()
    other = compiled(sequential(), jit_compile=False)
    for step in (0, 3):
        rows = slice(8 * step, 8 * step + 8)
        truth = own_gradients(other, x[rows], y[rows], watcher.before[step])
        for tag, place in GRADIENTS.items():
            low, high, count, total, squares, *_ = board[tag][step].value
            exact = truth[place].astype(np.float64)
            expected = [exact.min(), exact.max(), exact.size, exact.sum(), (exact**2).sum()]
            np.testing.assert_allclose(
                [low, high, count, total, squares], expected, rtol=1e-4, atol=1e-6
            )


def test_reductions_and_a_tape(tmp_path: Path) -> None:
    import tensorflow as tf

    seeded()
    model = sequential()
    optimizer = tf.keras.optimizers.SGD(0.1)
    hook = smd.KerasHook(
        tmp_path / "run", export_tensorboard=True, on_error="raise",
        include_collections=["weights", "losses"],
        save_config=smd.SaveConfig(save_interval=1),
        reduction_config=smd.ReductionConfig(reductions=["mean"], norms=["l2"]),
    )  # fmt: skip
    hook.register_model(model)
    x, y = data(8)
    losses, norms = [], []
    for _ in range(3):
        norms.append(np.linalg.norm(model.get_weights()[0].astype(np.float64)))
        with hook.wrap_tape(tf.GradientTape()) as tape:
            found = model(x, training=True)
            loss = tf.reduce_mean(tf.keras.losses.sparse_categorical_crossentropy(y, found, True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        losses.append(float(loss))
    hook.close()
    (board,) = read_boards(tmp_path / "run" / "tensorboard").values()
    assert [each.value for each in board["loss"]] == losses
    (tag,) = [tag for tag in board if "first" in tag and tag.endswith("kernel_0/l2")]
    np.testing.assert_allclose([each.value for each in board[tag]], norms, rtol=1e-6)
    # What is saved is the norm; TensorBoard has the histogram all the same.
    assert len(board[tag.removesuffix("/l2")]) == 3
