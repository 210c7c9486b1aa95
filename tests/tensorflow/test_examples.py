"""Every example for TensorFlow runs unchanged."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import tensorflow as tf
from tests.pages import examples

if TYPE_CHECKING:
    from pathlib import Path

EXAMPLES = examples("tensorflow")
# What each of them says.
SAYS = {
    "estimator": r"(?s)3 tensors, 18 steps, finished.*TRAIN 0: 0\.\d+ 10: .*EVAL 0: 0\.\d+ 5: ",
    "gradient_tape": (
        r"(?s)14 tensors, 12 steps, finished.*step 80: loss 0\.\d+, gradient \d\.\d+; error .* 0\.1"
    ),
    "keras_fit": r"(?s)15 tensors, 21 steps, finished.*\n +5 +0\.[01]\d+ +0\.9\d+\n.*kernel:0 +\d",
    "keras_torch": r"(?s)16 tensors, 10 steps, finished> computed by torch\n.*edges/outputs +\(32,",
    "layers_and_gradients": r"(?s)layer_00 +0\.\d+ +\d\.\de-0[78]  #.*layer_11 +0\.\d+ +\d\.\de-01",
    "mirrored": (
        r"(?s)std of inputs\n  _job-localhost_replica-0_task-0_device-CPU-0:   [01]\.\d+ .*"
        r"\n  _job-localhost_replica-0_task-0_device-CPU-1:   [12]\.\d+ .*l2 of gradients"
    ),
    "rules_stop": (
        r"(?s)^fit has ended in epoch \d+ of 1000.*VanishingGradient  found .*DeadRelu +passed.*"
        r"gradients/00_relu/kernelGrad +\d\.\de-0[89]"
    ),
    "session": r"(?s)4 tensors, 5 steps, finished.*step 40: loss 0\.0000, .* \[ 1\. +-2\. +0\.5\]",
}
NEEDS = {
    "estimator": (hasattr(tf, "estimator"), "this TensorFlow has no Estimator"),
    "keras_torch": (hasattr(tf.keras, "ops"), "Keras 2 has one backend"),
}
# Many small processes with many threads each only wait for each other.
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
# Keras 2 names its models so.
KERAS_ITSELF = "ignore:non-integer arguments to randrange:DeprecationWarning"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example(path: Path, tmp_path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) < 60
    possible, reason = NEEDS.get(path.stem, (True, ""))
    if not possible:
        pytest.skip(reason)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-W", KERAS_ITSELF, str(path), str(tmp_path / "run")],
        cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "saving has stopped" not in done.stderr, done.stderr
    assert re.search(SAYS[path.stem], done.stdout), done.stdout
