"""The floor of what reads everything: a run's index by pyarrow, on one core; prints seconds."""

from __future__ import annotations

import json
import os
import sys
import time


def main(path: str) -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    import pyarrow.dataset as ds

    began = time.perf_counter()
    rows = ds.dataset(f"{path}/index", format="parquet").to_table().num_rows
    print(json.dumps({"seconds": time.perf_counter() - began, "rows": rows}))


if __name__ == "__main__":
    main(*sys.argv[1:])
