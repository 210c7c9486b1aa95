"""Instrument every framework that a script imports."""

from __future__ import annotations

import importlib
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import wrapt

from smdebug.config import environment
from smdebug.config.json_config import parse_json_config, read_json_object
from smdebug.instrument.job import InstrumentedJob

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType

# The package whose import is waited for, and the module here that instruments it.
FRAMEWORKS = {
    "torch": "pytorch",
    "lightning.pytorch": "lightning",
    "pytorch_lightning": "lightning",
    "keras": "keras",
    "xgboost": "xgboost",
    "mxnet": "mxnet",
}


def instrument(config: Mapping[str, Any], source: str = "JSON config") -> InstrumentedJob:
    """Instrument every framework that is imported, now or later.

    Args:
        config: the JSON config.
        source: where the config came from, for error messages.

    Raises:
        SMDebugValueError: the config is invalid.
    """
    # An invalid config is an error here, not in the middle of the script.
    parse_json_config(config, source)
    job = InstrumentedJob(config)
    for package, name in FRAMEWORKS.items():
        wrapt.register_post_import_hook(partial(_instrument_package, job, name), package)
    return job


def instrument_from_environment() -> InstrumentedJob | None:
    """Instrument with the JSON config of the environment.

    Returns:
        The job; None if there is no config, or smdebug is turned off.

    Raises:
        FileNotFoundError: the file that `SMDEBUG_CONFIG_FILE_PATH` names does not exist.
    """
    path = environment.config_file_path()
    if not environment.use_smdebug():
        return None
    if not environment.has_config_file_path() and not Path(path).exists():
        return None
    return instrument(read_json_object(path), path)


def _instrument_package(job: InstrumentedJob, name: str, package: ModuleType) -> None:
    loader: Any = package.__loader__
    if type(loader).__module__ == "wrapt.importer":
        # wrapt 1.14 leaves its loader on the package, which then cannot open its resources.
        package.__loader__ = loader.loader
        if package.__spec__ is not None:
            package.__spec__.loader = loader.loader
    importlib.import_module(f"smdebug.instrument.{name}").instrument(job, package)
