"""Two training runs that diverge: the first difference is where they do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from smdebug import SaveConfig
from smdebug.pytorch import Hook
from smdebug.storage.check.run import check_run
from smdebug.storage.stores.local import LocalStore
from smdebug.trials import create_trial
from smdebug.trials.compare.difference import compare_runs

if TYPE_CHECKING:
    from pathlib import Path

    from smdebug.trials import Trial

STEPS = 10


def train(place: Path, seed: int = 0, changed_after: int | None = None) -> Trial:
    """Trains a small network; the learning rate may be another one after a step."""
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hook = Hook(
        out_dir=str(place),
        include_collections=["weights", "biases", "gradients", "losses"],
        save_config=SaveConfig(save_interval=1),
    )
    loss_function = torch.nn.MSELoss()
    hook.register_module(model)
    hook.register_loss(loss_function)
    data = torch.Generator().manual_seed(1)
    for step in range(STEPS):
        inputs = torch.randn(8, 6, generator=data)
        optimizer.zero_grad()
        loss_function(model(inputs), inputs.sum(1, keepdim=True)).backward()
        if step == changed_after:
            optimizer.param_groups[0]["lr"] = 0.3
        optimizer.step()
    hook.close()
    assert check_run(LocalStore(place)).damages == []
    return create_trial(place, wait_seconds=0)


def test_training_runs(tmp_path: Path) -> None:
    first = train(tmp_path / "a")
    same = compare_runs(first, train(tmp_path / "b"), rtol=0.0, atol=0.0)
    assert same.first is None
    assert same.compared == STEPS * (2 + 2 + 4 + 1)
    # The update at the end of step 5 is another one, so the weights of step 6 are the first to be.
    later = compare_runs(first, train(tmp_path / "c", changed_after=5))
    assert later.first is not None
    assert later.first.step == 6
    assert later.first.what == "value"
    weights = {*first.tensor_names(collection="weights"), *first.tensor_names(collection="biases")}
    assert later.first.tensor in weights
    gradients = compare_runs(first, train(tmp_path / "d", changed_after=5), tensor="^gradient/")
    assert gradients.first is not None
    assert gradients.first.step == 6
    other = compare_runs(first, train(tmp_path / "e", seed=1))
    assert other.first is not None
    assert other.first.step == 0
    assert other.first.tensor in weights
    assert not other.only_first["tensors"].count
