"""Train with checkpoints; be killed now and then, and resume, until the end.

    python spot.py <directory> <way> <format> <kills> <seed> <processes>

The run is in `<directory>/run`. The ways: `directory`, a checkpoint directory that the hook looks
at; `step`, `Hook(resume=True)` with `hook.step` out of the checkpoint; `run`, `Hook(resume=True)`
alone, with every step saved, and the checkpoint of the step that the run ends with.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from tests.spot import Attempts
from torch import nn

import smdebug.pytorch as smd
from smdebug.storage.arrow import warm_up
from smdebug.storage.format.keys import END_KEY

if TYPE_CHECKING:
    from collections.abc import Callable

TRAIN_STEPS, EVAL_EVERY, EVAL_STEPS, CHECKPOINT_EVERY = 80, 8, 3, 5
EPOCH = [smd.modes.TRAIN] * EVAL_EVERY + [smd.modes.EVAL] * EVAL_STEPS
PLAN = EPOCH * (TRAIN_STEPS // EVAL_EVERY)


class Job:
    """One process of the job."""

    def __init__(self, place: Path, way: str, format: str, rank: int, processes: int) -> None:
        self.place, self.way, self.rank = place, way, rank
        torch.manual_seed(7 + rank)
        net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 4))
        if processes > 1:
            for parameter in net.parameters():
                torch.distributed.broadcast(parameter.data, 0)
        self.net: nn.Module = nn.parallel.DistributedDataParallel(net) if processes > 1 else net
        self.loss = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.05, momentum=0.9)
        self.done = 0
        self.hook = smd.Hook(
            place / "run", save_config=smd.SaveConfig(save_interval=1 if way == "run" else 2),
            include_collections=["weights", "gradients", "losses"], resume=way != "directory",
            include_workers="all", on_error="raise", format=format,
            flush_seconds=0 if way == "run" else None,
        )  # fmt: skip
        self.hook.register_module(self.net)
        self.hook.register_loss(self.loss)

    def checkpoint_path(self, step: int) -> Path:
        return self.place / "checkpoints" / f"{step}-{self.rank}.pt"

    def save(self) -> None:
        if self.way == "step":
            # Steps before the checkpoint must be in the run.
            self.hook.flush()
        state = {
            "net": self.net.state_dict(), "optimizer": self.optimizer.state_dict(),
            "random": torch.get_rng_state(), "done": self.done, "step": self.hook.step,
        }  # fmt: skip
        temporary = self.place / f"{self.rank}.tmp"
        torch.save(state, temporary)
        path = self.checkpoint_path(self.hook.step)
        path.parent.mkdir(exist_ok=True)
        temporary.replace(path)
        if torch.distributed.is_initialized():
            torch.distributed.barrier()
        if self.way == "step" and self.rank == 0:
            # Only now is it that of all processes.
            temporary.write_text(str(self.hook.step), encoding="utf-8")
            temporary.replace(self.place / "last")

    def load(self) -> None:
        """Resume after the last checkpoint."""
        step = self.hook.step
        if self.way == "step":
            last = self.place / "last"
            step = int(last.read_text(encoding="utf-8")) if last.exists() else -1
            self.hook.step = step
        if step < 0:
            return
        state: dict[str, Any] = torch.load(self.checkpoint_path(step), weights_only=True)
        self.net.load_state_dict(state["net"])
        self.optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["random"])
        self.done = state["done"]
        assert self.hook.step == state["step"]

    def forward(self) -> torch.Tensor:
        inputs, labels = torch.randn(6, 8), torch.randint(0, 4, (6,))
        loss: torch.Tensor = self.loss(self.net(inputs), labels)
        return loss

    def train(self, tell: Callable[[], None]) -> None:
        for number in range(self.done, len(PLAN)):
            tell()
            self.hook.set_mode(PLAN[number])
            self.step(PLAN[number])
            self.done = number + 1
            trained = PLAN[: self.done].count(smd.modes.TRAIN)
            between = PLAN[number] is not smd.modes.TRAIN or trained % CHECKPOINT_EVERY
            if self.way == "run" or not between:
                tell()
                self.save()
        self.hook.close()

    def step(self, mode: Any) -> None:
        if mode is smd.modes.EVAL:
            self.net.eval()
            with torch.no_grad():
                self.forward()
            return
        self.net.train()
        self.optimizer.zero_grad()
        loss = self.forward()
        loss.backward()
        self.optimizer.step()
        self.hook.save_scalar("loss", loss.item())


def main() -> None:
    place, way, format = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    kills, seed, processes = map(int, sys.argv[4:7])
    torch.set_num_threads(1)
    # What every process would import for itself.
    warm_up()
    torch.optim.SGD([torch.zeros(1)], lr=0.1)
    started = 0

    def train(tell: Callable[[], None], rank: int = 0) -> None:
        if (place / "run" / END_KEY).exists():
            # Killed when all was done.
            return
        if processes > 1:
            store = f"file://{place}/rendezvous-{started}"
            torch.distributed.init_process_group(
                "gloo", init_method=store, rank=rank, world_size=processes
            )
        job = Job(place, way, format, rank, processes)
        job.load()
        job.train(tell)
        if processes > 1:
            torch.distributed.destroy_process_group()

    class Counted(Attempts):
        def _attempt(self) -> bool:
            nonlocal started
            started += 1
            return super()._attempt()

    attempts = Counted(train, kills, 2 * CHECKPOINT_EVERY, seed, processes)
    attempts.run()
    assert attempts.killed == kills


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
