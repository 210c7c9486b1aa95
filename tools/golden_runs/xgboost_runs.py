"""Golden runs of the XGBoost hook."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import xgboost
from xgboost.callback import TrainingCallback

import smdebug.xgboost as smd
from smdebug import ReductionConfig
from tools.golden_runs.jobs import Job
from tools.golden_runs.recorder import Step

if TYPE_CHECKING:
    from tools.golden_runs.recorder import Recorder

_FEATURES = ["plain", "größe", "with space"]
_PARAMETERS: dict[str, Any] = {
    "objective": "reg:squarederror",
    "eval_metric": ["rmse", "mae"],
    "max_depth": 2,
    "eta": 0.3,
    "nthread": 1,
    "base_score": 0.5,
}
_ROUNDS = {"TRAIN": 3, "EVAL": 1}
_PREDICTION_REDUCTIONS = ("min", "max", "mean", "l2")
_IMPORTANCE = "gain"


class Recording(TrainingCallback):
    """Records, round by round, what the hook is to save.

    Args:
        truth: what is recorded.
        hook: the hook, for what a script saves by itself.
        mode: the name of the mode.
        first: the first step of this training.
        train: the training data.
        validation: the validation data.
    """

    def __init__(
        self, truth: Recorder, hook: Any, mode: str, first: int, train: Any, validation: Any
    ) -> None:
        self._truth = truth
        self._hook = hook
        self._mode = mode
        self._first = first
        self._train = train
        self._validation = validation

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        # Evaluations are counted by the hook through all modes.
        number = self._first + epoch
        step = Step(number, self._mode, number)
        save = partial(self._truth.save, step)
        self._hook.save_scalar("half", 0.5**step.number)
        self._hook.save_tensor("odd", np.arange(3, dtype=np.uint8) + step.number, "odd")
        save("scalar/half", np.array([0.5**step.number]))
        save("odd", np.arange(3, dtype=np.uint8) + step.number)
        for data, metrics in evals_log.items():
            for metric, values in metrics.items():
                save(f"{data}-{metric}", np.array([values[-1]], np.float64))
        scores = model.get_score(importance_type=_IMPORTANCE)
        for feature, score in scores.items():
            share = np.array([score / sum(scores.values())])
            save(f"feature_importance/{_IMPORTANCE}/{feature}", share)
        predictions = model.predict(self._validation)
        save("predictions", predictions, reductions=_PREDICTION_REDUCTIONS)
        save("labels", self._validation.get_label())
        contributions = model.predict(self._train, pred_contribs=True)
        means = contributions.mean(axis=0, dtype=np.float64).astype(np.float32)
        for place, feature in enumerate(_FEATURES):
            save(f"average_shap/{feature}", means[place : place + 1])
        if number % 2 == 0:
            self._save_trees(save, model, epoch)
        for name in ("objective", "eval_metric", "max_depth", "eta"):
            save(f"hyperparameters/{name}", np.atleast_1d(np.array(_PARAMETERS[name])))
        return False

    def _save_trees(self, save: Any, model: Any, epoch: int) -> None:
        """Record the tree of this round, as XGBoost itself makes a table of it."""
        table = model.trees_to_dataframe()
        rows = table[table["Tree"] == epoch]
        for column in ("Tree", "Node", "ID", "Feature", "Split", "Gain", "Cover"):
            values = rows[column].to_numpy()
            if column in ("ID", "Feature"):
                values = np.array([str(each) for each in values])
            elif column in ("Tree", "Node"):
                values = values.astype(np.int64)
            else:
                # The table has the decimal digits of numbers of single precision.
                values = values.astype(np.float32).astype(np.float64)
            save(f"trees/{column}", values)


def train(truth: Recorder) -> None:
    """Two models, one after the other: steps of the second follow those of the first."""
    random = np.random.default_rng(0)
    values = random.normal(size=(12, 3)).astype(np.float32)
    labels = (values[:, 0] * 2 + values[:, 1]).astype(np.float32)
    known = xgboost.DMatrix(values[:8], labels[:8], feature_names=_FEATURES)
    unseen = xgboost.DMatrix(values[8:], labels[8:], feature_names=_FEATURES)
    names = ("objective", "eval_metric", "max_depth", "eta")
    with smd.Hook(
        str(truth.run),
        include_collections=[
            "labels", "predictions", "average_shap", "trees", "hyperparameters", "importance",
        ],
        save_config=smd.SaveConfig(save_interval=1),
        hyperparameters={name: _PARAMETERS[name] for name in names},
        train_data=known,
        validation_data=unseen,
        format=truth.format,
        on_error="raise",
    ) as hook:  # fmt: skip
        hook.get_collection("importance").include(f"^feature_importance/{_IMPORTANCE}/")
        hook.get_collection("average_shap").exclude("bias$")
        trees = hook.get_collection("trees")
        trees.save_config = smd.SaveConfig(save_interval=2)
        trees.exclude("/(Yes|No|Missing|Category)$")
        hook.get_collection("predictions").reduction_config = ReductionConfig.from_dict(
            {"reductions": list(_PREDICTION_REDUCTIONS), "save_raw_tensor": True}
        )
        first = 0
        for mode, rounds in _ROUNDS.items():
            hook.set_mode(smd.modes[mode])
            recording = Recording(truth, hook, mode, first, known, unseen)
            xgboost.train(
                _PARAMETERS, known, rounds, evals=[(known, "train"), (unseen, "validation")],
                verbose_eval=False, callbacks=[recording, hook],
            )  # fmt: skip
            first += rounds


JOBS = [Job(f"xgboost_{format}", format, (train,)) for format in ("v2", "v1")]
