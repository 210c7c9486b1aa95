"""The floor of `open_run`: a run's files by pyarrow alone; prints seconds and peak memory."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.open_run import peak_megabytes


def main(path: str, tensor: str, reduction: str) -> None:
    began = time.perf_counter()
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    files = ds.dataset(f"{path}/index", format="parquet")
    names = pc.unique(files.to_table(columns=["tensor"]).column("tensor"))
    wanted = ds.field("tensor") == tensor
    found = files.to_table(columns=["step", reduction], filter=wanted).sort_by("step")
    taken = time.perf_counter() - began
    result = {"seconds": taken, "peak_mb": peak_megabytes(), "names": len(names)}
    last = found.column(reduction)[-1].as_py()
    print(json.dumps({**result, "steps": found.num_rows, "last": last}))


if __name__ == "__main__":
    main(*sys.argv[1:])
