"""Reductions of arrays of MXNet, against numpy in float64; smdebug 1.0 failed on some of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import mxnet as mx
import numpy as np
import pytest
from mxnet.gluon import nn

import smdebug.mxnet as smd
from smdebug.mxnet.tensors import to_numpy

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ["min", "max", "mean", "std", "variance", "sum", "prod", "median"]
_RANDOM = np.random.default_rng(5)
ARRAYS: dict[str, Any] = {
    "float32": _RANDOM.normal(size=(3, 4)).astype(np.float32),
    "float64": _RANDOM.normal(size=(7,)),
    "float16": _RANDOM.normal(size=(2, 3, 4)).astype(np.float16),
    "int32": _RANDOM.integers(-5, 5, (4, 2)).astype(np.int32),
    "int8": np.array([-3, 0, 5], np.int8),
    "uint8": np.array([[1, 2], [3, 255]], np.uint8),
    "int64": np.array([-(2**40), 3, 7]),
    "one": np.array([2.5], np.float32),
}
TRUTH: dict[str, Any] = {
    "min": np.min, "max": np.max, "mean": np.mean, "std": np.std, "variance": np.var,
    "sum": np.sum, "prod": np.prod, "median": np.median,
    "l1": lambda x: np.abs(x).sum(), "l2": lambda x: np.sqrt(np.square(x).sum()),
}  # fmt: skip


def saved(tmp_path: Path, array: Any) -> Any:
    """Saves an array with all of its reductions; returns the tensor of the run."""
    config = smd.ReductionConfig(
        reductions=NAMES, norms=["l1", "l2"], abs_reductions=NAMES, abs_norms=["l1", "l2"],
        save_raw_tensor=True,
    )  # fmt: skip
    hook = smd.Hook(
        tmp_path / "run", save_config=smd.SaveConfig(save_interval=1), reduction_config=config,
        on_error="raise",
    )  # fmt: skip
    net = nn.Dense(1)
    net.initialize()
    hook.register_block(net)
    net(mx.nd.ones((1, 1)))
    hook.save_tensor("given", array)
    hook.close()
    return smd.create_trial(hook.out_dir).tensor("given")


@pytest.mark.parametrize("kind", ARRAYS)
def test_all_reductions(tmp_path: Path, kind: str) -> None:
    array = ARRAYS[kind]
    tensor = saved(tmp_path, mx.nd.array(array, dtype=array.dtype))
    found = tensor.value(0)
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array)
    exact = array.astype(np.float64)
    for name, truth in TRUTH.items():
        for absolute, operand in ((False, exact), (True, np.abs(exact))):
            value = tensor.reduction_value(0, name, abs=absolute)
            assert value == pytest.approx(truth(operand), rel=1e-5, abs=1e-6), (name, absolute)


@pytest.mark.parametrize(
    "array",
    [
        mx.nd.sparse.row_sparse_array(([[1.0, 2.0]], [1]), shape=(3, 2)),
        mx.nd.sparse.csr_matrix(([1.0, 2.0], [0, 1], [0, 1, 1, 2]), shape=(3, 2)),
    ],
    ids=["rows", "csr"],
)
def test_sparse_arrays_are_saved_dense(tmp_path: Path, array: Any) -> None:
    tensor = saved(tmp_path, array)
    np.testing.assert_array_equal(tensor.value(0), array.asnumpy())
    assert tensor.reduction_value(0, "sum") == 3.0


def test_numpy_style_arrays(tmp_path: Path) -> None:
    tensor = saved(tmp_path, mx.np.array([[1.5, -2.0]]))
    np.testing.assert_array_equal(tensor.value(0), [[1.5, -2.0]])


def test_arrays_of_another_device(tmp_path: Path) -> None:
    tensor = saved(tmp_path, mx.nd.array([1.0, 2.0], ctx=mx.cpu(1)))
    assert tensor.value(0).tolist() == [1.0, 2.0]


def test_bfloat16() -> None:
    kind = np.dtype([("bfloat16", np.uint16)])
    array = mx.nd.amp_cast(mx.nd.array([1.5, -2.25]), dtype=kind)
    values = to_numpy(array)
    assert values.dtype == ml_dtypes.bfloat16
    assert values.astype(float).tolist() == [1.5, -2.25]
