"""train_mxnet.py [get_hook|from_json]: a script for SageMaker, in the manner of AWS's examples.

It prints losses in JSON as they come, and the weights at the end.
"""

import json
import sys

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon

import smdebug.mxnet as smd


def main(way):
    mx.random.seed(0)
    np.random.seed(0)
    net = gluon.nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(gluon.nn.Dense(8, activation="relu"), gluon.nn.Dense(3))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    loss_fn = gluon.loss.SoftmaxCrossEntropyLoss(prefix="loss_")
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    hook = smd.get_hook() if way == "get_hook" else smd.Hook.create_from_json_file()
    if hook:
        hook.register_block(net)
        hook.register_block(loss_fn)
    for epoch in range(2):
        if hook:
            hook.set_mode(smd.modes.TRAIN)
        for _ in range(3):
            x = mx.nd.random.normal(shape=(16, 6))
            with autograd.record():
                loss = loss_fn(net(x), x[:, :3].argmax(axis=1))
            loss.backward()
            trainer.step(16)
            print(json.dumps(["loss", "TRAIN", loss.asnumpy().tolist()]))
        if hook:
            hook.set_mode(smd.modes.EVAL)
        x = mx.nd.random.normal(shape=(16, 6))
        loss = loss_fn(net(x), x[:, :3].argmax(axis=1))
        print(json.dumps(["loss", "EVAL", loss.asnumpy().tolist()]))
        if hook:
            hook.save_scalar("epoch", epoch, sm_metric=True)
    weights = [each.data().asnumpy().tolist() for each in net.collect_params().values()]
    print(json.dumps(["weights", weights]))


if __name__ == "__main__":
    main(*sys.argv[1:])
