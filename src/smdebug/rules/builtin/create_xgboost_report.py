"""A page about a training with XGBoost."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from smdebug._version import __version__
from smdebug.config import validation
from smdebug.config.collection import CollectionKeys
from smdebug.config.rule_requirements import TensorRequirement
from smdebug.exceptions import SMDebugValueError, TensorUnavailableForStep
from smdebug.rules.html.xgboost_page import XgboostRun, xgboost_page
from smdebug.rules.rule import Rule
from smdebug.storage.stores.base import open_store

if TYPE_CHECKING:
    from collections.abc import Iterable

    from smdebug.reductions import Array
    from smdebug.rules.tensor_choice import TensorChoice
    from smdebug.storage.findings import Finding
    from smdebug.storage.stores.base import Store
    from smdebug.trials.frame import Frame
    from smdebug.trials.trial import Trial

REPORT_KEY = "reports/xgboost_report.html"
# The data set, then the metric: `train-auc`, `validation-error@0.7`.
_METRIC = r"^[^/]+-[^/]+$"
_IMPORTANCE = re.compile(r"^feature_importance/([^/]+)/(.+)$", re.DOTALL)
_SHAP, _HYPERPARAMETERS = "average_shap/", "hyperparameters/"


class CreateXgboostReport(Rule):
    """Writes a page about a training with XGBoost when it has ended: one HTML file, nothing else.

    The page shows each metric by round, the confusion matrix and how sure the model is (or how
    often errors occur, in a regression), the most important features, and the hyperparameters, as
    far as they were saved. A hook that has this rule saves all of them but SHAP values, which take
    longer than training: the page shows those if `average_shap` is saved too. It finds nothing;
    without a metric it could not run.

    Args:
        base_trial: the trial to look at.
        report_path: where to write it, a path or a URL that ends with a file name; None writes
            `reports/xgboost_report.html` in the run itself, wherever that is.
        action_str: what to do when it fires; it never does.

    Attributes:
        written_to: where the page is, once it is written; None before.

    Example:
        >>> run_rules("/tmp/run", ["CreateXgboostReport"])  # doctest: +SKIP
    """

    reads = ("mean",)
    # Labels, predictions and hyperparameters are looked up in the end.
    looks_back = True

    def __init__(
        self, base_trial: Trial | None, report_path: Any = None, action_str: Any = ""
    ) -> None:
        super().__init__(base_trial, action_str)
        self.report_path = (
            None if report_path is None else validation.text("report_path", report_path)
        )
        if self.report_path is not None and self.report_path.endswith("/"):
            raise SMDebugValueError(
                "report_path must end with the name of a file, "
                f"got {validation.short_repr(report_path)}"
            )
        self.metrics = self.choose([CollectionKeys.METRICS], _METRIC)
        self.importances = self.choose(None, _IMPORTANCE.pattern, required=False)
        self.shap = self.choose(None, f"^{_SHAP}", required=False)
        self.written_to: str | None = None
        self._curves: dict[str, dict[int, float]] = {}
        self._importances: dict[str, float] = {}
        self._shap: dict[str, float] = {}

    def needs(self) -> tuple[TensorRequirement, ...]:
        """What the page shows and costs little."""
        names = (
            CollectionKeys.METRICS,
            CollectionKeys.LABELS,
            CollectionKeys.PREDICTIONS,
            CollectionKeys.FEATURE_IMPORTANCE,
            CollectionKeys.HYPERPARAMETERS,
        )
        return tuple(TensorRequirement(name, raw=True) for name in names)

    def start_over(self) -> None:
        """Forgets all rounds."""
        super().start_over()
        self._curves.clear()
        self._importances.clear()
        self._shap.clear()

    def check(self, frame: Frame) -> Iterable[Finding]:
        """Keeps the metrics of all rounds, and of the features what the last round says."""
        table = self.read(frame, "mean", self.metrics)
        for place, column in _of_one_worker(table):
            known = table.present[:, place]
            curve = self._curves.setdefault(column, {})
            values = table.values[known, place].tolist()
            curve.update(zip(table.steps[known].tolist(), values, strict=True))
        self._importances = self._newest(frame, self.importances) or self._importances
        self._shap = self._newest(frame, self.shap) or self._shap
        return ()

    def finish(self) -> Iterable[Finding]:
        """Writes the page."""
        if self._curves:
            footer = f"Made by Tornasole {__version__}."
            content = [xgboost_page(self._run(), footer).encode()]
            store, key = self._place()
            store.write(key, content)
            self.written_to = store.path(key) or f"{store.url.rstrip('/')}/{key}"
            self.logger.info("the report about %s is %s", self.base_trial.name, self.written_to)
        return ()

    # ---- inside

    def _place(self) -> tuple[Store, str]:
        if self.report_path is None:
            return self.base_trial.store, REPORT_KEY
        if "://" in self.report_path:
            place, _, key = self.report_path.rpartition("/")
            return open_store(place), key
        path = Path(self.report_path).expanduser()
        return open_store(str(path.parent)), path.name

    def _newest(self, frame: Frame, choice: TensorChoice) -> dict[str, float]:
        table = self.read(frame, "mean", choice)
        if not len(table.steps):
            return {}
        columns = [
            (place, name) for place, name in _of_one_worker(table) if table.present[-1, place]
        ]
        return {name: float(table.values[-1, place]) for place, name in columns}

    def _run(self) -> XgboostRun:
        trial = self.base_trial
        run = XgboostRun(trial.name)
        for name, curve in self._curves.items():
            run.metrics[name] = (np.array(list(curve), np.float64), np.array(list(curve.values())))
        for name, value in self._importances.items():
            found = _IMPORTANCE.match(name)
            if found is not None:
                run.importance.setdefault(found[1], {})[found[2]] = value
        run.shap = {name.removeprefix(_SHAP): value for name, value in self._shap.items()}
        # What is expected without any feature is no feature.
        run.shap.pop("bias", None)
        for name in trial.tensor_names():
            if name.startswith(_HYPERPARAMETERS):
                given = _at(trial, name, trial.tensor(name).steps())
                if given is not None:
                    shown = ", ".join(str(each) for each in given.ravel().tolist())
                    run.hyperparameters[name.removeprefix(_HYPERPARAMETERS)] = shown
        self._add_predictions(run)
        return run

    def _add_predictions(self, run: XgboostRun) -> None:
        trial = self.base_trial
        if not (trial.has_tensor("labels") and trial.has_tensor("predictions")):
            return
        both = {*trial.tensor("labels").steps()} & {*trial.tensor("predictions").steps()}
        labels = _at(trial, "labels", sorted(both))
        predictions = _at(trial, "predictions", sorted(both))
        if labels is not None and predictions is not None:
            run.labels, run.predictions, run.predicted_at = labels, predictions, max(both)


def _of_one_worker(table: Frame) -> list[tuple[int, str]]:
    """A column for each tensor: workers have the same metrics, and the same trees."""
    first: dict[str, int] = {}
    for place in sorted(range(len(table.columns)), key=lambda each: table.columns[each]):
        first.setdefault(table.columns[place].tensor, place)
    return [(place, name) for name, place in first.items()]


def _at(trial: Trial, name: str, steps: list[int]) -> Array | None:
    """What all workers saved at the last of some steps; None when that is no value."""
    if not steps:
        return None
    tensor = trial.tensor(name)
    try:
        parts = [
            np.atleast_1d(tensor.value(steps[-1], worker=worker))
            for worker in tensor.workers(steps[-1])
        ]
    except TensorUnavailableForStep:
        return None
    if name.startswith(_HYPERPARAMETERS):
        return parts[0]
    same = len({(part.ndim, part.shape[1:]) for part in parts}) == 1
    return np.concatenate(parts) if same else None
