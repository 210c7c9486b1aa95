"""FeatureImportanceOverweight: the share of the largest importances."""

from __future__ import annotations

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
from smdebug.rules.builtin.feature_importance_overweight import FeatureImportanceOverweight
from smdebug.trials.create import create_trial

if TYPE_CHECKING:
    from pathlib import Path

RULE = "FeatureImportanceOverweight"


def near(value: float) -> Any:
    """Compared but for rounding; Any, so that it may stand in a tuple."""
    return pytest.approx(value, abs=1e-9)


def importances(*shares: float, kind: str = "weight") -> dict[str, Any]:
    return {
        f"feature_importance/{kind}/f{number}": np.array([share])
        for number, share in enumerate(shares)
    }


def rounds(*each: dict[str, Any]) -> Run:
    """Evaluations from 1 on."""
    return {number: tensors for number, tensors in enumerate(each, 1)}


def test_three_features_have_nearly_everything(tmp_path: Path) -> None:
    even = importances(*[0.1] * 10)
    path = write(tmp_path, rounds(even, importances(0.5, 0.05, 0.3, 0.05, 0.1), even))
    (finding,) = findings(path, RULE)
    assert (finding.step, finding.tensor) == (2, "feature_importance/weight")
    assert (finding.value, finding.threshold) == (near(0.9), 0.8)
    assert finding.message == (
        "3 features or fewer have 90% of feature_importance/weight, above 80%: the model rests "
        "on few features, and one of them may give the answer away"
    )


@pytest.mark.parametrize(
    "shares", [(0.4, 0.2, 0.2, 0.2), (0.1, 0.1, 0.6, 0.1, 0.1), (0.3, 0.3, 0.2, 0.2)]
)
def test_exactly_the_threshold_is_well(tmp_path: Path, shares: tuple[float, ...]) -> None:
    assert sum(sorted(shares)[-3:]) == near(0.8)
    path = write(tmp_path, rounds(importances(*shares)))
    assert findings(path, RULE) == []
    assert len(findings(path, f"{RULE}:threshold=0.7999")) == 1


def test_of_no_more_features_than_are_added_up_the_largest_counts(tmp_path: Path) -> None:
    path = write(tmp_path, rounds(importances(0.5, 0.3, 0.2)))
    assert outcome(path, RULE).status == "passed"
    assert len(findings(path, f"{RULE}:nfeatures=2,threshold=0.7")) == 1
    # A feature that is the answer: no tree has room for another.
    alone = write(tmp_path / "alone", rounds(importances(0.5, 0.5), importances(1.0)))
    assert [(each.step, each.value) for each in findings(alone, RULE)] == [(2, 1.0)]


def test_the_first_tree_says_nothing(tmp_path: Path) -> None:
    lopsided, even = importances(0.5, 0.3, 0.1, 0.1), importances(*[0.1] * 10)
    assert findings(write(tmp_path / "even", {0: lopsided, 10: even}), RULE) == []
    found = outcome(write(tmp_path / "only", {0: lopsided}), RULE)
    assert (found.status, "only round 0" in found.message) == ("could not run", True)


def test_features_may_come_and_go(tmp_path: Path) -> None:
    # A feature that is not in the trees is not saved.
    few = {**importances(0.6, 0.2, 0.1), "feature_importance/weight/late": np.array([0.1])}
    path = write(tmp_path, rounds(importances(0.5, 0.5), importances(*[0.125] * 8), few))
    assert [each.step for each in findings(path, RULE)] == [3]


def test_random_importances(tmp_path: Path) -> None:
    random = np.random.default_rng(4)
    run, expected, held = {}, [], False
    for step in range(1, 60):
        shares = random.dirichlet(np.full(int(random.integers(2, 12)), 0.4))
        run[step] = importances(*shares)
        count = 3 if len(shares) > 3 else 1
        now = float(np.sort(shares.astype(np.float64))[::-1][:count].sum()) > 0.8
        if now and not held:
            expected.append(step)
        held = now
    assert len(expected) > 3
    assert [each.step for each in findings(write(tmp_path, run), RULE)] == expected


def test_importances_that_do_not_sum_to_one(tmp_path: Path) -> None:
    path = write(tmp_path, rounds(importances(50, 30, 10, 10), importances(25, 25, 25, 25)))
    (finding,) = findings(path, RULE)
    assert (finding.step, finding.value) == (1, near(0.9))


def test_kinds_of_importance_are_apart(tmp_path: Path) -> None:
    lopsided = importances(0.6, 0.2, 0.1, 0.1, kind="gain")
    path = write(tmp_path, rounds({**importances(*[0.1] * 10), **lopsided}))
    assert findings(path, RULE) == []
    found = findings(path, f"{RULE}:tensor_regex=feature_importance/")
    assert [each.tensor for each in found] == ["feature_importance/gain"]


def test_features_with_slashes_in_their_names(tmp_path: Path) -> None:
    names = ["a/b", "a/c", "d", "e/f/g"]
    run = rounds({f"feature_importance/weight/{name}": np.array([0.25]) for name in names})
    (finding,) = findings(write(tmp_path, run), f"{RULE}:threshold=0.7")
    assert (finding.tensor, finding.value) == ("feature_importance/weight", 0.75)


def test_each_worker_is_told(tmp_path: Path) -> None:
    run = {f"worker_{number}": rounds(importances(0.7, 0.1, 0.1, 0.1)) for number in range(2)}
    found = findings(write(tmp_path, run), RULE)
    assert [each.worker for each in found] == ["worker_0", "worker_1"]


def test_parameters_and_needs() -> None:
    rule = FeatureImportanceOverweight(None, "0.5", "2", ".*gain")
    assert (rule.threshold, rule.nfeatures, rule.importances.regexes) == (0.5, 2, [".*gain"])
    assert [need.collection for need in rule.needs()] == ["feature_importance"]


@pytest.mark.parametrize(
    "given", [{"threshold": 2}, {"threshold": "x"}, {"nfeatures": 0}, {"tensor_regex": "("}]
)
def test_bad_parameters(given: dict[str, Any]) -> None:
    with pytest.raises(SMDebugValueError, match=next(iter(given))):
        FeatureImportanceOverweight(None, **given)


def test_in_one_piece_and_step_by_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bad, good = importances(0.6, 0.2, 0.1, 0.1), importances(*[0.2] * 5)
    run = rounds(good, bad, bad, good, bad)
    modes = dict.fromkeys(run, GLOBAL)
    path = write(tmp_path / "whole", run, modes=modes)
    whole = findings(path, RULE)
    assert [each.step for each in whole] == [2, 5]
    assert found_in_looks(tmp_path / "live", run, RULE, modes=modes) == whole
    monkeypatch.setattr("smdebug.rules.rule_frames.MAX_ROWS", 1)
    assert findings(path, RULE) == whole
    assert invoked(FeatureImportanceOverweight(create_trial(path))) == [2, 3, 5]


def test_could_not_run(tmp_path: Path) -> None:
    path = write(tmp_path, rounds({"train-auc": np.array([0.5])}))
    found = outcome(path, RULE)
    assert found.status == "could not run"
    assert "no tensors that match .*feature_importance/weight" in found.message
    with pytest.raises(InsufficientInformationForRuleInvocation, match=RULE):
        invoke_rule(FeatureImportanceOverweight(create_trial(path)))
