"""Saves what chosen modules take and return, also when that is a dict.

python examples/pytorch/dict_output.py [DIRECTORY]
"""

import sys
import tempfile

import torch
from torch import nn

import smdebug.pytorch as smd


class TwoHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 32), nn.ReLU())
        self.label = nn.Linear(32, 3)
        self.score = nn.Linear(32, 1)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        features = self.body(x)
        return {"label": self.label(features), "score": self.score(features)}


def train(directory: str) -> None:
    torch.manual_seed(0)
    inputs, model = torch.randn(128, 6), TwoHeads()
    labels, scores = inputs[:, :3].argmax(dim=1), inputs.sum(dim=1, keepdim=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    often = smd.SaveConfig(save_interval=50)
    hook = smd.Hook(directory, include_collections=["features", "heads"], save_config=often)
    hook.get_collection("heads").add_module_tensors(model)
    features = hook.get_collection("features")
    features.add_module_tensors(model.body, inputs=True, outputs=True)
    features.reduction_config = smd.ReductionConfig(reductions=["mean", "std", "zeros"])
    with hook, hook.register_module(model):
        for _ in range(201):
            found = model(inputs)
            loss = nn.functional.cross_entropy(found["label"], labels)
            loss = loss + nn.functional.mse_loss(found["score"], scores)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    where = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="tornasole-")
    train(where)
    trial = smd.create_trial(where)
    for name in trial.tensor_names(collection="heads"):
        print(
            f"{name}: shape {trial.tensor(name).shape(200)}, saved at {trial.tensor(name).steps()}"
        )
    features = trial.tensor("body_output_0")
    for step, zeros in zip(*features.series("zeros"), strict=True):
        print(f"  step {step:3d}: {zeros / (128 * 32):.0%} of the features are zero")
