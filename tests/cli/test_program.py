"""Programs run by the launcher: as if they had been started by themselves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from smdebug.storage.end_marker import EndMarker
from smdebug.storage.format.keys import END_KEY
from smdebug.testing import make_run

if TYPE_CHECKING:
    from pathlib import Path

TELLING = """
import sys
print(__name__, __file__, __package__)
print(sys.argv[1:])
print(sys.modules["__main__"].__dict__ is globals())
import beside
"""


def launch(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "smdebug", "run", *arguments]
    return subprocess.run(
        command, cwd=directory, capture_output=True, text=True, timeout=100, check=False
    )


def bare(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, cwd=directory, capture_output=True, text=True, timeout=100, check=False
    )


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory with a script, a package and a module beside the script."""
    inner = tmp_path / "scripts"
    package = tmp_path / "package"
    for each in (inner, package):
        each.mkdir()
    (inner / "train.py").write_text(TELLING, encoding="utf-8")
    (inner / "beside.py").write_text("print('beside')\n", encoding="utf-8")
    (tmp_path / "beside.py").write_text("print('of the directory')\n", encoding="utf-8")
    (package / "__init__.py").write_text("", encoding="utf-8")
    (package / "__main__.py").write_text(TELLING, encoding="utf-8")
    (package / "inner.py").write_text(TELLING, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    "arguments",
    [
        ["scripts/train.py"],
        ["scripts/train.py", "--out", "mine", "-m", "--help"],
        ["-m", "package", "1"],
        ["-m", "package.inner", "--every", "2"],
    ],
    ids=" ".join,
)
def test_it_finds_what_it_would_find_alone(arguments: list[str], directory: Path) -> None:
    alone = bare(directory, *arguments)
    assert alone.returncode == 0, alone.stderr
    for separator in ([], ["--"]):
        launched = launch(directory, "--out", "run", *separator, *arguments)
        assert launched.stdout == alone.stdout, launched.stderr
        assert launched.returncode == 0


def test_where_it_goes_does_not_move_with_the_script(tmp_path: Path) -> None:
    (tmp_path / "late.py").write_text("print('found')\n", encoding="utf-8")
    (tmp_path / "elsewhere").mkdir()
    program = "import os\nos.chdir('elsewhere')\nimport late\n"
    (tmp_path / "train.py").write_text(program, encoding="utf-8")
    for arguments in (["train.py"], ["-m", "train"]):
        ended = launch(tmp_path, "--out", "run", *arguments)
        assert ended.stdout == "found\n", ended.stderr


def test_what_a_package_misses_is_said_as_it_is(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("import not_installed\n", encoding="utf-8")
    (package / "train.py").write_text("", encoding="utf-8")
    ended = launch(tmp_path, "--out", "run", "-m", "package.train")
    assert ended.returncode == 1
    assert "No module named 'not_installed'" in ended.stderr


@pytest.mark.parametrize(
    "how", ["a = = 1", "sys.exit(7)", "raise SystemExit('no')", "raise KeyError('x')"]
)
def test_it_ends_as_it_would_alone(how: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(f"import sys\n{how}\n", encoding="utf-8")
    alone, launched = bare(tmp_path, "train.py"), launch(tmp_path, "--out", "run", "train.py")
    assert launched.returncode == alone.returncode
    # Beside what the launcher itself has to say.
    own = [line for line in launched.stderr.splitlines() if not line.startswith("smdebug: ")]
    assert own == alone.stderr.splitlines()


def test_an_interrupt(tmp_path: Path) -> None:
    text = "import signal\nprint('ready', flush=True)\nsignal.pause()\n"
    # It may have been inherited from a shell that ignores it.
    text = f"import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n{text}"
    (tmp_path / "train.py").write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "smdebug", "run", "--out", "run", "train.py"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(timeout=60) == -signal.SIGINT


def test_processes_it_spawns_find_its_functions(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import multiprocessing\n"
        "def double(number):\n"
        "    return 2 * number\n"
        "if __name__ == '__main__':\n"
        "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
        "        print(pool.map(double, [1, 2]))\n",
        encoding="utf-8",
    )
    launched = launch(tmp_path, "--out", "run", "train.py")
    assert launched.stdout == "[2, 4]\n", launched.stderr


def test_what_makes_no_sense(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('never')\n", encoding="utf-8")
    (tmp_path / "broken.json").write_text("{", encoding="utf-8")
    for arguments, said in (
        (["nothing.py"], "'nothing.py', which is no file"),
        (["-m", "no.such.module"], "'no.such.module', which cannot be found"),
        (["--", "-m"], "-m must be followed by the name of a module"),
        (["--config", "missing.json", "train.py"], "missing.json"),
        (["--config", "broken.json", "train.py"], "broken.json: the file must be JSON"),
        (["--every", "0", "train.py"], "--every"),
        (["--rules", "NoSuchRule", "train.py"], "NoSuchRule"),
        (["--reductions", "meen", "train.py"], "meen"),
        ([], "SCRIPT"),
    ):
        ended = launch(tmp_path, *arguments)
        assert ended.returncode == 2, (arguments, ended.stderr)
        assert said in ended.stderr, (arguments, ended.stderr)
        assert "Traceback" not in ended.stderr
        assert "never" not in ended.stdout


def test_a_finished_run_is_refused_before_the_script_begins(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('begun')\n", encoding="utf-8")
    make_run(str(tmp_path / "run"), steps=range(2))
    ended = launch(tmp_path, "--out", "run", "train.py")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert (
        "Use another --out, --overwrite to replace it, or --resume to continue it" in ended.stderr
    )
    assert launch(tmp_path, "--out", "run", "--resume", "train.py").stdout == "begun\n"
    assert launch(tmp_path, "--out", "run", "--overwrite", "train.py").stdout == "begun\n"
    both = launch(tmp_path, "--out", "run", "--overwrite", "--resume", "train.py")
    assert (both.returncode, both.stdout) == (2, "")
    assert "resume and overwrite must not be given together" in both.stderr


def test_a_run_that_was_interrupted_is_not_refused(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('begun')\n", encoding="utf-8")
    make_run(str(tmp_path / "run"), steps=range(2))
    (tmp_path / "run" / END_KEY).write_bytes(EndMarker(1.0, interrupted=True).encode())
    assert launch(tmp_path, "--out", "run", "train.py").stdout == "begun\n"


def test_it_says_that_nothing_was_trained_and_where_it_would_have_gone(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('done')\n", encoding="utf-8")
    ended = launch(tmp_path, "train.py")
    assert (ended.stdout, ended.returncode) == ("done\n", 0)
    assert f"saving to {tmp_path}/runs/train-" in ended.stderr
    assert "nothing was saved: no training was detected in train.py" in ended.stderr


def test_help_and_version(tmp_path: Path) -> None:
    shown = bare(tmp_path, "-m", "smdebug", "run", "--help")
    assert "smdebug run --save weights,gradients" in shown.stdout
    assert bare(tmp_path, "-m", "smdebug", "--version").stdout.startswith("smdebug ")
