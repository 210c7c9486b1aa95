"""Golden runs of the MXNet hook."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon, nd
from mxnet.gluon import nn

import smdebug.mxnet as smd
from tools.golden_runs.jobs import Job
from tools.golden_runs.recorder import Step

if TYPE_CHECKING:
    from tools.golden_runs.recorder import Array, Recorder

TRAIN, EVAL = smd.modes.TRAIN, smd.modes.EVAL
_MODES = (TRAIN, TRAIN, EVAL, TRAIN)
_GRADIENT_REDUCTIONS = ("mean", "std", "l2", "abs_max", "zeros")


def train(truth: Recorder) -> None:
    """A Gluon net with training and evaluation steps."""
    mx.random.seed(0)
    net, loss_function = nn.HybridSequential(prefix="net_"), gluon.loss.L2Loss(prefix="loss_")
    with net.name_scope():
        net.add(nn.Dense(4, activation="relu", in_units=4), nn.Dense(2, in_units=4))
    net.initialize(mx.init.Xavier())
    rate = {"learning_rate": 0.1}
    trainer = gluon.Trainer(net.collect_params(), "sgd", rate, kvstore=None)
    with smd.Hook(
        str(truth.run),
        include_collections=["weights", "gradients", "activations"],
        save_config=smd.SaveConfig(save_interval=1),
        format=truth.format,
        on_error="raise",
    ) as hook:
        hook.get_collection("weights").save_config = smd.SaveConfig(save_interval=2)
        hook.get_collection("gradients").reduction_config = smd.ReductionConfig.from_dict(
            {"reductions": list(_GRADIENT_REDUCTIONS)}
        )
        hook.get_collection("activations").include("relu_output")
        hook.register_block(net)
        hook.register_block(loss_function)
        kept: dict[str, Array] = {}
        _activation(net).register_forward_hook(
            lambda block, given, returned: kept.update(relu=returned.asnumpy())
        )
        for number, mode in enumerate(_MODES):
            batch, target = nd.random.normal(shape=(3, 4)), nd.random.normal(shape=(3, 2))
            hook.set_mode(mode)
            with autograd.record(mode is TRAIN):
                loss = loss_function(net(batch), target)
            save = partial(truth.save, Step(number, mode.name, hook.mode_steps[mode]))
            if mode is TRAIN:
                loss.backward()
                for name, parameter in net.collect_params().items():
                    save(
                        f"gradient/{name}", parameter.grad().asnumpy(), raw=False,
                        reductions=_GRADIENT_REDUCTIONS,
                    )  # fmt: skip
                trainer.step(3)
            hook.save_scalar("half", 0.5**number)
            hook.save_tensor("batch", batch, "batches")
            save("scalar/half", np.array([0.5**number]))
            save("batch", batch.asnumpy())
            save("loss_output_0", loss.asnumpy())
            save("net_dense0_relu_output_0", kept["relu"])
            if hook.mode_steps[mode] % 2 == 0:
                # As they are when the step ends, after the update.
                for name, parameter in net.collect_params(".*weight").items():
                    save(name, parameter.data().asnumpy())


def _activation(net: Any) -> Any:
    (found,) = [block for block in net[0]._children.values() if "relu" in block.name]
    return found


JOBS = [Job(f"mxnet_{format}", format, (train,)) for format in ("v2", "v1")]
