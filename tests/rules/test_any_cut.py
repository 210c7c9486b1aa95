"""Every built-in rule finds the same, however the steps of a run are cut into frames."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from smdebug.config.collection import Collection
from smdebug.config.collection_manager import CollectionManager
from smdebug.mode_keys import ModeKeys
from smdebug.reductions import REDUCTION_NAMES, compute_reductions
from smdebug.rules.registry import BUILTIN_RULES, make_rule
from smdebug.rules.rule_frames import frame_of_steps
from smdebug.storage.batch import Entry, StepBatch
from smdebug.testing.runs import make_run
from smdebug.trials import Trial, create_trial

if TYPE_CHECKING:
    from smdebug.storage.findings import Finding

TRAIN, EVAL = ModeKeys.TRAIN, ModeKeys.EVAL
GOLDEN = sorted(
    each.name
    for each in (Path(__file__).parents[1] / "golden").iterdir()
    if each.is_dir() and not each.name.startswith("damaged")
)
_NUMBERS = itertools.count()

# The parameters that a rule requires, or with which it has something to do in a short run.
PARAMETERS: dict[str, Any] = {
    "SimilarAcrossRuns": {},
    "LossNotDecreasing": {"num_steps": 3},
    "Overfit": {"patience": 1},
    "StalledTrainingRule": {"threshold": 1},
    "TensorVariance": {"tensor_regex": ".*", "max_threshold": 5.0, "min_threshold": 1e-9},
    "UnchangedTensor": {"tensor_regex": ".*"},
    "AllZero": {"tensor_regex": ".*"},
}
# It compares with another run, whose steps it reads by itself, and this one writes a report.
OTHERS = {"SimilarAcrossRuns", "CreateXgboostReport"}
RULES = sorted(set(BUILTIN_RULES) - OTHERS)


def findings(trial: Trial, name: str, cuts: list[int]) -> list[Finding]:
    """Return what a rule finds when the steps are cut before these places."""
    rule = make_rule((name, PARAMETERS.get(name, {})), trial)
    steps = trial.steps()
    found: list[Finding] = []
    for begin, end in itertools.pairwise(sorted({0, *cuts, len(steps)})):
        part = steps[begin:end]
        found += rule.evaluate(frame_of_steps(trial, part[0], part[-1] + 1, rule.reads))
    return [*found, *rule.finish()]


def check(trial: Trial, cuts: list[int]) -> None:
    last = len(trial.steps())
    for name in RULES:
        whole = findings(trial, name, [])
        assert findings(trial, name, list(range(last))) == whole, name
        assert findings(trial, name, [cut for cut in cuts if cut < last]) == whole, name


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_runs(name: str) -> None:
    trial = create_trial(str(Path(__file__).parents[1] / "golden" / name))
    check(trial, [3, 4])


# ---- random runs

NAMES = (
    "loss", "val_loss", "layer1.weight", "layer1.bias", "gradient/layer1.weight",
    "gradient/layer1.bias", "gradient/layer2.weight", "layer1_relu_output_0", "input_image",
    "labels", "predictions", "feature_importance/weight/f0", "feature_importance/weight/f1",
)  # fmt: skip


def collections() -> CollectionManager:
    return CollectionManager(
        [
            Collection("losses", include_regex="loss"),
            Collection("gradients", include_regex="^gradient/"),
            Collection("weights", include_regex=r"^layer.*weight"),
            Collection("biases", include_regex=r"^layer.*bias"),
            Collection("relu_output", include_regex="relu_output"),
            Collection("inputs", include_regex="input"),
            Collection("labels", include_regex="labels"),
            Collection("predictions", include_regex="predictions"),
            Collection("feature_importance", include_regex="feature_importance"),
        ]
    )


@st.composite
def runs(draw: st.DrawFn) -> dict[tuple[str, int], StepBatch]:
    """Draw a run in which tensors begin and end to be saved, vanish, explode and freeze."""
    steps = draw(st.integers(4, 30))
    seed = draw(st.integers(0, 2**32 - 1))
    random = np.random.default_rng(seed)
    chosen = draw(st.lists(st.sampled_from(NAMES), unique=True, min_size=2, max_size=8))
    # From which step on each is saved, how large it is, and from when it is something else.
    begins = {name: draw(st.sampled_from([0, 0, 3, 7])) for name in chosen}
    scale = {name: draw(st.sampled_from([1.0, 1e-9, 1e4, 0.0])) for name in chosen}
    changes = {name: draw(st.integers(0, steps)) for name in chosen}
    later = {name: draw(st.sampled_from([1.0, 1e-9, math.nan, math.inf, 0.0])) for name in chosen}
    evaluates = draw(st.integers(2, 9))
    reductions = draw(st.booleans())
    data, counts = {}, {TRAIN: itertools.count(), EVAL: itertools.count()}
    for step in range(steps):
        mode = EVAL if step % evaluates == evaluates - 1 else TRAIN
        entries = []
        for name in chosen:
            if step < begins[name]:
                continue
            factor = scale[name] if step < changes[name] else later[name]
            shape = () if "loss" in name else (3, 4)
            with np.errstate(all="ignore"):
                value = np.asarray(random.standard_normal(shape) * factor, np.float32)
            if name in ("labels", "predictions"):
                value = random.integers(0, 3, 12).astype(np.float32)
            numbers = compute_reductions(value, REDUCTION_NAMES) if reductions else {}
            raw = not reductions or value.size == 1
            entries.append(
                Entry(name, value if raw else None, numbers, value.shape, value.dtype.name)
            )
        if entries:
            data["worker_0", step] = StepBatch(
                step, mode, next(counts[mode]), entries, time=1e9 + step * random.exponential(9)
            )
    return data


@given(data=runs(), cuts=st.lists(st.integers(1, 29), max_size=4))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_random_runs(data: dict[tuple[str, int], StepBatch], cuts: list[int]) -> None:
    if not data:
        return
    url = f"memory://test_any_cut/{next(_NUMBERS)}"
    make_run(url, sorted({step for _, step in data}), data=data, collections=collections())
    check(create_trial(url), cuts)


def test_bias_before_its_weight() -> None:
    """A weight that is saved later says nothing about the steps before."""
    tiny = {"abs_mean": 1e-9, "zeros": 0.0}
    names = ["gradient/fc.bias", "gradient/fc.weight"]
    data = {
        ("worker_0", step): StepBatch(
            step, TRAIN, step,
            [Entry(name, None, tiny, (4,), "float32") for name in names[: 1 + (step >= 5)]],
        )
        for step in range(10)
    }  # fmt: skip
    url = f"memory://test_any_cut/{next(_NUMBERS)}"
    make_run(url, range(10), data=data, collections=collections())
    trial = create_trial(url)
    for cuts in ([], [5], list(range(10))):
        found = findings(trial, "VanishingGradient", cuts)
        assert [(each.step, each.tensor) for each in found] == [(0, names[0]), (5, names[1])]
