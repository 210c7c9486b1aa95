"""`smdebug show`: what it says of a run and of tensors, and how it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pytest
from tests.command import on_terminal, smdebug, started

from smdebug.config.collection import Collection
from smdebug.config.collection_manager import CollectionManager
from smdebug.mode_keys import ModeKeys
from smdebug.storage.batch import Entry, StepBatch
from smdebug.storage.findings import Finding, write_findings
from smdebug.storage.stores.local import LocalStore
from smdebug.testing import make_run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TRAIN, EVAL = ModeKeys.TRAIN, ModeKeys.EVAL
STEPS = 40
NON_FINITE = {11: np.nan, 12: np.nan, 25: np.inf, 26: -np.inf}


def loss(step: int) -> float:
    return float(np.float32(NON_FINITE.get(step, np.exp(-step / 9))))


def weight(step: int, number: int) -> Any:
    random = np.random.default_rng([step, number])
    return random.standard_normal((3, 4)).astype(np.float32)


def batch(worker: str, step: int) -> StepBatch:
    """Losses always; weights as they are; gradients as numbers; every fifth step is of EVAL."""
    entries = [Entry("loss", np.asarray(np.float32(loss(step))))]
    entries += [Entry(f"layer{number}.weight", weight(step, number)) for number in range(12)]
    gradient = {"mean": step / 7, "abs_max": step + 0.5}
    entries.append(Entry("gradient/a", None, gradient, (5,), "float32"))
    entries.append(Entry("words", np.array(["a\x1b[2Jb"])))
    mode, mode_step = (EVAL, step // 5) if step % 5 == 0 else (TRAIN, step - step // 5 - 1)
    return StepBatch(step, mode, mode_step, entries)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    collections = CollectionManager(
        [
            Collection("losses", include_regex="loss"),
            Collection("weights", include_regex="weight$"),
            Collection("gradients", include_regex="^gradient"),
        ]
    )
    for format in ("v2", "v1"):
        make_run(folder / format, range(STEPS), format=format, data=batch, collections=collections)
    write_findings(LocalStore(folder / "v2"), [Finding("NonFinite", 11, "loss is NaN")])
    make_run(folder / "workers", range(3), workers=["w0", "w1"])
    return folder


def series_of(directory: Path, *arguments: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(
        smdebug(directory, "show", *arguments, "--json").stdout
    )
    for each in found:
        each["values"] = np.array([float(value) for value in each["values"]])
    return found


@pytest.mark.parametrize("format", ["v2", "v1"])
def test_a_scalar(runs: Path, format: str) -> None:
    by_mode = {each["mode"]: each for each in series_of(runs, format, "loss")}
    assert by_mode["EVAL"]["steps"] == list(range(0, STEPS, 5))
    assert by_mode["TRAIN"]["steps"] == [step for step in range(STEPS) if step % 5]
    for each in by_mode.values():
        assert each["reduction"] is None
        np.testing.assert_array_equal(each["values"], [loss(step) for step in each["steps"]])
    # With a mode, its own numbers.
    (only,) = series_of(runs, format, "loss", "--mode", "eval", "--last", "3")
    assert only["steps"] == [5, 6, 7]
    np.testing.assert_array_equal(only["values"], [loss(step) for step in (25, 30, 35)])


@pytest.mark.parametrize("format", ["v2", "v1"])
def test_reductions(runs: Path, format: str) -> None:
    (train, evaluation) = sorted(
        series_of(runs, format, "layer3.weight"), key=lambda each: each["mode"]
    )[::-1]
    assert (train["mode"], train["reduction"], evaluation["mode"]) == ("TRAIN", "l2", "EVAL")
    norms = [np.linalg.norm(weight(step, 3).astype(np.float64)) for step in train["steps"]]
    np.testing.assert_allclose(train["values"], norms, rtol=1e-6)
    (train,) = series_of(
        runs, format, "layer3.weight", "--reduction", "abs_mean", "--mode", "train"
    )
    means = [np.abs(weight(step, 3).astype(np.float64)).mean() for step in range(STEPS) if step % 5]
    np.testing.assert_allclose(train["values"], means, rtol=1e-6)
    # What was saved, where nothing is asked for.
    (_, train) = series_of(runs, format, "gradient/a")
    assert train["reduction"] == "mean"
    np.testing.assert_allclose(train["values"], [step / 7 for step in train["steps"]], rtol=1e-6)


def test_the_picture_of_a_scalar(runs: Path) -> None:
    shown = smdebug(runs, "show", "v2", "loss").stdout
    lines = shown.splitlines()
    assert max(len(line) for line in lines) <= 80
    assert lines[0] == "loss, over the steps"
    marks = {line.split()[0]: line for line in lines if "┤" in line}
    assert marks["NaN"].count("x") == 2
    assert (marks["Inf"].count("▲"), marks["-Inf"].count("▼")) == (1, 1)
    # Two NaN and an Inf of TRAIN; an Inf of EVAL.
    rows = [line.split() for line in lines if "━━" in line]
    assert [row[-2:] for row in rows] == [["0", "1"], ["2", "1"]]
    head = next(
        place for place, line in enumerate(lines) if line.split() == ["step", "mode", "value"]
    )
    table = [line.split() for line in lines[head + 1 :]]
    assert table[0] == ["0", "eval", "1"]
    assert table[-1] == ["39", "train", f"{loss(39):.7g}"]
    # Where each mode begins, and ends, not to be finite.
    broken = {"11": "NaN", "25": "Inf", "26": "-Inf"}
    assert broken.items() <= {row[0]: row[2] for row in table}.items()


def test_several_tensors(runs: Path) -> None:
    shown = smdebug(runs, "show", "v2", "layer*", "--mode", "train").stdout
    assert shown.startswith("8 tensors, l2 (computed), over the steps of mode train")
    assert "4 more tensors are not shown" in shown.splitlines()[-1]
    names = [each["tensor"] for each in series_of(runs, "v2", r"layer1[01]?\.w", "--mode", "train")]
    assert names == ["layer1.weight", "layer10.weight", "layer11.weight"]


def test_a_run_at_a_glance(runs: Path) -> None:
    shown = smdebug(runs, "show", "v2").stdout
    for text in ("state   finished", "32 train (0 to 31), 8 eval (0 to 7)", "weights          12",
                 "NonFinite, step 11: loss is NaN", "loss, over the steps"):  # fmt: skip
        assert text in shown
    rows = {line.split()[0]: line.split()[1:] for line in shown.splitlines() if line}
    assert rows["layer11.weight"] == ["3x4", "float32", "40", "values"]
    assert rows["gradient/a"] == ["5", "float32", "40", "mean,", "abs_max"]
    assert max(len(line) for line in shown.splitlines()) <= 80
    told = json.loads(smdebug(runs, "show", "v2", "--json").stdout)
    table = duckdb.sql(
        f"select tensor, count(*) c, max(step) m from '{runs}/v2/index/**/*.parquet' group by all"
    ).fetchall()
    tensors = {each["name"]: each for each in told["tensors"]}
    assert {(name, each["steps"], each["last_step"]) for name, each in tensors.items()} == {*table}
    assert tensors["loss"]["value"] == loss(39)
    assert tensors["gradient/a"]["reductions"] == ["mean", "abs_max"]
    assert told["collections"] == {"gradients": 1, "losses": 1, "weights": 12}
    assert told["steps"]["EVAL"] == {"count": 8, "first": 0, "last": 7}
    assert told["findings"][0]["rule"] == "NonFinite"


def test_a_job_that_says_nothing_of_modes(tmp_path: Path) -> None:
    def plain(worker: str, step: int) -> StepBatch:
        return StepBatch(step, ModeKeys.GLOBAL, step, [Entry("loss", np.float32(step))])

    make_run(tmp_path / "run", range(3, 9), data=plain)
    shown = smdebug(tmp_path, "show", "run").stdout
    assert "6 global (3 to 8)" in shown
    told = json.loads(smdebug(tmp_path, "show", "run", "--json").stdout)
    assert told["steps"] == {"GLOBAL": {"count": 6, "first": 3, "last": 8}}


def test_workers(runs: Path) -> None:
    written = make_run(runs / "again", range(3), workers=["w0", "w1"])
    for worker in ("w0", "w1"):
        (found,) = series_of(runs, "workers", "loss", "--worker", worker)
        values = [float(written[worker, step].entries[0].value) for step in range(3)]  # type: ignore[arg-type]
        np.testing.assert_array_equal(found["values"], values)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere"], "a hook has saved to, got 'nowhere'"),
        (["v2", "losss"], "Tensor losss is not in this trial. Nearest names: loss"),
        (["v2", "LOSS"], "Tensor LOSS is not in this trial. Nearest names: loss"),
        (["v2", "loss", "--reduction", "l3"], "unknown reduction 'l3'; expected one of min, max"),
        (
            ["v2", "gradient/a", "--reduction", "l2"],
            "that were saved: mean, abs_max: choose",
        ),
        (["v2", "loss", "--mode", "predict"], "(train, eval), got 'predict'"),
        (["v2", "loss", "--mode", "training"], "--mode must be one of"),
        (["v2", "loss", "--worker", "w7"], "Invalid worker: w7; the workers here are worker_0"),
        (["v2", "words"], "words holds strings, which cannot be plotted"),
        (["v2", "loss", "--last", "0"], "--last"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_makes_no_sense(runs: Path, arguments: list[str], said: str) -> None:
    ended = smdebug(runs, "show", *arguments, code=2)
    assert said in " ".join(ended.stderr.replace("│", " ").split())
    assert ended.stdout == ""


# A job that writes a step for each line it is told, and ends as the last one says.
JOB = """
import os, sys
import numpy as np
from smdebug.storage.writer_lock import WriterLock
from smdebug.mode_keys import ModeKeys
from smdebug.storage.batch import Entry, StepBatch
from smdebug.storage.stores.local import LocalStore
from smdebug.storage.writer import RunWriter
from smdebug.testing.runs import default_collections

store = LocalStore(sys.argv[1])
claim = WriterLock(store, "worker_0")
claim.take()
writer = RunWriter(store, "worker_0", "v2")
writer.write_collections(default_collections().to_json())
print("begun", flush=True)
for step, line in enumerate(sys.stdin):
    if line == "end\\n":
        writer.close(end=True)
        break
    entries = [Entry("loss", np.asarray(float(line))), Entry("fc.weight", np.full(4, float(line)))]
    writer.submit(StepBatch(step, ModeKeys.TRAIN, step, entries))
    writer.finish_step()
    writer.flush()
    print("saved", flush=True)
"""


class Job:
    """The job, and what it is told."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", JOB, str(folder)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._answer() == "begun\n"

    def _answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def save(self, value: float) -> None:
        self._tell(f"{value}\n")
        assert self._answer() == "saved\n"

    def end(self) -> None:
        self._tell("end\n")

    def _tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line)
        self.process.stdin.flush()


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    made = Job(tmp_path / "run")
    yield made
    made.process.kill()
    made.process.communicate()


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def test_following_a_job_to_its_end(tmp_path: Path, job: Job) -> None:
    # Before there is such a tensor.
    with started(tmp_path, "show", "run", "loss", "--follow") as following:
        for step, value in enumerate([3.0, 2.5, float("nan"), 1.0]):
            job.save(value)
            shown = "NaN" if value != value else f"{value:.7g}"
            assert line_of(following) == f"{step}\ttrain\tloss\t{shown}\n"
        job.end()
        rest, errors = following.communicate(timeout=60)
    assert (following.returncode, rest, errors) == (0, "", "")


def test_following_a_job_that_is_killed(tmp_path: Path, job: Job) -> None:
    job.save(4.0)
    with started(tmp_path, "show", "run", "--follow", "--json") as following:
        told = {"step": 0, "mode": "TRAIN", "tensor": "loss", "value": 4.0}
        assert json.loads(line_of(following)) == told
        os.kill(job.process.pid, signal.SIGKILL)
        job.process.wait()
        rest, errors = following.communicate(timeout=60)
    assert (following.returncode, rest) == (0, "")
    assert "has exited without closing the run" in errors


def test_ctrl_c_while_following(tmp_path: Path, job: Job) -> None:
    job.save(4.0)
    with started(tmp_path, "show", "run", "weight", "--follow") as following:
        assert line_of(following) == "0\ttrain\tfc.weight\t8\n"
        following.send_signal(signal.SIGINT)
        rest, errors = following.communicate(timeout=60)
    assert (following.returncode, rest, errors) == (130, "", "")


def test_following_what_never_comes(runs: Path) -> None:
    refused = smdebug(runs, "show", "v2", "losss", "--follow", code=2)
    assert "Nearest names: loss" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["show", "run", "LOSS"], "Tensor LOSS is not in this trial. Nearest names: loss"),
        (["layers", "run", "--collection", "nope"], "--collection must be one of"),
        (["layers", "run", "--regex", "nope"], "no tensors whose name has 'nope'"),
    ],
    ids=["show", "collection", "regex"],
)
def test_what_is_waited_for_is_said(
    tmp_path: Path, job: Job, arguments: list[str], said: str
) -> None:
    job.save(4.0)
    with started(tmp_path, *arguments, "--follow") as following:
        assert following.stderr is not None
        line = following.stderr.readline()
        assert line.startswith("smdebug: waiting for the job to save it: ")
        assert said in line
        job.end()
        rest, errors = following.communicate(timeout=60)
    assert (following.returncode, rest) == (2, "")
    assert said in errors


def test_a_terminal(runs: Path) -> None:
    code, shown = on_terminal(runs, "show", "v2", "loss", "--follow")
    assert code == 0
    # Drawn in place: the cursor is hidden meanwhile.
    assert "\x1b[?25l" in shown
    assert re.search(r"NaN ┤\x1b\[0m\x1b\[1;91m +xx", shown)
    code, colored = on_terminal(runs, "show", "v2", "loss")
    assert (code, bool(re.search(r"\x1b\[1;91m *NaN", colored))) == (0, True)
    code, plain = on_terminal(runs, "show", "v2", "loss", NO_COLOR="1")
    assert (code, "91m" in plain, "NaN" in plain) == (0, False, True)


def test_names_do_nothing_to_a_terminal(tmp_path: Path) -> None:
    def data(worker: str, step: int) -> StepBatch:
        return StepBatch(step, TRAIN, step, [Entry("loss\x1b[2J[red]", np.asarray(1.0))])

    make_run(tmp_path / "run", data=data)
    for arguments in (["run"], ["run", "loss"], ["run", "loss", "--follow"]):
        shown = smdebug(tmp_path, "show", *arguments).stdout
        assert "\x1b" not in shown
        assert "loss\\x1b[2J[red]" in shown


def odd(worker: str, step: int) -> StepBatch:
    """Tensors of which not every number can be shown."""
    entries = [
        Entry("bias", np.asarray([-1.0 - step], np.float32)),
        Entry("scale", np.asarray(-2.0 * step)),
        Entry("grows", np.ones(3 if step < 4 else 1, np.float32) * step),
        Entry("matrix", np.full((2, 2), -3.0)),
        Entry("complex", np.asarray(3.0 + 4.0j)),
        Entry("words", np.array(["text"])),
    ]
    if worker == "w1":
        entries.append(Entry("alone", np.asarray(7.0)))
    return StepBatch(step, TRAIN, step, entries)


@pytest.fixture(scope="module", params=["v2", "v1"])
def odd_run(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    folder = tmp_path_factory.mktemp("odd")
    make_run(folder / "run", range(5), ["w0", "w1"], format=request.param, data=odd)
    return folder


def test_single_numbers_beside_reductions(odd_run: Path) -> None:
    # Beside a reduction they are reduced, so that one title is true of all.
    by_name = {each["tensor"]: each for each in series_of(odd_run, "run", "bias|matrix")}
    assert {each["reduction"] for each in by_name.values()} == {"l2"}
    np.testing.assert_allclose(by_name["bias"]["values"], [1, 2, 3, 4, 5])
    np.testing.assert_allclose(by_name["matrix"]["values"], [6] * 5)
    shown = smdebug(odd_run, "show", "run", "bias|matrix").stdout
    assert shown.startswith("2 tensors, l2 (computed), over the steps, w0 of 2 workers\n")
    assert "-" not in next(line for line in shown.splitlines() if "bias" in line)
    # Numbers alone, and one of them alone, are as they are.
    both = {each["tensor"]: each for each in series_of(odd_run, "run", "bias|scale")}
    assert {each["reduction"] for each in both.values()} == {None}
    np.testing.assert_allclose(both["bias"]["values"], [-1, -2, -3, -4, -5])
    np.testing.assert_allclose(both["scale"]["values"], [0, -2, -4, -6, -8])


def test_a_tensor_of_one_element_at_its_last_step(odd_run: Path) -> None:
    (grows,) = series_of(odd_run, "run", "grows")
    assert grows["reduction"] == "l2"
    norms = [np.linalg.norm(odd("w0", step).entries[2].value) for step in range(5)]  # type: ignore[arg-type]
    np.testing.assert_allclose(grows["values"], norms, rtol=1e-6)


def test_tensors_that_cannot_be_shown_are_named(odd_run: Path) -> None:
    refused = smdebug(odd_run, "show", "run", "complex", "--json", code=2)
    assert "complex holds complex numbers, which cannot be plotted" in refused.stderr
    (norm,) = series_of(odd_run, "run", "complex", "--reduction", "l2")
    np.testing.assert_allclose(norm["values"], [5] * 5)
    for arguments in ([], ["--json"], ["--follow"], ["--follow", "--json"]):
        ended = smdebug(odd_run, "show", "run", "bias|complex|words", *arguments)
        assert "skipped: complex holds complex numbers" in ended.stderr
        assert "words holds strings, which cannot be plotted" in ended.stderr
        assert "skipped" not in ended.stdout
        assert "bias" in ended.stdout
    # Those that cannot be computed, or are another worker's.
    ended = smdebug(odd_run, "show", "run", "matrix|complex", "--reduction", "std")
    assert "skipped: complex cannot be shown: reduction 'std' of a complex" in ended.stderr
    assert ended.stdout.startswith("matrix, std (computed)")
    ended = smdebug(odd_run, "show", "run", "bias|alone", "--worker", "w0")
    assert ended.stderr == "smdebug: skipped: alone was not saved by w0, but by w1\n"
    assert ended.stdout.startswith("bias, over the steps\n")
    refused = smdebug(odd_run, "show", "run", "words|complex", code=2)
    assert "none of 2 tensors can be plotted: complex holds" in refused.stderr
    # Whose numbers they are.
    assert "over the steps, w1 of 2 workers" in smdebug(odd_run, "show", "run", "alone").stdout


def test_a_finished_run_without_steps(tmp_path: Path) -> None:
    make_run(tmp_path / "run", steps=[])
    rows = [line.split() for line in smdebug(tmp_path, "show", "run").stdout.splitlines()]
    assert ["steps", "none"] in rows
