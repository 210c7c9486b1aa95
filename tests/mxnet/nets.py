"""Small Gluon nets, and scripts that run several times from one seed: bare, watched, hooked.

The witness is made of MXNet's own means (its forward hooks, `param.data()`, `param.grad()`) and
knows the names that tensors are to have; what it saw is what a run has to hold. All runs of a
script must end with the same numbers, bit for bit, random ones included.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon, nd
from mxnet.gluon import nn

import smdebug.mxnet as smd

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

    Array = npt.NDArray[Any]

NDArray: Any = nd.NDArray
# The arrays that a script ends with: weights, losses, whatever it computed.
Script = Callable[["Watch"], Iterable[Any]]
Seen = dict[int, dict[str, "Array"]]


def every_step(out_dir: Path, **options: Any) -> smd.Hook:
    """A hook that saves everything there is, and raises what goes wrong in it."""
    options.setdefault("save_config", smd.SaveConfig(save_interval=1))
    return smd.Hook(out_dir, on_error="raise", **{"save_all": True, **options})


def batch(rows: int = 4, width: int = 5, classes: int = 3) -> tuple[Any, Any]:
    """Random data and labels, from MXNet's and numpy's generators."""
    return nd.random.normal(shape=(rows, width)), nd.array(np.random.randint(0, classes, rows))


def perceptron(prefix: str | None = None, **first: Any) -> Any:
    """Two dense layers with a ReLU between; arguments are the first layer's."""
    net = nn.HybridSequential(prefix=prefix)
    with net.name_scope():
        net.add(nn.Dense(6, **first), nn.Activation("relu"), nn.Dense(3))
    return net


def sgd(net: Any, **options: Any) -> Any:
    options.setdefault("kvstore", None)
    return gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}, **options)


def name_of(block: Any) -> str:
    return str(block.name or type(block).__name__.lower())


def numbers(array: Any) -> Array:
    """What an array holds now; a script's own copy."""
    dense = array.tostype("default") if array.stype != "default" else array
    values: Array = dense.asnumpy()
    return values


def bits(array: Array) -> tuple[str, tuple[int, ...], bytes]:
    return str(array.dtype), array.shape, np.ascontiguousarray(array).tobytes()


def blocks_in(block: Any) -> list[Any]:
    """A block and all blocks inside it, each once."""
    found: dict[int, Any] = {}
    waiting = [block]
    while waiting:
        each = waiting.pop()
        if id(each) not in found:
            found[id(each)] = each
            waiting.extend(each._children.values())
    return list(found.values())


def hooks_left(block: Any) -> list[str]:
    """Names of blocks that have any forward hooks."""
    blocks = blocks_in(block)
    return [each.name for each in blocks if each._forward_hooks or each._forward_pre_hooks]


class Watch:
    """What a script does differently when it is watched: nothing, but for these calls.

    Args:
        hook: the hook; None when the script runs without it.
        witness: whether to collect the truth; never together with a hook.
    """

    def __init__(self, hook: smd.Hook | None = None, witness: bool = False) -> None:
        self.hook = hook
        self.witness = witness
        self.seen: Seen = {}
        self.modes: dict[int, Any] = {}
        self.step = -1
        # How many forward passes one step has: one per device.
        self.parts = 1
        self.roots: list[Any] = []
        self._forwards = 0
        self._mode = smd.modes.GLOBAL
        self._counts: dict[str, int] = {}
        self._handles: list[Any] = []
        self._hooked: set[int] = set()

    def register(self, block: Any) -> Any:
        """Register a block with forward passes that are steps."""
        if self.witness:
            self.roots.append(block)
            self._handles.append(block.register_forward_pre_hook(self._before))
            for each in blocks_in(block):
                self._attach(each)
        return None if self.hook is None else self.hook.register_block(block)

    def register_loss(self, loss: Any) -> Any:
        if self.witness:
            self._attach(loss)
        return None if self.hook is None else self.hook.register_block(loss)

    def set_mode(self, mode: Any) -> None:
        self._mode = mode
        if self.hook is not None:
            self.hook.set_mode(mode)

    def backward(self, *losses: Any, **options: Any) -> None:
        """Run the backward pass of each; the witness then reads the gradients."""
        for loss in losses:
            loss.backward(**options)
        self.saw_gradients()

    def saw_gradients(self) -> None:
        """Record that a backward pass has ended."""
        for name, parameter in self._parameters():
            if parameter.grad_req != "null":
                self.saw(f"gradient/{name}", parameter.list_grad()[0])

    def saw(self, name: str, array: Any) -> None:
        """Says what is to be saved at this step under this name."""
        if self.witness and self.step >= 0:
            self.seen[self.step][name] = numbers(array)

    def stop(self) -> None:
        """From here on nothing is to be saved."""
        if self.witness:
            self._end_step()
            self._detach()

    def end(self) -> None:
        if self.hook is not None:
            self.hook.close()
        self.stop()

    def _parameters(self) -> list[tuple[str, Any]]:
        if not self.witness:
            return []
        return [item for root in self.roots for item in root.collect_params().items()]

    def _before(self, block: Any, taken: Any) -> None:
        # With symbols nothing is computed, so it is no step.
        if not _arrays(taken):
            return
        self._forwards += 1
        if self._forwards % self.parts != 1 % self.parts:
            return
        self._end_step()
        self.step += 1
        self.modes[self.step] = self._mode
        self.seen[self.step] = {}
        self._counts = {}

    def _end_step(self) -> None:
        for name, parameter in self._parameters():
            try:
                self.saw(name, parameter.list_data()[0])
            except gluon.parameter.DeferredInitializationError:
                continue

    def _attach(self, block: Any) -> None:
        # A call gives each of its values one name, however often a block was registered.
        if id(block) not in self._hooked:
            self._hooked.add(id(block))
            self._handles.append(block.register_forward_hook(self._after))

    def _after(self, block: Any, taken: Any, returned: Any) -> None:
        for kind, value in (("input", taken), ("output", returned)):
            for key, array in _arrays(value):
                start = f"{name_of(block)}_{kind}_"
                if key:
                    self.saw(start + key, array)
                    continue
                self.saw(f"{start}{self._counts.get(start, 0)}", array)
                self._counts[start] = self._counts.get(start, 0) + 1

    def _detach(self) -> None:
        for each in self._handles:
            each.detach()
        self._handles, self.roots = [], []


def _arrays(value: Any, key: str = "") -> list[tuple[str, Any]]:
    if isinstance(value, NDArray):
        return [(key, value)]
    if isinstance(value, Mapping):
        return [pair for name, each in value.items() for pair in _arrays(each, name)]
    if isinstance(value, list | tuple):
        return [pair for each in value for pair in _arrays(each)]
    return []


@dataclass
class End:
    """How a script ended: what it returned, what random numbers come next, what was seen."""

    arrays: list[tuple[str, tuple[int, ...], bytes]]
    drawn: tuple[Any, ...]
    watch: Watch


def run_script(script: Script, watch: Watch) -> End:
    mx.random.seed(0)
    np.random.seed(0)
    random.seed(0)
    # Blocks are numbered through the process otherwise.
    with mx.name.NameManager():
        result = [bits(numbers(each)) for each in script(watch)]
        watch.end()
    nd.waitall()
    drawn = (
        bits(nd.random.normal(shape=(8,)).asnumpy()),
        bits(nd.Dropout(nd.ones((64,)), mode="always").asnumpy()),
        bits(np.random.rand(4)),
        random.random(),
    )
    return End(result, drawn, watch)


def assert_same_end(one: End, other: End) -> None:
    assert len(one.arrays) == len(other.arrays) > 0
    for number, pair in enumerate(zip(one.arrays, other.arrays, strict=True)):
        assert pair[0] == pair[1], f"array {number} differs"
    assert one.drawn == other.drawn


def assert_saved(trial: Any, seen: Seen) -> None:
    """A run holds exactly what was seen: steps, names, and values, bit for bit."""
    assert trial.steps() == sorted(seen), f"{trial.steps()}, expected {sorted(seen)}"
    for step, arrays in seen.items():
        differing = set(trial.tensor_names(step=step)) ^ set(arrays)
        assert not differing, f"step {step}: {sorted(differing)}"
        for name, array in arrays.items():
            found = trial.tensor(name).value(step)
            assert bits(found) == bits(array), f"step {step}: {name}\n{found}\nexpected\n{array}"


def check_script(script: Script, out_dir: Path, **options: Any) -> End:
    """Runs a script bare, watched and hooked; returns how the watched one ended."""
    bare = run_script(script, Watch())
    truth = run_script(script, Watch(witness=True))
    hooked = run_script(script, Watch(every_step(out_dir, **options)))
    assert_same_end(bare, truth)
    assert_same_end(bare, hooked)
    trial = smd.create_trial(str(out_dir))
    assert_saved(trial, truth.watch.seen)
    assert {step: trial.mode(step) for step in trial.steps()} == truth.watch.modes
    return truth


def train(
    watch: Watch,
    net: Any,
    steps: int = 3,
    loss: Any = None,
    trainer: Any = None,
    data: Callable[[], tuple[Any, Any]] = batch,
) -> list[Any]:
    """A typical training loop; returns parameters and losses."""  # fmt: skip
    loss = loss or gluon.loss.SoftmaxCrossEntropyLoss()
    watch.register(net)
    watch.register_loss(loss)
    losses = []
    for _ in range(steps):
        x, y = data()
        with autograd.record():
            value = loss(net(x), y)
        watch.backward(value)
        # Created here, because shapes may be known only after the first forward pass.
        trainer = trainer or sgd(net)
        trainer.step(x.shape[0], ignore_stale_grad=True)
        losses.append(value)
    return [*parameters(net), *losses]


def parameters(*nets: Any) -> list[Any]:
    """The arrays of all parameters of nets."""
    return [p.list_data()[0] for net in nets for p in net.collect_params().values()]
