"""The page about a training with XGBoost."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from smdebug.rules.detectors.classes import ClassReader
from smdebug.rules.html.bars import bar_chart, histogram
from smdebug.rules.html.lines import Curve, line_chart
from smdebug.rules.html.matrix import matrix_chart
from smdebug.rules.html.page import Card, Fact, Section, page, table
from smdebug.rules.html.ranges import range_chart
from smdebug.rules.html.scale import short

if TYPE_CHECKING:
    from collections.abc import Mapping

    from smdebug.reductions import Array
    from smdebug.rules.detectors.classes import Classes
    from smdebug.trials.index_rows import Floats, Ints

# Better when larger; of all other metrics the smallest value is the best.
_INCREASING = frozenset(
    ["auc", "aucpr", "map", "ndcg", "pre", "accuracy", "acc", "f1", "precision", "recall", "r2",
     "kappa", "mcc", "gini", "interval-regression-accuracy"]
)  # fmt: skip
_TRAIN = "train"
_VALIDATION = ("validation", "valid", "val", "eval", "test")
_IMPORTANCES = ("weight", "gain", "cover", "total_gain", "total_cover")
_MOST_FEATURES = 20
_MOST_CLASSES = 20
_MOST_FACTS = 4


@dataclass
class XgboostRun:
    """What the page is about.

    Attributes:
        name: of the run.
        metrics: name (`train-auc`) to the rounds at which it was saved, and its values.
        importance: kind of importance to feature to share.
        shap: feature to the mean of its SHAP values.
        hyperparameters: as they were given.
        labels: of the data that predictions were made for.
        predictions: as the booster made them.
        predicted_at: the round they were made after.
    """

    name: str
    metrics: dict[str, tuple[Floats, Floats]] = field(default_factory=dict)
    importance: dict[str, dict[str, float]] = field(default_factory=dict)
    shap: dict[str, float] = field(default_factory=dict)
    hyperparameters: dict[str, str] = field(default_factory=dict)
    labels: Array | None = None
    predictions: Array | None = None
    predicted_at: int = -1


def xgboost_page(run: XgboostRun, footer: str) -> str:
    """The page as HTML."""
    metrics = _by_metric(run)
    classes = _classes(run)
    rounds = int(max(float(places[-1]) for places, _ in run.metrics.values())) + 1
    objective = run.hyperparameters.get("objective")
    subtitle = f"{run.name}, {objective}" if objective else run.name
    at = f"The data that the run saved labels and predictions of, after round {run.predicted_at}."
    sections = [
        Section("Metrics", _metric_cards(metrics)),
        Section("Predictions", _prediction_cards(run, classes), at),
        Section("Features", _feature_cards(run)),
        Section("Hyperparameters", _hyperparameter_cards(run)),
    ]
    return page(
        "XGBoost training report", subtitle, _facts(run, rounds, metrics, classes), sections, footer
    )


def best_round(metric: str, rounds: Floats, values: Floats) -> tuple[int, float] | None:
    """The round with the best value of a metric, the first of several; None without a finite value.

    Example:
        >>> best_round("auc", np.array([0.0, 1.0, 2.0]), np.array([0.5, 0.9, 0.8]))
        (1, 0.9)
    """
    finite = np.isfinite(values)
    if not finite.any():
        return None
    largest = metric.split("@")[0].rstrip("-").lower() in _INCREASING
    bad = -np.inf if largest else np.inf
    usable = np.where(finite, values, bad)
    place = int(usable.argmax() if largest else usable.argmin())
    return int(rounds[place]), float(values[place])


# ---- metrics


def _by_metric(run: XgboostRun) -> dict[str, dict[str, tuple[Floats, Floats]]]:
    """Metric to data set to rounds and values; the data trained on comes first."""
    found: dict[str, dict[str, tuple[Floats, Floats]]] = {}
    for name in sorted(run.metrics, key=_order):
        data, _, metric = name.partition("-")
        found.setdefault(metric, {})[data] = run.metrics[name]
    return dict(sorted(found.items()))


def _order(name: str) -> tuple[int, str]:
    data = name.partition("-")[0]
    if data.startswith(_TRAIN):
        return -1, name
    return _VALIDATION.index(data) if data in _VALIDATION else len(_VALIDATION), name


def _judge_of(data: Mapping[str, object]) -> str:
    """The data set that says most about a model: the one to validate with, where there is one."""
    for name in _VALIDATION:
        if name in data:
            return name
    others = [name for name in data if not name.startswith(_TRAIN)]
    return others[0] if others else next(iter(data))


def _metric_cards(metrics: Mapping[str, Mapping[str, tuple[Floats, Floats]]]) -> list[Card]:
    sets = list(dict.fromkeys(name for data in metrics.values() for name in data))
    cards, rows = [], []
    for metric, data in metrics.items():
        judge = _judge_of(data)
        best = best_round(metric, *data[judge])
        curves = [
            Curve(name, *values, sets.index(name), best[0] if best and name == judge else None)
            for name, values in data.items()
        ]
        note = f"Best on {judge}: {short(best[1])} in round {best[0]}." if best else ""
        cards.append(Card(metric, line_chart(curves, f"{metric} by round"), note))
        rows += [_metric_row(metric, name, *values) for name, values in data.items()]
    head = ["metric", "data", "first", "last", "best", "best round"]
    # Beside the last chart when there is a place left.
    cards.append(Card("In numbers", table(head, rows, (2, 3, 4, 5)), wide=len(cards) % 2 == 0))
    return cards


def _metric_row(metric: str, data: str, rounds: Floats, values: Floats) -> list[str]:
    best = best_round(metric, rounds, values)
    told = (short(best[1]), f"{best[0]:,}") if best else ("", "")
    return [metric, data, short(float(values[0])), short(float(values[-1])), *told]


# ---- predictions


def _classes(run: XgboostRun) -> Classes | None:
    """Labels and predictions as classes; None when the model is no classifier."""
    if run.labels is None or run.predictions is None:
        return None
    objective = run.hyperparameters.get("objective", "")
    if objective.partition(":")[0] in ("reg", "count", "survival", "rank"):
        return None
    return ClassReader().read("labels", run.labels, run.predictions)


def _prediction_cards(run: XgboostRun, classes: Classes | None) -> list[Card]:
    if run.labels is None or run.predictions is None:
        return []
    if classes is not None and len(classes.labels):
        return [_matrix_card(classes), *_probability_cards(run.labels, run.predictions)]
    if run.labels.shape != run.predictions.shape or run.labels.dtype.kind in "USO":
        return []
    if run.hyperparameters.get("objective", "").startswith("rank:"):
        return []
    errors = run.labels.astype(np.float64).ravel() - run.predictions.astype(np.float64).ravel()
    errors = errors[np.isfinite(errors)]
    if not len(errors):
        return []
    size, bias = float(np.sqrt(np.mean(errors**2))), float(errors.mean())
    note = (
        f"Mean {short(bias)}, root of the mean square {short(size)}, mean absolute value "
        f"{short(float(np.abs(errors).mean()))}."
    )
    chart = histogram([("errors", errors)], "How often errors occur", "label minus prediction")
    return [Card("Errors", chart, note)]


def _matrix_card(classes: Classes) -> Card:
    assert classes.predictions is not None
    found = np.union1d(classes.labels, classes.predictions)
    both = np.concatenate([classes.labels, classes.predictions])
    often = np.argsort(-np.bincount(np.searchsorted(found, both)), kind="stable")
    shown = np.sort(found[often[:_MOST_CLASSES]])
    inside = np.isin(classes.labels, shown) & np.isin(classes.predictions, shown)
    counts: Ints = np.zeros((len(shown), len(shown)), np.int64)
    rows = np.searchsorted(shown, classes.labels[inside])
    columns = np.searchsorted(shown, classes.predictions[inside])
    np.add.at(counts, (rows, columns), 1)
    note = "The fill is the share of the row."
    if len(shown) < len(found):
        note = f"The {len(shown)} most frequent of {len(found)} classes. {note}"
    chart = matrix_chart(counts, [str(each) for each in shown.tolist()], "Confusion matrix")
    return Card("Confusion matrix", chart, note)


def _probability_cards(labels: Array, predictions: Array) -> list[Card]:
    """How sure the model is, for each class."""
    scores = predictions.astype(np.float64)
    given = labels.ravel()
    if scores.ndim == 2 and scores.shape[1] > 1 and len(given) == len(scores):
        return _true_class_card(given.astype(np.int64), scores)
    scores = scores.ravel()
    if len(scores) != len(given) or (scores == np.floor(scores)).all():
        # Classes: nothing is known of how sure the model was.
        return []
    groups = [(f"label {each:g}", scores[given == each]) for each in np.unique(given).tolist()]
    groups = [(name, values) for name, values in groups if np.isfinite(values).any()]
    share = bool(((scores >= 0) & (scores <= 1)).all())
    name = "predicted probability of class 1" if share else "predicted score of class 1"
    chart = histogram(groups, f"How often each {name} occurs", name)
    return [Card("Predictions by label", chart)]


def _true_class_card(labels: Ints, scores: Floats) -> list[Card]:
    known = (labels >= 0) & (labels < scores.shape[1])
    labels, scores = labels[known], scores[known]
    right = scores[np.arange(len(labels)), labels]
    found, counts = np.unique(labels[np.isfinite(right)], return_counts=True)
    if not len(found):
        return []
    shown = np.sort(found[np.argsort(-counts, kind="stable")[:_MOST_CLASSES]])
    groups = [
        (f"class {each}", right[(labels == each) & np.isfinite(right)]) for each in shown.tolist()
    ]
    low, high = min(0.0, float(np.nanmin(right))), max(1.0, float(np.nanmax(right)))
    chart = range_chart(
        groups, (low, high), "Score of the right class", "predicted score of the right class"
    )
    note = "Line: 5 to 95 % of the samples of the class. Box: the middle half. Mark: the median."
    if len(shown) < len(found):
        note = f"The {len(shown)} most frequent of {len(found)} classes. {note}"
    return [Card("How sure the model is of the right class", chart, note)]


# ---- features and hyperparameters


def _feature_cards(run: XgboostRun) -> list[Card]:
    kinds = sorted(
        run.importance,
        key=lambda kind: (_IMPORTANCES.index(kind) if kind in _IMPORTANCES else 99, kind),
    )
    cards = [
        _feature_card(f"Importance by {kind.replace('_', ' ')}", run.importance[kind])
        for kind in kinds
    ]
    if run.shap:
        cards.append(_feature_card("Mean SHAP value", run.shap))
    return cards


def _feature_card(title: str, features: Mapping[str, float]) -> Card:
    finite = {name: value for name, value in features.items() if np.isfinite(value)}
    ranked = sorted(finite.items(), key=lambda item: (-abs(item[1]), item[0]))
    note = ""
    if len(ranked) > _MOST_FEATURES:
        note = f"The {_MOST_FEATURES} largest of {len(ranked)} features."
    if not ranked:
        return Card(title, "", "There is no finite value.")
    return Card(title, bar_chart(ranked[:_MOST_FEATURES], title), note)


def _hyperparameter_cards(run: XgboostRun) -> list[Card]:
    if not run.hyperparameters:
        return []
    rows = [[name, value] for name, value in sorted(run.hyperparameters.items())]
    return [Card("As they were given", table(["name", "value"], rows), wide=True)]


# ---- facts


def _facts(
    run: XgboostRun,
    rounds: int,
    metrics: Mapping[str, Mapping[str, tuple[Floats, Floats]]],
    classes: Classes | None,
) -> list[Fact]:
    saved = len(np.unique(np.concatenate([places for places, _ in run.metrics.values()])))
    facts = [Fact("Rounds", f"{rounds:,}", "" if saved == rounds else f"{saved:,} of them saved")]
    for metric, data in list(metrics.items())[:_MOST_FACTS]:
        judge = _judge_of(data)
        best = best_round(metric, *data[judge])
        if best:
            facts.append(Fact(f"Best {judge}-{metric}", short(best[1]), f"in round {best[0]:,}"))
    if run.labels is not None:
        facts.append(Fact("Rows", f"{len(np.atleast_1d(run.labels)):,}", "with predictions"))
    if classes is not None and classes.predictions is not None and len(classes.labels):
        right = float((classes.labels == classes.predictions).mean())
        facts.append(Fact("Accuracy", f"{right:.1%}", f"after round {run.predicted_at:,}"))
    features = {name for each in run.importance.values() for name in each}
    if features:
        facts.append(Fact("Features", f"{len(features):,}", "in the trees"))
    return facts
