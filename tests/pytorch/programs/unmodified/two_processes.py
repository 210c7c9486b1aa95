"""Two processes that share the gradients, as torchrun starts them."""

import gc
import hashlib

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loss_function = torch.nn.CrossEntropyLoss()
torch.manual_seed(dist.get_rank())
for _ in range(10):
    loss = loss_function(model(torch.randn(8, 4)), torch.randint(2, (8,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
weights = b"".join(each.detach().numpy().tobytes() for each in model.parameters())
# In one piece: two processes write to one terminal.
print(f"weights {dist.get_rank()} {hashlib.sha256(weights).hexdigest()}\n", end="", flush=True)
# Whatever refers to the group must be gone: then its threads are waited for, and otherwise one that
# is late ends the process with SIGABRT.
del model, optimizer, loss
gc.collect()
dist.destroy_process_group()
