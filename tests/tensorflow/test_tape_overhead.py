"""What a step of GradientTape costs: time is counted once, and names are looked at once."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf
from tests.tensorflow.models import SEED_WARNING

import smdebug.tensorflow as smd
from smdebug.trials import create_trial

if TYPE_CHECKING:
    from pathlib import Path

keras: Any = tf.keras
pytestmark = pytest.mark.filterwarnings(SEED_WARNING)
EVERY = smd.SaveConfig(save_interval=1)
VARIABLES = 50


class CountingCollection(smd.Collection):
    """A collection that counts how often a name is matched, and how often it is serialized."""

    def __init__(self, name: str, **options: Any) -> None:
        super().__init__(name, **options)
        self.asked: Counter[str] = Counter()
        self.serialized: list[str] = []

    def matches(self, tensor_name: str) -> bool:
        self.asked[tensor_name] += 1
        return bool(super().matches(tensor_name))

    def to_json_dict(self) -> dict[str, Any]:
        self.serialized.append(self.name)
        found: dict[str, Any] = super().to_json_dict()
        return found


class Training:
    """Many variables, an optimizer with more of them, and a loss of all."""

    def __init__(self, hook: smd.KerasHook) -> None:
        self._hook = hook
        self.variables = [
            tf.Variable(np.ones(3, np.float32), name=f"variable_{number}")
            for number in range(VARIABLES)
        ]
        optimizer = keras.optimizers.Adam(0.1)
        optimizer.build(self.variables)
        self._optimizer = hook.wrap_optimizer(optimizer)

    def step(self) -> None:
        """Make a step."""
        with self._hook.wrap_tape(tf.GradientTape()) as tape:
            loss = tf.add_n([tf.reduce_sum(each) for each in self.variables])
        gradients = tape.gradient(loss, self.variables)
        self._optimizer.apply_gradients(zip(gradients, self.variables, strict=True))


def test_nested_sections_of_a_tape_are_counted_once(tmp_path: Path) -> None:
    hook = smd.KerasHook(tmp_path, save_config=EVERY, include_collections=["optimizer_variables"])
    training = Training(hook)
    training.step()
    spent, elapsed = 0.0, 0.0
    for _ in range(5):
        # What is saved takes longer than the gradient of one variable.
        with hook.wrap_tape(tf.GradientTape()) as tape:
            loss = tf.reduce_sum(training.variables[0])
        before, began = hook.stats().seconds, time.perf_counter()
        tape.gradient(loss, [training.variables[0]])
        elapsed += time.perf_counter() - began
        spent += hook.stats().seconds - before
    hook.close()
    assert 0 < spent <= elapsed


@pytest.mark.parametrize("included", [["mine"], ["mine", "optimizer_variables", "gradients"]])
def test_a_name_is_matched_once(tmp_path: Path, included: list[str]) -> None:
    hook = smd.KerasHook(tmp_path, save_config=EVERY, include_collections=included)
    mine = CountingCollection("mine", include_regex="variable_7")
    hook.add_collection(mine)
    training = Training(hook)
    for _ in range(3):
        training.step()
    before = mine.asked.copy()
    assert any("variable_7" in name for name in before)
    for _ in range(4):
        training.step()
    again = mine.asked - before
    assert not again, again.most_common(3)
    hook.close()
    assert len(create_trial(tmp_path).steps()) == 7


def test_collections_are_not_serialized_for_every_name(tmp_path: Path) -> None:
    hook = smd.KerasHook(tmp_path, save_config=EVERY, include_collections=["mine"])
    mine = CountingCollection("mine", include_regex="variable_7")
    hook.add_collection(mine)
    training = Training(hook)
    for _ in range(5):
        training.step()
    hook.close()
    # Once or twice for each step that has new names, not once for each of a hundred names.
    assert len(mine.serialized) < VARIABLES
