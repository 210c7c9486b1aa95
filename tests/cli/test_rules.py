"""`smdebug rules`: what it finds, what it says, how it ends, and how it stops a job."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.command import LIMIT, smdebug, started

from smdebug.config.collection import Collection
from smdebug.config.collection_manager import CollectionManager
from smdebug.mode_keys import ModeKeys
from smdebug.rules import rule_names
from smdebug.storage.batch import Entry, StepBatch
from smdebug.testing import make_run
from smdebug.trials import create_trial

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent.parent
LIVE_JOB = Path(__file__).parent / "programs" / "live_job.py"


def rules(
    directory: Path, *arguments: str, code: int = 0, traceback: bool = False
) -> subprocess.CompletedProcess[str]:
    return smdebug(directory, "rules", *arguments, code=code, traceback=traceback, COLUMNS="400")


def broken(worker: str, step: int) -> StepBatch:
    """The gradient vanishes at step 4, the loss is NaN from step 6 on."""
    loss = np.float32(np.nan if step >= 6 else 1 / (step + 1))
    gradient = np.full((2, 3), 1e-12 if step >= 4 else 1.0, np.float32)
    entries = [Entry("loss", np.asarray(loss)), Entry("gradient/\x1b[2J[bold]", gradient)]
    return StepBatch(step, ModeKeys.TRAIN, step, entries)


def make_broken(path: Path) -> None:
    manager = CollectionManager(
        [
            Collection("losses", include_regex="loss"),
            Collection("gradients", include_regex="^gradient"),
        ]
    )
    make_run(path, range(12), data=broken, collections=manager)


def test_what_is_found(tmp_path: Path) -> None:
    make_broken(tmp_path / "run")
    named = ("--rule", "VanishingGradient", "--rule", "NonFinite")
    ended = rules(tmp_path, "run", *named, code=1)
    assert ended.stderr == ""
    lines = ended.stdout.splitlines()
    assert lines[0].strip() == "run, up to step 11"
    assert lines[1].split() == ["rule", "status", "findings", "first", "step", "what"]
    assert lines[2].split()[:4] == ["VanishingGradient", "found", "1", "4"]
    assert lines[3].split()[:4] == ["NonFinite", "found", "1", "6"]
    # By step, in full, and without what a terminal would obey.
    assert lines[-2].startswith("step 4  VanishingGradient  gradient/\\x1b[2J[bold] has vanished")
    assert lines[-1].startswith("step 6  NonFinite  loss, a loss, is the first tensor")
    assert "\x1b" not in ended.stdout
    # It is on record; a second look finds it all the same.
    trial = create_trial(str(tmp_path / "run"))
    assert [finding.step for finding in trial.findings()] == [4, 6]
    assert rules(tmp_path, "run", *named, code=1).stdout == ended.stdout


def test_every_rule_that_can_run(tmp_path: Path) -> None:
    make_broken(tmp_path / "run")
    ended = rules(tmp_path, "run", "--json", "--no-record", code=1)
    assert ended.stderr == ""
    told = json.loads(ended.stdout)
    states = {rule["rule"]: rule["status"] for rule in told["rules"]}
    assert set(states) == set(rule_names()) - {"CreateXgboostReport"}
    assert {states[name] for name in ("VanishingGradient", "NonFinite")} == {"found"}
    assert {states[name] for name in ("TreeDepth", "SimilarAcrossRuns")} == {"could not run"}
    why = {rule["rule"]: rule["message"] for rule in told["rules"]}
    assert "other_trial" in why["SimilarAcrossRuns"]
    assert not any("failed" in state for state in states.values())
    finding = next(each for each in told["found"] if each["rule"] == "NonFinite")
    assert (finding["step"], finding["tensor"], finding["mode"]) == (6, "loss", "TRAIN")
    assert (told["run"], told["last_step"], told["stopped"]) == ("run", 11, False)
    # Nothing was left in the run, nor beside it.
    assert not (tmp_path / "run" / "findings").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    shown = rules(tmp_path, "run", "--no-record", code=1)
    summary = shown.stdout.splitlines()[-1]
    count = list(states.values()).count("could not run")
    assert summary.startswith(f"{count} rules could not run (--all shows why): ")
    assert "TreeDepth" in summary
    detailed = rules(tmp_path, "run", "--no-record", "--all", code=1).stdout
    assert "SimilarAcrossRuns  rule SimilarAcrossRuns must be told other_trial" in detailed


def test_how_it_ends(tmp_path: Path) -> None:
    make_run(tmp_path / "run", range(30))
    (tmp_path / "mine.py").write_text(
        "from smdebug.rules import Rule\n"
        "class Fires(Rule):\n"
        "    def __init__(self, base_trial, at, action_str=''):\n"
        "        super().__init__(base_trial, action_str)\n"
        "        self.at = int(at)\n"
        "    def invoke_at_step(self, step):\n"
        "        return step == self.at\n"
        "class Breaks(Rule):\n"
        "    def invoke_at_step(self, step):\n"
        "        raise RuntimeError('mine')\n",
        encoding="utf-8",
    )
    for arguments, code, said in (
        (["run"], 0, "passed"),
        (["run", "--rule", "mine.py:Fires:at=7"], 1, "step 7  Fires"),
        # What could not be looked at has not passed.
        (["run", "--rule", "NonFinite", "--rule", "VanishingGradient"], 2, "could not run"),
        (["run", "--rule", "mine.py:Breaks"], 2, "RuntimeError: mine"),
        (["run", "--rule", "vanishing_gradient"], 2, "did you mean VanishingGradient"),
        (["run", "--rule", "VanishingGradient:treshold=1"], 2, "did you mean 'threshold'?"),
        (["run", "--rule", "mine.py:Fries"], 2, "its rules: Fires, Breaks"),
        (["ruin"], 2, "did you mean run?"),
        ([], 2, "RUN is required"),
    ):
        ended = rules(tmp_path, *arguments, code=code, traceback="Breaks" in str(arguments))
        assert said in ended.stdout + ended.stderr, (arguments, ended.stdout, ended.stderr)


def test_list(tmp_path: Path) -> None:
    ended = rules(tmp_path, "--list")
    assert ended.stderr == ""
    for name in rule_names():
        assert name in ended.stdout
    assert "threshold=1e-07" in ended.stdout
    # What could not be given back is of no use.
    assert "…" not in smdebug(tmp_path, "rules", "--list", COLUMNS="80").stdout
    told = {rule["name"]: rule for rule in json.loads(rules(tmp_path, "--list", "--json").stdout)}
    assert set(told) == set(rule_names())
    assert told["VanishingGradient"]["parameters"] == {"threshold": 1e-7}
    assert told["SimilarAcrossRuns"]["required"] == ["other_trial"]
    assert all(rule["about"].endswith(".") for rule in told.values())


@pytest.fixture
def live_job(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A job that trains, and has published steps."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    job = subprocess.Popen(
        [sys.executable, str(LIVE_JOB), str(tmp_path / "run")],
        stdout=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    try:
        assert job.stdout is not None
        assert job.stdout.readline() == "training\n"
        yield job
    finally:
        job.kill()
        job.communicate()


def test_a_live_job_is_stopped(tmp_path: Path, live_job: subprocess.Popen[str]) -> None:
    ended = rules(tmp_path, "run", "--rule", "VanishingGradient", "--follow", "--stop", code=1)
    said, _ = live_job.communicate(timeout=LIMIT)
    assert live_job.returncode == 0, said
    assert "stopped: " in said
    assert "gradient/a has vanished" in said
    assert ended.stderr.startswith("smdebug: asked the job to stop: VanishingGradient, step 0")
    lines = ended.stdout.splitlines()
    # First as it came, and then in the table; not twice in full.
    assert lines[0].startswith("step 0  VanishingGradient  gradient/a has vanished")
    assert [line.startswith("step 0") for line in lines].count(True) == 1
    trial = create_trial(str(tmp_path / "run"))
    assert trial.loaded_all_steps
    assert f"run, up to step {trial.steps()[-1]}" in ended.stdout
    late = rules(tmp_path, "run", "--rule", "VanishingGradient", "--stop", "--json", code=1)
    assert "the job has already ended: nothing to stop" in late.stderr
    assert json.loads(late.stdout)["stopped"] is False


def test_a_job_that_is_gone_is_not_waited_for(
    tmp_path: Path, live_job: subprocess.Popen[str]
) -> None:
    live_job.kill()
    live_job.wait()
    ended = rules(tmp_path, "run", "--rule", "VanishingGradient", "--follow", code=1)
    assert "has exited without closing the run" in ended.stderr
    assert "gradient/a has vanished" in ended.stdout


def test_a_damaged_run_is_said_to_be_so_once(tmp_path: Path) -> None:
    make_run(tmp_path / "run", range(30))
    (events,) = (tmp_path / "run/events").rglob("*.tfevents")
    events.write_bytes(bytes(len(events.read_bytes())))
    ended = rules(
        tmp_path, "run", "--rule", "TensorVariance:tensor_regex=weight,max_threshold=9", code=2
    )
    assert "failed" in ended.stdout
    assert len(ended.stderr.splitlines()) == 1


def test_ctrl_c(tmp_path: Path, live_job: subprocess.Popen[str]) -> None:
    named = ("--rule", "VanishingGradient", "--rule", "TreeDepth")
    with started(tmp_path, "rules", "run", *named, "--follow") as following:
        assert following.stdout is not None
        assert following.stdout.readline().startswith("step 0  VanishingGradient")
        following.send_signal(signal.SIGINT)
        out, error = following.communicate(timeout=LIMIT)
    assert following.returncode == 130, error
    assert "Traceback" not in error
    assert "VanishingGradient  found" in out
    # What had nothing to look at has not passed, so far.
    assert "TreeDepth          could not run" in out
    assert live_job.poll() is None
