"""Gluon training that resumes an existing run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from tests.mxnet.nets import batch, every_step, perceptron, sgd
from tests.spot import contents

import smdebug.mxnet as smd

if TYPE_CHECKING:
    from pathlib import Path


class Training:
    """A net and its optimizer, the same in every object."""

    def __init__(self) -> None:
        mx.random.seed(5)
        np.random.seed(5)
        self.net = perceptron(prefix="net_")
        self.net.initialize()
        self.loss = gluon.loss.SoftmaxCrossEntropyLoss(prefix="loss_")
        self.trainer = sgd(self.net)

    def steps(self, hook: Any, modes: list[Any]) -> None:
        hook.register_block(self.net)
        hook.register_block(self.loss)
        for mode in modes:
            hook.set_mode(mode)
            data, labels = batch()
            if mode is smd.modes.EVAL:
                self.loss(self.net(data), labels)
                continue
            with autograd.record():
                loss = self.loss(self.net(data), labels)
            loss.backward()
            self.trainer.step(4)
        hook.close()


@pytest.mark.parametrize("format", ["v1", "v2"])
def test_training_is_resumed(tmp_path: Path, format: str) -> None:
    modes = ([smd.modes.TRAIN] * 3 + [smd.modes.EVAL] * 2) * 3
    Training().steps(every_step(tmp_path / "whole", format=format), modes)
    training = Training()
    training.steps(every_step(tmp_path / "parts", format=format), modes[:7])
    hook = every_step(tmp_path / "parts", format=format, resume=True)
    assert hook.step == 6
    assert hook.mode_steps[smd.modes.TRAIN] == 4
    training.steps(hook, modes[7:])
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")
