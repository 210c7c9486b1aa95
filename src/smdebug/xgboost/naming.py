"""The names of tensors, and the collections that find them by name."""

from __future__ import annotations

from typing import Any

from smdebug.config.collection import CollectionKeys

IMPORTANCE_TYPES = ("weight", "gain", "cover", "total_gain", "total_cover")
TREE_COLUMNS = (
    *("Tree", "Node", "ID", "Feature", "Split", "Yes", "No", "Missing"),
    *("Gain", "Cover", "Category"),
)
BIAS = "bias"
# Of the numbers of several folds: their mean has the metric's name, their spread this at its end.
SPREAD = "-std"

# Names that have a slash after one of these are no metrics, whatever a feature is called.
_PREFIXES = "hyperparameters|feature_importance|average_shap|full_shap|trees|scalar"
# The data set, which cannot have a dash in its name, and the metric.
_METRIC = rf"^(?!(?:{_PREFIXES})/)[^-]*-.+$"
# Metrics of which more is better: XGBoost's own, scikit-learn's, which say so in the end, and what
# people call theirs.
_INCREASING = (
    "ams|auc|aucpr|map|ndcg|pre|interval-regression-accuracy|.*_score|.*_auc"
    "|acc|accuracy|balanced_accuracy|average_precision|precision|recall|f1|f1_macro|f1_micro|r2"
)
_LOSS = rf"^(?!(?:{_PREFIXES})/)(?![^-]*-(?i:{_INCREASING})(?:@[^-]*)?-?$)(?!.*{SPREAD}$)[^-]*-.+$"

DEFAULT_COLLECTIONS: dict[str, tuple[str, ...]] = {
    CollectionKeys.ALL: (),
    CollectionKeys.DEFAULT: (),
    CollectionKeys.HYPERPARAMETERS: ("^hyperparameters/",),
    CollectionKeys.METRICS: (_METRIC,),
    CollectionKeys.LOSSES: (_LOSS,),
    CollectionKeys.PREDICTIONS: ("^predictions$",),
    CollectionKeys.LABELS: ("^labels$",),
    CollectionKeys.FEATURE_IMPORTANCE: ("^feature_importance/",),
    CollectionKeys.AVERAGE_SHAP: (f"^average_shap/(?!{BIAS}$)",),
    CollectionKeys.FULL_SHAP: (f"^full_shap($|/(?!{BIAS}$))",),
    CollectionKeys.TREES: ("^trees/",),
    CollectionKeys.SCALARS: ("^scalar",),
}


def feature_names(booster: Any) -> list[str]:
    """The names of a model's features: its own, or `f0`, `f1`, ...

    Args:
        booster: an `xgboost.Booster` that has been trained or is about to be.
    """
    return booster.feature_names or [f"f{number}" for number in range(booster.num_features())]


def fit_name(name: str) -> str:
    """The name of a tensor without halves of characters, which nothing can keep.

    Example:
        >>> fit_name("train-auc")
        'train-auc'
    """
    return name if name.isascii() else name.encode("utf-8", "backslashreplace").decode()
