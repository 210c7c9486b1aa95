"""Training in the gym: every fault and every healthy run once, under all rules."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smdebug.exceptions import SMDebugRuntimeError, SMDebugValueError
from smdebug.rules import rule_names
from smdebug.storage.findings import read_reports
from smdebug.testing.faults.healthy import HEALTHY
from smdebug.testing.faults.planted import FAULTS
from smdebug.testing.faults.table import FaultRow, GymTable, HealthyRow
from smdebug.trials import create_trial

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable

    from smdebug.testing.faults.training import Fault, Training

# Rules that say nothing about a single PyTorch training at their default settings.
LEFT_OUT = {
    "CreateXgboostReport": "for XGBoost",
    "FeatureImportanceOverweight": "for XGBoost",
    "SimilarAcrossRuns": "compares two runs",
    "TensorVariance": "has no limit unless it is told one",
    "TreeDepth": "for XGBoost",
}
# Rules that must be told what to look at. Weights need not change: when the learning rate has come
# down to 0 they stay, and nothing is wrong.
TOLD: dict[str, dict[str, Any]] = {
    "AllZero": {"collection_names": "weights,gradients"},
    "UnchangedTensor": {"collection_names": "gradients,losses"},
}


def gym_rules() -> list[Any]:
    """Every built-in rule that can judge a PyTorch training, at its default settings."""
    names = [name for name in rule_names() if name not in LEFT_OUT]
    return [{"rule": name, **TOLD[name]} if name in TOLD else name for name in names]


def run_gym(
    folder: str | os.PathLike[str],
    only: str | Iterable[str] | None = None,
    progress: Callable[[str], object] | None = None,
) -> GymTable:
    """Trains every fault and every healthy run, and says what the rules found.

    Args:
        folder: where the runs go; each gets a folder of its name.
        only: a part of the names to train, or several.
        progress: called with the name of each run before it begins.

    Raises:
        SMDebugValueError: nothing has such a name.

    Example:
        >>> print(run_gym("/tmp/gym", only="relu"))  # doctest: +SKIP
    """
    parts = [only] if isinstance(only, str) else list(only or [""])
    faults = [each for each in FAULTS if any(part in each.name for part in parts)]
    healthy = [each for each in HEALTHY if any(part in each.name for part in parts)]
    if not faults and not healthy:
        known = [each.name for each in FAULTS] + [each.name for each in HEALTHY]
        raise SMDebugValueError(
            f"only must be a part of one of the names {'; '.join(known)}; got {parts}"
        )
    table = GymTable()
    for fault in faults:
        _tell(progress, fault.name)
        table.faults.append(run_fault(fault, folder))
    for training in healthy:
        _tell(progress, training.name)
        table.healthy.append(run_healthy(training, folder))
    return table


def run_fault(fault: Fault, folder: str | os.PathLike[str]) -> FaultRow:
    """Trains with a fault under all rules."""
    path = Path(folder) / "faults" / _file_name(fault.name)
    others = [rule for rule in gym_rules() if _name(rule) != fault.rule_name]
    fault.train(path, others)
    trial = create_trial(str(path))
    return FaultRow(fault, trial.findings(), _outcomes(trial.store))


def run_healthy(training: Training, folder: str | os.PathLike[str]) -> HealthyRow:
    """Trains without a fault under all rules."""
    path = Path(folder) / "healthy" / _file_name(training.name)
    job = training.train(path, gym_rules())
    trial = create_trial(str(path))
    return HealthyRow(training, trial.findings(), _outcomes(trial.store), job.has_learned)


def _outcomes(store: Any) -> dict[str, tuple[str, str]]:
    """What became of each rule, by its name: a word, and why."""
    reports = read_reports(store)
    if not reports:
        raise SMDebugRuntimeError(f"rules must report in {store!r}, got nothing: see the log")
    return {each["rule"]: (each["status"], each["message"]) for each in reports[-1]["rules"]}


def _name(rule: Any) -> str:
    return str(rule["rule"]) if isinstance(rule, dict) else str(rule)


def _file_name(name: str) -> str:
    return re.sub(r"\W+", "_", name).strip("_")


def _tell(progress: Callable[[str], object] | None, name: str) -> None:
    if progress is not None:
        progress(name)
