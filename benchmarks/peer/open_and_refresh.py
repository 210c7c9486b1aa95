"""Opens a run that is being written when it is told to, and looks again when it is told to, with
whichever smdebug this interpreter has; prints seconds and steps as JSON.
"""

import contextlib
import json
import sys
import time

from smdebug.trials import create_trial

# What one library loads when it is imported, the other loads when it is needed: count neither.
with contextlib.suppress(ImportError):
    from smdebug.storage.arrow import warm_up

    warm_up()


def main(path):
    print("ready", flush=True)
    sys.stdin.readline()
    began = time.perf_counter()
    trial = create_trial(path)
    trial.tensor_names()
    opened = time.perf_counter() - began
    print(json.dumps({"seconds": opened, "steps": len(trial.steps())}), flush=True)
    sys.stdin.readline()
    began = time.perf_counter()
    trial.refresh_data()
    refreshed = time.perf_counter() - began
    print(json.dumps({"seconds": refreshed, "steps": len(trial.steps())}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
