"""Readers are fuzzed, each in a process of its own: no crash, no hang, no other error, no memory.

Coverage guides the fuzzer (atheris, on libFuzzer); it begins with real files. What it does is drawn
from `SEED`.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
from tests.faults.damaged import SEED, Run, run_of
from tests.faults.tally import amount

from smdebug.exceptions import SMDebugError
from smdebug.storage.format.records import frame, iterate_records

if TYPE_CHECKING:
    from tests.faults.tally import Tally

PROGRAM = Path(__file__).parent / "programs" / "fuzz_readers.py"
JSON_CONFIG_FILE = {
    "S3OutputPath": "s3://b/p",
    "LocalPath": "/opt/out",
    "HookParameters": {"save_interval": "3", "train.save_steps": "1,2", "reductions": "l2"},
    "CollectionConfigurations": [
        {"CollectionName": "mine", "CollectionParameters": {"include_regex": "a.*", "end_step": 4}}
    ],
}
# How many inputs of each: in `make faults`, and in the checks.
TARGETS = {
    "records": (40_000, 800),
    "events": (60_000, 1500),
    "index": (20_000, 400),
    "v1_index": (20_000, 500),
    "collections": (15_000, 400),
    "findings": (10_000, 300),
    "names": (15_000, 500),
    "json_config_file": (15_000, 400),
    "run": (5_000, 200),
}
_SECONDS = 3600


def seeds(target: str) -> list[bytes]:
    """Real files, and pieces of them, to begin with."""
    v2, v1 = run_of("v2"), run_of("v1")
    large = 1 << 20

    def of(run: Run, folder: str, ending: str = "") -> list[bytes]:
        kept = [
            data for key, data in run.files.items() if key.startswith(folder) and len(data) < large
        ]
        return [data for data in kept if data] if not ending else kept

    if target in ("records", "events"):
        files = [*of(v2, "events/"), *of(v1, "events/")]
        if target == "records":
            return [data[:2000] for data in files]
        return [
            bytes(payload)
            for data in files
            for _, payload in list(iterate_records(memoryview(data), "x", v1=True))[:6]
        ]
    if target == "findings":
        control = b'{"reason": "x", "at_step": 3, "mode": "TRAIN", "time": 1.5}'
        return [*of(v2, "findings/"), control]
    if target == "names":
        return [key.encode() for run in (v2, v1) for key in run.files]
    if target == "json_config_file":
        return [json.dumps(JSON_CONFIG_FILE).encode()]
    if target == "run":
        return [bytes([n]) + data for n, data in enumerate(of(v2, "index/") + of(v1, "index/"))]
    return {
        "index": of(v2, "index/"),
        "v1_index": of(v1, "index/"),
        "collections": of(v2, "collections/"),
    }[target]


@pytest.mark.parametrize("target", TARGETS)
def test_readers_are_fuzzed(target: str, tmp_path: Path, tally: Tally) -> None:
    runs = amount(*TARGETS[target])
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for number, seed in enumerate(seeds(target)):
        (corpus / f"seed{number}").write_bytes(seed)
    command = [
        sys.executable, str(PROGRAM), target, f"-runs={runs}", f"-seed={SEED}", "-timeout=60",
        "-rss_limit_mb=2048", "-max_len=65536", f"-artifact_prefix={tmp_path}/", str(corpus),
    ]  # fmt: skip
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=_SECONDS, check=False, env=environment
    )
    match = re.search(r"Done (\d+) runs", done.stderr)
    tried = int(match[1]) if match else runs
    sound = done.returncode == 0 and match is not None
    reached = re.findall(r"cov: (\d+)", done.stderr)
    grown = len(list(corpus.iterdir()))
    remark = f"{reached[-1] if reached else '?'} places of the code reached, {grown} inputs kept"
    tally.add(3, f"fuzzing: {target}", tried, tried if sound else 0, remark)
    artifacts = {path.name: path.read_bytes()[:300] for path in tmp_path.glob("*-*")}
    assert sound, f"{done.stdout[-1000:]}\n{done.stderr[-5000:]}\n{artifacts}"


def test_tensorboard_accepts_the_same_records(tmp_path: Path, tally: Tally) -> None:
    """Files of whole records, some of them damaged: both readers stop at the same place."""
    sound = [data for data in seeds("events") if len(data) < 4096]
    path = tmp_path / "events.tfevents"
    tried, alike = 0, 0
    different = []
    for number in range(amount(5000, 150)):
        rng = random.Random(f"{SEED} records {number}")
        chosen = rng.choices(sound, k=rng.randint(0, 5))
        data = bytearray(b"".join(b"".join(frame([each])) for each in chosen))
        for _ in range(rng.choice([0, 1, 1, 2])):
            if data:
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        data = data[: rng.choice([len(data), rng.randint(0, len(data))])]
        path.write_bytes(data)
        ours: list[bytes] = []
        with suppress(SMDebugError):
            for _, payload in iterate_records(memoryview(bytes(data)), "x"):
                ours.append(bytes(payload))
        theirs = list(RawEventFileLoader(str(path)).Load())
        tried += 1
        alike += ours == theirs
        if ours != theirs:
            different.append(f"number {number} of seed {SEED}: {len(ours)} and {len(theirs)}")
    tally.add(3, "records, beside TensorBoard's own reader", tried, alike)
    assert different == []
