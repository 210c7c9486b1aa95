"""The contract of adapters, for MXNet's Gluon."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from mxnet.gluon import nn
from tests.mxnet.nets import batch, hooks_left, numbers, parameters, sgd

import smdebug.mxnet as smd
from smdebug.testing import AdapterContract, Trained

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from smdebug.mode_keys import ModeKeys


class TestHook(AdapterContract):
    tensor = "net_dense0_weight"

    def make_hook(self, out_dir: str, **options: Any) -> smd.Hook:
        return smd.Hook(out_dir, **options)

    def train(
        self, hook: Any, modes: Sequence[ModeKeys], after_step: Callable[[int], object]
    ) -> Trained:
        mx.random.seed(0)
        np.random.seed(0)
        net = nn.HybridSequential(prefix="net_")
        with net.name_scope():
            net.add(nn.Dense(6, in_units=5), nn.Dropout(0.3), nn.Dense(3, in_units=6))
        net.initialize()
        loss_function, trainer = gluon.loss.SoftmaxCrossEntropyLoss(prefix="loss_"), sgd(net)
        if hook is not None:
            hook.register_block(net)
            hook.register_block(loss_function)
        tensors = []
        for step, mode in enumerate(modes):
            if hook is not None:
                hook.set_mode(mode)
            x, y = batch()
            training = mode is smd.modes.TRAIN
            seen = {}
            with autograd.record(train_mode=training):
                loss = loss_function(net(x), y)
            if training:
                loss.backward()
                seen["gradient/net_dense0_weight"] = numbers(net[0].weight.grad())
                trainer.step(len(x))
            # Weights are saved as they are after the update.
            seen |= {"net_dense0_weight": numbers(net[0].weight.data()),
                     "loss_output_0": numbers(loss)}  # fmt: skip
            tensors.append(seen)
            after_step(step)
        left = [*hooks_left(net), *hooks_left(loss_function)]
        return Trained(tensors, [numbers(each) for each in parameters(net)], left)
