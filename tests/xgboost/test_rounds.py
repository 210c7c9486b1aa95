"""Which training run a hook serves, and what it releases."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import xgboost
from tests.xgboost.data import BINARY, features, labels, matrix, train

import smdebug.xgboost as smd

if TYPE_CHECKING:
    from pathlib import Path

EVERY = smd.SaveConfig(save_interval=1)


class Fails(xgboost.callback.TrainingCallback):
    """A callback that fails in the middle of a round."""

    def __init__(self) -> None:
        self.seen: weakref.ref[Any] | None = None

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        self.seen = weakref.ref(model)
        if epoch == 2:
            raise RuntimeError("a callback failed")
        return False


def test_failed_training_run_is_released(tmp_path: Path) -> None:
    hook = smd.Hook(tmp_path, save_config=EVERY)
    failing = Fails()

    def fail() -> None:
        with pytest.raises(RuntimeError, match="a callback failed"):
            train(hook, 5, callbacks=[failing])

    # In a thread that has ended by the time the next training begins.
    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()
    gc.collect()
    assert failing.seen is not None
    assert failing.seen() is None
    train(hook, 3)
    hook.close()
    # Two rounds were saved before, and the third never ended.
    assert smd.create_trial(str(tmp_path)).tensor("train-logloss").steps() == [0, 1, 2, 3, 4]


def test_callback_may_replace_the_model(tmp_path: Path) -> None:
    class Other(xgboost.callback.TrainingCallback):
        def before_training(self, model: Any) -> Any:
            return model.copy()

    data = matrix()
    with smd.Hook(tmp_path, save_config=EVERY, include_collections=["trees"]) as hook:
        callbacks = [hook, Other()]
        xgboost.train(
            BINARY, data, 3, evals=[(data, "train")], callbacks=callbacks, verbose_eval=False
        )
    trial = smd.create_trial(str(tmp_path))
    assert trial.tensor("trees/Node").steps() == [0, 1, 2]
    assert trial.tensor("train-logloss").steps() == [0, 1, 2]


def test_replaced_or_unused_data_is_released(tmp_path: Path) -> None:
    hook = smd.Hook(tmp_path, save_config=EVERY, shap_samples=10, save_all=True)
    hook.train_data = matrix(50)
    seen = weakref.ref(hook.train_data)
    train(hook, 2)
    hook.train_data = matrix(60)
    train(hook, 2)
    gc.collect()
    assert seen() is None
    data = hook._adapter.inputs.train_data
    assert data is not None
    assert len(data._samples) == 1
    hook.close()
    assert not data._samples
    # What was given is still the user's to ask for.
    assert hook.train_data.num_row() == 60


def test_feature_named_bias_is_accepted_without_shap(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    values = features()
    data = xgboost.DMatrix(values, labels(values), feature_names=["bias", "a", "b", "c", "d"])
    with smd.Hook(tmp_path / "plain") as hook:
        train(hook, 2, data=data)
    assert "bias" not in caplog.text
    with smd.Hook(tmp_path / "shap", include_collections=["full_shap"], train_data=data) as hook:
        train(hook, 2, data=data)
    assert "the last column of full_shap" in caplog.text
    trial = smd.create_trial(str(tmp_path / "shap"))
    whole = trial.tensor("full_shap").value(0)
    np.testing.assert_array_equal(trial.tensor("full_shap/bias").value(0), whole[:, 0])


def test_unobserved_sources_have_no_overhead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    score = xgboost.Booster.get_score

    def counted(self: Any, *args: Any, **options: Any) -> Any:
        asked.append("score")
        return score(self, *args, **options)

    monkeypatch.setattr(xgboost.Booster, "get_score", counted)
    config = smd.SaveConfig({smd.modes.GLOBAL: smd.SaveConfigMode(100, when_nan=["train-logloss"])})
    with smd.Hook(tmp_path, save_config=config, include_collections=["feature_importance"]) as hook:
        train(hook, 20)
    # Of round 0 only, once for each kind.
    assert len(asked) == 5


def test_failing_source_is_skipped_and_reported_at_the_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Any, *args: Any, **options: Any) -> Any:
        raise ZeroDivisionError("nothing there")

    monkeypatch.setattr(xgboost.Booster, "get_score", broken)
    options: dict[str, Any] = {"save_config": EVERY}
    options["include_collections"] = ["feature_importance", "trees"]
    with smd.Hook(tmp_path / "warn", **options) as hook:
        train(hook, 4)
    assert "feature_importance cannot be saved: ZeroDivisionError: nothing there" in caplog.text
    assert "it lacks feature_importance from step 0 on\n" in caplog.text
    trial = smd.create_trial(str(tmp_path / "warn"))
    assert trial.tensor("trees/Node").steps() == [0, 1, 2, 3]
    hook = smd.Hook(tmp_path / "raise", on_error="raise", **options)
    with pytest.raises(ZeroDivisionError):
        train(hook, 4)
    hook.close()


def test_a_metric_that_is_first_measured_later_is_saved_and_watched(tmp_path: Path) -> None:
    rounds = iter(range(100))

    def late(predictions: Any, data: Any) -> list[tuple[str, float]]:
        number = next(rounds)
        return [("late", float("nan") if number == 9 else 1.0)] if number % 3 == 0 else []

    def later(predictions: Any, data: Any) -> list[tuple[str, float]]:
        return late(predictions, data) if next(calls) >= 3 else []

    calls = iter(range(100))
    config = smd.SaveConfig({smd.modes.GLOBAL: smd.SaveConfigMode(50, when_nan=["train-late"])})
    hook = smd.Hook(tmp_path / "watched", save_config=config, include_collections=["trees"])
    train(hook, 15, custom_metric=later, params={**BINARY, "disable_default_eval_metric": 1})
    hook.close()
    # Round 0, and the one at which the metric was NaN: the tenth evaluation.
    assert smd.create_trial(str(tmp_path / "watched")).tensor("trees/Node").steps() == [0, 12]

    rounds, calls = iter(range(100)), iter(range(100))
    hook = smd.Hook(tmp_path / "saved", save_config=EVERY, include_regex="late")
    hook.get_collection("metrics").save_config = smd.SaveConfig(end_step=0)
    train(hook, 8, custom_metric=later)
    hook.close()
    trial = smd.create_trial(str(tmp_path / "saved"))
    assert trial.tensor_names() == ["train-late"]
    assert trial.tensor("train-late").steps() == [3, 6]
