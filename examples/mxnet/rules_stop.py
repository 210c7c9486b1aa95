"""A rule sees that the gradients have vanished, and training stops.

python examples/mxnet/rules_stop.py [DIRECTORY]
"""

import sys
import tempfile

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from mxnet.gluon import nn

import smdebug.mxnet as smd
from smdebug.exceptions import RuleEvaluationConditionMet

RULES = ["VanishingGradient", "NonFinite", "DeadRelu"]


def train(directory: str, steps: int = 10_000) -> None:
    mx.random.seed(0)
    net, loss_function = nn.HybridSequential(prefix=""), gluon.loss.SoftmaxCrossEntropyLoss()
    net.add(nn.Dense(16, "relu", prefix="layer00_"))
    net.add(*[nn.Dense(16, "sigmoid", prefix=f"layer{number:02}_") for number in range(1, 16)])
    net.add(nn.Dense(2, prefix="scores_"))
    net.initialize(mx.init.Xavier())
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.01})
    # What the rules need is saved, with nothing else to configure.
    hook = smd.Hook(directory, rules=RULES, on_finding="stop")
    hook.register_block(net)
    hook.register_block(loss_function)
    try:
        for _ in range(steps):
            values = mx.nd.random.normal(shape=(32, 16))
            with autograd.record():
                loss = loss_function(net(values), values.sum(axis=1) > 0)
            loss.backward()
            trainer.step(32)
    except RuleEvaluationConditionMet as found:
        print(f"training has stopped after step {hook.step} of {steps}: {found}")
    hook.close()
    print(hook.rule_report())


if __name__ == "__main__":
    where = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="tornasole-")
    train(where)
    trial = smd.create_trial(where)
    finding = next(each for each in trial.findings() if each.rule == "VanishingGradient")
    print(f"the mean of the absolute gradients, at step {finding.step}")
    for name in trial.tensor_names(step=finding.step, regex="^gradient/layer.*weight"):
        mean = trial.tensor(name).reduction_value(finding.step, "mean", abs=True)
        print(f"  {name:25} {mean:7.1e}  {'#' * max(0, round(4 * (np.log10(mean) + 11)))}")
