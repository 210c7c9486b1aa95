"""Trains and ends in one of the ways in which a process ends.

    python endings.py <how> <out_dir> <steps>

It says "step <n>" when a step is done. It never calls `close()`.
"""

from __future__ import annotations

import os
import signal
import sys

import torch
from torch import nn
from torch.nn import functional

from smdebug import SaveConfig
from smdebug.pytorch import Hook


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main(how: str, out_dir: str, steps: str) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    # A directory that holds a part of a run is written to, not refused.
    hook = Hook(out_dir, save_all=True, save_config=SaveConfig(save_interval=1))
    hook.register_module(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for number in range(int(steps)):
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(torch.randn(5, 4)), torch.randint(0, 2, (5,)))
        loss.backward()
        optimizer.step()
        say(f"step {number}")
        if how == "killed" and number == int(steps) // 2:
            # What is published up to here has to survive; what comes later need not.
            hook.flush()
            say("flushed")
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "exit":
        sys.exit(3)
    if how == "exception":
        raise ValueError("the script's own")
    if how == "forked":
        fork_and_exit(model)
        say("child ended")
        model(torch.randn(5, 4))


def fork_and_exit(model: nn.Module) -> None:
    """A child runs the model, at saving steps too, and leaves through `sys.exit`."""
    child = os.fork()
    if child == 0:
        for _ in range(3):
            model(torch.full((5, 4), float("nan"))).sum().backward()
        sys.exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


if __name__ == "__main__":
    main(*sys.argv[1:])
