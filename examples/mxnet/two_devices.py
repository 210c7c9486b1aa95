"""A batch is split among two devices: its parts are one step, and the outputs of both are saved.

python examples/mxnet/two_devices.py [DIRECTORY]
"""

import sys
import tempfile

import mxnet as mx
from mxnet import autograd, gluon
from mxnet.gluon import nn

import smdebug.mxnet as smd

# With GPUs: [mx.gpu(0), mx.gpu(1)].
DEVICES = [mx.cpu(0), mx.cpu(1)]


def train(directory: str) -> None:
    mx.random.seed(0)
    net, loss_function = nn.Dense(2, prefix="net_"), gluon.loss.L2Loss(prefix="loss_")
    net.initialize(ctx=DEVICES)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    hook = smd.Hook(directory, save_all=True, save_config=smd.SaveConfig(save_interval=10))
    hook.register_block(net)
    hook.register_block(loss_function)
    for _ in range(31):
        batch = mx.nd.random.normal(shape=(32, 4))
        parts = gluon.utils.split_and_load(batch, DEVICES)
        with autograd.record():
            losses = [loss_function(net(part), part[:, :2]) for part in parts]
        autograd.backward(losses)
        trainer.step(len(batch))
    hook.close()


if __name__ == "__main__":
    where = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="tornasole-")
    train(where)
    trial = smd.create_trial(where)
    print(trial)
    for step in trial.steps():
        parts = [trial.tensor(f"loss_output_{place}").value(step).mean() for place in (0, 1)]
        norm = abs(trial.tensor("gradient/net_weight").value(step)).max()
        print(f"  step {step:2}: losses {parts[0]:.4f} and {parts[1]:.4f}, gradient {norm:.3f}")
