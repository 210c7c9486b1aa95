"""The hook of whichever smdebug this interpreter has: the two libraries take the same calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import smdebug.pytorch as smd

from benchmarks import setups

if TYPE_CHECKING:
    from pathlib import Path

    import torch

    from benchmarks.trainings import Training

NEVER = 1_000_000
ALL = ["weights", "biases", "gradients", "losses"]


def options(setup: str) -> dict[str, Any]:
    """What the hook is asked for."""
    reductions = smd.ReductionConfig(reductions=["min", "max", "mean", "std"], norms=["l2"])
    every, every_10 = smd.SaveConfig(save_interval=1), smd.SaveConfig(save_interval=10)
    never = smd.SaveConfig(save_interval=NEVER, start_step=NEVER)
    return {
        setups.ATTACHED: {"save_config": never},
        setups.LOSSES: {"save_config": every},
        setups.REDUCTIONS: {
            "save_config": every, "reduction_config": reductions, "include_collections": ALL,
        },
        setups.REDUCTIONS_10: {
            "save_config": every_10, "reduction_config": reductions, "include_collections": ALL,
        },
        setups.RAW: {"save_config": every, "include_collections": ALL},
        setups.GRADIENTS_10: {
            "save_config": every_10, "include_collections": ["gradients", "losses"],
        },
    }[setup]  # fmt: skip


class Hooked:
    """A hook on a training."""

    def __init__(self, setup: str, training: Training, folder: Path) -> None:
        self.hook = smd.Hook(out_dir=str(folder / "run"), **options(setup))
        self.hook.register_module(training.model)
        self.hook.register_loss(training.loss)

    def after_step(self, loss: torch.Tensor) -> None:
        pass

    def close(self) -> None:
        self.hook.close()
        # So that the next hook of this process starts as the first did.
        smd.del_hook()


observe = Hooked
