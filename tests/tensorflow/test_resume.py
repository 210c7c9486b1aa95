"""Keras training that resumes an existing run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import tensorflow as tf
from tests.spot import contents
from tests.tensorflow.models import BATCH, SEED_WARNING, features, labels

import smdebug.tensorflow as smd
from smdebug.trials import create_trial

if TYPE_CHECKING:
    from pathlib import Path

keras: Any = tf.keras
# Keras calls numpy 2 in the way of numpy 1.
pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning:keras"),
    pytest.mark.filterwarnings(SEED_WARNING),
]
EVERY_SECOND = smd.SaveConfig(save_interval=2)
COLLECTIONS = ["weights", "gradients", "losses", "metrics"]


def build() -> Any:
    keras.utils.set_random_seed(3)
    first = keras.layers.Dense(4, activation="relu", name="first")
    model = keras.Sequential([keras.Input((6,)), first, keras.layers.Dense(3, name="last")])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss, metrics=["accuracy"])
    return model


def fit(model: Any, hook: Any, epochs: int) -> None:
    """Train and evaluate; `epoch`, which restarts in every call, is not compared."""
    x = features()
    model.fit(
        x, labels(x), batch_size=BATCH, epochs=epochs, shuffle=False, verbose=0,
        validation_data=(x[:16], labels(x)[:16]), validation_batch_size=8, callbacks=[hook],
    )  # fmt: skip


def without_epochs(found: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in found.items() if " epoch " not in key}


@pytest.mark.parametrize("format", ["v1", "v2"])
def test_fit_is_resumed(tmp_path: Path, format: str) -> None:
    options: dict[str, Any] = {
        "save_config": EVERY_SECOND, "format": format,
        "include_collections": COLLECTIONS, "on_error": "raise",
    }  # fmt: skip
    model = build()
    whole = smd.KerasHook(tmp_path / "whole", **options)
    for _ in range(2):
        fit(model, whole, 2)
    whole.close()
    model = build()
    hook = smd.KerasHook(tmp_path / "parts", **options)
    fit(model, hook, 2)
    hook.close()
    hook = smd.KerasHook(tmp_path / "parts", resume=True, **options)
    # The run holds every second step of each mode; the last batch of the evaluation is not saved.
    last = create_trial(str(tmp_path / "parts")).steps()[-1]
    assert hook.step == last
    hook.step = whole.step // 2
    fit(model, hook, 2)
    assert hook.step == whole.step
    hook.close()
    found, expected = contents(tmp_path / "parts"), contents(tmp_path / "whole")
    assert found["modes"] == expected["modes"]
    assert without_epochs(found) == without_epochs(expected)


def test_fit_is_resumed_after_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "checkpoint_config.json"
    config.write_text(json.dumps({"LocalPath": str(tmp_path / "checkpoints")}), encoding="utf-8")
    monkeypatch.setenv("CHECKPOINT_CONFIG_FILE_PATH", str(config))
    (tmp_path / "checkpoints").mkdir()
    save = keras.callbacks.ModelCheckpoint(
        str(tmp_path / "checkpoints" / "{epoch}.weights.h5"), save_weights_only=True
    )
    x = features()
    model = build()
    hook = smd.KerasHook(tmp_path / "run", save_config=smd.SaveConfig(save_interval=1))
    model.fit(
        x, labels(x), batch_size=BATCH, epochs=2, shuffle=False, verbose=0, callbacks=[hook, save]
    )
    assert hook.step == 9
    hook.close()
    entries = json.loads((tmp_path / "checkpoints/metadata.json").read_text(encoding="utf-8"))
    assert [entry["latest-global-step-seen"] for entry in entries][-1] == 9
    assert entries[-1]["latest-mode-step"] == {"GLOBAL": 9, "TRAIN": 9}
    hook = smd.KerasHook(tmp_path / "run", save_config=smd.SaveConfig(save_interval=1), resume=True)
    assert hook.step == 9
    fit(model, hook, 1)
    hook.close()
    trial = create_trial(str(tmp_path / "run"))
    assert trial.steps(smd.modes.TRAIN) == list(range(15))
    assert trial.steps(smd.modes.EVAL) == [0, 1]
    assert trial.mode_modestep(10) == (smd.modes.TRAIN, 10)
