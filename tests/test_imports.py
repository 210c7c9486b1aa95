"""What an import costs: no framework, no cloud library, not even an attempt at one."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import smdebug
import tornasole
from smdebug.testing import make_run
from smdebug.trials import create_trial
from smdebug.trials.export.convert import convert_run
from smdebug.trials.selection import Selection

if TYPE_CHECKING:
    from pathlib import Path

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


def loaded_by(program: str) -> list[str]:
    """The heavy packages that a program loads, NumPy and pyarrow among them."""
    names = ["numpy", "pyarrow", *HEAVY]
    listing = f"print(*[name for name in {names!r} if name in sys.modules])"
    return printed_by(f"import sys\n{program}\n{listing}").split()


@pytest.mark.parametrize("module", ["smdebug", "tornasole"])
def test_import_of_the_package_loads_no_numpy(module: str) -> None:
    assert loaded_by(f"import {module}") == []


@pytest.mark.parametrize("module", ["smdebug", "tornasole"])
def test_names_are_loaded_at_first_use(module: str) -> None:
    program = f"""
import {module} as package
before = "smdebug.config.save_config" in sys.modules
assert {{*package.__all__}} <= {{*dir(package)}}
from {module} import SaveConfig
assert package.SaveConfig is SaveConfig
print(before, "smdebug.config.save_config" in sys.modules, "smdebug.trials" in sys.modules)
"""
    assert printed_by(f"import sys\n{program}") == "False True False"


@pytest.mark.parametrize("module", ["smdebug", "tornasole"])
def test_a_star_import_has_all_names(module: str) -> None:
    program = f"from {module} import *\nprint(SaveConfig, modes, create_trial, __version__)"
    assert "SaveConfig" in printed_by(program)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'smdebug' has no attribute 'Saveconfig'"):
        _ = smdebug.Saveconfig
    with pytest.raises(AttributeError, match="module 'tornasole' has no attribute 'Saveconfig'"):
        _ = tornasole.Saveconfig


def test_values_of_lazy_names_are_pickled() -> None:
    config = smdebug.SaveConfig(save_interval=3)
    assert pickle.loads(pickle.dumps(config)) == config


def test_logging_is_left_to_the_application() -> None:
    program = "import smdebug.trials, logging; print(logging.getLogger('smdebug').handlers)"
    assert printed_by(program) == "[]"


# A command as a user starts it, followed by what it has loaded.
COMMAND = """
import sys
from smdebug.cli.main import main

sys.argv = ["smdebug", *{arguments!r}]
try:
    main()
except SystemExit as ended:
    assert ended.code == {code}, ended.code
finally:
    names = ["numpy", "pyarrow", *{heavy!r}]
    print("loaded:", *[name for name in names if name in sys.modules])
"""


def loaded_by_command(*arguments: str, code: int = 0) -> list[str]:
    """The heavy packages that a command loads."""
    program = COMMAND.format(arguments=arguments, code=code, heavy=HEAVY)
    return printed_by(program).splitlines()[-1].removeprefix("loaded:").split()


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["show", "--help"]], ids=str)
def test_help_of_the_command_loads_no_numpy(arguments: list[str]) -> None:
    assert loaded_by_command(*arguments) == []


@pytest.mark.parametrize("run", ["run", "run.v1"])
@pytest.mark.parametrize(
    "arguments",
    [
        ["ls"],
        ["show"],
        ["show", "loss"],
        ["show", "--json"],
        ["layers", "--collection", "all"],
        ["check"],
        ["rules"],
        ["compact"],
    ],
    ids=" ".join,
)
def test_reading_commands_load_no_pandas(run: str, arguments: list[str], runs: Path) -> None:
    name, *options = arguments
    loaded = loaded_by_command(name, str(runs / run), *options)
    assert loaded == ["numpy", "pyarrow"]


def test_diff_loads_no_pandas(runs: Path) -> None:
    assert loaded_by_command("diff", str(runs / "run"), str(runs / "run.v1")) == [
        "numpy",
        "pyarrow",
    ]


def test_findings_are_recorded_without_pandas(runs: Path) -> None:
    rule = "TensorVariance:collection_names=all,max_threshold=1e-9"
    loaded = loaded_by_command("rules", str(runs / "run"), "--rule", rule, code=1)
    assert loaded == ["numpy", "pyarrow"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in both formats."""
    folder = tmp_path_factory.mktemp("runs")
    make_run(folder / "run", range(20))
    convert_run(Selection(create_trial(str(folder / "run"))), str(folder / "run.v1"), "v1")
    return folder
