"""A compiled model, looked at once before it is trained."""

import hashlib

import torch
from torch import nn

torch.manual_seed(7)
model = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 1))
compiled = torch.compile(model, backend="aot_eager")
with torch.no_grad():
    print("loss", compiled(torch.ones(4, 6)).mean().item())
optimizer = torch.optim.AdamW(compiled.parameters(), lr=0.01)
loss_function = nn.MSELoss()
for _ in range(8):
    inputs = torch.randn(4, 6)
    loss = loss_function(compiled(inputs), inputs.mean(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
weights = b"".join(each.numpy().tobytes() for each in model.state_dict().values())
print("weights", hashlib.sha256(weights).hexdigest())
