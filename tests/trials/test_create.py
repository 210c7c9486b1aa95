"""Opening a trial: paths that are wrong, jobs that begin later, and the spellings of arguments."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import smdebug
from smdebug.exceptions import (
    MissingCollectionFiles,
    SMDebugError,
    SMDebugNotImplementedError,
    SMDebugTypeError,
    SMDebugValueError,
    TrialNotFound,
)
from smdebug.testing.runs import make_run
from smdebug.trials import LocalTrial, Trial, create_trial

if TYPE_CHECKING:
    from pathlib import Path

# Long enough to fail a test that waits where it should not.
_FOREVER = 60.0


# ---- paths that are wrong


def test_a_wrong_path_is_an_error_at_once(tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(TrialNotFound, match="does not exist") as caught:
        create_trial(tmp_path / "typo")
    assert time.monotonic() - began < 5
    assert isinstance(caught.value, FileNotFoundError)
    assert "typo" in str(caught.value)
    assert "wait_seconds" in str(caught.value)
    assert not (tmp_path / "typo").exists()


def test_a_file_is_not_a_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(TrialNotFound):
        create_trial(tmp_path / "file")


def test_a_directory_of_something_else_is_not_a_run(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "main.py").write_text("x")
    with pytest.raises(TrialNotFound, match="not a run"):
        create_trial(tmp_path)


def test_the_folder_above_a_run_is_not_a_run(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    with pytest.raises(TrialNotFound):
        create_trial(tmp_path)


@pytest.mark.parametrize("path", ["", "   ", "nowhere://bucket/run"])
def test_paths_that_are_none(path: str) -> None:
    with pytest.raises(SMDebugValueError):
        create_trial(path)


# ---- waiting


def test_an_empty_directory_is_waited_for_with_a_limit_and_a_message(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    began = time.monotonic()
    with (
        caplog.at_level(logging.WARNING),
        pytest.raises(MissingCollectionFiles, match=r"0\.3") as caught,
    ):
        create_trial(tmp_path, wait_seconds=0.3)
    assert time.monotonic() - began >= 0.3
    assert str(tmp_path) in str(caught.value)
    messages = [record.getMessage() for record in caplog.records if "waiting" in record.msg]
    # Told once, with the place and the limit.
    assert len(messages) == 1
    assert str(tmp_path) in messages[0]
    assert "0.3" in messages[0]


def test_not_waiting_at_all(tmp_path: Path) -> None:
    with pytest.raises(MissingCollectionFiles):
        create_trial(tmp_path / "not yet", wait_seconds=0)


def test_a_job_that_begins_while_it_is_waited_for(tmp_path: Path, format: str) -> None:
    job = threading.Timer(0.1, make_run, (tmp_path, range(3), ["a", "b"], format))
    job.start()
    trial = create_trial(tmp_path, wait_seconds=_FOREVER)
    job.join()
    trial.wait_for_steps([0, 1, 2])
    assert trial.workers() == ["a", "b"]


def test_a_directory_that_another_process_makes_later(tmp_path: Path) -> None:
    path = tmp_path / "later" / "run"
    script = (
        "import sys\n"
        "from smdebug.testing.runs import make_run\n"
        "sys.stdin.readline()\n"
        "make_run(sys.argv[1], range(4))\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(path)], stdin=subprocess.PIPE, text=True
    ) as job:
        threading.Timer(0.1, lambda: job.communicate("go\n")).start()
        trial = create_trial(path, wait_seconds=_FOREVER)
        trial.wait_for_steps(range(4))
        assert trial.steps() == [0, 1, 2, 3]
    assert job.returncode == 0


def test_all_workers_are_waited_for(tmp_path: Path) -> None:
    make_run(tmp_path, range(3), ["a"], num_workers=2, end=False)
    with pytest.raises(MissingCollectionFiles, match=r"2 worker.*a"):
        create_trial(tmp_path, wait_seconds=0.1)
    job = threading.Timer(
        0.1, make_run, (tmp_path, range(3), ["b"]), {"num_workers": 2, "end": False}
    )
    job.start()
    trial = create_trial(tmp_path, wait_seconds=_FOREVER)
    job.join()
    assert trial.workers() == ["a", "b"]
    assert trial.num_workers == 2


def test_missing_workers_of_a_job_that_has_ended(tmp_path: Path) -> None:
    make_run(tmp_path, range(3), ["a"], num_workers=2)
    began = time.monotonic()
    with pytest.raises(MissingCollectionFiles, match="has ended"):
        create_trial(tmp_path)
    assert time.monotonic() - began < 5


def test_a_job_that_ended_without_collections(tmp_path: Path) -> None:
    (tmp_path / "training_job_end.ts").touch()
    with pytest.raises(MissingCollectionFiles):
        create_trial(tmp_path)


@pytest.mark.parametrize("name", ["claim.smd", "events/x.tmp", "collections/000000000/x.tmp"])
def test_a_job_that_has_just_begun_is_waited_for(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    job = threading.Timer(0.1, make_run, (tmp_path,))
    job.start()
    trial = create_trial(tmp_path)
    job.join()
    trial.wait_for_steps([0])


# ---- arguments


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "one"
    make_run(path)
    return path


def test_the_ways_to_name_a_path(run: Path) -> None:
    for trial in (
        create_trial(str(run)),
        create_trial(run),
        create_trial(path=run),
        create_trial(out_dir=run),
        create_trial(out_dir=str(run)),
        create_trial(f"  {run} "),
        create_trial(f"{run}/"),
        create_trial(f"file://{run}"),
        smdebug.create_trial(str(run)),
    ):
        assert isinstance(trial, Trial)
        assert trial.steps() == [0, 1, 2]
        assert trial.name == "one"


def test_a_relative_path(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run.parent)
    trial = create_trial("one")
    monkeypatch.chdir("/")
    # Where the trial lies was decided when it was opened.
    assert trial.tensor("fc.weight").value(1).shape == (2, 3)


@pytest.mark.parametrize("name", ["a__b", "a b", "a%20b", "ünï", "a#b?c", "[x]", "~x", "a:b"])
def test_paths_with_odd_names(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    make_run(path, range(2))
    trial = create_trial(path)
    assert trial.name == name
    assert trial.steps() == [0, 1]
    assert trial.tensor("fc.weight").value(1).shape == (2, 3)


def test_names(run: Path) -> None:
    trial = create_trial(run, "mine")
    assert trial.name == "mine"
    assert trial.path == str(run)


def test_the_options_of_old_scripts(run: Path) -> None:
    trial = create_trial(
        str(run), "mine", False, "/opt/ml/processing/outputs/",
        range_steps=None, check=True, index_mode=True, cache=True, parallel=False,
    )  # fmt: skip
    assert trial.steps() == [0, 1, 2]


def test_path_and_out_dir_are_one_thing(run: Path) -> None:
    with pytest.raises(SMDebugTypeError, match="path and out_dir"):
        create_trial()
    with pytest.raises(SMDebugTypeError, match="path and out_dir"):
        create_trial(run, out_dir=run)


def test_an_option_that_does_not_exist(run: Path) -> None:
    with pytest.raises(SMDebugTypeError, match="range_step"):
        create_trial(run, range_step=(0, 1))


@pytest.mark.parametrize("wait_seconds", ["soon", float("nan"), [1]])
def test_times_to_wait_that_are_none(run: Path, wait_seconds: Any) -> None:
    with pytest.raises(SMDebugError, match="wait_seconds"):
        create_trial(run, wait_seconds=wait_seconds)


def test_profiler_trials_are_refused(run: Path) -> None:
    with pytest.raises(SMDebugNotImplementedError, match="profiler"):
        create_trial(run, profiler=True)


def test_local_trial(run: Path) -> None:
    trial = LocalTrial("mine", str(run), range_steps=(1, None), parallel=False)
    assert trial.name == "mine"
    assert trial.steps() == [1, 2]
    assert isinstance(trial, Trial)
    with pytest.raises(SMDebugTypeError):
        LocalTrial("mine", str(run), nothing=1)


def test_opening_loads_no_framework_and_no_cloud_library(run: Path) -> None:
    script = (
        "import sys, smdebug.trials\n"
        "smdebug.trials.create_trial(sys.argv[1]).tensor('loss').series()\n"
        "names = ('torch', 'tensorflow', 'mxnet', 'xgboost', 'boto3', 'obstore', 'duckdb')\n"
        "sys.exit(', '.join(name for name in names if name in sys.modules) or 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(run)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_run_that_holds_only_the_lock_of_its_job_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A hook takes its lock some steps before there is anything to read.
    (tmp_path / "locks").mkdir()
    monkeypatch.setattr("smdebug.trials.wait._DEFAULT_WAIT", 0.0)
    with pytest.raises(MissingCollectionFiles):
        create_trial(str(tmp_path))
    (tmp_path / "locks" / "worker_0.lock").write_text("1\n")
    with pytest.raises(MissingCollectionFiles):
        create_trial(str(tmp_path))
