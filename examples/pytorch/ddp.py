"""Two processes train one model with DistributedDataParallel; each saves what it has.

python examples/pytorch/ddp.py [DIRECTORY]
"""

import sys
import tempfile

import torch
from torch import distributed, multiprocessing, nn
from torch.nn.parallel import DistributedDataParallel

import smdebug.pytorch as smd


def train(rank: int, directory: str, meeting: str) -> None:
    distributed.init_process_group("gloo", f"file://{meeting}", rank=rank, world_size=2)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, loss_function = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)), nn.MSELoss()
    hook = smd.Hook(
        directory,
        include_collections=["gradients"],
        include_workers="all",
        save_config=smd.SaveConfig(save_interval=20),
        reduction_config=smd.ReductionConfig(norms=["l2"]),
    )
    parallel = DistributedDataParallel(model)
    hook.register_module(parallel)
    hook.register_loss(loss_function)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(rank)
    for _ in range(101):
        inputs = torch.randn(32, 4) * (1 + rank)  # the data of the second process is wider
        optimizer.zero_grad()
        loss_function(parallel(inputs), inputs.sum(dim=1, keepdim=True)).backward()
        optimizer.step()
    hook.close()
    distributed.destroy_process_group()


def look(directory: str) -> None:
    trial = smd.create_trial(directory)
    print(trial, trial.workers())
    for name in trial.tensor_names(regex="Loss_output|weight"):
        reduction = None if "Loss" in name else "l2"
        print(name)
        for worker in trial.workers():
            _, values = trial.tensor(name).series(reduction, worker=worker)
            print(f"  {worker}:", " ".join(f"{value:7.3f}" for value in values))


if __name__ == "__main__":
    where = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="tornasole-")
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(train, (where, f"{folder}/meeting"), nprocs=2)
    look(where)
