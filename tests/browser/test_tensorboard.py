"""A real TensorBoard page, in a real browser, shows what the hook wrote."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.browser.chromium import Chromium
from tests.hook.numpy_hook import NumpyHook

from smdebug import modes
from smdebug.config.reduction_config import ReductionConfig

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.browser
STEPS = 60


def train(folder: Path) -> None:
    """A training whose loss falls while its weights spread, with an evaluation now and then."""
    random = np.random.default_rng(0)
    hook = NumpyHook(
        folder, save_config={"save_interval": 1}, export_tensorboard=True, on_error="raise",
        include_collections=["weights", "gradients"],
    )  # fmt: skip
    config = ReductionConfig(norms=["l2"], save_raw_tensor=True)
    hook.get_collection("gradients").reduction_config = config
    for step in range(STEPS):
        hook.set_mode(modes.EVAL if step % 5 == 4 else modes.TRAIN)
        loss = 2.0 * np.exp(-step / 20) + 0.05 * random.normal()
        hook.run(
            cross_entropy_loss=np.float32(loss),
            fc1__weight=random.normal(scale=0.2 + step / 50, size=2000),
            gradient__fc1=random.normal(scale=np.exp(-step / 30), size=2000),
        )
        hook.save_scalar("learning rate", 0.1 * 0.97**step)
    hook.close()


@contextmanager
def tensorboard(logdir: Path) -> Iterator[str]:
    """A TensorBoard that serves a directory; gives its address."""
    command = [
        sys.executable, "-m", "tensorboard.main", "--logdir", str(logdir), "--port", "0",
        "--host", "127.0.0.1", "--load_fast", "false",
    ]  # fmt: skip
    # What it warns about is its own.
    environment = {**os.environ, "PYTHONWARNINGS": "ignore", "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stderr is not None
        said = ""
        try:
            for line in process.stderr:
                said += line
                found = re.search(r"http://127\.0\.0\.1:\d+/", line)
                if found:
                    yield found[0]
                    break
            else:
                raise AssertionError(said)
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Chromium, str]]:
    """A browser, and the address of a TensorBoard that shows a training."""
    folder = tmp_path_factory.mktemp("browser")
    train(folder / "run")
    with (
        tensorboard(folder / "run" / "tensorboard") as address,
        Chromium(folder / "chromium") as browser,
    ):
        yield browser, address


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Where pictures go: where `make browser` wants them, or nowhere that lasts."""
    wanted = os.environ.get("TORNASOLE_PICTURES")
    folder = tmp_path if wanted is None else Path(wanted)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def test_scalars(page: tuple[Chromium, str], pictures: Path) -> None:
    browser, address = page
    # With a filter all tags are in one list that is open.
    browser.open(f"{address}?darkMode=false#scalars&tagFilter=.")
    tags = ["cross_entropy_loss", "scalar/learning_rate", "gradients/gradient/fc1/l2"]
    browser.wait_for(*tags, "TRAIN", "EVAL")
    # One for each mode.
    browser.wait_for_curves(2 * len(tags))
    browser.picture(pictures / "scalars.png")


def test_histograms(page: tuple[Chromium, str], pictures: Path) -> None:
    browser, address = page
    browser.open(f"{address}?darkMode=false#histograms")
    tags = ["weights/fc1/weight", "gradients/gradient/fc1"]
    browser.wait_for(*tags, "TRAIN", "EVAL")
    # One for each step that is evaluated, and for more that are trained.
    browser.wait_for_curves(2 * len(tags) * STEPS // 5)
    browser.picture(pictures / "histograms.png")
