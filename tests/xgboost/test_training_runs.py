"""Training of all kinds with a hook, and the lifecycles of a hook."""

from __future__ import annotations

import copy
import io
import itertools
import json
import logging
import multiprocessing
import pickle
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import joblib
import numpy as np
import pytest
import sklearn.base
import xgboost
from sklearn.model_selection import GridSearchCV, cross_val_score
from tests.xgboost.data import BINARY, features, labels, matrix, train
from xgboost.callback import (
    EarlyStopping,
    LearningRateScheduler,
    TrainingCallback,
    TrainingCheckPoint,
)

import smdebug.xgboost as smd
from smdebug.exceptions import SMDebugRuntimeError, WriteFailed
from smdebug.mode_keys import ModeKeys
from smdebug.storage.format.keys import END_KEY
from smdebug.trials import create_trial

if TYPE_CHECKING:
    from smdebug.reductions import Array
    from smdebug.trials.trial import Trial

EVERY = smd.SaveConfig(save_interval=1)
PROGRAMS = Path(__file__).parent / "programs"
ROOT = Path(__file__).parents[2]
# A hang is a failure, not a wait.
TIMEOUT = 60
# XGBoost hangs in a forked child if its parent has used several threads of OpenMP.
ENVIRONMENT = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"}
_NUMBERS = itertools.count()


def course(trial: Trial, name: str) -> dict[int, float]:
    """A metric by step."""
    return {step: float(value[0]) for step, value in trial.tensor(name).values().items()}


def same_model(first: Any, second: Any) -> bool:
    return bool(first.save_raw("json") == second.save_raw("json"))


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [each for each in caplog.records if each.levelno >= logging.WARNING]
    return [each.getMessage() for each in found if each.name.startswith("smdebug")]


def tree_numbers(trial: Trial) -> dict[int, list[int]]:
    """The numbers of the trees that were saved at each step."""
    found = trial.tensor("trees/Tree").values()
    return {step: np.unique(value).tolist() for step, value in found.items()}


class At(TrainingCallback):
    """Does something at a moment of training, which it may end by returning True."""

    def __init__(self, moment: str, epoch: int, act: Any) -> None:
        super().__init__()
        self._moment = moment, epoch
        self._act = act

    def before_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        return self._look("before", epoch)

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        return self._look("after", epoch)

    def _look(self, moment: str, epoch: int) -> bool:
        return bool(self._act()) if (moment, epoch) == self._moment else False


def stop() -> bool:
    return True


# ---- which rounds are saved


def test_rounds_are_steps_and_every_tenth_is_saved(tmp_path: Path) -> None:
    result: dict[str, Any] = {}
    with smd.Hook(tmp_path) as hook:
        train(hook, 25, evals_result=result)
    trial = create_trial(str(tmp_path))
    assert trial.steps() == [0, 10, 20]
    assert trial.tensor_names() == ["train-logloss"]
    history = result["train"]["logloss"]
    assert course(trial, "train-logloss") == {step: history[step] for step in (0, 10, 20)}
    assert trial.modes() == []
    assert hook.last_saved_step == 20
    assert hook.step == 24


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (smd.SaveConfig(save_interval=1), range(13)),
        (smd.SaveConfig(save_interval=5), [0, 5, 10]),
        (smd.SaveConfig(save_interval=5, start_step=3), [5, 10]),
        (smd.SaveConfig(save_interval=5, end_step=10), [0, 5]),
        (smd.SaveConfig(save_interval=100, save_steps=[1, 7]), [0, 1, 7]),
        (smd.SaveConfig(save_interval=4, start_step=2, end_step=9, save_steps=[11]), [4, 8, 11]),
        (smd.SaveConfig(save_interval=1, start_step=50), []),
        ({"save_interval": 6}, [0, 6, 12]),
        (smd.SaveConfigMode(save_interval=7), [0, 7]),
        ({smd.modes.GLOBAL: smd.SaveConfigMode(save_interval=8)}, [0, 8]),
    ],
)
def test_a_schedule_counts_rounds(tmp_path: Path, schedule: Any, expected: Any) -> None:
    result: dict[str, Any] = {}
    with smd.Hook(tmp_path, save_config=schedule) as hook:
        train(hook, 13, evals_result=result)
    history = result["train"]["logloss"]
    trial = create_trial(str(tmp_path))
    assert trial.steps() == list(expected)
    if trial.steps():
        assert course(trial, "train-logloss") == {step: history[step] for step in expected}


def test_a_collection_has_its_own_save_schedule(tmp_path: Path) -> None:
    with smd.Hook(tmp_path, include_collections=["trees"], save_config=EVERY) as hook:
        hook.get_collection("trees").save_config = smd.SaveConfig(save_interval=3)
        train(hook, 8)
    trial = create_trial(str(tmp_path))
    assert trial.tensor("train-logloss").steps() == list(range(8))
    assert tree_numbers(trial) == {0: [0], 3: [3], 6: [6]}


def test_collection_may_change_during_training(tmp_path: Path) -> None:
    with smd.Hook(tmp_path, include_collections=["trees"], save_config=EVERY) as hook:

        def seldom() -> None:
            hook.get_collection("trees").save_config = smd.SaveConfig(save_interval=5)

        train(hook, 12, callbacks=[At("after", 3, seldom)])
    assert list(tree_numbers(create_trial(str(tmp_path)))) == [0, 1, 2, 3, 5, 10]


def test_the_mode_is_what_the_script_sets(tmp_path: Path) -> None:
    with smd.Hook(tmp_path, save_config=EVERY) as hook:
        hook.set_mode(smd.modes.TRAIN)
        booster = train(hook, 4)
        hook.set_mode(smd.modes.EVAL)
        train(hook, 2, xgb_model=booster)
    trial = create_trial(str(tmp_path))
    assert trial.steps() == [0, 1, 2, 3, 4, 5]
    assert trial.steps(ModeKeys.TRAIN) == [0, 1, 2, 3]
    # XGBoost counts the rounds of the model, and so do the steps of each mode.
    assert trial.steps(ModeKeys.EVAL) == [4, 5]


# ---- a model that is trained on


@pytest.mark.parametrize("given", ["booster", "file", "raw"])
@pytest.mark.parametrize("hooks", ["one", "two"])
def test_continued_training_continues_the_steps(tmp_path: Path, given: str, hooks: str) -> None:
    options: dict[str, Any] = {"include_collections": ["trees"], "save_config": EVERY}
    first, second = {}, {}  # type: dict[str, Any], dict[str, Any]
    hook = smd.Hook(tmp_path / "run", **options)
    booster = train(hook, 5, evals_result=first)
    booster.save_model(tmp_path / "model.json")
    model = {
        "booster": booster,
        "file": tmp_path / "model.json",
        "raw": booster.save_raw(),
    }[given]
    place = tmp_path / "run"
    if hooks == "two":
        hook.close()
        place = tmp_path / "more"
        hook = smd.Hook(place, **options)
    longer = train(hook, 4, xgb_model=model, evals_result=second)
    hook.close()
    assert longer.num_boosted_rounds() == 9
    trial = create_trial(str(place))
    history = [*first["train"]["logloss"], *second["train"]["logloss"]]
    expected = range(9) if hooks == "one" else range(5, 9)
    assert course(trial, "train-logloss") == {step: history[step] for step in expected}
    assert tree_numbers(trial) == {step: [step] for step in expected}
    frame = longer.trees_to_dataframe()
    for step in expected:
        truth = frame[frame["Tree"] == step]
        saved = trial.tensor("trees/Gain").value(step)
        np.testing.assert_allclose(saved, truth["Gain"].to_numpy(), rtol=1e-5)


def test_finished_run_is_rejected_and_killed_run_is_resumed(
    tmp_path: Path,
) -> None:
    done = subprocess.run(
        [sys.executable, str(PROGRAMS / "killed.py"), str(tmp_path), "6"],
        capture_output=True, text=True, timeout=TIMEOUT, check=False, cwd=ROOT,
        env=ENVIRONMENT,
    )  # fmt: skip
    assert done.returncode == 9, done.stderr
    result: dict[str, Any] = {}
    with smd.Hook(tmp_path / "run", save_config=EVERY) as hook:
        train(hook, 3, xgb_model=tmp_path / "model.ubj", evals_result=result)
    trial = create_trial(str(tmp_path / "run"))
    assert trial.steps() == list(range(9))
    whole: dict[str, Any] = {}
    train(rounds=6, evals_result=whole)
    history = [*whole["train"]["logloss"], *result["train"]["logloss"]]
    assert course(trial, "train-logloss") == dict(enumerate(history))
    with pytest.raises(SMDebugRuntimeError, match="finished run"):
        smd.Hook(tmp_path / "run")


def test_a_second_fresh_training_overwrites_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    first, second = {}, {}  # type: dict[str, Any], dict[str, Any]
    with smd.Hook(tmp_path, include_collections=["trees"], save_config=EVERY) as hook:
        train(hook, 4, evals_result=first)
        train(hook, 3, {**BINARY, "eta": 0.1}, evals_result=second)
    trial = create_trial(str(tmp_path))
    history = [*first["train"]["logloss"], *second["train"]["logloss"]]
    assert course(trial, "train-logloss") == dict(enumerate(history))
    # The steps continue; the trees are the second model's own.
    assert list(tree_numbers(trial).values()) == [[0], [1], [2], [3], [0], [1], [2]]
    assert "steps from 4 on" in caplog.text


def test_one_model_may_be_trained_on_twice_with_one_hook(tmp_path: Path) -> None:
    base = train(rounds=3)
    results: list[dict[str, Any]] = [{}, {}]
    with smd.Hook(tmp_path, include_collections=["trees"], save_config=EVERY) as hook:
        for eta, result in zip((0.1, 0.5), results, strict=True):
            train(hook, 2, {**BINARY, "eta": eta}, xgb_model=base, evals_result=result)
    trial = create_trial(str(tmp_path))
    history = [*results[0]["train"]["logloss"], *results[1]["train"]["logloss"]]
    assert course(trial, "train-logloss") == dict(zip(range(3, 7), history, strict=True))
    assert list(tree_numbers(trial).values()) == [[3], [4], [3], [4]]


def test_the_schedule_counts_the_rounds_of_the_model(tmp_path: Path) -> None:
    base = train(rounds=25)
    with smd.Hook(tmp_path) as hook:
        train(hook, 25, xgb_model=base)
    assert create_trial(str(tmp_path)).steps() == [30, 40]


def test_no_rounds_at_all(tmp_path: Path) -> None:
    with smd.Hook(tmp_path, save_all=True, save_config=EVERY) as hook:
        assert train(hook, 0).num_boosted_rounds() == 0
        assert hook.step == -1
        train(hook, 2)
    assert create_trial(str(tmp_path)).steps() == [0, 1]


# XGBoost wants updaters to be set less directly.
@pytest.mark.filterwarnings("ignore:.*updater.*:UserWarning")
def test_trees_that_are_updated_are_saved_as_they_become(tmp_path: Path) -> None:
    params = {**BINARY, "process_type": "update", "updater": "refresh"}
    base, data, result = train(rounds=4), matrix(seed=3), dict[str, Any]()
    options: dict[str, Any] = {"xgb_model": base, "data": data}
    bare = train(None, 4, params, **options)
    with smd.Hook(tmp_path, save_all=True, save_config=EVERY, train_data=data) as hook:
        booster = train(hook, 4, params, evals_result=result, **options)
    assert same_model(bare, booster)
    trial = create_trial(str(tmp_path))
    assert course(trial, "train-logloss") == dict(enumerate(result["train"]["logloss"]))
    assert trial.tensor("full_shap").steps() == [0, 1, 2, 3]
    assert tree_numbers(trial) == {step: [step] for step in range(4)}
    covers = booster.trees_to_dataframe().set_index("Tree")["Cover"]
    for step in range(4):
        saved = trial.tensor("trees/Cover").value(step)
        np.testing.assert_allclose(saved, covers.loc[step], rtol=1e-5)


# ---- with other callbacks


def stopping(kind: str, hook: Any, **options: Any) -> dict[str, Any]:
    """The arguments of training that stops early, with the hook at different positions."""
    early = EarlyStopping(rounds=3, data_name="validation", **options)
    hooks = [] if hook is None else [hook]
    if kind == "before":
        return {"callbacks": [*hooks, early]}
    if kind == "behind":
        return {"callbacks": [early, *hooks]}
    return {"callbacks": hooks, "early_stopping_rounds": 3}


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("argument", {}),
        *itertools.product(["before", "behind"], [{}, {"save_best": True}, {"min_delta": 0.05}]),
    ],
)
def test_the_last_round_before_an_early_stop_is_saved(
    tmp_path: Path, kind: str, options: dict[str, Any]
) -> None:
    data, validation = matrix(120), matrix(60, seed=5)
    evals = [(data, "train"), (validation, "validation")]
    bare = train(None, 200, data=data, evals=evals, **stopping(kind, None, **options))
    result: dict[str, Any] = {}
    hook = smd.Hook(
        tmp_path, include_collections=["feature_importance", "predictions", "trees"],
        validation_data=validation, save_config=EVERY,
    )  # fmt: skip
    booster = train(
        None, 200, data=data, evals=evals, evals_result=result, **stopping(kind, hook, **options)
    )
    assert same_model(bare, booster)
    assert booster.best_iteration == bare.best_iteration
    history = result["validation"]["logloss"]
    last = len(history) - 1
    assert last < 100
    trial = create_trial(str(tmp_path))
    assert trial.steps() == list(range(last + 1))
    assert course(trial, "validation-logloss") == dict(enumerate(history))
    for name in trial.tensor_names(regex="^(trees|predictions)"):
        assert trial.tensor(name).steps() == list(range(last + 1)), name
    assert tree_numbers(trial)[last] == [last]
    if not options.get("save_best"):
        predictions = trial.tensor("predictions").value(last)
        truth = booster.predict(validation, iteration_range=(0, last + 1))
        np.testing.assert_array_equal(predictions, truth)
        scores = booster.get_score(importance_type="gain")
        total = sum(scores.values())
        for feature, score in scores.items():
            saved = trial.tensor(f"feature_importance/gain/{feature}").value(last)
            np.testing.assert_allclose(saved, [score / total], rtol=1e-6)


@pytest.mark.parametrize("place", ["before", "behind"])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_another_callback_ends_training(tmp_path: Path, place: str, moment: str) -> None:
    with smd.Hook(tmp_path, include_collections=["trees"], save_config=EVERY) as hook:
        other = At(moment, 4, stop)
        callbacks = [other, hook] if place == "behind" else [hook, other]
        booster = train(None, 20, callbacks=callbacks)
        rounds = 4 if moment == "before" else 5
        assert booster.num_boosted_rounds() == rounds
        assert create_trial(str(tmp_path)).steps() == list(range(rounds))
        # Continued training starts with the model's next round, and the next step.
        train(hook, 2, xgb_model=booster)
    trial = create_trial(str(tmp_path))
    assert tree_numbers(trial) == {step: [step] for step in range(rounds + 2)}
    assert hook.stats().saved_steps == rounds + 2


def test_training_that_fails_keeps_the_rounds_before(tmp_path: Path) -> None:
    def fail() -> None:
        raise RuntimeError("the user's own")

    with smd.Hook(tmp_path, save_config=EVERY) as hook:
        with pytest.raises(RuntimeError, match="the user's own"):
            train(hook, 9, callbacks=[At("after", 3, fail)])
        result: dict[str, Any] = {}
        train(hook, 2, evals_result=result)
    trial = create_trial(str(tmp_path))
    # Round 3 ran, but the hook was not called.
    assert trial.steps()[:3] == [0, 1, 2]
    saved = list(course(trial, "train-logloss").values())
    assert saved[-2:] == result["train"]["logloss"]


@pytest.mark.parametrize("place", ["before", "behind"])
def test_other_xgboost_callbacks_with_the_hook(tmp_path: Path, place: str) -> None:
    def callbacks(folder: Path, hook: Any) -> list[Any]:
        folder.mkdir()
        others = [
            TrainingCheckPoint(folder, name="part", interval=2),
            LearningRateScheduler(lambda epoch: 0.5 * 0.9**epoch),
        ]
        hooks = [] if hook is None else [hook]
        return [*hooks, *others] if place == "before" else [*others, *hooks]

    bare = train(None, 7, callbacks=callbacks(tmp_path / "bare", None))
    with smd.Hook(tmp_path / "run", save_all=True, save_config=EVERY) as hook:
        booster = train(None, 7, callbacks=callbacks(tmp_path / "hooked", hook))
    assert same_model(bare, booster)
    parts = sorted(each.name for each in (tmp_path / "hooked").iterdir())
    assert parts == sorted(each.name for each in (tmp_path / "bare").iterdir())
    assert parts
    for part in parts:
        one, other = (xgboost.Booster(model_file=tmp_path / kind / part)
                      for kind in ("bare", "hooked"))  # fmt: skip
        assert same_model(one, other)
    assert create_trial(str(tmp_path / "run")).steps() == list(range(7))


def test_a_hook_that_is_given_twice_saves_once(tmp_path: Path) -> None:
    with smd.Hook(tmp_path, save_config=EVERY, include_collections=["trees"]) as hook:
        booster = train(None, 4, callbacks=[hook, hook])
    assert same_model(booster, train(rounds=4))
    assert tree_numbers(create_trial(str(tmp_path))) == {step: [step] for step in range(4)}
    assert hook.stats().collections["metrics"].tensors == 4


def test_two_hooks_save_their_own_collections(tmp_path: Path) -> None:
    result: dict[str, Any] = {}
    first = smd.Hook(tmp_path / "first", save_config=EVERY)
    second = smd.Hook(tmp_path / "second", save_config=smd.SaveConfig(save_interval=3))
    train(None, 7, callbacks=[first, second], evals_result=result)
    history = result["train"]["logloss"]
    for hook, steps in ((first, range(7)), (second, range(0, 7, 3))):
        hook.close()
        expected = {step: history[step] for step in steps}
        assert course(create_trial(hook.out_dir), "train-logloss") == expected


def test_nested_training_runs_do_not_interfere(tmp_path: Path) -> None:
    inner: list[Any] = []
    with smd.Hook(tmp_path, save_config=EVERY) as hook:
        callback = At("after", 2, lambda: inner.append(train(hook, 3, {**BINARY, "eta": 0.1})))
        outer = train(hook, 6, callbacks=[callback])
    assert same_model(outer, train(rounds=6))
    assert same_model(inner[0], train(None, 3, {**BINARY, "eta": 0.1}))
    assert create_trial(str(tmp_path)).steps()[:2] == [0, 1]


def test_training_prints_what_it_prints_without_a_hook(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = matrix()
    options: dict[str, Any] = {"num_boost_round": 5, "evals": [(data, "train")], "verbose_eval": 2}
    xgboost.train(BINARY, data, **options)
    bare = capsys.readouterr()
    with smd.Hook(tmp_path, save_all=True, save_config=EVERY) as hook:
        xgboost.train(BINARY, data, callbacks=[hook], **options)
    assert capsys.readouterr() == bare
    assert "train-logloss" in bare.out


# ---- cross-validation


def folds(hook: Any, rounds: int = 6, **options: Any) -> Any:
    callbacks = [*options.pop("callbacks", ()), *([] if hook is None else [hook])]
    params = options.pop("params", BINARY)
    return xgboost.cv(params, matrix(200), rounds, seed=7, callbacks=callbacks, **options)


@pytest.mark.parametrize(
    "options",
    [
        {"nfold": 3},
        {"nfold": 4, "stratified": True, "metrics": ["auc", "error@0.7", "logloss"]},
        {"nfold": 3, "shuffle": False, "params": {**BINARY, "eval_metric": ["error", "map@3-"]}},
    ],
)
def test_cross_validation_metrics_are_means_and_standard_deviations(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    bare = folds(None, **options)
    with smd.Hook(tmp_path, save_config=EVERY) as hook:
        frame = folds(hook, **options)
    assert frame.equals(bare)
    trial = create_trial(str(tmp_path))
    assert trial.steps() == list(range(6))
    expected = {}
    for column in frame.columns:
        name = column.removesuffix("-mean") if column.endswith("-mean") else column
        expected[name] = dict(enumerate(frame[column]))
    assert {name: course(trial, name) for name in trial.tensor_names()} == expected
    assert sum(name.endswith("-std") for name in expected) == len(expected) / 2


def test_std_of_a_fold_is_a_metric_and_not_a_loss(tmp_path: Path) -> None:
    with smd.Hook(tmp_path, include_collections=["losses"], save_config=EVERY) as hook:
        folds(hook, metrics=["auc", "logloss"])
    trial = create_trial(str(tmp_path))
    assert trial.tensor_names(collection="losses") == ["test-logloss", "train-logloss"]
    assert len(trial.tensor_names(collection="metrics")) == 8


def test_tensors_that_need_one_model_are_logged_once_in_cross_validation(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data, params = matrix(), {"eta": 0.3, "name": "x"}
    with smd.Hook(
        tmp_path, save_config=EVERY, hyperparameters=params, train_data=data, validation_data=data,
        include_collections=["hyperparameters", "losses", "labels", "predictions", "trees",
                             "feature_importance", "average_shap", "full_shap"],
    ) as hook:  # fmt: skip
        frame = folds(hook)
    assert list(frame["test-logloss-mean"]) == list(
        course(create_trial(str(tmp_path)), "test-logloss").values()
    )
    said = sorted(warnings_in(caplog))
    what = ["average_shap", "feature_importance", "full_shap", "predictions", "trees"]
    assert [each.split(" cannot be saved: ")[0] for each in said] == what
    assert all("cross-validation" in each for each in said)
    trial = create_trial(str(tmp_path))
    assert trial.tensor("hyperparameters/eta").value(5) == [0.3]
    np.testing.assert_array_equal(trial.tensor("labels").value(3), data.get_label())


def test_cross_validation_with_save_all(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    bare = folds(None)
    with smd.Hook(tmp_path, save_all=True, save_config=EVERY, on_error="raise") as hook:
        assert folds(hook).equals(bare)
    assert create_trial(str(tmp_path)).steps() == list(range(6))
    said = warnings_in(caplog)
    assert len(said) == len(set(said))


def test_cross_validation_without_pandas(tmp_path: Path) -> None:
    with smd.Hook(tmp_path, save_config=EVERY) as hook:
        result = folds(hook, as_pandas=False)
    trial = create_trial(str(tmp_path))
    assert isinstance(result, dict)
    assert list(course(trial, "test-logloss").values()) == result["test-logloss-mean"]
    assert list(course(trial, "test-logloss-std").values()) == result["test-logloss-std"]


@pytest.mark.parametrize("kind", ["before", "behind", "argument"])
def test_cross_validation_may_stop_early(tmp_path: Path, kind: str) -> None:
    def options(hook: Any) -> dict[str, Any]:
        early, hooks = EarlyStopping(rounds=3), [] if hook is None else [hook]
        if kind == "argument":
            return {"callbacks": hooks, "early_stopping_rounds": 3}
        return {"callbacks": [*hooks, early] if kind == "before" else [early, *hooks]}

    params = {**BINARY, "max_depth": 6, "eta": 1.0}
    witness: list[float] = []

    class Witness(TrainingCallback):
        def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
            witness.append(evals_log["test"]["logloss"][-1][0])
            return False

    bare = folds(None, 100, params=params, **options(None))
    with smd.Hook(tmp_path, save_config=EVERY) as hook:
        given = options(hook)
        frame = folds(
            None, 100, params=params, **{**given, "callbacks": [Witness(), *given["callbacks"]]}
        )
    assert frame.equals(bare)
    # The frame ends with the best round; what came after it took place as well.
    assert len(frame) < len(witness) < 100
    assert course(create_trial(str(tmp_path)), "test-logloss") == dict(enumerate(witness))


def test_cross_validation_after_training_with_one_hook(tmp_path: Path) -> None:
    result: dict[str, Any] = {}
    with smd.Hook(tmp_path, include_collections=["trees"], save_config=EVERY) as hook:
        train(hook, 3, evals_result=result)
        frame = folds(hook, 2)
        booster = train(hook, 2)
    trial = create_trial(str(tmp_path))
    assert trial.steps() == list(range(7))
    assert trial.tensor("test-logloss").steps() == [3, 4]
    saved = [*result["train"]["logloss"], *frame["train-logloss-mean"]]
    assert list(course(trial, "train-logloss").values())[:5] == saved
    assert list(tree_numbers(trial)) == [0, 1, 2, 5, 6]
    assert booster.num_boosted_rounds() == 2


# ---- estimators of scikit-learn


def estimator(kind: Any = xgboost.XGBClassifier, rounds: int = 6, **options: Any) -> Any:
    return kind(n_estimators=rounds, max_depth=3, n_jobs=1, random_state=0, **options)


@pytest.mark.parametrize("classes", [2, 3])
def test_a_classifier(tmp_path: Path, classes: int) -> None:
    values = features()
    found = labels(values, classes)
    bare = estimator().fit(values, found)
    with smd.Hook(
        tmp_path, save_config=EVERY, include_collections=["trees", "predictions"],
        validation_data=xgboost.DMatrix(values, found),
    ) as hook:  # fmt: skip
        model = estimator(callbacks=[hook], eval_metric=["merror" if classes > 2 else "error"])
        model.fit(values, found, eval_set=[(values, found), (values[:50], found[:50])], verbose=0)
    np.testing.assert_array_equal(model.predict_proba(values), bare.predict_proba(values))
    trial = create_trial(str(tmp_path))
    metric = "merror" if classes > 2 else "error"
    for data, history in model.evals_result().items():
        assert course(trial, f"{data}-{metric}") == dict(enumerate(history[metric]))
    per_round = 1 if classes == 2 else classes
    assert tree_numbers(trial)[5] == list(range(5 * per_round, 6 * per_round))
    truth = model.predict_proba(values)
    saved = trial.tensor("predictions").value(5)
    np.testing.assert_array_equal(saved, truth[:, 1] if classes == 2 else truth)


def test_a_regressor(tmp_path: Path) -> None:
    values = features()
    targets = values[:, 0] * 3 + values[:, 1]
    bare = estimator(xgboost.XGBRegressor).fit(values, targets)
    with smd.Hook(tmp_path, save_config=EVERY, include_collections=["feature_importance"]) as hook:
        model = estimator(xgboost.XGBRegressor, callbacks=[hook])
        model.fit(values, targets, eval_set=[(values, targets)], verbose=False)
    np.testing.assert_array_equal(model.predict(values), bare.predict(values))
    trial = create_trial(str(tmp_path))
    history = model.evals_result()["validation_0"]["rmse"]
    assert course(trial, "validation_0-rmse") == dict(enumerate(history))
    # The estimator's own are normalised gains too.
    for place, share in enumerate(model.feature_importances_):
        if share:
            saved = trial.tensor(f"feature_importance/gain/f{place}").value(5)
            np.testing.assert_allclose(saved, [share], rtol=1e-5)


def test_a_ranker(tmp_path: Path) -> None:
    values = features(300)
    relevance, queries = labels(values, 4), np.repeat(np.arange(30), 10)
    options: dict[str, Any] = {"eval_metric": ["ndcg@5", "ndcg@3-"], "objective": "rank:ndcg"}
    bare = estimator(xgboost.XGBRanker, **options).fit(values, relevance, qid=queries)
    with smd.Hook(tmp_path, save_config=EVERY, include_collections=["losses"]) as hook:
        model = estimator(xgboost.XGBRanker, callbacks=[hook], **options)
        model.fit(
            values, relevance, qid=queries, verbose=False,
            eval_set=[(values, relevance)], eval_qid=[queries],
        )  # fmt: skip
    np.testing.assert_array_equal(model.predict(values), bare.predict(values))
    trial = create_trial(str(tmp_path))
    (result,) = model.evals_result().values()
    assert set(trial.tensor_names()) == {f"validation_0-{metric}" for metric in result}
    for metric, history in result.items():
        assert course(trial, f"validation_0-{metric}") == dict(enumerate(history))
    assert trial.tensor_names(collection="losses") == []


def test_a_forest_has_many_trees_in_its_one_round(tmp_path: Path) -> None:
    values = features()
    found = labels(values)
    options: dict[str, Any] = {"num_parallel_tree": 5, "subsample": 0.5, "learning_rate": 1.0}
    with smd.Hook(tmp_path, save_config=EVERY, include_collections=["trees"]) as hook:
        model = estimator(rounds=1, callbacks=[hook], **options)
        model.fit(values, found, eval_set=[(values, found)], verbose=False)
        # The estimator for forests takes no callbacks.
        with pytest.raises(NotImplementedError):
            xgboost.XGBRFClassifier(callbacks=[hook])
    trial = create_trial(str(tmp_path))
    assert tree_numbers(trial) == {0: [0, 1, 2, 3, 4]}
    frame = model.get_booster().trees_to_dataframe()
    assert trial.tensor("trees/ID").value(0).tolist() == frame["ID"].tolist()


def test_an_estimator_may_stop_early(tmp_path: Path) -> None:
    values, held_out = features(120), features(60, seed=5)
    options: dict[str, Any] = {"rounds": 200, "early_stopping_rounds": 3}
    given: dict[str, Any] = {"eval_set": [(held_out, labels(held_out, seed=9))], "verbose": False}
    bare = estimator(**options).fit(values, labels(values), **given)
    with smd.Hook(tmp_path, save_config=EVERY) as hook:
        model = estimator(callbacks=[hook], **options)
        model.fit(values, labels(values), **given)
    assert model.best_iteration == bare.best_iteration
    np.testing.assert_array_equal(model.predict_proba(values), bare.predict_proba(values))
    history = model.evals_result()["validation_0"]["logloss"]
    trial = create_trial(str(tmp_path))
    assert course(trial, "validation_0-logloss") == dict(enumerate(history))


def test_an_estimator_may_be_fitted_again(tmp_path: Path) -> None:
    values = features()
    found = labels(values)
    with smd.Hook(tmp_path, save_config=EVERY, include_collections=["trees"]) as hook:
        model = estimator(rounds=3, callbacks=[hook]).fit(values, found)
        model.fit(values, found)
        model.fit(values, found, xgb_model=model.get_booster())
    trial = create_trial(str(tmp_path))
    numbers = [each for (each,) in tree_numbers(trial).values()]
    assert numbers == [0, 1, 2, 0, 1, 2, 3, 4, 5]
    assert trial.steps() == list(range(9))


def test_a_clone_has_the_same_hook(tmp_path: Path) -> None:
    values = features()
    with smd.Hook(tmp_path, save_config=EVERY) as hook:
        model = estimator(rounds=2, callbacks=[hook])
        twin = sklearn.base.clone(model)
        assert twin.callbacks[0] is hook
        assert copy.deepcopy(model).callbacks[0] is hook
        assert "Hook" in repr(model)
        for each in (model, twin):
            each.fit(values, labels(values), eval_set=[(values, labels(values))], verbose=False)
    assert create_trial(str(tmp_path)).steps() == [0, 1, 2, 3]


@pytest.mark.parametrize("jobs", [1, 2])
def test_scores_of_cross_validation_are_the_same(tmp_path: Path, jobs: int) -> None:
    values = features(120)
    found = labels(values)
    bare = cross_val_score(estimator(rounds=3), values, found, cv=2)
    with smd.Hook(tmp_path, save_config=EVERY, include_collections=["trees"]) as hook:
        model = estimator(rounds=3, callbacks=[hook])
        scores = cross_val_score(model, values, found, cv=2, n_jobs=jobs, error_score="raise")
        model.fit(values, found)
    np.testing.assert_array_equal(scores, bare)
    trial = create_trial(str(tmp_path))
    # Processes of joblib save nothing: the hook is this process's.
    assert trial.steps() == list(range(9 if jobs == 1 else 3))
    assert trial.workers() == ["worker_0"]


def test_folds_in_threads(tmp_path: Path) -> None:
    values = features(120)
    found = labels(values)
    bare = cross_val_score(estimator(rounds=3), values, found, cv=4)
    with smd.Hook(tmp_path, save_config=EVERY, include_collections=["trees"]) as hook:
        model = estimator(rounds=3, callbacks=[hook])
        with joblib.parallel_config(backend="threading"):
            scores = cross_val_score(model, values, found, cv=4, n_jobs=2, error_score="raise")
    np.testing.assert_array_equal(scores, bare)
    # One of those that run at the same time is saved, and saved whole.
    numbers = [each for (each,) in tree_numbers(create_trial(str(tmp_path))).values()]
    assert numbers
    assert numbers == [0, 1, 2] * (len(numbers) // 3)


@pytest.mark.parametrize("jobs", [1, 2])
def test_grid_search(tmp_path: Path, jobs: int) -> None:
    values = features(120)
    found = labels(values)
    grid = {"max_depth": [1, 3], "learning_rate": [0.1]}
    options: dict[str, Any] = {"cv": 2, "error_score": "raise"}
    bare = GridSearchCV(estimator(rounds=2), grid, **options).fit(values, found)
    with smd.Hook(tmp_path, save_config=EVERY, include_collections=["trees"]) as hook:
        model = estimator(rounds=2, callbacks=[hook])
        search = GridSearchCV(model, grid, n_jobs=jobs, **options).fit(values, found)
    assert search.best_params_ == bare.best_params_
    np.testing.assert_array_equal(
        search.cv_results_["mean_test_score"], bare.cv_results_["mean_test_score"]
    )
    # Four fits and the best one again; with processes, only that is made here.
    assert create_trial(str(tmp_path)).steps() == list(range(10 if jobs == 1 else 2))


def through_pickle(model: Any) -> Any:
    return pickle.loads(pickle.dumps(model))


def through_joblib(model: Any) -> Any:
    file = io.BytesIO()
    joblib.dump(model, file)
    file.seek(0)
    return joblib.load(file)


@pytest.mark.parametrize("make", [through_pickle, through_joblib])
def test_a_fitted_estimator_can_be_stored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, make: Any
) -> None:
    values = features()
    found = labels(values)
    data = xgboost.DMatrix(values, found)
    hook = smd.Hook(
        tmp_path / "run", save_all=True, save_config=EVERY, train_data=data, validation_data=data,
        hyperparameters={"a": 1}, rules=["LossNotDecreasing"],
    )  # fmt: skip
    model = estimator(callbacks=[hook])
    model.fit(values, found, eval_set=[(values, found)], verbose=False)
    loaded = make(model)
    np.testing.assert_array_equal(loaded.predict_proba(values), model.predict_proba(values))
    assert loaded.callbacks[0].closed
    # It has the hook's place in the list, and saves nothing.
    loaded.fit(values, found, eval_set=[(values, found)], verbose=False)
    np.testing.assert_array_equal(loaded.predict_proba(values), model.predict_proba(values))
    assert sum("this hook saves nothing" in each for each in warnings_in(caplog)) == 1
    sklearn.base.clone(loaded)
    loaded.callbacks[0].flush()
    loaded.callbacks[0].close()
    again = make(loaded)
    assert again.callbacks[0].closed
    model.save_model(tmp_path / "model.json")
    other = xgboost.XGBClassifier()
    other.load_model(tmp_path / "model.json")
    np.testing.assert_array_equal(other.predict(values), model.predict(values))
    assert not hook.closed
    hook.close()
    assert create_trial(str(tmp_path / "run")).steps() == list(range(6))


# ---- the life of a hook


def test_a_trial_sees_every_saved_round_when_training_returns(tmp_path: Path) -> None:
    hook = smd.Hook(tmp_path, save_config=EVERY, flush_seconds=1000)
    booster = train(hook, 3)
    trial = create_trial(str(tmp_path))
    assert trial.steps() == [0, 1, 2]
    assert not trial.loaded_all_steps
    assert not hook.closed
    train(hook, 2, xgb_model=booster)
    assert trial.steps() == [0, 1, 2, 3, 4]
    folds(hook, 2)
    assert trial.steps() == list(range(7))
    assert not (tmp_path / END_KEY).exists()
    hook.close()
    assert (tmp_path / END_KEY).exists()
    assert create_trial(str(tmp_path)).loaded_all_steps


def test_closed_hook_saves_nothing_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hook = smd.Hook(tmp_path, save_all=True, save_config=EVERY)
    train(hook, 2)
    hook.close()
    before = sorted(tmp_path.rglob("*"))
    caplog.clear()
    assert same_model(train(hook, 3), train(rounds=3))
    assert folds(hook).equals(folds(None))
    said = warnings_in(caplog)
    assert len(said) == 2
    assert all("it was closed" in each for each in said)
    assert sorted(tmp_path.rglob("*")) == before
    hook.close()


@pytest.mark.parametrize("place", ["before", "behind"])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_hook_closed_in_the_middle_of_training(tmp_path: Path, moment: str, place: str) -> None:
    hook = smd.Hook(tmp_path, save_config=EVERY, include_collections=["trees"])
    other = At(moment, 3, lambda: hook.close())
    callbacks = [other, hook] if place == "before" else [hook, other]
    assert same_model(train(None, 8, callbacks=callbacks), train(rounds=8))
    trial = create_trial(str(tmp_path))
    assert trial.loaded_all_steps
    # Round 3 is saved when the hook came to it before it was closed.
    expected = [0, 1, 2, 3] if (moment, place) == ("after", "behind") else [0, 1, 2]
    assert trial.steps() == expected


def test_an_exception_in_the_block_of_a_hook_closes_it(tmp_path: Path) -> None:
    def script() -> None:
        with smd.Hook(tmp_path, save_config=EVERY) as hook:
            train(hook, 2)
            raise KeyError

    with pytest.raises(KeyError):
        script()
    assert create_trial(str(tmp_path)).loaded_all_steps


def test_user_scalars_belong_to_their_round(tmp_path: Path) -> None:
    numbers = iter(range(100))
    with smd.Hook(tmp_path) as hook:
        hook.save_scalar("before", 7)

        def save() -> None:
            hook.save_scalar("during", next(numbers), sm_metric=True)
            hook.save_tensor("mine", np.arange(3), "custom")

        train(
            hook, 12, callbacks=[At("before", 2, save), At("after", 3, save), At("after", 11, save)]
        )
        hook.save_scalar("after", 8)
    trial = create_trial(str(tmp_path))
    assert course(trial, "scalar/before") == {0: 7}
    # The callbacks come before the hook: that of round 2 is called when round 1 is the last.
    assert course(trial, "scalar/during") == {1: 0, 3: 1, 11: 2}
    assert course(trial, "scalar/after") == {11: 8}
    assert trial.tensor("train-logloss").steps() == [0, 10]
    assert trial.tensor_names(collection="sm_metrics") == ["scalar/during"]
    assert not trial.has_tensor("mine")


def test_numbers_saved_by_a_metric_belong_to_its_round(tmp_path: Path) -> None:
    with smd.Hook(tmp_path) as hook:

        def metric(predictions: Array, data: Any) -> tuple[str, float]:
            hook.save_scalar("mean", float(predictions.mean()))
            return "mean", float(predictions.mean())

        result: dict[str, Any] = {}
        train(hook, 4, custom_metric=metric, evals_result=result)
    saved = course(create_trial(str(tmp_path)), "scalar/mean")
    assert list(saved) == [0, 1, 2, 3]
    np.testing.assert_allclose(list(saved.values()), result["train"]["mean"], rtol=1e-6)


def test_scalar_saved_before_continued_training_belongs_to_its_first_round(tmp_path: Path) -> None:
    base = train(rounds=5)
    with smd.Hook(tmp_path, save_config=EVERY) as hook:
        hook.save_scalar("before", 7)
        train(hook, 2, xgb_model=base)
    trial = create_trial(str(tmp_path))
    assert trial.steps() == [5, 6]
    assert course(trial, "scalar/before") == {5: 7}


def test_stats_are_counted(tmp_path: Path) -> None:
    data = matrix()
    with smd.Hook(
        tmp_path, include_collections=["predictions"], validation_data=data,
        save_config=smd.SaveConfig(save_interval=4),
    ) as hook:  # fmt: skip
        assert hook.stats().steps == 0
        train(hook, 10)
    stats = hook.stats()
    assert (stats.steps, stats.saved_steps) == (10, 3)
    assert stats.collections["metrics"].tensors == 3
    assert stats.collections["metrics"].bytes == 3 * 8
    assert stats.collections["predictions"].bytes == 3 * 4 * data.num_row()
    assert set(stats.collections) == {"metrics", "predictions"}
    assert 0 < stats.seconds < 60
    assert stats.bytes > 3 * 4 * data.num_row()


def test_a_dry_run_writes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = matrix()
    with smd.Hook(
        tmp_path / "run", dry_run=True, save_all=True, save_config=EVERY, train_data=data,
        validation_data=data, hyperparameters={"eta": 0.1}, rules=["TreeDepth:depth=1"],
        on_finding="stop",
    ) as hook:  # fmt: skip
        booster = train(hook, 5)
        folds(hook, 2)
    assert same_model(booster, train(rounds=5))
    assert not (tmp_path / "run").exists()
    said = [each for each in warnings_in(caplog) if "dry run: step 0 " in each]
    assert len(said) == 1
    assert "train-logloss (raw)" in said[0]
    assert hook.stats().saved_steps == 7


@pytest.mark.parametrize("format", ["v1", "v2"])
def test_both_formats_hold_the_same(tmp_path: Path, format: str) -> None:
    data = matrix(feature_names=["a b", "ü/x", "c-d", "bias_", "e"])
    result: dict[str, Any] = {}
    with smd.Hook(
        tmp_path, format=format, save_all=True, save_config=EVERY, train_data=data,
        validation_data=data, hyperparameters={"eta": 0.1, "objective": "binary:logistic"},
    ) as hook:  # fmt: skip
        booster = train(hook, 3, data=data, evals_result=result)
    trial = create_trial(str(tmp_path))
    assert trial.steps() == [0, 1, 2]
    assert course(trial, "train-logloss") == dict(enumerate(result["train"]["logloss"]))
    np.testing.assert_array_equal(trial.tensor("predictions").value(2), booster.predict(data))
    truth = booster.predict(data, pred_contribs=True)
    np.testing.assert_array_equal(trial.tensor("full_shap").value(2), truth)
    np.testing.assert_array_equal(trial.tensor("full_shap/ü/x").value(2), truth[:, 1])
    frame = booster.trees_to_dataframe()
    found = trial.tensor("trees/Feature").value(1).tolist()
    assert found == frame[frame["Tree"] == 1]["Feature"].tolist()
    assert trial.tensor("hyperparameters/objective").value(0).tolist() == ["binary:logistic"]
    index = list((tmp_path / "index").rglob("*.json"))
    assert bool(index) == (format == "v1")


def test_a_run_in_memory() -> None:
    url = f"memory://test_training_runs/{next(_NUMBERS)}"
    result: dict[str, Any] = {}
    with smd.Hook(url, save_config=EVERY) as hook:
        train(hook, 3, evals_result=result)
        assert create_trial(url).steps() == [0, 1, 2]
    trial = create_trial(url)
    assert course(trial, "train-logloss") == dict(enumerate(result["train"]["logloss"]))


@pytest.mark.filterwarnings("ignore:.*utcnow.*:DeprecationWarning")
def test_a_run_in_a_bucket(bucket: str) -> None:
    url = f"s3://{bucket}/xgboost/{next(_NUMBERS)}"
    data, result = matrix(), dict[str, Any]()
    with smd.Hook(
        url, save_config=EVERY, include_collections=["predictions"], validation_data=data
    ) as hook:
        booster = train(hook, 3, evals_result=result)
        assert create_trial(url).steps() == [0, 1, 2]
    trial = create_trial(url)
    assert trial.loaded_all_steps
    assert course(trial, "train-logloss") == dict(enumerate(result["train"]["logloss"]))
    np.testing.assert_array_equal(trial.tensor("predictions").value(2), booster.predict(data))


# ---- failures


def put_in_the_way(out_dir: Path) -> None:
    """The directory is gone, and a file has its path."""
    out_dir.rename(out_dir.with_name("elsewhere"))
    out_dir.write_text("in the way")


@pytest.mark.parametrize("flush_seconds", [0, 1000])
def test_training_is_not_affected_if_saving_fails(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, flush_seconds: float
) -> None:
    data, run = matrix(), tmp_path / "run"
    hook = smd.Hook(
        run, save_all=True, save_config=EVERY, train_data=data, validation_data=data,
        hyperparameters={"a": 1}, flush_seconds=flush_seconds,
    )  # fmt: skip

    def fail() -> None:
        hook.flush()
        put_in_the_way(run)

    assert same_model(train(hook, 12, callbacks=[At("before", 4, fail)]), train(rounds=12))
    assert folds(hook).equals(folds(None))
    hook.save_scalar("x", 1)
    hook.close()
    errors = [each for each in caplog.records if each.levelno >= logging.ERROR]
    assert len(errors) == 1
    assert "saving has stopped, training continues" in errors[0].getMessage()
    assert "is not complete" in caplog.text
    assert create_trial(str(tmp_path / "elsewhere")).steps() == [0, 1, 2, 3]


def test_on_error_raise_raises_when_saving_fails(tmp_path: Path) -> None:
    run = tmp_path / "run"
    hook = smd.Hook(run, save_config=EVERY, on_error="raise", flush_seconds=1000)

    def fail() -> None:
        hook.flush()
        put_in_the_way(run)

    with pytest.raises(WriteFailed, match="could not write"):
        train(hook, 8, callbacks=[At("before", 4, fail)])
    # Said once.
    train(hook, 2)
    hook.close()
    assert create_trial(str(tmp_path / "elsewhere")).steps() == [0, 1, 2, 3]


def test_a_directory_that_cannot_be_made(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("in the way")
    hook = smd.Hook(tmp_path / "file" / "run", save_config=EVERY)
    assert same_model(train(hook, 3), train(rounds=3))
    hook.close()
    errors = [each for each in caplog.records if each.levelno >= logging.ERROR]
    assert len(errors) == 1


class Broken(xgboost.DMatrix):
    """Data that cannot say what its labels are."""

    def get_label(self) -> Array:
        raise RuntimeError("no labels today")


def test_failing_source_is_logged_once_and_the_rest_is_saved(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    values = features()
    data = Broken(values, labels(values))
    collections = ["labels", "predictions", "trees"]
    with smd.Hook(
        tmp_path, save_config=EVERY, validation_data=data, include_collections=collections
    ) as hook:
        assert same_model(train(hook, 3), train(rounds=3))
    said, again = warnings_in(caplog)
    assert said.startswith("labels cannot be saved: ")
    assert "no labels today" in said
    assert again.endswith("is not complete: it lacks labels from step 0 on")
    trial = create_trial(str(tmp_path))
    assert trial.tensor("predictions").steps() == [0, 1, 2]
    assert list(tree_numbers(trial)) == [0, 1, 2]
    assert not trial.has_tensor("labels")


def test_on_error_raise_raises_the_failure_of_a_source(tmp_path: Path) -> None:
    values = features()
    hook = smd.Hook(
        tmp_path, save_config=EVERY, include_collections=["labels"], on_error="raise",
        validation_data=Broken(values, labels(values)),
    )  # fmt: skip
    with pytest.raises(RuntimeError, match="no labels today"):
        train(hook, 3)
    hook.close()


# ---- threads and processes


class Meet(TrainingCallback):
    """Have training runs in several threads run each half of a round at the same time."""

    def __init__(self, barrier: threading.Barrier) -> None:
        super().__init__()
        self._barrier = barrier

    def before_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        self._barrier.wait(TIMEOUT)
        return False

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        self._barrier.wait(TIMEOUT)
        return False


@pytest.mark.parametrize("place", ["before", "behind"])
def test_training_runs_in_threads_do_not_harm_each_other(tmp_path: Path, place: str) -> None:
    hook = smd.Hook(tmp_path, save_all=True, save_config=EVERY, train_data=matrix())
    depths, barrier = (1, 2, 3), threading.Barrier(3)

    failures: list[Exception] = []

    def work(depth: int) -> Any:
        meet = Meet(barrier)
        callbacks = [meet, hook] if place == "behind" else [hook, meet]
        try:
            return train(None, 12, {**BINARY, "max_depth": depth}, callbacks=callbacks)
        except Exception as error:
            failures.append(error)
            barrier.abort()

    with ThreadPoolExecutor(len(depths)) as pool:
        boosters = list(pool.map(work, depths))
    assert failures == []
    for depth, booster in zip(depths, boosters, strict=True):
        assert same_model(booster, train(None, 12, {**BINARY, "max_depth": depth}))
    hook.close()
    assert create_trial(str(tmp_path)).steps()


def test_a_thread_may_train_with_a_hook_of_another(tmp_path: Path) -> None:
    hook = smd.Hook(tmp_path, save_config=EVERY)
    thread = threading.Thread(target=train, args=(hook, 4))
    thread.start()
    thread.join(TIMEOUT)
    assert create_trial(str(tmp_path)).steps() == [0, 1, 2, 3]
    hook.close()


def _train_elsewhere(hook: Any, path: str) -> None:
    """In a process that was spawned: the hook came as a pickle."""
    booster = train(hook, 3)
    booster.save_model(path)
    hook.close()


def test_a_spawned_process_saves_nothing(tmp_path: Path) -> None:
    hook = smd.Hook(tmp_path / "run", save_config=EVERY)
    train(hook, 2)
    process = multiprocessing.get_context("spawn").Process(
        target=_train_elsewhere, args=(hook, str(tmp_path / "model.json"))
    )
    process.start()
    try:
        process.join(TIMEOUT)
        assert process.exitcode == 0
    finally:
        process.kill()
    booster = xgboost.Booster(model_file=tmp_path / "model.json")
    assert same_model(booster, train(rounds=3))
    train(hook, 2)
    hook.close()
    assert create_trial(str(tmp_path / "run")).steps() == [0, 1, 2, 3]


def test_a_forked_child_saves_nothing_and_leaves_the_run_alone(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(PROGRAMS / "forked.py"), str(tmp_path)],
        capture_output=True, text=True, timeout=TIMEOUT, check=False, cwd=ROOT,
        env=ENVIRONMENT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    # Forked when the hook was created, in the middle of training, and after it.
    moments = ["made", "training", "trained"]
    assert done.stdout.splitlines() == [f"{moment} ended with 0" for moment in moments]
    assert done.stderr.count("this hook saves nothing") == 3
    for moment in moments:
        child = xgboost.Booster(model_file=tmp_path / f"{moment}.json")
        assert same_model(child, train(rounds=3))
    trial = create_trial(str(tmp_path / "run"))
    assert trial.loaded_all_steps
    assert trial.steps() == list(range(6))
    assert not trial.has_tensor("scalar/x")


def test_a_script_that_never_closes_its_hook(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(PROGRAMS / "unclosed.py"), str(tmp_path)],
        capture_output=True, text=True, timeout=TIMEOUT, check=False, cwd=ROOT,
        env=ENVIRONMENT,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    trial = create_trial(str(tmp_path))
    assert trial.loaded_all_steps
    assert trial.steps() == [0, 10]


# ---- the hook of the process


def write_job(path: Path, out_dir: Path, **parameters: str) -> str:
    content = {
        "LocalPath": str(out_dir),
        "HookParameters": parameters,
        "CollectionConfigurations": [
            {"CollectionName": "trees", "CollectionParameters": {"save_interval": "4"}},
            {"CollectionName": "metrics"},
        ],
    }
    path.write_text(json.dumps(content), encoding="utf-8")
    return str(path)


def assert_as_in_the_job(run: Path, metrics: list[int]) -> None:
    trial = create_trial(str(run))
    assert trial.tensor("train-logloss").steps() == metrics
    assert list(tree_numbers(trial)) == [0, 4, 8]


@pytest.mark.parametrize("make", ["create", "alias", "get", "variable", "get by variable"])
def test_a_json_config_describes_a_hook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: str
) -> None:
    run = tmp_path / "run"
    path = write_job(tmp_path / "job.json", run, save_interval="3")
    hook: smd.Hook | None
    if make == "create":
        hook = smd.Hook.create_from_json_file(path)
    elif make == "alias":
        hook = smd.Hook.hook_from_config(path)
    elif make == "get":
        hook = smd.get_hook(path)
    else:
        monkeypatch.setenv("SMDEBUG_CONFIG_FILE_PATH", path)
        hook = smd.Hook.hook_from_config() if make == "variable" else smd.get_hook()
    assert isinstance(hook, smd.Hook)
    assert smd.get_hook() is hook
    train(hook, 9)
    hook.close()
    assert_as_in_the_job(run, [0, 3, 6])


def test_a_json_config_without_an_interval_saves_every_tenth_round(tmp_path: Path) -> None:
    run = tmp_path / "run"
    hook = smd.get_hook(write_job(tmp_path / "job.json", run))
    assert hook is not None
    train(hook, 11)
    hook.close()
    assert_as_in_the_job(run, [0, 10])


def test_a_hook_of_a_json_config_may_be_given_data_later(tmp_path: Path) -> None:
    run, data = tmp_path / "run", matrix()
    content = {
        "LocalPath": str(run),
        "HookParameters": {"save_interval": "2"},
        "CollectionConfigurations": [
            {"CollectionName": name}
            for name in ("hyperparameters", "average_shap", "labels", "predictions")
        ],
    }
    path = tmp_path / "job.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    hook = smd.get_hook(path)
    assert hook is not None
    assert (hook.hyperparameters, hook.train_data, hook.validation_data) == (None, None, None)
    hook.hyperparameters, hook.train_data, hook.validation_data = BINARY, data, data
    booster = train(hook, 3)
    hook.close()
    trial = create_trial(str(run))
    assert trial.tensor("hyperparameters/max_depth").value(2) == [BINARY["max_depth"]]
    truth = booster.predict(data, pred_contribs=True).astype(np.float64).mean(axis=0)
    for place in range(data.num_col()):
        saved = trial.tensor(f"average_shap/f{place}").value(2)
        np.testing.assert_allclose(saved, truth[place : place + 1], rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(trial.tensor("predictions").value(2), booster.predict(data))


def test_the_hook_of_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SMDEBUG_CONFIG_FILE_PATH", str(tmp_path / "none.json"))
    assert smd.get_hook() is None
    first = smd.Hook(tmp_path / "first")
    assert smd.get_hook() is first
    second = smd.Hook(tmp_path / "second")
    assert smd.get_hook() is second
    smd.set_hook(first)
    assert smd.get_hook() is first
    monkeypatch.setenv("USE_SMDEBUG", "false")
    assert smd.get_hook() is None
    monkeypatch.delenv("USE_SMDEBUG")
    smd.del_hook()
    assert smd.get_hook() is None
    with pytest.raises(FileNotFoundError):
        smd.Hook.create_from_json_file()
    first.close()
    second.close()


def test_collections_of_the_module_are_those_of_the_next_hook(tmp_path: Path) -> None:
    smd.get_collection("trees").save_config = smd.SaveConfig(save_interval=2)
    smd.add_to_collection("mine", "train-logloss")
    hook = smd.Hook(tmp_path, include_collections=["trees", "mine"])
    assert "mine" in smd.get_collections()
    smd.get_collection("mine").save_config = EVERY
    train(hook, 5)
    hook.close()
    trial = create_trial(str(tmp_path))
    assert trial.tensor("train-logloss").steps() == [0, 1, 2, 3, 4]
    assert list(tree_numbers(trial)) == [0, 2, 4]
    assert trial.tensor_names(collection="mine") == ["train-logloss"]


# ---- when_nan


def bad_at(rounds: list[int]) -> Any:
    """A metric that is NaN, or infinite, at some rounds."""
    count = itertools.count()

    def metric(predictions: Array, data: Any) -> tuple[str, float]:
        number = next(count)
        return "mine", np.nan if number in rounds else float(number)

    return metric


def test_a_metric_that_is_not_finite_saves_the_round(tmp_path: Path) -> None:
    data = matrix()
    options: dict[str, Any] = {
        "include_collections": ["trees", "predictions"],
        "validation_data": data,
        "save_config": smd.SaveConfig(save_interval=10, when_nan=["train-mine"]),
    }
    with smd.Hook(tmp_path, **options) as hook:
        booster = train(hook, 18, custom_metric=bad_at([4, 15]))
    trial = create_trial(str(tmp_path))
    assert trial.steps() == [0, 4, 10, 15]
    assert list(tree_numbers(trial)) == [0, 4, 10, 15]
    assert np.isnan(trial.tensor("train-mine").value(15)[0])
    np.testing.assert_array_equal(
        trial.tensor("predictions").value(15), booster.predict(data, iteration_range=(0, 16))
    )


def test_observed_importance_is_computed_at_every_round_and_saved_when_non_finite(
    tmp_path: Path,
) -> None:
    with smd.Hook(
        tmp_path, save_config=smd.SaveConfig(save_interval=5, when_nan=["feature_importance"])
    ) as hook:
        train(hook, 7, custom_metric=bad_at([3]))
    # The importances are finite, whatever the metric is.
    assert create_trial(str(tmp_path)).steps() == [0, 5]


def test_round_without_an_observed_metric(tmp_path: Path) -> None:
    schedule = smd.SaveConfig(save_interval=4, when_nan=["train-mine"])
    with smd.Hook(tmp_path, save_config=schedule, include_collections=["trees"]) as hook:
        train(hook, 6, evals=[])
    assert create_trial(str(tmp_path)).steps() == [0, 4]
