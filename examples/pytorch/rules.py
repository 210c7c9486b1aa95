"""Rules watch a training, and stop it before bad gradients reach the weights.

python examples/pytorch/rules.py [DIRECTORY]
"""

import sys
import tempfile

import torch
from torch import nn

import smdebug.pytorch as smd
from smdebug.exceptions import RuleEvaluationConditionMet

RULES = ["NonFinite", "VanishingGradient", "LossNotDecreasing:num_steps=50"]


def train(directory: str, steps: int = 400) -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
    loss_function = nn.MSELoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    # What the rules need is saved, with nothing else to configure.
    hook = smd.Hook(directory, rules=RULES, on_finding="stop", before_update=True)
    hook.register_module(model)
    hook.register_loss(loss_function)
    try:
        for step in range(steps):
            inputs = torch.randn(32, 4)
            inputs[7, 2] *= float("inf") if step == 300 else 1  # a broken example
            optimizer.zero_grad()
            loss_function(model(inputs), inputs.sum(dim=1, keepdim=True)).backward()
            optimizer.step()
    except RuleEvaluationConditionMet as found:
        print(found)
    print(hook.rule_report())
    return model


if __name__ == "__main__":
    where = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="tornasole-")
    model = train(where)
    print("all weights are finite:", all(each.isfinite().all() for each in model.parameters()))
    for finding in smd.create_trial(where).findings():
        print(finding)
