"""Loaders, forks, threads, pickles, engines, and all the ways in which a process ends.

Run as a program it trains and ends in one of these ways; it never calls `close()`:

    python test_processes.py <how> <out_dir> <steps>
"""

from __future__ import annotations

import hashlib
import os
import pickle
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon, nd
from mxnet.gluon import nn
from tests.mxnet.nets import (
    Watch,
    assert_same_end,
    assert_saved,
    bits,
    every_step,
    numbers,
    parameters,
    run_script,
)

import smdebug.mxnet as smd

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
TIMEOUT = 100
BARE = "-"


# ---- the program


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def small_net(prefix: str = "net_") -> Any:
    net = nn.HybridSequential(prefix=prefix)
    with net.name_scope():
        net.add(nn.Dense(6, in_units=4), nn.BatchNorm(in_channels=6), nn.Dense(2, in_units=6))
    return net


def one_step(watch: Watch, net: Any, loss: Any, x: Any, y: Any) -> Any:
    with autograd.record():
        value = loss(net(x), y)
    watch.backward(value)
    gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}, kvstore=None).step(3)
    return value


def training(watch: Watch, steps: int, after: Callable[[int], None] = lambda number: None) -> Any:
    """Trains; the same numbers in every process, without random ones of MXNet."""
    net, loss = small_net(), gluon.loss.SoftmaxCrossEntropyLoss(prefix="loss_")
    random = np.random.RandomState(0)
    net.initialize()
    for each in net.collect_params().values():
        each.set_data(nd.array(random.rand(*each.shape)))
    watch.register(net)
    watch.register_loss(loss)
    for number in range(steps):
        x, y = nd.array(random.rand(3, 4)), nd.array(random.randint(0, 2, 3))
        one_step(watch, net, loss, x, y)
        after(number)
    return net


class Numbers(gluon.data.Dataset):
    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return nd.array([index, index / 2, 1, -index]) / 12, float(index % 2)


def loading(watch: Watch, epochs: int, threads: bool) -> None:
    """Workers are forked while the step before is being written; says what came out of it."""
    net, loss = small_net(), gluon.loss.SoftmaxCrossEntropyLoss(prefix="loss_")
    net.initialize(mx.init.One())
    watch.register(net)
    watch.register_loss(loss)
    digest = hashlib.sha256()
    for _ in range(epochs):
        # Again in each epoch, as scripts do: each forks its workers.
        loader = gluon.data.DataLoader(
            Numbers(), batch_size=4, num_workers=2, thread_pool=threads, timeout=TIMEOUT
        )
        for x, y in loader:
            value = one_step(watch, net, loss, x.as_in_context(mx.cpu()), y.astype("float32"))
            digest.update(value.asnumpy().tobytes())
    for each in parameters(net):
        digest.update(each.asnumpy().tobytes())
    say(digest.hexdigest())


def forking(net: Any, own_dir: str) -> None:
    """A child trains the net on NaNs, then another with a hook of its own, and exits."""
    child = os.fork()
    if child == 0:
        loss = gluon.loss.SoftmaxCrossEntropyLoss(prefix="other_loss_")
        for _ in range(3):
            one_step(Watch(), net, loss, nd.full((3, 4), float("nan")), nd.zeros(3))
        training(Watch(every_step(Path(own_dir))), 2)
        sys.exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0, status
    say("child ended")


def main(how: str, out_dir: str, steps: str) -> None:
    watch = Watch() if out_dir == BARE else Watch(every_step(Path(out_dir), flush_seconds=0))
    count = int(steps)
    if how in ("loader", "thread loader"):
        loading(watch, count, how == "thread loader")
        return

    def after(number: int) -> None:
        if how == "killed" and number == count // 2:
            assert watch.hook is not None
            # What is published up to here has to survive; what comes later need not.
            watch.hook.flush()
            say("flushed")

    net = training(watch, count, after)
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "exit":
        sys.exit(3)
    if how == "exception":
        raise ValueError("the script's own")
    if how == "interrupt":
        # A process that was started in the background ignores it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        # In this thread: a thread of MXNet would not be counted.
        signal.raise_signal(signal.SIGINT)
    if how == "in forward":

        def leave(block: Any, taken: Any) -> None:
            sys.exit(4)

        net[1].register_forward_pre_hook(leave)
        net(nd.ones((3, 4)))
    if how == "forked":
        forking(net, out_dir + "-child")
        net(nd.ones((3, 4)))


def run_program(
    how: str, out_dir: object, steps: int, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "ignore", __file__, how, str(out_dir), str(steps)],
        capture_output=True, text=True, timeout=TIMEOUT, check=False, cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT}/src:{ROOT}", "PATH": "/usr/bin:/bin", **environment},
    )  # fmt: skip


def truth_of(steps: int) -> dict[int, Any]:
    return run_script(lambda w: parameters(training(w, steps)), Watch(witness=True)).watch.seen


# ---- how processes end


@pytest.mark.parametrize(
    ("how", "code", "engine"),
    [
        ("return", 0, ""),
        ("return", 0, "NaiveEngine"),
        ("return", 0, "ThreadedEngine"),
        ("exit", 3, ""),
        ("exception", 1, ""),
        ("interrupt", -signal.SIGINT, ""),
    ],
)
def test_a_script_that_ends_without_closing_leaves_a_finished_run(
    tmp_path: Path, how: str, code: int, engine: str
) -> None:
    environment = {"MXNET_ENGINE_TYPE": engine} if engine else {}
    done = run_program(how, tmp_path / "run", 4, **environment)
    assert done.returncode == code, done.stderr
    assert ("the script's own" in done.stderr) == (how == "exception")
    trial = smd.create_trial(str(tmp_path / "run"))
    assert trial.loaded_all_steps
    assert_saved(trial, truth_of(4))


def test_a_script_that_exits_in_the_middle_of_a_forward_pass(tmp_path: Path) -> None:
    done = run_program("in forward", tmp_path / "run", 2)
    assert done.returncode == 4, done.stderr
    trial = smd.create_trial(str(tmp_path / "run"))
    assert trial.loaded_all_steps
    assert trial.steps() == [0, 1, 2]
    names = set(trial.tensor_names(step=2))
    # What there was by then.
    assert {"net_dense0_output_0", "net_dense0_weight"} <= names
    assert not any(name.startswith(("gradient/", "net_dense1_output")) for name in names)


def test_after_a_kill_the_run_can_be_read_and_resumed(tmp_path: Path) -> None:
    killed = run_program("killed", tmp_path / "run", 7)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert "flushed" in killed.stdout
    trial = smd.create_trial(str(tmp_path / "run"))
    assert not trial.loaded_all_steps
    seen = truth_of(7)
    assert set(trial.steps()) >= {0, 1, 2, 3}
    for step in (0, 1, 2, 3):
        for name, array in seen[step].items():
            assert bits(trial.tensor(name).value(step)) == bits(array), (step, name)

    done = run_program("return", tmp_path / "run", 2)
    assert done.returncode == 0, done.stderr
    assert smd.create_trial(str(tmp_path / "run")).loaded_all_steps


# ---- forks and loaders


def test_forked_child_writes_nothing_and_may_have_its_own_hook(tmp_path: Path) -> None:
    done = run_program("forked", tmp_path / "run", 3)
    assert done.returncode == 0, done.stderr
    assert "child ended" in done.stdout
    trial = smd.create_trial(str(tmp_path / "run"))
    assert trial.loaded_all_steps
    # The last step came after the child had ended.
    assert trial.steps() == [0, 1, 2, 3]
    seen = truth_of(3)
    for step, arrays in seen.items():
        for name, array in arrays.items():
            assert bits(trial.tensor(name).value(step)) == bits(array), (step, name)
    assert_saved(smd.create_trial(str(tmp_path / "run-child")), truth_of(2))


@pytest.mark.parametrize("how", ["loader", "thread loader"])
def test_loaders_with_workers_run_together_with_the_hook(tmp_path: Path, how: str) -> None:
    bare = run_program(how, BARE, 4)
    assert bare.returncode == 0, bare.stderr
    done = run_program(how, tmp_path / "run", 4)
    assert done.returncode == 0, done.stderr
    assert done.stdout == bare.stdout != ""
    trial = smd.create_trial(str(tmp_path / "run"))
    assert trial.loaded_all_steps
    assert trial.steps() == list(range(12))
    for name in ("net_dense0_weight", "gradient/net_dense0_weight", "loss_output_0"):
        assert trial.tensor(name).steps() == list(range(12))


# ---- pickles

LOADS = """
import pickle, sys
if sys.argv[2]:
    sys.modules[sys.argv[2]] = None
import mxnet as mx
net = pickle.load(open(sys.argv[1], "rb"))
with mx.autograd.record():
    out = net(mx.nd.ones((3, 4)))
print(out.asnumpy().tobytes().hex())
"""


@pytest.mark.parametrize("holds", [False, True])
def test_the_pickle_of_a_hooked_net_loads_elsewhere(tmp_path: Path, holds: bool) -> None:
    """Also where the library is not, unless the hook itself is an attribute of the net."""
    net = small_net()
    net.initialize()
    path = tmp_path / "net.bin"
    with every_step(tmp_path / "run") as hook:
        hook.register_block(net)
        if holds:
            # Trainers keep everything in one object.
            net.hook = hook
        with autograd.record():
            # In the middle of a step that saves everything.
            out = net(nd.ones((3, 4)))
            path.write_bytes(pickle.dumps(net))
        out.backward()
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", LOADS, str(path), "" if holds else "smdebug"],
        capture_output=True, text=True, timeout=TIMEOUT, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == numbers(out).tobytes().hex()


# ---- threads


def in_threads(*functions: Callable[[], None]) -> None:
    """Runs functions in threads of their own; their exceptions are raised here."""
    failures: list[BaseException] = []

    def guarded(function: Callable[[], None]) -> None:
        try:
            function()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(each,)) for each in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT)
        assert not thread.is_alive()
    for failure in failures:
        raise failure


def test_training_may_run_in_a_thread(tmp_path: Path) -> None:
    found: list[Any] = []

    def script(watch: Watch) -> list[Any]:
        in_threads(lambda: found.append(training(watch, 4)))
        return parameters(found.pop())

    truth = run_script(script, Watch(witness=True))
    assert_same_end(truth, run_script(script, Watch(every_step(tmp_path))))
    assert_saved(smd.create_trial(str(tmp_path)), truth.watch.seen)


def train_in_turns(watches: list[Watch], steps: int, clips: bool = False) -> list[Any]:
    """Two nets train in two threads that take turns inside every step.

    The one clears its gradients, or clips them before it uses them, then the other runs its
    backward: an order that threads may always come in, made certain.
    """
    turn = threading.Barrier(2, timeout=TIMEOUT)
    nets = [small_net(f"net{number}_") for number in range(2)]
    loss = gluon.loss.SoftmaxCrossEntropyLoss(prefix="loss_")
    random = np.random.RandomState(0)
    for net, watch in zip(nets, watches, strict=True):
        net.initialize()
        for each in net.collect_params().values():
            each.set_data(nd.array(random.rand(*each.shape)))
        watch.register(net)
    data = [nd.array(random.rand(3, 4)) for _ in range(2 * steps)]
    options = {"learning_rate": 0.1}
    trainers = [gluon.Trainer(n.collect_params(), "sgd", options, kvstore=None) for n in nets]

    def run(number: int) -> None:
        net, watch = nets[number], watches[number]
        for step in range(steps):
            for now in range(2):
                if now == number:
                    with autograd.record():
                        value = loss(net(data[2 * step + number]), nd.array([0, 1, 0]))
                    watch.backward(value)
                    if clips:
                        gluon.utils.clip_global_norm(gradients(net), 0.001)
                    else:
                        trainers[number].step(3)
                        net.collect_params().zero_grad()
                turn.wait()
            if clips:
                trainers[number].step(3)

    in_threads(lambda: run(0), lambda: run(1))
    return parameters(*nets)


def gradients(net: Any) -> list[Any]:
    return [p.grad() for p in net.collect_params().values() if p.grad_req != "null"]


@pytest.mark.parametrize("clips", [False, True])
def test_two_nets_train_in_two_threads_with_two_hooks(tmp_path: Path, clips: bool) -> None:
    truths = [Watch(witness=True) for _ in range(2)]
    expected = [numbers(each).tobytes() for each in train_in_turns(truths, 5, clips)]
    hooks = [every_step(tmp_path / str(number)) for number in range(2)]
    found = train_in_turns([Watch(hook) for hook in hooks], 5, clips)
    assert [numbers(each).tobytes() for each in found] == expected
    for number, (hook, truth) in enumerate(zip(hooks, truths, strict=True)):
        hook.close()
        truth.stop()
        assert_saved(smd.create_trial(str(tmp_path / str(number))), truth.seen)


def test_two_nets_train_in_two_threads_with_one_hook(tmp_path: Path) -> None:
    """Which step it belongs to cannot be known; training must continue unchanged."""
    expected = [numbers(each).tobytes() for each in train_in_turns([Watch(), Watch()], 5)]
    hook = every_step(tmp_path)
    found = train_in_turns([Watch(hook), Watch(hook)], 5)
    hook.close()
    assert [numbers(each).tobytes() for each in found] == expected
    assert smd.create_trial(str(tmp_path)).steps() == list(range(10))


def test_training_in_threads_is_the_same_with_hooks(tmp_path: Path) -> None:
    """No turns here: what is saved of weights and outputs is each net's own."""

    def run(watches: list[Watch]) -> list[Any]:
        nets: dict[int, Any] = {}

        def each(number: int) -> Callable[[], None]:
            return lambda: nets.update({number: training(watches[number], 15)})

        in_threads(each(0), each(1))
        return parameters(nets[0], nets[1])

    seen = truth_of(15)
    expected = [numbers(each).tobytes() for each in run([Watch(), Watch()])]
    hooks = [every_step(tmp_path / str(number)) for number in range(2)]
    assert [numbers(each).tobytes() for each in run([Watch(h) for h in hooks])] == expected
    for number, hook in enumerate(hooks):
        hook.close()
        trial = smd.create_trial(str(tmp_path / str(number)))
        assert trial.steps() == list(range(15))
        for step, arrays in seen.items():
            for name, array in arrays.items():
                # Gradients are the subject of the test with turns.
                if not name.startswith("gradient/"):
                    assert bits(trial.tensor(name).value(step)) == bits(array), (step, name)


if __name__ == "__main__":
    main(*sys.argv[1:])
