"""Zero-code instrumentation: scripts train the same, and their runs are complete."""

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
    """Results of the scripts by name; a script runs when its result is first used."""

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
    """The scripts without instrumentation."""
    return Runs(tmp_path_factory.mktemp("alone"))


@pytest.fixture(scope="module")
def instrumented(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """The scripts with a hook that saves everything at every step."""
    options = ["--save", "all", "--every", "1", "--tensorboard"]
    return Runs(tmp_path_factory.mktemp("instrumented"), options)


def losses_of(trial: Trial, name: str, mode: modes = modes.GLOBAL) -> list[float]:
    tensor = trial.tensor(name)
    return [float(tensor.value(step, mode=mode)) for step in tensor.steps(mode=mode)]


@pytest.mark.parametrize("name", SCRIPTS)
def test_results_are_the_same_with_the_launcher(name: str, alone: Runs, instrumented: Runs) -> None:
    check_same(alone[name], instrumented[name])
    trial = instrumented.trial(name)
    assert trial.tensor_names(collection="gradients")
    assert trial.tensor_names(collection="losses")


@pytest.mark.parametrize("name", ["class_trainer", "functional_loss", "lightning_trainer"])
def test_results_are_the_same_with_one_import(name: str, tmp_path: Path, alone: Runs) -> None:
    parameters = {"save_interval": 3, "include_collections": "gradients"}
    job = {"LocalPath": str(tmp_path / "run"), "HookParameters": parameters}
    ended = run_imported(PROGRAMS / f"{name}.py", tmp_path, job)
    check_same(alone[name], ended)
    assert create_trial(str(tmp_path / "run")).tensor_names(collection="gradients")


def test_a_trainer_class_of_the_script(alone: Runs, instrumented: Runs) -> None:
    trial = instrumented.trial("class_trainer")
    # Calls of parts while the model was built are not steps.
    assert trial.steps(mode=modes.TRAIN) == list(range(10))
    assert trial.steps(mode=modes.EVAL) == list(range(4))
    assert trial.mode(5) == modes.EVAL
    assert trial.tensor_names(collection="weights") == ["Net_features.0.weight", "Net_head.weight"]
    evaluated = np.array(losses_of(trial, "CrossEntropyLoss_output_0", modes.EVAL), "float32")
    printed = alone["class_trainer"].values("loss")
    assert np.allclose(evaluated.reshape(2, 2).mean(axis=1), printed, rtol=1e-6)


def test_functional_loss_and_two_modules_of_one_step(alone: Runs, instrumented: Runs) -> None:
    trial = instrumented.trial("functional_loss")
    assert trial.steps(mode=modes.TRAIN) == list(range(20))
    assert losses_of(trial, "loss_output_0") == alone["functional_loss"].values("loss")
    # The input of the second module is the output of the first, also at the first step.
    for step in trial.steps():
        returned = trial.tensor("Sequential_output_0").value(step)
        assert (returned == trial.tensor("Linear_input_0").value(step)).all()
        for name in ("Linear_weight", "Sequential_0.weight"):
            assert trial.tensor(name).value(step).any()
            assert trial.tensor(f"gradient/{name}").value(step).any()


def test_both_modules_are_found_in_a_resumed_script(tmp_path: Path) -> None:
    script = PROGRAMS / "functional_loss.py"
    # More than the steps of the search, which must count those of this process only.
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


def test_hugging_face(instrumented: Runs) -> None:
    trial = instrumented.trial("huggingface_trainer")
    assert trial.steps(mode=modes.TRAIN) == list(range(12))
    assert trial.steps(mode=modes.EVAL) == [0, 1]
    assert len(losses_of(trial, "CrossEntropyLoss_output_0", modes.TRAIN)) == 12


def test_lightning(alone: Runs, instrumented: Runs) -> None:
    trial = instrumented.trial("lightning_trainer")
    assert trial.steps(mode=modes.TRAIN) == list(range(16))
    # Two batches of the sanity check before training, and two for each epoch.
    assert trial.steps(mode=modes.EVAL) == list(range(6))
    losses = losses_of(trial, "loss_output_0", modes.TRAIN)
    assert losses[-1] == alone["lightning_trainer"].values("loss")[0]
    assert losses == losses_of(trial, "scalar/train_loss", modes.TRAIN)
    assert trial.has_tensor("AutoEncoder_encoder.0.weight")
    assert trial.tensor("encoder_output_0").steps(mode=modes.TRAIN) == list(range(16))


def test_lightning_twice_with_a_call_of_the_model_in_between(tmp_path: Path) -> None:
    text = (PROGRAMS / "lightning_trainer.py").read_text(encoding="utf-8")
    begin = text.index("trainer.fit")
    again = f"model.encoder(data).sum().backward()\n{text[begin:]}"
    script = tmp_path / "twice.py"
    # The trainer has reached its number of epochs.
    more = again.replace("trainer.fit", "trainer.fit_loop.max_epochs = 4\ntrainer.fit", 1)
    script.write_text(f"{text}{more}", encoding="utf-8")
    ended = run_launched(script, tmp_path, ["--out", "run", "--every", "1"])
    assert ended.code == 0, ended.errors
    trial = create_trial(str(tmp_path / "run"))
    assert trial.steps(mode=modes.TRAIN) == list(range(32))
    assert trial.tensor_names(collection="losses") == ["loss_output_0"]


def test_accelerate(alone: Runs, instrumented: Runs) -> None:
    trial = instrumented.trial("accelerate_loop")
    losses = losses_of(trial, "CrossEntropyLoss_output_0")
    assert losses == alone["accelerate_loop"].values("loss")
    # The loss divided by the number of batches is not saved as well.
    assert trial.tensor_names(collection="losses") == ["CrossEntropyLoss_output_0"]


def test_two_models_with_an_optimizer_each(instrumented: Runs) -> None:
    gradients = instrumented.trial("two_optimizers").tensor_names(collection="gradients")
    assert {name.split("_")[0] for name in gradients} == {"gradient/Maker", "gradient/Judge"}


def test_the_model_of_the_next_fold_replaces_the_last(instrumented: Runs) -> None:
    trial = instrumented.trial("folds")
    assert trial.steps(mode=modes.TRAIN) == list(range(15))
    (weight,) = trial.tensor_names(collection="weights")
    assert trial.tensor(weight).steps() == list(range(15))
    values = [trial.tensor(weight).value(step) for step in (0, 5, 10)]
    assert not (values[0] == values[1]).all()


def test_a_script_without_an_optimizer_is_instrumented_from_its_second_step(
    alone: Runs, instrumented: Runs
) -> None:
    losses = losses_of(instrumented.trial("by_hand"), "loss_output_0")
    assert losses == alone["by_hand"].values("loss")[1:]


def test_a_model_called_before_it_is_compiled(alone: Runs, instrumented: Runs) -> None:
    trial = instrumented.trial("compiled_late")
    # Two models, called once each.
    assert trial.steps(mode=modes.EVAL) == [0, 1]
    assert losses_of(trial, "loss_output_0", modes.TRAIN) == alone["compiled_late"].values("loss")


def test_forks_and_other_threads_are_not_instrumented(alone: Runs, instrumented: Runs) -> None:
    trial = instrumented.trial("processes")
    assert losses_of(trial, "loss_output_0") == alone["processes"].values("loss")


def test_two_processes_of_torchrun(tmp_path: Path) -> None:
    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    script = str(PROGRAMS / "two_processes.py")
    bare = run([*torchrun, script], tmp_path)
    options = ["--out", "run", "--save", "gradients", "--every", "2"]
    instrumented = run([*torchrun, "-m", "smdebug", "run", *options, "--", script], tmp_path)
    assert sorted(bare.lines) == sorted(instrumented.lines), instrumented.errors
    assert len(bare.lines) == 2
    assert (bare.code, instrumented.code) == (0, 0)
    trial = create_trial(str(tmp_path / "run"))
    assert trial.workers() == ["worker_0"]
    assert trial.steps(mode=modes.TRAIN) == [0, 2, 4, 6, 8]


def test_several_processes_need_an_output_directory(tmp_path: Path) -> None:
    script = str(PROGRAMS / "two_processes.py")
    arguments = ["-m", "smdebug", "run", "--", script]
    ended = run(arguments, tmp_path, RANK="0", WORLD_SIZE="2")
    assert ended.code == 2
    assert "--out is required for a job of several processes" in ended.errors


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
    # The traceback has lines of the script, and none of the launcher.
    assert "train.py" in ended.errors
    assert "program.py" not in ended.errors
    assert "RuleEvaluationConditionMet" in ended.errors
    (finding,) = create_trial(str(tmp_path / "run")).findings()
    assert (finding.rule, finding.step) == ("NonFinite", 2)


def test_a_script_with_its_own_hook_is_not_instrumented(tmp_path: Path) -> None:
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


def test_importing_auto_alone_changes_nothing(tmp_path: Path) -> None:
    program = (
        "import torch\n"
        "before = torch.nn.Module.__call__, torch.autograd.backward\n"
        "import smdebug.auto\n"
        "assert smdebug.auto.job is None\n"
        "assert before == (torch.nn.Module.__call__, torch.autograd.backward)\n"
    )
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, timeout=100)


def test_functions_are_restored_or_stay_plain_functions(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import copy, pickle\n"
        "import torch\n"
        "model = torch.nn.Linear(2, 1)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "loss = torch.nn.MSELoss()\n"
        "assert torch.nn.Module.__call__ is not torch.nn.Module._wrapped_call_impl\n"
        "for _ in range(3):\n"
        "    loss(model(torch.ones(1, 2)), torch.ones(1, 1)).backward()\n"
        "    optimizer.step()\n"
        "# Every module has been found.\n"
        "assert torch.nn.Module.__call__ is torch.nn.Module._wrapped_call_impl\n"
        "for function in (torch.compile, torch.autograd.backward, torch.nn.Module.compile):\n"
        "    assert pickle.loads(pickle.dumps(function)) is function\n"
        "    assert copy.deepcopy(function) is function\n"
        "for each in (model, loss, optimizer):\n"
        "    copy.deepcopy(each), pickle.dumps(each)\n",
        encoding="utf-8",
    )
    ended = run_launched(script, tmp_path, ["--out", "run", "--every", "1"])
    assert ended.code == 0, ended.errors
    assert create_trial(str(tmp_path / "run")).steps(mode=modes.TRAIN) == [0, 1, 2]
