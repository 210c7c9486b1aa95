"""Attaching to whatever the script will import."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from smdebug.config import environment
from smdebug.config.json_config import parse_json_config, read_json_object
from smdebug.instrument.imports import ImportWatch
from smdebug.instrument.job import InstrumentedJob

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType


def attach(description: Mapping[str, Any], place: str = "job file") -> InstrumentedJob:
    """Has every framework that is imported, or will be, attach a hook to what it trains.

    Args:
        description: what a job file says.
        place: where it came from, for error messages.

    Raises:
        SMDebugValueError: the description makes no sense.
    """
    # Here, and not in the middle of the script.
    parse_json_config(description, place)
    job = InstrumentedJob(description)

    def pytorch(module: ModuleType) -> None:
        from smdebug.instrument.pytorch import PytorchWatch

        PytorchWatch(job)

    def lightning(module: ModuleType) -> None:
        from smdebug.instrument.lightning import LightningWatch

        LightningWatch(job, module)

    def keras(module: ModuleType) -> None:
        from smdebug.instrument.keras import KerasWatch

        KerasWatch(job, module)

    def xgboost(module: ModuleType) -> None:
        from smdebug.instrument.xgboost import XgboostWatch

        XgboostWatch(job)

    def mxnet(module: ModuleType) -> None:
        from smdebug.instrument.mxnet import MxnetWatch

        MxnetWatch(job)

    ImportWatch(
        {
            "torch": pytorch,
            "lightning.pytorch": lightning,
            "pytorch_lightning": lightning,
            "keras": keras,
            "xgboost": xgboost,
            "mxnet": mxnet,
        }
    ).start()
    return job


def attach_by_environment() -> InstrumentedJob | None:
    """Attaches what the job file describes; None where there is none, or smdebug is turned off.

    Raises:
        FileNotFoundError: `SMDEBUG_CONFIG_FILE_PATH` names a file that is not there.
    """
    path = environment.config_file_path()
    if not environment.use_smdebug():
        return None
    if not environment.has_config_file_path() and not Path(path).exists():
        return None
    return attach(read_json_object(path), path)
