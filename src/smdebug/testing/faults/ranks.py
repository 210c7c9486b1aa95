"""Training on two processes that keep their models the same with DistributedDataParallel."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from torch.nn.parallel import DistributedDataParallel

from smdebug.testing.faults.training import Training

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from smdebug.testing.faults.job import Job

RANKS = 2
LOOPBACK = "127.0.0.1"
# Under which rank 0 leaves its losses for the process that started it.
LOSSES = "losses"


@dataclass(frozen=True)
class DistributedTraining(Training):
    """A training on two ranks, each with its own part of the data.

    `make` must be a function of a module: the ranks are processes that import it.

    Attributes:
        plant: breaks something on a rank; called with the job and the rank.
    """

    plant: Callable[[Job, int], None] | None = None

    def train(self, out_dir: str | os.PathLike[str], rules: Sequence[Any]) -> Job:
        """Trains on all ranks; returns a job with the losses of the first."""
        # The port is chosen by the system; the ranks are told it.
        store = dist.TCPStore(LOOPBACK, 0, is_master=True, wait_for_workers=False)
        level = logging.getLogger("smdebug").getEffectiveLevel()
        arguments = (self, str(out_dir), list(rules), store.port, level)
        processes.start_processes(_train_rank, arguments, RANKS, start_method="spawn")
        job = self.make()
        job.losses = json.loads(store.get(LOSSES))
        return job


def _train_rank(
    rank: int, training: DistributedTraining, out_dir: str, rules: list[Any], port: int, level: int
) -> None:
    logging.getLogger("smdebug").setLevel(level)
    torch.set_num_threads(1)
    store = dist.TCPStore(LOOPBACK, port, is_master=False)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=RANKS)
    torch.manual_seed(training.seed)
    job = training.make()
    if training.plant is not None:
        training.plant(job, rank)
    source = job.source
    job.source = lambda number: source(RANKS * number + rank)
    job.model = DistributedDataParallel(job.model)
    with training.hook(out_dir, rules, include_workers="all") as hook:
        job.run(hook)
    if rank == 0:
        store.set(LOSSES, json.dumps(job.losses))
    dist.barrier()
    dist.destroy_process_group()


def old_layer_on_one_rank(job: Job, rank: int, step: int = 60) -> None:
    """Rank 1 takes the weights of a layer from its own old copy, as one that resumes alone does."""
    if rank != 1:
        return
    layer: Any = job.model.get_submodule("fc1")
    old = layer.weight.detach().clone()
    job.before[step] = lambda: layer.weight.data.copy_(old)
