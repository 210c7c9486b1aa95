"""Training scripts of all kinds: what the hook saves is what MXNet itself shows, bit for bit."""

from __future__ import annotations

import copy
import gc
import pickle
from typing import TYPE_CHECKING, Any

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon, nd
from mxnet.gluon import nn, rnn
from tests.mxnet.nets import (
    Watch,
    assert_same_end,
    assert_saved,
    batch,
    check_script,
    every_step,
    hooks_left,
    numbers,
    parameters,
    perceptron,
    run_script,
    sgd,
    train,
)

import smdebug.mxnet as smd

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

# MXNet warns about a hybridized net with hooks, and about symbols.
pytestmark = [
    pytest.mark.filterwarnings("ignore:(?s).*is being hybridized while still having:UserWarning"),
    pytest.mark.filterwarnings("ignore:Cannot decide type:UserWarning"),
]

SoftmaxLoss = gluon.loss.SoftmaxCrossEntropyLoss


# ---- blocks of all kinds


def plain() -> Any:
    return perceptron()


def known_shapes() -> Any:
    return perceptron(in_units=5)


def normed() -> Any:
    net = nn.HybridSequential()
    with net.name_scope():
        net.add(nn.Dense(6), nn.BatchNorm(), nn.Activation("tanh"), nn.Dropout(0.5), nn.Dense(3))
    return net


class Pair(nn.Block):
    """Returns a tuple with a list in it to its parent."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        with self.name_scope():
            self.left, self.right = nn.Dense(3), nn.Dense(3)

    def forward(self, x: Any) -> Any:
        return self.left(x), [self.right(x), x * 2]


class Words(nn.Block):
    """Returns a dict."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        with self.name_scope():
            self.head = nn.Dense(3)

    def forward(self, x: Any) -> Any:
        out = self.head(x)
        return {"logits": out, "chances": out.softmax()}


class Nested(nn.Block):
    """Blocks of its own inside, one of them called twice."""

    def __init__(self) -> None:
        super().__init__()
        with self.name_scope():
            self.pair, self.words = Pair(), Words()
            self.shared = nn.Dense(5, flatten=False)

    def forward(self, x: Any) -> Any:
        left, (right, double) = self.pair(self.shared(self.shared(x)))
        return self.words(nd.concat(left, right, double))["logits"]


class Scaled(nn.HybridBlock):
    """Has its own parameters and a constant, and a child."""

    def __init__(self) -> None:
        super().__init__()
        with self.name_scope():
            self.dense = nn.Dense(3, in_units=5)
            self.scale = self.params.get("scale", shape=(1,), init="ones")
            self.frozen = self.params.get("frozen", shape=(1, 3), init="ones", grad_req="null")
            self.shift = self.params.get_constant("shift", [[0.5, 0.25, 0.125]])

    def hybrid_forward(self, F: Any, x: Any, scale: Any, frozen: Any, shift: Any) -> Any:
        out = F.broadcast_mul(self.dense(x), scale)
        return F.broadcast_add(F.broadcast_mul(out, frozen), shift)


class Tied(nn.HybridBlock):
    """Two layers with the same parameters."""

    def __init__(self) -> None:
        super().__init__()
        with self.name_scope():
            self.one = nn.Dense(5, in_units=5)
            self.other = nn.Dense(5, in_units=5, params=self.one.params)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return self.other(F.tanh(self.one(x)))


class Layers(nn.Block):
    """Recurrent layers: whole ones and cells."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        with self.name_scope():
            make = {"lstm": rnn.LSTM, "gru": rnn.GRU, "lstmcell": rnn.LSTMCell}[kind]
            self.recurrent = make(4)
            self.head = nn.Dense(3)

    def forward(self, x: Any) -> Any:
        sequence = x.expand_dims(2)
        if isinstance(self.recurrent, rnn.LSTMCell):
            outputs, _ = self.recurrent.unroll(5, sequence, layout="NTC", merge_outputs=False)
            return self.head(outputs[-1])
        return self.head(self.recurrent(sequence.swapaxes(0, 1))[-1])


class InPlace(nn.Block):
    """Writes to the output of a child, and to what it was given."""

    def __init__(self) -> None:
        super().__init__()
        with self.name_scope():
            self.first, self.last = nn.Dense(5), nn.Dense(3)

    def forward(self, x: Any) -> Any:
        with autograd.pause():
            noise = self.first(x)
            noise *= 2
            x += noise
            noise[:] = float("nan")
        return self.last(nd.concat(x, self.first(x)))


class Sign(autograd.Function):
    """A function with a gradient of its own, called back from MXNet's threads."""

    def forward(self, x: Any) -> Any:
        self.save_for_backward(x)
        return x.sign()

    def backward(self, dy: Any) -> Any:
        (x,) = self.saved_tensors
        return dy * (x.abs() < 1)


class Binary(nn.Block):
    def __init__(self) -> None:
        super().__init__()
        with self.name_scope():
            self.first, self.last = nn.Dense(6), nn.Dense(3)

    def forward(self, x: Any) -> Any:
        return self.last(Sign()(self.first(x)))


def lstm() -> Any:
    return Layers("lstm")


def gru() -> Any:
    return Layers("gru")


def cell() -> Any:
    return Layers("lstmcell")


BLOCKS = [plain, known_shapes, normed, Nested, Scaled, Tied, lstm, gru, cell, InPlace, Binary]


@pytest.mark.parametrize("make", BLOCKS)
def test_saved_tensors_equal_those_of_mxnet(tmp_path: Path, make: Callable[[], Any]) -> None:
    def script(watch: Watch) -> list[Any]:
        net = make()
        net.initialize(mx.init.Xavier())
        return train(watch, net)

    seen = check_script(script, tmp_path).watch.seen
    assert len(seen) == 3
    if make is Nested:
        assert {"nested0_words0_output_logits", "nested0_words0_output_chances"} <= set(seen[0])
        assert "nested0_dense0_output_1" in seen[0]


HYBRID: list[tuple[Callable[[], Any], dict[str, Any]]] = [
    (plain, {}),
    (plain, {"static_alloc": True, "static_shape": True}),
    (normed, {"static_alloc": True}),
    (normed, {"static_alloc": True, "static_shape": True}),
    (Scaled, {}),
    (Tied, {"static_alloc": True, "static_shape": True}),
]


@pytest.mark.parametrize(("make", "options"), HYBRID)
@pytest.mark.parametrize("when", ["before", "after", "later"])
def test_tensors_outside_the_graph_of_a_hybridized_net_are_saved(
    tmp_path: Path, make: Callable[[], Any], options: dict[str, Any], when: str
) -> None:
    def script(watch: Watch) -> list[Any]:
        net, loss = make(), SoftmaxLoss()
        net.initialize()
        if when == "before":
            net.hybridize(**options)
        watch.register(net)
        watch.register_loss(loss)
        if when == "after":
            net.hybridize(**options)
            loss.hybridize(**options)
        trainer, results = None, []
        for number in range(5):
            if when == "later" and number in (2, 4):
                net.hybridize(active=number == 2, **options)
            x, y = batch()
            with autograd.record():
                value = loss(net(x), y)
            watch.backward(value)
            trainer = trainer or sgd(net)
            trainer.step(4)
            results.append(value)
        return [*parameters(net), *results]

    seen = check_script(script, tmp_path).watch.seen
    inside = [any("dense0_output" in name for name in seen[step]) for step in range(5)]
    # The children of a net that is one graph are called once, with symbols.
    assert inside == [when == "later" and step in (0, 1, 4) for step in range(5)]


@pytest.mark.parametrize("options", [{}, {"static_alloc": True, "static_shape": True}])
def test_only_a_hybridized_child_hides_its_blocks(tmp_path: Path, options: dict[str, Any]) -> None:
    def script(watch: Watch) -> list[Any]:
        net = nn.Sequential()
        with net.name_scope():
            net.add(perceptron(prefix="inner_"), nn.Dense(3))
        net.initialize()
        net[0].hybridize(**options)
        return train(watch, net, steps=4)

    names = set(check_script(script, tmp_path).watch.seen[3])
    assert any("inner_output_0" in name for name in names)
    assert not any("inner_dense0_output" in name for name in names)
    assert any("inner_dense0_weight" in name for name in names)


@pytest.mark.parametrize("sparse", [False, True])
def test_an_embedding_with_sparse_gradients(tmp_path: Path, sparse: bool) -> None:
    def script(watch: Watch) -> list[Any]:
        net = nn.HybridSequential()
        with net.name_scope():
            net.add(nn.Embedding(20, 4, sparse_grad=sparse), nn.Dense(3))
        net.initialize()
        return train(watch, net, data=lambda: (nd.array(np.random.randint(0, 20, (4, 2))), ys()))

    seen = check_script(script, tmp_path).watch.seen
    assert seen[1]["gradient/hybridsequential0_embedding0_weight"].shape == (20, 4)


def ys() -> Any:
    return nd.array(np.random.randint(0, 3, 4))


def test_a_sparse_input_is_saved_dense(tmp_path: Path) -> None:
    class Linear(nn.HybridBlock):
        def __init__(self) -> None:
            super().__init__()
            with self.name_scope():
                self.weight = self.params.get("weight", shape=(5, 3))

        def hybrid_forward(self, F: Any, x: Any, weight: Any) -> Any:
            return F.sparse.dot(x, weight)

    def data() -> tuple[Any, Any]:
        x, y = batch()
        return (x * (x > 0)).tostype("csr"), y

    def script(watch: Watch) -> list[Any]:
        net = Linear()
        net.initialize()
        return train(watch, net, data=data)

    seen = check_script(script, tmp_path).watch.seen
    assert seen[0]["linear0_input_0"].shape == (4, 5)


def test_a_symbol_block_has_the_parameters_of_its_graph(tmp_path: Path) -> None:
    def script(watch: Watch) -> list[Any]:
        data = mx.sym.var("data")
        hidden = mx.sym.FullyConnected(data, num_hidden=4, name="fc1")
        out = mx.sym.FullyConnected(mx.sym.tanh(hidden), num_hidden=3, name="fc2")
        net = gluon.SymbolBlock([out, hidden], [data])
        net.initialize()
        head = nn.Sequential()
        with head.name_scope():
            head.add(net, First())
        return train(watch, head)

    class First(nn.Block):
        def forward(self, outs: Any) -> Any:
            return outs[0]

    seen = check_script(script, tmp_path).watch.seen
    assert {"fc1_weight", "gradient/fc2_bias"} <= set(seen[0])
    # Both outputs of the graph, under whatever name MXNet gave to the block.
    outputs = [each for name, each in seen[0].items() if name.endswith("_output_1")]
    assert [each.shape for each in outputs] == [(4, 4)]


@pytest.mark.parametrize("name", ["mobilenet0.25", "resnet18_v1"])
@pytest.mark.parametrize("hybrid", [False, True])
def test_nets_of_the_model_zoo(tmp_path: Path, name: str, hybrid: bool) -> None:
    def script(watch: Watch) -> list[Any]:
        net = gluon.model_zoo.vision.get_model(name, classes=3)
        net.initialize(mx.init.Xavier())
        if hybrid:
            net.hybridize(static_alloc=True)
        return train(watch, net, steps=2, data=images)

    def images() -> tuple[Any, Any]:
        return nd.random.normal(shape=(2, 3, 32, 32)), nd.array(np.random.randint(0, 3, 2))

    check_script(script, tmp_path)


def test_numpy_arrays_of_mxnet(tmp_path: Path) -> None:
    """Scalars and empty arrays have shapes that only exist in this mode."""

    def script(watch: Watch) -> list[Any]:
        net, loss = nn.HybridSequential(), gluon.loss.L2Loss()
        with net.name_scope():
            net.add(nn.Dense(6), nn.Dense(3))
        net.initialize()
        watch.register(net)
        watch.register_loss(loss)
        trainer, results = None, []
        for _ in range(3):
            x = mx.np.random.normal(size=(4, 5))
            with autograd.record():
                value = loss(net(x), mx.np.zeros((4, 3))).mean()
            watch.backward(value)
            trainer = trainer or sgd(net)
            trainer.step(1)
            for name, array in (("mean", value), ("none", x[:0]), ("signs", x > 0)):
                watch.saw(name, array)
                if watch.hook is not None:
                    watch.hook.save_tensor(name, array)
            results.append(value)
        return [*parameters(net), *results]

    mx.npx.set_np()
    try:
        truth = run_script(script, Watch(witness=True))
        hooked = run_script(script, Watch(every_step(tmp_path)))
    finally:
        mx.npx.reset_np()
    assert_same_end(truth, hooked)
    assert truth.watch.seen[0]["mean"].shape == ()
    assert truth.watch.seen[0]["none"].shape == (0, 5)
    assert truth.watch.seen[0]["signs"].dtype == np.bool_
    assert_saved(smd.create_trial(str(tmp_path)), truth.watch.seen)


class Scale(nn.HybridBlock):
    """What MXNet computes in half precision without a GPU."""

    def __init__(self) -> None:
        super().__init__()
        with self.name_scope():
            self.weight = self.params.get("weight", shape=(1, 5))

    def hybrid_forward(self, F: Any, x: Any, weight: Any) -> Any:
        return F.broadcast_mul(x, weight)


def test_half_precision_with_master_weights(tmp_path: Path) -> None:
    def script(watch: Watch) -> list[Any]:
        net = Scale()
        net.cast("float16")
        net.initialize()
        options = {"learning_rate": 0.1, "momentum": 0.9, "multi_precision": True}
        trainer = gluon.Trainer(net.collect_params(), "sgd", options, kvstore=None)
        return train(watch, net, trainer=trainer, data=lambda: (batch()[0].astype("float16"), ys()))

    seen = check_script(script, tmp_path).watch.seen
    assert seen[0]["scale0_weight"].dtype == np.float16


@pytest.mark.parametrize("dtype", ["bfloat16", "float64", "int64", "int8", "uint8", "int32"])
def test_arrays_of_every_type_can_be_saved(tmp_path: Path, dtype: str) -> None:
    """Of bfloat16 MXNet shows the bits; the numbers are those of its own conversion."""
    numbers_in = nd.array([[0, 1, 2], [3, 100, 7]])
    array = nd.amp_cast(numbers_in, dtype) if dtype == "bfloat16" else numbers_in.astype(dtype)
    net = perceptron()
    net.initialize()
    with every_step(tmp_path) as hook:
        hook.register_block(net)
        net(nd.ones((1, 5)))
        hook.save_tensor("mine", array)
    found = smd.create_trial(str(tmp_path)).tensor("mine").value(0)
    assert found.dtype.name == dtype
    np.testing.assert_array_equal(found.astype("float32"), numbers_in.asnumpy())


# ---- gradients


@pytest.mark.parametrize("after", ["clip", "zero", "overwrite", "allreduce"])
def test_gradients_are_what_backward_left_whatever_happens_to_them(
    tmp_path: Path, after: str
) -> None:
    def script(watch: Watch) -> list[Any]:
        net, loss = plain(), SoftmaxLoss()
        net.initialize()
        net(nd.ones((1, 5)))
        watch.register(net)
        trainer = sgd(net, kvstore="device" if after == "allreduce" else None)
        grads = [p.grad() for p in net.collect_params().values()]
        for _ in range(3):
            x, y = batch()
            with autograd.record():
                value = loss(net(x) * 50, y)
            watch.backward(value)
            if after == "clip":
                gluon.utils.clip_global_norm(grads, 0.01)
            if after == "overwrite":
                for each in grads:
                    each[:] = 7
            trainer.step(4)
            if after == "zero":
                for each in net.collect_params().values():
                    each.zero_grad()
        return parameters(net)

    seen = check_script(script, tmp_path).watch.seen
    assert np.abs(seen[2]["gradient/hybridsequential0_dense1_bias"]).max() > 0.05


def test_accumulated_gradients_grow_from_step_to_step(tmp_path: Path) -> None:
    def script(watch: Watch) -> list[Any]:
        net, loss = plain(), SoftmaxLoss()
        net.initialize()
        net.collect_params().setattr("grad_req", "add")
        net(nd.ones((1, 5)))
        watch.register(net)
        watch.register_loss(loss)
        trainer = sgd(net)
        for number in range(6):
            x, y = batch()
            with autograd.record():
                value = loss(net(x), y)
            watch.backward(value)
            if number % 3 == 2:
                trainer.step(12)
                net.collect_params().zero_grad()
        return parameters(net)

    seen = check_script(script, tmp_path).watch.seen
    name = "hybridsequential0_dense0_weight"
    assert seen[0][name].tobytes() == seen[1][name].tobytes() != seen[2][name].tobytes()


def test_frozen_parameters_have_no_gradients_until_they_are_trained(tmp_path: Path) -> None:
    def script(watch: Watch) -> list[Any]:
        net, loss = known_shapes(), SoftmaxLoss()
        net.initialize()
        net(nd.ones((1, 5)))
        watch.register(net)
        first = net[0].collect_params()
        first.setattr("grad_req", "null")
        for number in range(4):
            if number == 2:
                first.setattr("grad_req", "write")
            x, y = batch()
            with autograd.record():
                value = loss(net(x), y)
            watch.backward(value)
            sgd(net).step(4)
        return parameters(net)

    seen = check_script(script, tmp_path).watch.seen
    has = ["gradient/hybridsequential0_dense0_weight" in seen[step] for step in range(4)]
    assert has == [False, False, True, True]


@pytest.mark.parametrize("how", ["method", "module", "heads", "twice"])
def test_all_ways_to_run_a_backward_pass(tmp_path: Path, how: str) -> None:
    def script(watch: Watch) -> list[Any]:
        net, loss, other = plain(), SoftmaxLoss(), gluon.loss.L1Loss()
        net.initialize()
        net(nd.ones((1, 5)))
        watch.register(net)
        watch.register_loss(loss)
        watch.register_loss(other)
        trainer = sgd(net)
        for _ in range(3):
            x, y = batch()
            with autograd.record():
                out = net(x)
                values = [loss(out, y), other(out, nd.ones((4, 3)))]
            if how == "method":
                watch.backward(values[0])
            elif how == "module":
                autograd.backward(values)
            elif how == "heads":
                autograd.backward(values, [nd.arange(4), nd.ones(4)])
            else:
                # The gradients of a step are those of its last backward pass.
                values[0].backward(retain_graph=True)
                values[1].backward()
            watch.saw_gradients()
            trainer.step(4)
        return [*parameters(net), *values]

    check_script(script, tmp_path)


def test_backward_imported_by_name_is_observed(tmp_path: Path) -> None:
    """`from mxnet.autograd import backward` at the head of a script comes before any hook."""
    namespace: dict[str, Any] = {}
    exec("from mxnet.autograd import backward", namespace)

    def script(watch: Watch) -> list[Any]:
        net, loss = plain(), SoftmaxLoss()
        net.initialize()
        watch.register(net)
        for _ in range(2):
            x, y = batch()
            with autograd.record():
                value = loss(net(x), y)
            namespace["backward"]([value])
            watch.saw_gradients()
            sgd(net).step(4)
        return parameters(net)

    check_script(script, tmp_path)


def test_autograd_grad_is_not_a_backward_pass(tmp_path: Path) -> None:
    """`autograd.grad` does not change gradients of parameters; a gradient penalty then does."""

    def script(watch: Watch) -> list[Any]:
        net = nn.Dense(1, in_units=5)
        net.initialize()
        watch.register(net)
        trainer = sgd(net)
        for number in range(4):
            x, _ = batch()
            x.attach_grad()
            with autograd.record():
                out = net(x)
                (slope,) = autograd.grad([out], [x], create_graph=True, retain_graph=True)
                value = ((slope**2).sum() - 1) ** 2 + out.sum()
            if number % 2:
                watch.backward(value)
                trainer.step(4)
        return [*parameters(net), slope]

    seen = check_script(script, tmp_path).watch.seen
    has = ["gradient/dense0_weight" in seen[step] for step in range(4)]
    assert has == [False, True, False, True]


@pytest.mark.parametrize("when", ["after update", "before update", "by hand", "in the store"])
def test_backward_pass_of_another_net_is_ignored(tmp_path: Path, when: str) -> None:
    """A step without its own backward pass has no gradients, and a step's own are kept."""

    def script(watch: Watch) -> list[Any]:
        net, other, loss = known_shapes(), perceptron(prefix="other_"), SoftmaxLoss()
        net.initialize()
        other.initialize()
        watch.register(net)
        store: dict[str, Any] = {}
        if when == "in the store":
            # Passed by name, it is skipped if there is one device.
            store = {"kvstore": mx.kv.create("local"), "update_on_kvstore": True}
        trainer = sgd(net, **store)

        def update() -> None:
            if when != "by hand":
                trainer.step(4)
                return
            for each in net.collect_params().values():
                each.data()[:] -= 0.1 * each.grad()

        for number in range(4):
            x, y = batch()
            with autograd.record():
                value = loss(net(x), y)
            if number != 1:
                watch.backward(value)
                for each in net.collect_params().values():
                    # As scripts clip them; the backward pass of another net must not show this.
                    each.grad()[:] *= 0.5
                if when != "before update":
                    update()
                    net.collect_params().zero_grad()
            # A net that is not registered, such as a teacher or a second job of the script.
            with autograd.record():
                value = loss(other(x), y)
            value.backward()
            if when == "before update" and number != 1:
                update()
        return parameters(net, other)

    seen = check_script(script, tmp_path).watch.seen
    assert not any(name.startswith("gradient/") for name in seen[1])


# ---- several nets, losses, devices


def gan(watch: Watch) -> list[Any]:
    generator = perceptron(prefix="generator_")
    discriminator = perceptron(prefix="discriminator_")
    loss = gluon.loss.SigmoidBinaryCrossEntropyLoss()
    for net in (generator, discriminator):
        net.initialize()
        watch.register(net)
    watch.register_loss(loss)
    trainers: list[Any] = []
    values = []
    for _ in range(3):
        with autograd.record():
            real, fake = nd.random.normal(shape=(4, 3)), generator(nd.random.normal(shape=(4, 5)))
            value = loss(discriminator(real), nd.ones((4, 3)))
            value = value + loss(discriminator(fake.detach()), nd.zeros((4, 3)))
        watch.backward(value)
        trainers = trainers or [sgd(generator), sgd(discriminator)]
        trainers[1].step(4)
        if watch.witness:
            # The generator had no part in that backward pass.
            names = [name for name in watch.seen[watch.step] if "gradient/generator" in name]
            for name in names:
                del watch.seen[watch.step][name]
        with autograd.record():
            value = loss(discriminator(fake), nd.ones((4, 3)))
        watch.backward(value)
        trainers[0].step(4)
        values.append(value)
    return [*parameters(generator, discriminator), *values]


def test_a_gan_has_a_step_for_each_forward_of_each_net(tmp_path: Path) -> None:
    truth = run_script(gan, Watch(witness=True))
    # All but gradients, which are the next test's.
    hook = every_step(tmp_path, save_all=False, include_regex=["^(?!gradient)"])
    assert_same_end(truth, run_script(gan, Watch(hook)))
    seen = {
        step: {name: each for name, each in arrays.items() if not name.startswith("gradient/")}
        for step, arrays in truth.watch.seen.items()
    }
    assert_saved(smd.create_trial(str(tmp_path)), seen)
    assert len(seen) == 12
    assert {"generator_dense0_weight", "discriminator_dense0_weight"} <= set(seen[11])


def test_parameters_that_a_backward_pass_did_not_reach_have_no_gradients(tmp_path: Path) -> None:
    """What they have is left from an earlier step, or was never computed."""
    seen = check_script(gan, tmp_path).watch.seen
    reached = [step for step in seen if "gradient/generator_dense0_weight" in seen[step]]
    assert reached == [3, 7, 11]


def test_several_losses_of_one_class_have_names_of_their_own(tmp_path: Path) -> None:
    def script(watch: Watch) -> list[Any]:
        net = plain()
        net.initialize()
        losses = [gluon.loss.L2Loss() for _ in range(12)]
        watch.register(net)
        for loss in losses:
            watch.register_loss(loss)
        losses[3].hybridize()
        for _ in range(2):
            x, _ = batch()
            with autograd.record():
                out = net(x)
                value = sum(loss(out, nd.ones((4, 3)) * n) for n, loss in enumerate(losses))
                # Called a second time in the step.
                value = value + losses[0](out, out.detach())
            watch.backward(value)
            sgd(net).step(4)
        return [*parameters(net), value]

    seen = check_script(script, tmp_path).watch.seen
    assert {"l2loss0_output_1", "l2loss11_output_0"} <= set(seen[1])
    trial = smd.create_trial(str(tmp_path))
    assert len(trial.tensor_names(collection="losses")) == 13


def test_a_loss_inside_the_net_that_is_registered_too_is_saved_once(tmp_path: Path) -> None:
    class WithLoss(nn.Block):
        def __init__(self) -> None:
            super().__init__()
            with self.name_scope():
                self.net, self.loss = plain(), SoftmaxLoss()

        def forward(self, x: Any, y: Any) -> Any:
            return self.loss(self.net(x), y)

    def script(watch: Watch) -> list[Any]:
        whole = WithLoss()
        whole.initialize()
        watch.register(whole)
        watch.register_loss(whole.loss)
        for _ in range(2):
            with autograd.record():
                value = whole(*batch())
            watch.backward(value)
            sgd(whole).step(4)
        return parameters(whole)

    check_script(script, tmp_path)


def test_two_registered_nets_that_share_parameters(tmp_path: Path) -> None:
    def script(watch: Watch) -> list[Any]:
        one, loss = known_shapes(), SoftmaxLoss()
        other = nn.HybridSequential(prefix="other_")
        other.add(one[0], nn.Dense(3, in_units=6, prefix="head_"))
        one.initialize()
        other[1].initialize()
        watch.register(one)
        watch.register(other)
        trainer = gluon.Trainer(
            {**one.collect_params(), **other.collect_params()}, "sgd", {"learning_rate": 0.1}
        )
        for _ in range(3):
            x, y = batch()
            with autograd.record():
                value = loss(one(x), y) + loss(other(x), y)
            watch.backward(value)
            trainer.step(4)
        return parameters(one, other)

    check_script(script, tmp_path)


DEVICES = [mx.cpu(0), mx.cpu(1)]
STORES: list[dict[str, Any]] = [
    {"kvstore": None},
    {"kvstore": "local"},
    {"kvstore": "device"},
    {"kvstore": "local", "update_on_kvstore": True},
    {"kvstore": "device", "update_on_kvstore": True},
    {"kvstore": "device", "update_on_kvstore": False},
]


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("order", ["together", "interleaved", "hybrid"])
def test_the_parts_of_a_split_batch_are_one_step(
    tmp_path: Path, store: dict[str, Any], order: str
) -> None:
    def script(watch: Watch) -> list[Any]:
        watch.parts = 2
        # Neither dropout nor batch norm: on two devices MXNet alone gives other numbers each time.
        net, loss = plain(), SoftmaxLoss()
        net.initialize(ctx=DEVICES)
        for each in DEVICES:
            net(nd.ones((1, 5), ctx=each))
        watch.register(net)
        watch.register_loss(loss)
        if order == "hybrid":
            net.hybridize(static_alloc=True, static_shape=True)
        trainer = sgd(net, **store)
        values: list[Any] = []
        for _ in range(3):
            pairs = zip(*(gluon.utils.split_and_load(z, DEVICES) for z in batch()), strict=True)
            if order != "interleaved":
                with autograd.record():
                    values = [loss(net(x), y) for x, y in pairs]
                watch.backward(*values)
            else:
                values = []
                for x, y in pairs:
                    with autograd.record():
                        values.append(loss(net(x), y))
                    watch.backward(values[-1])
            trainer.step(4)
        arrays = [each for p in net.collect_params().values() for each in p.list_data()]
        return [*arrays, *values]

    seen = check_script(script, tmp_path).watch.seen
    assert len(seen) == 3
    assert "softmaxcrossentropyloss0_output_1" in seen[0]


def test_a_batch_from_shared_memory_and_one_from_here_are_two_steps(tmp_path: Path) -> None:
    """Loaders with workers give arrays of `cpu_shared`, which is no other device."""
    net = known_shapes()
    net.initialize()
    with every_step(tmp_path) as hook:
        hook.register_block(net)
        for _ in range(2):
            for place in ("cpu_shared", "cpu"):
                with autograd.record():
                    net(nd.ones((2, 5), ctx=mx.Context(place, 0))).backward()
    assert smd.create_trial(str(tmp_path)).steps() == [0, 1, 2, 3]


def test_training_and_evaluation_are_distinguished(tmp_path: Path) -> None:
    def script(watch: Watch) -> list[Any]:
        net, loss = normed(), SoftmaxLoss()
        net.initialize()
        watch.register(net)
        watch.register_loss(loss)
        trainer, values = None, []
        for _ in range(2):
            watch.set_mode(smd.modes.TRAIN)
            for _ in range(3):
                x, y = batch()
                with autograd.record():
                    value = loss(net(x), y)
                watch.backward(value)
                trainer = trainer or sgd(net)
                trainer.step(4)
            watch.set_mode(smd.modes.EVAL)
            for _ in range(2):
                x, y = batch()
                values.append(loss(net(x), y))
        return [*parameters(net), *values]

    seen = check_script(script, tmp_path).watch.seen
    trial = smd.create_trial(str(tmp_path))
    assert trial.steps(mode=smd.modes.TRAIN) == [0, 1, 2, 3, 4, 5]
    assert trial.steps(mode=smd.modes.EVAL) == [0, 1, 2, 3]
    name = "softmaxcrossentropyloss0_output_0"
    found = trial.tensor(name).value(2, mode=smd.modes.EVAL)
    assert found.tobytes() == seen[8][name].tobytes()
    evaluated = {n for step in (3, 4, 8, 9) for n in seen[step]}
    assert not any(n.startswith("gradient/") for n in evaluated)


# ---- what scripts do with nets besides


def through_pickle(net: Any) -> Any:
    return pickle.loads(pickle.dumps(net))


@pytest.mark.parametrize("make", [copy.deepcopy, through_pickle])
def test_copy_of_a_hooked_net_is_independent(tmp_path: Path, make: Callable[[Any], Any]) -> None:
    def script(watch: Watch) -> list[Any]:
        net, loss = known_shapes(), SoftmaxLoss()
        net.initialize()
        watch.register(net)
        copies = []
        for number in range(4):
            x, y = batch()
            with autograd.record():
                value = loss(net(x), y)
            if number in (0, 2) and not watch.witness:
                # In the middle of a step; the witness's own hooks could not go along.
                twin = make(net)
                copies.append(twin)
                twin(nd.ones((2, 5)))
            watch.backward(value)
            sgd(net).step(4)
            for twin in copies:
                twin(nd.ones((2, 5)))
        return parameters(net)

    assert len(check_script(script, tmp_path).watch.seen) == 4


def test_saving_loading_exporting_and_summaries(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def script(watch: Watch) -> list[Any]:
        net, loss = known_shapes(), SoftmaxLoss()
        net.initialize()
        watch.register(net)
        values = []
        for number in range(6):
            x, y = batch()
            with autograd.record():
                value = loss(net(x), y)
            watch.backward(value)
            sgd(net).step(4)
            if number == 1:
                # In the middle of a run, with what the step before left.
                net.save_parameters(str(tmp_path / "net.params"))
            if number == 2:
                net.summary(nd.ones((2, 5)))
            if number == 3:
                net.load_parameters(str(tmp_path / "net.params"))
                net.hybridize()
            if number == 4:
                net.export(str(tmp_path / "net"))
                load = gluon.SymbolBlock.imports
                files = (str(tmp_path / "net-symbol.json"), str(tmp_path / "net-0000.params"))
                values.append(load(files[0], ["data"], files[1])(nd.ones((2, 5))))
            values.append(value)
        return [*parameters(net), *values]

    # A summary is a forward pass too.
    assert len(check_script(script, tmp_path / "run").watch.seen) == 7
    assert "Dense" in capsys.readouterr().out


def test_a_block_replaced_while_training(tmp_path: Path) -> None:
    class Whole(nn.Block):
        def __init__(self) -> None:
            super().__init__()
            with self.name_scope():
                self.body, self.output = nn.Dense(6, in_units=5), nn.Dense(2, in_units=6)

        def forward(self, x: Any) -> Any:
            return self.output(self.body(x))

    def script(watch: Watch) -> list[Any]:
        net, loss = Whole(), SoftmaxLoss()
        net.initialize()
        watch.register(net)
        for number in range(4):
            x, y = batch()
            with autograd.record():
                value = loss(net(x), y.clip(0, 1))
            watch.backward(value)
            sgd(net).step(4)
            if number == 1:
                # As in transfer learning: another head with as many parameters.
                with net.name_scope():
                    net.output = nn.Dense(2, in_units=6)
                net.output.initialize()
                if watch.witness:
                    watch._attach(net.output)
        return parameters(net)

    seen = check_script(script, tmp_path).watch.seen
    assert "gradient/whole0_dense2_weight" in seen[2]
    # The weights of a step are read at its end, when those of the old head are gone.
    assert "gradient/whole0_dense1_weight" in seen[1]
    assert "whole0_dense1_weight" in seen[0].keys() - seen[1].keys()


def test_blocks_added_while_training(tmp_path: Path) -> None:
    def script(watch: Watch) -> list[Any]:
        net, loss = nn.Sequential(), SoftmaxLoss()
        with net.name_scope():
            net.add(nn.Dense(6, in_units=5))
        net.initialize()
        watch.register(net)
        for number in range(3):
            if number == 1:
                with net.name_scope():
                    net.add(nn.Dense(3, in_units=6))
                net[1].initialize()
                if watch.witness:
                    watch._attach(net[1])
            x, y = batch()
            with autograd.record():
                value = loss(net(x), y)
            watch.backward(value)
            sgd(net).step(4)
        return parameters(net)

    seen = check_script(script, tmp_path).watch.seen
    assert "sequential0_dense1_weight" in seen[1]
    assert "gradient/sequential0_dense1_weight" in seen[2]


@pytest.mark.parametrize("what", ["moved", "cast"])
def test_a_net_that_is_moved_or_cast_while_training(tmp_path: Path, what: str) -> None:
    def script(watch: Watch) -> list[Any]:
        net, loss = known_shapes(), SoftmaxLoss()
        net.initialize()
        watch.register(net)
        kind, ctx = "float32", mx.cpu(0)
        for number in range(4):
            if number == 2 and what == "moved":
                ctx = mx.cpu(1)
                net.collect_params().reset_ctx(ctx)
            if number == 2 and what == "cast":
                kind = "float64"
                net.cast(kind)
            x, y = batch()
            with autograd.record():
                value = loss(net(x.as_in_context(ctx).astype(kind)), y.as_in_context(ctx))
            watch.backward(value)
            sgd(net).step(4)
        return parameters(net)

    seen = check_script(script, tmp_path).watch.seen
    expected = np.float64 if what == "cast" else np.float32
    assert seen[3]["hybridsequential0_dense0_weight"].dtype == expected


def test_the_hook_may_be_flushed_anywhere_in_a_step(tmp_path: Path) -> None:
    """Weights are those after the update, also where a step was published before it."""

    def script(watch: Watch) -> list[Any]:
        net, loss = known_shapes(), SoftmaxLoss()
        net.initialize()
        watch.register(net)
        trainer = sgd(net)
        for number in range(3):
            x, y = batch()
            with autograd.record():
                value = loss(net(x), y)
            if watch.hook is not None and number == 0:
                watch.hook.flush()
            watch.backward(value)
            if watch.hook is not None and number == 1:
                watch.hook.flush()
            trainer.step(4)
        return parameters(net)

    check_script(script, tmp_path)


def test_saved_values_are_those_at_the_time_of_the_call(tmp_path: Path) -> None:
    def script(watch: Watch) -> list[Any]:
        net, loss = known_shapes(), SoftmaxLoss()
        net.initialize()
        watch.register(net)
        for _ in range(2):
            x, y = batch()
            with autograd.record():
                out = net(x)
                watch.saw("doubled", out * 2)
                if watch.hook is not None:
                    # While the computation is recorded, of which it is no part.
                    watch.hook.save_tensor("doubled", (out * 2).detach())
                    watch.hook.save_tensor("out", out)
                watch.saw("out", out)
                value = loss(out, y)
            watch.saw("data", x)
            if watch.hook is not None:
                watch.hook.save_tensor("data", x)
            x[:] = float("nan")
            watch.backward(value)
            sgd(net).step(4)
        return parameters(net)

    check_script(script, tmp_path)


def test_row_sparse_parameter_is_skipped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """MXNet gives no data of a row-sparse parameter without the rows one wants."""

    class Rows(nn.Block):
        def __init__(self) -> None:
            super().__init__()
            with self.name_scope():
                self.table = self.params.get(
                    "table", shape=(9, 3), stype="row_sparse", grad_stype="row_sparse"
                )
                self.head = nn.Dense(3, in_units=3)

        def forward(self, rows: Any) -> Any:
            table = self.table.row_sparse_data(rows)
            return self.head(nd.sparse.Embedding(rows, table, 9, 3, sparse_grad=True))

    net, loss = Rows(), SoftmaxLoss()
    net.initialize()
    # Only trainers that keep parameters in a store can give rows of them.
    trainer = sgd(net, kvstore="local", update_on_kvstore=True)
    truth = []
    with every_step(tmp_path) as hook:
        hook.register_block(net)
        for _ in range(3):
            with autograd.record():
                value = loss(net(nd.array([1, 5, 1, 7])), nd.array([0, 1, 2, 1]))
            value.backward()
            truth.append(numbers(net.table.list_grad()[0]))
            trainer.step(4)
    trial = smd.create_trial(str(tmp_path))
    assert trial.steps() == [0, 1, 2]
    name = net.table.name
    assert name not in trial.tensor_names()
    assert [each.message for each in caplog.records if f"{name} is not saved" in each.message]
    for step in range(3):
        np.testing.assert_array_equal(trial.tensor(f"gradient/{name}").value(step), truth[step])


def test_a_block_may_be_registered_together_with_a_part_of_it(tmp_path: Path) -> None:
    """Each forward pass of each is a step, as when they were separate; all blocks are saved."""

    def script(watch: Watch) -> list[Any]:
        net = normed()
        net.initialize()
        watch.register(net[1])
        return train(watch, net)

    seen = check_script(script, tmp_path).watch.seen
    assert len(seen) == 6
    # Before and after the part that is registered itself.
    assert "hybridsequential0_dense0_output_0" in seen[0]
    assert "hybridsequential0_dense1_output_0" in seen[1]


class Gate(nn.Block):
    closed = False

    def forward(self, x: Any) -> Any:
        if self.closed:
            raise FloatingPointError("the script's own")
        return x.relu()


class Tree(nn.Block):
    """Calls itself, as nets over trees do."""

    def __init__(self) -> None:
        super().__init__()
        with self.name_scope():
            self.leaf, self.node = nn.Dense(3, in_units=5), nn.Dense(3, in_units=6)

    def forward(self, tree: Any) -> Any:
        if isinstance(tree, list):
            return self.node(nd.concat(*[self(each) for each in tree])).tanh()
        return self.leaf(tree)


def test_a_net_that_calls_itself(tmp_path: Path) -> None:
    def script(watch: Watch) -> list[Any]:
        net, loss = Tree(), SoftmaxLoss()
        net.initialize()
        watch.register(net)
        watch.register_loss(loss)
        for _ in range(2):
            (x, y), (z, _) = batch(), batch()
            with autograd.record():
                value = loss(net([x, [z, x]]), y)
            watch.backward(value)
            sgd(net).step(4)
        return [*parameters(net), value]

    seen = check_script(script, tmp_path).watch.seen
    assert any("tree0_dense1_output_0" in arrays for arrays in seen.values())


@pytest.mark.parametrize("failing", [False, True])
def test_blocks_called_outside_the_registered_forward_are_not_seen(
    tmp_path: Path, failing: bool
) -> None:
    """Also if the previous forward pass ended with an exception."""
    net, gate = nn.Sequential(), Gate()
    with net.name_scope():
        net.add(nn.Dense(6, in_units=5), gate)
    net.initialize()
    with every_step(tmp_path) as hook:
        hook.register_block(net)
        gate.closed = failing
        if failing:
            with pytest.raises(FloatingPointError):
                net(nd.ones((2, 5)))
        else:
            net(nd.ones((2, 5)))
        net[0](nd.zeros((3, 5)))
    trial = smd.create_trial(str(tmp_path))
    name = f"{net[0].name}_output_"
    assert [each for each in trial.tensor_names() if each.startswith(name)] == [f"{name}0"]


def test_a_mode_set_within_a_step_is_that_of_the_next(tmp_path: Path) -> None:
    def script(watch: Watch) -> list[Any]:
        net, loss = known_shapes(), SoftmaxLoss()
        net.initialize()
        watch.register(net)
        watch.register_loss(loss)
        trainer = sgd(net)
        for mode in (smd.modes.TRAIN, smd.modes.EVAL, smd.modes.TRAIN, smd.modes.PREDICT):
            x, y = batch()
            with autograd.record():
                out = net(x)
                watch.set_mode(mode)
                value = loss(out, y)
            watch.backward(value)
            trainer.step(4)
        return parameters(net)

    check_script(script, tmp_path)


# ---- registering and taking back


@pytest.mark.parametrize("how", ["remove", "close"])
@pytest.mark.parametrize("when", ["between", "after forward", "after backward"])
def test_removed_hook_restores_the_net(tmp_path: Path, how: str, when: str) -> None:
    before = nd.NDArray.backward, autograd.backward
    net, loss = known_shapes(), SoftmaxLoss()
    net.initialize()
    hook = every_step(tmp_path)
    handle = hook.register_block(net)
    hook.register_block(loss)
    take_off = handle.remove if how == "remove" else hook.close
    for number in range(4):
        x, y = batch()
        with autograd.record():
            out = net(x)
            value = loss(out, y)
        if (number, when) == (1, "after forward"):
            take_off()
        value.backward()
        if (number, when) == (1, "after backward"):
            take_off()
        sgd(net).step(4)
        if (number, when) == (1, "between"):
            take_off()
    assert hooks_left(net) == []
    hook.close()
    assert hooks_left(loss) == []
    assert (nd.NDArray.backward, autograd.backward) == before
    assert smd.create_trial(str(tmp_path)).steps() == [0, 1]


def test_two_hooks_observe_one_net_and_one_follows_another(tmp_path: Path) -> None:
    def script(watch: Watch) -> list[Any]:
        net, loss = normed(), SoftmaxLoss()
        net.initialize()
        watch.register(net)
        watch.register_loss(loss)
        second: Any = None
        trainer = None
        for number in range(6):
            if watch.hook is not None and number == 2:
                second = every_step(tmp_path / "second")
                second.register_block(net)
                second.register_block(loss)
            if watch.hook is not None and number == 4:
                watch.hook.close()
            x, y = batch()
            with autograd.record():
                value = loss(net(x), y)
            watch.backward(value)
            trainer = trainer or sgd(net)
            trainer.step(4)
        if second is not None:
            second.close()
        return parameters(net)

    truth = run_script(script, Watch(witness=True))
    hooked = run_script(script, Watch(every_step(tmp_path / "first")))
    assert_same_end(truth, hooked)
    seen = truth.watch.seen
    first, second = (smd.create_trial(str(tmp_path / each)) for each in ("first", "second"))
    assert_saved(first, {step: seen[step] for step in range(4)})
    assert_saved(second, {step - 2: seen[step] for step in range(2, 6)})


def test_a_dropped_net_and_hook_leave_nothing_in_mxnet(tmp_path: Path) -> None:
    before = nd.NDArray.backward
    net = known_shapes()
    net.initialize()
    hook = every_step(tmp_path)
    with hook.register_block(net):
        net(nd.ones((1, 5)))
    assert hooks_left(net) == []
    hook.close()
    del hook
    gc.collect()
    assert nd.NDArray.backward is before


@pytest.mark.parametrize("at", [0, 2])
def test_after_an_exception_in_the_forward_pass_the_next_steps_are_right(
    tmp_path: Path, at: int
) -> None:
    def script(watch: Watch) -> list[Any]:
        net, loss, gate = nn.Sequential(), SoftmaxLoss(), Gate()
        with net.name_scope():
            net.add(nn.Dense(6, in_units=5), gate, nn.Dense(3, in_units=6))
        net.initialize()
        watch.register(net)
        watch.register_loss(loss)
        for number in range(5):
            gate.closed = number == at
            x, y = batch()
            try:
                with autograd.record():
                    value = loss(net(x), y)
            except FloatingPointError:
                continue
            watch.backward(value)
            sgd(net).step(4)
        return parameters(net)

    seen = check_script(script, tmp_path).watch.seen
    assert "sequential0_dense0_output_0" in seen[at]
    assert "sequential0_dense1_output_0" not in seen[at]


def test_an_exception_in_the_backward_pass_is_the_scripts_own(tmp_path: Path) -> None:
    def script(watch: Watch) -> list[Any]:
        net, loss = known_shapes(), SoftmaxLoss()
        net.initialize()
        watch.register(net)
        for number in range(3):
            x, y = batch()
            with autograd.record():
                value = loss(net(x), y)
            if number == 1:
                with pytest.raises(mx.MXNetError):
                    value.detach().backward()
                continue
            watch.backward(value)
            sgd(net).step(4)
        return parameters(net)

    seen = check_script(script, tmp_path).watch.seen
    assert not any(name.startswith("gradient/") for name in seen[1])


# ---- save schedules and collections


def test_schedules_reductions_and_collections(tmp_path: Path) -> None:
    def script(watch: Watch) -> list[Any]:
        net = normed()
        net.initialize()
        return train(watch, net, steps=7)

    truth = run_script(script, Watch(witness=True)).watch.seen
    hook = every_step(
        tmp_path, save_all=False, include_collections=["weights", "gradients"],
        save_config=smd.SaveConfig(save_interval=3),
        reduction_config=smd.ReductionConfig(reductions=["std"], norms=["l2"]),
    )  # fmt: skip
    run_script(script, Watch(hook))
    trial = smd.create_trial(str(tmp_path))
    assert trial.steps() == [0, 3, 6]
    name = "hybridsequential0_dense1_weight"
    for step in (0, 3, 6):
        for each in (name, f"gradient/{name}"):
            array = truth[step][each].astype("float64")
            found = trial.tensor(each).reduction_value(step, "std")
            np.testing.assert_allclose(found, array.std(), rtol=1e-6)
            found = trial.tensor(each).reduction_value(step, "l2")
            np.testing.assert_allclose(found, np.linalg.norm(array), rtol=1e-6)
    # Losses are wanted as they are, whatever is reduced.
    loss = "softmaxcrossentropyloss0_output_0"
    assert trial.tensor(loss).value(3).tobytes() == truth[3][loss].tobytes()
    assert not any("relu" in each or "_input_" in each for each in trial.tensor_names())


@pytest.mark.parametrize("watched", ["loss", "^gradient", "dense0_output", "weight$"])
def test_a_step_with_a_nan_is_saved_with_the_values_it_had(tmp_path: Path, watched: str) -> None:
    def script(watch: Watch) -> list[Any]:
        net, loss = nn.HybridSequential(), SoftmaxLoss()
        with net.name_scope():
            # No ReLU: MXNet's makes zeros of NaNs.
            net.add(nn.Dense(6, in_units=5), nn.Dense(3, in_units=6))
        net.initialize()
        watch.register(net)
        watch.register_loss(loss)
        trainer = sgd(net)
        for number in range(5):
            x, y = batch()
            if number == 3:
                x[0, 0] = float("nan")
            with autograd.record():
                value = loss(net(x), y)
            watch.backward(value)
            trainer.step(4)
            # Overwritten before the step has ended.
            net.collect_params().zero_grad()
        return parameters(net)

    truth = run_script(script, Watch(witness=True))
    config = smd.SaveConfig(save_interval=1000, start_step=999, when_nan=[watched])
    hooked = run_script(script, Watch(every_step(tmp_path, save_config=config)))
    assert_same_end(truth, hooked)
    seen = truth.watch.seen
    assert_saved(smd.create_trial(str(tmp_path)), {step: seen[step] for step in (3, 4)})


def test_nan_in_the_first_of_two_backward_passes_saves_the_gradients_of_the_last(
    tmp_path: Path,
) -> None:
    """Of each tensor a step has one value."""

    def script(watch: Watch) -> list[Any]:
        net, loss = known_shapes(), SoftmaxLoss()
        net.initialize()
        watch.register(net)
        x, y = batch()
        with autograd.record():
            out = net(x)
            values = [loss(out, y), loss(out, y)]
        # Only the bias of the last layer is not finite at first.
        watch.backward(values[0], out_grad=nd.array([1, 1, float("nan"), 1]), retain_graph=True)
        watch.backward(values[1])
        return parameters(net)

    truth = run_script(script, Watch(witness=True)).watch.seen
    config = smd.SaveConfig(save_interval=1000, start_step=999, when_nan=["^gradient.*dense1_bias"])
    run_script(script, Watch(every_step(tmp_path, save_config=config)))
    trial = smd.create_trial(str(tmp_path))
    for name, expected in truth[0].items():
        if name.startswith("gradient/"):
            assert np.isfinite(expected).all()
            assert trial.tensor(name).value(0).tobytes() == expected.tobytes(), name


def test_another_library_observes_backward_passes_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It replaces the same function, and calls the one that was there before."""
    net, library, calls = known_shapes(), mx.base._LIB, []
    net.initialize()

    def train_once(hook: smd.Hook) -> None:
        with autograd.record():
            value = net(nd.ones((2, 5)))
        value.backward()
        hook.close()
        assert smd.create_trial(hook.out_dir).tensor_names(collection="gradients")

    def hook_of(name: str) -> smd.Hook:
        hook = every_step(tmp_path / name)
        hook.register_block(net)
        return hook

    original = library.MXAutogradBackwardEx
    first = hook_of("first")
    ours = library.MXAutogradBackwardEx

    def theirs(*arguments: Any) -> Any:
        calls.append(arguments)
        return ours(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(library, "MXAutogradBackwardEx", theirs)
        train_once(first)
        train_once(hook_of("second"))
        assert len(calls) == 2
    train_once(hook_of("third"))
    assert len(calls) == 2
    assert library.MXAutogradBackwardEx is original


@pytest.fixture(autouse=True)
def mxnet_as_it_was() -> Iterator[None]:
    """A test leaves neither a replaced backward function nor another array mode."""
    before = nd.NDArray.backward, autograd.backward
    yield
    mx.npx.reset_np()
    hook = smd.get_hook()
    if hook is not None:
        hook.close()
    assert (nd.NDArray.backward, autograd.backward) == before
    assert numbers(nd.ones(1)) == 1
