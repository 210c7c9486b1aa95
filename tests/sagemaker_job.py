"""A training job of SageMaker without SageMaker: its directories, its files, its environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from smdebug.config import environment
from smdebug.mode_keys import ModeKeys
from smdebug.trials import Trial, create_trial

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Metrics = dict[tuple[str, int], float]
TIMEOUT = 200


class Job:
    """What the platform makes before a script starts, and what it collects when it has ended.

    Args:
        root: in the place of `/opt/ml`.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.tensors = root / "output" / "tensors"
        self.tensorboard = root / "output" / "tensorboard"
        self.metrics_directory = root / "output" / "metrics" / "sagemaker"
        self._config = root / "input" / "config"
        for folder in (self._config, self.metrics_directory, root / "code", root / "checkpoints"):
            folder.mkdir(parents=True)
        self.configure()

    def configure(
        self, parameters: dict[str, str] | None = None, collections: dict[str, Any] | None = None
    ) -> None:
        """Writes the files of a job whose hook was configured by the SageMaker SDK."""
        hook: dict[str, Any] = {
            "S3OutputPath": "s3://bucket/debug", "LocalPath": str(self.tensors),
            "HookParameters": parameters, "RuleConfigurations": None,
            "CollectionConfigurations": [
                {"CollectionName": name, "CollectionParameters": each}
                for name, each in (collections or {}).items()
            ],
        }  # fmt: skip
        board = {"S3OutputPath": "s3://bucket/board", "LocalPath": str(self.tensorboard)}
        checkpoints = {"S3Uri": "s3://bucket/checks", "LocalPath": str(self.root / "checkpoints")}
        for name, content in (
            *(("debughookconfig", hook), ("tensorboardoutputconfig", board)),
            ("checkpointconfig", checkpoints),
        ):
            (self._config / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")

    @property
    def variables(self) -> dict[str, str]:
        """The environment of the script."""
        known = {variable.name for variable in environment.VARIABLES}
        kept = {name: value for name, value in os.environ.items() if name not in known}
        return {
            **kept,
            "TRAINING_JOB_NAME": "emulated-job",
            "SMDEBUG_CONFIG_FILE_PATH": str(self._config / "debughookconfig.json"),
            "TENSORBOARD_CONFIG_FILE_PATH": str(self._config / "tensorboardoutputconfig.json"),
            "CHECKPOINT_CONFIG_FILE_PATH": str(self._config / "checkpointconfig.json"),
            "SAGEMAKER_METRICS_DIRECTORY": str(self.metrics_directory),
            "OMP_NUM_THREADS": "1",
        }

    def run(
        self, script: Path, *arguments: str, flags: tuple[str, ...] = (), **variables: str
    ) -> Ended:
        """Runs a script as the platform does, and waits for its end."""
        began = time.time()
        done = subprocess.run(
            [sys.executable, "-W", "error", *flags, str(script), *arguments],
            cwd=self.root / "code", env={**self.variables, **variables},
            capture_output=True, text=True, check=False, timeout=TIMEOUT,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        assert "saving has stopped" not in done.stdout, done.stdout
        assert list((self.root / "code").iterdir()) == []
        return Ended(done.stdout, began, time.time())

    def trial(self) -> Trial:
        """The run, which must be as AWS's own tools expect it: v1, and not marked as finished."""
        files = [path for path in self.tensors.rglob("*") if path.is_file()]
        # Besides, a file says which process writes, and others that a step was added to.
        others = {path.suffix for path in files} - {".json", ".tfevents"}
        assert others <= {".lock", ".again"}, files
        assert not (self.tensors / "training_job_end.ts").exists()
        return create_trial(str(self.tensors))

    def metrics(self, ended: Ended) -> Metrics:
        """The metrics file: values by name and iteration, each of which is there once."""
        (file,) = self.metrics_directory.iterdir()
        assert file.stem.isdigit()
        assert file.suffix == ".json"
        found: Metrics = {}
        for line in file.read_text(encoding="utf-8").splitlines():
            metric = json.loads(line)
            assert metric.keys() == {"MetricName", "Value", "Timestamp", "IterationNumber"}
            assert ended.began <= metric["Timestamp"] <= ended.until
            key = metric["MetricName"], metric["IterationNumber"]
            assert key not in found
            found[key] = metric["Value"]
        return found

    def scalars(self, mode: str, name: str) -> dict[int, float]:
        """What TensorBoard shows of a scalar, by step; it is TensorBoard that reads the files."""
        board = EventAccumulator(str(self.tensorboard / mode)).Reload()
        return {each.step: each.value for each in board.Scalars(name)}

    def is_untouched(self) -> bool:
        """Whether nothing was written at all."""
        written = [path for path in self.root.rglob("*") if path.is_file()]
        return all(path.parent == self._config for path in written)


def requests(folder: Path) -> list[Any]:
    """The same request in all forms in which a hook can be made from it."""
    hook = {
        "S3OutputPath": "s3://bucket/debug", "LocalPath": str(folder / "run"),
        "HookParameters": {"save_interval": "7", "eval.save_interval": "3"},
        "CollectionConfigurations": [
            {"CollectionName": "losses", "CollectionParameters": {"save_interval": "5"}},
        ],
    }  # fmt: skip
    whole = {"TrainingJobName": "job", "DebugHookConfig": hook}
    files = [folder / "request.json", folder / "whole.json"]
    for file, content in zip(files, (hook, whole), strict=True):
        file.write_text(json.dumps(content), encoding="utf-8")
    return [hook, whole, *files, str(files[0])]


def assert_as_requested(hook: Any, folder: Path) -> None:
    """Whether a hook is what `requests` asks for."""
    assert hook.out_dir == str(folder / "run")
    intervals = [hook.save_config.get_save_config(mode).save_interval for mode in ModeKeys]
    assert intervals == [7, 3, 7, 7]
    losses = hook.get_collection("losses").save_config
    assert [losses.get_save_config(mode).save_interval for mode in ModeKeys] == [5, 5, 5, 5]
    assert "losses" in hook.include_collections


def check_requests(smd: Any, ways: list[Callable[[Any], Any]], folder: Path) -> None:
    """Every form of a request makes the hook of an adapter, in each of the ways to give it."""
    for source in requests(folder):
        for way in ways:
            smd.del_hook()
            hook = way(source)
            assert type(hook) is smd.Hook
            assert_as_requested(hook, folder)


class Ended:
    """A script that has ended.

    Args:
        output: what it has printed.
        began: when it was started, in seconds since 1970.
        until: when it had ended.

    Attributes:
        told: what it has printed in JSON: the framework's own numbers.
        log: what the library has printed.
    """

    def __init__(self, output: str, began: float, until: float) -> None:
        self.output, self.began, self.until = output, began, until
        lines = output.splitlines()
        self.told: list[Any] = [json.loads(line) for line in lines if line.startswith('["')]
        self.log = [line for line in lines if line.startswith("[20")]
