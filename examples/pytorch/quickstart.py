"""Trains a small network, saves its loss and the norms of its gradients, and looks at them.

python examples/pytorch/quickstart.py [DIRECTORY]
"""

import sys
import tempfile

import torch
from torch import nn

import smdebug.pytorch as smd


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(8, 32)
        self.fc2 = nn.Linear(32, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc2(torch.relu(self.fc1(x)))


def train(directory: str) -> None:
    torch.manual_seed(0)
    inputs = torch.randn(512, 8)
    targets = inputs[:, :1] * inputs[:, 1:2]
    model, loss_function = Network(), nn.MSELoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    hook = smd.Hook(
        directory,
        include_collections=["gradients"],
        save_config=smd.SaveConfig(save_interval=10),
        reduction_config=smd.ReductionConfig(norms=["l2"], abs_reductions=["max"]),
    )
    hook.register_module(model)
    hook.register_loss(loss_function)
    for _ in range(300):
        optimizer.zero_grad()
        loss_function(model(inputs), targets).backward()
        optimizer.step()
    hook.close()
    print(hook.stats())


if __name__ == "__main__":
    where = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="tornasole-")
    train(where)
    trial = smd.create_trial(where)
    print(trial)
    steps, losses = trial.tensor("MSELoss_output_0").series()
    for step, loss in list(zip(steps, losses, strict=True))[::5]:
        print(f"  step {step:3d}  loss {loss:.4f}  {'#' * int(50 * loss / losses.max())}")
    for name in trial.tensor_names(collection="gradients"):
        steps, norms = trial.tensor(name).series("l2")
        print(f"  {name:28} L2 norm {norms[0]:.3f} at step {steps[0]}, {norms[-1]:.3f} at the end")
