"""The import path `smdebug.core.save_config` of smdebug 1.0."""

from smdebug.config.save_config import (
    DEFAULT_SAVE_CONFIG_END_STEP,
    DEFAULT_SAVE_CONFIG_INTERVAL,
    DEFAULT_SAVE_CONFIG_SAVE_STEPS,
    DEFAULT_SAVE_CONFIG_START_STEP,
    SaveConfig,
    SaveConfigMode,
)

__all__ = [
    "DEFAULT_SAVE_CONFIG_END_STEP",
    "DEFAULT_SAVE_CONFIG_INTERVAL",
    "DEFAULT_SAVE_CONFIG_SAVE_STEPS",
    "DEFAULT_SAVE_CONFIG_START_STEP",
    "SaveConfig",
    "SaveConfigMode",
]
