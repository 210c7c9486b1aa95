"""Two models that train each other, with an optimizer each."""

import hashlib

import torch
from torch import nn


class Maker(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 4)

    def forward(self, noise: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.layer(noise))


class Judge(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, sample: torch.Tensor) -> torch.Tensor:
        return self.layer(sample)


torch.manual_seed(6)
maker, judge = Maker(), Judge()
of_maker = torch.optim.Adam(maker.parameters(), lr=0.01)
of_judge = torch.optim.Adam(judge.parameters(), lr=0.01)
loss_function = nn.BCEWithLogitsLoss()
yes, no = torch.ones(8, 1), torch.zeros(8, 1)
for _ in range(10):
    made = maker(torch.randn(8, 3))
    loss = loss_function(judge(torch.randn(8, 4)), yes) + loss_function(judge(made.detach()), no)
    of_judge.zero_grad()
    loss.backward()
    of_judge.step()
    loss = loss_function(judge(made), yes)
    of_maker.zero_grad()
    loss.backward()
    of_maker.step()
    print("loss", loss.item())
parts = [*maker.parameters(), *judge.parameters()]
weights = b"".join(each.detach().numpy().tobytes() for each in parts)
print("weights", hashlib.sha256(weights).hexdigest())
