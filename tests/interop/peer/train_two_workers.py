"""train_two_workers.py OUT_DIR TRUTH.npz: two processes that train one model together.

In the npz the array of tensor T at step S of worker W is called "S|T|W".
"""

import os
import sys
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import nn

from smdebug.pytorch import Hook, ReductionConfig, SaveConfig, modes

WORKERS = 2
STEPS = 4
# For each to wait for the other; less than the caller waits for both.
PATIENCE = timedelta(seconds=60)


def train(rank, port, out_dir, truth_file):
    store = dist.TCPStore("127.0.0.1", port, is_master=False, timeout=PATIENCE)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=WORKERS, timeout=PATIENCE)
    torch.manual_seed(rank)
    torch.set_num_threads(1)
    truth, step = {}, -1

    def note(name, tensor):
        truth[f"{step}|{name}|worker_{rank}"] = tensor.detach().clone().numpy()

    hook = Hook(
        out_dir,
        save_config=SaveConfig(save_interval=1),
        include_collections=["weights", "gradients", "outputs", "biases"],
        include_workers="all",
    )
    hook.get_collection("outputs").include("module_output")
    hook.get_collection("biases").reduction_config = ReductionConfig(["mean"], norms=["l2"])
    net = nn.parallel.DistributedDataParallel(nn.Linear(4, 3))
    loss_function = nn.MSELoss()
    hook.register_module(net)
    hook.register_loss(loss_function)
    hook.set_mode(modes.TRAIN)
    for name, parameter in net.named_parameters():
        # What the hook meets: this worker's own gradient, before it is averaged.
        parameter.register_hook(
            lambda gradient, name=name: note(f"gradient/DistributedDataParallel_{name}", gradient)
        )
    net.module.register_forward_hook(lambda _, x, y: note("module_output_0", y))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(STEPS):  # noqa: B007
        for name, parameter in net.named_parameters():
            note(f"DistributedDataParallel_{name}", parameter)
        loss = loss_function(net(torch.randn(5, 4)), torch.randn(5, 3))
        note("MSELoss_output_0", loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    # A worker that closes early would end the run for the other.
    dist.barrier()
    hook.close()
    np.savez(truth_file.replace(".npz", f"-{rank}.npz"), **truth)
    dist.destroy_process_group()


def main(out_dir, truth_file):
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    # Port 0: the system chooses one that is free, and it stays bound from here on.
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=PATIENCE)
    torch.multiprocessing.spawn(train, (store.port, out_dir, truth_file), nprocs=WORKERS, join=True)
    truth = {}
    for rank in range(WORKERS):
        with np.load(truth_file.replace(".npz", f"-{rank}.npz")) as saved:
            truth.update(saved)
    np.savez(truth_file, **truth)


if __name__ == "__main__":
    main(*sys.argv[1:])
