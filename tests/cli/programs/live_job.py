"""live_job.py RUN: trains with a gradient that vanishes until it is stopped, or for two minutes."""

from __future__ import annotations

import sys
import time

import numpy as np
from tests.hook.numpy_hook import NumpyHook

from smdebug.exceptions import RuleEvaluationConditionMet

DEADLINE = time.monotonic() + 120


def main(path: str) -> int:
    hook = NumpyHook(
        path, save_config={"save_interval": 1}, flush_seconds=0.05, on_error="raise",
        include_collections=["gradients", "losses"],
    )  # fmt: skip
    try:
        while time.monotonic() < DEADLINE:
            hook.run(gradient__a=np.full(4, 1e-12), loss=np.float32(1))
            if hook.step == 3:
                hook.flush()
                sys.stdout.write("training\n")
                sys.stdout.flush()
            time.sleep(0.002)
    except RuleEvaluationConditionMet as stopped:
        sys.stdout.write(f"stopped: {stopped}\n")
        return 0
    return 3


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
