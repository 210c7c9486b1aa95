"""Training that saves to a bucket, whatever becomes of the server."""

from __future__ import annotations

import itertools
import json
import logging
import os
import stat
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import boto3
import numpy as np
import pytest
import torch
from tests.unreliable import Repair
from torch import nn

import smdebug.pytorch as smd
from smdebug.exceptions import (
    RuleEvaluationConditionMet,
    SMDebugValueError,
    StoreError,
    WriteFailed,
)
from smdebug.hook.rules import stop_listener as control
from smdebug.storage.stores import object_store
from smdebug.storage.stores.bucket import Timeouts
from smdebug.trials import create_trial

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.unreliable import Unreliable

    from smdebug.trials.trial import Trial

pytestmark = pytest.mark.filterwarnings(
    # botocore, not us.
    "ignore:.*utcnow.*:DeprecationWarning"
)

PATIENCE = 60
STEPS, MIDDLE = 12, 5
SECRET = "wJalrXUtnFEMIexample"
_NUMBERS = itertools.count()


@pytest.fixture
def url(bucket: str) -> str:
    return f"s3://{bucket}/jobs/run-{next(_NUMBERS)}"


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts are short, so that many fit into a test."""
    monkeypatch.setattr(object_store, "LATER", Timeouts(answer=2.0, retry=0.3))


def hook_of(out_dir: Any, **options: Any) -> smd.Hook:
    given = {
        "save_all": True, "save_config": smd.SaveConfig(save_interval=1), "flush_seconds": 0,
        "on_error": "raise",
    }  # fmt: skip
    return smd.Hook(out_dir, **{**given, **options})


def train(
    hook: smd.Hook | None,
    steps: int = STEPS,
    at: dict[int, Callable[[], object]] | None = None,
    data: Callable[[int], torch.Tensor] = lambda step: torch.randn(5, 3),
) -> dict[str, Any]:
    """Trains a small model; `at` is what happens before a step."""
    torch.manual_seed(7)
    model, loss = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 1)), nn.MSELoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    if hook is not None:
        hook.register_module(model)
        hook.register_loss(loss)
    for step in range(steps):
        (at or {}).get(step, lambda: None)()
        optimizer.zero_grad()
        loss(model(data(step)), torch.zeros(5, 1)).backward()
        optimizer.step()
    return {**model.state_dict(), "random": torch.get_rng_state()}


def same(first: dict[str, Any], second: dict[str, Any]) -> bool:
    return first.keys() == second.keys() and all(
        torch.equal(value, second[name]) for name, value in first.items()
    )


def contents(trial: Trial) -> dict[tuple[str, int], bytes]:
    return {
        (name, step): np.asarray(value).tobytes()
        for name in trial.tensor_names()
        for step, value in trial.tensor(name).values().items()
    }


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int], bytes]:
    """All that the same training saves to a directory."""
    folder = tmp_path_factory.mktemp("truth")
    with hook_of(folder) as hook:
        train(hook)
    found = contents(create_trial(folder))
    assert {step for _, step in found} == set(range(STEPS))
    return found


def log_of(caplog: pytest.LogCaptureFixture, level: int = logging.WARNING) -> list[str]:
    found = [record for record in caplog.records if record.name.startswith("smdebug")]
    return [record.getMessage() for record in found if record.levelno >= level]


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        threading.Event().wait(0.01)


# ---- as on a disk


@pytest.mark.parametrize("format", ["v1", "v2"])
def test_run_in_a_bucket_equals_run_in_a_directory(
    url: str, format: str, truth: dict[tuple[str, int], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    with hook_of(url, format=format) as hook:
        assert same(train(hook), train(None))
    trial = create_trial(url)
    assert trial.loaded_all_steps
    assert contents(trial) == truth
    assert hook.stats().seconds_waited == 0
    assert log_of(caplog) == []


# ---- a slow server


def is_put(method: str, path: str) -> bool:
    return method == "PUT"


@pytest.mark.parametrize("format", ["v1", "v2"])
def test_training_does_not_wait_for_a_slow_server(
    proxy: Unreliable, url: str, format: str, truth: dict[tuple[str, int], bytes]
) -> None:
    hook = hook_of(url, format=format)
    proxy.only = is_put
    proxy.hold()
    assert same(train(hook), train(None))
    # All steps are over, and nothing has been written.
    proxy.wait_for(lambda: proxy.count("PUT", "came") > 0)
    assert proxy.count("PUT", "200") == 0
    assert hook.stats().steps == STEPS
    assert hook.stats().seconds_waited == 0
    proxy.release()
    hook.close()
    assert contents(create_trial(url)) == truth
    assert hook.stats().seconds_waited == 0


def test_with_a_full_queue_it_waits(
    proxy: Unreliable, url: str, truth: dict[tuple[str, int], bytes]
) -> None:
    hook = hook_of(url, queue_bytes=1)
    proxy.only = is_put
    proxy.hold()
    found: list[dict[str, Any]] = []
    job = threading.Thread(target=lambda: found.append(train(hook)))
    job.start()
    run: Any = hook._pipeline.run
    wait_until(lambda: run.output is not None and run.output._writer._queue.producers_waiting > 0)
    assert hook.stats().steps < STEPS
    proxy.release()
    job.join(PATIENCE)
    hook.close()
    assert same(found[0], train(None))
    assert hook.stats().seconds_waited > 0
    assert contents(create_trial(url)) == truth


# ---- outages


@pytest.mark.parametrize(
    ("fault", "format"),
    [
        ("refuse", "v1"), ("refuse", "v2"), (503, "v2"), (500, "v1"), ("cut request", "v2"),
        ("hang", "v2"), (403, "v2"),
    ],
)  # fmt: skip
def test_nothing_is_lost_in_an_outage(
    proxy: Unreliable, url: str, hasty: None, caplog: pytest.LogCaptureFixture,
    truth: dict[tuple[str, int], bytes], fault: int | str, format: str,
) -> None:  # fmt: skip
    hook = hook_of(url, format=format)

    def begin() -> None:
        hook.flush()
        proxy.break_down(fault)

    with Repair(proxy, when=lambda: hook.stats().steps == STEPS) as repair:
        assert same(train(hook, at={MIDDLE: begin}), train(None))
        assert hook.stats().seconds_waited == 0
        hook.close()
    assert repair.came.is_set()
    trial = create_trial(url)
    assert contents(trial) == truth
    assert trial.loaded_all_steps
    # The start and the end of an outage are logged.
    told, ended = log_of(caplog)
    assert told.startswith(f"{url} ")
    assert "trying again for up to 900 seconds" in told
    assert ended.startswith(f"{url} works again")


def test_truncated_responses(
    proxy: Unreliable, url: str, hasty: None, truth: dict[tuple[str, int], bytes]
) -> None:
    # The request succeeds, and nothing is logged.
    hook = hook_of(url)

    def begin() -> None:
        proxy.fault = "cut answer"

    with Repair(proxy):
        train(hook, at={MIDDLE: begin})
        proxy.wait_for(lambda: any(outcome == "cut answer" for _, _, outcome in proxy.asked))
        hook.close()
    proxy.heal()
    assert contents(create_trial(url)) == truth


def test_server_unavailable_when_training_begins(
    proxy: Unreliable, url: str, hasty: None, truth: dict[tuple[str, int], bytes]
) -> None:
    hook = hook_of(url)
    proxy.stop()
    with Repair(proxy, when=lambda: hook.stats().steps == STEPS):
        assert same(train(hook), train(None))
        hook.close()
    assert contents(create_trial(url)) == truth


@pytest.mark.parametrize("fault", ["refuse", "hang", 503])
def test_server_never_recovers(
    proxy: Unreliable, url: str, hasty: None, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture, fault: int | str,
) -> None:  # fmt: skip
    monkeypatch.setenv("SMDEBUG_STORE_RETRY_SECONDS", "1")
    hook = hook_of(url, on_error="warn")

    def begin() -> None:
        hook.flush()
        proxy.break_down(fault)

    assert same(train(hook, at={MIDDLE: begin}), train(None))
    hook.close()
    (said,) = log_of(caplog, logging.ERROR)
    assert "saving has stopped, training continues" in said
    assert f"lost: {STEPS - MIDDLE} steps, {MIDDLE} to {STEPS - 1}" in said
    assert url in said
    assert "is not complete" in log_of(caplog)[-1]
    proxy.heal()
    trial = create_trial(url)
    assert trial.steps() == list(range(MIDDLE))
    assert not trial.loaded_all_steps


def test_server_never_recovers_with_on_error_raise(
    proxy: Unreliable, url: str, hasty: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SMDEBUG_STORE_RETRY_SECONDS", "0.5")
    hook = hook_of(url)

    def begin() -> None:
        hook.flush()
        proxy.stop()

    train(hook, at={MIDDLE: begin})
    with pytest.raises(WriteFailed, match=url) as failed:
        hook.close()
    assert failed.value.lost_steps == tuple(range(MIDDLE, STEPS))


# ---- what is made with the run


def test_tensorboard_files_get_through_an_outage(
    proxy: Unreliable, url: str, hasty: None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    hook = hook_of(url, tensorboard_dir=f"{url}-tb")

    def begin() -> None:
        proxy.fault, proxy.only = 503, lambda method, path: "-tb/" in path

    train(hook, at={2: hook.flush, MIDDLE: begin, MIDDLE + 2: hook.flush, MIDDLE + 4: proxy.heal})
    hook.close()
    assert (
        len([line for line in log_of(caplog) if "Cannot write TensorBoard files now" in line]) == 1
    )
    client = boto3.client("s3")
    for item in client.list_objects_v2(Bucket="runs", Prefix=f"{url[10:]}-tb/")["Contents"]:
        name = item["Key"].rpartition("/")[2]
        client.download_file("runs", item["Key"], str(tmp_path / name))
    files = EventAccumulator(str(tmp_path))
    files.Reload()
    (loss,) = [name for name in files.Tags()["scalars"] if "loss" in name.lower()]
    assert [event.step for event in files.Scalars(loss)] == list(range(STEPS))


def test_rules_and_requests_get_through_an_outage(
    proxy: Unreliable, url: str, hasty: None, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    monkeypatch.setattr(control, "REMOTE_SECONDS", 0.01)
    hook = hook_of(url, rules=["NonFinite"])

    def data(step: int) -> torch.Tensor:
        return torch.full((5, 3), float("nan")) if step == MIDDLE else torch.randn(5, 3)

    def outage() -> None:
        hook.flush()
        proxy.fault = 503
        proxy.wait_for(lambda: sum(o == "503" for _, _, o in proxy.asked) > 20)

    with Repair(proxy):
        train(hook, at={MIDDLE - 1: outage}, data=data)
        hook.close()
    assert "NonFinite" in {finding.rule for finding in create_trial(url).findings()}
    said = [line for line in log_of(caplog) if "poll for stop requests" in line]
    assert len(said) <= 1
    assert not [line for line in log_of(caplog) if "Cannot evaluate the rules" in line]


def test_stop_request_is_received_after_an_outage(
    proxy: Unreliable, url: str, hasty: None, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    monkeypatch.setattr(control, "REMOTE_SECONDS", 0.01)
    hook = hook_of(url)

    def outage() -> None:
        hook.flush()
        proxy.stop()
        wait_until(lambda: any("poll for stop requests" in line for line in log_of(caplog)))
        proxy.heal()
        create_trial(url).request_stop("enough")
        wait_until(lambda: hook._pipeline.rules.request is not None)

    with pytest.raises(RuleEvaluationConditionMet, match="enough"):
        train(hook, at={MIDDLE: outage})
    assert create_trial(url).steps() == list(range(MIDDLE))


def test_a_trial_gets_through_an_outage(proxy: Unreliable, url: str, hasty: None) -> None:
    with hook_of(url) as hook:
        train(hook)
    trial = create_trial(url)
    name = trial.tensor_names(regex="weight")[0]
    with Repair(proxy) as repair:
        proxy.stop()
        assert trial.tensor(name).value(3).size
    assert repair.came.is_set()


# ---- what is wrong from the beginning


def test_a_bucket_that_does_not_exist(proxy: Unreliable) -> None:
    with pytest.raises(
        StoreError, match=r"bucket that exists, got s3://no-such-bucket/run.*create"
    ):
        smd.Hook("s3://no-such-bucket/run")
    assert proxy.count("PUT") == 0


def test_a_bucket_for_tensorboard_that_does_not_exist(url: str) -> None:
    with pytest.raises(StoreError, match=r"bucket that exists, got s3://no-such-bucket/tb"):
        smd.Hook(url, tensorboard_dir="s3://no-such-bucket/tb")


def test_endpoint_refuses_connections(
    proxy: Unreliable, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy.stop()
    with pytest.raises(StoreError, match=f"{url}.*{proxy.url}.*Connection refused.*endpoint"):
        smd.Hook(url)
    monkeypatch.setattr(object_store, "FIRST", Timeouts(answer=1.0, retry=0.1))
    with pytest.raises(StoreError, match=f"{url}.*Connection refused"):
        create_trial(url)


def test_credentials_that_are_rejected(
    proxy: Unreliable, url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    proxy.fault = 403
    proxy.content = (
        b"<Error><Code>SignatureDoesNotMatch</Code><Message>Check your key.</Message>"
        b"<AWSAccessKeyId>testing-key</AWSAccessKeyId></Error>"
    )
    with pytest.raises(StoreError, match=f"{url}.*SignatureDoesNotMatch.*AWS_ACCESS_KEY") as error:
        smd.Hook(url)
    with pytest.raises(StoreError, match="SignatureDoesNotMatch"):
        create_trial(url)
    shown = f"{error.value!s}{error.value!r}{caplog.text}"
    assert SECRET not in shown
    assert "testing-key" not in shown


def test_invalid_gradient_patience(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SMDEBUG_STORE_RETRY_SECONDS", "for ever")
    with pytest.raises(SMDebugValueError, match="SMDEBUG_STORE_RETRY_SECONDS"):
        smd.Hook(url)


# ---- where credentials come from


@pytest.fixture
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)


def profile(folder: Path, **settings: str) -> dict[str, str]:
    """Files that AWS's own tools read, with one profile in them."""
    lines = [f"{name} = {value}" for name, value in settings.items()]
    (folder / "config").write_text("\n".join(["[profile mine]", *lines, ""]))
    (folder / "credentials").write_text(
        f"[filed]\naws_access_key_id = AKIAFILED\naws_secret_access_key = {SECRET}\n"
    )
    return {
        "AWS_CONFIG_FILE": str(folder / "config"),
        "AWS_SHARED_CREDENTIALS_FILE": str(folder / "credentials"),
        "AWS_PROFILE": "mine",
    }


def test_a_profile_in_files(
    proxy: Unreliable, url: str, no_variables: None, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    given = profile(
        tmp_path, aws_access_key_id="AKIAPROFILE", aws_secret_access_key=SECRET,
        region="eu-central-1", endpoint_url=proxy.url,
    )  # fmt: skip
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    proxy.region = "eu-central-1"
    with hook_of(url) as hook:
        train(hook, steps=2)
    assert create_trial(url).steps() == [0, 1]
    assert proxy.signers == {"AKIAPROFILE"}
    assert not [outcome for _, _, outcome in proxy.asked if outcome == "301"]
    assert SECRET not in caplog.text


def test_a_profile_in_the_credentials_file(
    proxy: Unreliable, url: str, no_variables: None, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    for name, value in profile(tmp_path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_PROFILE", "filed")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy.url)
    with hook_of(url) as hook:
        train(hook, steps=2)
    assert create_trial(url).steps() == [0, 1]
    assert proxy.signers == {"AKIAFILED"}


def test_a_program_that_prints_credentials(
    proxy: Unreliable, url: str, no_variables: None, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    printed = {
        "Version": 1, "AccessKeyId": "AKIAPRINTED", "SecretAccessKey": SECRET,
        "SessionToken": "token-of-a-program",
    }  # fmt: skip
    program = tmp_path / "print-credentials"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{json.dumps(printed)}\nEND\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    for name, value in profile(tmp_path, credential_process=str(program)).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
    with hook_of(url) as hook:
        train(hook, steps=2)
    assert create_trial(url).steps() == [0, 1]
    assert proxy.signers == {"AKIAPRINTED"}
    assert proxy.tokens == {"token-of-a-program"}


def test_missing_profile(
    url: str, no_variables: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in profile(tmp_path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_PROFILE", "yours")
    with pytest.raises(SMDebugValueError, match=r"yours.*AWS_PROFILE"):
        smd.Hook(url)


WITHOUT_BOTO3 = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("boto3", "botocore"):
            raise ModuleNotFoundError(f"no {name} here", name=name)

sys.meta_path.insert(0, Blocker())

import torch
import smdebug.pytorch as smd

hook = smd.Hook(sys.argv[1], save_all=True, save_config=smd.SaveConfig(save_interval=1))
model = torch.nn.Linear(3, 1)
hook.register_module(model)
for _ in range(3):
    model(torch.ones(2, 3)).sum().backward()
hook.close()
assert smd.create_trial(sys.argv[1]).steps() == [0, 1, 2]
assert "boto3" not in sys.modules and "botocore" not in sys.modules
"""


@pytest.mark.parametrize(
    ("variable", "region"),
    [("AWS_ENDPOINT_URL", "AWS_DEFAULT_REGION"), ("AWS_ENDPOINT_URL_S3", "AWS_REGION")],
)
def test_variables_without_boto3(
    proxy: Unreliable, url: str, no_variables: None, variable: str, region: str
) -> None:
    proxy.region = "ap-south-1"
    variables = {
        **os.environ, "AWS_ACCESS_KEY_ID": "AKIAPLAIN", "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_SESSION_TOKEN": "a-token", variable: proxy.url, region: "ap-south-1",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_BOTO3, url], env=variables, timeout=PATIENCE * 2,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert proxy.signers == {"AKIAPLAIN"}
    assert proxy.tokens == {"a-token"}
    assert not [outcome for _, _, outcome in proxy.asked if outcome == "301"]
    assert SECRET not in done.stdout + done.stderr
