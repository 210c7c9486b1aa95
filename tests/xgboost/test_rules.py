"""Rules over real training with and without faults, and how they stop it."""

from __future__ import annotations

import json
import math
import queue
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from html.parser import HTMLParser
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import xgboost
from tests.xgboost.data import BINARY, features, labels, matrix, train
from xgboost.callback import EarlyStopping, TrainingCallback

import smdebug.xgboost as smd
from smdebug.exceptions import SMDebugValueError
from smdebug.hook.rules.stop_listener import LOCAL_SECONDS
from smdebug.rules import rule_names, run_rules
from smdebug.storage.stop_requests import StopRequest, write_stop
from smdebug.storage.stores.base import open_store
from smdebug.trials import create_trial

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from smdebug.reductions import Array
    from smdebug.rules import Outcome
    from smdebug.trials.trial import Trial

PROGRAMS = Path(__file__).parent / "programs"
ROOT = Path(__file__).parents[2]
EVERY = smd.SaveConfig(save_interval=1)
REGRESSION = {"objective": "reg:squarederror", "max_depth": 3, "nthread": 1, "base_score": 0.0}
# More than a test can wait for: such training ends only because it is stopped.
MANY = 1_000_000
# A hang is a failure, not a wait.
TIMEOUT = 40
COLUMNS = 20
CHEAP = ["losses", "labels", "predictions", "feature_importance", "trees"]


@dataclass
class Fault:
    """A training run: its arguments, besides the rules."""

    data: Callable[[], Any]
    params: dict[str, Any] = field(default_factory=lambda: BINARY)
    rounds: int = 25
    validation: Callable[[], Any] | None = None
    options: dict[str, Any] = field(default_factory=dict)

    def run(self, hook: Callable[..., Any]) -> Any:
        """Trains with the hook that is made for the data; returns booster and hook."""
        data = self.data()
        validation = data if self.validation is None else self.validation()
        made = hook(
            train_data=data, validation_data=validation, hyperparameters=self.params
        )  # fmt: skip
        evals = [(data, "train"), (validation, "validation")]
        booster = train(made, self.rounds, self.params, data=data, evals=evals, **self.options)
        if made is not None:
            made.close()
        return booster, made, validation


def wide(rows: int = 600, seed: int = 3) -> Array:
    values: Array = np.random.default_rng(seed).normal(size=(rows, COLUMNS)).astype(np.float32)
    return values


def of_all_columns(rows: int = 600, seed: int = 3) -> Any:
    """The answer is in all of the columns."""
    values = wide(rows, seed)
    weights = np.linspace(1, 2, COLUMNS) * np.where(np.arange(COLUMNS) % 2, 1, -1)
    return xgboost.DMatrix(values, values @ weights > 0)


def of_one_column(noise: float) -> Callable[[], Any]:
    """One column gives the answer away, more or less."""

    def make() -> Any:
        random = np.random.default_rng(5)
        values, answer = wide(), random.integers(0, 2, 600)
        values[:, 7] = answer + noise * random.normal(size=600)
        return xgboost.DMatrix(values, answer)

    return make


def with_labels(make: Callable[[Array], Array], seed: int = 3) -> Callable[[], Any]:
    def matrix_of() -> Any:
        values = wide(seed=seed)
        return xgboost.DMatrix(values, make(values))

    return matrix_of


def rare(values: Array) -> Array:
    found: Array = (values[:, 0] > 1.7).astype(np.float32)
    return found


def easy(values: Array) -> Array:
    found: Array = (values[:, 0] > 0).astype(np.float32)
    return found


def shuffled(values: Array) -> Array:
    found: Array = np.random.default_rng(0).permutation(easy(values))
    return found


def nothing(values: Array) -> Array:
    return np.zeros(len(values), np.float32)


def not_a_number() -> Callable[[Array, Any], tuple[str, float]]:
    """A metric that breaks at its tenth call; there are two calls in a round."""
    calls = iter(range(10_000))
    return lambda predictions, data: ("mine", math.nan if next(calls) >= 10 else 1.0)


HEALTHY = Fault(with_labels(easy))
CASES: dict[str, tuple[Any, Fault, Fault]] = {
    "TreeDepth": ("TreeDepth", Fault(of_all_columns, {**BINARY, "max_depth": 8}), HEALTHY),
    "FeatureImportanceOverweight": (
        "FeatureImportanceOverweight",
        Fault(of_one_column(0.3), {**BINARY, "gamma": 4.0}),
        Fault(of_all_columns),
    ),
    "ClassImbalance": ("ClassImbalance", Fault(with_labels(rare)), HEALTHY),
    "Confusion": (
        "Confusion",
        Fault(with_labels(shuffled), validation=with_labels(easy, seed=4)),
        HEALTHY,
    ),
    "LossNotDecreasing": (
        "LossNotDecreasing",
        Fault(matrix, {**BINARY, "eta": 2.5}, rounds=120),
        Fault(matrix, rounds=120),
    ),
    "ExplodingTensor": (
        "ExplodingTensor",
        Fault(matrix, options={"custom_metric": not_a_number}),
        HEALTHY,
    ),
    "NonFinite": ("NonFinite", Fault(matrix, options={"custom_metric": not_a_number}), HEALTHY),
    "AllZero": (
        "AllZero:tensor_regex=^predictions$",
        Fault(with_labels(nothing), REGRESSION),
        HEALTHY,
    ),
    "UnchangedTensor": (
        "UnchangedTensor:tensor_regex=^predictions$",
        Fault(with_labels(easy), {**BINARY, "eta": 0.0}),
        HEALTHY,
    ),
    "TensorVariance": (
        {"rule": "TensorVariance", "tensor_regex": "^predictions$", "max_threshold": 1},
        Fault(with_labels(lambda values: 100 * values[:, 0]), REGRESSION),
        HEALTHY,
    ),
    "Overfit": (
        "Overfit",
        Fault(with_labels(shuffled), {**BINARY, "max_depth": 8}, validation=with_labels(easy, 4)),
        HEALTHY,
    ),
    "Overtraining": ("Overtraining", Fault(matrix, {**BINARY, "eta": 0.0}), HEALTHY),
    "StalledTrainingRule": (
        # Some time passes between any two rounds.
        "StalledTrainingRule:threshold=1e-9",
        HEALTHY,
        HEALTHY,
    ),
}
HEALTHY_RULES = {"StalledTrainingRule": "StalledTrainingRule"}


def outcomes(tmp_path: Path, rule: Any, fault: Fault, how: str) -> tuple[Outcome, Any, Trial, Any]:
    """What becomes of a rule, in a hook or afterwards."""
    options = dict(fault.options)
    if "custom_metric" in options:
        # Counted again in every training run.
        options["custom_metric"] = options["custom_metric"]()
    given = Fault(fault.data, fault.params, fault.rounds, fault.validation, options)

    def hook(**more: Any) -> smd.Hook:
        if how == "hook":
            return smd.Hook(tmp_path, rules=[rule], **more)
        return smd.Hook(tmp_path, include_collections=CHEAP, save_config=EVERY, **more)

    booster, made, validation = given.run(hook)
    trial = create_trial(str(tmp_path))
    report = made.rule_report() if how == "hook" else run_rules(trial, [rule])
    (outcome,) = report.outcomes
    return outcome, booster, trial, validation


@pytest.mark.parametrize("how", ["hook", "afterwards"])
@pytest.mark.parametrize("name", CASES)
def test_a_fault_is_found(tmp_path: Path, name: str, how: str) -> None:
    rule, fault, _ = CASES[name]
    outcome, booster, trial, validation = outcomes(tmp_path, rule, fault, how)
    assert outcome.rule == name
    assert outcome.status == "found", outcome.message
    finding = outcome.findings[0]
    if how == "hook":
        assert finding in trial.findings()
    if name == "TreeDepth":
        frame = booster.trees_to_dataframe()
        largest = frame.groupby("Tree")["Node"].max()
        saved = trial.tensor("trees/Node").steps()
        assert finding.step == next(step for step in saved if math.log2(largest[step]) >= 4)
    elif name == "FeatureImportanceOverweight":
        end = finding.step + 1
        scores = booster[:end].get_score(importance_type="weight")
        # Of three or fewer the largest counts by itself.
        count = 3 if len(scores) > 3 else 1
        share = sum(sorted(scores.values())[-count:]) / sum(scores.values())
        assert finding.value == pytest.approx(share)
    elif name == "ClassImbalance":
        found = np.bincount(validation.get_label().astype(int))
        assert finding.value == pytest.approx(found.max() / found.min())
        assert finding.step == 0
    elif name == "Overfit":
        assert finding.tensor == "validation-logloss"
    elif name in ("ExplodingTensor", "NonFinite"):
        assert (finding.step, finding.tensor) == (5, "train-mine")


@pytest.mark.parametrize("how", ["hook", "afterwards"])
@pytest.mark.parametrize("name", CASES)
def test_healthy_training_is_not_stopped(tmp_path: Path, name: str, how: str) -> None:
    rule, _, healthy = CASES[name]
    outcome, *_ = outcomes(tmp_path, HEALTHY_RULES.get(name, rule), healthy, how)
    assert (outcome.rule, outcome.status, outcome.message) == (name, "passed", "")


def test_a_confusion_is_that_of_the_model(tmp_path: Path) -> None:
    rule, fault, _ = CASES["Confusion"]
    outcome, booster, trial, validation = outcomes(tmp_path, rule, fault, "hook")
    (finding,) = outcome.findings
    last = trial.tensor("predictions").steps()[-1]
    said = booster.predict(validation, iteration_range=(0, last + 1)) > 0.5
    right = said == validation.get_label()
    shares = [right[said == each].mean() for each in (False, True)]
    assert finding.value == pytest.approx(min(shares))


@pytest.mark.parametrize("how", ["hook", "afterwards"])
def test_feature_that_reveals_the_label_is_found(tmp_path: Path, how: str) -> None:
    fault = Fault(of_one_column(0.0))
    outcome, booster, *_ = outcomes(tmp_path, "FeatureImportanceOverweight", fault, how)
    assert list(booster.get_score()) == ["f7"]
    assert outcome.status == "found"
    assert outcome.findings[0].value == 1.0


@pytest.mark.parametrize("rule", ["Overfit", "Overtraining"])
@pytest.mark.parametrize("how", ["hook", "afterwards"])
def test_rules_about_evaluations_need_a_data_set_called_train(
    tmp_path: Path, rule: str, how: str
) -> None:
    options: dict[str, Any] = {"rules": [rule]} if how == "hook" else {"save_config": EVERY}
    data = matrix()
    with smd.Hook(tmp_path, **options) as hook:
        train(hook, 25, data=data, evals=[(data, "mine"), (matrix(seed=2), "validation")])
    report = hook.rule_report() if how == "hook" else run_rules(str(tmp_path), [rule])
    assert report[rule].status == "could not run"
    assert "data set called train" in report[rule].message


@pytest.mark.parametrize("how", ["hook", "afterwards"])
def test_runs_are_compared(tmp_path: Path, how: str) -> None:
    params = {**BINARY, "subsample": 0.5}
    with smd.Hook(tmp_path / "first", save_all=True, save_config=EVERY) as hook:
        train(hook, 12, params)
    rule = {"rule": "SimilarAcrossRuns", "other_trial": str(tmp_path / "first")}
    for seed, status in ((0, "passed"), (1, "found")):
        run = tmp_path / str(seed)
        options: dict[str, Any] = {"rules": [rule]} if how == "hook" else {"save_config": EVERY}
        with smd.Hook(run, **options) as hook:
            train(hook, 12, {**params, "seed": seed})
        report = hook.rule_report() if how == "hook" else run_rules(str(run), [rule])
        assert report["SimilarAcrossRuns"].status == status, report
        if seed:
            assert report.findings[0].step == 0
            assert report.findings[0].tensor == "train-logloss"


def test_every_rule_can_be_given_to_a_hook(tmp_path: Path) -> None:
    given: list[Any] = []
    for name in rule_names():
        rule: dict[str, Any] = {"rule": name}
        if name in ("AllZero", "UnchangedTensor", "TensorVariance"):
            rule["collection_names"] = "predictions"
        if name == "TensorVariance":
            rule["max_threshold"] = "1e9"
        if name == "SimilarAcrossRuns":
            with smd.Hook(tmp_path / "other") as other:
                train(other, 3)
            rule["other_trial"] = str(tmp_path / "other")
        given.append(rule)
    data = matrix()
    bare = train(rounds=12)
    with smd.Hook(
        tmp_path / "run", rules=given, train_data=data, validation_data=data, hyperparameters=BINARY
    ) as hook:
        booster = train(hook, 12)
    assert booster.save_raw() == bare.save_raw()
    outcomes = hook.rule_report().outcomes
    assert len({outcome.rule for outcome in outcomes}) == len(given)
    assert [each for each in outcomes if each.status == "failed"] == []


# ---- what is saved for rules


def steps_by_collection(trial: Trial) -> dict[str, list[int]]:
    """At which steps something of a kind was saved: by the first part of its name."""
    found: dict[str, set[int]] = {}
    for name in trial.tensor_names():
        kind = "metrics" if "-logloss" in name else name.split("/")[0]
        found.setdefault(kind, set()).update(trial.tensor(name).steps())
    return {kind: sorted(steps) for kind, steps in found.items()}


TENTH = [0, 10, 20]


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ("LossNotDecreasing", {"metrics": list(range(25))}),
        ("StalledTrainingRule", {"metrics": list(range(25))}),
        ("TreeDepth", {"metrics": TENTH, "trees": TENTH}),
        ("FeatureImportanceOverweight", {"metrics": TENTH, "feature_importance": TENTH}),
        ("ClassImbalance", {"metrics": TENTH, "labels": TENTH, "predictions": TENTH}),
        ("Confusion", {"metrics": TENTH, "labels": TENTH, "predictions": TENTH}),
        (
            "CreateXgboostReport",
            {
                "metrics": list(range(25)),
                **dict.fromkeys(
                    ("labels", "predictions", "feature_importance", "hyperparameters"), TENTH
                ),
            },
        ),
    ],
)
def test_tensors_for_rules_are_saved_automatically(
    tmp_path: Path, rules: str, expected: dict[str, list[int]]
) -> None:
    data = matrix()
    with smd.Hook(
        tmp_path, rules=rules, train_data=data, validation_data=data, hyperparameters=BINARY
    ) as hook:
        train(hook, 25)
    assert steps_by_collection(create_trial(str(tmp_path))) == expected


def test_rules_use_the_save_schedule(tmp_path: Path) -> None:
    data = matrix()
    with smd.Hook(
        tmp_path, rules=["TreeDepth", "LossNotDecreasing", "CreateXgboostReport"],
        train_data=data, validation_data=data, save_config=smd.SaveConfig(save_interval=8),
    ) as hook:  # fmt: skip
        train(hook, 20)
    found = steps_by_collection(create_trial(str(tmp_path)))
    assert set(map(tuple, found.values())) == {(0, 8, 16)}
    assert "average_shap" not in found


def test_rule_without_its_tensors_reports_that(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with smd.Hook(tmp_path, rules=["ClassImbalance", "Confusion", "TreeDepth"]) as hook:
        booster = train(hook, 12)
    assert booster.save_raw() == train(rounds=12).save_raw()
    report = hook.rule_report()
    for rule in ("ClassImbalance", "Confusion"):
        assert report[rule].status == "could not run"
        assert "labels" in report[rule].message
    assert report["TreeDepth"].status == "passed"
    assert caplog.text.count("validation_data=xgboost.DMatrix") == 2


@pytest.mark.parametrize(
    ("booster", "status"), [("gbtree", "passed"), ("dart", "passed"), ("gblinear", "could not run")]
)
def test_rules_about_trees_and_kinds_of_boosters(tmp_path: Path, booster: str, status: str) -> None:
    params = {"objective": "binary:logistic", "booster": booster, "nthread": 1}
    params.update({"updater": "coord_descent"} if booster == "gblinear" else {"max_depth": 2})
    with smd.Hook(tmp_path, rules=["TreeDepth", "LossNotDecreasing"]) as hook:
        train(hook, 12, params)
    report = hook.rule_report()
    assert report["TreeDepth"].status == status
    assert report["LossNotDecreasing"].status == "passed"


# ---- stopping


def sharp(out_dir: Path, **options: Any) -> smd.Hook:
    """A hook that stops every training run with trees that have branches."""
    return smd.Hook(
        out_dir, rules=["TreeDepth:depth=2"], on_finding="stop", flush_seconds=0.05, **options
    )


def assert_stopped(hook: smd.Hook, caplog: pytest.LogCaptureFixture) -> None:
    assert hook.closed
    (finding,) = hook.findings()
    assert (finding.rule, finding.step, finding.tensor) == ("TreeDepth", 0, "trees/Node")
    said = [each for each in caplog.messages if "training stops after step" in each]
    assert len(said) == 1
    trial = create_trial(hook.out_dir)
    assert trial.loaded_all_steps
    assert [each.rule for each in trial.findings()] == ["TreeDepth"]


@pytest.mark.parametrize("place", ["before", "behind"])
def test_a_rule_ends_boosting(tmp_path: Path, caplog: pytest.LogCaptureFixture, place: str) -> None:
    result: dict[str, Any] = {}
    early = EarlyStopping(rounds=MANY, save_best=True)
    hook = sharp(tmp_path / "run", save_config=EVERY)
    callbacks = [hook, early] if place == "before" else [early, hook]
    callbacks.append(Limit())
    booster = train(None, MANY, evals_result=result, callbacks=callbacks)
    assert_stopped(hook, caplog)
    history = result["train"]["logloss"]
    assert 0 < len(history) < MANY
    # As if this many rounds had been requested.
    early = EarlyStopping(rounds=MANY, save_best=True)
    bare = train(None, len(history), callbacks=[early])
    assert booster.save_raw("json") == bare.save_raw("json")
    trial = create_trial(str(tmp_path / "run"))
    saved = {
        step: float(value[0]) for step, value in trial.tensor("train-logloss").values().items()
    }
    assert saved == dict(enumerate(history))
    assert hook.stats().steps == len(history)


def test_training_after_a_stop_is_not_stopped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hook = sharp(tmp_path / "first")
    booster = train(hook, MANY, callbacks=[Limit()])
    # The hook has ended; training with it continues to its end and is not saved.
    assert train(hook, 7).num_boosted_rounds() == 7
    caplog.clear()
    rounds = booster.num_boosted_rounds()
    with smd.Hook(tmp_path / "second", save_config=EVERY) as other:
        longer = train(other, 5, xgb_model=booster)
    assert longer.num_boosted_rounds() == rounds + 5
    assert create_trial(str(tmp_path / "second")).steps() == list(range(rounds, rounds + 5))
    third = sharp(tmp_path / "third")
    params = {**BINARY, "max_depth": 1}
    assert train(third, 300, params).num_boosted_rounds() == 300
    third.close()
    assert not [each for each in caplog.messages if "stops" in each]


def test_cross_validation_is_stopped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    hook = smd.Hook(
        tmp_path / "run", rules=["LossNotDecreasing"], on_finding="stop", flush_seconds=0.05
    )
    params = {**BINARY, "eta": 0.0}
    frame = xgboost.cv(params, matrix(60), MANY, nfold=2, callbacks=[hook, Limit()], seed=1)
    assert hook.closed
    assert hook.findings()[0].rule == "LossNotDecreasing"
    trial = create_trial(str(tmp_path / "run"))
    assert len(frame) == trial.steps()[-1] + 1 < MANY
    values = trial.tensor("test-logloss").values().values()
    assert [float(value[0]) for value in values] == list(frame["test-logloss-mean"])
    assert "training stops after step" in caplog.text


@pytest.mark.parametrize("early", [{}, {"early_stopping_rounds": MANY}])
def test_an_estimator_is_stopped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, early: dict[str, Any]
) -> None:
    values = features()
    found = labels(values)
    hook = sharp(tmp_path / "run")
    options: dict[str, Any] = {"max_depth": 3, "n_jobs": 1}
    model = xgboost.XGBClassifier(n_estimators=MANY, callbacks=[hook, Limit()], **options, **early)
    model.fit(values, found, eval_set=[(values, found)], verbose=False)
    assert_stopped(hook, caplog)
    rounds = model.get_booster().num_boosted_rounds()
    assert len(model.evals_result()["validation_0"]["logloss"]) == rounds
    bare = xgboost.XGBClassifier(n_estimators=rounds, **options).fit(values, found)
    np.testing.assert_array_equal(model.predict_proba(values), bare.predict_proba(values))
    # It can be fitted again, without a hook that has ended.
    model.set_params(callbacks=None, n_estimators=3, early_stopping_rounds=None)
    assert model.fit(values, found).get_booster().num_boosted_rounds() == 3


class Limit(TrainingCallback):
    """Fail training that should have been stopped long ago."""

    def __init__(self) -> None:
        super().__init__()
        self._until = time.monotonic() + TIMEOUT

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        assert time.monotonic() < self._until, "nobody stops this training"
        return False


class Begun(TrainingCallback):
    """Says that training has made some rounds."""

    def __init__(self) -> None:
        super().__init__()
        self.event = threading.Event()

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        if epoch == 20:
            self.event.set()
        return False


@pytest.mark.parametrize("by", ["thread", "process"])
def test_stop_request_from_another_process(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, by: str
) -> None:
    hook = smd.Hook(tmp_path / "run", flush_seconds=0.05, save_config=EVERY)
    begun, failures = Begun(), list[str]()

    def ask() -> None:
        begun.event.wait(TIMEOUT)
        if by == "thread":
            create_trial(str(tmp_path / "run")).request_stop("by hand")
            return
        done = subprocess.run(
            [sys.executable, str(PROGRAMS / "asks_for_a_stop.py"), str(tmp_path / "run")],
            capture_output=True, text=True, timeout=TIMEOUT, check=False, cwd=ROOT,
        )  # fmt: skip
        if done.returncode:
            failures.append(done.stderr)

    thread = threading.Thread(target=ask)
    thread.start()
    result: dict[str, Any] = {}
    booster = train(hook, MANY, data=matrix(60), callbacks=[begun, Limit()], evals_result=result)
    thread.join(TIMEOUT)
    assert failures == []
    assert hook.closed
    assert not hook.findings()
    assert [each for each in caplog.messages if "training stops" in each and "by hand" in each]
    rounds = booster.num_boosted_rounds()
    assert 20 < rounds == len(result["train"]["logloss"])
    trial = create_trial(str(tmp_path / "run"))
    assert trial.loaded_all_steps
    assert trial.steps()[-1] == rounds - 1


class Until(TrainingCallback):
    """Ends training after some time."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._until = time.monotonic() + seconds

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        return time.monotonic() > self._until


def test_stop_request_older_than_the_hook_is_ignored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_stop(open_store(str(tmp_path)), StopRequest("too late"))
    hook = smd.Hook(tmp_path)
    # Longer than it takes to look for requests.
    train(hook, MANY, data=matrix(60), callbacks=[Until(2 * LOCAL_SECONDS)])
    assert not hook.closed
    hook.close()
    assert "stops" not in caplog.text


def test_a_finding_after_training_ends_the_next_one_at_once(tmp_path: Path) -> None:
    hook, until = sharp(tmp_path / "run"), time.monotonic() + TIMEOUT
    train(hook, 3)
    while not hook.findings():
        assert time.monotonic() < until
        train(rounds=3)
    booster = train(hook, 5)
    assert booster.num_boosted_rounds() == 0
    assert hook.closed
    assert booster.predict(matrix()).shape == (400,)
    assert create_trial(str(tmp_path / "run")).loaded_all_steps


def test_findings_alone_stop_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with smd.Hook(tmp_path, rules=["TreeDepth:depth=2"], flush_seconds=0.05) as hook:
        booster = train(hook, 300)
    assert booster.num_boosted_rounds() == 300
    (finding,) = hook.findings()
    assert finding.step == 0
    assert len([each for each in caplog.messages if each.startswith("TreeDepth, step 0")]) == 1


def test_nothing_can_be_stopped_before_an_update(tmp_path: Path) -> None:
    for rules in (["NonFinite"], ["TreeDepth"]):
        with pytest.raises(SMDebugValueError, match="before_update"):
            smd.Hook(tmp_path / "run", rules=rules, before_update=True)
    with pytest.raises(SMDebugValueError, match="before_update"):
        smd.Hook(tmp_path / "run", before_update=True)
    assert not (tmp_path / "run").exists()


# ---- actions


@pytest.fixture
def posted(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, queue.Queue[Any]]]:
    """The address of a server on loopback, and what it received."""
    monkeypatch.setenv("no_proxy", "*")
    told: queue.Queue[Any] = queue.Queue()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            told.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/here", told
    server.shutdown()
    server.server_close()
    thread.join()


def test_an_action_is_taken(tmp_path: Path, posted: tuple[str, queue.Queue[Any]]) -> None:
    address, told = posted
    with smd.Hook(
        tmp_path, rules=["TreeDepth:depth=2"], actions=[{"name": "webhook", "endpoint": address}]
    ) as hook:
        train(hook, 12)
    body = told.get(timeout=TIMEOUT)
    assert "TreeDepth" in json.dumps(body)
    assert told.empty()


# ---- the report


class Page(HTMLParser):
    """What a person reads on a page."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self._style = False
        self.feed(content)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self._style = tag == "style"

    def handle_data(self, data: str) -> None:
        if not self._style and data.strip():
            self.texts.append(data.strip())


@pytest.mark.parametrize("shap", [False, True])
@pytest.mark.parametrize("how", ["hook", "afterwards"])
def test_report_page(tmp_path: Path, how: str, shap: bool) -> None:
    names = ["age", "income / year", "bias", "height", "x y"]
    data = matrix(300, feature_names=names)
    validation = matrix(200, seed=8, feature_names=names)
    params = {**BINARY, "eval_metric": ["auc", "logloss"], "eta": 0.25}
    collections = ["average_shap"] if shap else []
    options: dict[str, Any] = {"rules": ["CreateXgboostReport"]}
    if how == "afterwards":
        collections += ["labels", "predictions", "feature_importance", "hyperparameters"]
        options = {"save_config": EVERY}
    result: dict[str, Any] = {}
    with smd.Hook(
        tmp_path, hyperparameters=params, train_data=data, validation_data=validation,
        include_collections=collections, **options,
    ) as hook:  # fmt: skip
        booster = train(
            hook, 15, params, data=data, evals_result=result,
            evals=[(data, "train"), (validation, "validation")],
        )  # fmt: skip
    if how == "afterwards":
        assert run_rules(str(tmp_path), ["CreateXgboostReport"]).outcomes[0].status == "passed"
    else:
        assert hook.rule_report().outcomes[0].status == "passed"
    content = (tmp_path / "reports" / "xgboost_report.html").read_text(encoding="utf-8")
    texts = Page(content).texts
    for heading in (
        *("Metrics", "Predictions", "Features", "Hyperparameters", "auc", "logloss"),
        *("Confusion matrix", "Importance by weight", "Importance by total gain"),
    ):
        assert heading in texts, heading
    best = int(np.argmin(result["validation"]["logloss"]))
    assert f"in round {best}" in content
    last = 10 if how == "hook" else 14
    said = (booster.predict(validation, iteration_range=(0, last + 1)) > 0.5).astype(int)
    counts = np.zeros((2, 2), int)
    np.add.at(counts, (validation.get_label().astype(int), said), 1)
    accuracy = np.trace(counts) / counts.sum()
    assert f"{accuracy:.1%}" in texts
    for count in counts.ravel():
        assert str(count) in texts
    for name, value in params.items():
        assert name in texts
        shown = ", ".join(value) if isinstance(value, list) else str(value)
        assert shown in texts
    assert "income / year" in content
    assert ("Mean SHAP value" in texts) == shap


def test_the_page_is_written_when_a_rule_stops_the_training(tmp_path: Path) -> None:
    hook = smd.Hook(
        tmp_path, rules=["CreateXgboostReport", "TreeDepth:depth=2"], on_finding="stop",
        flush_seconds=0.05, hyperparameters=BINARY, validation_data=matrix(),
    )  # fmt: skip
    booster = train(hook, MANY, callbacks=[Limit()])
    page = Page((tmp_path / "reports/xgboost_report.html").read_text(encoding="utf-8"))
    assert f"{booster.num_boosted_rounds():,}" in page.texts
    assert "Confusion matrix" in page.texts


def page_about(out_dir: Path, params: dict[str, Any], data: Any) -> tuple[Page, Any]:
    with smd.Hook(
        out_dir, rules=["CreateXgboostReport"], validation_data=data, hyperparameters=params
    ) as hook:
        booster = train(hook, 5, params, data=data)
    content = (out_dir / "reports" / "xgboost_report.html").read_text(encoding="utf-8")
    return Page(content), booster


def test_the_page_of_a_regression(tmp_path: Path) -> None:
    values = features()
    page, _ = page_about(tmp_path, REGRESSION, xgboost.DMatrix(values, values[:, 0] * 3))
    assert "Errors" in page.texts
    assert "Confusion matrix" not in page.texts


def test_the_page_of_many_classes(tmp_path: Path) -> None:
    params, data = {**BINARY, "objective": "multi:softprob", "num_class": 3}, matrix(classes=3)
    page, booster = page_about(tmp_path, params, data)
    said = booster.predict(data, iteration_range=(0, 1)).argmax(axis=1)
    assert f"{np.mean(said == data.get_label()):.1%}" in page.texts
    assert "Confusion matrix" in page.texts


def test_the_page_of_a_cross_validation(tmp_path: Path) -> None:
    with smd.Hook(tmp_path, rules=["CreateXgboostReport"], hyperparameters=BINARY) as hook:
        frame = xgboost.cv(BINARY, matrix(200), 6, nfold=3, callbacks=[hook])
    texts = Page((tmp_path / "reports/xgboost_report.html").read_text(encoding="utf-8")).texts
    assert "logloss" in texts
    assert len(frame) == 6
    assert "Confusion matrix" not in texts
