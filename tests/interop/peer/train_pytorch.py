"""train_pytorch.py OUT_DIR TRUTH.npz: a small training under smdebug's hook.

Independently of the hook, what torch holds is copied: parameters before each forward, gradients
after each backward, outputs through hooks of our own. In the npz the array of tensor T at global
step S is called "S|T".
"""

import sys

import numpy as np
import torch
from torch import nn

from smdebug.pytorch import Hook, ReductionConfig, SaveConfig, SaveConfigMode, modes

REDUCTIONS = ["min", "max", "mean", "std", "variance", "sum", "prod"]
NORMS = ["l1", "l2"]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(1, 3, 3)
        self.relu = nn.ReLU()
        self.fc = nn.Linear(18, 5)
        # One element: its sample deviation is NaN.
        self.gain = nn.Linear(1, 1, bias=False)

    def forward(self, x):
        hidden = self.relu(self.conv(x)).flatten(1)
        return self.fc(hidden) * self.gain(torch.ones(1))


def make_hook(out_dir):
    hook = Hook(
        out_dir,
        save_config=SaveConfig(
            {
                modes.TRAIN: SaveConfigMode(save_interval=2, save_steps=[3]),
                modes.EVAL: SaveConfigMode(save_interval=1),
            }
        ),
        include_collections=["weights", "biases", "gradients", "relu", "conv", "fc", "late"],
    )
    everything = {
        "reductions": REDUCTIONS,
        "norms": NORMS,
        "abs_reductions": REDUCTIONS,
        "abs_norms": NORMS,
    }
    hook.get_collection("gradients").reduction_config = ReductionConfig(
        save_raw_tensor=True, **everything
    )
    hook.get_collection("biases").reduction_config = ReductionConfig(**everything)
    relu = hook.get_collection("relu")
    relu.include("relu_output")
    relu.reduction_config = ReductionConfig(["max"], abs_norms=["l2"], save_shape=True)
    hook.get_collection("conv").include(["^conv_output", "^conv_input"])
    # The shape beside the value: smdebug then finds only the shape again.
    fc = hook.get_collection("fc")
    fc.include("^fc_output")
    fc.reduction_config = ReductionConfig(save_raw_tensor=True, save_shape=True)
    late = hook.get_collection("late")
    late.include("^gain_output")
    late.save_config = SaveConfig(start_step=3, end_step=6, save_interval=1)
    return hook


def main(out_dir, truth_file):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    net, loss_function = Net(), nn.CrossEntropyLoss()
    truth, step = {}, -1

    def note(name, tensor):
        truth[f"{step}|{name}"] = tensor.detach().clone().numpy()

    hook = make_hook(out_dir)
    hook.register_module(net)
    hook.register_loss(loss_function)

    def note_call(module, inputs, output):
        note(f"{names[module]}_input_0", inputs[0])
        note(f"{names[module]}_output_0", output)

    names = {module: name for name, module in net.named_children()}
    for module in names:
        module.register_forward_hook(note_call)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(2):
        for mode, batches in ((modes.TRAIN, 5), (modes.EVAL, 2)):
            hook.set_mode(mode)
            for batch in range(batches):
                step += 1
                for name, parameter in net.named_parameters():
                    note(f"Net_{name}", parameter)
                x, labels = torch.randn(6, 1, 8), torch.randint(0, 5, (6,))
                loss = loss_function(net(x), labels)
                note("CrossEntropyLoss_output_0", loss)
                hook.save_scalar("rate", 0.1 * step)
                hook.save_scalar("batch", batch + 100 * epoch)
                truth[f"{step}|scalar/rate"] = np.array([0.1 * step])
                truth[f"{step}|scalar/batch"] = np.array([batch + 100 * epoch])
                if mode is modes.TRAIN:
                    optimizer.zero_grad()
                    loss.backward()
                    for name, parameter in net.named_parameters():
                        note(f"gradient/Net_{name}", parameter.grad)
                    optimizer.step()
    hook.close()
    np.savez(truth_file, **truth)


if __name__ == "__main__":
    main(*sys.argv[1:])
