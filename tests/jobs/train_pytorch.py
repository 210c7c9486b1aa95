"""train_pytorch.py [get_hook|from_json]: a script for SageMaker, in the manner of AWS's examples.

It prints losses and accuracies in JSON as they come, and the weights at the end.
"""

import json
import sys

import torch
from torch import nn, optim

import smdebug.pytorch as smd


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(6, 8)
        self.fc2 = nn.Linear(8, 3)

    def forward(self, x):
        return self.fc2(torch.relu(self.fc1(x)))


def data(batches):
    for _ in range(batches):
        x = torch.randn(16, 6)
        yield x, x[:, :3].argmax(dim=1)


def train(net, criterion, optimizer, hook):
    if hook:
        hook.set_mode(smd.modes.TRAIN)
    net.train()
    for x, y in data(4):
        optimizer.zero_grad()
        loss = criterion(net(x), y)
        loss.backward()
        optimizer.step()
        print(json.dumps(["loss", "TRAIN", loss.item()]))


def test(net, criterion, hook):
    if hook:
        hook.set_mode(smd.modes.EVAL)
    net.eval()
    right = 0
    with torch.no_grad():
        for x, y in data(2):
            output = net(x)
            print(json.dumps(["loss", "EVAL", criterion(output, y).item()]))
            right += (output.argmax(dim=1) == y).sum().item()
    if hook:
        hook.save_scalar("accuracy", right / 32, sm_metric=True)
        hook.save_scalar("right", right)
    print(json.dumps(["accuracy", "EVAL", right / 32]))


def main(way):
    torch.manual_seed(0)
    net = Net()
    criterion = nn.CrossEntropyLoss()
    optimizer = optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    if way == "from_json":
        hook = smd.Hook.create_from_json_file()
    else:
        hook = smd.get_hook(create_if_not_exists=True)
    if hook:
        hook.register_module(net)
        hook.register_loss(criterion)
    for _ in range(2):
        train(net, criterion, optimizer, hook)
        test(net, criterion, hook)
    print(json.dumps(["weights", [each.tolist() for each in net.parameters()]]))


if __name__ == "__main__":
    main(*sys.argv[1:])
