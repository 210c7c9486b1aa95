"""The names of tensors, and the regexes of the default collections."""

from __future__ import annotations

from typing import Any

from smdebug.config.collection import CollectionKeys

IMPORTANCE_TYPES = ("weight", "gain", "cover", "total_gain", "total_cover")
TREE_COLUMNS = (
    *("Tree", "Node", "ID", "Feature", "Split", "Yes", "No", "Missing"),
    *("Gain", "Cover", "Category"),
)
BIAS = "bias"
# Appended to a metric's name for its standard deviation over the folds of a cross-validation; the
# mean has the plain name.
SPREAD = "-std"

# Names that begin with one of these and a slash are not metrics, whatever a feature is called.
_PREFIXES = "hyperparameters|feature_importance|average_shap|full_shap|trees|scalar"
# The data set, whose name cannot contain a dash, and the metric.
_METRIC = rf"^(?!(?:{_PREFIXES})/)[^-]*-.+$"
# Metrics where higher is better: XGBoost's, scikit-learn's by their endings, and common names of
# custom ones.
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
    """Return the names of a model's features; `f0`, `f1`, ... where they have none.

    Args:
        booster: an `xgboost.Booster` in training, or trained.
    """
    return booster.feature_names or [f"f{number}" for number in range(booster.num_features())]


def encodable(name: str) -> str:
    r"""Return the name of a tensor with lone surrogates, which UTF-8 cannot encode, escaped.

    Example:
        >>> encodable("train-auc"), encodable("train-\udcff")
        ('train-auc', 'train-\\udcff')
    """
    return name if name.isascii() else name.encode("utf-8", "backslashreplace").decode()
