"""The hook in real sessions: what it saves, and that training does not notice."""

from __future__ import annotations

import copy
import gc
import logging
import pickle
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf

import smdebug.tensorflow as smd
from smdebug.exceptions import InvalidCollectionConfiguration, SMDebugValueError
from smdebug.tensorflow.session import EstimatorHook, SessionHook
from smdebug.tensorflow.session.adapter import SessionAdapter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

v1 = tf.compat.v1
EVERY = smd.SaveConfig(save_interval=1)
RNG = np.random.default_rng(0)
IMAGES = RNG.normal(size=(12, 4)).astype(np.float32)
LABELS = RNG.normal(size=(12, 2)).astype(np.float32)


@pytest.fixture(autouse=True)
def graph() -> Iterator[Any]:
    """A graph of its own for every test."""
    with tf.Graph().as_default() as made:
        yield made


@pytest.fixture
def old_control_flow() -> Iterator[None]:
    """Loops and branches as operations of the graph itself."""
    v1.disable_control_flow_v2()
    yield
    v1.enable_control_flow_v2()


class Net:
    """Two layers on what is fed."""

    def __init__(self, hook: SessionHook | None, optimizer: Any = None, resource: bool = True):
        v1.set_random_seed(7)
        self.x = v1.placeholder(tf.float32, [None, 4], name="x")
        self.y = v1.placeholder(tf.float32, [None, 2], name="y")
        with v1.variable_scope("", use_resource=resource):
            self.w1 = v1.get_variable("w1", [4, 3])
            self.bias1 = v1.get_variable("bias1", [3])
            self.w2 = v1.get_variable("w2", [3, 2])
        self.hidden = tf.nn.relu(tf.matmul(self.x, self.w1) + self.bias1, name="relu")
        self.logits = tf.matmul(self.hidden, self.w2, name="logits")
        self.loss = v1.losses.mean_squared_error(self.y, self.logits, scope="mse")
        self.optimizer = optimizer or v1.train.GradientDescentOptimizer(0.1)
        if hook is not None:
            self.optimizer = hook.wrap_optimizer(self.optimizer)
        self.train = self.optimizer.minimize(self.loss, v1.train.get_or_create_global_step())
        self.feed = {self.x: IMAGES, self.y: LABELS}


def run(hook: SessionHook | None, fetches: Any, steps: int, feed: Any = None) -> list[Any]:
    """The results of so many runs of a monitored session."""
    hooks = [] if hook is None else [hook]
    with v1.train.MonitoredTrainingSession(hooks=hooks) as session:
        return [session.run(fetches, feed) for _ in range(steps)]


def trial_of(hook: SessionHook) -> Any:
    hook.close()
    return smd.create_trial(hook.out_dir)


# ---- what is saved


def test_losses_weights_biases_and_gradients_are_what_the_users_own_run_returns(
    tmp_path: Path,
) -> None:
    hook = SessionHook(
        tmp_path, save_config=EVERY, include_collections=["weights", "biases", "gradients"]
    )
    net = Net(hook)
    # Independent of the optimizer: gradients of a graph of our own.
    own = tf.gradients(net.loss, [net.w1, net.bias1, net.w2])
    results = run(hook, [net.train, net.loss, net.w1, *own], 4, net.feed)
    trial = trial_of(hook)
    assert trial.tensor_names(collection="losses") == [net.loss.name]
    assert trial.tensor_names(collection="weights") == ["w1:0", "w2:0"]
    assert trial.tensor_names(collection="biases") == ["bias1:0"]
    gradients = trial.tensor_names(collection="gradients")
    assert len(gradients) == 3
    assert all(name.startswith("gradients/") for name in gradients)
    assert trial.steps() == [0, 1, 2, 3]
    saved = [trial.tensor(name) for name in gradients]
    for step, (_, loss, _, *truths) in enumerate(results):
        assert trial.tensor(net.loss.name).value(step) == loss
        for truth in truths:
            matching = [each for each in saved if np.array_equal(each.value(step), truth)]
            assert len(matching) == 1
    # What the update of a step made of a weight is what the next one uses.
    for step in range(3):
        expected = trial.tensor("w1:0").value(step) - 0.1 * results[step + 1][3]
        np.testing.assert_allclose(trial.tensor("w1:0").value(step + 1), expected, rtol=1e-5)


def test_values_are_those_of_numpy(tmp_path: Path) -> None:
    hook = SessionHook(tmp_path, save_config=EVERY, include_regex=["relu:0", "^logits", "w1|w2|b"])
    net = Net(hook)
    run(hook, net.train, 3, net.feed)
    trial = trial_of(hook)
    for step in (1, 2):
        # Those before the update of this step.
        w1, bias1, w2 = (
            trial.tensor(name).value(step - 1).astype(np.float64)
            for name in ("w1:0", "bias1:0", "w2:0")
        )
        hidden = np.maximum(IMAGES @ w1 + bias1, 0)
        logits = hidden @ w2
        np.testing.assert_allclose(trial.tensor("relu:0").value(step), hidden, rtol=1e-4)
        np.testing.assert_allclose(
            trial.tensor("logits:0").value(step), logits, rtol=1e-4, atol=1e-6
        )
        loss = np.mean((logits - LABELS) ** 2)
        np.testing.assert_allclose(trial.tensor(net.loss.name).value(step), loss, rtol=1e-4)


def test_a_script_for_smdebug_1(tmp_path: Path) -> None:
    hook = EstimatorHook(
        str(tmp_path),
        save_config=smd.SaveConfig(save_interval=2),
        reduction_config=smd.ReductionConfig(reductions=["mean"], abs_reductions=["max"]),
        include_collections=["relu", "mine", "weights"],
    )
    assert isinstance(hook, v1.train.SessionRunHook)
    hook.set_mode(smd.modes.TRAIN)
    net = Net(hook)
    extra = tf.reduce_sum(net.hidden, name="extra")
    hook.get_collection("losses").add(extra)
    hook.add_to_collection("mine", [net.logits, net.x.op, net.bias1])
    hook.get_collection("relu").include("relu")
    results = run(hook, [net.train, net.hidden, extra], 5, net.feed)
    trial = trial_of(hook)
    assert trial.steps(mode=smd.modes.TRAIN) == [0, 2, 4]
    assert trial.tensor_names(collection="mine") == ["bias1:0", "logits:0", "x:0"]
    assert "relu:0" in trial.tensor_names(collection="relu")
    relu = trial.tensor("relu:0")
    for step in (0, 2, 4):
        assert trial.tensor("extra:0").value(step) == results[step][2]
        assert relu.reduction_value(step, "mean") == pytest.approx(results[step][1].mean())
        assert relu.reduction_value(step, "max", abs=True) == pytest.approx(results[step][1].max())
    assert trial.tensor("w1:0").reduction_values(0).keys() == {("mean", False), ("max", True)}


def test_save_all_includes_fed_tensors_and_optimizer_variables(tmp_path: Path) -> None:
    hook = SessionHook(tmp_path, save_config=EVERY, save_all=True)
    net = Net(hook, v1.train.MomentumOptimizer(0.1, 0.9))
    run(hook, net.train, 2, net.feed)
    trial = trial_of(hook)
    names = set(trial.tensor_names())
    assert {"x:0", "y:0", "relu:0", "logits:0", "w1:0", "global_step:0"} <= names
    assert np.array_equal(trial.tensor("x:0").value(1), IMAGES)
    assert trial.tensor("global_step:0").value(1) == 2
    states = trial.tensor_names(collection="optimizer_variables")
    assert states == ["bias1/Momentum:0", "w1/Momentum:0", "w2/Momentum:0"]


@pytest.mark.parametrize("resource", [True, False])
def test_variables_of_both_kinds_go_by_their_names(tmp_path: Path, resource: bool) -> None:
    hook = SessionHook(tmp_path, save_config=EVERY, include_regex=[".*"])
    net = Net(hook, resource=resource)
    after: list[Any] = []
    with v1.train.MonitoredTrainingSession(hooks=[hook]) as session:
        for _ in range(3):
            session.run(net.train, net.feed)
            values = session.run_step_fn(lambda step_context: step_context.session.run(net.w1))
            after.append(values.copy())
    trial = trial_of(hook)
    for step in range(3):
        assert np.array_equal(trial.tensor("w1:0").value(step), after[step])


def test_sparse_gradient_is_saved_dense(tmp_path: Path) -> None:
    hook = SessionHook(tmp_path, save_config=EVERY, include_collections=["gradients"])
    rows = tf.constant([1, 3, 3])
    table = v1.get_variable("table", [5, 2])
    loss = tf.reduce_sum(tf.square(tf.nn.embedding_lookup(table, rows)))
    optimizer = hook.wrap_optimizer(v1.train.GradientDescentOptimizer(0.1))
    pairs = optimizer.compute_gradients(loss, [table])
    assert isinstance(pairs[0][0], tf.IndexedSlices)
    train = optimizer.apply_gradients(pairs)
    dense = tf.convert_to_tensor(tf.gradients(loss, table)[0])
    results = run(hook, [train, dense], 2)
    trial = trial_of(hook)
    (name,) = trial.tensor_names(collection="gradients")
    assert name == pairs[0][0].name
    for step in (0, 1):
        np.testing.assert_allclose(trial.tensor(name).value(step), results[step][1], rtol=1e-6)


def test_gradients_passed_to_apply_gradients(tmp_path: Path) -> None:
    hook = SessionHook(tmp_path, save_config=EVERY, include_collections=["gradients"])
    weight = v1.get_variable("w", [2])
    optimizer = v1.train.GradientDescentOptimizer(0.1)
    assert hook.wrap_optimizer(optimizer) is optimizer
    assert hook.wrap_optimizer(optimizer) is optimizer
    gradients = [tf.identity(weight * 2, name="mine")]
    train = optimizer.apply_gradients(grads_and_vars=zip(gradients, [weight], strict=True))
    run(hook, train, 1)
    trial = trial_of(hook)
    assert trial.tensor_names(collection="gradients") == ["mine:0"]
    # The optimizer is as it was.
    assert not {"compute_gradients", "apply_gradients"} & set(vars(optimizer))


def test_wrap_optimizer_ignores_other_objects(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hook = SessionHook(tmp_path)
    given = object()
    assert hook.wrap_optimizer(given) is given
    assert "expected a tf.compat.v1.train.Optimizer, got object" in caplog.text


def test_reductions_dry_run_and_format_v1(tmp_path: Path) -> None:
    config = smd.ReductionConfig(norms=["l2"])
    net = Net(None)
    dry = SessionHook(tmp_path / "dry", dry_run=True, save_config=EVERY, save_all=True)
    run(dry, net.train, 2, net.feed)
    dry.close()
    assert not list(tmp_path.glob("dry/**/*.tfevents"))
    old = SessionHook(
        tmp_path / "old", format="v1", save_config=EVERY, reduction_config=config,
        include_regex=["relu:0"],
    )  # fmt: skip
    results = run(old, [net.train, net.hidden, net.loss], 2, net.feed)
    trial = trial_of(old)
    for step in (0, 1):
        norm = np.linalg.norm(results[step][1].astype(np.float64))
        assert trial.tensor("relu:0").reduction_value(step, "l2") == pytest.approx(norm)
        assert trial.tensor(net.loss.name).value(step) == results[step][2]


def test_strings_are_saved_and_invalid_utf8_is_not(tmp_path: Path) -> None:
    hook = SessionHook(tmp_path, save_config=EVERY, include_regex=[".*"])
    text = tf.constant(["ä", "b"], name="text")
    tf.constant([b"\xff\xfe"], name="bytes")
    run(hook, text, 1)
    trial = trial_of(hook)
    assert list(trial.tensor("text:0").value(0)) == ["ä", "b"]
    assert "bytes:0" not in trial.tensor_names()


# ---- when


class Asking(SessionHook):
    """Keeps the fetches it requested from the session."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.asked: list[Any] = []
        super().__init__(*args, **kwargs)

    def before_run(self, run_context: Any) -> Any:
        self.asked.append(super().before_run(run_context))
        return self.asked[-1]


def test_at_steps_that_save_nothing_nothing_is_fetched(tmp_path: Path) -> None:
    hook = Asking(tmp_path, save_config=smd.SaveConfig(save_interval=3), save_all=True)
    net = Net(hook)
    run(hook, net.train, 7, net.feed)
    assert [asked is not None for asked in hook.asked] == [step % 3 == 0 for step in range(7)]
    assert trial_of(hook).steps() == [0, 3, 6]


def test_only_weights_need_no_fetch(tmp_path: Path) -> None:
    hook = Asking(tmp_path, save_config=EVERY, include_collections=["weights"])
    weight = v1.get_variable("w", [2])
    run(hook, weight.assign_add([1.0, 1.0]), 2)
    assert hook.asked == [None, None]
    assert trial_of(hook).tensor("w:0").steps() == [0, 1]


def test_modes_and_sessions_one_after_the_other(tmp_path: Path) -> None:
    hook = SessionHook(tmp_path, save_config=EVERY, include_collections=["weights", "gradients"])
    losses: dict[Any, list[Any]] = {smd.modes.TRAIN: [], smd.modes.EVAL: []}
    for mode, steps in ((smd.modes.TRAIN, 3), (smd.modes.EVAL, 2), (smd.modes.TRAIN, 2)):
        hook.set_mode(mode)
        with tf.Graph().as_default():
            training = mode == smd.modes.TRAIN
            net = Net(hook if training else None)
            fetches = [net.loss, net.train] if training else [net.loss]
            losses[mode] += [each[0] for each in run(hook, fetches, steps, net.feed)]
    trial = trial_of(hook)
    assert trial.steps() == list(range(7))
    assert trial.steps(mode=smd.modes.TRAIN) == [0, 1, 2, 3, 4]
    assert trial.steps(mode=smd.modes.EVAL) == [0, 1]
    for mode, expected in losses.items():
        tensor = trial.tensor("mse/value:0")
        assert [tensor.value(step, mode=mode) for step in trial.steps(mode=mode)] == expected
    gradients = trial.tensor_names(collection="gradients")
    assert gradients
    assert trial.tensor(gradients[0]).steps(mode=smd.modes.EVAL) == []


def test_sessions_that_take_turns(tmp_path: Path) -> None:
    hook = SessionHook(tmp_path, save_config=EVERY, include_regex=["^a:0", "^b:0"])
    graphs = [tf.Graph(), tf.Graph()]
    sessions: list[Any] = []
    for graph, name in zip(graphs, "ab", strict=True):
        with graph.as_default():
            tf.constant(len(sessions), name=name)
            sessions.append(v1.train.MonitoredSession(hooks=[hook]))
    for step in range(4):
        sessions[step % 2].run("ab"[step % 2] + ":0")
    for session in sessions:
        session.close()
    trial = trial_of(hook)
    assert trial.tensor("a:0").steps() == [0, 2]
    assert trial.tensor("b:0").steps() == [1, 3]


def test_run_at_the_end_of_the_data_is_not_a_step(tmp_path: Path) -> None:
    hook = SessionHook(tmp_path, save_config=EVERY, include_regex=["next"])
    for mode in (smd.modes.TRAIN, smd.modes.EVAL):
        hook.set_mode(mode)
        with tf.Graph().as_default():
            data = tf.data.Dataset.range(3)
            item = tf.identity(v1.data.make_one_shot_iterator(data).get_next(), name="next")
            with v1.train.MonitoredTrainingSession(hooks=[hook]) as session:
                while not session.should_stop():
                    session.run(item)
    trial = trial_of(hook)
    assert trial.steps() == [0, 1, 2, 3, 4, 5]
    assert [trial.tensor("next:0").value(step, mode=smd.modes.EVAL) for step in range(3)] == [
        0, 1, 2,
    ]  # fmt: skip


def test_when_nan_saves_the_step(tmp_path: Path) -> None:
    config = smd.SaveConfig(save_interval=100, start_step=50, when_nan=["bad:0"])
    hook = SessionHook(
        tmp_path, save_config=config, include_regex=["scaled:0"], include_collections=["weights"]
    )
    value = v1.placeholder(tf.float32, [], name="value")
    v1.get_variable("w", [2])
    tf.multiply(value, 2, name="scaled")
    bad = tf.math.log(value, name="bad")
    with v1.train.MonitoredTrainingSession(hooks=[hook]) as session:
        for number in (1.0, 2.0, -1.0, 3.0):
            session.run(bad, {value: number})
    trial = trial_of(hook)
    assert trial.steps() == [2]
    assert trial.tensor("scaled:0").value(2) == -2
    assert trial.tensor("w:0").steps() == [2]


def test_user_values_belong_to_the_step_that_ran(tmp_path: Path) -> None:
    hook = SessionHook(tmp_path, save_config=EVERY)
    net = Net(hook)
    hook.save_scalar("before", 1)
    with v1.train.MonitoredTrainingSession(hooks=[hook]) as session:
        for step in range(3):
            loss = session.run([net.train, net.loss], net.feed)[1]
            assert hook.step == min(step, 1)
            hook.save_scalar("mine", loss)
            hook.save_tensor("batch", IMAGES * step, "inputs")
            if step == 1:
                hook.close()
    trial = smd.create_trial(str(tmp_path))
    assert trial.tensor("scalar/before").steps() == [0]
    mine, losses = trial.tensor("scalar/mine"), trial.tensor(net.loss.name)
    assert mine.steps() == losses.steps() == [0, 1]
    assert mine.value(1) == losses.value(1)
    assert np.array_equal(trial.tensor("batch").value(1), IMAGES)


@pytest.mark.parametrize("mode", [None, smd.modes.TRAIN])
def test_a_rule_ends_the_loop(tmp_path: Path, mode: Any) -> None:
    hook = SessionHook(
        tmp_path, save_config=EVERY, rules=["NonFinite"], on_finding="stop", flush_seconds=0.01
    )
    if mode is not None:
        hook.set_mode(mode)
    net = Net(hook, v1.train.GradientDescentOptimizer(1e30))
    steps = 0
    with v1.train.MonitoredTrainingSession(hooks=[hook]) as session:
        while not session.should_stop() and steps < 1_000_000:
            session.run(net.train, net.feed)
            steps += 1
    assert steps < 1_000_000
    assert hook.closed
    assert hook.findings()[0].rule == "NonFinite"
    # What follows is not saved, and not in the way.
    run(hook, net.train, 1, net.feed)
    assert smd.create_trial(str(tmp_path)).steps()[-1] == steps - 1


# ---- what is not harmed


def everything_random(hook: SessionHook | None) -> tuple[Any, list[Any]]:
    """A training graph with all kinds of state; returns the train operation and what to read."""
    v1.set_random_seed(3)
    data = tf.data.Dataset.from_tensor_slices((IMAGES, LABELS)).shuffle(12, seed=1).repeat()
    images, labels = v1.data.make_one_shot_iterator(data.batch(5)).get_next()
    with v1.variable_scope("net", use_resource=True):
        w1 = v1.get_variable("w1", [4, 8])
        w2 = v1.get_variable("w2", [8, 2], use_resource=False)
    noisy = images + 0.1 * v1.random_normal(tf.shape(images), name="noise")
    hidden = tf.nn.dropout(tf.nn.relu(tf.matmul(noisy, w1)), rate=0.3)
    loss = v1.losses.mean_squared_error(labels, tf.matmul(hidden, w2))
    optimizer = v1.train.AdamOptimizer(0.05)
    if hook is not None:
        optimizer = hook.wrap_optimizer(optimizer)
    train = optimizer.minimize(loss)
    # Off the path of the run; each of them would leave a trace.
    counter = v1.get_variable("counter", [], tf.int32, v1.zeros_initializer(), trainable=False)
    old = v1.get_variable(
        "old", [], tf.int32, v1.zeros_initializer(), trainable=False, use_resource=False
    )
    tf.identity(counter.assign_add(1), name="traces/counter")
    v1.assign_add(old, 1, name="traces/old")
    with tf.control_dependencies([counter.assign_add(100)]):
        tf.add(loss, 1.0, name="traces/waits")
    other = v1.data.make_one_shot_iterator(tf.data.Dataset.range(1000)).get_next()
    tf.identity(other, name="traces/other")
    queue = tf.queue.FIFOQueue(10, [tf.float32], [[]])
    item = queue.dequeue(name="traces/item")
    tf.add(item, 1.0)
    random = v1.random_uniform([], seed=5, name="traces/random")
    # A function of Python that is run would be noticed, too.
    tf.identity(v1.py_func(_fail, [loss], tf.float32), name="traces/python")
    v1.placeholder(tf.float32, [3], name="traces/unfed")
    with tf.control_dependencies([tf.debugging.Assert(loss < 0, [loss])]):
        tf.identity(loss, name="traces/asserts")
    return train, [w1, w2, counter, old, queue.size(), other, random, loss]


def _fail(_: Any) -> Any:
    raise AssertionError("this function is not part of the run")


def left_by(hook: SessionHook | None, train: Any, looked_at: list[Any], feed: Any = None) -> Any:
    """What is there after twelve runs; read when they are over, for a run may read too early."""
    with v1.train.MonitoredTrainingSession(hooks=[] if hook is None else [hook]) as session:
        for _ in range(12):
            session.run(train, feed)
        return session.run_step_fn(lambda step_context: step_context.session.run(looked_at))


def trained(hook: SessionHook | None) -> Any:
    with tf.Graph().as_default():
        return left_by(hook, *everything_random(hook))


@pytest.mark.parametrize("interval", [1, 3])
@pytest.mark.parametrize("regex", [None, ".*"])
def test_training_is_the_same_to_the_last_bit(
    tmp_path: Path, interval: int, regex: str | None
) -> None:
    hook = SessionHook(
        tmp_path, save_config=smd.SaveConfig(save_interval=interval), include_regex=regex,
        include_collections=["weights", "gradients", "optimizer_variables"],
    )  # fmt: skip
    plain, watched = trained(None), trained(hook)
    for expected, value in zip(plain, watched, strict=True):
        assert np.array_equal(expected, value)
    trial = trial_of(hook)
    assert trial.steps() == list(range(0, 12, interval))
    names = trial.tensor_names()
    assert len(trial.tensor_names(collection="gradients")) == 2
    if regex is not None:
        # The noise that was in the run, not other noise.
        noise = trial.tensor("noise:0")
        assert noise.value(0).shape == (5, 4)
        assert not np.array_equal(noise.value(0), noise.value(interval))
        # Only what is constant there.
        traces = {name for name in names if name.startswith("traces/")}
        assert traces == {"traces/old/value:0", "traces/random/shape:0"}


def test_bit_identical_with_fed_tensors(tmp_path: Path) -> None:
    def weights(hook: SessionHook | None) -> Any:
        with tf.Graph().as_default():
            net = Net(hook)
            return left_by(hook, net.train, [net.w1, net.bias1, net.w2], net.feed)

    hook = SessionHook(tmp_path, save_config=smd.SaveConfig(save_interval=2), save_all=True)
    for expected, value in zip(weights(None), weights(hook), strict=True):
        assert np.array_equal(expected, value)


def test_bit_identical_where_tensorflow_fuses_operations(tmp_path: Path) -> None:
    images = RNG.normal(size=(8, 12, 12, 3)).astype(np.float32)

    def weights(hook: SessionHook | None) -> Any:
        with tf.Graph().as_default():
            v1.set_random_seed(1)
            hidden = tf.constant(images)
            for place, (before, after) in enumerate([(3, 8), (8, 4)]):
                kernel = v1.get_variable(f"kernel{place}", [3, 3, before, after])
                bias = v1.get_variable(f"bias{place}", [after])
                hidden = tf.nn.bias_add(tf.nn.conv2d(hidden, kernel, 2, "SAME"), bias)
                ones = v1.get_variable(f"scale{place}", [after], initializer=tf.ones_initializer())
                hidden = v1.nn.fused_batch_norm(tf.nn.relu(hidden), ones, bias)[0]
            hidden = tf.matmul(tf.reshape(hidden, [8, 36]), v1.get_variable("dense", [36, 10]))
            loss = tf.reduce_mean(tf.tanh(tf.nn.bias_add(hidden, v1.get_variable("last", [10]))))
            optimizer = v1.train.AdamOptimizer(0.01)
            if hook is not None:
                hook.wrap_optimizer(optimizer)
            return left_by(hook, optimizer.minimize(loss), v1.trainable_variables())

    hook = SessionHook(tmp_path, save_config=smd.SaveConfig(save_interval=2), save_all=True)
    for expected, value in zip(weights(None), weights(hook), strict=True):
        assert np.array_equal(expected, value)
    names = trial_of(hook).tensor_names()
    assert {"Conv2D:0", "BiasAdd:0", "Relu:0", "MatMul:0", "Tanh:0"} <= set(names)


def test_tensors_not_in_the_run_are_computed_from_its_values(tmp_path: Path) -> None:
    hook = SessionHook(tmp_path, save_config=EVERY, include_regex=["^mean", "^scaled"])
    noise = v1.random_normal([1000], name="noise")
    tf.reduce_mean(noise, name="mean")
    tf.multiply(noise, v1.placeholder_with_default(3.0, []), name="scaled")
    results = run(hook, noise, 3)
    trial = trial_of(hook)
    for step, expected in enumerate(results):
        np.testing.assert_allclose(trial.tensor("mean:0").value(step), expected.mean(), atol=1e-6)
        np.testing.assert_allclose(trial.tensor("scaled:0").value(step), expected * 3, rtol=1e-6)


def test_failing_tensors_are_skipped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    hook = SessionHook(tmp_path, save_config=EVERY, include_regex=[".*"])
    divisor = v1.placeholder(tf.int32, [], name="divisor")
    good = tf.add(divisor, 1, name="good")
    tf.math.floordiv(tf.constant(6), divisor, name="ratio")
    tf.reshape(tf.range(divisor), [2, 2], name="square")
    for place in range(20):
        tf.add(divisor, place, name=f"fine_{place}")
    never = v1.get_variable("never", [2], collections=["unknown"])
    tf.add(never, 1.0, name="uses")
    v1.add_to_collection(v1.GraphKeys.LOCAL_VARIABLES, never)
    scaffold = v1.train.Scaffold(local_init_op=tf.no_op(), ready_op=tf.constant([], tf.string))
    with v1.train.MonitoredTrainingSession(scaffold=scaffold, hooks=[hook]) as session:
        assert [session.run(good, {divisor: number}) for number in (0, 4, 2)] == [1, 5, 3]
    trial = trial_of(hook)
    names = trial.tensor_names()
    assert trial.tensor("fine_3:0").value(2) == 5
    assert trial.tensor("good:0").steps() == [0, 1, 2]
    assert not {"ratio:0", "square:0", "uses:0", "never:0"} & set(names)
    assert "tensors are not saved" in caplog.text


def test_tensors_that_depend_on_unfed_placeholders(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "smdebug")
    hook = SessionHook(tmp_path, save_config=EVERY, include_regex=["needs"])
    fed = v1.placeholder(tf.float32, [], name="fed")
    unfed = v1.placeholder(tf.float32, [], name="unfed")
    tf.add(fed, unfed, name="needs/both")
    tf.add(fed, 1.0, name="needs/one")
    named = tf.add(unfed, 1.0, name="named")
    hook.get_collection("losses").add(named)
    run(hook, tf.identity(fed), 3, {"fed:0": 2.0})
    trial = trial_of(hook)
    assert set(trial.tensor_names()) == {"needs/one:0", "needs/one/y:0"}
    said = [each for each in caplog.records if "placeholder unfed" in each.getMessage()]
    assert {each.levelname for each in said if "needs/both" in each.getMessage()} == {"DEBUG"}
    assert [each.levelname for each in said if each.getMessage().startswith("named:0")] == [
        "WARNING"
    ]


def loops(hook: SessionHook | None) -> tuple[Any, Any, Any]:
    """A graph with a loop, nested branches and their gradients."""
    v1.set_random_seed(1)
    x = v1.placeholder(tf.float32, [], name="x")
    w = v1.get_variable("w", [])
    total = tf.while_loop(lambda i, _: i < 3, lambda i, t: (i + 1, t * w + x), [0, w])[1]
    inner = lambda: tf.cond(x > 5, lambda: w * 2, lambda: tf.exp(w))  # noqa: E731
    chosen = tf.cond(x > 0, inner, lambda: w * w * total)
    after = tf.add(chosen, total, name="after")
    optimizer = v1.train.GradientDescentOptimizer(0.01)
    if hook is not None:
        hook.wrap_optimizer(optimizer)
    return x, optimizer.minimize(after), after


@pytest.mark.parametrize("old", [False, True])
def test_loops_and_branches(
    tmp_path: Path, request: pytest.FixtureRequest, old: bool, caplog: pytest.LogCaptureFixture
) -> None:
    if old:
        request.getfixturevalue("old_control_flow")

    def results(hook: SessionHook | None) -> list[Any]:
        with tf.Graph().as_default():
            x, train, after = loops(hook)
            if hook is not None and old:
                names = [each.name for each in v1.get_default_graph().get_operations()]
                hook.get_collection("losses").add([f"{each}:0" for each in names if "Less" in each])
            with v1.train.MonitoredTrainingSession(hooks=[hook] if hook else []) as session:
                return [session.run([train, after], {x: each})[1] for each in (1, -1, 7, -2)]

    hook = SessionHook(tmp_path, save_config=EVERY, save_all=True)
    assert results(None) == results(hook)
    trial = trial_of(hook)
    assert trial.tensor("after:0").steps() == [0, 1, 2, 3]
    assert trial.tensor("w:0").steps() == [0, 1, 2, 3]
    assert len(trial.tensor_names(collection="gradients")) == 1
    if old:
        assert "inside a loop or a branch" in caplog.text


def test_branches_without_a_mark(tmp_path: Path) -> None:
    hook = SessionHook(tmp_path, save_config=EVERY, include_regex=[".*"])
    choice = v1.placeholder(tf.bool, [], name="choice")
    no, yes = tf.raw_ops.Switch(data=tf.constant(1.0), pred=choice)
    merged = tf.raw_ops.Merge(inputs=[tf.add(no, 1.0), tf.multiply(yes, 5.0)])[0]
    result = tf.identity(merged, name="result")
    with v1.train.MonitoredTrainingSession(hooks=[hook]) as session:
        assert [session.run(result, {choice: each}) for each in (True, False)] == [5.0, 2.0]
    assert trial_of(hook).tensor("result:0").steps() == [0, 1]


def test_any_fetches_of_a_run(tmp_path: Path) -> None:
    hook = SessionHook(tmp_path, save_config=EVERY, include_regex=["^relu:0", "^sparse"])
    net = Net(hook)
    sparse = v1.sparse_placeholder(tf.float32, name="sparse")
    total = tf.sparse.reduce_sum(sparse)
    given = v1.SparseTensorValue([[0]], [2.0], [3])
    names = {"x:0": IMAGES, net.y: LABELS}
    kinds = [
        (net.train, net.feed), ("relu:0", names), ({"a": [net.hidden], "b": (net.w1,)}, names),
        (net.train.name, names), ([net.hidden, net.w1], names),
        ([total, net.hidden], {**names, sparse: given}),
    ]  # fmt: skip
    with v1.train.MonitoredTrainingSession(hooks=[hook]) as session:
        for fetches, feed in kinds:
            session.run(fetches, feed)
        # An intermediate value that is fed: its inputs are not run.
        assert session.run(net.logits, {net.hidden: np.ones((1, 3))}).shape == (1, 2)
    trial = trial_of(hook)
    assert trial.tensor("relu:0").steps() == list(range(7))
    assert np.array_equal(trial.tensor("relu:0").value(6), np.ones((1, 3)))
    assert trial.tensor("sparse/values:0").steps() == [5]
    assert trial.tensor("sparse/values:0").value(5) == 2


def test_a_failing_hook_does_not_fail_training(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class BrokenAdapter(SessionAdapter):
        def capture(self, *args: Any, **kwargs: Any) -> Any:
            raise RuntimeError("the hook is broken")

    class Broken(SessionHook):
        adapter_class = BrokenAdapter

    hook = Broken(tmp_path, save_config=EVERY)
    net = Net(hook)
    assert len(run(hook, net.train, 3, net.feed)) == 3
    assert "saving has stopped, training continues" in caplog.text
    hook.close()
    raising = Broken(tmp_path / "raise", save_config=EVERY, on_error="raise")
    with pytest.raises(RuntimeError, match="the hook is broken"):
        run(raising, net.train, 3, net.feed)


def test_a_collection_without_tensors_is_rejected_when_the_session_begins(tmp_path: Path) -> None:
    with pytest.raises(SMDebugValueError, match="losses"):
        SessionHook(tmp_path, include_collections=["loses"])
    hook = SessionHook(tmp_path, include_collections=["mine"])
    with pytest.raises(InvalidCollectionConfiguration, match="mine"):
        run(hook, tf.constant(1), 1)
    hook.get_collection("mine").include("x")


def test_hook_can_be_copied_and_pickled(tmp_path: Path) -> None:
    hook = SessionHook(tmp_path, save_config=EVERY)
    assert copy.deepcopy({"hook": hook})["hook"] is hook
    other = pickle.loads(pickle.dumps(hook))
    net = Net(hook)
    optimizer = v1.train.GradientDescentOptimizer(0.1)
    assert other.wrap_optimizer(optimizer) is optimizer
    assert len(run(other, net.train, 2, net.feed)) == 2
    assert other.closed
    assert not list(tmp_path.glob("**/*.parquet"))


def test_graphs_are_released(tmp_path: Path) -> None:
    hook = SessionHook(tmp_path, save_config=EVERY, save_all=True)

    def one(build: Callable[[SessionHook], Net]) -> weakref.ref[Any]:
        with tf.Graph().as_default() as graph:
            net = build(hook)
            run(hook, net.train, 2, net.feed)
            return weakref.ref(graph)

    seen = one(Net)
    gc.collect()
    assert seen() is None
