"""Readers that are not ours find in a run what MXNet had."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import duckdb
import mxnet as mx
import numpy as np
from mxnet import gluon
from mxnet.gluon import nn
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.util import tensor_util

from smdebug.mxnet import Hook, ReductionConfig, SaveConfig

if TYPE_CHECKING:
    from pathlib import Path


def test_duckdb_and_tensorboard_read_what_the_hook_wrote(tmp_path: Path) -> None:
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(nn.Dense(7, activation="relu"), nn.Dense(3))
    net.initialize()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    config = ReductionConfig(reductions=["max", "std"], norms=["l2"], save_raw_tensor=True)
    raw: dict[tuple[int, str], np.ndarray[Any, Any]] = {}
    with Hook(
        tmp_path,
        save_config=SaveConfig(save_interval=1),
        reduction_config=config,
        include_collections=["weights", "biases", "gradients"],
        on_error="raise",
    ) as hook:
        hook.register_block(net)
        for step in range(3):
            with mx.autograd.record():
                loss = net(mx.nd.random.normal(shape=(4, 5))).square().sum()
            loss.backward()
            trainer.step(4)
            for name, parameter in net.collect_params().items():
                raw[step, name] = parameter.data().asnumpy()
                raw[step, f"gradient/{name}"] = parameter.grad().asnumpy()
    query = f"select step, tensor, l2, max, std from '{tmp_path}/index/**/*.parquet'"
    numbers = {(step, name): values for step, name, *values in duckdb.sql(query).fetchall()}
    assert numbers.keys() == raw.keys()
    for key, (norm, largest, spread) in numbers.items():
        exact = raw[key].astype(np.float64)
        assert np.isclose(norm, np.linalg.norm(exact), rtol=2e-7)
        assert np.isclose(spread, exact.std(), rtol=2e-6, atol=1e-9)
        assert largest == raw[key].max()
    found = {}
    for path in tmp_path.rglob("*.tfevents"):
        for event in EventFileLoader(str(path)).Load():
            (value,) = event.summary.value
            found[event.step, value.tag] = tensor_util.make_ndarray(value.tensor)
    assert found.keys() == raw.keys()
    assert all(found[key].tobytes() == raw[key].tobytes() for key in raw)
