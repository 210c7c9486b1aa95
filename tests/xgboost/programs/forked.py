"""A process that forks a child, which trains with the hook it has inherited."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from tests.xgboost.data import train
from xgboost.callback import TrainingCallback

import smdebug.xgboost as smd


def child(hook: smd.Hook, path: Path) -> None:
    """Forks, trains in the child, and waits for it."""
    number = os.fork()
    if number == 0:
        train(hook, 3).save_model(path)
        hook.save_scalar("x", 1)
        hook.flush()
        hook.close()
        sys.exit(0)
    _, status = os.waitpid(number, 0)
    sys.stdout.write(f"{path.stem} ended with {os.waitstatus_to_exitcode(status)}\n")
    # The next child would write it again.
    sys.stdout.flush()


class Fork(TrainingCallback):
    """Fork in the middle of training."""

    def __init__(self, hook: smd.Hook, path: Path) -> None:
        super().__init__()
        self._given = hook, path

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        if epoch == 1:
            child(*self._given)
        return False


def main(folder: Path) -> None:
    hook = smd.Hook(folder / "run", save_config=smd.SaveConfig(save_interval=1))
    child(hook, folder / "made.json")
    train(hook, 3, callbacks=[Fork(hook, folder / "training.json")])
    child(hook, folder / "trained.json")
    train(hook, 3)
    hook.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
