"""One model after the other, for cross validation."""

import hashlib

import torch

digest = hashlib.sha256()
for fold in range(3):
    torch.manual_seed(fold)
    model = torch.nn.Sequential(torch.nn.Linear(5, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    for _ in range(5):
        inputs = torch.randn(8, 5)
        loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
    print("loss", loss.item())
    for each in model.parameters():
        digest.update(each.detach().numpy().tobytes())
print("weights", digest.hexdigest())
