"""Models that rest on a few features."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from smdebug.config import validation
from smdebug.config.collection import CollectionKeys
from smdebug.config.rule_requirements import TensorRequirement
from smdebug.rules.rule import Rule
from smdebug.trials.frame import Column, Frame

if TYPE_CHECKING:
    from collections.abc import Iterable

    from smdebug.storage.findings import Finding
    from smdebug.trials.frame import Frame
    from smdebug.trials.trial import Trial

# The kind of importance; what follows is the name of a feature, which may have anything in it.
_KIND = re.compile(r"^(.*?feature_importance/[^/]+)/")
# Shares that are equal but for their rounding: 0.4 + 0.2 + 0.2 of a sum of 1.
_ROUNDING = 1e-9


class FeatureImportanceOverweight(Rule):
    """Fires when a few features have nearly all the importance.

    For each kind of importance (`feature_importance/weight/...`, `feature_importance/gain/...`) and
    at each round: the sum of the `nfeatures` largest importances, divided by the sum of all
    (XGBoost's sum to 1), is above `threshold`. Where no more than `nfeatures` features have any,
    their sum would be all of it: then it is the largest one by itself. Evaluation 0 says nothing: a
    single tree has room for few features, whatever the data.

    Args:
        base_trial: the trial to look at.
        threshold: the largest share that is well, 0 to 1.
        nfeatures: how many features are added up.
        tensor_regex: names of the importances, one number for each feature.
        action_str: what to do when it fires; see `Rule`.

    Example:
        >>> run_rules("/tmp/run", ["FeatureImportanceOverweight:nfeatures=1"])  # doctest: +SKIP
    """

    reads = ("sum",)

    def __init__(
        self,
        base_trial: Trial | None,
        threshold: Any = 0.8,
        nfeatures: Any = 3,
        tensor_regex: Any = ".*feature_importance/weight",
        action_str: Any = "",
    ) -> None:
        super().__init__(base_trial, action_str)
        self.threshold = validation.number("threshold", threshold, 0, 1)
        self.nfeatures = validation.whole_number("nfeatures", nfeatures, 1)
        self.importances = self.choose(None, tensor_regex)
        self._later_round = False

    def needs(self) -> tuple[TensorRequirement, ...]:
        """The importances, which are single numbers."""
        return (TensorRequirement(CollectionKeys.FEATURE_IMPORTANCE, raw=True),)

    def start_over(self) -> None:
        """Forgets that there were rounds."""
        super().start_over()
        self._later_round = False

    def check(self, frame: Frame) -> Iterable[Finding]:
        """Adds up the largest importances of every round."""
        table = self.read(frame, "sum", self.importances)
        later = table.steps > 0
        self._later_round = self._later_round or bool(later.any())
        present = table.present & later[:, None] & np.isfinite(table.values)
        numbers = np.where(present, table.values, 0.0)
        kinds = [Column(_kind(column.tensor), column.worker) for column in table.columns]
        columns = list(dict.fromkeys(kinds))
        shape = (len(table.steps), len(columns))
        shares, judged = np.full(shape, np.nan), np.zeros(shape, bool)
        for place, column in enumerate(columns):
            mine = [number for number, kind in enumerate(kinds) if kind == column]
            ordered = -np.sort(-numbers[:, mine], axis=1)
            total = ordered.sum(axis=1)
            several = present[:, mine].sum(axis=1) > self.nfeatures
            largest = np.where(several, ordered[:, : self.nfeatures].sum(axis=1), ordered[:, 0])
            judged[:, place] = total > 0
            shares[:, place] = largest / np.where(total > 0, total, 1.0)
        return self.findings_where(
            frame,
            table.with_values(shares, judged, columns),
            shares > self.threshold + _ROUNDING,
            lambda column, value: (
                f"{_features(self.nfeatures)} {value:.0%} of {column.tensor}, above "
                f"{self.threshold:.0%}: the model rests on few features, and one of them may give "
                "the answer away"
            ),
            self.threshold,
        )

    def missing(self) -> str:
        """Why nothing could be judged."""
        missing = super().missing()
        if missing or self._later_round:
            return missing
        return "only round 0 was saved, and a single tree says nothing about the features"


def _kind(tensor: str) -> str:
    found = _KIND.match(tensor)
    return found[1] if found else tensor.rpartition("/")[0] or tensor


def _features(count: int) -> str:
    return "one feature has" if count == 1 else f"{count} features or fewer have"
