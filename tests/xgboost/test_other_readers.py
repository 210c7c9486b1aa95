"""What the hook wrote, read by others: duckdb on the index, TensorBoard on the records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.util import tensor_util
from tests.xgboost.data import BINARY, matrix, train

import smdebug.xgboost as smd

if TYPE_CHECKING:
    from pathlib import Path

ROUNDS = 12


def run(place: Path) -> tuple[Any, dict[str, Any], Any]:
    """A run of everything at every round, and what XGBoost itself says."""
    data = matrix()
    measured: dict[str, Any] = {}
    hook = smd.Hook(
        place, save_all=True, save_config=smd.SaveConfig(save_interval=1), train_data=data,
        validation_data=data, hyperparameters=BINARY, shap_samples=50,
    )  # fmt: skip
    booster = train(hook, ROUNDS, data=data, evals_result=measured)
    hook.close()
    return booster, measured, data


def test_duckdb_finds_the_numbers_in_the_index(tmp_path: Path) -> None:
    booster, measured, _ = run(tmp_path)
    index = f"'{tmp_path}/index/**/*.parquet'"

    def values(name: str) -> dict[int, float]:
        query = f"select step, value from {index} where tensor = ? order by step"
        return dict(duckdb.execute(query, [name]).fetchall())

    assert list(values("train-logloss").values()) == measured["train"]["logloss"]
    for kind in ("weight", "gain", "total_cover"):
        for step in (0, 5, ROUNDS - 1):
            scores = booster[: step + 1].get_score(importance_type=kind)
            query = f"""select tensor, value from {index}
                        where tensor like 'feature_importance/{kind}/%' and step = {step}"""
            found = {name.rpartition("/")[2]: value for name, value in duckdb.sql(query).fetchall()}
            total = sum(scores.values())
            assert found == {feature: score / total for feature, score in scores.items()}
    assert values("hyperparameters/max_depth") == dict.fromkeys(range(ROUNDS), 3.0)


def test_tensorboard_reads_the_records(tmp_path: Path) -> None:
    booster, _, data = run(tmp_path)
    found: dict[tuple[str, int], Any] = {}
    for file in sorted(tmp_path.rglob("*.tfevents")):
        for event in EventFileLoader(str(file)).Load():
            for value in event.summary.value:
                found[value.tag, event.step] = tensor_util.make_ndarray(value.tensor)
    last = ROUNDS - 1
    np.testing.assert_array_equal(found["predictions", last], booster.predict(data))
    np.testing.assert_array_equal(found["labels", last], data.get_label())
    rows = data.slice(np.linspace(0, data.num_row() - 1, 50).astype(int))
    shap = booster.predict(rows, pred_contribs=True)
    np.testing.assert_array_equal(found["full_shap", last], shap)
    np.testing.assert_array_equal(found["full_shap/f1", last], shap[:, 1])
    nodes = booster.trees_to_dataframe().query(f"Tree == {last}")
    np.testing.assert_array_equal(found["trees/Node", last], nodes["Node"])
    np.testing.assert_array_equal(
        found["trees/Gain", last].astype(np.float32), nodes["Gain"].astype(np.float32)
    )
