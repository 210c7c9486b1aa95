"""A script as it was written for Tornasole: collections by regex, each with its own schedule.

python examples/mxnet/older_script.py [DIRECTORY]
"""

import sys
import tempfile

import mxnet as mx
from mxnet import autograd, gluon
from mxnet.gluon import nn

import tornasole.mxnet as tm
from tornasole.mxnet.hook import TornasoleHook


def train(directory: str) -> None:
    mx.random.seed(0)
    net, loss_function = nn.Sequential(prefix="net_"), gluon.loss.SoftmaxCrossEntropyLoss()
    with net.name_scope():
        net.add(nn.Dense(16, activation="relu"), nn.Dense(16, activation="relu"), nn.Dense(4))
    net.initialize(mx.init.Xavier())
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})

    tm.get_collection("ReluActivation").include(["relu*"])
    tm.get_collection("ReluActivation").set_save_config(tm.SaveConfig(save_interval=20))
    tm.get_collection("ReluActivation").set_reduction_config(
        tm.ReductionConfig(reductions=["min", "mean", "std"])
    )
    hook = TornasoleHook(
        out_dir=directory,
        include_collections=["weights", "gradients", "bias", "ReluActivation"],
        save_config=tm.SaveConfig(save_interval=10),
    )
    for block in (net, loss_function):
        hook.register_hook(block)

    for number in range(61):
        evaluates = number % 10 == 9
        hook.set_mode(tm.modes.EVAL if evaluates else tm.modes.TRAIN)
        inputs = mx.nd.random.normal(shape=(64, 8))
        with autograd.record(train_mode=not evaluates):
            loss = loss_function(net(inputs), inputs.argmax(axis=1) % 4)
        if not evaluates:
            loss.backward()
            trainer.step(len(inputs))
    hook.close()


if __name__ == "__main__":
    where = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="tornasole-")
    train(where)
    trial = tm.create_trial(where)
    print(trial)
    print(*(f"  {mode.name}: steps {trial.steps(mode=mode)}" for mode in trial.modes()), sep="\n")
    for name in trial.tensor_names(collection="ReluActivation"):
        steps, means = trial.tensor(name).series("mean", mode=tm.modes.TRAIN)
        values = [f"{mean:.2f} at {step}" for step, mean in zip(steps, means, strict=True)]
        print(f"  {name:24} mean {', '.join(values)}")
