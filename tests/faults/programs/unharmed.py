"""Trains while something happens to the place that the run is saved to; many times, on demand.

    python -m tests.faults.programs.unharmed

Every line of its input describes a job, as JSON: see `Job`. It forks a process for each, because
importing torch takes longer than training. That process prepares the directory, has a further one
train, waits for its end, reads what was saved, and answers with a line of JSON: see `Answer`.
"""

from __future__ import annotations

import gc
import hashlib
import importlib
import json
import logging
import os
import random
import signal
import traceback
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tests.faults.flaky_store import FlakyStore
from tests.faults.programs import places
from torch import nn

import smdebug.hook.hook
import smdebug.hook.run.run_location
from smdebug import SaveConfig
from smdebug.config.log import install_log
from smdebug.exceptions import SMDebugError
from smdebug.pytorch import Hook, ReductionConfig
from smdebug.trials import create_trial

EXIT_CODE = 7
# Where responses go: prints of others go elsewhere.
_ANSWERS = 1


@dataclass
class Job:
    """A training run.

    Attributes:
        work: a directory of its own; the run is `run` in it, unless `url` says otherwise.
        hook: whether there is a hook.
        fault: what happens: see `AT_A_STEP` and `prepare`. "ask" tells whoever started this when
            it is to happen ("now"), when the hook is about to be closed ("closing") and when the
            run is about to be read ("over"), and waits for an answer each time.
        at: the step before which it happens; as many as `steps`: before the hook is closed.
        steps: how many steps there are.
        flushes: steps after which the hook is flushed.
        width: of the layers: a step saves some 8 * width ** 2 bytes.
        large: megabytes of a further tensor, which training itself does not use.
        memory: megabytes that are left when there is "no memory".
        reduces: save reductions only; they are computed by the writer's thread.
        checkpoints: write a checkpoint after every third step, and tell the hook where they are.
        closes: whether the script closes the hook itself, and not the end of the interpreter.
        seed: of a store that fails at random.
        failing: how often it does.
        remote: whether that store says it is far away.
        url: where the run is saved.
        variables: further ones of the environment.
        options: further ones of the hook.
        seconds: how long it may take; "hung" otherwise.
    """

    work: str
    hook: bool = True
    fault: str = ""
    at: int = 6
    steps: int = 14
    flushes: list[int] = field(default_factory=list)
    width: int = 8
    large: int = 0
    memory: int = 8
    reduces: bool = False
    checkpoints: bool = False
    closes: bool = True
    seed: int = 0
    failing: float = 0.0
    remote: bool = False
    url: str = ""
    variables: dict[str, str] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    seconds: int = 240

    @property
    def run(self) -> Path:
        return Path(self.work) / ("above/run" if self.fault == "denied above" else "run")

    @property
    def out_dir(self) -> str:
        return self.url or str(self.run)


@dataclass
class Answer:
    """What became of it.

    Attributes:
        refused: why the fault could not be made here; "" when it could.
        hung: the process that trains had to be killed.
        exit_code: its exit code.
        weights, generators: the end of training, bit for bit.
        raised: errors of ours that training has seen.
        stats: what the hook counted.
        held: bytes of tensors that neither training nor torch has, after the hook was closed.
        log: everything it has logged.
        steps: by step, names of tensors and what they hold; of the run.
        unreadable: why the run could not be read.
        finished: whether the run says that it is.
    """

    refused: str = ""
    hung: bool = False
    exit_code: int = -1
    weights: str = ""
    generators: str = ""
    raised: list[str] = field(default_factory=list)
    stats: dict[str, Any] = field(default_factory=dict)
    held: int = 0
    log: str = ""
    steps: dict[str, dict[str, str]] = field(default_factory=dict)
    unreadable: str = ""
    finished: bool = False


AT_A_STEP = {
    "removed": lambda job: places.remove(job.run),
    "replaced": lambda job: places.replace(job.run),
    "read-only": lambda job: places.make_read_only(job.run),
    "denied": lambda job: places.deny(job.run),
    "no files": lambda job: places.take_files(),
    "no memory": lambda job: places.take_memory(job.memory),
    "filled": lambda job: places.fill(job.run),
    "ask": lambda job: ask("now"),
}


def prepare(job: Job) -> None:
    """Makes the place what it is before training; in a process of its own."""
    Path(job.work, "checkpoints").mkdir(parents=True, exist_ok=True)
    if job.fault in ("full", "filled", "read-only"):
        places.enter_own_mounts()
    if job.fault in ("full", "filled"):
        places.mount_small(job.run)
    if job.fault == "denied at first":
        job.run.mkdir()
        places.deny(job.run)
    if job.fault == "denied above":
        job.run.parent.mkdir()
        places.deny(job.run.parent)


def ask(event: str) -> None:
    """Ask the parent process to do something now."""
    tell({"event": event})
    assert os.read(0, 1) == b"\n", "nobody is there any more"


def tell(what: dict[str, Any]) -> None:
    data = json.dumps(what).encode() + b"\n"
    while data:
        data = data[os.write(_ANSWERS, data) :]


# ---- training


class Model(nn.Module):
    """Draws random numbers in its forward pass, so that one more or less changes everything."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, 1)
        self.drop = nn.Dropout(0.3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.second(self.drop(torch.relu(self.first(x))))
        return output


class Training:
    """A training run with or without a hook.

    Args:
        job: which.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self.raised: list[str] = []
        self.hook: Hook | None = None
        self.store: FlakyStore | None = None
        self.large = torch.ones(job.large << 19, dtype=torch.bfloat16)

    def run(self) -> dict[str, Any]:
        """Trains; returns what there is to tell of it."""
        job = self.job
        seed_everything()
        model, loss = Model(job.width), nn.MSELoss()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        if job.hook:
            self.hook = self._make_hook()
            self.hook.register_module(model)
            self.hook.register_loss(loss)
        for step in range(job.steps):
            if step == job.at:
                self._strike()
            optimizer.zero_grad()
            x = torch.randn(4, job.width)
            output = self._allowed(lambda x=x: model(x))
            loss(output, torch.zeros(4, 1)).backward()
            optimizer.step()
            self._allowed(lambda step=step, x=x: self._save(step, x))
            if job.checkpoints and step % 3 == 2:
                torch.save(model.state_dict(), Path(job.work, "checkpoints", f"{step}.pt"))
        ended: dict[str, Any] = {"weights": digest(model.state_dict()), "generators": generators()}
        if job.at >= job.steps:
            self._strike()
        if job.hook and job.fault == "ask":
            ask("closing")
        if self.hook is not None and job.closes:
            self._allowed(self.hook.close)
            # Both of them do nothing any more.
            self.hook.close()
            self.hook.flush()
            model(torch.zeros(1, job.width))
            ended["stats"] = asdict(self.hook.stats())
            ended["held"] = held_bytes(model, optimizer)
        return {**ended, "raised": self.raised}

    def _make_hook(self) -> Hook:
        job = self.job
        if job.failing:
            store = self.store = FlakyStore(job.out_dir, job.seed, job.remote)
            # There is no scheme for such a store.
            for module in (smdebug.hook.hook, smdebug.hook.run.run_location):
                vars(module)["open_store"] = lambda path: store
        every = SaveConfig(save_interval=1)
        options = dict(job.options)
        if job.reduces:
            options["reduction_config"] = ReductionConfig(reductions=["mean", "std"], norms=["l2"])
        return Hook(job.out_dir, save_all=True, save_config=every, **options)

    def _strike(self) -> None:
        if self.store is not None:
            self.store.failing = self.job.failing
        elif self.job.hook and self.job.fault in AT_A_STEP:
            AT_A_STEP[self.job.fault](self.job)

    def _save(self, step: int, x: torch.Tensor) -> None:
        if self.hook is not None:
            self.hook.save_scalar("number", step)
            self.hook.save_tensor("mine", x)
            if self.job.large:
                self.hook.save_tensor("large", self.large)
            if step in self.job.flushes:
                self.hook.flush()

    def _allowed(self, work: Any) -> Any:
        """With `on_error="raise"` the script may catch an error, and continues."""
        if self.job.options.get("on_error") != "raise":
            return work()
        try:
            return work()
        except (SMDebugError, OSError) as error:
            self.raised.append(type(error).__name__)
            return work()


def seed_everything() -> None:
    torch.manual_seed(5)
    np.random.seed(5)
    random.seed(5)


def generators() -> str:
    state = [torch.get_rng_state().tolist(), np.random.get_state()[1].tolist(), random.getstate()]  # type: ignore[index]
    return hashlib.sha256(repr(state).encode()).hexdigest()


def digest(tensors: dict[str, torch.Tensor]) -> str:
    sums = hashlib.sha256()
    for name, tensor in tensors.items():
        sums.update(name.encode() + tensor.detach().numpy().tobytes())
    return sums.hexdigest()


def held_bytes(model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """The bytes of tensors that are alive and not those of training."""
    gc.collect()
    own = [*model.parameters(), *(each.grad for each in model.parameters())]
    own += [state["momentum_buffer"] for state in optimizer.state.values()]
    known = {each.untyped_storage().data_ptr() for each in own if each is not None}
    found = {}
    for each in gc.get_objects():
        if type(each) is torch.Tensor and each.untyped_storage().data_ptr() not in known:
            found[each.untyped_storage().data_ptr()] = each.untyped_storage().nbytes()
    return sum(found.values())


def train(job: Job) -> int:
    """Train in this process and write the results; return the exit status."""
    os.environ.update(job.variables)
    if job.checkpoints:
        configuration = Path(job.work, "checkpoints.json")
        configuration.write_text(json.dumps({"LocalPath": f"{job.work}/checkpoints"}))
        os.environ["CHECKPOINT_CONFIG_FILE_PATH"] = str(configuration)
    logging.basicConfig(filename=f"{job.work}/log", level=logging.DEBUG, force=True)
    for name in ("botocore", "boto3", "urllib3", "s3transfer"):
        logging.getLogger(name).setLevel(logging.WARNING)
    install_log()
    # Whatever was asked for: it is what is looked at afterwards.
    logging.getLogger("smdebug").propagate = True
    if job.fault.startswith("denied"):
        places.obey_modes()
    # Opened now: later there may be no file left to open.
    with Path(job.work, "ended").open("w") as file:
        told = Training(job).run()
        json.dump(told, file)
    return EXIT_CODE


# ---- around it


def attend(job: Job) -> Answer:
    """Prepares the place, has a process train, and looks at what is there afterwards."""
    try:
        prepare(job)
    except places.Refused as error:
        return Answer(refused=str(error))
    child = os.fork()
    if not child:
        become_training(job)
    answer = Answer()

    def give_up(*_: object) -> None:
        answer.hung = True
        os.kill(child, signal.SIGKILL)

    signal.signal(signal.SIGALRM, give_up)
    signal.alarm(job.seconds)
    _, status = os.waitpid(child, 0)
    signal.alarm(0)
    answer.exit_code = os.waitstatus_to_exitcode(status)
    answer.log = Path(job.work, "log").read_text()
    text = Path(job.work, "ended").read_text()
    for name, value in (json.loads(text) if text else {}).items():
        setattr(answer, name, value)
    return answer


def become_training(job: Job) -> None:
    """Trains and ends as a script does: with what the interpreter does at its end."""
    code = 1
    try:
        code = train(job)
    except BaseException:
        traceback.print_exc()
        Path(job.work, "traceback").write_text(traceback.format_exc())
    raise SystemExit(code)


def read(job: Job, answer: Answer) -> None:
    """Reads what the run holds."""
    place = job.out_dir
    if job.fault == "replaced":
        place = f"{job.run}-moved"
    if job.fault.startswith("denied"):
        places.allow(Path(job.work))
    try:
        trial = create_trial(place, wait_seconds=0)
        answer.finished = trial.loaded_all_steps
        for name in trial.tensor_names():
            for step, value in trial.tensor(name).values().items():
                array = np.ascontiguousarray(value)
                text = f"{array.dtype} {array.shape} ".encode() + array.tobytes()
                tensors = answer.steps.setdefault(str(step), {})
                tensors[name] = hashlib.sha256(text).hexdigest()[:16]
            if job.reduces:
                for step in trial.tensor(name).steps():
                    numbers = trial.tensor(name).reduction_values(step)
                    answer.steps.setdefault(str(step), {})[name] = repr(sorted(numbers.items()))
    except Exception as error:
        answer.unreadable = f"{type(error).__name__}: {error}"


def serve(line: bytes) -> None:
    """Does one job, in this process, and answers."""
    job = Job(**json.loads(line))
    answer = attend(job)
    if not answer.refused:
        os.environ.update(job.variables)
        if job.fault == "ask":
            ask("over")
        read(job, answer)
    tell(asdict(answer))


def main() -> None:
    global _ANSWERS
    _ANSWERS = os.dup(1)
    os.dup2(2, 1)
    torch.set_num_threads(1)
    # Here, and not in every child; there are no threads yet that a fork would not copy.
    for name in ("pyarrow.parquet", "smdebug.storage.v2.segment", "smdebug.rules.runner", "boto3"):
        importlib.import_module(name)
    Training(Job("", hook=False)).run()
    # What is there now is looked at by no collection of garbage in the children.
    gc.collect()
    gc.freeze()
    while line := _line():
        child = os.fork()
        if not child:
            serve(line)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            broken = Answer(unreadable=f"whoever looks after a job ended with {status}")
            tell(asdict(broken))


def _line() -> bytes:
    """Return the next line of the input and nothing after it, which a child may read."""
    read = b""
    while not read.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            return b""
        read += byte
    return read


if __name__ == "__main__":
    main()
