"""The demo runs, prints what it should, and stops on request."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest
from matplotlib import image
from tests.command import smdebug, started


def run(folder: Path, *arguments: str) -> str:
    return smdebug(folder, "demo", *arguments).stdout


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("demo")
    return folder, run(folder, "--steps", "60")


def test_output_names_the_network_that_does_not_learn(printed: tuple[Path, str]) -> None:
    _, text = printed
    sentences = " ".join(text.split())
    # The sixth layer lies at the threshold: processors round differently.
    expected = r"sigmoid network: the gradients of layers 1-[56] of 14 are below 1e-07"
    assert re.search(expected, sentences)
    assert "relu network: no gradient vanishes" in sentences


def test_output_fits_eighty_columns(printed: tuple[Path, str]) -> None:
    _, text = printed
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "Loss over the training steps" in text


def test_output_names_all_locations(printed: tuple[Path, str]) -> None:
    folder, text = printed
    for name in ("sigmoid", "relu", "demo.png"):
        path = Path("runs", "demo", name)
        assert str(path) in text
        assert (folder / path).exists()


def test_figure_is_an_image(printed: tuple[Path, str]) -> None:
    folder, _ = printed
    picture = image.imread(folder / "runs/demo/demo.png")
    height, width, _ = picture.shape
    assert width > 1000
    assert height > 500
    # A picture of curves is mostly paper, and not only paper.
    assert 0.01 < (picture[:, :, :3].min(axis=2) < 0.8).mean() < 0.5


def test_second_run_does_not_change_the_first(printed: tuple[Path, str]) -> None:
    folder, _ = printed
    before = (folder / "runs/demo/demo.png").stat().st_mtime_ns
    assert "runs/demo-2/demo.png" in run(folder, "--steps", "20")
    assert (folder / "runs/demo/demo.png").stat().st_mtime_ns == before


def test_interrupt_exits_cleanly(tmp_path: Path) -> None:
    with started(tmp_path, "demo", "run", "--steps", "1000000") as demo:
        assert demo.stdout is not None
        began = any("learn to tell" in line for line in iter(demo.stdout.readline, ""))
        demo.send_signal(signal.SIGINT)
        try:
            printed, errors = demo.communicate(timeout=60)
        finally:
            demo.kill()
    assert began
    assert demo.returncode == 130
    assert "stopped; the steps saved so far are in" in printed
    assert errors == ""
