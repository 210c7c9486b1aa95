"""What is saved of a tensor of TensorFlow: its bits, its numbers, and never those of later."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

import smdebug.tensorflow as smd
from smdebug.hook.plan import SaveRequest
from smdebug.mode_keys import ModeKeys
from smdebug.reductions import REDUCTION_NAMES, compute_reductions
from smdebug.storage.batch import StepBatch
from smdebug.tensorflow.tensors import (
    DeviceTensorCapture,
    TensorCapture,
    capture_tensor,
    device_reductions,
    is_finite,
    to_array,
    value_of,
)
from smdebug.testing import ReductionContract

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from smdebug.reductions import Array
    from smdebug.trials.trial import Trial

keras: Any = tf.keras
KERAS_3 = hasattr(keras, "ops")
EVERY = smd.SaveConfig(save_interval=1)
RAW = SaveRequest(True, (), ("all",))

# Keras 2 draws its seeds in a way that Python warns of.
pytestmark = pytest.mark.filterwarnings("ignore:non-integer arguments to randrange")


def captured_entry(kind: Any, tensor: Any, want: SaveRequest) -> Any:
    batch = StepBatch(0, ModeKeys.TRAIN, 0, [])
    kind("x", tensor, want).finish(batch)
    (entry,) = batch.entries
    return entry


# ---- reductions


class TestDeviceReductions(ReductionContract):
    """What an accelerator computes, computed on the CPU."""

    def reduce(self, array: Array, names: tuple[str, ...]) -> Mapping[str, float]:
        found = device_reductions(tf.constant(array), names)
        return dict(zip(names, found.numpy().tolist(), strict=True))


class TestTakenDeviceTensor(ReductionContract):
    """The same on its way into a run."""

    def reduce(self, array: Array, names: tuple[str, ...]) -> Mapping[str, float]:
        want = SaveRequest(False, names, ("all",))
        return dict(captured_entry(DeviceTensorCapture, tf.constant(array), want).reductions)


class TestTakenTensor(ReductionContract):
    """The definition itself, by the way of a tensor of the host."""

    def reduce(self, array: Array, names: tuple[str, ...]) -> Mapping[str, float]:
        want = SaveRequest(False, names, ("all",))
        return dict(captured_entry(TensorCapture, tf.constant(array), want).reductions)


def test_all_reductions_at_once_are_those_one_by_one() -> None:
    tensor = tf.constant(np.random.default_rng(1).normal(size=100).astype(np.float32))
    together = device_reductions(tensor, REDUCTION_NAMES).numpy()
    alone = [float(device_reductions(tensor, (name,))[0]) for name in REDUCTION_NAMES]
    np.testing.assert_array_equal(together, alone)


def test_device_reductions_have_shape_and_dtype() -> None:
    tensor = tf.constant([[1.0, -2.0]], tf.bfloat16)
    entry = captured_entry(DeviceTensorCapture, tensor, SaveRequest(True, ("max", "l1"), ("all",)))
    assert entry.reductions == {"max": 1.0, "l1": 3.0}
    assert entry.shape == (1, 2)
    assert entry.dtype == "bfloat16"
    assert entry.value is not None
    assert entry.value.dtype == ml_dtypes.bfloat16
    alone = captured_entry(DeviceTensorCapture, tensor, SaveRequest(False, ("max",), ("all",)))
    assert alone.value is None
    raw = captured_entry(DeviceTensorCapture, tensor, RAW)
    assert raw.reductions == {}


def test_totals_and_items_describe_the_capture() -> None:
    want = SaveRequest(True, ("max", "min"), ("a", "b"))
    for kind in (TensorCapture, DeviceTensorCapture):
        captured = kind("x", tf.ones(10), want)
        assert list(captured.items()) == [("x", want, 56)]
        assert list(captured.totals()) == [(("a", "b"), 1, 56)]


def test_reductions_of_tensors_with_more_elements_than_float32_can_count() -> None:
    large = tf.constant([2**53 + 1, -7, 0], tf.int64)
    assert device_reductions(large, ("zeros", "min")).numpy().tolist() == [1, -7]
    exact = tf.constant([2**24 + 1, 2**24 + 3], tf.int32)
    assert device_reductions(exact, ("min", "sum")).numpy().tolist() == [2**24 + 1, 2**25 + 4]


@pytest.mark.parametrize(
    ("values", "dtype", "expected"),
    [
        ([1.0, 2.0], tf.float32, True), ([1.0, np.nan], tf.float32, False),
        ([np.inf], tf.bfloat16, False), ([1, 2], tf.int32, True), ([True], tf.bool, True),
        (["nan"], tf.string, True), ([complex(0, np.nan)], tf.complex64, False),
        ([1j], tf.complex128, True), ([], tf.float32, True), (np.nan, tf.float64, False),
    ],
)  # fmt: skip
def test_is_finite(values: Any, dtype: Any, expected: bool) -> None:
    assert is_finite(tf.constant(values, dtype)) is expected


def test_is_finite_for_short_floats() -> None:
    for dtype in (ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fn):
        assert is_finite(tf.constant(np.array([1, 2], dtype)))
        assert not is_finite(tf.constant(np.array([1, np.nan], dtype)))


# ---- types of all kinds

_RANDOM = np.random.default_rng(0)
TENSORS: dict[str, Any] = {
    "float32": _RANDOM.normal(size=(3, 4)).astype(np.float32),
    "float64": _RANDOM.normal(size=(3, 4)),
    "float16": _RANDOM.normal(size=(3, 4)).astype(np.float16),
    "bfloat16": _RANDOM.normal(size=(3, 4)).astype(ml_dtypes.bfloat16),
    "float8_e5m2": _RANDOM.normal(size=(3, 4)).astype(ml_dtypes.float8_e5m2),
    "float8_e4m3fn": _RANDOM.normal(size=(3, 4)).astype(ml_dtypes.float8_e4m3fn),
    "int8": np.array([[-128, 127]], np.int8),
    "int16": np.array([-(2**15), 7], np.int16),
    "int32": np.array([2**31 - 1, -7], np.int32),
    "int64": np.array([2**53 + 1, -7, 0]),
    "uint8": np.arange(256, dtype=np.uint8),
    "uint16": np.array([1, 65535], np.uint16),
    "uint32": np.array([1, 2**32 - 1], np.uint32),
    "uint64": np.array([1, 2**64 - 1], np.uint64),
    "bool": np.array([True, False]),
    "complex64": np.array([1 + 2j, -3j], np.complex64),
    "complex128": np.array([1 + 2j, -3j]),
    "scalar": np.float32(2.5),
    "scalar-bool": np.bool_(True),
    "scalar-bfloat16": np.array(2.5, ml_dtypes.bfloat16),
    "empty": np.ones((2, 0, 3), np.float32),
    "one": np.full((1, 1), 2.5, np.float32),
    "not-finite": np.array([1, np.nan, np.inf, -np.inf, -0.0], np.float32),
    "subnormal": np.array([1e-45, -1e-40, 0], np.float32),
    "large": np.arange(300_000, dtype=np.float32),
}


def saved(tmp_path: Path, tensors: dict[str, Any], **options: Any) -> Trial:
    hook = smd.KerasHook(tmp_path, save_config=EVERY, on_error="raise", **options)
    with hook.wrap_tape(tf.GradientTape()):
        for name, tensor in tensors.items():
            hook.save_tensor(name, tensor)
    hook.close()
    return smd.create_trial(tmp_path)


def test_tensors_of_all_types_are_saved_bit_for_bit(tmp_path: Path) -> None:
    trial = saved(tmp_path, {name: tf.constant(value) for name, value in TENSORS.items()})
    for name, value in TENSORS.items():
        found = trial.tensor(name).value(0)
        assert found.dtype == value.dtype, name
        assert found.shape == value.shape, name
        assert found.tobytes() == value.tobytes(), name


def test_variables_and_numbers_are_saved_too(tmp_path: Path) -> None:
    mine = {
        "variable": tf.Variable([1.5, 2.5]), "array": np.arange(3), "list": [1.0, 2.0],
        "number": 2.5, "bfloat16": tf.Variable(tf.ones(2, tf.bfloat16)),
    }  # fmt: skip
    trial = saved(tmp_path, mine)
    assert trial.tensor("variable").value(0).tolist() == [1.5, 2.5]
    assert trial.tensor("array").value(0).tolist() == [0, 1, 2]
    assert trial.tensor("list").value(0).tolist() == [1, 2]
    assert trial.tensor("number").value(0) == 2.5
    assert trial.tensor("bfloat16").value(0).dtype == ml_dtypes.bfloat16


def test_strings_are_saved_as_strings(tmp_path: Path) -> None:
    words = ["", "one", "zwölf ✓", "x" * 300]
    tensors = {
        "words": tf.constant(words), "word": tf.constant("alone"), "table": tf.constant([words]),
        "none": tf.constant([], tf.string),
    }  # fmt: skip
    trial = saved(tmp_path, tensors)
    assert trial.tensor("words").value(0).tolist() == words
    assert trial.tensor("table").value(0).tolist() == [words]
    assert trial.tensor("word").value(0).tolist() == "alone"
    assert trial.tensor("none").value(0).shape == (0,)


def test_bytes_that_are_not_utf8_are_skipped() -> None:
    images = tf.constant([b"\xff\xd8\x00\x80", b"ok"])
    found = to_array(images)
    assert found.shape == (2,)
    assert found[1] == "ok"


@pytest.mark.parametrize("name", TENSORS)
def test_reductions_on_a_device_are_those_of_the_host(name: str) -> None:
    value = np.asarray(TENSORS[name])
    wanted: Any = REDUCTION_NAMES
    if value.dtype.kind == "c":
        wanted = [each for each in wanted if each.startswith("abs_")]
        wanted += ["l1", "l2", "nans", "infs", "zeros"]
    want = SaveRequest(False, tuple(wanted), ("all",))
    with np.errstate(all="ignore"):
        expected = compute_reductions(value, tuple(wanted))
    found = dict(captured_entry(DeviceTensorCapture, tf.constant(value), want).reductions)
    assert found.keys() == expected.keys()
    for key, number in expected.items():
        if key.removeprefix("abs_") == "prod" and name in ("large", "uint8"):
            # Beyond what float32 holds on the way.
            continue
        if key == "zeros" and name == "subnormal":
            # TensorFlow computes with zero in place of the smallest numbers.
            continue
        assert found[key] == pytest.approx(float(number), rel=2e-5, nan_ok=True), key


# ---- what has no dense numbers


def test_only_dense_tensors_are_saved() -> None:
    assert capture_tensor("x", tf.Variable([1.0]).handle, RAW) is None
    dataset = tf.data.Dataset.range(3)
    assert capture_tensor("x", dataset._variant_tensor, RAW) is None


class Rows(keras.Model):
    """Hands ragged and sparse tensors from layer to layer."""

    def __init__(self) -> None:
        super().__init__()
        self.rags = keras.layers.Lambda(_ragged, name="rags")
        self.holes = keras.layers.Lambda(tf.sparse.from_dense, name="holes")
        self.last = keras.layers.Dense(2, name="last")

    def call(self, x: Any) -> Any:
        whole = self.rags(x).to_tensor() + tf.sparse.to_dense(self.holes(x))
        return self.last(tf.ensure_shape(whole, [None, 4]))


def _ragged(x: Any) -> Any:
    return tf.RaggedTensor.from_tensor(x)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_ragged_and_sparse_tensors_are_not_saved_and_do_no_harm(tmp_path: Path) -> None:
    x = _RANDOM.normal(size=(6, 4)).astype(np.float32)
    y = np.zeros((6, 2), np.float32)

    def train(hooks: list[Any]) -> Any:
        keras.utils.set_random_seed(3)
        model = Rows()
        model.compile("sgd", "mse")
        model.fit(x, y, batch_size=2, shuffle=False, verbose=0, callbacks=hooks)
        return model.get_weights()

    hook = smd.KerasHook(tmp_path, save_config=EVERY, save_all=True, on_error="raise")
    expected, found = train([]), train([hook])
    hook.close()
    for one, other in zip(expected, found, strict=True):
        assert one.tobytes() == other.tobytes()
    trial = smd.create_trial(tmp_path)
    assert trial.steps() == [0, 1, 2]
    assert trial.tensor("rags/inputs").value(1).shape == (2, 4)
    assert trial.tensor("last/outputs").steps() == [0, 1, 2]
    names = trial.tensor_names()
    assert not [name for name in names if name.startswith(("rags/outputs", "holes/outputs"))]


# ---- a value that was read stays what it was


def raw(variable: Any) -> Any:
    """The variable of TensorFlow inside one of Keras."""
    return getattr(variable, "_value", variable)


def check_held(variables: list[Any], update: Callable[[int], object], steps: int = 40) -> None:
    """Holds what is read before each update, and compares at the very end."""
    held = []
    for number in range(steps):
        for variable in variables:
            value = value_of(variable)
            held.append((value, np.array(raw(variable).numpy(), copy=True)))
        update(number)
    changed = 0
    for value, copy in held:
        assert np.asarray(value).tobytes() == copy.tobytes()
        changed += copy.tobytes() != held[0][1].tobytes()
    assert changed or len(variables) > 1


def slices(value: Any, rows: list[int]) -> Any:
    return tf.IndexedSlices(tf.fill([len(rows), 64], value), rows)


SCATTERS: dict[str, Callable[[Any, int], object]] = {
    "assign": lambda v, n: v.assign(tf.fill(v.shape, float(n))),
    "assign_add": lambda v, n: v.assign_add(tf.ones(v.shape)),
    "assign_sub": lambda v, n: v.assign_sub(tf.ones(v.shape)),
    "scatter_update": lambda v, n: v.scatter_update(slices(2.0 + n, [n % 8])),
    "scatter_add": lambda v, n: v.scatter_add(slices(1.0, [0, n % 8])),
    "scatter_sub": lambda v, n: v.scatter_sub(slices(1.0, [n % 8])),
    "scatter_mul": lambda v, n: v.scatter_mul(slices(1.5, [n % 8])),
    "scatter_max": lambda v, n: v.scatter_max(slices(2.0 + n, [n % 8])),
    "scatter_nd_add": lambda v, n: v.scatter_nd_add([[n % 8, n % 64]], [1.0]),
    "scatter_nd_update": lambda v, n: v.scatter_nd_update([[n % 8]], tf.fill([1, 64], 3.0 + n)),
    "row": lambda v, n: v[n % 8].assign(tf.fill([64], 4.0 + n)),
    "column": lambda v, n: v[:, n % 64].assign(tf.fill([8], 5.0 + n)),
}


COMPILED = ("assign", "assign_sub", "scatter_update", "scatter_nd_add")


@pytest.mark.parametrize(
    ("name", "within"),
    [(name, within) for name in SCATTERS for within in ("eagerly", "function")]
    + [(name, "compiled") for name in COMPILED],
)
def test_captured_value_is_not_changed_by_updates(name: str, within: str) -> None:
    variable = tf.Variable(tf.ones([8, 64]))
    change = SCATTERS[name]

    def update(number: Any) -> None:
        change(variable, number)

    if within == "eagerly":
        check_held([variable], update, 12)
        return
    function = tf.function(lambda: update(3), jit_compile=within == "compiled")
    check_held([variable], lambda _: function(), 12)


OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "SGD": lambda: keras.optimizers.SGD(0.1),
    "momentum": lambda: keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True),
    "Adam": lambda: keras.optimizers.Adam(0.1),
    "RMSprop": lambda: keras.optimizers.RMSprop(0.1),
    "Adagrad": lambda: keras.optimizers.Adagrad(0.1),
}
if not KERAS_3:
    OPTIMIZERS["old-SGD"] = lambda: keras.optimizers.legacy.SGD(0.1, momentum=0.9)
    OPTIMIZERS["old-Adam"] = lambda: keras.optimizers.legacy.Adam(0.1)
    OPTIMIZERS["old-Adagrad"] = lambda: keras.optimizers.legacy.Adagrad(0.1)


def words() -> Any:
    """Its first gradient has only some rows."""
    keras.utils.set_random_seed(2)
    return keras.Sequential(
        [
            keras.Input((3,), dtype="int32"), keras.layers.Embedding(50, 8, name="words"),
            keras.layers.Flatten(name="flat"), keras.layers.Dense(2, name="last"),
        ]
    )  # fmt: skip


def variables_of(optimizer: Any) -> list[Any]:
    found = optimizer.variables
    return list(found() if callable(found) else found)


@pytest.mark.parametrize(
    ("name", "compiled"),
    [*((name, False) for name in OPTIMIZERS), ("momentum", True), ("Adam", True)],
)
def test_captured_value_is_not_changed_by_optimizers(name: str, compiled: bool) -> None:
    model, optimizer = words(), OPTIMIZERS[name]()
    weights = list(model.trainable_variables)
    if hasattr(optimizer, "build"):
        optimizer.build(weights)
    x = tf.constant([[1, 2, 3], [1, 4, 5]])
    y = tf.ones([2, 2])

    @tf.function(jit_compile=compiled)
    def step() -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
        slopes = tape.gradient(loss, weights)
        if compiled:
            slopes = [tf.convert_to_tensor(each) for each in slopes]
        optimizer.apply_gradients(zip(slopes, weights, strict=True))

    step()
    check_held([*weights, *variables_of(optimizer)], lambda _: step(), 10)


@pytest.mark.parametrize("options", [{}, {"jit_compile": True}, {"run_eagerly": True}], ids=str)
def test_captured_values_are_not_changed_by_fit(options: dict[str, Any]) -> None:
    model = words()
    model.compile(keras.optimizers.Adam(0.1), "mse", **options)
    x, y = np.arange(96, dtype=np.int32).reshape(32, 3) % 50, np.ones((32, 2), np.float32)
    held: list[tuple[Any, Any]] = []

    class Holds(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            for variable in (*model.weights, *variables_of(model.optimizer)):
                held.append((value_of(variable), np.array(raw(variable).numpy(), copy=True)))

    model.fit(x, y, batch_size=2, epochs=2, verbose=0, callbacks=[Holds()])
    assert len(held) > 300
    for value, copy in held:
        assert np.asarray(value).tobytes() == copy.tobytes()


def test_later_updates_do_not_affect_captures() -> None:
    for kind in (TensorCapture, DeviceTensorCapture):
        variable = tf.Variable(tf.ones(4))
        captured = kind("x", value_of(variable), SaveRequest(True, ("max",), ("all",)))
        variable.assign(tf.zeros(4))
        batch = StepBatch(0, ModeKeys.TRAIN, 0, [])
        captured.finish(batch)
        assert batch.entries[0].reductions == {"max": 1.0}
        assert batch.entries[0].value is not None
        assert batch.entries[0].value.all()


def test_an_array_of_numpy_is_copied() -> None:
    array = np.ones(3)
    captured = capture_tensor("x", array, RAW)
    assert captured is not None
    array[:] = 0
    batch = StepBatch(0, ModeKeys.TRAIN, 0, [])
    captured.finish(batch)
    assert batch.entries[0].value is not None
    assert batch.entries[0].value.all()


@pytest.mark.skipif(not KERAS_3, reason="Keras 2 casts variables in another way")
def test_the_value_of_a_variable_is_what_it_holds_not_what_it_is_cast_to() -> None:
    layer = keras.layers.Dense(2, dtype="mixed_float16")
    layer.build((None, 3))
    assert value_of(layer.kernel).dtype == tf.float32


def test_the_value_of_variables_of_all_types() -> None:
    for dtype in (tf.float16, tf.bfloat16, tf.float64, tf.int64, tf.bool, tf.complex64):
        variable = tf.Variable(tf.cast([1, 0], dtype))
        assert value_of(variable).dtype == dtype
