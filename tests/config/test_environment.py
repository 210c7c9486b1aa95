"""The environment variables."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Any

import pytest

from smdebug.config import environment as env
from smdebug.exceptions import SMDebugValueError

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in env.VARIABLES:
        monkeypatch.delenv(variable.name, raising=False)
        if variable.alias:
            monkeypatch.delenv(variable.alias, raising=False)


CONFIG_DIR = "/opt/ml/input/config"
DEFAULTS: list[tuple[Callable[[], Any], Any]] = [
    (env.use_smdebug, True),
    (env.config_file_path, f"{CONFIG_DIR}/debughookconfig.json"),
    (env.tensorboard_config_file_path, f"{CONFIG_DIR}/tensorboardoutputconfig.json"),
    (env.checkpoint_config_file_path, f"{CONFIG_DIR}/checkpointconfig.json"),
    (env.storage_format, "v2"),
    (env.metrics_directory, None),
    (env.training_job_name, None),
    (env.in_sagemaker, False),
    (env.training_end_delay, 0.0),
    (env.incomplete_step_wait_window, 1000),
    (env.missing_event_file_retry_limit, 100),
    (env.log_level, "info"),
    (env.log_path, None),
    (env.log_all_to_stdout, True),
    (env.aws_region, None),
    (env.rule_stop_signal_file, None),
    (env.rule_stop_grace_seconds, 60.0),
]


@pytest.mark.parametrize(("read", "expected"), DEFAULTS)
def test_default(read: Callable[[], Any], expected: Any) -> None:
    assert read() == expected


def test_default_log_context_names_the_process() -> None:
    assert env.log_context() == f"{socket.gethostname()}:{os.getpid()}"


@pytest.mark.parametrize(
    ("name", "value", "read", "expected"),
    [
        ("USE_SMDEBUG", "Off", env.use_smdebug, False),
        ("USE_SMDEBUG", "YES", env.use_smdebug, True),
        ("USE_SMDEBUG", "", env.use_smdebug, True),
        ("SMDEBUG_CONFIG_FILE_PATH", "job.json", env.config_file_path, "job.json"),
        ("SMDEBUG_FORMAT", "V1", env.storage_format, "v1"),
        ("TRAINING_JOB_NAME", "job", env.storage_format, "v1"),
        ("TRAINING_JOB_NAME", "job", env.in_sagemaker, True),
        ("TRAINING_JOB_NAME", "job", env.training_job_name, "job"),
        ("SMDEBUG_TRAINING_END_DELAY_REFRESH", "0", env.training_end_delay, 0.0),
        ("SMDEBUG_TRAINING_END_DELAY_REFRESH", "0.5", env.training_end_delay, 0.5),
        ("TRAINING_END_DELAY_REFRESH", "0.25", env.training_end_delay, 0.25),
        ("INCOMPLETE_STEP_WAIT_WINDOW", "5", env.incomplete_step_wait_window, 5),
        ("SMDEBUG_INCOMPLETE_STEP_WAIT_WINDOW", "5.0", env.incomplete_step_wait_window, 5),
        ("SMDEBUG_MISSING_EVENT_FILE_RETRY_LIMIT", "0", env.missing_event_file_retry_limit, 0),
        ("SMDEBUG_LOG_LEVEL", "DEBUG", env.log_level, "debug"),
        ("SMDEBUG_LOG_CONTEXT", "me", env.log_context, "me"),
        ("SMDEBUG_LOG_PATH", "a.log", env.log_path, "a.log"),
        ("SMDEBUG_LOG_ALL_TO_STDOUT", "FALSE", env.log_all_to_stdout, False),
        ("AWS_REGION", "eu-west-1", env.aws_region, "eu-west-1"),
        ("SAGEMAKER_ENV_RULE_STOP_SIGNAL_FILE", "stop", env.rule_stop_signal_file, "stop"),
        ("rule_stop_grace_time_secs", "1.5", env.rule_stop_grace_seconds, 1.5),
    ],
)
def test_set(
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    value: str,
    read: Callable[[], Any],
    expected: Any,
) -> None:
    monkeypatch.setenv(name, value)
    assert read() == expected


def test_prefixed_name_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINING_END_DELAY_REFRESH", "5")
    monkeypatch.setenv("SMDEBUG_TRAINING_END_DELAY_REFRESH", "2")
    assert env.training_end_delay() == 2.0


def test_an_explicit_format_wins_in_sagemaker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINING_JOB_NAME", "job")
    monkeypatch.setenv("SMDEBUG_FORMAT", "v2")
    assert env.storage_format() == "v2"


@pytest.mark.parametrize(
    ("name", "value", "read", "expected"),
    [
        ("USE_SMDEBUG", "maybe", env.use_smdebug, "yes"),
        ("SMDEBUG_FORMAT", "v3", env.storage_format, "v1, v2"),
        ("SMDEBUG_TRAINING_END_DELAY_REFRESH", "soon", env.training_end_delay, "seconds"),
        ("SMDEBUG_TRAINING_END_DELAY_REFRESH", "-1", env.training_end_delay, "seconds"),
        ("TRAINING_END_DELAY_REFRESH", "nan", env.training_end_delay, "seconds"),
        ("INCOMPLETE_STEP_WAIT_WINDOW", "many", env.incomplete_step_wait_window, "an integer"),
        ("SMDEBUG_INCOMPLETE_STEP_WAIT_WINDOW", "inf", env.incomplete_step_wait_window, "integer"),
        ("SMDEBUG_MISSING_EVENT_FILE_RETRY_LIMIT", "x", env.missing_event_file_retry_limit, "0"),
        ("SMDEBUG_LOG_LEVEL", "loud", env.log_level, "debug"),
        ("SMDEBUG_LOG_ALL_TO_STDOUT", "2", env.log_all_to_stdout, "true"),
        ("rule_stop_grace_time_secs", "long", env.rule_stop_grace_seconds, "seconds"),
    ],
)
def test_bad(
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    value: str,
    read: Callable[[], Any],
    expected: str,
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(SMDebugValueError) as caught:
        read()
    message = str(caught.value)
    assert message.startswith(name)
    assert expected in message
    assert value.lower() in message.lower()
