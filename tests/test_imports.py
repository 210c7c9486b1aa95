"""What an import costs: no framework, no cloud library, not even an attempt at one."""

from __future__ import annotations

import subprocess
import sys

import pytest

FRAMEWORKS = ["torch", "tensorflow", "keras", "mxnet", "xgboost"]
HEAVY = [*FRAMEWORKS, "boto3", "botocore", "obstore", "pandas", "duckdb", "matplotlib"]

# Notes whatever is asked for, also where it is not installed and the asker would not mind.
SPY = """
import sys

class Spy:
    asked = []

    def find_spec(self, name, path=None, target=None):
        self.asked.append(name)
        return None

sys.meta_path.insert(0, Spy())
"""


def printed_by(program: str) -> str:
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.strip()


def attempts(module: str) -> list[str]:
    """The heavy packages that importing a module asks for."""
    heavy = f"[name for name in Spy.asked if name in {HEAVY!r}]"
    return printed_by(f"{SPY}\nimport {module}\nprint(*{heavy})").split()


@pytest.mark.parametrize("module", ["smdebug", "smdebug.trials", "tornasole", "tornasole.trials"])
def test_import_asks_for_nothing_heavy(module: str) -> None:
    assert attempts(module) == []


def test_the_spy_sees_what_is_not_installed() -> None:
    program = f"{SPY}\ntry:\n    import torch\nexcept ImportError:\n    pass\nprint(*Spy.asked)"
    assert "torch" in printed_by(program).split()


def test_import_of_the_package_leaves_pyarrow_for_later() -> None:
    assert printed_by("import smdebug, sys; print('pyarrow' in sys.modules)") == "False"


def test_logging_is_left_to_the_application() -> None:
    program = "import smdebug.trials, logging; print(logging.getLogger('smdebug').handlers)"
    assert printed_by(program) == "[]"
