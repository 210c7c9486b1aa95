"""Opens a run and lists its steps and names, with whichever smdebug this interpreter has."""

import json
import sys
import time

from smdebug.trials import create_trial


def main(path):
    began = time.perf_counter()
    trial = create_trial(path)
    steps, names = trial.steps(), trial.tensor_names()
    taken = time.perf_counter() - began
    print(json.dumps({"seconds": taken, "steps": len(steps), "names": len(names)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
