"""Runs written by smdebug 1.0.34 read the same here as there, and as torch had the values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from smdebug import modes
from smdebug.exceptions import ShapeUnavailableForStep, TensorUnavailableForStep
from smdebug.storage.check.run import check_run
from smdebug.trials import Tensor, Trial, create_trial

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from smdebug.reductions import Array

PROGRAMS = ("train_pytorch.py", "train_two_workers.py", "write_with_file_writer.py")


@dataclass
class Original:
    """A run of the other library: ours to read, what it says itself, and what is true."""

    trial: Trial
    seen: dict[str, Any]
    # (tensor, step, worker); see the programs
    truth: dict[tuple[str, int, str], Array]


@pytest.fixture(scope="session")
def open_original(
    run_peer: Callable[..., None],
    ask_original: Callable[[Path], dict[str, Any]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[str], Original]:
    made: dict[str, Original] = {}

    def make(program: str) -> Original:
        folder = tmp_path_factory.mktemp(program.removesuffix(".py").replace("_", "-"))
        run, truth_file = folder / "run", folder / "truth.npz"
        run_peer(program, run, truth_file)
        truth = {}
        with np.load(truth_file) as stored:
            for key, value in stored.items():
                step, tensor, *worker = key.split("|")
                truth[tensor, int(step), worker[0] if worker else "worker_0"] = value
        return Original(create_trial(run), ask_original(run), truth)

    def cached(program: str) -> Original:
        if program not in made:
            made[program] = make(program)
        return made[program]

    return cached


@pytest.fixture(params=PROGRAMS)
def original(request: pytest.FixtureRequest, open_original: Callable[[str], Original]) -> Original:
    return open_original(request.param)


def assert_same_bits(ours: Array, theirs: Array) -> None:
    assert ours.dtype == theirs.dtype
    assert ours.shape == theirs.shape
    assert ours.tobytes() == theirs.tobytes()


def failed(answer: Any, error: str | None = None) -> bool:
    """Whether the original raised (this) instead of answering."""
    if not isinstance(answer, dict) or answer.keys() != {"error"}:
        return False
    return error is None or answer["error"] == error


def rows(original: Original) -> list[tuple[Tensor, dict[str, Any]]]:
    found = [(original.trial.tensor(row["tensor"]), row) for row in original.seen["rows"]]
    assert found
    return found


# ---- the run as a whole


def test_workers(original: Original) -> None:
    assert original.trial.workers() == original.seen["workers"]
    assert original.trial.num_workers == original.seen["num_workers"]


def test_steps_of_every_mode(original: Original) -> None:
    ours = {mode.name: original.trial.steps(mode=mode) for mode in modes}
    assert ours == original.seen["steps"]
    assert sorted(mode.name for mode in original.trial.modes()) == original.seen["modes"]


def test_mode_of_every_step(original: Original) -> None:
    trial = original.trial
    for step, mode, mode_step in original.seen["mode_of_step"]:
        assert trial.mode(step) is modes[mode]
        assert trial.mode_step(step) == mode_step
        assert trial.global_step(modes[mode], mode_step) == step


def test_tensor_names(original: Original) -> None:
    trial, seen = original.trial, original.seen
    assert trial.tensor_names() == seen["tensor_names"]
    for mode, names in seen["tensor_names_of_mode"].items():
        assert trial.tensor_names(mode=modes[mode]) == names
    for step, names in seen["tensor_names_at"]:
        assert trial.tensor_names(step=step) == names


def test_steps_and_workers_of_every_tensor(original: Original) -> None:
    for name, about in original.seen["tensors"].items():
        tensor = original.trial.tensor(name)
        assert {mode.name: tensor.steps(mode=mode) for mode in modes} == about["steps"]
        for step, workers in about["workers_at"]:
            assert tensor.workers(step) == workers


# ---- collections


def test_collections(original: Original) -> None:
    ours = {name: each.to_json_dict() for name, each in original.trial.collections().items()}
    assert ours == original.seen["collections"]


def test_tensors_of_every_collection(original: Original) -> None:
    for name, names in original.seen["tensor_names_of_collection"].items():
        if name == "all":
            # The original finds nothing in `all` unless the run was saved with save_all.
            assert original.trial.tensor_names(collection=name) == original.trial.tensor_names()
        else:
            assert original.trial.tensor_names(collection=name) == names


# ---- every tensor at every step of every worker


def test_values(original: Original) -> None:
    read = 0
    for tensor, row in rows(original):
        if not failed(row["value"]):
            assert_same_bits(tensor.value(row["step"], worker=row["worker"]), row["value"])
            read += 1
    assert read > 20


def test_values_are_the_truth(original: Original) -> None:
    for tensor, row in rows(original):
        if not failed(row["value"]):
            value = tensor.value(row["step"], worker=row["worker"])
            assert_same_bits(value, original.truth[tensor.name, row["step"], row["worker"]])


def test_values_by_mode_step(original: Original) -> None:
    trial = original.trial
    for tensor, row in rows(original):
        mode, mode_step = trial.mode_modestep(row["step"])
        assert mode is not None
        assert mode_step is not None
        if not failed(row["value"]):
            value = tensor.value(mode_step, mode=mode, worker=row["worker"])
            assert_same_bits(value, row["value"])


def test_values_together(original: Original) -> None:
    for name in original.trial.tensor_names():
        tensor = original.trial.tensor(name)
        for worker in original.trial.workers():
            for step, value in tensor.values(worker=worker).items():
                assert_same_bits(value, original.truth[name, step, worker])


def test_tensors_without_a_value_have_none(original: Original) -> None:
    for tensor, row in rows(original):
        # What was saved with value and shape is known to the original by its shape alone.
        if failed(row["value"], "TensorUnavailableForStep") and tensor.name != "fc_output_0":
            with pytest.raises(TensorUnavailableForStep):
                tensor.value(row["step"], worker=row["worker"])


def test_saved_reductions(original: Original) -> None:
    for tensor, row in rows(original):
        ours = tensor.reduction_values(row["step"], worker=row["worker"])
        theirs = row["saved_reductions"]
        assert {("abs_" if a else "") + name for name, a in ours} == theirs.keys()
        for (name, absolute), value in ours.items():
            saved = float(theirs[("abs_" if absolute else "") + name])
            asked = tensor.reduction_value(row["step"], name, worker=row["worker"], abs=absolute)
            np.testing.assert_equal(float(value), saved)
            np.testing.assert_equal(float(asked), saved)


def test_reductions_computed_when_read(original: Original) -> None:
    for tensor, row in rows(original):
        if failed(row["value"]) or row["value"].dtype.kind in "Uc":
            continue
        for name, theirs in row["reductions"].items():
            # Norms of the original are matrix norms for two dimensions and fail beyond.
            known = row["value"].ndim == 1 or name.removeprefix("abs_") not in ("l1", "l2")
            # It answers with the precision of the tensor: three digits for float16.
            known &= row["value"].dtype != np.float16
            if name in row["saved_reductions"] or not known or failed(theirs):
                continue
            ours = tensor.reduction_value(row["step"], name, worker=row["worker"])
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)


def test_shapes(original: Original) -> None:
    for tensor, row in rows(original):
        if failed(row["shape"], "ShapeUnavailableForStep"):
            with pytest.raises(ShapeUnavailableForStep):
                tensor.shape(row["step"], worker=row["worker"])
        elif not failed(row["shape"]):
            assert tensor.shape(row["step"], worker=row["worker"]) == tuple(row["shape"])


# ---- what each run is there for


def test_saved_reductions_are_the_truth(open_original: Callable[[str], Original]) -> None:
    original = open_original("train_pytorch.py")
    checked = set()
    for tensor, row in rows(original):
        truth = original.truth.get((tensor.name, row["step"], row["worker"]))
        for (name, absolute), value in tensor.reduction_values(row["step"]).items():
            assert truth is not None
            exact = np.abs(truth).astype(np.float64) if absolute else truth.astype(np.float64)
            np.testing.assert_allclose(value, TORCH[name](exact), rtol=1e-4, atol=1e-6)
            checked.add((name, absolute))
    assert checked == {(name, absolute) for name in TORCH for absolute in (False, True)}


def _sample_variance(x: Array) -> float:
    # torch, as the original calls it, divides by n - 1.
    return float(np.var(x, ddof=1)) if x.size > 1 else np.nan


TORCH: dict[str, Callable[[Array], Any]] = {
    "min": np.min,
    "max": np.max,
    "mean": np.mean,
    "std": lambda x: np.sqrt(_sample_variance(x)),
    "variance": _sample_variance,
    "sum": np.sum,
    "prod": np.prod,
    "l1": lambda x: np.sum(np.abs(x)),
    "l2": lambda x: np.sqrt(np.sum(np.square(x))),
}


def test_value_beside_its_shape(open_original: Callable[[str], Original]) -> None:
    original = open_original("train_pytorch.py")
    tensor = original.trial.tensor("fc_output_0")
    for step in tensor.steps():
        # The original finds only the shape of a tensor that was saved with both.
        truth = original.truth["fc_output_0", step, "worker_0"]
        assert_same_bits(tensor.value(step), truth)
        assert tensor.shape(step) == truth.shape
    assert len(tensor.steps()) == 10


def test_dtypes_the_original_writes_but_cannot_read(
    open_original: Callable[[str], Original],
) -> None:
    original = open_original("write_with_file_writer.py")
    names = original.trial.tensor_names(regex="^unreadable/")
    assert len(names) == 5
    for name in names:
        for step in original.trial.steps():
            value = original.trial.tensor(name).value(step)
            assert_same_bits(value, original.truth[name, step, "worker_0"])


def test_workers_differ(open_original: Callable[[str], Original]) -> None:
    original = open_original("train_two_workers.py")
    tensor = original.trial.tensor("module_output_0")
    one, other = (tensor.value(2, worker=worker) for worker in original.trial.workers())
    assert not np.array_equal(one, other)


def test_name_in_the_graph(open_original: Callable[[str], Original]) -> None:
    original = open_original("write_with_file_writer.py")
    name = original.seen["tensors"]["shape_only"]["original_name"]
    assert name == "graph/name:0"
    assert original.trial.tensor("shape_only").original_name == name


def test_a_finished_run_is_finished(open_original: Callable[[str], Original]) -> None:
    assert open_original("train_pytorch.py").trial.loaded_all_steps
    assert not open_original("write_with_file_writer.py").trial.loaded_all_steps


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_check_finds_no_damage(program: str, open_original: Callable[[str], Original]) -> None:
    report = check_run(open_original(program).trial.store)
    assert report.damages == []
    assert report.records > 0
    assert any("without checksums" in remark.what for remark in report.remarks)
