"""Which tensors a text means, and in which order."""

from __future__ import annotations

import numpy as np
import pytest

from smdebug.exceptions import SMDebugValueError, TensorUnavailable
from smdebug.mode_keys import ModeKeys
from smdebug.storage.batch import Entry, StepBatch
from smdebug.storage.stores.memory import MemoryStore
from smdebug.testing import make_run
from smdebug.trials.select import in_order, regex_of, resolve_pattern
from smdebug.trials.trial import Trial

NAMES = ["fc10.weight", "fc2.weight", "gradient/fc2.weight", "gradient/fc10.weight", "odd[1]", "*"]


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("fc2.weight", ["fc2.weight"]),
        ("odd[1]", ["odd[1]"]),
        ("*", ["*"]),
        ("*weight", ["fc2.weight", "fc10.weight", "gradient/fc2.weight", "gradient/fc10.weight"]),
        ("gradient/*", ["gradient/fc2.weight", "gradient/fc10.weight"]),
        ("fc?.weight", ["fc2.weight"]),
        # What is a pattern of a shell is not looked for as a regex as well.
        ("fc*", ["fc2.weight", "fc10.weight"]),
        ("2", ["fc2.weight", "gradient/fc2.weight"]),
        (r"^fc\d+", ["fc2.weight", "fc10.weight"]),
        ("gradient/.*10", ["gradient/fc10.weight"]),
    ],
)
def test_what_a_text_means(text: str, meant: list[str]) -> None:
    assert resolve_pattern(NAMES, text) == meant


@pytest.mark.parametrize("text", ["fc2.wieght", "fc2.weight("])
def test_what_means_nothing(text: str) -> None:
    with pytest.raises(TensorUnavailable, match=r"Nearest names: fc2\.weight"):
        resolve_pattern(NAMES, text)


def test_what_is_no_regex() -> None:
    assert regex_of("--regex", None) is None
    with pytest.raises(SMDebugValueError, match=r"--regex must be a regular expression, got '\('"):
        regex_of("--regex", "(")


def test_the_order_of_tensors_that_are_saved_rarely() -> None:
    late = [f"layer{number}" for number in (3, 1, 2)]

    def data(worker: str, step: int) -> StepBatch:
        entries = [Entry("loss", np.float32(step))]
        if step == 37:
            entries += [Entry(name, np.zeros(2)) for name in late]
        if step == 61:
            entries.append(Entry("again", np.zeros(2)))
        return StepBatch(step, ModeKeys.TRAIN, step, entries)

    store = MemoryStore()
    make_run(store, range(100), data=data)
    trial = Trial("made", store=store)
    assert in_order(trial, sorted(late)) == late
    everything = [*late, "again", "loss"]
    # What was saved together stands together.
    assert in_order(trial, sorted(everything)) == ["loss", "again", *late]
