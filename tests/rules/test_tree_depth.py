"""TreeDepth: the depth of trees by the largest number of their nodes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.rules.tensor_runs import (
    GLOBAL,
    Run,
    findings,
    found_in_looks,
    invoked,
    outcome,
    write,
)

from smdebug.exceptions import InsufficientInformationForRuleInvocation, SMDebugValueError
from smdebug.rules import invoke_rule
from smdebug.rules.builtin.tree_depth import TreeDepth
from smdebug.trials.create import create_trial

if TYPE_CHECKING:
    from pathlib import Path


def full_tree(depth: int) -> Any:
    """The nodes of a full tree, numbered level by level."""
    nodes, level = [0], [0]
    for _ in range(depth):
        level = [child for node in level for child in (2 * node + 1, 2 * node + 2)]
        nodes += level
    return np.array(nodes, np.int64)


def rounds(*trees: Any) -> Run:
    """Evaluations of trees, with what else XGBoost says of them."""
    return {
        step: {
            "trees/Node": nodes,
            "trees/Tree": np.full(len(nodes), step),
            "trees/Feature": np.array(["f0"] * len(nodes)),
        }
        for step, nodes in enumerate(trees)
    }


@pytest.mark.parametrize("saves", [None, ["max"]])
@pytest.mark.parametrize("depth", range(1, 7))
@pytest.mark.parametrize("limit", [1, 3, 4, "6"])
def test_a_full_tree_fires_from_its_own_depth_on(
    tmp_path: Path, depth: int, limit: Any, saves: Any
) -> None:
    run = {0: {"trees/Node": full_tree(depth)}}
    found = findings(write(tmp_path, run, saves), {"rule": "TreeDepth", "depth": limit})
    assert bool(found) == (depth >= int(limit))


def test_what_is_said(tmp_path: Path) -> None:
    (finding,) = findings(write(tmp_path, rounds(full_tree(3), full_tree(4))), "TreeDepth")
    assert (finding.step, finding.tensor, finding.threshold) == (1, "trees/Node", 4)
    assert finding.value == pytest.approx(math.log2(30))
    assert finding.message == (
        "the tree of this round is 4 levels deep and reaches the depth 4; deep trees learn single "
        "rows by heart"
    )


@pytest.mark.parametrize(("largest", "fires"), [(14, False), (15, False), (16, True), (17, True)])
def test_the_formula_at_its_limit(tmp_path: Path, largest: int, fires: bool) -> None:
    assert (math.log2(largest) >= 4) == fires
    run = rounds(np.arange(largest + 1))
    assert bool(findings(write(tmp_path, run), "TreeDepth")) == fires


def test_a_tree_that_is_a_root(tmp_path: Path) -> None:
    path = write(tmp_path, rounds(np.array([0]), np.array([0, 1, 2])))
    assert outcome(path, "TreeDepth:depth=2").status == "passed"
    assert [each.step for each in findings(path, "TreeDepth:depth=1")] == [1]


def test_in_one_piece_and_step_by_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = rounds(*(full_tree(depth) for depth in (2, 5, 5, 3, 4)))
    modes = dict.fromkeys(run, GLOBAL)
    path = write(tmp_path / "whole", run, modes=modes)
    whole = findings(path, "TreeDepth")
    assert [each.step for each in whole] == [1, 4]
    assert found_in_looks(tmp_path / "live", run, "TreeDepth", modes=modes) == whole
    monkeypatch.setattr("smdebug.rules.rule_frames.MAX_ROWS", 1)
    assert findings(path, "TreeDepth") == whole
    assert invoked(TreeDepth(create_trial(path))) == [1, 2, 4]


def test_parameters_and_needs() -> None:
    rule = TreeDepth(None, "5")
    assert rule.depth == 5
    (need,) = rule.needs()
    assert (need.collection, need.reductions) == ("trees", ("max",))


@pytest.mark.parametrize("depth", [0, -3, "deep", None, True])
def test_bad_parameters(depth: Any) -> None:
    with pytest.raises(SMDebugValueError, match="depth"):
        TreeDepth(None, depth)


def test_could_not_run(tmp_path: Path) -> None:
    path = write(tmp_path, {0: {"train-auc": np.array([0.5]), "trees/Nodes": np.arange(40)}})
    found = outcome(path, "TreeDepth")
    assert found.status == "could not run"
    assert "no tensors that match ^trees/Node$" in found.message
    with pytest.raises(InsufficientInformationForRuleInvocation, match="TreeDepth"):
        invoke_rule(TreeDepth(create_trial(path)))
