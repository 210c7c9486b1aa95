"""write_tensorboard.py OUT_DIR: a small training under smdebug's hook, with TensorBoard files."""

import sys

import torch
from torch import nn

from smdebug.pytorch import Hook, SaveConfig, modes

torch.manual_seed(0)
model, loss = nn.Sequential(nn.Linear(30, 20), nn.ReLU(), nn.Linear(20, 2)), nn.MSELoss()
hook = Hook(
    sys.argv[1],
    export_tensorboard=True,
    save_config=SaveConfig(save_interval=1),
    include_collections=["weights", "gradients"],
)
hook.register_module(model)
hook.register_loss(loss)
for mode in (modes.TRAIN, modes.EVAL, modes.TRAIN):
    hook.set_mode(mode)
    loss(model(torch.randn(8, 30)), torch.zeros(8, 2)).backward()
hook.close()
