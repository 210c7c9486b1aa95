"""Trains on two ranks, one job after the other; a test starts it once for each rank.

    python ranks.py <rank> <folder> <scenario> [<scenario> ...]

Each scenario is a job of its own, in a folder of its name, where the ranks meet through a file.
What torch itself says about the training (gradients of the rank's own backward, weights, final
parameters) goes to `<folder>/<scenario>/truth_<rank>.pt`.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from smdebug import SaveConfig
from smdebug.mode_keys import ModeKeys
from smdebug.pytorch import Hook, ReductionConfig

WORLD = 2


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 6)
        self.relu = nn.ReLU()
        self.last = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.last(self.relu(self.first(x)))
        return out


class Run:
    """One rank of a job."""

    def __init__(self, folder: Path, rank: int) -> None:
        self.folder, self.rank = folder, rank
        self.truth: dict[str, Any] = {}

    def join(self) -> None:
        dist.init_process_group(
            "gloo", init_method=f"file://{self.folder / 'meeting'}", rank=self.rank,
            world_size=WORLD,
        )  # fmt: skip

    def hook(self, name: str = "run", **options: Any) -> Hook:
        given: dict[str, Any] = {
            "save_all": True,
            "save_config": SaveConfig(save_interval=1),
            "on_error": "raise",
            "include_workers": "all",
        }
        return Hook(self.folder / name, **{**given, **options})

    def batch(self, number: int, size: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
        """A batch that differs by rank and step."""
        random = torch.Generator().manual_seed(100 * self.rank + number)
        return (
            torch.randn(size, 4, generator=random),
            torch.randint(0, 3, (size,), generator=random),
        )

    def saw(self, number: int, name: str, tensor: torch.Tensor) -> None:
        self.truth[f"{number}|{name}"] = tensor.detach().clone()

    def finish(self, model: nn.Module) -> None:
        state = {key: _local(value) for key, value in model.state_dict().items()}
        self.truth["state"] = state
        self.truth["generator"] = torch.get_rng_state()
        torch.save(self.truth, self.folder / f"truth_{self.rank}.pt")


def _local(tensor: Any) -> torch.Tensor:
    local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    found: torch.Tensor = local.detach().clone()
    return found


# ---- DistributedDataParallel


def local_gradients(run: Run, model: nn.Module, number: int) -> None:
    """The gradients of a backward pass on this rank alone, from a copy of the model without DDP."""
    twin = Net()
    twin.load_state_dict(model.state_dict())
    x, y = run.batch(number)
    hidden = twin.relu(twin.first(x))
    loss = functional.cross_entropy(twin.last(hidden), y)
    slopes = torch.autograd.grad(loss, list(twin.parameters()))
    for (path, _), slope in zip(twin.named_parameters(), slopes, strict=True):
        run.saw(number, f"gradient/DistributedDataParallel_module.{path}", slope)
    for path, parameter in twin.named_parameters():
        run.saw(number, f"DistributedDataParallel_module.{path}", parameter)
    run.saw(number, "module.relu_output_0", hidden)


def train_ddp(run: Run, hook: Hook | None) -> None:
    torch.manual_seed(3)
    model = Net()
    wrapped = DistributedDataParallel(model)
    if hook is not None:
        hook.register_module(wrapped)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for number in range(4):
        local_gradients(run, model, number)
        x, y = run.batch(number)
        optimizer.zero_grad()
        functional.cross_entropy(wrapped(x), y).backward()
        optimizer.step()
    if hook is not None:
        hook.close()
    run.finish(model)


def ddp_bare(run: Run) -> None:
    run.join()
    train_ddp(run, None)


def ddp_all(run: Run) -> None:
    run.join()
    train_ddp(run, run.hook())


def ddp_one(run: Run) -> None:
    run.join()
    train_ddp(run, run.hook(include_workers="one"))


def ddp_early_hook(run: Run) -> None:
    """The hook is created before `init_process_group`; it gets its rank from the environment."""
    os.environ.update(RANK=str(run.rank), WORLD_SIZE=str(WORLD))
    hook = run.hook()
    run.join()
    train_ddp(run, hook)


def ddp_slow(run: Run) -> None:
    """Rank 1 makes its steps after rank 0 has finished all of its own, and more of them.

    Without DDP between them: each rank trains by itself, only the run is common.
    """
    run.join()
    hook = run.hook()
    torch.manual_seed(3)
    model = Net()
    hook.register_module(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if run.rank == 1:
        dist.barrier()
    for number in range(3 if run.rank == 0 else 6):
        x, y = run.batch(number)
        optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        assert model.last.weight.grad is not None
        run.saw(number, "gradient/Net_last.weight", model.last.weight.grad)
        optimizer.step()
    if run.rank == 0:
        hook.close()
        dist.barrier()
    else:
        hook.close()
    run.finish(model)


def ddp_no_sync(run: Run) -> None:
    """Gradients are accumulated without communication, then synchronised."""
    run.join()
    hook = run.hook()
    torch.manual_seed(3)
    model = Net()
    wrapped = DistributedDataParallel(model)
    hook.register_module(wrapped)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for number in range(4):
        local_gradients(run, model, number)
        x, y = run.batch(number)
        with wrapped.no_sync() if number % 2 == 0 else contextlib.nullcontext():
            functional.cross_entropy(wrapped(x), y).backward()
        if number % 2:
            optimizer.step()
            optimizer.zero_grad()
    hook.close()
    run.finish(model)


# ---- fully_shard


def sharded() -> nn.Module:
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(3)
    model = Net()
    fully_shard(model.first)
    fully_shard(model)
    return model


def whole_twin(model: nn.Module) -> Net:
    """The whole model on every rank; the test's own collective operation."""
    twin = Net()
    twin.load_state_dict({key: _full(value) for key, value in model.state_dict().items()})
    return twin


def _full(tensor: Any) -> torch.Tensor:
    found: torch.Tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return found.detach().clone()


def expect_shards(run: Run, model: nn.Module, number: int) -> None:
    """Says what the shards of this rank are, and what their gradients will be."""
    for path, parameter in model.named_parameters():
        run.saw(number, f"Net_{path}", _local(parameter))
    twin = whole_twin(model)
    x, y = run.batch(number)
    hidden = twin.first(x)
    run.saw(number, "first_output_0", hidden)
    loss = functional.cross_entropy(twin.last(twin.relu(hidden)), y)
    slopes = torch.autograd.grad(loss, list(twin.parameters()))
    for (path, _), slope in zip(twin.named_parameters(), slopes, strict=True):
        slope = slope.contiguous()
        dist.all_reduce(slope)
        slope /= WORLD
        # Rows are dealt out as torch.chunk does it; the last ranks may have none.
        parts = torch.chunk(slope, WORLD)
        shard = parts[run.rank] if run.rank < len(parts) else slope[:0]
        run.saw(number, f"gradient/Net_{path}", shard)


def train_sharded(run: Run, hook: Hook | None) -> None:
    model = sharded()
    if hook is not None:
        hook.register_module(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for number in range(4):
        expect_shards(run, model, number)
        x, y = run.batch(number)
        optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    if hook is not None:
        hook.close()
    run.finish(model)


def fsdp_bare(run: Run) -> None:
    run.join()
    train_sharded(run, None)


def fsdp_all(run: Run) -> None:
    run.join()
    train_sharded(run, run.hook())


def fsdp_one(run: Run) -> None:
    """Only rank 0 saves: it must not wait for the other."""
    run.join()
    train_sharded(run, run.hook(include_workers="one"))


def fsdp_norms(run: Run) -> None:
    run.join()
    hook = run.hook(
        reduction_config=ReductionConfig(norms=["l2"], reductions=["mean", "max"]),
        save_config=SaveConfig(save_interval=2),
    )
    train_sharded(run, hook)


def train_mixed(run: Run, hook: Hook | None) -> None:
    """Accumulated gradients, and evaluation without a backward pass between the steps."""
    model = sharded()
    # While a model runs, its parameters are the gathered ones; these stay what a rank keeps.
    shards = dict(model.named_parameters())
    if hook is not None:
        hook.register_module(model)
        hook.set_mode(ModeKeys.TRAIN)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for number in range(4):
        for path, parameter in shards.items():
            run.saw(number, f"Net_{path}", _local(parameter))
        x, y = run.batch(number)
        before = {path: _gradient(parameter) for path, parameter in shards.items()}
        functional.cross_entropy(model(x), y).backward()
        for path, parameter in shards.items():
            run.saw(number, f"gradient/Net_{path}", _gradient(parameter) - before[path])
        if number % 2 == 0:
            continue
        optimizer.step()
        optimizer.zero_grad()
        if hook is not None:
            hook.set_mode(ModeKeys.EVAL)
        with torch.no_grad():
            model(x)
            model(x)
        if hook is not None:
            hook.set_mode(ModeKeys.TRAIN)
    if hook is not None:
        hook.close()
    run.finish(model)


def _gradient(parameter: torch.Tensor) -> torch.Tensor:
    if parameter.grad is None:
        return torch.zeros_like(_local(parameter))
    return _local(parameter.grad)


def fsdp_mixed(run: Run) -> None:
    run.join()
    train_mixed(run, run.hook())


def fsdp_mixed_bare(run: Run) -> None:
    run.join()
    train_mixed(run, None)


def train_without_sync(run: Run, hook: Hook | None) -> None:
    """Micro-steps without communication: the shards have no gradient until the last of them."""
    model: Any = sharded()
    if hook is not None:
        hook.register_module(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for number in range(6):
        last = number % 3 == 2
        model.set_requires_gradient_sync(last)
        x, y = run.batch(number)
        functional.cross_entropy(model(x), y).backward()
        if last:
            for path, parameter in model.named_parameters():
                run.saw(number, f"gradient/Net_{path}", _gradient(parameter))
            optimizer.step()
            optimizer.zero_grad()
    if hook is not None:
        hook.close()
    run.finish(model)


def fsdp_no_sync(run: Run) -> None:
    run.join()
    train_without_sync(run, run.hook())


def fsdp_no_sync_bare(run: Run) -> None:
    run.join()
    train_without_sync(run, None)


def main(rank: str, folder: str, *scenarios: str) -> None:
    torch.set_num_threads(1)
    for scenario in scenarios:
        run = Run(Path(folder) / scenario, int(rank))
        run.folder.mkdir(exist_ok=True)
        globals()[scenario](run)
        dist.barrier()
        dist.destroy_process_group()
        for name in ("RANK", "WORLD_SIZE"):
            os.environ.pop(name, None)
        sys.stdout.write(f"{scenario} done\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
