"""train_with_checkpoints.py OUT_DIR CONFIG REPORT STEPS CHECKPOINTS: trains and writes checkpoints.

CONFIG names the checkpoint directory; CHECKPOINTS are steps of this process with commas, after
which one is written. The report says where the hook began.
"""

import json
import os
import sys
from pathlib import Path

out_dir, config, report = sys.argv[1:4]
steps = int(sys.argv[4])
checkpoints = [int(step) for step in sys.argv[5].split(",") if step]
os.environ["CHECKPOINT_CONFIG_FILE_PATH"] = config

import torch  # noqa: E402

from smdebug.pytorch import Hook, SaveConfig, modes  # noqa: E402

directory = Path(json.loads(Path(config).read_text())["LocalPath"])
hook = Hook(out_dir, save_config=SaveConfig(save_interval=2))
began = {
    "step": hook.step,
    "mode_steps": {mode.name: step for mode, step in hook.mode_steps.items()},
    "last_saved_step": hook.last_saved_step,
}
Path(report).write_text(json.dumps(began))
net, loss_function = torch.nn.Linear(4, 3), torch.nn.MSELoss()
hook.register_module(net)
hook.register_loss(loss_function)
for step in range(steps):
    # Every third step is of an evaluation.
    hook.set_mode(modes.EVAL if step % 3 == 2 else modes.TRAIN)
    loss_function(net(torch.ones(5, 4)), torch.ones(5, 3)).backward()
    if step in checkpoints:
        (directory / f"{hook.step}.pt").write_text("x" * (hook.step + 1))
hook.close()
