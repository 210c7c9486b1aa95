"""What an open trial takes: memory grows with the index that is read, not with raw data."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from smdebug.mode_keys import ModeKeys
from smdebug.storage.batch import Entry, StepBatch
from smdebug.storage.format.keys import index_key
from smdebug.storage.run_id import run_ids
from smdebug.storage.stores.local import LocalStore
from smdebug.storage.v2.index import SCHEMA, encode_index
from smdebug.testing.runs import make_run

if TYPE_CHECKING:
    from pathlib import Path

MB = 1 << 20
ROWS, FILES, TENSORS = 10_000_000, 10, 1000


_PROGRAM = """
import json, resource, sys
from pathlib import Path

def peak():
    # ru_maxrss of a child starts at the size of the process it was forked from, VmHWM at its own.
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return int(status.read_text().partition("VmHWM:")[2].split()[0]) * 1024

from smdebug.testing.runs import make_run
from smdebug.trials import create_trial
make_run("memory://warm", range(2))
warm = create_trial("memory://warm")
warm.tensor("loss").series()
warm.to_arrow()
before = peak()
result = {}
trial = create_trial(sys.argv[1])
%s
json.dump({**result, "grown": peak() - before}, sys.stdout)
"""


def measured(script: str, path: Path) -> Any:
    """Runs a script in a process of its own, with `trial` open; it fills `result`, a dictionary.

    How many bytes the peak of its memory lies above that of a small trial comes back as `grown`.
    """
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM % script, str(path)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stderr == ""
    return json.loads(done.stdout)


def test_raw_data_is_not_read_by_opening(tmp_path: Path) -> None:
    array = np.ones((5 * MB,), np.float32)

    def data(worker: str, step: int) -> StepBatch:
        return StepBatch(step, ModeKeys.TRAIN, step, [Entry("x", array, {"mean": 1.0})])

    make_run(tmp_path, range(10), data=data)
    size = sum(file.stat().st_size for file in (tmp_path / "events").rglob("*.tfevents"))
    assert size >= 200 * MB
    script = """
result["steps"] = trial.steps()
result["mean"] = trial.tensor("x").series("mean")[1].tolist()
result["shapes"] = list(trial.tensor("x").shapes().values())
result["frame"] = trial.to_arrow().num_rows
"""
    found = measured(script, tmp_path)
    assert found["steps"] == list(range(10))
    assert found["mean"] == [1.0] * 10
    assert found["shapes"] == [[5 * MB]] * 10
    assert found["frame"] == 10
    assert found["grown"] < 50 * MB


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of ten million index rows: a thousand tensors, ten thousand steps."""
    path = tmp_path_factory.mktemp("large")
    make_run(path, [])
    store = LocalStore(path)
    (run,) = run_ids(store)
    rows = ROWS // FILES
    steps_per_file = rows // TENSORS
    names = pa.array([f"layer.{n:04d}.weight" for n in range(TENSORS)])
    for seq in range(FILES):
        first = seq * steps_per_file
        step = np.tile(np.arange(first, first + steps_per_file), TENSORS)
        tensor = np.repeat(np.arange(TENSORS, dtype=np.int32), steps_per_file)
        zeros = pa.array(np.zeros(rows, np.int32))

        def text(codes: Any, *values: str) -> Any:
            return pa.DictionaryArray.from_arrays(codes, pa.array(values))

        known = {
            "step": pa.array(step),
            "mode": text(zeros, "TRAIN"),
            "mode_step": pa.array(step),
            "worker": text(zeros, "worker_0"),
            "tensor": pa.DictionaryArray.from_arrays(pa.array(tensor), names),
            "time": pa.array(step.astype(np.float64)),
            "position": pa.array(tensor),
            "seq": pa.array(np.full(rows, seq, np.int32)),
            "l2": pa.array(tensor + step / 1e6),
        }
        columns = [
            known[field.name] if field.name in known else pa.nulls(rows, field.type)
            for field in SCHEMA
        ]
        table = pa.table(columns, schema=SCHEMA)
        store.write(index_key(first, seq, "worker_0"), [encode_index(table, run)])
    return path


def test_ten_million_rows_open(large: Path) -> None:
    script = """
result["steps"] = len(trial.steps())
result["names"] = len(trial.tensor_names())
steps, values = trial.tensor("layer.0123.weight").series("l2")
result["ends"] = [int(steps[0]), int(steps[-1]), float(values[0]), float(values[-1]), len(values)]
"""
    found = measured(script, large)
    assert found["steps"] == ROWS // TENSORS
    assert found["names"] == TENSORS
    last = ROWS // TENSORS - 1
    assert found["ends"] == [0, last, 123.0, 123 + last / 1e6, last + 1]
    assert found["grown"] < 400 * MB


def test_many_series_of_a_large_run_stay_within_bounds(large: Path) -> None:
    """The columns read for a series are kept up to a limit, not for ever."""
    script = """
total = 0.0
for n in range(0, 1000, 50):
    total += float(trial.tensor(f"layer.{n:04d}.weight").series("l2")[1][0])
result["total"] = total
"""
    found = measured(script, large)
    assert found["total"] == sum(range(0, TENSORS, 50))
    assert found["grown"] < 700 * MB


def test_sql_reads_only_the_columns_it_needs(large: Path) -> None:
    script = """
query = "select count(*) as n, max(l2) as top from run where tensor = 'layer.0007.weight'"
frame = trial.sql(query)
result["n"], result["top"] = int(frame["n"][0]), float(frame["top"][0])
"""
    found = measured(script, large)
    last = ROWS // TENSORS - 1
    assert found["n"] == last + 1
    assert found["top"] == 7 + last / 1e6
    assert found["grown"] < 400 * MB
