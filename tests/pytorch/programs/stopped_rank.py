"""One rank of a DDP job that its own rules, or a request, stop; prints the step it ended at."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from smdebug.exceptions import RuleEvaluationConditionMet
from smdebug.pytorch import Hook
from smdebug.storage.stop_requests import StopRequest, write_stop
from smdebug.storage.stores.base import open_store

LIMIT = 80.0


def main(rank: int, folder: Path, by: str) -> None:
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2
    )
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    options: dict[str, Any] = (
        {"rules": ["VanishingGradient"], "on_finding": "stop"} if by == "rule" else {}
    )
    hook = Hook(folder / "run", flush_seconds=0.1, **options)
    hook.register_module(model)
    ended, deadline = None, time.monotonic() + LIMIT
    try:
        while time.monotonic() < deadline:
            optimizer.zero_grad()
            # Gradients of zero, and something to wait for at every step.
            (model(torch.ones(3, 4)) * 0).sum().backward()
            optimizer.step()
            if by == "request" and hook.step == 200:
                if rank == 1:
                    store = open_store(str(folder / "run"))
                    write_stop(store, StopRequest("by hand", at_step=300))
                # However fast the steps are, every rank has polled before step 300.
                while hook._pipeline.rules.request is None and time.monotonic() < deadline:
                    time.sleep(0.01)
    except RuleEvaluationConditionMet as stopped:
        ended = {"step": hook.step, "rule": stopped.rule_name, "said": str(stopped)}
    (folder / f"rank_{rank}.json").write_text(json.dumps(ended), encoding="utf-8")
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
