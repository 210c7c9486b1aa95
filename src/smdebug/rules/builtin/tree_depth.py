"""Trees that grow deep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from smdebug.config import validation
from smdebug.config.collection import CollectionKeys
from smdebug.config.rule_requirements import TensorRequirement
from smdebug.rules.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterable

    from smdebug.storage.findings import Finding
    from smdebug.trials.frame import Frame
    from smdebug.trials.trial import Trial

_NODES = r"^trees/Node$"


class TreeDepth(Rule):
    """Fires when the tree of a round reaches a depth, which makes it likely to overfit.

    A tree reaches `depth` when `log2(largest node id) >= depth`. XGBoost numbers the nodes level by
    level: the root is 0, its children 1 and 2, theirs 3 to 6. Level `d` begins with the nodes
    `2**d - 1` and `2**d`, which always come together, so a tree without gaps fires exactly when it
    has a node on level `depth`: a full tree of depth 3 has 14 as its largest id and does not reach
    4; one pair of nodes more (15 and 16) does. XGBoost leaves no numbers out where a node was not
    split, so a narrow tree is deeper than the formula says, and is reported later. A tree that is
    only a root has depth 0.

    XGBoost's own default is `max_depth=6`: with the default of 4 the rule fires in most such runs.

    Args:
        base_trial: the trial to look at.
        depth: the depth that no tree should reach.
        action_str: what to do when it fires; see `Rule`.

    Example:
        >>> run_rules("/tmp/run", ["TreeDepth:depth=8"])  # doctest: +SKIP
    """

    reads = ("max",)

    def __init__(self, base_trial: Trial | None, depth: Any = 4, action_str: Any = "") -> None:
        super().__init__(base_trial, action_str)
        self.depth = validation.whole_number("depth", depth, 1)
        self.nodes = self.choose(None, _NODES)

    def needs(self) -> tuple[TensorRequirement, ...]:
        """The largest node id of each round."""
        return (TensorRequirement(CollectionKeys.TREES, reductions=("max",)),)

    def check(self, frame: Frame) -> Iterable[Finding]:
        """Compares the depth of the tree of every round."""
        table = self.read(frame, "max", self.nodes)
        depths = np.log2(np.maximum(table.values, 1))
        return self.findings_where(
            frame,
            table,
            depths >= self.depth,
            lambda _, value: (
                f"the tree of this round is {int(value)} levels deep and reaches the depth "
                f"{self.depth}; deep trees learn single rows by heart"
            ),
            self.depth,
            values=depths,
        )
