"""Readers that are not ours find in a run what Keras had, and ours reads both formats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.util import tensor_util
from tests.tensorflow.models import SEED_WARNING

import smdebug.tensorflow as smd
from smdebug.core.reader import FileReader

if TYPE_CHECKING:
    from pathlib import Path

    from smdebug.reductions import Array

keras: Any = tf.keras
STEPS = 4
# By step over all modes, which here is the one of TRAIN.
Found = dict[tuple[int, str], "Array"]

# Keras calls numpy 2 in the way of numpy 1; so does TensorBoard's own reader.
pytestmark = [
    pytest.mark.filterwarnings(SEED_WARNING),
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning:keras"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:tensorboard"),
]


class Witness(keras.callbacks.Callback):
    """The weights after every batch, and what Keras reported."""

    def __init__(self) -> None:
        super().__init__()
        self.weights: Found = {}
        self.losses: list[float] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.losses.append(float(logs["loss"]))
        for layer in self.model.layers:
            for part, value in zip(("kernel", "bias"), layer.get_weights(), strict=True):
                self.weights[batch, f"{layer.name}/weights/{layer.name}/{part}:0"] = value


def run(place: Path, format: str = "v2") -> tuple[Witness, Array]:
    """A run of everything at every step, and what Keras itself says."""
    # The numbering of names starts again.
    keras.backend.clear_session()
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.layers.Input((3,)),
            keras.layers.Dense(5, activation="relu", name="first"),
            keras.layers.Dense(1, name="last"),
        ]
    )
    model.compile(keras.optimizers.Adam(0.1), "mse")
    x = np.random.default_rng(1).normal(size=(2 * STEPS, 3)).astype(np.float32)
    config = smd.ReductionConfig(norms=["l2"], reductions=["max"], save_raw_tensor=True)
    hook = smd.KerasHook(
        place, save_all=True, save_config=smd.SaveConfig(save_interval=1), format=format,
        reduction_config=config, on_error="raise",
    )  # fmt: skip
    witness = Witness()
    model.fit(
        x, x[:, :1], batch_size=2, shuffle=False, verbose=0, callbacks=[hook, witness]
    )  # fmt: skip
    hook.close()
    return witness, x


def events(place: Path) -> Found:
    """What TensorBoard's own reader finds; it checks every checksum."""
    found: Found = {}
    for path in sorted(place.rglob("*.tfevents*")):
        for event in EventFileLoader(str(path)).Load():
            for value in event.summary.value:
                found[event.step, value.tag] = tensor_util.make_ndarray(value.tensor)
    return found


def test_duckdb_finds_the_numbers_in_the_index(tmp_path: Path) -> None:
    witness, x = run(tmp_path)
    index = f"'{tmp_path}/index/**/*.parquet'"
    query = f"select step, tensor, l2, max from {index} where tensor like '%/weights/%'"
    numbers = {(step, name): values for step, name, *values in duckdb.sql(query).fetchall()}
    assert numbers.keys() == witness.weights.keys()
    for key, (norm, largest) in numbers.items():
        wide = witness.weights[key].astype(np.float64)
        assert np.isclose(norm, np.linalg.norm(wide), rtol=2e-7)
        assert largest == wide.max()
    losses = duckdb.sql(f"select value from {index} where tensor = 'loss' order by step")
    assert [value for (value,) in losses.fetchall()] == witness.losses
    largest = duckdb.sql(f"select max from {index} where tensor = 'inputs' order by step")
    batches = x.reshape(STEPS, 2, 3)
    assert [value for (value,) in largest.fetchall()] == batches.max((1, 2)).tolist()


def test_tensorboard_reads_the_records(tmp_path: Path) -> None:
    witness, x = run(tmp_path)
    found = events(tmp_path)
    for key, value in witness.weights.items():
        if value.size == 1:
            # A single number is in the index.
            continue
        assert found[key].tobytes() == value.tobytes()
        assert found[key].dtype == value.dtype
    for step in range(STEPS):
        np.testing.assert_array_equal(found[step, "inputs"], x[2 * step : 2 * step + 2])
        np.testing.assert_array_equal(found[step, "labels"], x[2 * step : 2 * step + 2, :1])
        np.testing.assert_array_equal(found[step, "first/inputs"], found[step, "inputs"])
        np.testing.assert_array_equal(found[step, "last/outputs"], found[step, "predictions"])


def test_tensorboards_accumulator_reads_a_run(tmp_path: Path) -> None:
    witness, _ = run(tmp_path)
    name = "first/weights/first/kernel:0"
    found: Found = {}
    for path in sorted({path.parent for path in tmp_path.rglob("*.tfevents*")}):
        accumulator = EventAccumulator(str(path), {"tensors": 0})
        accumulator.Reload()
        for event in accumulator.Tensors(name):
            found[event.step, name] = tensor_util.make_ndarray(event.tensor_proto)
    assert sorted(step for step, _ in found) == list(range(STEPS))
    assert all(np.array_equal(value, witness.weights[key]) for key, value in found.items())


def test_tensorflow_reads_the_records(tmp_path: Path) -> None:
    witness, _ = run(tmp_path)
    paths = sorted(str(path) for path in tmp_path.rglob("*.tfevents*"))
    found: Found = {}
    # TensorFlow checks the checksums, too.
    for record in tf.data.TFRecordDataset(paths):
        event = tf.compat.v1.Event.FromString(record.numpy())
        for value in event.summary.value:
            found[event.step, value.tag] = tf.make_ndarray(value.tensor)
    for key, value in witness.weights.items():
        if value.size > 1:
            np.testing.assert_array_equal(found[key], value)


def test_both_formats_hold_the_same(tmp_path: Path) -> None:
    run(tmp_path / "v1", "v1")
    run(tmp_path / "v2", "v2")
    first, second = smd.create_trial(tmp_path / "v1"), smd.create_trial(tmp_path / "v2")
    assert first.tensor_names() == second.tensor_names()
    for name in first.tensor_names():
        one, other = first.tensor(name), second.tensor(name)
        assert one.steps() == other.steps()
        for step in one.steps():
            np.testing.assert_array_equal(one.value(step), other.value(step))
            numbers = other.reduction_values(step)
            assert one.reduction_values(step) == pytest.approx(numbers, rel=1e-6)


def test_the_reader_of_the_older_files(tmp_path: Path) -> None:
    witness, _ = run(tmp_path, "v1")
    found: Found = {}
    for path in sorted(tmp_path.rglob("*.tfevents*")):
        for name, step, value, mode, mode_step in FileReader(str(path)).read_tensors():
            assert (mode, mode_step) == (smd.modes.TRAIN, step)
            found[step, name] = value
    for key, value in witness.weights.items():
        np.testing.assert_array_equal(found[key], value)
