"""CheckInputImages: the means of channels over many images."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
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
from smdebug.rules.builtin.check_input_images import CheckInputImages
from smdebug.trials.create import create_trial

if TYPE_CHECKING:
    from pathlib import Path

NAME = "hybridsequential0_input_0"


def near(value: float) -> Any:
    """Compared but for rounding; Any, so that it may stand in a tuple."""
    return pytest.approx(value, abs=1e-9)


def images(count: int, *means: float, seed: int = 0) -> Any:
    """Images whose channels have exactly these means."""
    noise = np.random.default_rng(seed).standard_normal((count, len(means), 4, 4))
    noise -= noise.mean(axis=(2, 3), keepdims=True)
    return (noise + np.reshape(means, (1, -1, 1, 1))).astype(np.float64)


def batches(steps: int, count: int, *means: float) -> Run:
    return {step: {NAME: images(count, *means, seed=step)} for step in range(steps)}


def test_images_that_are_not_normalised(tmp_path: Path) -> None:
    path = write(tmp_path, batches(8, 100, 0.0, -0.45, 0.4))
    (finding,) = findings(path, "CheckInputImages")
    assert (finding.step, finding.tensor, finding.worker) == (4, NAME, None)
    assert finding.value == near(-0.45)
    assert finding.threshold == 0.2
    assert finding.message == (
        f"the images in {NAME} are not normalised: channel 1 has a mean of -0.45 over 500 images, "
        "further from 0 than 0.2"
    )


def test_the_mean_must_be_above_the_threshold(tmp_path: Path) -> None:
    # Halves are exact, whatever the order of adding them up.
    run = {step: {NAME: np.full((100, 1, 2, 2), 0.25)} for step in range(5)}
    path = write(tmp_path, run)
    assert findings(path, "CheckInputImages:threshold_mean=0.25") == []
    assert len(findings(path, "CheckInputImages:threshold_mean=0.2499")) == 1


def test_samples_are_counted_to_the_image(tmp_path: Path) -> None:
    path = write(tmp_path, batches(4, 10, 1.0))
    for samples, steps in ((10, [0]), ("11", [1]), (40, [3])):
        rule = {"rule": "CheckInputImages", "threshold_samples": samples}
        assert [each.step for each in findings(path, rule)] == steps
    found = outcome(path, "CheckInputImages:threshold_samples=41")
    assert (found.status, found.message) == (
        "could not run",
        "40 images were saved, and 41 are needed: save them more often, or lower threshold_samples",
    )


def test_normalised_images_are_not_reported(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    run: Run = {
        step: {NAME: (random.standard_normal((64, 3, 8, 8)) * 1.1 + 0.05).astype(np.float32)}
        for step in range(20)
    }
    assert outcome(write(tmp_path, run), "CheckInputImages").status == "passed"


def test_single_dark_batches_do_not_count(tmp_path: Path) -> None:
    run = {step: {NAME: images(100, 0.5 if step == 6 else 0.0)} for step in range(10)}
    assert findings(write(tmp_path, run), "CheckInputImages") == []


@pytest.mark.parametrize(
    ("dtype", "scale"), [(np.uint8, 1), (np.float16, 1), (ml_dtypes.bfloat16, 1), (np.int32, -1)]
)
def test_every_type_of_number(tmp_path: Path, dtype: Any, scale: int) -> None:
    run = {step: {NAME: np.full((100, 3, 2, 2), 120 * scale).astype(dtype)} for step in range(5)}
    (finding,) = findings(write(tmp_path, run), "CheckInputImages")
    assert finding.value == 120 * scale


def test_channels_may_be_the_last_axis(tmp_path: Path) -> None:
    run = {step: {NAME: np.moveaxis(images(100, 0.0, 0.0, 0.9), 1, 3)} for step in range(5)}
    path = write(tmp_path, run)
    (finding,) = findings(path, "CheckInputImages:channel=3")
    assert "channel 2 has a mean of 0.9" in finding.message


def test_images_with_numbers_that_are_not_finite_are_left_out(tmp_path: Path) -> None:
    def spoilt(step: int) -> Any:
        array = images(100, 0.3, seed=step)
        array[0, 0, 1, 1], array[1, 0, 0, 0] = np.nan, np.inf
        return array

    path = write(tmp_path, {step: {NAME: spoilt(step)} for step in range(8)})
    (finding,) = findings(path, "CheckInputImages")
    assert (finding.step, finding.value) == (5, near(0.3))


def test_modes_are_apart(tmp_path: Path) -> None:
    run = {step: {NAME: images(100, 0.4 if step % 2 else 0.0)} for step in range(10)}
    path = write(tmp_path, run, modes={step: EVAL for step in range(1, 10, 2)})
    (finding,) = findings(path, "CheckInputImages")
    assert (finding.step, finding.mode) == (9, EVAL)


def test_images_of_all_workers_are_added_up(tmp_path: Path) -> None:
    run = {
        f"worker_{number}": {step: {NAME: images(50, 0.6 * number)} for step in range(5)}
        for number in range(2)
    }
    (finding,) = findings(write(tmp_path, run), "CheckInputImages")
    assert (finding.step, finding.value) == (4, near(0.3))


def test_the_collection(tmp_path: Path) -> None:
    run = {step: {"Net_input_0": images(100, 1.0)} for step in range(5)}
    path = write(tmp_path, run, manager=collections(input_image=["Net_input_0"]))
    assert [each.tensor for each in findings(path, "CheckInputImages")] == ["Net_input_0"]


def test_needs() -> None:
    (need,) = CheckInputImages(None, "0.1", "20", ".*x", "2").needs()
    assert (need.collection, need.raw, need.include_regex) == ("input_image", True, (".*x",))
    assert (need.layers, need.tensor, need.index, need.saves) == (("model",), "input", 0, 4)


@pytest.mark.parametrize(
    "given",
    [
        {"threshold_mean": -1},
        {"threshold_samples": 0},
        {"channel": 0},
        {"channel": 4},
        {"channel": "c"},
        {"regex": "["},
    ],
)
def test_bad_parameters(given: dict[str, Any]) -> None:
    with pytest.raises(SMDebugValueError, match=next(iter(given))):
        CheckInputImages(None, **given)


def test_in_one_piece_and_step_by_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = batches(8, 100, 0.3, 0.1)
    path = write(tmp_path / "whole", run)
    whole = findings(path, "CheckInputImages")
    assert len(whole) == 1
    assert found_in_looks(tmp_path / "live", run, "CheckInputImages") == whole
    monkeypatch.setattr("smdebug.rules.rule_frames.MAX_ROWS", 1)
    assert findings(path, "CheckInputImages") == whole
    rule = CheckInputImages(create_trial(path))
    assert invoked(rule) == [4, 5, 6, 7]
    rule.start_over()
    assert invoked(rule) == [4, 5, 6, 7]


@pytest.mark.parametrize(
    ("tensors", "said"),
    [
        ({"weight": np.ones((2, 3, 4, 4))}, "no tensors of the collection input_image"),
        ({NAME: np.ones((600, 20))}, f"{NAME} has the shape (600, 20): no images, which have four"),
        ({NAME: np.ones((0, 3, 2, 2))}, "has the shape (0, 3, 2, 2)"),
    ],
)
def test_could_not_run(tmp_path: Path, tensors: dict[str, Any], said: str) -> None:
    path = write(tmp_path, {0: tensors})
    found = outcome(path, "CheckInputImages")
    assert found.status == "could not run"
    assert said in found.message
    with pytest.raises(InsufficientInformationForRuleInvocation, match="CheckInputImages"):
        invoke_rule(CheckInputImages(create_trial(path)))
