"""Trains and saves reductions at every step, with whichever smdebug this interpreter has or by
hand; prints what that adds to a step as JSON.
"""

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent.parent))
# Before numpy is there, which asks once.
os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

import torch
from benchmarks import setups
from benchmarks.bench import files_of, size_of
from benchmarks.blocks import block, run
from benchmarks.observers import Nothing
from benchmarks.trainings import SEED, Training
from torch import nn

WARM, SIDE = 2, 4


class Wide(nn.Module):
    """So many small matrices, all of which have a gradient."""

    def __init__(self, matrices):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(SIDE, SIDE, bias=False) for _ in range(matrices))

    def forward(self, inputs):
        return inputs @ torch.stack([layer.weight for layer in self.layers]).sum(0)


class Saved:
    """A hook that saves five reductions of everything, the loss and a scalar at every step."""

    def __init__(self, training, folder):
        import smdebug.pytorch as smd

        self.hook = smd.Hook(
            out_dir=str(folder / "run"),
            save_config=smd.SaveConfig(save_interval=1),
            reduction_config=smd.ReductionConfig(
                reductions=["min", "max", "mean", "std"], norms=["l2"]
            ),
            include_collections=["weights", "gradients", "losses"],
        )
        self.hook.register_module(training.model)
        self.hook.register_loss(training.loss)

    def after_step(self, loss):
        self.hook.save_scalar("learning_rate", 0.01)

    def close(self):
        self.hook.close()


def build(tensors):
    """A training of which so many tensors can be saved: half are gradients."""
    torch.manual_seed(SEED)
    model = Wide(max(1, tensors // 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, foreach=True)
    inputs = torch.randn(4, SIDE)
    return Training(model, nn.MSELoss(), optimizer, inputs, torch.randn(4, SIDE))


def added(tensors, steps, rounds, observe):
    """The seconds that being observed adds to so many rounds of so many steps."""
    alone, observed = build(tensors), build(tensors)
    nothing, observer = Nothing(), observe(observed)
    run(alone, nothing, WARM)
    run(observed, observer, WARM)
    before, total = block(alone, nothing, steps).seconds, 0.0
    for _ in range(rounds):
        between = block(observed, observer, steps).seconds
        after = block(alone, nothing, steps).seconds
        total += between - (before + after) / 2
        before = after
    observer.close()
    return total


def main(library, folder, tensors, steps, rounds):
    torch.set_num_threads(1)
    place = Path(folder)
    if library == "floor":
        from benchmarks.observers.floor import Copied

        total = added(
            int(tensors), int(steps), int(rounds),
            lambda training: Copied(setups.REDUCTIONS, training, place),
        )  # fmt: skip
    else:
        total = added(
            int(tensors), int(steps), int(rounds), lambda training: Saved(training, place)
        )
    saved = WARM + int(steps) * int(rounds)
    print(
        json.dumps(
            {
                "microseconds": 1e6 * total / (int(steps) * int(rounds)),
                "bytes": size_of(place) / saved,
                "files": files_of(place),
                "steps": saved,
            }
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
