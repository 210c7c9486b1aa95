"""Training with the hook is training without it: the same numbers, and no waiting for them."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import mxnet as mx
import pytest
from mxnet import autograd, gluon, nd
from mxnet.gluon import nn, rnn
from tests.mxnet.nets import (
    Watch,
    assert_same_end,
    assert_saved,
    every_step,
    parameters,
    perceptron,
    run_script,
)

import smdebug.mxnet as smd

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NEVER = smd.SaveConfig(save_interval=1000, start_step=999)
REDUCED = smd.ReductionConfig(reductions=["min", "max", "std"], norms=["l1"], abs_norms=["l2"])
# The collections of a hook that saves every second step.
ASKED: dict[str, dict[str, Any]] = {
    "nothing": {"save_config": NEVER},
    "losses": {"save_all": False},
    "weights": {"save_all": False, "include_collections": ["weights", "biases"]},
    "gradients": {"save_all": False, "include_collections": ["gradients"]},
    "outputs": {"save_all": False, "include_regex": ["_output_"]},
    "all": {},
    "every step": {"save_config": smd.SaveConfig(save_interval=1)},
    "reductions": {"reduction_config": REDUCED},
    "v1": {"format": "v1"},
    "when_nan": {"save_config": smd.SaveConfig(save_interval=1000, when_nan=[".*"])},
    "dry": {"dry_run": True},
    "small queue": {"queue_bytes": 1000, "flush_seconds": 0},
}


class Reader(nn.HybridBlock):
    """Draws random numbers in several ways: dropout of two kinds, sampling, noise."""

    def __init__(self) -> None:
        super().__init__()
        with self.name_scope():
            self.table = nn.Embedding(11, 6)
            self.recurrent = rnn.LSTM(5, num_layers=2, dropout=0.3, input_size=6)
            self.drop, self.norm = nn.Dropout(0.4), nn.BatchNorm(in_channels=4)
            self.head = nn.Dense(3, in_units=20)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        hidden = self.recurrent(self.table(x))
        hidden = self.norm(F.transpose(hidden, (1, 0, 2)))
        return self.head(self.drop(hidden))


def reader(watch: Watch, options: dict[str, Any] | None = None, steps: int = 6) -> list[Any]:
    net, loss = Reader(), gluon.loss.SoftmaxCrossEntropyLoss()
    net.initialize(mx.init.Normal(0.3))
    if options is not None:
        net.hybridize(**options)
    watch.register(net)
    watch.register_loss(loss)
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.05}, kvstore=None)
    results = []
    for number in range(steps):
        x = nd.random.randint(0, 11, shape=(4, 5)).astype("float32")
        with autograd.record():
            out = net(x)
            value = loss(out, nd.array([0, 1, 2, 0, 1]))
        watch.backward(value)
        trainer.step(5)
        if number % 3 == 2:
            # Evaluation, and what is drawn from the net.
            watch.set_mode(smd.modes.EVAL)
            results.append(nd.sample_multinomial(net(x).softmax()))
            watch.set_mode(smd.modes.TRAIN)
        results += [value, out]
        results += [p.grad().copy() for p in net.collect_params().values() if p.grad_req != "null"]
    return [*parameters(net), *results]


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("options", [None, {"static_alloc": True, "static_shape": True}])
def test_training_is_the_same_whatever_is_saved(
    tmp_path: Path, asked: str, options: dict[str, Any] | None
) -> None:
    def script(watch: Watch) -> list[Any]:
        return reader(watch, options)

    bare = run_script(script, Watch())
    given = {"save_config": smd.SaveConfig(save_interval=2), **ASKED[asked]}
    hooked = run_script(script, Watch(every_step(tmp_path, **given)))
    assert_same_end(bare, hooked)
    # The hook had something to save, or nothing, as configured.
    assert hooked.watch.hook is not None
    saved = hooked.watch.hook.stats().saved_steps
    assert (saved > 0) == (asked != "nothing")


def test_training_on_several_devices_is_the_same(tmp_path: Path) -> None:
    devices = [mx.cpu(0), mx.cpu(1)]

    def script(watch: Watch) -> list[Any]:
        net, loss = perceptron(in_units=5), gluon.loss.L2Loss()
        net.initialize(ctx=devices)
        watch.register(net)
        watch.register_loss(loss)
        options = {"learning_rate": 0.1, "momentum": 0.9}
        trainer = gluon.Trainer(net.collect_params(), "sgd", options, kvstore="device")
        values: list[Any] = []
        for _ in range(5):
            parts = gluon.utils.split_and_load(nd.random.normal(shape=(6, 5)), devices)
            with autograd.record():
                values = [loss(out, nd.ones_like(out)) for out in map(net, parts)]
            autograd.backward(values)
            trainer.step(6)
        arrays = [each for p in net.collect_params().values() for each in p.list_data()]
        return [*arrays, *values]

    assert_same_end(run_script(script, Watch()), run_script(script, Watch(every_step(tmp_path))))


def heavy(watch: Watch, steps: int = 6) -> list[Any]:
    """Arrays so large that MXNet is still computing them when the script has gone far ahead."""
    net, loss = nn.HybridSequential(), gluon.loss.L2Loss()
    with net.name_scope():
        for _ in range(3):
            net.add(nn.Dense(400, in_units=400, activation="tanh"))
    net.initialize(mx.init.Xavier())
    watch.register(net)
    watch.register_loss(loss)
    options = {"learning_rate": 0.5, "momentum": 0.9}
    trainer = gluon.Trainer(net.collect_params(), "sgd", options, kvstore=None)
    values = []
    for _ in range(steps):
        x = nd.random.normal(shape=(128, 400))
        with autograd.record():
            value = loss(net(x), x)
        watch.backward(value)
        trainer.step(128)
        for each in net.collect_params().values():
            each.zero_grad()
        # In place, while copies of it may still be waiting for their turn.
        x[:] = 0
        values.append(value)
    return [*parameters(net), *values]


@pytest.mark.parametrize("interval", [1, 2])
def test_scheduled_copies_have_the_values_at_scheduling_time(tmp_path: Path, interval: int) -> None:
    truth = run_script(heavy, Watch(witness=True))
    hook = every_step(tmp_path, save_config=smd.SaveConfig(save_interval=interval))
    assert_same_end(truth, run_script(heavy, Watch(hook)))
    expected = {step: truth.watch.seen[step] for step in range(0, 6, interval)}
    assert_saved(smd.create_trial(str(tmp_path)), expected)


def test_stale_gradient_marks_of_mxnet_are_kept(tmp_path: Path) -> None:
    """Trainers reject a second step without a backward pass; copies must not hide that."""
    net = perceptron(in_units=5)
    net.initialize()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}, kvstore=None)
    with every_step(tmp_path) as hook:
        hook.register_block(net)
        for _ in range(2):
            with autograd.record():
                out = net(nd.ones((2, 5)))
                assert autograd.is_recording()
                assert autograd.is_training()
            out.backward()
            trainer.step(1)
            with pytest.raises(UserWarning, match="has not been updated"):
                trainer.step(1)
            net(nd.ones((2, 5)))
            with pytest.raises(UserWarning, match="has not been updated"):
                trainer.step(1)


# ---- no waiting

# All functions of MXNet's library through which Python waits for what is being computed.
WAITS = (
    "MXNDArraySyncCopyToCPU", "MXNDArraySyncCopyFromNDArray", "MXNDArrayWaitToRead",
    "MXNDArrayWaitToWrite", "MXNDArrayWaitAll", "MXNDArraySyncCheckFormat",
    "MXNDArraySave", "MXNDArrayGetData", "MXNDArrayGetSharedMemHandle",
)  # fmt: skip


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts waits, as `training <function>` or `elsewhere <function>`."""
    counts: Counter[str] = Counter()
    training = threading.get_ident()

    def counting(name: str, own: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            here = threading.get_ident() == training
            counts[f"{'training' if here else 'elsewhere'} {name}"] += 1
            return own(*arguments)

        return call

    for name in WAITS:
        monkeypatch.setattr(mx.base._LIB, name, counting(name, getattr(mx.base._LIB, name)))
    return counts


def on_training_thread(counts: Counter[str]) -> list[str]:
    return [key for key in counts if key.startswith("training")]


def sparse_words(watch: Watch) -> list[Any]:
    """Gradients of which only some rows are there."""
    net, loss = nn.Sequential(), gluon.loss.L2Loss()
    with net.name_scope():
        net.add(nn.Embedding(50, 8, sparse_grad=True), nn.Dense(3))
    net.initialize()
    watch.register(net)
    watch.register_loss(loss)
    trainer = None
    # Made beforehand: making arrays from numbers waits for them.
    x, y = nd.random.randint(0, 50, shape=(4, 2)).astype("float32"), nd.ones((4, 3))
    for _ in range(4):
        with autograd.record():
            value = loss(net(x), y)
        value.backward()
        trainer = trainer or gluon.Trainer(
            net.collect_params(), "sgd", {"learning_rate": 0.1}, kvstore=None
        )
        trainer.step(4)
    return parameters(net)


SCRIPTS: dict[str, Callable[[Watch], list[Any]]] = {
    "plain": heavy,
    "random": reader,
    "hybrid": lambda watch: reader(watch, {"static_alloc": True, "static_shape": True}),
    "sparse": sparse_words,
}


@pytest.mark.parametrize("name", SCRIPTS)
@pytest.mark.parametrize(
    "asked", ["nothing", "losses", "weights", "gradients", "outputs", "all", "reductions", "v1"]
)
def test_the_hook_never_makes_training_wait(
    tmp_path: Path, waits: Counter[str], name: str, asked: str
) -> None:
    SCRIPTS[name](Watch())
    nd.waitall()
    # What the script itself waits for is its own affair.
    own = Counter({key: waits[key] for key in on_training_thread(waits)})
    waits.clear()
    given = {"save_config": smd.SaveConfig(save_interval=2), **ASKED[asked]}
    hook = every_step(tmp_path, **given)
    SCRIPTS[name](Watch(hook))
    hook.flush()
    hook.close()
    nd.waitall()
    assert Counter({key: waits[key] for key in on_training_thread(waits)}) == own
    # The writer's thread did wait, or there was nothing to wait for.
    assert (waits["elsewhere MXNDArraySyncCopyToCPU"] > 0) == (asked != "nothing")


def test_saving_a_scalar_does_not_wait_for_it(tmp_path: Path, waits: Counter[str]) -> None:
    hook = every_step(tmp_path)
    net = perceptron(in_units=5)
    net.initialize()
    hook.register_block(net)
    nd.waitall()
    waits.clear()
    net(nd.ones((2, 5)))
    hook.save_scalar("two", nd.ones((2,)).sum())
    assert on_training_thread(waits) == []
    hook.close()
    assert smd.create_trial(hook.out_dir).tensor("scalar/two").value(0).tolist() == [2]


def test_seconds_waited_is_counted(waits: Counter[str]) -> None:
    array = nd.ones(1)
    array.asnumpy()
    array.asscalar()
    array.wait_to_read()
    nd.waitall()
    assert len(on_training_thread(waits)) == 3
