"""What an import costs: no framework, no cloud library."""

from __future__ import annotations

import subprocess
import sys

import pytest

FRAMEWORKS = ["torch", "tensorflow", "keras", "mxnet", "xgboost"]
HEAVY = [*FRAMEWORKS, "boto3", "botocore", "obstore", "pandas", "duckdb", "matplotlib"]


def printed_by(program: str) -> str:
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.strip()


@pytest.mark.parametrize("module", ["smdebug", "smdebug.trials", "tornasole", "tornasole.trials"])
def test_import_loads_nothing_heavy(module: str) -> None:
    program = f"import {module}, sys; print(*[m for m in {HEAVY!r} if m in sys.modules])"
    assert printed_by(program) == ""


def test_import_of_the_package_leaves_pyarrow_for_later() -> None:
    assert printed_by("import smdebug, sys; print('pyarrow' in sys.modules)") == "False"


def test_logging_is_left_to_the_application() -> None:
    program = "import smdebug.trials, logging; print(logging.getLogger('smdebug').handlers)"
    assert printed_by(program) == "[]"
