"""NLPSequenceRatio: the share of tokens over the last steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.rules.tensor_runs import (
    EVAL,
    Run,
    collections,
    findings,
    found_in_looks,
    invoked,
    outcome,
    write,
)

from smdebug.exceptions import InsufficientInformationForRuleInvocation, SMDebugValueError
from smdebug.rules import invoke_rule
from smdebug.rules.builtin.nlp_sequence_ratio import NLPSequenceRatio
from smdebug.trials.create import create_trial

if TYPE_CHECKING:
    from pathlib import Path

NAME = "embedding0_input_0"


def near(value: float) -> Any:
    """Compared but for rounding; Any, so that it may stand in a tuple."""
    return pytest.approx(value, abs=1e-9)


def tokens(size: int, **counts: int) -> Any:
    """Sequences of words from 1000 on, some of which are other tokens: `t0=5` is five times 0."""
    random = np.random.default_rng(size)
    row = random.integers(1000, 9000, size)
    place = 0
    for name, count in counts.items():
        row[place : place + count] = int(name[1:])
        place += count
    return random.permutation(row).reshape(10, -1)


@pytest.mark.parametrize("saves", [None, ["zeros"]])
def test_a_share_above_the_limit(tmp_path: Path, saves: Any) -> None:
    run = {
        0: {NAME: tokens(1000, t0=500)},
        1: {NAME: tokens(1000, t0=501)},
        2: {NAME: tokens(1000)},
    }
    path = write(tmp_path, run, saves)
    (finding,) = findings(path, "NLPSequenceRatio")
    assert (finding.step, finding.tensor, finding.worker) == (1, NAME, None)
    assert (finding.value, finding.threshold) == (near(50.1), 50)
    assert finding.message == (
        f"50.1 % of the last 1000 tokens in {NAME} are the token 0, above 50 %: much work goes "
        "into a token that says little"
    )


@pytest.mark.parametrize("saves", [None, ["zeros"]])
def test_small_batches_are_judged_together(tmp_path: Path, saves: Any) -> None:
    # 100 tokens a step; what is judged are the last ten steps.
    counts = [90, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, *[60] * 10]
    run = {step: {NAME: tokens(100, t0=count)} for step, count in enumerate(counts)}
    shares = [sum(counts[max(step - 9, 0) : step + 1]) / 10 for step in range(len(counts))]
    expected = next(step for step in range(9, len(counts)) if shares[step] > 50)
    (finding,) = findings(write(tmp_path, run, saves), "NLPSequenceRatio")
    assert (finding.step, finding.value) == (expected, near(shares[expected]))


def test_several_tokens_with_limits_of_their_own(tmp_path: Path) -> None:
    run = {
        0: {NAME: tokens(1000, t0=400, t100=200)},
        1: {NAME: tokens(1000, t0=410, t100=200)},
        2: {NAME: tokens(1000, t0=400, t100=201)},
    }
    path = write(tmp_path, run)
    rule = ("NLPSequenceRatio", {"token_values": "0, 100", "token_thresholds_percent": "40,20,7"})
    found = [(each.step, each.value, each.threshold) for each in findings(path, rule)]
    assert found == [(1, near(41.0), 40), (2, near(20.1), 20)]


@pytest.mark.parametrize(
    ("given", "limits"),
    [
        ({}, {0: 50}),
        ({"token_values": 3, "token_thresholds_percent": 10}, {3: 10}),
        ({"token_values": [0, -1], "token_thresholds_percent": ["1", "2.5"]}, {0: 1, -1: 2.5}),
    ],
)
def test_parameters(given: dict[str, Any], limits: dict[float, float]) -> None:
    assert NLPSequenceRatio(None, **given).limits == limits


@pytest.mark.parametrize(
    "given",
    [
        {"token_values": "0,1,2"},
        {"token_values": ""},
        {"token_values": "pad"},
        {"token_values": None},
        {"token_thresholds_percent": "101"},
        {"token_thresholds_percent": ""},
        {"tensor_regex": "("},
    ],
)
def test_bad_parameters(given: dict[str, Any]) -> None:
    with pytest.raises(SMDebugValueError, match=next(iter(given))):
        NLPSequenceRatio(None, **given)


def test_needs() -> None:
    (need,) = NLPSequenceRatio(None, ".*tokens").needs()
    assert (need.collection, need.reductions, need.raw) == ("input_sequence", ("zeros",), False)
    assert (need.layers, need.tensor, need.include_regex) == (
        ("embedding",), "input", (".*tokens",),
    )  # fmt: skip
    (need,) = NLPSequenceRatio(None, token_values="0,1").needs()
    assert (need.reductions, need.raw) == ((), True)


def test_embeddings_of_what_is_no_text_are_left_out(tmp_path: Path) -> None:
    names = [
        "emb.token_type_embeddings_input_0",
        "emb.position_embeddings_input_0",
        "emb.word_input_0",
    ]
    run: Run = {0: {name: np.zeros((10, 100), np.int64) for name in names}}
    path = write(tmp_path, run, manager=collections(input_sequence=names))
    assert [each.tensor for each in findings(path, "NLPSequenceRatio")] == ["emb.word_input_0"]
    rule = "NLPSequenceRatio:tensor_regex=token_type"
    assert [each.tensor for each in findings(path, rule)] == [names[0], names[2]]


def test_modes_are_apart(tmp_path: Path) -> None:
    run = {step: {NAME: tokens(500, t0=400 if step % 2 else 50)} for step in range(8)}
    path = write(tmp_path, run, modes={step: EVAL for step in range(1, 8, 2)})
    (finding,) = findings(path, "NLPSequenceRatio")
    assert (finding.step, finding.mode, finding.value) == (3, EVAL, near(80))


@pytest.mark.parametrize("rule", ["NLPSequenceRatio", "NLPSequenceRatio:token_values=0,7"])
def test_tokens_of_all_workers_are_counted_together(tmp_path: Path, rule: str) -> None:
    run = {
        f"worker_{number}": {step: {NAME: tokens(500, t0=300 * number)} for step in range(3)}
        for number in range(2)
    }
    path = write(tmp_path, run)
    assert findings(path, rule) == []
    (finding,) = findings(path, rule + ",token_thresholds_percent=29,50" if ":" in rule
                          else rule + ":token_thresholds_percent=29")  # fmt: skip
    assert (finding.step, finding.value) == (0, near(30))


@pytest.mark.parametrize("saves", [None, ["zeros"]])
def test_in_one_piece_and_step_by_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, saves: Any
) -> None:
    counts = [10, 60, 60, 60, 10, 10, 10, 10, 80, 80, 80, 80]
    run = {step: {NAME: tokens(400, t0=4 * count)} for step, count in enumerate(counts)}
    path = write(tmp_path / "whole", run, saves)
    whole = findings(path, "NLPSequenceRatio")
    assert len(whole) == 2
    assert found_in_looks(tmp_path / "live", run, "NLPSequenceRatio", saves) == whole
    monkeypatch.setattr("smdebug.rules.rule_frames.MAX_ROWS", 1)
    assert findings(path, "NLPSequenceRatio") == whole


def test_invoked_at_each_step(tmp_path: Path) -> None:
    run = {step: {NAME: tokens(1000, t0=600 if step in (2, 3) else 0)} for step in range(6)}
    rule = NLPSequenceRatio(create_trial(write(tmp_path, run)))
    assert invoked(rule) == [2, 3]
    rule.start_over()
    assert invoked(rule) == [2, 3]


@pytest.mark.parametrize(
    ("tensors", "rule", "saves", "said"),
    [
        ({"weight": np.ones(3)}, "NLPSequenceRatio", None, "no tensors of the collection input"),
        ({NAME: tokens(300)}, "NLPSequenceRatio", None, "fewer than 1000 tokens"),
        (
            {NAME: tokens(2000)}, "NLPSequenceRatio:token_values=1", ["zeros"],
            "saved without the tensors themselves",
        ),
        ({NAME: tokens(2000)}, "NLPSequenceRatio", ["mean"], "saved without zeros"),
    ],
)  # fmt: skip
def test_could_not_run(
    tmp_path: Path, tensors: dict[str, Any], rule: str, saves: Any, said: str
) -> None:
    found = outcome(write(tmp_path, {0: tensors}, saves), rule)
    assert found.status == "could not run"
    assert said in found.message


def test_invoking_it_without_sequences_raises(tmp_path: Path) -> None:
    path = write(tmp_path, {0: {"weight": np.ones(3)}})
    with pytest.raises(InsufficientInformationForRuleInvocation, match="NLPSequenceRatio"):
        invoke_rule(NLPSequenceRatio(create_trial(path)))
