"""Golden runs of the PyTorch hook."""

from __future__ import annotations

import os
import signal
import time
from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

import smdebug.pytorch as smd
from smdebug.reductions import REDUCTION_NAMES
from smdebug.storage.stores.base import open_store
from smdebug.storage.v2.compaction import compact_run
from tools.golden_runs.jobs import KILLED, Job, end_as_killed
from tools.golden_runs.recorder import Step
from tools.golden_runs.special import NAMES, REDUCED, TENSORS

if TYPE_CHECKING:
    from pathlib import Path

    from tools.golden_runs.recorder import Array, Recorder

TRAIN, EVAL = smd.modes.TRAIN, smd.modes.EVAL
# Training steps with evaluation in between.
MODES = (TRAIN, TRAIN, EVAL, TRAIN, EVAL, TRAIN)
_HIDDEN_GRADIENT = "hidden_gradient"
_COLLECTIONS = ("weights", "biases", "gradients", "activations", _HIDDEN_GRADIENT)
_GRADIENT_REDUCTIONS = ("max", "l2")
_ACTIVATION_REDUCTIONS = ("mean", "zeros", "l2")
_SPECIAL_REDUCTIONS = ("min", "max", "mean", "sum", "median", "nans", "infs", "zeros", "l1")
_BIAS_REDUCTIONS = ("min", "max", "abs_mean")
# The time stamp of scalars, so that reading it can be compared.
_TIME = 1_700_000_000.25


class Script:
    """A training script with a hook; it records what the hook is to save.

    Args:
        truth: what is recorded.
        seed: of the weights and the batches.
        worker: the worker that this script is.
        collections: what is saved.
        **options: further options of the hook.
    """

    def __init__(
        self,
        truth: Recorder,
        seed: int = 0,
        worker: str = "worker_0",
        collections: tuple[str, ...] = ("weights", "gradients"),
        **options: Any,
    ) -> None:
        torch.manual_seed(seed)
        self.truth = truth
        self.worker = worker
        self._collections = collections
        layers = [("hidden", nn.Linear(4, 4)), ("relu", nn.ReLU()), ("head", nn.Linear(4, 2))]
        self.model = nn.Sequential(OrderedDict(layers))
        self.loss_function = nn.MSELoss()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.hook = smd.Hook(
            str(truth.run),
            include_collections=list(collections),
            worker=worker,
            save_config=smd.SaveConfig(save_interval=1),
            format=truth.format,
            on_error="raise",
            **options,
        )
        self._configure_collections()
        self.hook.register_module(self.model)
        self.hook.register_loss(self.loss_function)
        self._activations: dict[str, Any] = {}
        self.model.relu.register_forward_hook(self._keep_activation)

    def _configure_collections(self) -> None:
        collection = self.hook.get_collection
        collection("weights").save_config = smd.SaveConfig(save_interval=2)
        collection("weights").exclude("head")
        collection("biases").reduction_config = smd.ReductionConfig.from_dict(
            {"reductions": list(_BIAS_REDUCTIONS), "save_shape": True}
        )
        collection("gradients").reduction_config = smd.ReductionConfig.from_dict(
            {"reductions": list(_GRADIENT_REDUCTIONS)}
        )
        if _HIDDEN_GRADIENT in self._collections:
            # In two collections: the reductions of both are saved.
            collection(_HIDDEN_GRADIENT).include(r"^gradient/.*hidden\.weight$")
            collection(_HIDDEN_GRADIENT).reduction_config = smd.ReductionConfig.from_dict(
                {"reductions": list(REDUCTION_NAMES)}
            )
        if "activations" in self._collections:
            collection("activations").include("relu_output")
            collection("activations").reduction_config = smd.ReductionConfig.from_dict(
                {"reductions": list(_ACTIVATION_REDUCTIONS), "save_raw_tensor": True}
            )

    def _keep_activation(self, module: Any, given: Any, returned: Any) -> None:
        self._activations["relu_output_0"] = _copy(returned)

    def step(self, mode: smd.modes) -> None:
        """Make one step and record it."""
        batch, target = torch.randn(3, 4), torch.randn(3, 2)
        weights = {name: _copy(value) for name, value in self.model.named_parameters()}
        self.hook.set_mode(mode)
        self.optimizer.zero_grad()
        with torch.set_grad_enabled(mode is TRAIN):
            loss = self.loss_function(self.model(batch), target)
        if mode is TRAIN:
            loss.backward()
            self.optimizer.step()
        rate = 0.1 / (1 + self.hook.step)
        self.hook.save_scalar("rate", rate, timestamp=_TIME + self.hook.step)
        self.hook.save_tensor("batch", batch, "batches")
        self._record(mode, weights, {"batch": _copy(batch), "loss": _copy(loss)}, rate)

    def _record(
        self, mode: smd.modes, weights: dict[str, Array], values: dict[str, Array], rate: float
    ) -> None:
        step = Step(self.hook.step, mode.name, self.hook.mode_steps[mode], self.worker)
        save = partial(self.truth.save, step)
        for name, value in weights.items():
            if name.endswith("bias"):
                if "biases" in self._collections:
                    save(f"Sequential_{name}", value, raw=False, reductions=_BIAS_REDUCTIONS)
            elif step.mode_step % 2 == 0 and "head" not in name:
                save(f"Sequential_{name}", value)
        if "activations" in self._collections:
            for name, value in self._activations.items():
                save(name, value, reductions=_ACTIVATION_REDUCTIONS)
        save("MSELoss_output_0", values["loss"])
        if mode is TRAIN:
            for name, parameter in self.model.named_parameters():
                every = name == "hidden.weight" and _HIDDEN_GRADIENT in self._collections
                save(
                    f"gradient/Sequential_{name}", _copy(parameter.grad), raw=False,
                    reductions=REDUCTION_NAMES if every else _GRADIENT_REDUCTIONS,
                )  # fmt: skip
        save("scalar/rate", np.array([rate]), time=_TIME + step.number)
        save("batch", values["batch"])


def _copy(tensor: Any) -> Array:
    array: Array = tensor.detach().numpy().copy()
    return array


# ---- what the processes of jobs do


def train(truth: Recorder) -> None:
    """A job from its beginning to its end, with every kind of tensor and reduction."""
    script = Script(truth, collections=_COLLECTIONS)
    for number, mode in enumerate(MODES):
        script.step(mode)
        if number % 2:
            # Several event files, and index files that are merged when the hook is closed.
            script.hook.flush()
    script.hook.close()


def train_and_die(truth: Recorder) -> None:
    """A job that is killed: every step was published, and it was not closed."""
    script = Script(truth)
    for mode in MODES[:3]:
        script.step(mode)
        script.hook.flush()
    end_as_killed(truth)


def train_and_terminate(truth: Recorder) -> None:
    """A job that ends by SIGTERM, with a step that was not published before."""
    script = Script(truth)
    for mode in MODES[:3]:
        script.step(mode)
    truth.write()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(60)


def resume(truth: Recorder) -> None:
    """Resume after the last saved step."""
    script = Script(truth, seed=1, resume=True)
    for mode in (TRAIN, EVAL):
        script.step(mode)
    script.hook.close()


def go_back(truth: Recorder, close: bool = True) -> None:
    """Resume from an earlier checkpoint: steps 1 and 2 are saved again, with other values."""
    script = Script(truth, seed=2, resume=True)
    script.hook.step = 0
    for mode in (TRAIN, EVAL, TRAIN):
        script.step(mode)
        script.hook.flush()
    if not close:
        end_as_killed(truth)
    script.hook.close()


def train_two_workers(truth: Recorder, die: bool = False) -> None:
    """Two workers, in one process: the environment says which of them makes a step."""
    scripts = []
    os.environ["WORLD_SIZE"] = "2"
    for rank in range(2):
        os.environ["RANK"] = str(rank)
        scripts.append(Script(truth, rank, f"worker_{rank}", include_workers="all"))
    for number, mode in enumerate(MODES[:4]):
        for rank, script in enumerate(scripts):
            if die and rank == 1 and number > 1:
                # Killed before it published its last two steps.
                continue
            os.environ["RANK"] = str(rank)
            script.step(mode)
            script.hook.flush()
    if die:
        end_as_killed(truth)
    for rank, script in enumerate(scripts):
        os.environ["RANK"] = str(rank)
        script.hook.close()


def save_special_values(truth: Recorder) -> None:
    """Tensors of all element types and odd shapes, values and names."""
    worker = "gpu:0/größe 1"
    with smd.Hook(
        str(truth.run), save_config=smd.SaveConfig(save_interval=1), format=truth.format,
        worker=worker, on_error="raise",
    ) as hook:  # fmt: skip
        hook.get_collection("reduced").include("^reduced/")
        hook.get_collection("reduced").reduction_config = smd.ReductionConfig.from_dict(
            {"reductions": list(_SPECIAL_REDUCTIONS), "save_raw_tensor": True}
        )
        model = nn.Identity()
        hook.register_module(model)
        hook.set_mode(smd.modes.PREDICT)
        model(torch.zeros(1))
        step = Step(0, "PREDICT", 0, worker)
        for name, tensor, array in TENSORS:
            hook.save_tensor(name, tensor(torch), "special")
            truth.save(step, name, array)
        for number, name in enumerate(NAMES):
            value = np.array([number, -1], np.float32)
            hook.save_tensor(name, value, "names")
            truth.save(step, name, value)
        for name, array in REDUCED.items():
            hook.save_tensor(name, array, "reduced")
            truth.save(step, name, array, reductions=_SPECIAL_REDUCTIONS)


def _compact(run: Path) -> None:
    compact_run(open_store(str(run)))


_DIE = (KILLED,)
JOBS = [
    *(
        job
        for format in ("v2", "v1")
        for job in (
            Job(f"pytorch_{format}", format, (train,)),
            Job(f"pytorch_resumed_{format}", format, (train_and_die, resume), (KILLED, 0)),
            Job(f"pytorch_rewound_{format}", format, (train_and_die, go_back), (KILLED, 0)),
            Job(f"pytorch_workers_{format}", format, (train_two_workers,)),
            Job(f"pytorch_killed_{format}", format, (train_and_die,), _DIE, finished=False),
            Job(
                f"pytorch_terminated_{format}", format, (train_and_terminate,), (-signal.SIGTERM,)
            ),
            Job(f"pytorch_special_{format}", format, (save_special_values,)),
        )
    ),
    Job(
        "pytorch_rewound_killed_v2", "v2", (train_and_die, partial(go_back, close=False)),
        (KILLED, KILLED), finished=False,
    ),
    Job(
        "pytorch_workers_killed_v2", "v2", (partial(train_two_workers, die=True),), _DIE,
        finished=False,
    ),
    Job(
        "pytorch_compacted_v2", "v2", (train_and_die,), _DIE, finished=False, afterwards=_compact
    ),
]  # fmt: skip
