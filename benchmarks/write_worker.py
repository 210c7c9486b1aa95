"""One of several processes that write into a run: a half of its steps whenever it is told to."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.writing import batches
from smdebug.storage.stores.base import open_store
from smdebug.storage.writer import RunWriter


def main(path: str, worker: str, workers: str, steps: str, tensors: str) -> None:
    half = int(steps)
    made = batches(2 * half, int(tensors))
    writer = RunWriter(open_store(path), worker)
    about = {"collections": {}, "_meta": {"num_workers": int(workers)}}
    writer.write_collections(json.dumps(about))
    for part in (made[:half], made[half:]):
        print("ready", flush=True)
        sys.stdin.readline()
        for batch in part:
            writer.submit(batch, finish=True)
        writer.flush()
        print("written", flush=True)
    sys.stdin.readline()
    writer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
