"""What stops a job: its own rules, and requests left in the run."""

from __future__ import annotations

import json
import multiprocessing
import re
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.hook.numpy_hook import NumpyHook

from smdebug.config.options import HookOptions
from smdebug.exceptions import RuleEvaluationConditionMet
from smdebug.hook.rules import rule_thread as watch
from smdebug.hook.rules import stop_listener as control
from smdebug.hook.rules.hook_rules import HookRules
from smdebug.hook.steps import StepCounter
from smdebug.mode_keys import ModeKeys
from smdebug.rules import Rule
from smdebug.storage.findings import Finding, read_findings, read_reports
from smdebug.storage.stop_requests import StopRequest, list_stops, read_stop, write_stop
from smdebug.storage.stores.base import open_store
from smdebug.storage.stores.memory import MemoryStore
from smdebug.trials import create_trial

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# Generous: it is only waited this long when something is broken.
LIMIT = 120.0
SMALL = np.full(4, 1e-12)


def train_until_stopped(hook: NumpyHook, before: Callable[[], None] = lambda: None) -> int:
    """Trains with vanishing gradients until the hook stops it; returns the number of steps."""
    deadline = time.monotonic() + LIMIT
    steps = 0
    while time.monotonic() < deadline:
        hook.run(gradient__a=SMALL, loss=np.float32(1))
        steps += 1
        before()
    raise AssertionError("training was not stopped")


def test_a_rule_stops_training_when_a_step_begins(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hook = NumpyHook(tmp_path, rules=["VanishingGradient"], on_finding="stop", flush_seconds=0.05)
    with pytest.raises(RuleEvaluationConditionMet) as stopped:
        train_until_stopped(hook)
    assert (stopped.value.rule_name, stopped.value.step) == ("VanishingGradient", 0)
    assert stopped.value.tensor == "gradient/a"
    assert "gradient/a" in str(stopped.value)
    assert "step 0" in str(stopped.value)
    assert hook.closed
    steps = hook.step
    # Nothing is lost: everything up to the step that did not begin is there.
    trial = create_trial(str(tmp_path))
    assert trial.loaded_all_steps
    assert trial.steps() == list(range(0, steps + 1, 10))
    assert [finding.tensor for finding in trial.findings()] == ["gradient/a"]
    assert hook.findings() == trial.findings()
    assert f"training stops after step {steps}" in caplog.text


def test_training_continues_if_the_stop_exception_is_caught(tmp_path: Path) -> None:
    hook = NumpyHook(tmp_path, rules=["VanishingGradient"], on_finding="stop", flush_seconds=0.05)
    with pytest.raises(RuleEvaluationConditionMet):
        train_until_stopped(hook)
    hook.close()
    hook.save_scalar("late", 1.0)
    assert not create_trial(str(tmp_path)).has_tensor("scalar/late")


def test_a_finding_alone_does_not_stop(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    hook = NumpyHook(tmp_path, rules=["VanishingGradient"], flush_seconds=0.05)
    deadline = time.monotonic() + LIMIT
    while not hook.findings():
        hook.run(gradient__a=SMALL)
        assert time.monotonic() < deadline
    for _ in range(10):
        hook.run(gradient__a=SMALL)
    hook.close()
    assert len(hook.findings()) == 1
    assert "VanishingGradient, step 0: gradient/a has vanished" in caplog.text


def test_last_steps_are_evaluated_at_close(tmp_path: Path) -> None:
    hook = NumpyHook(tmp_path, rules=["VanishingGradient"], save_config={"save_interval": 1})
    for step in range(5):
        hook.run(gradient__a=SMALL if step == 4 else np.ones(4))
    hook.close()
    (finding,) = hook.findings()
    assert finding.step == 4
    (report,) = read_reports(open_store(str(tmp_path)))
    assert report["rules"][0]["status"] == "found"


def test_rule_without_its_tensors_is_reported_as_could_not_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hook = NumpyHook(tmp_path, rules=["VanishingGradient"])
    hook.run(weight=np.ones(2), loss=np.float32(1))
    hook.close()
    (report,) = read_reports(open_store(str(tmp_path)))
    (outcome,) = report["rules"]
    assert outcome["status"] == "could not run"
    assert "collection gradients" in outcome["message"]
    assert caplog.text.count("Insufficient information") == 1


BROKEN = """
from smdebug.rules import Rule

class Broken(Rule):
    def invoke_at_step(self, step):
        raise ZeroDivisionError("no luck")
"""


def test_failing_rule_does_not_affect_training_or_other_rules(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(BROKEN, encoding="utf-8")
    out = tmp_path / "run"
    hook = NumpyHook(
        out, rules=[f"{tmp_path}/mine.py:Broken", "VanishingGradient"],
        save_config={"save_interval": 1},
    )  # fmt: skip
    for _ in range(3):
        hook.run(gradient__a=SMALL)
    hook.close()
    (report,) = read_reports(open_store(str(out)))
    statuses = {each["rule"]: each["status"] for each in report["rules"]}
    assert statuses == {"Broken": "failed", "VanishingGradient": "found"}


def test_rules_that_cannot_be_evaluated_do_not_stop_saving(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hook = NumpyHook(tmp_path, rules=["VanishingGradient"], save_config={"save_interval": 1})
    hook.run(gradient__a=SMALL)
    # Nothing that a reader could understand.
    folder = tmp_path / "index" / "000000000"
    folder.mkdir(parents=True)
    (folder / "000000000000-000099_worker_0.parquet").write_bytes(b"no index")
    hook.run(gradient__a=SMALL)
    hook.close()
    assert re.search("the rules (cannot|could not) be evaluated", caplog.text)
    assert list((tmp_path / "index").rglob("*.parquet"))


def test_rules_are_evaluated_again_after_a_failure(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hook = NumpyHook(tmp_path, rules=["VanishingGradient"], save_config={"save_interval": 1})
    hook.run(gradient__a=SMALL)
    hook.flush()
    watching = hook._pipeline.rules._thread
    assert watching is not None
    # As a network that is down for a while.
    folder = tmp_path / "index" / "000000000"
    folder.mkdir(parents=True, exist_ok=True)
    damaged = folder / "000000000000-000099_worker_0.parquet"
    damaged.write_bytes(b"no index")
    for _ in range(2):
        watching.evaluate()
    damaged.unlink()
    hook.run(gradient__a=SMALL)
    hook.close()
    assert caplog.text.count("Cannot evaluate the rules") == 1
    assert [each.step for each in hook.findings()] == [0]


def test_no_rules_in_a_dry_run(tmp_path: Path) -> None:
    hook = NumpyHook(tmp_path / "run", rules=["VanishingGradient"], dry_run=True)
    hook.run(gradient__a=SMALL)
    hook.close()
    assert not (tmp_path / "run").exists()


# ---- a job that was killed and started again


@pytest.mark.parametrize("format", ["v1", "v2"])
def test_rules_evaluate_their_own_job_only(tmp_path: Path, format: str) -> None:
    every = {"save_interval": 1}
    first = NumpyHook(tmp_path, format=format, include_collections="gradients", save_config=every)
    for step in range(60):
        first.run(gradient__a=SMALL if step >= 50 else np.ones(4))
    first.flush()
    # Killed: nothing is closed, and the lock is gone with the process.
    first._pipeline.lifecycle.after_fork()
    second = NumpyHook(
        tmp_path, format=format, rules=["VanishingGradient"], on_finding="stop",
        save_config=every, flush_seconds=0.05,
    )  # fmt: skip
    for step in range(12):
        second.run(gradient__a=SMALL if step >= 10 else np.ones(4))
        if step in (8, 11):
            second.flush()
            watch = second._pipeline.rules._thread
            assert watch is not None
            deadline = time.monotonic() + 60
            # A look may be put off when the one before took long.
            while second.rule_report() is None or second.rule_report().last_step < step:
                assert time.monotonic() < deadline
                watch.evaluate()
            assert second.rule_report().last_step == step
        assert bool(second.findings()) == (step == 11)
    with pytest.raises(RuleEvaluationConditionMet) as stopped:
        second.run(gradient__a=SMALL)
    assert stopped.value.step == 10
    (finding,) = second.findings()
    assert finding.step == 10


def test_finding_of_an_earlier_job_is_found_again(tmp_path: Path) -> None:
    every = {"save_interval": 1}
    for _ in range(2):
        hook = NumpyHook(tmp_path, rules=["VanishingGradient"], save_config=every)
        for _ in range(3):
            hook.run(gradient__a=SMALL)
        hook.close()
        (finding,) = hook.findings()
        assert finding.step == 0
        (tmp_path / "training_job_end.ts").unlink()
    assert len(create_trial(str(tmp_path)).findings()) == 1


# ---- requests


def test_stop_request_from_another_process_stops_training(tmp_path: Path) -> None:
    hook = NumpyHook(tmp_path, save_config={"save_interval": 50})
    hook.run(loss=np.float32(0))
    hook.flush()
    program = (
        "import sys; from smdebug.trials import create_trial; "
        "create_trial(sys.argv[1]).request_stop('the night is over')"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True)
    with pytest.raises(RuleEvaluationConditionMet, match="the night is over") as stopped:
        train_until_stopped(hook)
    assert stopped.value.rule_name == "StopRequest"
    assert create_trial(str(tmp_path)).loaded_all_steps


def test_stop_request_to_an_earlier_job_is_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(str(tmp_path))
    write_stop(store, StopRequest("yesterday"))
    monkeypatch.setattr(control, "LOCAL_SECONDS", 0.01)
    looks, heard, told = threading.Semaphore(0), threading.Event(), []

    def on_stop(request: StopRequest) -> bool:
        told.append(request.reason)
        heard.set()
        return True

    looking = control.StopListener(store, on_stop, looks.release)
    looking.start()
    # When a third look begins, two are over.
    for _ in range(3):
        assert looks.acquire(timeout=LIMIT)
    assert told == []
    write_stop(store, StopRequest("today"))
    assert heard.wait(LIMIT)
    assert told == ["today"]
    looking.close()


def test_stop_request_in_a_bucket(bucket: str) -> None:
    url = f"s3://{bucket}/run"
    store = open_store(url)
    steps = StepCounter()
    supervisor = HookRules(None, HookOptions(), store, steps)
    supervisor.start(url, 1, chief=True)
    assert supervisor._listener is not None
    assert supervisor._listener.interval == 10.0
    # Looks at once instead of after ten seconds.
    supervisor._listener.interval = 0.01
    supervisor._listener._closed.set()
    supervisor._listener._thread.join()
    supervisor._listener._closed.clear()
    write_stop(store, StopRequest("enough"))
    supervisor._listener._run()
    assert supervisor.request is not None
    assert supervisor.request.reason == "enough"


def test_workers_stop_at_the_same_step() -> None:
    store, steps = MemoryStore(), StepCounter()
    chief = HookRules(None, HookOptions(rules=["NonFinite"], on_finding="stop"), store, steps)
    chief.start("memory://x", 2, chief=True)
    for _ in range(100):
        steps.advance()
    chief._on_finding(Finding("NonFinite", 90, "x is NaN", "x"))
    (key,) = list_stops(store)
    request = read_stop(store, key)
    assert request.at_step is not None
    assert request.at_step > 101
    assert (request.rule, request.step, request.tensor) == ("NonFinite", 90, "x")
    # Another worker receives it, and waits for the step.
    others = StepCounter()
    other = HookRules(None, HookOptions(), store, others)
    other._on_request(request)
    while others.step + 1 < request.at_step:
        assert not other.due()
        others.advance()
    assert other.due()
    chief.close()


def a_job(store: MemoryStore, workers: int, chief: bool) -> tuple[HookRules, StepCounter]:
    steps = StepCounter()
    options = HookOptions(rules=["NonFinite"], on_finding="stop") if chief else HookOptions()
    supervisor = HookRules(None, options, store, steps)
    supervisor.start("memory://x", workers, chief)
    return supervisor, steps


def test_evaluation_by_the_first_worker_alone_is_not_counted() -> None:
    store = MemoryStore()
    (chief, steps), (other, others) = a_job(store, 2, chief=True), a_job(store, 2, chief=False)
    for counter in (steps, others):
        counter.set_mode(ModeKeys.TRAIN)
        for _ in range(5):
            counter.advance()
    steps.set_mode(ModeKeys.EVAL)
    for _ in range(1000):
        steps.advance()
    chief._on_finding(Finding("NonFinite", 3, "x is NaN", "x"))
    (key,) = list_stops(store)
    assert other._on_request(read_stop(store, key))
    steps.set_mode(ModeKeys.TRAIN)
    trained = []
    for supervisor, counter in ((chief, steps), (other, others)):
        while not supervisor.due():
            counter.advance()
        trained.append(counter.mode_steps[ModeKeys.TRAIN])
        supervisor.close()
    assert trained[0] == trained[1]
    assert trained[0] > 5


def test_first_worker_chooses_the_step_of_a_stop_request() -> None:
    store = MemoryStore()
    (chief, steps), (other, _) = a_job(store, 2, chief=True), a_job(store, 2, chief=False)
    steps.advance()
    # The other one receives it first, and waits for the step that the first one chooses.
    assert not other._on_request(StopRequest("enough", rule="Mine"))
    assert other.request is None
    assert chief._on_request(StopRequest("enough", rule="Mine"))
    (key,) = list_stops(store)
    assert other._on_request(read_stop(store, key))
    assert other.request == chief.request
    assert chief.request is not None
    assert (chief.request.reason, chief.request.rule) == ("enough", "Mine")
    assert chief.request.at_step is not None
    assert not chief.due()
    chief.close()
    other.close()


def test_slow_start_does_not_shorten_the_stop_margin() -> None:
    chief, steps = a_job(MemoryStore(), 2, chief=True)
    assert chief._listener is not None
    chief._listener.close()
    chief._listener._thread.join()
    chief._listener.interval = 1.0
    # An hour for the first step, then a hundred in a second.
    chief._measured = (time.monotonic() - 3601, 0)
    steps.advance()
    chief._measure_rate()
    chief._measured = (time.monotonic() - 1, 1)
    for _ in range(100):
        steps.advance()
    chief._measure_rate()
    chief._on_finding(Finding("NonFinite", 3, "x is NaN", "x"))
    assert chief.request is not None
    assert chief.request.at_step is not None
    assert chief.request.at_step - 101 > 250


def test_rate_counts_steps_and_not_their_numbers() -> None:
    chief, steps = a_job(MemoryStore(), 2, chief=True)
    assert chief._listener is not None
    chief._listener.close()
    chief._listener._thread.join()
    chief._listener.interval = 1.0
    # Training that continues from a model of 8,000 rounds.
    chief._measured = (time.monotonic() - 1, 0)
    steps.advance(8000)
    chief._measure_rate()
    chief._on_finding(Finding("NonFinite", 8000, "x is NaN", "x"))
    assert chief.request is not None
    assert chief.request.at_step is not None
    assert 8002 <= chief.request.at_step < 8020


# ---- threads


SAVING = """
import sys, numpy as np
from tests.hook.numpy_hook import NumpyHook
from smdebug.exceptions import RuleEvaluationConditionMet
from smdebug.rules import Rule
from smdebug.storage.findings import Finding
import threading
at_work, stopping = threading.Event(), threading.Event()
class Saves(Rule):
    def invoke_at_step(self, step):
        at_work.set()
        stopping.wait(60)
        hook.save_scalar("seen", step)
        return False
hook = NumpyHook(sys.argv[1], rules=[Saves], save_config={"save_interval": 1}, flush_seconds=0.01)
for _ in range(5):
    hook.run(loss=np.float32(1))
at_work.wait(60)
seen = hook._pipeline.rules.record_finding
def told(finding):
    stopping.set()
    return seen(finding)
hook._pipeline.rules.record_finding = told
try:
    hook._pipeline.stop_now(Finding("NonFinite", 4, "x is NaN", "x"))
except RuleEvaluationConditionMet:
    print("stopped")
"""


def test_a_rule_that_saves_something_while_the_hook_stops(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SAVING, str(tmp_path)], capture_output=True, text=True,
        check=True, timeout=LIMIT,
    )  # fmt: skip
    assert done.stdout == "stopped\n"
    assert "Traceback" not in done.stderr


def test_rule_that_never_returns_does_not_block_exit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(watch, "_CLOSE_SECONDS", 0.2)
    monkeypatch.setattr(watch, "_LOG_AFTER_SECONDS", 0.1)
    waits = threading.Event()

    class Slow(Rule):
        def invoke_at_step(self, step: int) -> bool:
            return waits.wait(LIMIT)

    hook = NumpyHook(tmp_path, rules=[Slow], save_config={"save_interval": 1})
    hook.run(loss=np.float32(1))
    # Its last look is the one that does not end.
    hook.close()
    assert "still running" in caplog.text
    waits.set()


def test_finding_of_a_rule_is_not_reported_twice(tmp_path: Path) -> None:
    hook = NumpyHook(
        tmp_path, rules=["NonFinite"], save_config={"save_interval": 1}, flush_seconds=0.01
    )
    hook.run(gradient__a=np.full(4, np.nan))
    hook.flush()
    rules = hook._pipeline.rules._thread
    assert rules is not None
    rules.evaluate()
    (known,) = hook.findings()
    with pytest.raises(RuleEvaluationConditionMet) as stopped:
        hook._pipeline.stop_now(Finding("NonFinite", 0, "another sentence", "gradient/a"))
    assert hook.findings() == [known]
    assert str(stopped.value).endswith(known.message)


def test_threads_end_with_the_hook(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    hook = NumpyHook(tmp_path, rules=["VanishingGradient"])
    hook.run(gradient__a=SMALL)
    names = {thread.name for thread in set(threading.enumerate()) - before}
    assert {"smdebug-stop-listener", "smdebug-rules"} <= names
    control = hook._pipeline.rules._listener
    hook.close()
    assert control is not None
    control._thread.join(LIMIT)
    assert not {thread.name for thread in set(threading.enumerate()) - before} & {
        "smdebug-stop-listener", "smdebug-rules",
    }  # fmt: skip


FORGOTTEN = """
import sys, numpy as np
from tests.hook.numpy_hook import NumpyHook
hook = NumpyHook(sys.argv[1], rules=["VanishingGradient"], save_config={"save_interval": 1})
for _ in range(3):
    hook.run(gradient__a=np.full(4, 1e-12))
"""


def test_rules_finish_if_the_hook_is_never_closed(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORGOTTEN, str(tmp_path)], capture_output=True, text=True,
        check=True, timeout=LIMIT,
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    assert [each.step for each in read_findings(open_store(str(tmp_path)))] == [0]


def _child(path: str) -> None:
    hook = NumpyHook(path, rules=["VanishingGradient"], save_config={"save_interval": 1})
    hook.run(gradient__a=SMALL)
    context = multiprocessing.get_context("fork")
    grandchild = context.Process(target=hook.close)
    grandchild.start()
    grandchild.join()
    assert grandchild.exitcode == 0
    hook.run(gradient__a=SMALL)
    hook.close()


def test_a_forked_child_leaves_the_rules_to_its_parent(tmp_path: Path) -> None:
    process = multiprocessing.get_context("spawn").Process(target=_child, args=(str(tmp_path),))
    process.start()
    process.join(LIMIT)
    assert process.exitcode == 0
    assert len(read_reports(open_store(str(tmp_path)))) == 1


# ---- other ways to the same


def test_rules_over_a_run_in_a_bucket(bucket: str) -> None:
    url = f"s3://{bucket}/watched"
    hook = NumpyHook(
        url, rules=["VanishingGradient"], on_finding="stop", flush_seconds=0.05,
        save_config={"save_interval": 1},
    )  # fmt: skip
    for step in range(4):
        hook.run(gradient__a=SMALL if step == 3 else np.ones(4))
    hook.flush()
    watch = hook._pipeline.rules._thread
    assert watch is not None
    watch.evaluate()
    with pytest.raises(RuleEvaluationConditionMet, match="step 3"):
        hook.run(gradient__a=SMALL)
    trial = create_trial(url)
    assert trial.steps() == [0, 1, 2, 3]
    assert [finding.step for finding in trial.findings()] == [3]


def test_rules_in_a_json_config(tmp_path: Path) -> None:
    job = {
        "LocalPath": str(tmp_path / "run"),
        "HookParameters": {
            "save_interval": "2",
            "rules": "VanishingGradient:threshold=1e-6, LossSpike",
            "on_finding": "warn",
        },
    }
    path = tmp_path / "job.json"
    path.write_text(json.dumps(job), encoding="utf-8")
    hook = NumpyHook.create_from_json_file(path)
    for _ in range(5):
        hook.run(gradient__a=np.full(4, 5e-7), loss=np.float32(1))
    hook.close()
    (finding,) = hook.findings()
    assert (finding.step, finding.threshold) == (0, 1e-6)
    assert create_trial(str(tmp_path / "run")).tensor("gradient/a").steps() == [0, 2, 4]


def test_rules_with_save_all(tmp_path: Path) -> None:
    every = {"save_interval": 1}
    hook = NumpyHook(tmp_path, save_all=True, rules=["VanishingGradient"], save_config=every)
    hook.run(gradient__a=np.ones(4), weight=np.ones(2))
    hook.close()
    assert hook.rule_report()["VanishingGradient"].status == "passed"
    assert create_trial(str(tmp_path)).tensor("gradient/a").value(0).tolist() == [1.0] * 4
