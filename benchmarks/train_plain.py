"""A training of 20 small layers; prints the milliseconds of a step in its quickest block as JSON.

Alone, with a hook made by hand (`hand`), or, by `smdebug run`, with one that it knows nothing of.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import torch
from torch import nn

LAYERS, WIDTH, BATCH, BLOCK = 20, 64, 32, 20


def main(how: str, blocks: str, run: str) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Sequential(
        *(part for _ in range(LAYERS) for part in (nn.Linear(WIDTH, WIDTH), nn.ReLU()))
    )
    loss_function: Any = nn.MSELoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    inputs, targets = torch.randn(BATCH, WIDTH), torch.randn(BATCH, WIDTH)
    if how == "hand":
        import smdebug.pytorch as smd

        hook = smd.Hook(run, save_config=smd.SaveConfig(save_interval=BLOCK))
        hook.register_module(model)
        hook.register_loss(loss_function)
    quickest = float("inf")
    for _ in range(int(blocks)):
        began = time.perf_counter()
        for _ in range(BLOCK):
            optimizer.zero_grad()
            loss_function(model(inputs), targets).backward()
            optimizer.step()
        quickest = min(quickest, time.perf_counter() - began)
    print(json.dumps({"ms": 1000 * quickest / BLOCK}))


if __name__ == "__main__":
    main(*sys.argv[1:])
