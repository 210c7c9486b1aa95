"""A bare loop: two modules, one optimizer, a loss that is a function."""

import hashlib

import torch
import torch.nn.functional as F

torch.manual_seed(2)
encoder = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.Tanh())
decoder = torch.nn.Linear(4, 6)
parameters = [*encoder.parameters(), *decoder.parameters()]
optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
inputs = torch.randn(20, 8, 6)
for batch in inputs:
    loss = F.mse_loss(decoder(encoder(batch)), batch)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
weights = b"".join(each.detach().numpy().tobytes() for each in parameters)
print("weights", hashlib.sha256(weights).hexdigest())
