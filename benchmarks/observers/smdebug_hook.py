"""The hook of whichever smdebug this interpreter has: the two libraries take the same calls."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import smdebug.pytorch as smd
from benchmarks import setups
from smdebug.trials import create_trial

if TYPE_CHECKING:
    from pathlib import Path

    import torch

    from benchmarks.trainings import Training

NEVER = 1_000_000
ALL = ["weights", "biases", "gradients", "losses"]
# One that reads gradients, one of losses, one of everything that is computed, and so on.
FIVE_RULES = [
    "VanishingGradient", "LossNotDecreasing", "NonFinite", "GradientSpike", "FrozenParameter",
]  # fmt: skip
CHECKED: set[str] = set()


def options(setup: str) -> dict[str, Any]:
    """What the hook is asked for."""
    reductions = smd.ReductionConfig(reductions=["min", "max", "mean", "std"], norms=["l2"])
    every, every_10 = smd.SaveConfig(save_interval=1), smd.SaveConfig(save_interval=10)
    never = smd.SaveConfig(save_interval=NEVER, start_step=NEVER)
    known: dict[str, dict[str, Any]] = {
        setups.ATTACHED: {"save_config": never},
        setups.LOSSES: {"save_config": every},
        setups.REDUCTIONS: {
            "save_config": every, "reduction_config": reductions, "include_collections": ALL,
        },
        setups.REDUCTIONS_10: {
            "save_config": every_10, "reduction_config": reductions, "include_collections": ALL,
        },
        setups.RAW: {"save_config": every, "include_collections": ALL},
        setups.SUSTAINED: {
            "save_config": every, "include_collections": ALL, "queue_bytes": 64 << 20,
        },
        setups.GRADIENTS_10: {
            "save_config": every_10, "include_collections": ["gradients", "losses"],
        },
        setups.RULES: {"save_config": every, "rules": FIVE_RULES},
        setups.RULES_10: {"save_config": every_10, "rules": FIVE_RULES},
    }  # fmt: skip
    return known[setup]


def tensors_of(setup: str, parameters: int) -> int:
    """How many tensors are saved of a model with so many parameters."""
    if setup == setups.ATTACHED:
        return 0
    shares = {setups.LOSSES: 0, setups.GRADIENTS_10: 1}
    return 1 + shares.get(setup, 2) * parameters


def saves_of(setup: str, steps: int) -> int:
    """How many of so many steps are saved."""
    return math.ceil(steps / 10) if setup.endswith("every 10 steps") else steps


class Hooked:
    """A hook on a training."""

    def __init__(self, setup: str, training: Training, folder: Path) -> None:
        self.setup, self.path = setup, str(folder / "run")
        self.parameters = len(list(training.model.parameters()))
        self.steps = 0
        self.hook = smd.Hook(out_dir=self.path, **options(setup))
        self.hook.register_module(training.model)
        self.hook.register_loss(training.loss)

    def after_step(self, loss: torch.Tensor) -> None:
        self.steps += 1

    def close(self) -> None:
        self.hook.close()
        # So that the next hook of this process starts as the first did.
        smd.del_hook()
        # Once: smdebug 1.0.34 takes a second to open what it wrote.
        if self.setup not in CHECKED:
            self.check()
            CHECKED.add(self.setup)

    def check(self) -> None:
        """A hook that saves less is faster: every tensor must be there at every step."""
        if self.setup in (setups.RULES, setups.RULES_10):
            self.check_rules()
            return
        trial = create_trial(self.path)
        names = trial.tensor_names()
        found = len(names), sum(len(trial.tensor(name).steps()) for name in names)
        tensors = tensors_of(self.setup, self.parameters)
        expected = tensors, tensors * saves_of(self.setup, self.steps)
        if found != expected:
            raise RuntimeError(f"(tensors, values) saved are {found} instead of {expected}")

    def check_rules(self) -> None:
        """All rules must have looked at everything."""
        report = self.hook.rule_report()
        states = {outcome.rule: outcome.status for outcome in report.outcomes}
        steps = create_trial(self.path).steps()
        ran = all(state in ("passed", "found") for state in states.values())
        if not ran or len(states) != len(FIVE_RULES) or report.last_step != steps[-1]:
            raise RuntimeError(f"the rules ended as {states} at step {report.last_step}")


observe = Hooked
