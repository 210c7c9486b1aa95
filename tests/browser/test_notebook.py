"""What a notebook shows of a trial and of a tensor, in a real browser, by day and by night."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from tests.browser.chromium import Chromium

from smdebug import create_trial
from smdebug.mode_keys import ModeKeys
from smdebug.storage.batch import Entry, StepBatch
from smdebug.storage.findings import Finding, write_findings
from smdebug.testing import make_run

pytestmark = pytest.mark.browser
HOSTILE = "<img src=x onerror='document.title=1'>"


def batch(worker: str, step: int) -> StepBatch:
    loss = np.float32(np.nan if step == 30 else 2 * np.exp(-step / 20))
    entries = [
        Entry("loss", np.asarray(loss)),
        Entry(HOSTILE, np.random.default_rng(step).standard_normal((8, 8))),
    ]
    return StepBatch(step, ModeKeys.TRAIN, step, entries)


@pytest.mark.parametrize(
    ("page", "text"), [("#fff", "#111"), ("#111", "#ddd")], ids=["day", "night"]
)
def test_trial_and_tensor(tmp_path: Path, page: str, text: str) -> None:
    make_run(tmp_path / "run", range(60), data=batch)
    trial = create_trial(str(tmp_path / "run"))
    write_findings(trial.store, [Finding("LossSpike", 30, "the loss is NaN")])
    parts = [trial._repr_html_(), trial.tensor(HOSTILE)._repr_html_()]
    style = f"background:{page};color:{text};font:14px sans-serif"
    file = tmp_path / "page.html"
    file.write_text(f"<body style='{style}'>{'<hr>'.join(parts)}</body>", encoding="utf-8")
    with Chromium(tmp_path / "browser") as browser:
        browser.open(file.as_uri())
        browser.wait_for("Trial run", "finished", "60, from 0 to 59", "LossSpike", HOSTILE, "8 x 8")
        assert browser.run("document.title") == ""
        assert browser.run("document.images.length") == 0
        # The curve is broken at the step that is NaN.
        assert browser.run("document.querySelectorAll('svg polyline').length") == 2
        # Nothing has a background of its own: letters are read on that of the page.
        assert browser.run(
            "[...document.querySelectorAll('body *')].every("
            "each => getComputedStyle(each).backgroundColor === 'rgba(0, 0, 0, 0)')"
        )
        if folder := os.environ.get("TORNASOLE_PICTURES"):
            Path(folder).mkdir(parents=True, exist_ok=True)
            browser.picture(Path(folder) / f"notebook_{page[1:]}.png")
