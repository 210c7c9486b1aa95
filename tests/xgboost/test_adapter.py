"""The contract of adapters, for XGBoost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import xgboost
from tests.xgboost.data import BINARY, matrix

import smdebug.xgboost as smd
from smdebug.testing import AdapterContract, Trained

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from smdebug.mode_keys import ModeKeys
    from smdebug.reductions import Array


class TestHook(AdapterContract):
    modes = (smd.modes.GLOBAL,)
    collection = tensor = "predictions"
    # As in smdebug 1.0.
    reduces = False

    def make_hook(self, out_dir: str, **options: Any) -> smd.Hook:
        return smd.Hook(out_dir, validation_data=matrix(80), **options)

    def train(
        self, hook: Any, modes: Sequence[ModeKeys], after_step: Callable[[int], object]
    ) -> Trained:
        data, tensors = matrix(80), list[dict[str, "Array"]]()

        class Observer(xgboost.callback.TrainingCallback):
            def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
                metric = evals_log["train"]["logloss"][-1]
                tensors.append(
                    {"predictions": model.predict(data), "train-logloss": np.array([metric])}
                )
                after_step(epoch)
                return False

        booster = xgboost.train(
            {**BINARY, "subsample": 0.6}, data, len(modes), evals=[(data, "train")],
            callbacks=[*([] if hook is None else [hook]), Observer()], verbose_eval=False,
        )  # fmt: skip
        raw = np.frombuffer(booster.save_raw("ubj"), np.uint8)
        return Trained(tensors, [raw], sorted(booster.attributes()))
