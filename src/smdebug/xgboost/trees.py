"""What a model consists of: how important its features are, and the trees of a round."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from smdebug.xgboost.naming import TREE_COLUMNS, feature_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from smdebug.reductions import Array
    from smdebug.xgboost.source import Round

_NONE = "nan"
_TEXT = frozenset({"ID", "Feature", "Yes", "No", "Missing", "Category"})
_WHOLE = frozenset({"Tree", "Node"})


class FeatureImportance:
    """One kind of importance, as `feature_importance/<kind>/<feature>`; they sum to 1.

    Args:
        kind: the kind, as `Booster.get_score` calls it.
    """

    what = "feature_importance"

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def names(self, round: Round) -> Iterable[str]:
        features = [""] if round.booster is None else feature_names(round.booster)
        return [f"{self.what}/{self._kind}/{feature}" for feature in features]

    def tensors(self, round: Round) -> Iterator[tuple[str, Array]]:
        scores = round.trees.get_score(importance_type=self._kind)
        total = sum(scores.values())
        for feature, score in scores.items():
            # A model of roots only has features without any gain.
            yield f"{self.what}/{self._kind}/{feature}", np.array([score / total if total else 0.0])


class Trees:
    """The nodes of the trees of a round, as `trees/<column>`."""

    what = "trees"

    def names(self, round: Round) -> Iterable[str]:
        return [f"trees/{column}" for column in TREE_COLUMNS]

    def tensors(self, round: Round) -> Iterator[tuple[str, Array]]:
        # Only this round is taken out and written down, however many there are.
        texts = round.trees[round.index : round.index + 1].get_dump(
            dump_format="json", with_stats=True
        )
        first = round.index * len(texts)
        nodes = [
            _row(first + place, node)
            for place, text in enumerate(texts)
            for node in _nodes(json.loads(text))
        ]
        for column, values in zip(TREE_COLUMNS, zip(*nodes, strict=True), strict=True):
            kind: Any = np.str_ if column in _TEXT else np.float64
            yield f"trees/{column}", np.array(values, np.int64 if column in _WHOLE else kind)


class _Node(NamedTuple):
    """A row of the table, with the columns of `Booster.trees_to_dataframe`."""

    tree: int
    node: int
    identity: str
    feature: str
    split: float
    yes: str
    no: str
    missing: str
    gain: float
    cover: float
    category: str


def _nodes(root: dict[str, Any]) -> list[dict[str, Any]]:
    """All nodes of a tree by number."""
    found, waiting = [], [root]
    while waiting:
        node = waiting.pop()
        found.append(node)
        waiting += node.get("children", ())
    return sorted(found, key=lambda node: node["nodeid"])


def _row(tree: int, node: dict[str, Any]) -> _Node:
    number, cover = node["nodeid"], node["cover"]
    identity = f"{tree}-{number}"
    if "leaf" in node:
        return _Node(
            *(tree, number, identity, "Leaf", np.nan, _NONE, _NONE, _NONE),
            *(node["leaf"], cover, _NONE),
        )
    condition = node.get("split_condition", np.nan)
    by_category = isinstance(condition, list)
    yes, no = node["yes"], node["no"]
    return _Node(
        tree,
        number,
        identity,
        node["split"],
        np.nan if by_category else condition,
        f"{tree}-{yes}",
        f"{tree}-{no}",
        # An indicator has no value that could be missing.
        f"{tree}-{node.get('missing', yes)}",
        node["gain"],
        cover,
        str(condition) if by_category else _NONE,
    )
