"""Readers see whole steps, in order, while others write and compact."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.faults.parallel_job import Plan
from tests.faults.tally import FULL, amount

if TYPE_CHECKING:
    from tests.faults.tally import Tally

ROOT = Path(__file__).parents[2]
SEED = 20261117
# A job that hangs is a failure, not a wait.
DEADLINE = 600.0


def played(plan: Plan) -> dict[str, Any]:
    """Runs the job and its readers; returns what they saw."""
    command = [sys.executable, "-m", "tests.faults.parallel_job", json.dumps(asdict(plan))]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE, check=False
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


def told(tally: Tally, what: str, plan: Plan, result: dict[str, Any]) -> None:
    """Counts the looks of all readers, and asserts that none had anything to complain about."""
    wrote, read = result["seen"]["write"], result["seen"]["read"]
    compacted = result["seen"].get("compact", {})
    errors = result["errors"]
    remark = (
        f"{plan.writers} workers, {plan.readers} readers, {result['turns']} rounds; "
        f"{read['steps seen']} steps, {wrote['segments']} segments, "
        f"{wrote.get('closes', 0)} closed and resumed; "
        f"{compacted.get('compactions', 0)} compactions beside them, "
        f"{compacted.get('refused', 0)} refused; {read['opened']} times opened, "
        f"{read['values']} values, {read['tables']} tables"
    )
    tally.add(4, what, read["looks"], read["looks"] - len(errors), remark)
    assert not errors, f"seed {plan.seed}: " + "\n\n".join(errors[:3])
    assert read["steps seen"] == result["turns"] * plan.steps
    assert wrote["closes"]
    assert compacted["findings"]


@pytest.mark.parametrize("format", ["v2", "v1"])
def test_local(tmp_path: Path, tally: Tally, format: str) -> None:
    steps = {"v2": amount(40, 25), "v1": amount(10, 8)}[format]
    plan = Plan(
        str(tmp_path / "run"), format, SEED, writers=amount(8, 3), readers=amount(8, 3),
        rounds=amount(10_000, 8), steps=steps, seconds=60.0 if FULL else DEADLINE,
        flush_seconds=0.05,
    )  # fmt: skip
    result = played(plan)
    told(tally, f"read while workers write, close and go on, {format}", plan, result)
    if format == "v2":
        # Every worker has joined its own at its end.
        assert result["index files"] == plan.writers


@pytest.mark.parametrize("format", ["v2", "v1"])
def test_object_store(bucket: str, tally: Tally, format: str) -> None:
    plan = Plan(
        f"s3://{bucket}/parallel_{format}", format, SEED, writers=amount(4, 2),
        readers=amount(4, 2), rounds=amount(30, 4), steps=amount(10, 5), seconds=60.0,
        flush_seconds=0.2, apart=False,
    )  # fmt: skip
    result = played(plan)
    told(tally, f"the same in an object store, {format}", plan, result)
