"""Runs all built-in rules over a run, on one core; prints the seconds as JSON."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

from smdebug.rules import run_rules
from smdebug.rules.registry import BUILTIN_RULES
from smdebug.trials import create_trial

# What the original service had.
NEW = {"NonFinite", "GradientSpike", "LossSpike", "FrozenParameter", "ReplicaDivergence"}
NEEDED: dict[str, dict[str, Any]] = {
    "AllZero": {"collection_names": "gradients"},
    "UnchangedTensor": {"collection_names": "gradients"},
    "TensorVariance": {"collection_names": "weights", "max_threshold": 1e6},
}


def main(run: str) -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    rules: list[dict[str, Any]] = []
    for name in BUILTIN_RULES:
        if name not in NEW:
            rules.append({"rule": name, **NEEDED.get(name, {})})
    for rule in rules:
        if rule["rule"] == "SimilarAcrossRuns":
            rule["other_trial"] = create_trial(run)
    began = time.perf_counter()
    report = run_rules(create_trial(run), rules, record=False)
    seconds = time.perf_counter() - began
    statuses = [outcome.status for outcome in report.outcomes]
    counts = {status: statuses.count(status) for status in sorted(set(statuses))}
    print(json.dumps({"seconds": seconds, "rules": len(rules), "statuses": counts}))


if __name__ == "__main__":
    main(*sys.argv[1:])
