"""TensorBoard reads what MXNet had, while it was trained or afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mxnet as mx
import numpy as np
import pytest
from mxnet import gluon
from tests.board import numbers, read_boards, spread
from tests.mxnet.nets import batch, every_step, perceptron, sgd

import smdebug.mxnet as smd
from smdebug.trials.export.tensorboard import export_tensorboard

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("reduced", [False, True], ids=["raw", "reduced"])
def test_training(tmp_path: Path, reduced: bool) -> None:
    mx.random.seed(1)
    np.random.seed(1)
    net, function = perceptron("net_"), gluon.loss.SoftmaxCrossEntropyLoss()
    net.initialize()
    net(batch()[0])
    trainer = sgd(net)
    config = smd.ReductionConfig(reductions=["max"], norms=["l2"]) if reduced else None
    hook = every_step(
        tmp_path / "run", save_all=False, export_tensorboard=True, reduction_config=config,
        include_collections=["weights", "gradients", "losses"],
    )  # fmt: skip
    hook.register_block(net)
    truth: dict[tuple[str, int], Any] = {}
    losses = []
    for step in range(3):
        hook.set_mode(smd.modes.TRAIN)
        x, y = batch()
        with mx.autograd.record():
            loss = function(net(x), y).mean()
        loss.backward()
        trainer.step(1)
        losses.append(float(loss.asscalar()))
        hook.save_scalar("loss", losses[-1])
        for name, parameter in net.collect_params(".*weight").items():
            truth[f"weights/{name}", step] = parameter.data().asnumpy()
            truth[f"gradients/gradient/{name}", step] = parameter.grad().asnumpy()
    hook.close()
    boards = read_boards(tmp_path / "run" / "tensorboard")
    board = boards["TRAIN"]
    assert list(numbers(board, "scalar/loss").values()) == losses
    for (tag, step), array in truth.items():
        assert board[tag][step].step == step
        assert board[tag][step].value == spread(array)
        if reduced:
            assert board[f"{tag}/max"][step].value == array.max()
            exact = np.linalg.norm(array.astype(np.float64))
            assert board[f"{tag}/l2"][step].value == pytest.approx(exact, rel=1e-6)
    if not reduced:
        export_tensorboard(smd.create_trial(hook.out_dir), str(tmp_path / "board"))
        assert read_boards(tmp_path / "board") == boards
