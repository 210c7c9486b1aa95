"""Scripts that save tensors by hand between steps of several modes, and where each must be found.

They hold for every adapter: `check_script` gets the hook and what makes a step of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

from smdebug import ReductionConfig, modes
from smdebug.trials import create_trial

if TYPE_CHECKING:
    from collections.abc import Callable

Array = npt.NDArray[Any]
TRAIN, EVAL, PREDICT, GLOBAL = modes.TRAIN, modes.EVAL, modes.PREDICT, modes.GLOBAL
STEP = "step"


class Save(NamedTuple):
    """A tensor saved by hand, and where it belongs: the number of the step, its mode, its place."""

    name: str
    step: int
    mode: modes
    mode_step: int


# A mode is set, a step is made, a tensor is saved.
Script = tuple[Any, ...]

SCRIPTS: dict[str, Script] = {
    # Of the issue: `e` belongs to the first step of EVAL, which has not begun.
    "before the first step of another mode": (
        TRAIN, STEP, Save("t", 0, TRAIN, 0), EVAL, Save("e", 1, EVAL, 0), STEP,
        Save("late", 1, EVAL, 0),
    ),
    "for a step that never begins": (
        TRAIN, STEP, Save("t", 0, TRAIN, 0), EVAL, Save("e", 1, EVAL, 0), Save("f", 1, EVAL, 0),
    ),
    "for the older step of a mode that is back": (
        TRAIN, STEP, Save("t", 0, TRAIN, 0), EVAL, STEP, Save("e", 1, EVAL, 0),
        TRAIN, Save("u", 0, TRAIN, 0), EVAL, Save("f", 1, EVAL, 0), TRAIN, Save("v", 0, TRAIN, 0),
        STEP, Save("w", 2, TRAIN, 1),
    ),
    "before any step": (Save("a", 0, GLOBAL, 0), Save("b", 0, GLOBAL, 0), Save("c", 0, GLOBAL, 0)),
    "before and after the first step": (
        TRAIN, Save("a", 0, TRAIN, 0), Save("b", 0, TRAIN, 0), STEP, Save("c", 0, TRAIN, 0), STEP,
        Save("d", 1, TRAIN, 1), Save("e", 1, TRAIN, 1),
    ),
    "of three modes in turn": (
        TRAIN, STEP, EVAL, STEP, PREDICT, STEP,
        TRAIN, Save("t", 0, TRAIN, 0), EVAL, Save("e", 1, EVAL, 0), PREDICT,
        Save("p", 2, PREDICT, 0), GLOBAL, Save("g", 2, PREDICT, 0), TRAIN, Save("u", 0, TRAIN, 0),
    ),
}  # fmt: skip

REDUCTIONS: dict[str, tuple[str, ...]] = {
    "raw": (),
    "max": ("max",),
    "min max": ("min", "max"),
    "min max nans infs": ("min", "max", "nans", "infs"),
    "mean": ("mean",),
    "min mean": ("min", "mean"),
}

scripts = pytest.mark.parametrize("script", SCRIPTS.values(), ids=list(SCRIPTS))
reductions = pytest.mark.parametrize("names", REDUCTIONS.values(), ids=list(REDUCTIONS))


def reduction_config(names: tuple[str, ...]) -> ReductionConfig | None:
    """Return the configuration; None saves the tensors themselves."""
    return ReductionConfig(list(names)) if names else None


def flush_patterns(script: Script) -> list[set[int]]:
    """Return places of a script to flush at: nowhere, everywhere, one place."""
    places = range(len(script) + 1)
    return [set(), set(places), *({place} for place in places)]


def check_script(
    hook: Any, script: Script, step: Callable[[], None], tensor: Callable[[Array], Any],
    names: tuple[str, ...], flush_at: set[int],
) -> None:  # fmt: skip
    """Run a script and compare what the run has of the tensors saved by hand.

    Args:
        hook: a hook that saves every step.
        script: the script.
        step: makes a step.
        tensor: converts an array to a tensor of the framework.
        names: the reductions that are saved; none for the tensors themselves.
        flush_at: the places of the script to flush at.
    """
    expected: dict[str, tuple[Save, Array]] = {}
    for place, each in enumerate(script):
        if place in flush_at:
            hook.flush()
        if isinstance(each, modes):
            hook.set_mode(each)
        elif isinstance(each, Save):
            array = np.arange(3, dtype=np.float32) + 10 * len(expected)
            hook.save_tensor(each.name, tensor(array), "mine")
            expected[each.name] = each, array
        else:
            step()
    if len(script) in flush_at:
        hook.flush()
    hook.close()
    trial = create_trial(hook.out_dir)
    found = {
        name: [(number, *trial.mode_modestep(number)) for number in trial.tensor(name).steps()]
        for name in trial.tensor_names(collection="mine")
    }
    assert found == {name: [tuple(save[1:])] for name, (save, _) in expected.items()}
    for name, (save, array) in expected.items():
        values = trial.tensor(name).values()
        if names:
            assert values == {}
            saved = trial.tensor(name).reduction_values(save.step)
            assert saved == {(each, False): _reduced(array, each) for each in names}, name
        else:
            np.testing.assert_array_equal(values[save.step], array, name)


def _reduced(array: Array, name: str) -> float:
    counts = {"nans": np.isnan, "infs": np.isinf}
    if name in counts:
        return float(np.count_nonzero(counts[name](array)))
    return float(getattr(np, name)(array.astype(np.float64)))
