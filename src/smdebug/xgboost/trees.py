"""What a model consists of: how important its features are, and the trees of a round."""

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
    from smdebug.xgboost.source import Named, Round

_NONE = "nan"


class TreeCheck:
    """Finds out, once in a training, whether the model is one of trees."""

    def __init__(self) -> None:
        self._checked = False

    def trees(self, round: Round) -> Any:
        """The model of a round.

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
    """One kind of importance, as `feature_importance/<kind>/<feature>`; they sum to 1.

    Args:
        kind: the kind, as `Booster.get_score` calls it.
        check: tells whether the model has trees.
    """

    what = "feature_importance"

    def __init__(self, kind: str, check: TreeCheck) -> None:
        self._kind = kind
        self._check = check

    def names(self, round: Round) -> Iterable[str]:
        features = [""] if round.booster is None else feature_names(round.booster)
        return [f"{self.what}/{self._kind}/{feature}" for feature in features]

    def tensors(self, round: Round) -> Iterator[Named]:
        scores = self._check.trees(round).get_score(importance_type=self._kind)
        total = sum(scores.values())
        for feature, score in scores.items():
            # A model of roots only has features without any gain.
            yield f"{self.what}/{self._kind}/{feature}", score / total if total else 0.0


class Trees:
    """The nodes of the trees of a round, as `trees/<column>`.

    Args:
        check: tells whether the model has trees.
    """

    what = "trees"

    def __init__(self, check: TreeCheck) -> None:
        self._check = check

    def names(self, round: Round) -> Iterable[str]:
        return [f"trees/{column}" for column in TREE_COLUMNS]

    def tensors(self, round: Round) -> Iterator[Named]:
        learner, trees = _written_down(self._check.trees(round), round.index)
        names = np.array(feature_names(round.model), np.str_)
        kinds = np.array(learner["feature_types"] or [""] * len(names), np.str_)
        first = round.index * len(trees)
        tables = [_table(first + place, tree, names, kinds) for place, tree in enumerate(trees)]
        for column in TREE_COLUMNS:
            yield f"trees/{column}", np.concatenate([table[column] for table in tables])


def _written_down(booster: Any, index: int) -> tuple[Any, list[Any]]:
    """The model, and the trees of one round, in the form that XGBoost saves them in.

    Not as it dumps them: what is not finite is not JSON there, and a deep tree nests too far.
    """
    try:
        # Only this round is taken out and written down, however many there are.
        learner = json.loads(booster[index : index + 1].save_raw("json"))["learner"]
        return learner, _model(learner)["trees"]
    except XGBoostError:
        # Trees of a model that is being updated can only be had all together.
        learner = json.loads(booster.save_raw("json"))["learner"]
        begin, end = _model(learner)["iteration_indptr"][index : index + 2]
        return learner, _model(learner)["trees"][begin:end]


def _model(learner: Any) -> Any:
    booster = learner["gradient_booster"]
    return (booster["gbtree"] if booster["name"] == "dart" else booster)["model"]


def _table(number: int, tree: Any, names: Array, kinds: Array) -> dict[str, Array]:
    """A tree with the columns of `Booster.trees_to_dataframe`."""
    if int(tree["tree_param"]["size_leaf_vector"]) > 1:
        raise NotAvailable("a leaf of these trees has several values (multi_output_tree)")
    left, right = np.array(tree["left_children"]), np.array(tree["right_children"])
    nodes = _reachable(left, right)
    left, right = left[nodes], right[nodes]
    leaf = left < 0
    feature = np.array(tree["split_indices"])[nodes]
    by_category = (np.array(tree["split_type"])[nodes] == 1) & ~leaf
    indicator = (kinds[feature] == "i") & ~leaf
    default = np.where(np.array(tree["default_left"])[nodes] == 1, left, right)
    # Where a split is no number, `yes` is the side of the categories, and of what is there.
    yes = np.where(by_category, right, left)
    yes = np.where(indicator, np.where(default == left, right, left), yes)
    no = np.where(yes == left, right, left)
    condition, gain, cover = (
        # As the single precision it has, not as the decimals it is written with.
        np.array(tree[key], np.float32)[nodes].astype(np.float64)
        for key in ("split_conditions", "loss_changes", "sum_hessian")
    )
    whole = np.where(kinds[feature] == "int", np.ceil(condition), condition)
    return {
        "Tree": np.full(len(nodes), number, np.int64),
        "Node": nodes,
        "ID": _identities(number, nodes),
        "Feature": np.where(leaf, "Leaf", names[feature]),
        "Split": np.where(leaf | by_category | indicator, np.nan, whole),
        "Yes": _identities(number, yes, leaf),
        "No": _identities(number, no, leaf),
        "Missing": _identities(number, default, leaf),
        "Gain": np.where(leaf, condition, gain),
        "Cover": cover,
        "Category": _categories(tree, nodes),
    }


def _reachable(left: Array, right: Array) -> Array:
    """The numbers of the nodes that are in use: pruning leaves others behind."""
    found, waiting = [], [0]
    while waiting:
        node = waiting.pop()
        found.append(node)
        if left[node] >= 0:
            waiting += [left[node], right[node]]
    return np.sort(np.array(found, np.int64))


def _identities(tree: int, nodes: Array, missing: Array | None = None) -> Array:
    found = np.array([f"{tree}-{node}" for node in nodes.tolist()], np.str_)
    return found if missing is None else np.where(missing, _NONE, found)


def _categories(tree: Any, nodes: Array) -> Array:
    """The categories of each split that goes by them, as `[1, 2]`."""
    places = zip(
        tree["categories_nodes"], tree["categories_segments"], tree["categories_sizes"],
        strict=True,
    )  # fmt: skip
    found = {node: str(tree["categories"][begin : begin + size]) for node, begin, size in places}
    return np.array([found.get(node, _NONE) for node in nodes.tolist()], np.str_)
