"""Trains a generator against a discriminator, each with a run of its own, and compares them.

python examples/pytorch/two_models.py [DIRECTORY]
"""

import sys
import tempfile

import torch
from torch import nn

import smdebug.pytorch as smd


def watch(model: nn.Module, directory: str, interval: int) -> smd.Hook:
    hook = smd.Hook(
        directory,
        include_collections=["gradients"],
        save_config={"save_interval": interval},
        reduction_config=smd.ReductionConfig(norms=["l2"]),
    )
    hook.register_module(model)
    return hook


def train(directory: str, rounds: int = 200) -> None:
    torch.manual_seed(0)
    generator = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
    discriminator = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 1))
    loss_function, truth = nn.BCEWithLogitsLoss(), (torch.arange(128) < 64).float()[:, None]
    making, judging = [torch.optim.Adam(m.parameters(), 0.005) for m in (generator, discriminator)]
    # The discriminator runs twice a round. Its even steps are those it learns from.
    makes = watch(generator, f"{directory}/generator", 1)
    judges = watch(discriminator, f"{directory}/discriminator", 2)
    with makes, judges:
        for _ in range(rounds):
            made, real = generator(torch.randn(64, 4)), torch.randn(64, 2) * 0.5 + 2
            loss = loss_function(discriminator(torch.cat([real, made.detach()])), truth)
            judging.zero_grad()
            loss.backward()
            judging.step()
            judges.save_scalar("loss", loss)
            loss = loss_function(discriminator(made), torch.ones(64, 1))
            making.zero_grad()
            loss.backward()
            making.step()
            makes.save_scalar("loss", loss)


if __name__ == "__main__":
    where = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="tornasole-")
    train(where)
    for name in ("generator", "discriminator"):
        trial = smd.create_trial(f"{where}/{name}")
        _, losses = trial.tensor("scalar/loss").series()
        _, norms = trial.tensor("gradient/Sequential_0.weight").series("l2")
        print(f"{name:14} round   loss   gradient of its first layer")
        for at in range(0, len(norms), 40):
            print(f"{at:20} {losses[at]:6.3f}   {norms[at]:.4f} {'#' * int(norms[at] * 60)}")
