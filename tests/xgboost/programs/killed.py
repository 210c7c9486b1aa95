"""Training that is killed after its last round, when everything has been published."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.xgboost.data import train

import smdebug.xgboost as smd


def main(folder: Path, rounds: int) -> None:
    hook = smd.Hook(folder / "run", save_config=smd.SaveConfig(save_interval=1))
    train(hook, rounds).save_model(folder / "model.ubj")
    os._exit(9)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
