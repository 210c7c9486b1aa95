"""A loop of Gluon's, with an evaluation after every epoch."""

import hashlib

import mxnet as mx
from mxnet import autograd, gluon

mx.random.seed(1)
net = gluon.nn.HybridSequential()
net.add(gluon.nn.Dense(8, activation="relu"), gluon.nn.Dropout(0.2), gluon.nn.Dense(3))
net.initialize(mx.init.Xavier())
loss_function = gluon.loss.SoftmaxCrossEntropyLoss()
trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.01})
batches = [
    (mx.nd.random.normal(shape=(8, 5)), mx.nd.random.randint(0, 3, shape=(8,))) for _ in range(5)
]
for _ in range(2):
    for inputs, labels in batches:
        with autograd.record():
            loss = loss_function(net(inputs), labels)
        loss.backward()
        trainer.step(8)
        print("loss", loss.mean().asscalar())
    print("evaluation", loss_function(net(batches[0][0]), batches[0][1]).mean().asscalar())
weights = b"".join(each.data().asnumpy().tobytes() for each in net.collect_params().values())
print("weights", hashlib.sha256(weights).hexdigest())
