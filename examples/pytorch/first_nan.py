"""A loss becomes NaN somewhere in a long run: which tensor was the first that is not finite?

python examples/pytorch/first_nan.py [DIRECTORY]
"""

import sys
import tempfile

import numpy as np
import torch
from torch import nn

import smdebug.pytorch as smd


class Network(nn.Sequential):
    def __init__(self) -> None:
        super().__init__()
        self.add_module("encoder", nn.Linear(4, 16))
        self.add_module("norm", nn.LayerNorm(16))
        self.add_module("head", nn.Linear(16, 1))


def train(directory: str, steps: int = 400) -> None:
    torch.manual_seed(0)
    model, loss_function = Network(), nn.MSELoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    # Saves nothing before the loss is not finite, and then everything about that step.
    hook = smd.Hook(
        directory,
        save_all=True,
        save_config=smd.SaveConfig(start_step=steps, when_nan=["MSELoss_output"]),
        reduction_config=smd.ReductionConfig(reductions=["nans"], save_raw_tensor=True),
    )
    hook.register_module(model)
    hook.register_loss(loss_function)
    for step in range(steps):
        inputs = torch.randn(32, 4)
        inputs[7, 2] *= 1e30 if step == 300 else 1  # a broken example
        optimizer.zero_grad()
        loss = loss_function(model(inputs), inputs.sum(dim=1, keepdim=True))
        loss.backward()
        if not loss.isfinite():
            break
        optimizer.step()
    hook.close()


if __name__ == "__main__":
    where = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="tornasole-")
    train(where)
    trial = smd.create_trial(where)
    print(trial)
    (step,) = trial.steps()
    print(f"the loss is not finite at step {step}; in the order in which they were computed:")
    print(trial.sql("select tensor, nans from run where nans > 0 order by position limit 6"))
    inputs = trial.tensor("Network_input_0").value(step)
    row, column = np.unravel_index(abs(inputs).argmax(), inputs.shape)
    print(f"the largest input is {inputs[row, column]:.0e}, in example {row} of the batch")
