"""Training scripts that know nothing of hooks: they train the same, and their runs are right."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.unmodified import Ended, check_same, run, run_alone, run_imported, run_launched

from smdebug import modes
from smdebug.trials import Trial, create_trial

PROGRAMS = Path(__file__).parent / "programs" / "unmodified"
SCRIPTS = [
    "class_trainer", "functional_loss", "huggingface_trainer", "lightning_trainer",
    "accelerate_loop", "two_optimizers", "folds", "compiled", "by_hand",
    "odd_shapes", "processes", "compiled_late",
]  # fmt: skip


class Runs(dict[str, Ended]):
    """How the scripts end; each is run when it is first asked for."""

    def __init__(self, directory: Path, options: list[str] | None = None) -> None:
        super().__init__()
        self.directory, self._options = directory, options

    def __missing__(self, name: str) -> Ended:
        script = PROGRAMS / f"{name}.py"
        if self._options is None:
            self[name] = run_alone(script, self.directory)
        else:
            self[name] = run_launched(script, self.directory, ["--out", name, *self._options])
        return self[name]

    def trial(self, name: str) -> Trial:
        assert self[name].code == 0, self[name].errors
        return create_trial(str(self.directory / name))


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """The scripts when nobody watches."""
    return Runs(tmp_path_factory.mktemp("alone"))


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """The scripts with a hook that saves everything at every step."""
    options = ["--save", "all", "--every", "1", "--tensorboard"]
    return Runs(tmp_path_factory.mktemp("watched"), options)


def losses_of(trial: Trial, name: str, mode: modes = modes.GLOBAL) -> list[float]:
    tensor = trial.tensor(name)
    return [float(tensor.value(step, mode=mode)) for step in tensor.steps(mode=mode)]


@pytest.mark.parametrize("name", SCRIPTS)
def test_it_trains_the_same_by_the_launcher(name: str, alone: Runs, watched: Runs) -> None:
    check_same(alone[name], watched[name])
    trial = watched.trial(name)
    assert trial.tensor_names(collection="gradients")
    assert trial.tensor_names(collection="losses")


@pytest.mark.parametrize("name", ["class_trainer", "functional_loss", "lightning_trainer"])
def test_it_trains_the_same_with_one_import(name: str, tmp_path: Path, alone: Runs) -> None:
    parameters = {"save_interval": 3, "include_collections": "gradients"}
    job = {"LocalPath": str(tmp_path / "run"), "HookParameters": parameters}
    ended = run_imported(PROGRAMS / f"{name}.py", tmp_path, job)
    check_same(alone[name], ended)
    assert create_trial(str(tmp_path / "run")).tensor_names(collection="gradients")


def test_a_class_of_its_own(alone: Runs, watched: Runs) -> None:
    trial = watched.trial("class_trainer")
    # The parts that the model tried out while it was built are no steps.
    assert trial.steps(mode=modes.TRAIN) == list(range(10))
    assert trial.steps(mode=modes.EVAL) == list(range(4))
    assert trial.mode(5) == modes.EVAL
    assert trial.tensor_names(collection="weights") == ["Net_features.0.weight", "Net_head.weight"]
    evaluated = np.array(losses_of(trial, "CrossEntropyLoss_output_0", modes.EVAL), "float32")
    printed = alone["class_trainer"].values("loss")
    assert np.allclose(evaluated.reshape(2, 2).mean(axis=1), printed, rtol=1e-6)


def test_a_functional_loss_and_two_modules_of_one_step(alone: Runs, watched: Runs) -> None:
    trial = watched.trial("functional_loss")
    assert trial.steps(mode=modes.TRAIN) == list(range(20))
    assert losses_of(trial, "loss_output_0") == alone["functional_loss"].values("loss")
    # What the second module takes is what the first returned, at the first step as at the others.
    for step in trial.steps():
        returned = trial.tensor("Sequential_output_0").value(step)
        assert (returned == trial.tensor("Linear_input_0").value(step)).all()
        for name in ("Linear_weight", "Sequential_0.weight"):
            assert trial.tensor(name).value(step).any()
            assert trial.tensor(f"gradient/{name}").value(step).any()


def test_a_script_that_goes_on_finds_both_modules_again(tmp_path: Path) -> None:
    script = PROGRAMS / "functional_loss.py"
    # Far enough for a count of steps to be mistaken for one of this process.
    text = script.read_text(encoding="utf-8").replace(
        "torch.randn(20, 8, 6)", "torch.randn(150, 8, 6)"
    )
    longer = tmp_path / "longer.py"
    longer.write_text(text, encoding="utf-8")
    options = ["--out", "run", "--save", "gradients", "--every", "1", "--resume"]
    for _ in range(2):
        assert run_launched(longer, tmp_path, options).code == 0
    trial = create_trial(str(tmp_path / "run"))
    assert trial.steps(mode=modes.TRAIN) == list(range(300))
    assert trial.tensor("gradient/Linear_weight").steps() == list(range(300))
    assert trial.tensor("loss_output_0").steps() == list(range(300))


def test_hugging_face(watched: Runs) -> None:
    trial = watched.trial("huggingface_trainer")
    assert trial.steps(mode=modes.TRAIN) == list(range(12))
    assert trial.steps(mode=modes.EVAL) == [0, 1]
    assert len(losses_of(trial, "CrossEntropyLoss_output_0", modes.TRAIN)) == 12


def test_lightning(alone: Runs, watched: Runs) -> None:
    trial = watched.trial("lightning_trainer")
    assert trial.steps(mode=modes.TRAIN) == list(range(16))
    # Two batches before training begins, to see whether all is well, and two for each epoch.
    assert trial.steps(mode=modes.EVAL) == list(range(6))
    losses = losses_of(trial, "loss_output_0", modes.TRAIN)
    assert losses[-1] == alone["lightning_trainer"].values("loss")[0]
    assert losses == losses_of(trial, "scalar/train_loss", modes.TRAIN)
    assert trial.has_tensor("AutoEncoder_encoder.0.weight")
    assert trial.tensor("encoder_output_0").steps(mode=modes.TRAIN) == list(range(16))


def test_lightning_again_with_the_model_called_by_hand_in_between(tmp_path: Path) -> None:
    text = (PROGRAMS / "lightning_trainer.py").read_text(encoding="utf-8")
    begin = text.index("trainer.fit")
    again = f"model.encoder(data).sum().backward()\n{text[begin:]}"
    script = tmp_path / "twice.py"
    # A trainer is done after as many epochs as it was told.
    more = again.replace("trainer.fit", "trainer.fit_loop.max_epochs = 4\ntrainer.fit", 1)
    script.write_text(f"{text}{more}", encoding="utf-8")
    ended = run_launched(script, tmp_path, ["--out", "run", "--every", "1"])
    assert ended.code == 0, ended.errors
    trial = create_trial(str(tmp_path / "run"))
    assert trial.steps(mode=modes.TRAIN) == list(range(32))
    assert trial.tensor_names(collection="losses") == ["loss_output_0"]


def test_accelerate(alone: Runs, watched: Runs) -> None:
    trial = watched.trial("accelerate_loop")
    losses = losses_of(trial, "CrossEntropyLoss_output_0")
    assert losses == alone["accelerate_loop"].values("loss")
    # What is divided by the number of batches is not saved beside it.
    assert trial.tensor_names(collection="losses") == ["CrossEntropyLoss_output_0"]


def test_two_models_with_an_optimizer_each(watched: Runs) -> None:
    gradients = watched.trial("two_optimizers").tensor_names(collection="gradients")
    assert {name.split("_")[0] for name in gradients} == {"gradient/Maker", "gradient/Judge"}


def test_the_model_of_the_next_fold_takes_the_place_of_the_last(watched: Runs) -> None:
    trial = watched.trial("folds")
    assert trial.steps(mode=modes.TRAIN) == list(range(15))
    (weight,) = trial.tensor_names(collection="weights")
    assert trial.tensor(weight).steps() == list(range(15))
    values = [trial.tensor(weight).value(step) for step in (0, 5, 10)]
    assert not (values[0] == values[1]).all()


def test_a_script_without_an_optimizer_counts_from_its_first_gradients(
    alone: Runs, watched: Runs
) -> None:
    losses = losses_of(watched.trial("by_hand"), "loss_output_0")
    assert losses == alone["by_hand"].values("loss")[1:]


def test_what_was_tried_before_it_was_compiled(alone: Runs, watched: Runs) -> None:
    trial = watched.trial("compiled_late")
    # Two models, tried once each.
    assert trial.steps(mode=modes.EVAL) == [0, 1]
    assert losses_of(trial, "loss_output_0", modes.TRAIN) == alone["compiled_late"].values("loss")


def test_forks_and_other_threads_are_left_alone(alone: Runs, watched: Runs) -> None:
    trial = watched.trial("processes")
    assert losses_of(trial, "loss_output_0") == alone["processes"].values("loss")


def test_two_processes_of_torchrun(tmp_path: Path) -> None:
    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    script = str(PROGRAMS / "two_processes.py")
    bare = run([*torchrun, script], tmp_path)
    options = ["--out", "run", "--save", "gradients", "--every", "2"]
    watched = run([*torchrun, "-m", "smdebug", "run", *options, "--", script], tmp_path)
    assert sorted(bare.lines) == sorted(watched.lines), watched.errors
    assert len(bare.lines) == 2
    assert (bare.code, watched.code) == (0, 0)
    trial = create_trial(str(tmp_path / "run"))
    assert trial.workers() == ["worker_0"]
    assert trial.steps(mode=modes.TRAIN) == [0, 2, 4, 6, 8]


def test_several_processes_must_be_told_where(tmp_path: Path) -> None:
    script = str(PROGRAMS / "two_processes.py")
    arguments = ["-m", "smdebug", "run", "--", script]
    ended = run(arguments, tmp_path, RANK="0", WORLD_SIZE="2")
    assert ended.code == 2
    assert "--out must be given when a job has several processes" in ended.errors


def test_turned_off(tmp_path: Path, alone: Runs) -> None:
    script = str(PROGRAMS / "class_trainer.py")
    arguments = ["-m", "smdebug", "run", "--out", "run", "--", script]
    check_same(alone["class_trainer"], run(arguments, tmp_path, USE_SMDEBUG="0"))
    assert not (tmp_path / "run").exists()


def test_a_rule_stops_the_script(tmp_path: Path) -> None:
    parameters = {"rules": "NonFinite", "on_finding": "stop", "before_update": True}
    config = {"LocalPath": "run", "HookParameters": parameters}
    (tmp_path / "hook.json").write_text(json.dumps(config), encoding="utf-8")
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\n"
        "model = torch.nn.Linear(2, 1)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for number in (1.0, 2.0, float('nan'), 3.0):\n"
        "    optimizer.zero_grad()\n"
        "    model(torch.full((1, 2), number)).sum().backward()\n"
        "    optimizer.step()\n"
        "    print('loss', number)\n",
        encoding="utf-8",
    )
    ended = run_launched(script, tmp_path, ["--config", "hook.json"])
    assert ended.lines == ["loss 1.0", "loss 2.0"]
    assert ended.code == 1
    # The script's own lines, and none of the launcher's.
    assert "train.py" in ended.errors
    assert "program.py" not in ended.errors
    assert "RuleEvaluationConditionMet" in ended.errors
    (finding,) = create_trial(str(tmp_path / "run")).findings()
    assert (finding.rule, finding.step) == ("NonFinite", 2)


def test_a_script_with_a_hook_of_its_own_is_left_alone(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\n"
        "import smdebug.pytorch as smd\n"
        "model = torch.nn.Linear(2, 1)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "hook = smd.Hook('own', save_config=smd.SaveConfig(save_interval=1))\n"
        "hook.register_module(model)\n"
        "for _ in range(3):\n"
        "    model(torch.ones(1, 2)).sum().backward()\n"
        "    optimizer.step()\n",
        encoding="utf-8",
    )
    ended = run_launched(script, tmp_path, ["--out", "other"])
    assert ended.code == 0
    assert not (tmp_path / "other").exists()
    assert "the script creates a hook itself" in ended.errors
    assert (tmp_path / "own").exists()


def test_nothing_is_left_behind_in_a_process_that_only_imports_auto(tmp_path: Path) -> None:
    program = (
        "import torch\n"
        "before = torch.nn.Module.__call__, torch.autograd.backward\n"
        "import smdebug.auto\n"
        "assert smdebug.auto.job is None\n"
        "assert before == (torch.nn.Module.__call__, torch.autograd.backward)\n"
    )
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, timeout=100)
