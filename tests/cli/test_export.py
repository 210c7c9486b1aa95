"""`smdebug export`: what it writes, what it says, and how it ends."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.parquet
import pytest
import safetensors.numpy
from tests.board import read_boards
from tests.command import smdebug, watched
from tests.trials.mixed_run import WORKERS, make_mixed

from smdebug.storage.stores.base import open_store
from smdebug.storage.tensorboard.files import tag as tag_of
from smdebug.testing import make_run
from smdebug.trials import create_trial

if TYPE_CHECKING:
    from pathlib import Path


def export(directory: Path, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    return run_export(directory, "tensorboard", *arguments, code=code)


def run_export(directory: Path, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    return smdebug(directory, "export", *arguments, code=code)


def test_a_run(tmp_path: Path) -> None:
    make_run(tmp_path / "run", range(6))
    ended = export(tmp_path, "run", "board")
    assert ended.stdout == ""
    # One line, and no bar where there is no terminal.
    assert ended.stderr == "smdebug: 6 scalars and 6 histograms of 6 steps are in board\n"
    assert read_boards(tmp_path / "board")["TRAIN"].keys() == {"loss", "weights/fc.weight"}


def test_where_a_hook_puts_tensorboard_files(tmp_path: Path) -> None:
    make_run(tmp_path / "run", range(2))
    smdebug(tmp_path, "export", "tensorboard", "run", "run/tensorboard/")
    assert read_boards(tmp_path / "run/tensorboard")["TRAIN"].keys() == {
        "loss",
        "weights/fc.weight",
    }
    smdebug(tmp_path, "check", "run")
    refused = smdebug(tmp_path, "export", "tensorboard", "run", "run/board", code=2)
    assert "must lie apart from the run" in refused.stderr


def test_a_second_time(tmp_path: Path) -> None:
    make_run(tmp_path / "run", range(2))
    export(tmp_path, "run", "board")
    refused = export(tmp_path, "run", "board", code=2)
    assert "which holds TRAIN/0000" in refused.stderr
    assert "(--force)" in refused.stderr
    export(tmp_path, "run", "board", "--force")
    assert len(list((tmp_path / "board").rglob("*.tfevents"))) == 1


def test_what_makes_no_sense(tmp_path: Path) -> None:
    make_run(tmp_path / "none", steps=[])
    make_run(tmp_path / "run")
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("not a run", encoding="utf-8")
    for arguments, said in (
        (["nowhere", "board"], "a hook has saved to, got 'nowhere'"),
        (["empty", "board"], "a hook has saved to, got 'empty'"),
        (["file", "board"], "a hook has saved to, got 'file'"),
        (["none", "board"], "must hold saved steps"),
        (["run", "file"], "cannot write TensorBoard files"),
        (["ftp://host/run", "board"], "Unknown scheme 'ftp'"),
        (["run"], "LOGDIR"),
    ):
        ended = export(tmp_path, *arguments, code=2)
        assert said in ended.stderr, (arguments, ended.stderr)
        assert not (tmp_path / "board").exists()


FORMATS = ("parquet", "csv", "safetensors", "npz", "tensorboard", "v1", "v2")


@pytest.mark.parametrize("format", FORMATS)
def test_a_format(format: str, tmp_path: Path) -> None:
    make_run(tmp_path / "runs" / "one", range(3))
    ended = run_export(tmp_path, "runs/one/", "--format", format, "--json")
    told = json.loads(ended.stdout)
    assert (told["run"], told["format"]) == ("runs/one/", format)
    assert (told["out"], told["steps"]) == (f"one.{format}", 3)
    lines = ended.stderr.splitlines()
    assert lines[0].endswith(f"of 3 steps are in one.{format}")
    # Beside the run, in the directory that the command was given in.
    assert {path.name for path in tmp_path.iterdir()} == {"runs", f"one.{format}"}
    out = tmp_path / f"one.{format}"
    if out.is_dir():
        count = len([path for path in out.rglob("*") if path.is_file()])
        assert told.get("files", count) == count
    forced = run_export(tmp_path, "runs/one", "--format", format, "--force")
    assert forced.stdout == ""


def test_a_part_of_a_run(tmp_path: Path) -> None:
    make_mixed(tmp_path / "run")
    ended = run_export(
        tmp_path, "run", "part.csv", "--format", "csv", "--tensor", "^loss$|^plain", "--collection",
        "losses", "--mode", "train", "--worker", "host b/1", "--steps", "1:1000",
    )  # fmt: skip
    assert ended.stderr == "smdebug: 2 rows of 2 steps are in part.csv\n"
    with (tmp_path / "part.csv").open(encoding="utf-8", newline="") as file:
        rows = [(row["worker"], row["step"], row["tensor"]) for row in csv.DictReader(file)]
    assert rows == [("host b/1", "1", "loss"), ("host b/1", "40", "loss")]
    ended = run_export(
        tmp_path, "run", "board", "--format", "tensorboard", "--tensor", "^loss$", "--mode", "eval",
        "--worker", "worker_0",
    )  # fmt: skip
    assert ended.stderr == "smdebug: 1 scalars and 0 histograms of 1 step are in board\n"
    assert {mode: set(tags) for mode, tags in read_boards(tmp_path / "board").items()} == {
        "EVAL": {"loss"}
    }


def test_what_is_left_out_is_said(tmp_path: Path) -> None:
    make_mixed(tmp_path / "run", WORKERS[:1], [0])
    ended = run_export(tmp_path, "run", "--format", "safetensors")
    assert "skipped: complex/c128 (safetensors has no complex128)" in ended.stderr
    assert "text (safetensors has no str)" in ended.stderr
    ended = run_export(tmp_path, "run", "--format", "npz")
    assert "3 tensors written as float32: short/bfloat16 (bfloat16)" in ended.stderr
    ended = run_export(tmp_path, "run", "--format", "tensorboard", "--json")
    left_out = json.loads(ended.stdout)["left_out"]
    assert left_out == {
        "complex/c64": "there is no histogram of complex64",
        "complex/c128": "there is no histogram of complex128",
        "plain/bool": "there is no histogram of bool",
        "text": "there is no histogram of str",
        "empty": "it is empty",
    }
    assert "5 tensors skipped: complex/c128 (there is no histogram of complex128)" in ended.stderr
    # TensorBoard itself has nothing of them, and something of all the others.
    (shown,) = read_boards(tmp_path / "run.tensorboard").values()
    known = create_trial(str(tmp_path / "run")).tensor_names()
    bare = {name for name in known if not any(tag_of(name) in tag for tag in shown)}
    assert bare == left_out.keys()
    ended = run_export(tmp_path, "run", "values.parquet", "--format", "parquet", "--values")
    assert "3 tensors skipped: complex/c128 (values of complex128 are no doubles)" in ended.stderr


def test_a_run_called_tensorboard(tmp_path: Path) -> None:
    make_run(tmp_path / "tensorboard", range(2))
    ended = run_export(tmp_path, "tensorboard", "out.csv", "--format", "csv")
    assert ended.stderr == "smdebug: 4 rows of 2 steps are in out.csv\n"
    ended = run_export(tmp_path, "tensorboard", "tensorboard", "board")
    assert ended.stderr == "smdebug: 2 scalars and 2 histograms of 2 steps are in board\n"
    ended = run_export(tmp_path, "tensorboard", "--format", "npz")
    assert (tmp_path / "tensorboard.npz").is_dir(), ended.stderr


def test_what_makes_no_sense_of_formats(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    make_run(tmp_path / "other")
    for arguments, said in (
        (["run"], "--format must be one of parquet, csv"),
        (["run", "a", "b", "--format", "csv"], "expected RUN and OUT, got 3 arguments: run, a, b"),
        (["tensorboard", "run", "b", "--format", "csv"], "got 3 arguments"),
        (["run", "--format", "xml"], "xml"),
        (["run", "--format", "csv", "--values"], "--values requires --format parquet, got csv"),
        (["run", "--format", "csv", "--steps", "5"], "must be FIRST:END"),
        (["run", "--format", "csv", "--steps", "9:5"], "must be FIRST:END with FIRST < END"),
        (["run", "--format", "csv", "--steps", "9:"], "has steps from 0 to 2"),
        (["run", "--format", "csv", "--mode", "training"], "must be one of train"),
        (["run", "--format", "csv", "--worker", "worker_1"], "did you mean 'worker_0'"),
        (["run", "--format", "csv", "--tensor", "fc.wieght"], "did you mean fc.weight"),
        (["run", "other/training_job_end.ts", "--format", "csv", "--force"], "in the run"),
        (["run", "run/x.parquet", "--format", "parquet"], "must lie apart from the run, got"),
        (["run", "other/board", "--format", "tensorboard"], "which lies in the run"),
        (["run", ".", "--format", "csv"], "OUT must be the name of a file, got the directory ."),
        (["run", "..", "--format", "parquet"], "OUT must be the name of a file"),
        (["run", ".", "--format", "npz", "--force"], "which holds the run"),
        (["run", "other", "--format", "v2"], "or replace it (--force)"),
        (["run", "run", "--format", "v1", "--force"], "must lie apart from the run"),
        (["run", "/proc/none/x.csv", "--format", "csv"], "error: "),
    ):
        ended = run_export(tmp_path, *arguments, code=2)
        assert said in ended.stderr, (arguments, ended.stderr)
    assert {path.name for path in tmp_path.iterdir()} == {"run", "other"}


# A job that has saved a step, says so, and goes on until its input ends.
JOB = """
import sys
from smdebug.storage.writer_lock import WriterLock
from smdebug.storage.stores.local import LocalStore
from smdebug.testing import make_run

claim = WriterLock(LocalStore("live"), "worker_0")
claim.take()
make_run("live", [7], end=False)
print("saved", flush=True)
sys.stdin.read()
"""


def test_a_run_that_a_job_writes(tmp_path: Path) -> None:
    make_run(tmp_path / "run", range(2))
    command = [sys.executable, "-c", JOB]
    with subprocess.Popen(
        command, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as job:
        assert job.stdout is not None
        assert job.stdout.readline() == "saved\n"
        refused = run_export(tmp_path, "run", "live", "--format", "v2", "--force", code=2)
        assert f"a live process (number {job.pid}) writes to {tmp_path}/live" in refused.stderr
        assert create_trial(str(tmp_path / "live")).steps(show_incomplete_steps=True) == [7]
        job.communicate("")
    run_export(tmp_path, "run", "live", "--format", "v2", "--force")
    assert create_trial(str(tmp_path / "live")).steps() == [0, 1]


# As Ctrl-C in the middle of an export that takes long would be, but for the time.
INTERRUPTED = """
import sys
import smdebug.cli.render.progress as progress
def interrupt(self, done, total):
    raise KeyboardInterrupt
progress.Bar.update = interrupt
from smdebug.cli.main import main
main()
"""


def test_ctrl_c(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    ended = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, "export", "run", "--format", "csv"],
        cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert ended.returncode == 130, ended.stderr
    assert "Traceback" not in ended.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_object_stores(bucket: str, tmp_path: Path) -> None:
    source, there = f"s3://{bucket}/job/debug-output", f"s3://{bucket}/out"
    written = make_run(source, range(2))
    for arguments in (
        [source, "--format", "csv"],
        [source, f"{there}/table.parquet", "--format", "parquet", "--values"],
        [source, f"{there}/steps", "--format", "npz"],
        [source, f"{there}/tensors", "--format", "safetensors"],
        [source, f"{there}/old", "--format", "v1"],
    ):
        run_export(tmp_path, *arguments)
    store = open_store(there)
    assert (tmp_path / "debug-output.csv").is_file()
    weight = written["worker_0", 1].entries[1].value
    assert weight is not None
    table = pyarrow.parquet.read_table(io.BytesIO(store.read("table.parquet")))
    assert table["values"].to_pylist()[-1] == weight.astype(np.float64).reshape(-1).tolist()
    with np.load(io.BytesIO(store.read("steps/step_000000000001.npz"))) as stored:
        np.testing.assert_array_equal(stored["fc.weight"], weight)
    found = safetensors.numpy.load(bytes(store.read("tensors/step_000000000001.safetensors")))
    np.testing.assert_array_equal(found["fc.weight"], weight)
    old = create_trial(f"{there}/old")
    np.testing.assert_array_equal(old.tensor("fc.weight").value(1), weight)
    refused = run_export(tmp_path, source, f"{there}/old", "--format", "v1", code=2)
    assert "must be new" in refused.stderr


# As an export that takes long would do, but for the time.
TELLING = """
import smdebug.cli.render.progress as progress
progress._DELAY_SECONDS = -1.0
with progress.Bar() as shown:
    for step in range(4):
        shown.update(step, 4)
"""


def test_a_bar_where_there_is_a_terminal(tmp_path: Path) -> None:
    command = [sys.executable, "-c", TELLING]
    code, said = watched(tmp_path, command)
    assert (code, "steps" in said, "75%" in said) == (0, True, True)
    ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert (ended.stdout, ended.stderr) == ("", "")


def test_help(tmp_path: Path) -> None:
    shown = run_export(tmp_path, "--help")
    for word in ("tensorboard", "RUN", "[OUT]", "safetensors", "--steps"):
        assert word in shown.stdout
