"""Environment variables; the only module that reads `os.environ`, at each call."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass

from smdebug.config import validation

DEFAULT_CONFIG_FILE_PATH = "/opt/ml/input/config/debughookconfig.json"
DEFAULT_TENSORBOARD_CONFIG_FILE_PATH = "/opt/ml/input/config/tensorboardoutputconfig.json"
DEFAULT_CHECKPOINT_CONFIG_FILE_PATH = "/opt/ml/input/config/checkpointconfig.json"

_TRUE = ("y", "yes", "t", "true", "on", "1")
_FALSE = ("n", "no", "f", "false", "off", "0")
_LOG_LEVELS = ("debug", "info", "warning", "error", "critical", "off")


@dataclass(frozen=True)
class Variable:
    """One environment variable.

    Attributes:
        name: its name.
        default: the value used when it is not set or empty; None means there is none.
        meaning: its effect, in a line.
        alias: an older name, read when `name` is not set.
    """

    name: str
    default: str | None
    meaning: str
    alias: str | None = None


VARIABLES = (
    Variable("USE_SMDEBUG", "true", "`get_hook` returns None when this is false."),
    Variable("SMDEBUG_CONFIG_FILE_PATH", DEFAULT_CONFIG_FILE_PATH, "The JSON config."),
    Variable(
        "TENSORBOARD_CONFIG_FILE_PATH",
        DEFAULT_TENSORBOARD_CONFIG_FILE_PATH,
        "The file that names the TensorBoard directory in a SageMaker job.",
    ),
    Variable(
        "CHECKPOINT_CONFIG_FILE_PATH",
        DEFAULT_CHECKPOINT_CONFIG_FILE_PATH,
        "The file that names the checkpoint directory, from which an interrupted job resumes.",
    ),
    Variable("SMDEBUG_FORMAT", None, "Format of new runs: v1 or v2 (v1 in a SageMaker job)."),
    Variable(
        "SAGEMAKER_METRICS_DIRECTORY",
        None,
        "Where a SageMaker job's metrics file goes; without it there is none.",
    ),
    Variable("TRAINING_JOB_NAME", None, "Its presence marks a SageMaker training job."),
    Variable(
        "SMDEBUG_TRAINING_END_DELAY_REFRESH",
        "0",
        "Seconds a trial waits before its last refresh once the job has ended.",
        alias="TRAINING_END_DELAY_REFRESH",
    ),
    Variable(
        "SMDEBUG_INCOMPLETE_STEP_WAIT_WINDOW",
        "1000",
        "How many steps may wait for late workers before the oldest one counts as complete.",
        alias="INCOMPLETE_STEP_WAIT_WINDOW",
    ),
    Variable(
        "SMDEBUG_MISSING_EVENT_FILE_RETRY_LIMIT",
        "100",
        "How often a trial looks for a missing event file again, every 2 s.",
    ),
    Variable("SMDEBUG_LOG_LEVEL", "info", "debug, info, warning, error, critical or off."),
    Variable("SMDEBUG_LOG_CONTEXT", None, "A string in each log line (`<host>:<process id>`)."),
    Variable("SMDEBUG_LOG_PATH", None, "A file for the log."),
    Variable("SMDEBUG_LOG_ALL_TO_STDOUT", "TRUE", "Whether errors are logged to stdout too."),
    Variable(
        "SMDEBUG_STORE_RETRY_SECONDS",
        "900",
        "How long an outage of an object store may last before unwritten data is lost.",
    ),
    Variable("AWS_REGION", None, "Region of S3, SNS and SageMaker calls."),
    Variable(
        "SAGEMAKER_ENV_RULE_STOP_SIGNAL_FILE",
        None,
        "A file with the time (epoch seconds) at which a rule was asked to stop.",
    ),
    Variable("rule_stop_grace_time_secs", "60", "Seconds a rule may continue after that time."),
    Variable("RANK", None, "Rank of this process, as torchrun sets it."),
    Variable("WORLD_SIZE", None, "Number of processes in the job, as torchrun sets it."),
)

_BY_NAME = {variable.name: variable for variable in VARIABLES}


def use_smdebug() -> bool:
    """Return whether `get_hook` may return a hook (`USE_SMDEBUG`)."""
    return _switch("USE_SMDEBUG")


def config_file_path() -> str:
    """Return the path of the JSON config."""
    return _required("SMDEBUG_CONFIG_FILE_PATH")[1]


def has_config_file_path() -> bool:
    """Return whether the path of the JSON config is set."""
    return bool(os.environ.get("SMDEBUG_CONFIG_FILE_PATH", "").strip())


def tensorboard_config_file_path() -> str:
    """Return the path of the file that names the TensorBoard directory."""
    return _required("TENSORBOARD_CONFIG_FILE_PATH")[1]


def checkpoint_config_file_path() -> str:
    """Return the path of the file that names the checkpoint directory."""
    return _required("CHECKPOINT_CONFIG_FILE_PATH")[1]


def storage_format() -> str:
    """Return the format of new runs: `SMDEBUG_FORMAT`, else v1 in a SageMaker job, else v2.

    In a SageMaker job AWS's own tools read the run, and they read v1 only.
    """
    name, value = _read("SMDEBUG_FORMAT")
    if value is None:
        return "v1" if in_sagemaker() else "v2"
    return validation.choice(name, value.lower(), ("v1", "v2"))


def metrics_directory() -> str | None:
    """Return the directory of the metrics file of a SageMaker job; None when there is none."""
    return _read("SAGEMAKER_METRICS_DIRECTORY")[1] if in_sagemaker() else None


def training_job_name() -> str | None:
    """Return the name of the SageMaker training job this process is part of."""
    return os.environ.get("TRAINING_JOB_NAME")


def in_sagemaker() -> bool:
    """Return whether this process is part of a SageMaker training job."""
    return training_job_name() is not None


def training_end_delay() -> float:
    """Return the seconds to wait before the last refresh of a finished trial."""
    return validation.seconds(*_required("SMDEBUG_TRAINING_END_DELAY_REFRESH"))


def incomplete_step_wait_window() -> int:
    """Return how many steps may wait for late workers."""
    return _count("SMDEBUG_INCOMPLETE_STEP_WAIT_WINDOW")


def missing_event_file_retry_limit() -> int:
    """Return how often to check again for a missing event file."""
    return _count("SMDEBUG_MISSING_EVENT_FILE_RETRY_LIMIT")


def wants_log() -> bool:
    """Return whether the library shows its log itself instead of leaving that to the program."""
    return in_sagemaker() or any(
        _is_set(name) for name in _BY_NAME if name.startswith("SMDEBUG_LOG_")
    )


def log_level() -> str:
    """Return the log level in lower case; `off` is one of them."""
    name, value = _required("SMDEBUG_LOG_LEVEL")
    return validation.choice(name, value.lower(), _LOG_LEVELS)


def log_context() -> str:
    """Return the string in the log lines of this process."""
    return _read("SMDEBUG_LOG_CONTEXT")[1] or f"{socket.gethostname()}:{os.getpid()}"


def log_path() -> str | None:
    """Return the file to log to."""
    return _read("SMDEBUG_LOG_PATH")[1]


def log_all_to_stdout() -> bool:
    """Return whether errors go to stdout as the other messages do."""
    return _switch("SMDEBUG_LOG_ALL_TO_STDOUT")


def store_retry_seconds() -> float:
    """Return how long to retry writing to an object store that fails."""
    return validation.seconds(*_required("SMDEBUG_STORE_RETRY_SECONDS"))


def aws_region() -> str | None:
    """Return the region for S3, SNS and SageMaker."""
    return _read("AWS_REGION")[1]


def rule_stop_signal_file() -> str | None:
    """Return the file whose existence stops a rule."""
    return _read("SAGEMAKER_ENV_RULE_STOP_SIGNAL_FILE")[1]


def rule_stop_grace_seconds() -> float:
    """Return how long a rule may continue after it was requested to stop."""
    return validation.seconds(*_required("rule_stop_grace_time_secs"))


def distributed_rank() -> tuple[int, int]:
    """Return the rank of this process and the world size; (0, 1) when they are not set."""
    (rank_name, rank), (count_name, count) = _read("RANK"), _read("WORLD_SIZE")
    if rank is None or count is None:
        return 0, 1
    return validation.whole_number(rank_name, rank), validation.whole_number(
        count_name, count, minimum=1
    )


def _read(name: str) -> tuple[str, str | None]:
    """Return the name that is set, and its value; an empty value counts as not set."""
    variable = _BY_NAME[name]
    for spelling in (name, variable.alias):
        value = os.environ.get(spelling, "").strip() if spelling else ""
        if spelling and value:
            return spelling, value
    return name, variable.default


def _is_set(name: str) -> bool:
    return bool(os.environ.get(name, "").strip())


def _required(name: str) -> tuple[str, str]:
    spelling, value = _read(name)
    assert value is not None, f"{name} has no default"
    return spelling, value


def _switch(name: str) -> bool:
    spelling, value = _required(name)
    return validation.choice(spelling, value.lower(), (*_TRUE, *_FALSE)) in _TRUE


def _count(name: str) -> int:
    spelling, value = _required(name)
    try:
        # smdebug 1.0 accepts "1000.0" as well.
        number: object = float(value)
    except ValueError:
        number = value
    return validation.whole_number(spelling, number)
