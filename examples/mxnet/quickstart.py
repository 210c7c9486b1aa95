"""Trains a small network, saves its loss and the norms of its gradients, and looks at them.

python examples/mxnet/quickstart.py [DIRECTORY]
"""

import sys
import tempfile

import mxnet as mx
from mxnet import autograd, gluon
from mxnet.gluon import nn

import smdebug.mxnet as smd


def train(directory: str) -> None:
    mx.random.seed(0)
    inputs = mx.nd.random.normal(shape=(512, 8))
    targets = inputs[:, :1] * inputs[:, 1:2]
    net, loss_function = nn.HybridSequential(prefix="net_"), gluon.loss.L2Loss(prefix="loss_")
    with net.name_scope():
        net.add(nn.Dense(32, activation="relu"), nn.Dense(1))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.01})
    hook = smd.Hook(
        directory,
        include_collections=["gradients"],
        save_config=smd.SaveConfig(save_interval=10),
        reduction_config=smd.ReductionConfig(norms=["l2"], abs_reductions=["max"]),
    )
    hook.register_block(net)
    hook.register_block(loss_function)
    for _ in range(300):
        with autograd.record():
            loss = loss_function(net(inputs), targets)
        loss.backward()
        trainer.step(len(inputs))
    hook.close()
    print(hook.stats())


if __name__ == "__main__":
    where = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="tornasole-")
    train(where)
    trial = smd.create_trial(where)
    print(trial)
    losses = {step: trial.tensor("loss_output_0").value(step).mean() for step in trial.steps()}
    for step in trial.steps()[::5]:
        print(f"  step {step:3d}  loss {losses[step]:.4f}  {'#' * int(50 * losses[step])}")
    for name in trial.tensor_names(collection="gradients"):
        steps, norms = trial.tensor(name).series("l2")
        print(
            f"  {name:28} L2 norm {norms[0]:6.2f} at step {steps[0]}, {norms[-1]:6.2f} at the end"
        )
