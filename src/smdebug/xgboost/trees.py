"""Feature importances, and the trees of a round."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
from xgboost.core import XGBoostError

from smdebug.xgboost.naming import TREE_COLUMNS, feature_names
from smdebug.xgboost.source import NotAvailable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from smdebug.reductions import Array
    from smdebug.xgboost.rounds import Round
    from smdebug.xgboost.source import Named

_NONE = "nan"


class TreeModel:
    """Checks once per training run that the model has trees."""

    def __init__(self) -> None:
        self._checked = False

    def booster(self, round: Round) -> Any:
        """Return the model of a round.

        Raises:
            NotAvailable: it has no trees.
        """
        if not self._checked:
            config = json.loads(round.model.save_config())
            if config["learner"]["gradient_booster"]["name"] == "gblinear":
                raise NotAvailable("the booster gblinear has no trees")
            self._checked = True
        return round.model


class FeatureImportance:
    """Importances of one type, as `feature_importance/<type>/<feature>`; they sum to 1.

    Args:
        kind: the `importance_type` of `Booster.get_score`.
        model: finds the model.
    """

    what = "feature_importance"

    def __init__(self, kind: str, model: TreeModel) -> None:
        self._kind = kind
        self._model = model

    def names(self, round: Round) -> Iterable[str]:
        features = [""] if round.booster is None else feature_names(round.booster)
        return [f"{self.what}/{self._kind}/{feature}" for feature in features]

    def tensors(self, round: Round) -> Iterator[Named]:
        scores = self._model.booster(round).get_score(importance_type=self._kind)
        total = sum(scores.values())
        for feature, score in scores.items():
            # The total gain is 0 where no tree has a split.
            yield f"{self.what}/{self._kind}/{feature}", score / total if total else 0.0


class Trees:
    """The nodes of the trees of a round, as `trees/<column>`.

    Args:
        model: finds the model.
    """

    what = "trees"

    def __init__(self, model: TreeModel) -> None:
        self._model = model

    def names(self, round: Round) -> Iterable[str]:
        return [f"trees/{column}" for column in TREE_COLUMNS]

    def tensors(self, round: Round) -> Iterator[Named]:
        learner, trees = _trees_of_round(self._model.booster(round), round.index)
        names = np.array(feature_names(round.model), np.str_)
        types = np.array(learner["feature_types"] or [""] * len(names), np.str_)
        first = round.index * len(trees)
        tables = [_table(first + index, tree, names, types) for index, tree in enumerate(trees)]
        for column in TREE_COLUMNS:
            yield f"trees/{column}", np.concatenate([table[column] for table in tables])


def _trees_of_round(booster: Any, index: int) -> tuple[Any, list[Any]]:
    """Return the learner and the trees of one round as XGBoost saves them to JSON.

    `get_dump` writes non-finite numbers that are not JSON, and nests deep trees too far to parse.
    """
    try:
        # A slice: the time does not grow with the number of rounds.
        learner = json.loads(booster[index : index + 1].save_raw("json"))["learner"]
        return learner, _model(learner)["trees"]
    except XGBoostError:
        # A model that is being updated cannot be sliced.
        learner = json.loads(booster.save_raw("json"))["learner"]
        begin, end = _model(learner)["iteration_indptr"][index : index + 2]
        return learner, _model(learner)["trees"][begin:end]


def _model(learner: Any) -> Any:
    booster = learner["gradient_booster"]
    return (booster["gbtree"] if booster["name"] == "dart" else booster)["model"]


def _table(number: int, tree: Any, names: Array, types: Array) -> dict[str, Array]:
    """Return the nodes of a tree with the columns of `Booster.trees_to_dataframe`."""
    if int(tree["tree_param"]["size_leaf_vector"]) > 1:
        raise NotAvailable("a leaf of these trees has several values (multi_output_tree)")
    left, right = np.array(tree["left_children"]), np.array(tree["right_children"])
    nodes = _reachable(left, right)
    left, right = left[nodes], right[nodes]
    leaf = left < 0
    feature = np.array(tree["split_indices"])[nodes]
    by_category = (np.array(tree["split_type"])[nodes] == 1) & ~leaf
    indicator = (types[feature] == "i") & ~leaf
    default = np.where(np.array(tree["default_left"])[nodes] == 1, left, right)
    # `Yes` is the side of the listed categories, and of rows that have an indicator feature.
    yes = np.where(by_category, right, left)
    yes = np.where(indicator, np.where(default == left, right, left), yes)
    no = np.where(yes == left, right, left)
    condition, gain, cover = (
        # The float32 of the model, not the decimal number in the JSON.
        np.array(tree[key], np.float32)[nodes].astype(np.float64)
        for key in ("split_conditions", "loss_changes", "sum_hessian")
    )
    whole = np.where(types[feature] == "int", np.ceil(condition), condition)
    return {
        "Tree": np.full(len(nodes), number, np.int64),
        "Node": nodes,
        "ID": _node_ids(number, nodes),
        "Feature": np.where(leaf, "Leaf", names[feature]),
        "Split": np.where(leaf | by_category | indicator, np.nan, whole),
        "Yes": _node_ids(number, yes, leaf),
        "No": _node_ids(number, no, leaf),
        "Missing": _node_ids(number, default, leaf),
        "Gain": np.where(leaf, condition, gain),
        "Cover": cover,
        "Category": _categories(tree, nodes),
    }


def _reachable(left: Array, right: Array) -> Array:
    """Return the numbers of the nodes in use: pruned ones are still stored."""
    found, pending = [], [0]
    while pending:
        node = pending.pop()
        found.append(node)
        if left[node] >= 0:
            pending += [left[node], right[node]]
    return np.sort(np.array(found, np.int64))


def _node_ids(tree: int, nodes: Array, missing: Array | None = None) -> Array:
    ids = np.array([f"{tree}-{node}" for node in nodes.tolist()], np.str_)
    return ids if missing is None else np.where(missing, _NONE, ids)


def _categories(tree: Any, nodes: Array) -> Array:
    """Return the categories of each categorical split, as `[1, 2]`."""
    segments = zip(
        tree["categories_nodes"], tree["categories_segments"], tree["categories_sizes"],
        strict=True,
    )  # fmt: skip
    found = {node: str(tree["categories"][begin : begin + size]) for node, begin, size in segments}
    return np.array([found.get(node, _NONE) for node in nodes.tolist()], np.str_)
