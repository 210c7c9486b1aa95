"""Opens a run, reads a series, asks with SQL; with this library, or with pyarrow and duckdb alone.

Prints the seconds of each as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

QUERY = "select tensor, avg(l2) as mean, count(*) as number from {} group by tensor"


def with_trial(path: str, tensor: str) -> dict[str, Any]:
    from smdebug.trials import create_trial

    began = time.perf_counter()
    trial = create_trial(path)
    names = trial.tensor_names()
    opened = time.perf_counter()
    steps, _ = trial.tensor(tensor).series("l2")
    read = time.perf_counter()
    answer = trial.sql(QUERY.format("run"))
    asked = time.perf_counter()
    rows = int(answer["number"].sum())
    return {
        "open": opened - began, "series": read - opened, "sql": asked - read, "rows": rows,
        "names": len(names), "steps": len(steps),
    }  # fmt: skip


def by_hand(path: str, tensor: str) -> dict[str, Any]:
    import duckdb
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    began = time.perf_counter()
    files = ds.dataset(f"{path}/index", format="parquet")
    names = pc.unique(files.to_table(columns=["tensor"]).column("tensor"))
    opened = time.perf_counter()
    found = files.to_table(columns=["step", "l2"], filter=ds.field("tensor") == tensor)
    read = time.perf_counter()
    answer = duckdb.sql(QUERY.format(f"'{path}/index/**/*.parquet'")).df()
    asked = time.perf_counter()
    rows = int(answer["number"].sum())
    return {
        "open": opened - began, "series": read - opened, "sql": asked - read, "rows": rows,
        "names": len(names), "steps": found.num_rows,
    }  # fmt: skip


def main(whose: str, path: str, tensor: str) -> None:
    # What is imported late is no cost of a size.
    import duckdb  # noqa: F401
    import pandas  # noqa: F401

    print(json.dumps((by_hand if whose == "floor" else with_trial)(path, tensor)))


if __name__ == "__main__":
    main(*sys.argv[1:])
