"""One live process per worker of a run; a crashed process does not block the next one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

import smdebug.pytorch as smd
from smdebug.exceptions import SMDebugRuntimeError
from smdebug.hook.module_api import current_hook
from smdebug.storage.format.keys import END_KEY

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

EVERY = smd.SaveConfig(save_interval=1)

# Trains, publishes, says so, and then does what the next line of its input says.
_OTHER = """
import os, sys, torch
import smdebug.pytorch as smd

out_dir, worker, steps = sys.argv[1:]
model = torch.nn.Linear(2, 2)
hook = smd.Hook(
    out_dir, worker=worker, include_workers="all", save_config=smd.SaveConfig(save_interval=1),
    include_collections="weights",
)
hook.register_module(model)
for _ in range(int(steps)):
    model(torch.ones(1, 2)).sum().backward()
    hook.flush()
print("ready", flush=True)
if sys.stdin.readline().strip() == "close":
    hook.close()
    print("closed", flush=True)
    sys.stdin.readline()
os._exit(0)
"""


class Other:
    """Another process that writes to a run."""

    def __init__(self, out_dir: Path, worker: str = "worker_0", steps: int = 2) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _OTHER, str(out_dir), worker, str(steps)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self._process.pid
        self.read("ready")

    def read(self, expected: str) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline().strip() == expected

    def say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def close_hook(self) -> None:
        self.say("close")
        self.read("closed")

    def kill(self) -> None:
        if self._process.poll() is None:
            os.kill(self.pid, signal.SIGKILL)
        self._process.communicate()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Any]:
    started: list[Other] = []

    def begin(out_dir: Path, *arguments: Any) -> Other:
        started.append(Other(out_dir, *arguments))
        return started[-1]

    smd.del_hook()
    smd.reset_collections()
    yield begin
    for other in started:
        other.kill()
    hook = current_hook()
    if hook is not None:
        hook.close()
    smd.del_hook()


def train(hook: smd.Hook, steps: int = 3) -> None:
    model = nn.Linear(2, 2)
    hook.register_module(model)
    for _ in range(steps):
        model(torch.ones(1, 2)).sum().backward()
    hook.close()


def hook_in(out_dir: Path, **options: Any) -> smd.Hook:
    return smd.Hook(out_dir, save_config=EVERY, include_collections="weights", **options)


def test_second_live_process_of_a_worker_is_rejected_with_the_process_id(
    tmp_path: Path, start: Any
) -> None:
    other = start(tmp_path / "run")
    before = sorted((tmp_path / "run").rglob("*"))
    with pytest.raises(SMDebugRuntimeError, match=rf"\b{other.pid}\b") as caught:
        hook_in(tmp_path / "run")
    for word in ("worker_0", str(tmp_path / "run"), "out_dir", "worker="):
        assert word in str(caught.value)
    assert sorted((tmp_path / "run").rglob("*")) == before
    # The other one is not disturbed.
    other.close_hook()
    assert smd.create_trial(tmp_path / "run").steps() == [0, 1]


def test_another_worker_or_directory_is_not_locked(tmp_path: Path, start: Any) -> None:
    other = start(tmp_path / "run", "worker_0")
    elsewhere = hook_in(tmp_path / "elsewhere")
    train(elsewhere)
    assert smd.create_trial(tmp_path / "elsewhere").steps() == [0, 1, 2]
    second = hook_in(tmp_path / "run", worker="worker_1", include_workers="all")
    train(second)
    other.close_hook()
    trial = smd.create_trial(tmp_path / "run")
    assert trial.workers() == ["worker_0", "worker_1"]
    assert trial.tensor("Linear_weight").workers(0) == ["worker_0", "worker_1"]


def test_lock_is_released_by_close(tmp_path: Path, start: Any) -> None:
    other = start(tmp_path, "worker_0")
    other.close_hook()
    # Still alive, but finished: the run has an end now.
    with pytest.raises(SMDebugRuntimeError, match="finished run"):
        hook_in(tmp_path)


def test_killed_process_does_not_block_the_next(tmp_path: Path, start: Any) -> None:
    other = start(tmp_path)
    other.kill()
    assert list(tmp_path.rglob("*.lock"))
    train(hook_in(tmp_path), steps=4)
    trial = smd.create_trial(tmp_path)
    assert trial.steps() == [0, 1, 2, 3]
    assert trial.loaded_all_steps


def test_claim_file_of_smdebug_1_is_ignored(tmp_path: Path, start: Any) -> None:
    (tmp_path / "claim.smd").touch()
    train(hook_in(tmp_path))
    assert smd.create_trial(tmp_path).tensor("Linear_weight").steps() == [0, 1, 2]


def test_unlocked_lock_file_is_ignored(tmp_path: Path, start: Any) -> None:
    train(hook_in(tmp_path / "first"))
    (lock,) = (tmp_path / "first").rglob("*.lock")
    stale = tmp_path / "second" / lock.relative_to(tmp_path / "first")
    stale.parent.mkdir(parents=True)
    stale.write_text("1\n")
    train(hook_in(tmp_path / "second"))
    assert smd.create_trial(tmp_path / "second").steps() == [0, 1, 2]


def test_a_worker_that_starts_late_is_not_refused_where_another_one_has_finished(
    tmp_path: Path, start: Any
) -> None:
    train(hook_in(tmp_path, worker="worker_0", include_workers="all"))
    assert (tmp_path / END_KEY).exists()
    train(hook_in(tmp_path, worker="worker_1", include_workers="all"), steps=2)
    trial = smd.create_trial(tmp_path)
    assert trial.tensor("Linear_weight").workers(1) == ["worker_0", "worker_1"]


def test_two_hooks_of_one_process_do_not_share_a_worker(tmp_path: Path, start: Any) -> None:
    first = hook_in(tmp_path, on_error="raise")
    model = nn.Linear(2, 2)
    first.register_module(model)
    model(torch.ones(1, 2))
    with pytest.raises(SMDebugRuntimeError, match=rf"\b{os.getpid()}\b"):
        hook_in(tmp_path)
    model(torch.ones(1, 2))
    first.close()
    assert smd.create_trial(tmp_path).steps() == [0, 1]


def test_second_of_two_new_hooks_is_rejected_when_it_saves(tmp_path: Path, start: Any) -> None:
    first, second = hook_in(tmp_path), hook_in(tmp_path, on_error="raise")
    models = [nn.Linear(2, 2), nn.Linear(2, 2)]
    first.register_module(models[0])
    second.register_module(models[1])
    models[0](torch.ones(1, 2))
    with pytest.raises(SMDebugRuntimeError, match="another live process"):
        models[1](torch.ones(1, 2))
    first.close()
    assert smd.create_trial(tmp_path).steps() == [0]


def test_a_forked_process_writes_nothing_and_does_not_end_the_run(
    tmp_path: Path, start: Any
) -> None:
    code = """
import os, sys, torch
import smdebug.pytorch as smd

model = torch.nn.Linear(2, 2)
hook = smd.Hook(sys.argv[1], save_config=smd.SaveConfig(save_interval=1), save_all=True)
hook.register_module(model)
model(torch.ones(1, 2)).sum().backward()
hook.flush()
before = sorted(os.walk(sys.argv[1]))
child = os.fork()
if not child:
    model(torch.ones(1, 2))
    hook.save_scalar("x", 1.0)
    hook.flush()
    hook.close()
    raise SystemExit(0)
assert os.waitpid(child, 0)[1] == 0
assert sorted(os.walk(sys.argv[1])) == before
model(torch.ones(1, 2))
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, str(tmp_path)],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    trial = smd.create_trial(tmp_path)
    assert trial.steps() == [0, 1]
    assert "scalar/x" not in trial.tensor_names()


def test_a_script_that_never_closes_has_a_complete_run(tmp_path: Path, start: Any) -> None:
    code = """
import sys, torch
import smdebug.pytorch as smd

model = torch.nn.Linear(2, 2)
hook = smd.Hook(sys.argv[1], save_config=smd.SaveConfig(save_interval=1), save_all=True)
hook.register_module(model)
for _ in range(3):
    model(torch.ones(1, 2)).sum().backward()
"""
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    trial = smd.create_trial(tmp_path)
    assert trial.loaded_all_steps
    assert trial.tensor("gradient/Linear_bias").steps() == [0, 1, 2]
