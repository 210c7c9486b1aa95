"""Weights that are updated by hand, without an optimizer."""

import hashlib

import torch

torch.manual_seed(8)
model = torch.nn.Linear(4, 1)
for _ in range(6):
    for each in model.parameters():
        each.grad = None
    inputs = torch.randn(8, 4)
    loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
    loss.backward()
    with torch.no_grad():
        for each in model.parameters():
            each -= 0.1 * each.grad
    print("loss", loss.item())
weights = b"".join(each.detach().numpy().tobytes() for each in model.parameters())
print("weights", hashlib.sha256(weights).hexdigest())
