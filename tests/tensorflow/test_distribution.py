"""Models on several devices and in several processes: who writes what, and that nothing is felt."""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf

from smdebug.mode_keys import ModeKeys
from smdebug.storage.stores.local import LocalStore
from smdebug.trials import create_trial
from smdebug.trials.run_summary import state_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from smdebug.trials.trial import Trial

keras: Any = tf.keras
KERAS_3 = hasattr(keras, "ops")
PROGRAMS = Path(__file__).parent / "programs"
ROOT = Path(__file__).parents[2]
# A hang is a failure, not a wait.
TIMEOUT = 240
FIRST = "_job-localhost_replica-0_task-0_device-CPU-0"
SECOND = "_job-localhost_replica-0_task-0_device-CPU-1"
BOTH = [FIRST, SECOND]
WEIGHTS = {
    "normed": [
        "first/weights/first/kernel:0", "first/weights/first/bias:0", "norm/weights/norm/gamma:0",
        "norm/weights/norm/beta:0", "norm/weights/norm/moving_mean:0",
        "norm/weights/norm/moving_variance:0", "last/weights/last/kernel:0",
        "last/weights/last/bias:0",
    ],
    "plain": [
        "first/weights/first/kernel:0", "first/weights/first/bias:0", "last/weights/last/kernel:0",
        "last/weights/last/bias:0",
    ],
}  # fmt: skip
NOT_IN_KERAS_3 = "Keras 3 itself does not take several batches at once on several devices"
TOGETHER = pytest.param("together", marks=pytest.mark.skipif(KERAS_3, reason=NOT_IN_KERAS_3))

Truth = dict[str, Any]


class Program:
    """A process that runs scenarios, one after the other."""

    def __init__(self, folder: Path, name: str, *arguments: str) -> None:
        self._folder = folder
        self._output: str | None = None
        variables = {
            "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1",
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        }  # fmt: skip
        self._process = subprocess.Popen(
            [sys.executable, str(PROGRAMS / name), str(folder), *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={**os.environ, **variables},
        )  # fmt: skip

    @property
    def output(self) -> str:
        """Everything it said; waits for its end."""
        if self._output is None:
            try:
                self._output = self._process.communicate(timeout=TIMEOUT)[0]
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._output = "hangs after:\n" + self._process.communicate()[0]
        return self._output

    @property
    def code(self) -> int | None:
        """What it ended with."""
        assert self.output is not None
        return self._process.returncode

    def truth(self, scenario: str, name: str = "truth") -> Truth:
        assert f"{scenario} done" in self.output, f"exit status {self.code}: {self.output}"
        with (self._folder / scenario / f"{name}.pickle").open("rb") as file:
            found: Truth = pickle.load(file)
        return found

    def trial(self, scenario: str) -> Trial:
        assert f"{scenario} done" in self.output, f"exit status {self.code}: {self.output}"
        return create_trial(self._folder / scenario / "run")

    def said(self, scenario: str) -> str:
        """What was said during a scenario."""
        before = self.output.split(f"{scenario} done")[0]
        return before.split(" done in ")[-1]

    def stop(self) -> None:
        if self._output is None:
            self._process.kill()
            self._process.communicate()


@pytest.fixture(scope="module")
def mirrored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """The whole of what one does with a model, on two devices."""
    folder = tmp_path_factory.mktemp("mirrored")
    program = Program(folder, "dist_mirrored.py", "bare", "first_replica", "all_replicas")
    yield program
    program.stop()


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """Other kinds of models and training."""
    folder = tmp_path_factory.mktemp("kinds")
    names = ["idle", "dropout", "words", "own", "eagerly", "loop", "central"]
    names += [] if KERAS_3 else ["together"]
    scenarios = [f"{name}_{kind}" for name in names for kind in ("bare", "all")]
    scenarios += ["loop_one", "one_device_bare", "one_device"]
    program = Program(folder, "dist_mirrored.py", *scenarios)
    yield program
    program.stop()


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Program]]:
    """Two processes that train together."""
    folder = tmp_path_factory.mktemp("workers")
    scenarios = ["loop_bare", "loop_one", "loop_all"]
    scenarios += [] if KERAS_3 else ["fit_bare", "fit_one", "fit_all"]
    ports = ",".join(str(port) for port in free_ports(2))
    programs = [
        Program(folder, "dist_workers.py", str(task), ports, *scenarios) for task in range(2)
    ]
    yield programs
    for program in programs:
        program.stop()


@pytest.fixture(scope="module", autouse=True)
def started(mirrored: Program, kinds: Program, workers: list[Program]) -> None:
    """They run at the same time."""


def assert_same(first: Truth, second: Truth) -> None:
    """The two training runs have the same results, bit by bit."""
    assert len(first["final"]) == len(second["final"]) > 0
    for one, other in zip(first["final"], second["final"], strict=True):
        assert one.tobytes() == other.tobytes()
    assert first.get("history") == second.get("history")


def check_weights(trial: Trial, worker: str, truth: Truth, names: list[str]) -> None:
    """Weights at every step are those after it."""
    for number, step in enumerate(truth["steps"]):
        assert len(step["after"]) == len(names)
        for name, value in zip(names, step["after"], strict=True):
            found = trial.tensor(name).value(number, worker=worker)
            np.testing.assert_array_equal(found, value, err_msg=f"{number} {name}")


def check_inside(trial: Trial, worker: str, truth: Truth, replica: int) -> None:
    """Data, layers and gradients of a replica are those of a computation of our own."""
    for number, step in enumerate(truth["steps"]):
        for name, value in step["inside"][replica].items():
            found = trial.tensor(name).value(number, worker=worker)
            where = f"{number} {name} {worker}"
            assert found.shape == value.shape, where
            assert found.dtype == value.dtype, where
            np.testing.assert_allclose(found, value, rtol=1e-4, atol=1e-6, err_msg=where)


def check_logs(trial: Trial, worker: str, truth: Truth) -> None:
    """Metrics and losses are those that Keras reported, at every step and epoch."""
    last = {each["step"]: each["logs"] for each in truth["epochs"]}
    for number, step in enumerate(truth["steps"]):
        for name, value in {**last.get(number, {}), **step["logs"]}.items():
            found = trial.tensor(name).value(number, worker=worker)
            assert found.tolist() == [value], (number, name)
        if step["mode"] != "PREDICT":
            batch = trial.tensor("batch").value(number, worker=worker)
            assert batch.tolist() == [step["last"]]


def check_steps(trial: Trial, truth: Truth, saved: set[int] | None = None) -> None:
    """Every step is there, complete, in its mode."""
    modes = [ModeKeys[step["mode"]] for step in truth["steps"]]
    numbers = range(len(modes)) if saved is None else sorted(saved)
    assert trial.steps() == list(numbers)
    assert [trial.mode(number) for number in numbers] == [modes[number] for number in numbers]
    assert trial.last_complete_step == max(numbers)
    assert trial.loaded_all_steps


# ---- fit, evaluate and predict on two devices


@pytest.mark.parametrize("scenario", ["first_replica", "all_replicas"])
def test_a_model_on_two_devices_trains_as_without_the_hook(
    mirrored: Program, scenario: str
) -> None:
    bare, hooked = mirrored.truth("bare"), mirrored.truth(scenario)
    assert_same(bare, hooked)
    assert bare["score"] == hooked["score"]
    assert bare["predicted"].tobytes() == hooked["predicted"].tobytes()
    for one, other in zip(bare["steps"], hooked["steps"], strict=True):
        assert one["logs"] == other["logs"]


def test_first_replica_is_saved_for_all(mirrored: Program) -> None:
    truth, trial = mirrored.truth("first_replica"), mirrored.trial("first_replica")
    assert trial.workers() == ["worker_0"]
    check_steps(trial, truth)
    check_weights(trial, "worker_0", truth, WEIGHTS["normed"])
    check_inside(trial, "worker_0", truth, 0)
    check_logs(trial, "worker_0", truth)


def test_every_replica_writes_its_own(mirrored: Program) -> None:
    truth, trial = mirrored.truth("all_replicas"), mirrored.trial("all_replicas")
    assert trial.workers() == BOTH
    check_steps(trial, truth)
    for replica, worker in enumerate(BOTH):
        check_weights(trial, worker, truth, WEIGHTS["normed"])
        check_inside(trial, worker, truth, replica)
        check_logs(trial, worker, truth)


def test_replicas_see_their_part_of_a_batch(mirrored: Program) -> None:
    trial = mirrored.trial("all_replicas")
    inputs = trial.tensor("inputs")
    train = ModeKeys.TRAIN
    sizes = [[len(inputs.value(step, train, worker)) for worker in BOTH] for step in range(3)]
    assert sizes == [[4, 4], [4, 4], [3, 2]]
    for name in ("labels", "predictions", "first/outputs"):
        assert trial.tensor(name).value(2, train, SECOND).shape[0] == 2


@pytest.mark.parametrize("scenario", ["first_replica", "all_replicas"])
def test_names_and_collections_on_two_devices(mirrored: Program, scenario: str) -> None:
    trial = mirrored.trial(scenario)
    gradients = {f"gradients/{layer}/{kind}Grad" for layer, kind in (
        ("first", "kernel"), ("first", "bias"), ("norm", "gamma"), ("norm", "beta"),
        ("last", "kernel"), ("last", "bias"),
    )}  # fmt: skip
    assert set(trial.tensor_names(collection="gradients")) == gradients
    biases = {"first/weights/first/bias:0", "last/weights/last/bias:0"}
    assert set(trial.tensor_names(collection="biases")) == biases
    assert set(trial.tensor_names(collection="weights")) == set(WEIGHTS["normed"]) - biases
    assert set(trial.tensor_names(collection="losses")) == {"loss", "val_loss"}
    metrics = {"mae", "val_mae", "batch", "epoch"}
    assert set(trial.tensor_names(collection="metrics")) == metrics
    assert set(trial.tensor_names(collection="layers")) == {
        f"{layer}/{kind}" for layer in ("first", "norm", "last") for kind in ("inputs", "outputs")
    }
    for name in trial.tensor_names():
        workers = BOTH if scenario == "all_replicas" else ["worker_0"]
        for step in trial.tensor(name).steps():
            assert trial.tensor(name).workers(step) == workers, (name, step)


def test_gradients_of_the_replicas_together_make_the_update(mirrored: Program) -> None:
    truth, trial = mirrored.truth("all_replicas"), mirrored.trial("all_replicas")
    step = truth["steps"][1]
    change = step["after"][0] - step["before"][0]
    slopes = [trial.tensor("gradients/first/kernelGrad").value(1, worker=each) for each in BOTH]
    np.testing.assert_allclose(change, -0.05 * (slopes[0] + slopes[1]), rtol=1e-4, atol=1e-6)
    assert not np.allclose(slopes[0], slopes[1])


def test_a_job_on_two_devices_that_was_terminated_is_started_again(tmp_path: Path) -> None:
    run = tmp_path / "stopped" / "run"
    first = Program(tmp_path, "dist_mirrored.py", "stopped")
    assert first.code == -signal.SIGTERM, first.output
    assert state_of(LocalStore(run)) == "stopped"
    kernel = create_trial(run).tensor(WEIGHTS["plain"][0])
    assert kernel.steps()[:2] == [0, 1]
    saved = {(step, each): kernel.value(step, worker=each) for step in (0, 1) for each in BOTH}

    again = Program(tmp_path, "dist_mirrored.py", "stopped")
    truth, trial = again.truth("stopped"), again.trial("stopped")
    assert state_of(LocalStore(run)) == "finished"
    assert trial.workers() == BOTH
    check_steps(trial, truth)
    for worker in BOTH:
        check_weights(trial, worker, truth, WEIGHTS["plain"])
        check_logs(trial, worker, truth)
    # Both jobs begin with the same numbers: what the first one saved was right, too.
    for (step, _), value in saved.items():
        np.testing.assert_array_equal(value, truth["steps"][step]["after"][0])


# ---- other kinds of models and training


@pytest.mark.parametrize(
    "kind", ["idle", "dropout", "words", "own", TOGETHER, "eagerly", "central", "loop"]
)
def test_training_on_two_devices_is_not_changed(kinds: Program, kind: str) -> None:
    assert_same(kinds.truth(f"{kind}_bare"), kinds.truth(f"{kind}_all"))


@pytest.mark.parametrize("kind", ["idle", "words", "eagerly"])
def test_each_replica_of_such_models(kinds: Program, kind: str) -> None:
    truth, trial = kinds.truth(f"{kind}_all"), kinds.trial(f"{kind}_all")
    assert trial.workers() == BOTH
    check_steps(trial, truth)
    for replica, worker in enumerate(BOTH):
        check_inside(trial, worker, truth, replica)
        check_logs(trial, worker, truth)


def test_replica_without_rows(kinds: Program) -> None:
    truth, trial = kinds.truth("idle_all"), kinds.trial("idle_all")
    assert trial.tensor("inputs").value(2, worker=FIRST).shape == (1, 4)
    assert trial.tensor("inputs").value(2, worker=SECOND).shape == (0, 4)
    assert trial.tensor("first/outputs").value(2, worker=SECOND).shape == (0, 3)
    numbers = trial.tensor("first/outputs").reduction_values(2, worker=SECOND)
    assert numbers["l2", False] == numbers["nans", False] == 0
    for worker in BOTH:
        check_weights(trial, worker, truth, WEIGHTS["plain"])


def test_dropout_of_each_replica(kinds: Program) -> None:
    trial = kinds.trial("dropout_all")
    assert trial.steps() == [0, 3, 4, 6, 9]
    for step in (0, 3, 6, 9):
        for worker in BOTH:
            taken = trial.tensor("drop/inputs").value(step, worker=worker)
            given = trial.tensor("drop/outputs").value(step, worker=worker)
            kept = given != 0
            np.testing.assert_allclose(given[kept], taken[kept] / 0.6, rtol=1e-5)
            assert 0 < kept.mean() < 1


def test_the_variables_of_an_optimizer_on_two_devices(kinds: Program) -> None:
    trial = kinds.trial("dropout_all")
    names = trial.tensor_names(collection="optimizer_variables")
    # Two moments for each of four weights, and the number of steps.
    assert len([name for name in names if "kernel" in name or "bias" in name]) == 8
    (counter,) = [name for name in names if "iter" in name]
    for worker in BOTH:
        assert [int(trial.tensor(counter).value(s, worker=worker)) for s in (0, 3, 9)] == [1, 4, 10]


def test_custom_train_step_on_two_devices(kinds: Program) -> None:
    truth, trial = kinds.truth("own_all"), kinds.trial("own_all")
    check_steps(trial, truth)
    check_logs(trial, FIRST, truth)
    assert "my_loss" in trial.tensor_names(collection="losses")
    for number in range(3):
        total: Any = 0
        for worker in BOTH:
            x = trial.tensor("inputs").value(number, worker=worker)
            hidden = trial.tensor("first/outputs").value(number, worker=worker)
            y = trial.tensor("labels").value(number, worker=worker)
            given = trial.tensor("predictions").value(number, worker=worker)
            assert x.shape == (4, 4)
            slope = hidden.T @ (2 * (given - y) / 8)
            name = "gradients/last/kernelGrad"
            found = trial.tensor(name).value(number, worker=worker)
            np.testing.assert_allclose(found, slope, rtol=1e-4, atol=1e-6)
            total = total + found
        after = trial.tensor("last/weights/last/kernel:0").value(number, worker=FIRST)
        if number:
            before = trial.tensor("last/weights/last/kernel:0").value(number - 1, worker=FIRST)
            np.testing.assert_allclose(after - before, -0.05 * total, rtol=1e-3, atol=1e-6)


@pytest.mark.skipif(KERAS_3, reason=NOT_IN_KERAS_3)
def test_several_batches_at_once_on_two_devices(kinds: Program) -> None:
    truth, trial = kinds.truth("together_all"), kinds.trial("together_all")
    check_steps(trial, truth)
    assert len(truth["steps"]) == 3
    names = WEIGHTS["plain"]
    for worker in BOTH:
        check_weights(trial, worker, truth, names)
        check_logs(trial, worker, truth)
    assert not trial.tensor_names(collection="gradients")
    assert "steps_per_execution" in kinds.said("together_all")


@pytest.mark.parametrize("scenario", ["loop_one", "loop_all"])
def test_custom_loop_on_two_devices(kinds: Program, scenario: str) -> None:
    truth, trial = kinds.truth(scenario), kinds.trial(scenario)
    assert_same(kinds.truth("loop_bare"), truth)
    assert trial.steps() == [0, 1, 2, 3]
    (worker,) = trial.workers()
    if scenario == "loop_one":
        assert worker == "worker_0"
    names = ["first/kernel", "first/bias", "last/kernel", "last/bias"]
    for number, step in enumerate(truth["loop"]):
        loss = trial.tensor("loss").value(number, worker=worker)
        assert float(loss) == pytest.approx(step["losses"][0], rel=1e-6)
        for name, slope, weight in zip(names, step["slopes"], step["before"], strict=True):
            found = trial.tensor(f"gradients/{name}Grad").value(number, worker=worker)
            np.testing.assert_allclose(found, slope, rtol=1e-4, atol=1e-6)
            found = trial.tensor(f"weights/{name}:0").value(number, worker=worker)
            np.testing.assert_array_equal(found, weight)
        assert trial.tensor("first/outputs").value(number, worker=worker).shape == (4, 3)


def test_custom_loop_warns_that_only_the_first_replica_is_saved(kinds: Program) -> None:
    kinds.truth("loop_all")
    assert "replica" in kinds.said("loop_all")
    assert "replica" not in kinds.said("loop_one")


def test_one_device_is_one_worker(kinds: Program) -> None:
    truth, trial = kinds.truth("one_device"), kinds.trial("one_device")
    assert_same(kinds.truth("one_device_bare"), truth)
    assert trial.workers() == ["worker_0"]
    check_steps(trial, truth)
    check_weights(trial, "worker_0", truth, WEIGHTS["normed"])
    check_inside(trial, "worker_0", truth, 0)
    check_logs(trial, "worker_0", truth)


def test_central_storage_saves_weights_and_metrics_with_a_warning(
    kinds: Program,
) -> None:
    truth, trial = kinds.truth("central_all"), kinds.trial("central_all")
    worker = trial.workers()[0]
    check_weights(trial, worker, truth, WEIGHTS["plain"])
    check_logs(trial, worker, truth)
    if not trial.tensor_names(collection="gradients"):
        assert "CentralStorageStrategy" in kinds.said("central_all")


# ---- several processes


def truths(workers: list[Program], scenario: str) -> list[Truth]:
    return [each.truth(scenario, f"truth_{task}") for task, each in enumerate(workers)]


FIT_TOGETHER = pytest.mark.skipif(
    KERAS_3, reason="Keras 3 itself does not fit on MultiWorkerMirroredStrategy"
)


@pytest.mark.parametrize(
    "scenario",
    [
        "loop_one", "loop_all", pytest.param("fit_one", marks=FIT_TOGETHER),
        pytest.param("fit_all", marks=FIT_TOGETHER),
    ],
)  # fmt: skip
def test_processes_train_as_without_the_hook(workers: list[Program], scenario: str) -> None:
    bare = truths(workers, scenario.split("_")[0] + "_bare")
    for one, other in zip(bare, truths(workers, scenario), strict=True):
        assert_same(one, other)
        assert one.get("score") == other.get("score")


@FIT_TOGETHER
@pytest.mark.parametrize(("scenario", "count"), [("fit_one", 1), ("fit_all", 2)])
def test_each_process_is_a_worker(workers: list[Program], scenario: str, count: int) -> None:
    found, trial = truths(workers, scenario), workers[0].trial(scenario)
    names = [f"worker_{task}" for task in range(count)]
    assert trial.workers() == names
    check_steps(trial, found[0])
    for truth, worker in zip(found, names, strict=False):
        check_weights(trial, worker, truth, WEIGHTS["plain"])
        check_logs(trial, worker, truth)


@FIT_TOGETHER
def test_processes_warn_about_what_is_not_saved(workers: list[Program]) -> None:
    truths(workers, "fit_all")
    trial = workers[0].trial("fit_all")
    if not trial.tensor_names(collection="gradients"):
        for program in workers:
            assert "cannot be saved" in program.said("fit_all")


@pytest.mark.parametrize(("scenario", "count"), [("loop_one", 1), ("loop_all", 2)])
def test_each_process_saves_the_tensors_of_its_tape(
    workers: list[Program], scenario: str, count: int
) -> None:
    found, trial = truths(workers, scenario), workers[0].trial(scenario)
    assert trial.workers() == [f"worker_{task}" for task in range(count)]
    assert trial.steps() == [0, 1, 2]
    names = ["first/kernel", "first/bias", "last/kernel", "last/bias"]
    for truth, worker in zip(found, trial.workers(), strict=False):
        for number, step in enumerate(truth["loop"]):
            assert float(trial.tensor("loss").value(number, worker=worker)) == step["loss"]
            for name, slope, weight in zip(names, step["slopes"], step["before"], strict=True):
                saved = trial.tensor(f"gradients/{name}Grad").value(number, worker=worker)
                np.testing.assert_array_equal(saved, slope)
                saved = trial.tensor(f"weights/{name}:0").value(number, worker=worker)
                np.testing.assert_array_equal(saved, weight)
            inputs = trial.tensor("first/inputs").value(number, worker=worker)
            np.testing.assert_array_equal(inputs, step["inputs"])
