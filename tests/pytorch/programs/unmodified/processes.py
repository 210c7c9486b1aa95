"""Training in threads, in forked processes and next to workers that call a model."""

import hashlib
import multiprocessing
import threading
import warnings

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

warnings.filterwarnings("ignore")
torch.set_num_threads(1)


def train(seed: int, results: dict[int, str]) -> None:
    generator = torch.Generator().manual_seed(seed)
    model = nn.Linear(4, 1)
    with torch.no_grad():
        for each in model.parameters():
            each.copy_(torch.randn(each.shape, generator=generator))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(5):
        loss = model(torch.randn(8, 4, generator=generator)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    weights = b"".join(each.detach().numpy().tobytes() for each in model.parameters())
    results[seed] = hashlib.sha256(weights).hexdigest()


class Features(Dataset):
    """Its items are made by a model, which the script trains too."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> torch.Tensor:
        return self._model(torch.full((4,), float(index))).detach()


def in_child(seed: int) -> None:
    train(seed, {})


if __name__ == "__main__":
    torch.manual_seed(10)
    context = multiprocessing.get_context("fork")
    for seed in (1, 2):
        child = context.Process(target=in_child, args=(seed,))
        child.start()
        child.join()
        print("evaluation", child.exitcode)
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in DataLoader(Features(model), batch_size=2, num_workers=2):
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print("loss", loss.item())
    results: dict[int, str] = {}
    threads = [threading.Thread(target=train, args=(seed, results)) for seed in (3, 4, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print("weights", *[results[seed] for seed in sorted(results)])
