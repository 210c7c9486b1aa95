"""A model that is compiled after it was tried, in both ways."""

import hashlib

import torch
from torch import nn

digest = hashlib.sha256()
for in_place in (False, True):
    torch.manual_seed(11)
    torch.compiler.reset()
    model = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    model.eval()
    model(torch.ones(4, 6))
    model.train()
    if in_place:
        model.compile(backend="aot_eager")
    trained = model if in_place else torch.compile(model, backend="aot_eager")
    for _ in range(4):
        inputs = torch.randn(4, 6)
        loss = (trained(inputs) - inputs.mean(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print("loss", loss.item())
    for each in model.parameters():
        digest.update(each.detach().numpy().tobytes())
print("weights", digest.hexdigest())
