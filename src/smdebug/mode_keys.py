"""The modes a training job can be in."""

from __future__ import annotations

from enum import Enum


class ModeKeys(Enum):
    """What the job is doing at a step.

    `GLOBAL` is the mode of scripts that never call `set_mode`, and the numbering that runs
    through all modes.

    Example:
        >>> ModeKeys.TRAIN.name
        'TRAIN'
    """

    TRAIN = 1
    EVAL = 2
    PREDICT = 3
    GLOBAL = 4

    # Members are singletons; Enum's own hash is a Python function, and every step looks modes up.
    __hash__ = object.__hash__


ALLOWED_MODES = list(ModeKeys)
ALLOWED_MODE_NAMES = [mode.name for mode in ModeKeys]

# Names of the two pieces of metadata an event record carries beside its tensor.
MODE_STEP_PLUGIN_NAME = "mode_step"
MODE_PLUGIN_NAME = "mode"


def str_to_mode_keys(mode_str: str) -> ModeKeys:
    """Turns `"train"`, `"eval"`, `"predict"` or `"global"` into a mode.

    Example:
        >>> str_to_mode_keys("eval")
        <ModeKeys.EVAL: 2>
    """
    from smdebug.exceptions import SMDebugValueError  # exceptions carry modes: not at the top

    by_name = {mode.name.lower(): mode for mode in ModeKeys}
    if mode_str not in by_name:
        raise SMDebugValueError(f"mode must be one of {', '.join(by_name)}, got {mode_str!r}")
    return by_name[mode_str]
