"""A loop of accelerate's, with gradients gathered over two batches."""

import hashlib

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
torch.manual_seed(5)
model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
data = TensorDataset(torch.randn(40, 6), torch.randint(2, (40,)))
model, optimizer, loader, scheduler = accelerator.prepare(
    model, optimizer, DataLoader(data, batch_size=4, shuffle=True), scheduler
)
loss_function = torch.nn.CrossEntropyLoss()
for inputs, labels in loader:
    with accelerator.accumulate(model):
        loss = loss_function(model(inputs), labels)
        accelerator.backward(loss)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
    print("loss", loss.item())
weights = b"".join(each.numpy().tobytes() for each in model.state_dict().values())
print("weights", hashlib.sha256(weights).hexdigest())
