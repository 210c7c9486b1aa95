"""The log: which handlers are installed, what they show, and the environment variables."""

from __future__ import annotations

import logging
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import smdebug
from smdebug.config import environment
from smdebug.config.log import HarmlessFilter, WarnOnce
from smdebug.core.logger import DuplicateLogFilter, get_logger

# A program that logs through the library and by itself, and has handlers or has none.
PROGRAM = """
import logging
{before}
import smdebug
from smdebug.core.logger import get_logger

hook = logging.getLogger("smdebug.hook")
for number in range(5):
    hook.info("the same")
    hook.info("step %d", number)
hook.debug("detail")
hook.warning("careful")
hook.error("broken")
logging.getLogger("program").warning("of the program")
print("handlers", len(get_logger().handlers), len(logging.getLogger().handlers))
"""
LINE = re.compile(
    r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} (\S+) ([A-Z]+) (\S+\.py|<string>):\d+\] (.*)$"
)
BASIC = "logging.basicConfig(format='root %(message)s')"


def run(before: str = "", **variables: str) -> tuple[list[str], list[str]]:
    """What the program prints on stdout and on stderr."""
    known = {variable.name for variable in environment.VARIABLES}
    inherited = {name: value for name, value in os.environ.items() if name not in known}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(before=before)],
        env={**inherited, **variables},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout.splitlines(), done.stderr.splitlines()


def shown(lines: list[str]) -> list[tuple[str, str]]:
    """Level and message of the lines that the library has formatted."""
    return [(match[2], match[4]) for line in lines if (match := LINE.match(line))]


STEPS = [("INFO", f"step {number}") for number in range(5)]
# In order: the repeated message is between the first steps.
INFO = [
    *[line for number in range(3) for line in (("INFO", "the same"), STEPS[number])],
    *STEPS[3:],
    ("WARNING", "careful"),
    ("ERROR", "broken"),
]


def test_no_handlers_are_installed_by_default() -> None:
    out, err = run(BASIC)
    assert out == ["handlers 0 1"]
    # The program's own handler has them all, at the program's own level.
    assert err == ["root careful", "root broken", "root of the program"]


@pytest.mark.parametrize(
    "variables",
    [
        {"TRAINING_JOB_NAME": "job"},
        {"SMDEBUG_LOG_LEVEL": "info"},
        {"SMDEBUG_LOG_ALL_TO_STDOUT": "TRUE"},
    ],
)
def test_handlers_are_installed_on_request(variables: dict[str, str]) -> None:
    out, err = run(BASIC, **variables)
    assert shown(out) == INFO
    assert out[-1] == "handlers 1 1"
    # Not shown a second time by the program's handler, which is left alone.
    assert err == ["root of the program"]
    match = LINE.match(out[0])
    assert match is not None
    host, _, process = match[1].rpartition(":")
    assert host == socket.gethostname()
    assert process.isdigit()


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        ("debug", [*INFO[:-2], ("DEBUG", "detail"), *INFO[-2:]]),
        ("WARNING", INFO[-2:]),
        ("error", INFO[-1:]),
        ("critical", []),
        ("off", []),
    ],
)
def test_level(level: str, expected: list[tuple[str, str]]) -> None:
    out, err = run(SMDEBUG_LOG_LEVEL=level)
    assert shown(out) == expected
    # A logger that shows nothing leaves nothing to Python's last resort either.
    assert err == ["of the program"]


def test_errors_go_to_stderr() -> None:
    out, err = run(SMDEBUG_LOG_ALL_TO_STDOUT="FALSE")
    assert shown(out) == INFO[:-1]
    assert shown(err) == INFO[-1:]


def test_context() -> None:
    out, _ = run(SMDEBUG_LOG_CONTEXT="100%(here)s")
    assert {match[1] for line in out if (match := LINE.match(line))} == {"100%(here)s"}


def test_file(tmp_path: Path) -> None:
    path = tmp_path / "log"
    out, _ = run(SMDEBUG_LOG_PATH=str(path))
    assert shown(path.read_text(encoding="utf-8").splitlines()) == INFO
    assert shown(out) == INFO
    assert out[-1] == "handlers 2 0"


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "log"
    out, _ = run(SMDEBUG_LOG_PATH=str(path))
    (first, *others) = shown(out)
    assert first[0] == "WARNING"
    assert "SMDEBUG_LOG_PATH" in first[1]
    assert str(path) in first[1]
    assert others == INFO


def test_invalid_level() -> None:
    with pytest.raises(subprocess.CalledProcessError) as caught:
        run(SMDEBUG_LOG_LEVEL="loud")
    message = caught.value.stderr.splitlines()[-1]
    assert "SMDebugValueError: SMDEBUG_LOG_LEVEL must be one of debug, info" in message
    assert "'loud'" in message


def test_a_forked_process_has_its_own_context() -> None:
    program = """
import os, smdebug, logging
if os.fork() == 0:
    logging.getLogger("smdebug").info("child %d", os.getpid())
else:
    os.wait()
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "SMDEBUG_LOG_LEVEL": "info"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    (match,) = [LINE.match(line) for line in done.stdout.splitlines()]
    assert match is not None
    assert match[1].endswith(f":{match[4].split()[1]}")


def test_filter_is_bounded() -> None:
    repeated = DuplicateLogFilter()
    logger = get_logger("smdebug.test")

    def asked(text: str) -> bool:
        return repeated.filter(logger.makeRecord("smdebug.test", 20, "f.py", 1, text, (), None))

    assert [asked("a") for _ in range(5)] == [True, True, True, False, False]
    for number in range(5000):
        asked(str(number))
    # In a job of weeks memory stays small; the message is shown again.
    assert asked("a")
    assert len(repeated._times) <= 1000


def test_every_logger_of_the_package_escapes_control_characters() -> None:
    sources = Path(smdebug.__file__).parent.rglob("*.py")
    calls = [re.findall(r'getLogger\("(.+?)"\)', path.read_text("utf-8")) for path in sources]
    names = {name for found in calls for name in found}
    assert {"smdebug", "smdebug.hook", "smdebug.instrument"} <= names
    for name in names:
        assert any(isinstance(each, HarmlessFilter) for each in logging.getLogger(name).filters)


def test_warn_once(caplog: pytest.LogCaptureFixture) -> None:
    warnings = WarnOnce(logging.getLogger("smdebug.config"))
    error = ValueError("why")
    assert warnings.warning("a", "Ignoring %s", "a", exc_info=error)
    assert not warnings.warning("a", "Ignoring %s again", "a")
    assert warnings.warning(("a", 1), "Ignoring both")
    assert [record.getMessage() for record in caplog.records] == ["Ignoring a", "Ignoring both"]
    # The place in the log is that of the caller.
    assert {record.filename for record in caplog.records} == {"test_log.py"}
    assert caplog.records[0].exc_info == (ValueError, error, None)
    warnings.clear()
    assert warnings.warning("a", "Ignoring %s", "a")
