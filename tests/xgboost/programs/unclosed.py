"""A script that forgets its hook."""

from __future__ import annotations

import sys

from tests.xgboost.data import train

import smdebug.xgboost as smd


def main(out_dir: str) -> None:
    train(smd.Hook(out_dir), 12)


if __name__ == "__main__":
    main(sys.argv[1])
