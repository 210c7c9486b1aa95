"""Zero-code instrumentation: scripts train the same, and their runs are complete."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from tests.unmodified import check_same, run_alone, run_imported, run_launched

from smdebug import modes
from smdebug.trials import create_trial

SCRIPT = Path(__file__).parent / "programs" / "unmodified" / "gluon_loop.py"
LOSS = "softmaxcrossentropyloss0_output_0"


def test_a_loop(tmp_path: Path) -> None:
    alone = run_alone(SCRIPT, tmp_path)
    options = ["--out", "run", "--save", "weights,gradients", "--every", "1"]
    check_same(alone, run_launched(SCRIPT, tmp_path, options))
    trial = create_trial(str(tmp_path / "run"))
    assert trial.steps(mode=modes.TRAIN) == list(range(10))
    assert trial.steps(mode=modes.EVAL) == [0, 1]
    tensor = trial.tensor(LOSS)
    for mode, printed in ((modes.TRAIN, "loss"), (modes.EVAL, "evaluation")):
        means = [tensor.value(step, mode=mode).mean() for step in tensor.steps(mode=mode)]
        assert np.allclose(means, alone.values(printed), rtol=1e-6)
    assert len(trial.tensor_names(collection="gradients")) == 4


def test_one_import(tmp_path: Path) -> None:
    parameters = {"save_interval": "2", "include_collections": "weights"}
    job = {"LocalPath": str(tmp_path / "run"), "HookParameters": parameters}
    check_same(run_alone(SCRIPT, tmp_path), run_imported(SCRIPT, tmp_path, job))
    trial = create_trial(str(tmp_path / "run"))
    assert trial.steps(mode=modes.TRAIN) == [0, 2, 4, 6, 8]
