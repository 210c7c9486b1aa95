"""Scripts on several devices or ranks: DataParallel, DistributedDataParallel, fully_shard."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from tests.pytorch.programs.models import Net, batch, sgd
from tests.pytorch.programs.twin import Watch, bits, check_script
from torch import nn

from smdebug.mode_keys import ModeKeys
from smdebug.trials import create_trial

if TYPE_CHECKING:
    from collections.abc import Iterable

    from smdebug.trials.trial import Trial

PROGRAM = Path(__file__).parent / "programs" / "ranks.py"
WORLD = 2
# A hang is a failure, not a wait.
TIMEOUT = 100

Truth = dict[str, Any]


class Jobs:
    """Jobs that ran one after the other on two ranks."""

    def __init__(self, folder: Path, *scenarios: str) -> None:
        self._folder = folder
        processes = [
            subprocess.Popen(
                [sys.executable, str(PROGRAM), str(rank), str(folder), *scenarios],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            )
            for rank in range(WORLD)
        ]  # fmt: skip
        self._outputs = []
        for process in processes:
            try:
                self._outputs.append(process.communicate(timeout=TIMEOUT)[0])
            except subprocess.TimeoutExpired:
                process.kill()
                self._outputs.append("hangs after:\n" + process.communicate()[0])

    def truths(self, scenario: str) -> list[Truth]:
        """What torch said on each rank."""
        for output in self._outputs:
            assert f"{scenario} done" in output, "\n".join(self._outputs)
        folder = self._folder / scenario
        return [torch.load(folder / f"truth_{rank}.pt") for rank in range(WORLD)]

    def out_dir(self, scenario: str) -> Path:
        return self._folder / scenario / "run"

    def trial(self, scenario: str) -> Trial:
        return create_trial(str(self.out_dir(scenario)))


def assert_same_training(first: list[Truth], second: list[Truth]) -> None:
    for one, other in zip(first, second, strict=True):
        assert list(one["state"]) == list(other["state"])
        for key, value in one["state"].items():
            assert torch.equal(value, other["state"][key]), key
        assert torch.equal(one["generator"], other["generator"])


def expected(truth: Truth) -> dict[tuple[int, str], torch.Tensor]:
    found = {}
    for key, tensor in truth.items():
        number, bar, name = key.partition("|")
        if bar:
            found[int(number), name] = tensor
    return found


def assert_worker(trial: Trial, worker: str, truth: Truth, exact: bool = True) -> None:
    """What a worker saved is what torch said on its rank."""
    assert expected(truth)
    for (number, name), tensor in expected(truth).items():
        found = trial.tensor(name).value(number, worker=worker)
        if exact:
            shown = (found.dtype.name, found.shape, found.tobytes())
            assert shown == bits(tensor), (number, name)
        else:
            assert found.shape == tuple(tensor.shape)
            np.testing.assert_allclose(
                found, tensor.numpy(), rtol=1e-5, atol=1e-7, err_msg=f"{number} {name}"
            )


def files_of(out_dir: Path) -> set[str]:
    """The workers that wrote something that a reader reads."""
    found = set()
    for path in out_dir.rglob("*"):
        if path.suffix in (".tfevents", ".parquet") or path.name.endswith("_collections.json"):
            found.add(next(w for w in ("worker_0", "worker_1") if w in path.name))
    return found


# ---- one process


def test_data_parallel_on_the_cpu_is_saved_under_its_own_name(tmp_path: Path) -> None:
    def script(watch: Watch) -> Iterable[nn.Module]:
        model = Net()
        wrapped = nn.DataParallel(model)
        watch.register(wrapped)
        optimizer = sgd(model)
        for _ in range(4):
            x, y = batch()
            optimizer.zero_grad()
            watch.backward(nn.functional.cross_entropy(wrapped(x), y))
            optimizer.step()
        return [wrapped]

    seen = check_script(script, tmp_path).watch.seen
    assert {"gradient/DataParallel_module.first.weight", "module.relu_output_0"} <= set(seen[0])


# ---- DistributedDataParallel


@pytest.fixture(scope="module")
def ddp(tmp_path_factory: pytest.TempPathFactory) -> Jobs:
    return Jobs(
        tmp_path_factory.mktemp("ddp"),
        *("ddp_bare", "ddp_all", "ddp_one", "ddp_early_hook", "ddp_slow", "ddp_no_sync"),
    )


def test_all_ranks_save_their_own_gradients(ddp: Jobs) -> None:
    truths = ddp.truths("ddp_all")
    assert_same_training(ddp.truths("ddp_bare"), truths)
    trial = ddp.trial("ddp_all")
    assert trial.workers() == ["worker_0", "worker_1"]
    assert trial.num_workers == 2
    assert trial.steps() == [0, 1, 2, 3]
    for rank, truth in enumerate(truths):
        assert_worker(trial, f"worker_{rank}", truth)
    name = "gradient/DistributedDataParallel_module.first.weight"
    one, other = (trial.tensor(name).value(0, worker=f"worker_{rank}") for rank in (0, 1))
    assert not np.array_equal(one, other)


def test_by_default_only_the_first_rank_saves(ddp: Jobs) -> None:
    truths = ddp.truths("ddp_one")
    assert_same_training(ddp.truths("ddp_bare"), truths)
    assert files_of(ddp.out_dir("ddp_one")) == {"worker_0"}
    trial = ddp.trial("ddp_one")
    assert trial.workers() == ["worker_0"]
    assert trial.num_workers == 1
    assert trial.steps() == [0, 1, 2, 3]
    assert_worker(trial, "worker_0", truths[0])


def test_hook_created_before_init_process_group_finds_its_rank(ddp: Jobs) -> None:
    truths = ddp.truths("ddp_early_hook")
    assert_same_training(ddp.truths("ddp_bare"), truths)
    trial = ddp.trial("ddp_early_hook")
    assert (trial.workers(), trial.num_workers) == (["worker_0", "worker_1"], 2)
    for rank, truth in enumerate(truths):
        assert_worker(trial, f"worker_{rank}", truth)


def test_rank_may_have_more_and_later_steps_than_others(
    ddp: Jobs,
) -> None:
    truths = ddp.truths("ddp_slow")
    trial = ddp.trial("ddp_slow")
    assert (trial.workers(), trial.num_workers) == (["worker_0", "worker_1"], 2)
    assert trial.steps() == [0, 1, 2, 3, 4, 5]
    tensor = trial.tensor("gradient/Net_last.weight")
    assert tensor.workers(2) == ["worker_0", "worker_1"]
    assert tensor.workers(5) == ["worker_1"]
    for rank, truth in enumerate(truths):
        assert_worker(trial, f"worker_{rank}", truth)


def test_gradients_accumulated_without_synchronization_are_those_of_each_backward_pass(
    ddp: Jobs,
) -> None:
    truths = ddp.truths("ddp_no_sync")
    trial = ddp.trial("ddp_no_sync")
    for rank, truth in enumerate(truths):
        assert_worker(trial, f"worker_{rank}", truth)


# ---- fully_shard


@pytest.fixture(scope="module")
def fsdp(tmp_path_factory: pytest.TempPathFactory) -> Jobs:
    return Jobs(
        tmp_path_factory.mktemp("fsdp"),
        *("fsdp_bare", "fsdp_all", "fsdp_one", "fsdp_norms"),
        *("fsdp_mixed_bare", "fsdp_mixed", "fsdp_no_sync_bare", "fsdp_no_sync"),
    )


def test_each_rank_saves_its_shards(fsdp: Jobs) -> None:
    truths = fsdp.truths("fsdp_all")
    assert_same_training(fsdp.truths("fsdp_bare"), truths)
    trial = fsdp.trial("fsdp_all")
    assert (trial.workers(), trial.num_workers) == (["worker_0", "worker_1"], 2)
    assert trial.steps() == [0, 1, 2, 3]
    for rank, truth in enumerate(truths):
        assert_worker(trial, f"worker_{rank}", truth, exact=False)
        shard = trial.tensor("gradient/Net_first.weight").value(0, worker=f"worker_{rank}")
        assert shard.shape == (3, 4)


def test_only_the_first_rank_saves_its_shards_without_waiting(fsdp: Jobs) -> None:
    truths = fsdp.truths("fsdp_one")
    assert_same_training(fsdp.truths("fsdp_bare"), truths)
    assert files_of(fsdp.out_dir("fsdp_one")) == {"worker_0"}
    assert_worker(fsdp.trial("fsdp_one"), "worker_0", truths[0], exact=False)


def test_norms_of_shards_are_those_of_the_shards(fsdp: Jobs) -> None:
    truths = fsdp.truths("fsdp_norms")
    assert_same_training(fsdp.truths("fsdp_bare"), truths)
    trial = fsdp.trial("fsdp_norms")
    assert trial.steps() == [0, 2]
    for rank, truth in enumerate(truths):
        for (number, name), tensor in expected(truth).items():
            if number % 2 or not tensor.numel():
                continue
            find = trial.tensor(name).reduction_value
            wide = tensor.double()
            for key, value in (("l2", wide.norm()), ("mean", wide.mean()), ("max", wide.max())):
                found = find(number, key, worker=f"worker_{rank}")
                np.testing.assert_allclose(found, float(value), rtol=1e-4, atol=1e-6)


def test_shards_are_saved_through_accumulation_and_evaluation(fsdp: Jobs) -> None:
    truths = fsdp.truths("fsdp_mixed")
    assert_same_training(fsdp.truths("fsdp_mixed_bare"), truths)
    trial = fsdp.trial("fsdp_mixed")
    assert trial.steps(mode=ModeKeys.TRAIN) == [0, 1, 2, 3]
    assert trial.steps(mode=ModeKeys.EVAL) == [0, 1, 2, 3]
    for rank, truth in enumerate(truths):
        for (number, name), tensor in expected(truth).items():
            if not name.startswith("gradient/"):
                found = trial.tensor(name).value(number, ModeKeys.TRAIN, worker=f"worker_{rank}")
                assert found.tobytes() == tensor.numpy().tobytes(), (number, name)
    gradient = trial.tensor("gradient/Net_last.weight")
    assert gradient.steps(mode=ModeKeys.TRAIN) == [0, 1, 2, 3]
    assert gradient.steps(mode=ModeKeys.EVAL) == []


def test_accumulated_gradients_of_shards_are_saved_one_backward_pass_at_a_time(fsdp: Jobs) -> None:
    trial = fsdp.trial("fsdp_mixed")
    for rank, truth in enumerate(fsdp.truths("fsdp_mixed")):
        for (number, name), tensor in expected(truth).items():
            if name.startswith("gradient/"):
                found = trial.tensor(name).value(number, ModeKeys.TRAIN, worker=f"worker_{rank}")
                np.testing.assert_allclose(
                    found, tensor.numpy(), rtol=1e-4, atol=1e-6, err_msg=f"{number} {name}"
                )


def test_shards_without_synchronization_have_the_gradient_of_the_last_micro_step(
    fsdp: Jobs,
) -> None:
    truths = fsdp.truths("fsdp_no_sync")
    assert_same_training(fsdp.truths("fsdp_no_sync_bare"), truths)
    trial = fsdp.trial("fsdp_no_sync")
    assert trial.steps() == [0, 1, 2, 3, 4, 5]
    assert trial.tensor("gradient/Net_last.weight").steps() == [2, 5]
    for rank, truth in enumerate(truths):
        assert_worker(trial, f"worker_{rank}", truth)
