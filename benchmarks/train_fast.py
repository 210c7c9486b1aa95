"""A training that is faster than any disk; prints its seconds and peak memory as JSON.

The library is `none`, `imported` or `hooked`: what a hook adds, and how much of that is there as
soon as the library is. A queue of 0 bytes is for smdebug 1.0.34, which has none.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import torch
from torch import nn

from benchmarks.open_run import peak_megabytes

# 12 MiB of parameters, as many of gradients.
PARAMETERS, SIDE = 12, 512


class Corners(nn.Module):
    """Parameters of which a step reads one number each."""

    def __init__(self) -> None:
        super().__init__()
        made = (nn.Linear(SIDE, SIDE, bias=False) for _ in range(PARAMETERS))
        self.layers = nn.ModuleList(made)

    def forward(self) -> torch.Tensor:
        corners = [parameter[0, 0] for parameter in self.parameters()]
        return torch.stack(corners).sum()


def train(model: nn.Module, steps: int) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for _ in range(steps):
        optimizer.zero_grad()
        loss: Any = model()
        loss.backward()
        optimizer.step()


def hook_on(model: nn.Module, run: str, queue_bytes: int) -> Any:
    import smdebug.pytorch as smd

    # The other library has none.
    queue: dict[str, Any] = {"queue_bytes": queue_bytes} if queue_bytes else {}
    hook = smd.Hook(
        run, save_config=smd.SaveConfig(save_interval=1),
        include_collections=["weights", "gradients"], **queue,
    )  # fmt: skip
    hook.register_module(model)
    return hook


def main(library: str, steps: str, queue_bytes: str, run: str) -> None:
    torch.set_num_threads(1)
    model = Corners()
    if library == "imported":
        import smdebug.pytorch  # noqa: F401

        if int(queue_bytes):
            from smdebug.storage.arrow import warm_up

            # With pandas, which pyarrow imports where it is installed.
            warm_up()
    hook = hook_on(model, run, int(queue_bytes)) if library == "hooked" else None
    began = time.perf_counter()
    train(model, int(steps))
    result = {"seconds": time.perf_counter() - began}
    if hook is not None:
        hook.close()
    print(json.dumps({**result, "peak_mb": peak_megabytes()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
