"""Training that continues from a model, in an existing run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import xgboost
from tests.spot import contents
from tests.xgboost.data import BINARY, matrix

import smdebug.xgboost as smd
from smdebug.exceptions import SMDebugRuntimeError
from smdebug.storage.format.keys import END_KEY
from smdebug.trials import create_trial

if TYPE_CHECKING:
    from pathlib import Path

EVERY = smd.SaveConfig(save_interval=1)
COLLECTIONS = ["feature_importance", "trees"]


def boost(out_dir: Path, rounds: int, model: Any = None, close: bool = True, **options: Any) -> Any:
    """Trains some rounds, from a model or from nothing."""
    data = matrix()
    hook = smd.Hook(out_dir, save_config=EVERY, include_collections=COLLECTIONS, **options)
    trained = xgboost.train(
        BINARY, data, rounds, evals=[(data, "train")], callbacks=[hook], xgb_model=model,
        verbose_eval=False,
    )  # fmt: skip
    if close:
        hook.close()
    else:
        assert hook._pipeline.run.output is not None
        hook._pipeline.run.output.close(end=False)
        hook._pipeline.active = False
    return trained


@pytest.mark.parametrize("format", ["v1", "v2"])
@pytest.mark.parametrize("finished", [True, False], ids=["finished", "crashed"])
def test_training_continues_from_a_model(tmp_path: Path, format: str, finished: bool) -> None:
    boost(tmp_path / "whole", 9, format=format)
    model = boost(tmp_path / "parts", 4, close=finished, format=format)
    boost(tmp_path / "parts", 5, model, format=format, resume=True)
    found, expected = contents(tmp_path / "parts"), contents(tmp_path / "whole")
    assert found["steps"]["GLOBAL"] == list(range(9))
    assert found == expected


def test_steps_are_the_rounds_of_the_model_whatever_was_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = boost(tmp_path / "run", 6)
    with pytest.raises(SMDebugRuntimeError, match="resume=True"):
        boost(tmp_path / "run", 2, model)
    # A model of four rounds, as of an older checkpoint: its next rounds are made again.
    older = model[:4]
    config = tmp_path / "checkpoint_config.json"
    config.write_text(json.dumps({"LocalPath": str(tmp_path / "checkpoints")}), encoding="utf-8")
    (tmp_path / "checkpoints").mkdir()
    entry = {
        "training-run": 0, "latest-global-step-saved": 5, "latest-global-step-seen": 5,
        "latest-mode-step": {"GLOBAL": 5},
    }  # fmt: skip
    metadata = tmp_path / "checkpoints" / "metadata.json"
    metadata.write_text(json.dumps([entry]), encoding="utf-8")
    monkeypatch.setenv("CHECKPOINT_CONFIG_FILE_PATH", str(config))
    boost(tmp_path / "run", 3, older, resume=True)
    boost(tmp_path / "whole", 7)
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")
    assert (tmp_path / "run" / END_KEY).exists()
    trial = create_trial(str(tmp_path / "run"))
    assert trial.tensor("train-logloss").steps() == list(range(7))
