"""TensorBoard reads what XGBoost had, while it was trained or afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from tests.board import numbers, read_boards, spread
from tests.xgboost.data import BINARY, matrix, train

import smdebug.xgboost as smd
from smdebug.trials.export.tensorboard import export_tensorboard

if TYPE_CHECKING:
    from pathlib import Path

ROUNDS = 6


def test_training(tmp_path: Path) -> None:
    data, measured = matrix(), {}  # type: ignore[var-annotated]
    hook = smd.Hook(
        tmp_path / "run", export_tensorboard=True, on_error="raise",
        save_config=smd.SaveConfig(save_interval=1), train_data=data, validation_data=data,
        include_collections=["metrics", "feature_importance", "predictions", "labels"],
    )  # fmt: skip
    booster = train(hook, ROUNDS, {**BINARY, "eval_metric": ["logloss", "auc"]}, data,
                    evals_result=measured)  # fmt: skip
    hook.close()
    boards = read_boards(tmp_path / "run" / "tensorboard")
    ((mode, board),) = boards.items()
    assert mode in ("TRAIN", "GLOBAL")
    for name in ("logloss", "auc"):
        found = numbers(board, f"train-{name}")
        truth: Any = np.array(measured["train"][name], np.float32)
        assert found == dict(enumerate(truth.tolist()))
    for step in range(ROUNDS):
        scores = booster[: step + 1].get_score(importance_type="gain")
        total = sum(scores.values())
        for feature, score in scores.items():
            tag = f"feature_importance/gain/{feature}"
            assert numbers(board, tag)[step] == np.float32(score / total)
        predicted = booster.predict(data, iteration_range=(0, step + 1))
        assert {each.step: each.value for each in board["predictions/predictions"]}[step] == spread(
            predicted
        )
    assert board["labels/labels"][0].value == spread(data.get_label())
    export_tensorboard(smd.create_trial(hook.out_dir), str(tmp_path / "board"))
    assert read_boards(tmp_path / "board") == boards
