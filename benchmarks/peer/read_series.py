"""Opens a run and reads one series, with whichever smdebug this interpreter has."""

import contextlib
import json
import sys
import time

from smdebug.trials import create_trial

# What one library loads when it is imported, the other loads when it is needed: count neither.
with contextlib.suppress(ImportError):
    from smdebug.storage.arrow import warm_up

    warm_up()


def series(tensor, reduction):
    """All values of a reduction, in the quickest way a library has."""
    if hasattr(tensor, "series"):
        return tensor.series(reduction)[1]
    return [tensor.reduction_value(step, reduction) for step in tensor.steps()]


def main(path, name, reduction):
    began = time.perf_counter()
    trial = create_trial(path)
    names = trial.tensor_names()
    opened = time.perf_counter()
    values = series(trial.tensor(name or sorted(names)[0]), reduction)
    ended = time.perf_counter()
    print(
        json.dumps(
            {
                "open": opened - began,
                "series": ended - opened,
                "values": len(values),
                "names": len(names),
            }
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
