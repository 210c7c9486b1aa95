"""Reductions to the last bit: a framework may round them differently than numpy does."""

from __future__ import annotations

import json
import math
import sys
from typing import TYPE_CHECKING

from smdebug import create_trial
from tools.golden_runs.recorder import write_truth

if TYPE_CHECKING:
    from pathlib import Path

# Some units in the last place of float32.
_RELATIVE = 1e-6


def settle_reductions(run: Path) -> None:
    """Replace a reduction in the truth by the stored one, where they differ by rounding alone.

    Raises:
        ValueError: a stored reduction is another number than the one numpy computes.
    """
    path = run.parent / f"{run.name}.json"
    truth = json.loads(path.read_text("utf-8"))
    trial = create_trial(str(run), wait_seconds=0)
    total = replaced = 0
    for record in truth["records"]:
        if "reductions" not in record:
            continue
        stored = trial.tensor(record["tensor"]).reduction_values(
            record["step"], worker=record["worker"]
        )
        for (name, is_absolute), found in stored.items():
            name = f"abs_{name}" if is_absolute else name
            expected = float.fromhex(record["reductions"][name])
            total += 1
            if found == expected or (math.isnan(found) and math.isnan(expected)):
                continue
            if not math.isclose(found, expected, rel_tol=_RELATIVE, abs_tol=1e-9):
                raise ValueError(
                    f"{run.name}: {name} of {record['tensor']} at step {record['step']} is stored "
                    f"as {found}, expected {expected}"
                )
            record["reductions"][name] = float(found).hex()
            replaced += 1
    write_truth(path, truth)
    sys.stderr.write(f"{run.name}: {replaced} of {total} reductions are rounded differently\n")
