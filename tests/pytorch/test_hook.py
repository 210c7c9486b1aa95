"""The hook as a script sees it: made, registered, stepped through modes, closed."""

from __future__ import annotations

import copy
import inspect
import json
import logging
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn

import smdebug.pytorch as smd
from smdebug.config.options import DEFAULT_SAGEMAKER_OUTDIR
from smdebug.exceptions import (
    SMDebugError,
    SMDebugRuntimeError,
    SMDebugTypeError,
    SMDebugValueError,
)
from smdebug.hook.hook import BaseHook
from smdebug.hook.module_api import current_hook
from smdebug.storage.format.keys import END_KEY
from smdebug.testing import make_run

if TYPE_CHECKING:
    from pathlib import Path

    from smdebug.trials import Trial

EVERY = smd.SaveConfig(save_interval=1)
TRAIN, EVAL, PREDICT, GLOBAL = smd.modes.TRAIN, smd.modes.EVAL, smd.modes.PREDICT, smd.modes.GLOBAL


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(4, 8)
        self.relu = nn.ReLU()
        self.fc2 = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.fc2(self.relu(self.fc1(x)))
        return output


@pytest.fixture
def net() -> Net:
    torch.manual_seed(0)
    return Net()


def step(model: nn.Module, loss: nn.Module | None = None, seed: int = 0) -> torch.Tensor:
    """One forward and backward pass."""
    generator = torch.Generator().manual_seed(seed)
    output = model(torch.randn(5, 4, generator=generator))
    value: torch.Tensor = output.square().mean()
    if loss is not None:
        value = loss(output, torch.zeros_like(output))
    value.backward()
    return value


def files_under(path: Path) -> list[str]:
    return sorted(str(each.relative_to(path)) for each in path.rglob("*") if each.is_file())


def hooks_on(model: nn.Module) -> dict[str, Any]:
    """Everything that hooks can be put into, of all modules and parameters, that is not empty."""
    found: dict[str, Any] = {}
    for path, module in model.named_modules():
        for key, value in vars(module).items():
            if "hooks" in key and value:
                found[f"{path}.{key}"] = dict(value)
    for name, parameter in model.named_parameters():
        for key in ("_backward_hooks", "_post_accumulate_grad_hooks"):
            if getattr(parameter, key, None):
                found[f"{name}.{key}"] = getattr(parameter, key)
    return found


def trained(hook: smd.Hook, model: nn.Module, steps: int = 3) -> Trial:
    """Trains some steps under a hook, closes it, opens what it wrote."""
    loss = nn.MSELoss()
    hook.register_module(model)
    hook.register_loss(loss)
    for number in range(steps):
        step(model, loss, number)
    hook.close()
    return smd.create_trial(hook.out_dir)


# ---- the constructor


def test_arguments_are_in_the_order_of_smdebug_1() -> None:
    parameters = list(inspect.signature(smd.Hook).parameters.values())
    assert [(each.name, each.default) for each in parameters[:10]] == [
        ("out_dir", None),
        ("export_tensorboard", False),
        ("tensorboard_dir", None),
        ("dry_run", False),
        ("reduction_config", None),
        ("save_config", None),
        ("include_regex", None),
        ("include_collections", None),
        ("save_all", False),
        ("include_workers", "one"),
    ]
    assert {each.name for each in parameters[10:]} >= {
        *("worker", "format", "queue_bytes", "flush_seconds", "on_error")
    }


def test_constructor_creates_no_file(tmp_path: Path) -> None:
    hook = smd.Hook(tmp_path / "run", save_all=True)
    assert list(tmp_path.iterdir()) == []
    assert smd.get_hook() is hook


def test_attributes_return_the_arguments(tmp_path: Path) -> None:
    reductions = smd.ReductionConfig(["min"])
    hook = smd.Hook(
        str(tmp_path),
        False,
        None,
        True,
        reductions,
        EVERY,
        ["relu"],
        ["weights", ["bias"]],
        True,
        "all",
        worker="worker_7",
        format="v1",
        queue_bytes=1 << 20,
        flush_seconds=0.5,
        on_error="raise",
    )
    assert hook.out_dir == str(tmp_path)
    assert hook.tensorboard_dir is None
    assert hook.dry_run is True
    assert hook.reduction_config == reductions
    assert hook.save_config == EVERY
    assert list(hook.include_regex) == ["relu"]
    assert hook.include_collections == {"weights", "biases", "losses", "default", "all"}
    assert hook.save_all_workers is True
    assert hook.worker == "worker_7"
    assert hook.chief_worker == "worker_0"
    assert (hook.step, hook.mode, hook.last_saved_step) == (-1, GLOBAL, None)
    assert hook.collection_manager.get("default").include_regex == ["relu"]
    assert hook.has_registered_module is False
    assert hook.has_registered_loss_module is False
    assert hook.module_set == set()


def test_default_hook_saves_losses_every_500_steps(tmp_path: Path) -> None:
    hook = smd.Hook(tmp_path)
    assert hook.include_collections == {"losses"}
    assert hook.has_default_configuration()
    assert hook.has_default_hook_configuration()
    assert hook.save_config == smd.SaveConfig(save_interval=500)
    assert hook.reduction_config == smd.ReductionConfig(save_raw_tensor=True)
    assert hook.worker == "worker_0"
    assert not hook.save_all_workers
    assert not smd.Hook(tmp_path, include_collections="weights").has_default_configuration()
    assert not smd.Hook(tmp_path, save_all=True).has_default_configuration()


def test_the_home_directory_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert smd.Hook("~/run").out_dir == str(tmp_path / "run")


def test_hook_requires_an_out_dir() -> None:
    with pytest.raises(SMDebugRuntimeError, match="out_dir"):
        smd.Hook()
    with pytest.raises(RuntimeError):
        smd.Hook(None)
    assert smd.get_hook() is None


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ({"out_dir": ""}, SMDebugValueError),
        ({"out_dir": 7}, SMDebugValueError),
        ({"dry_run": "maybe"}, SMDebugValueError),
        ({"save_all": 2}, SMDebugValueError),
        ({"reduction_config": ["min"]}, SMDebugTypeError),
        ({"save_config": 7}, SMDebugTypeError),
        ({"save_config": {"sometimes": 7}}, SMDebugValueError),
        ({"include_regex": "("}, SMDebugValueError),
        ({"include_regex": 7}, SMDebugTypeError),
        ({"include_collections": [7]}, SMDebugTypeError),
        ({"include_workers": "two"}, SMDebugValueError),
        ({"worker": ""}, SMDebugValueError),
        ({"format": "v3"}, SMDebugValueError),
        ({"queue_bytes": 0}, SMDebugValueError),
        ({"flush_seconds": -1}, SMDebugValueError),
        ({"on_error": "ignore"}, SMDebugValueError),
    ],
    ids=str,
)
def test_invalid_argument_is_rejected_by_name(
    tmp_path: Path, arguments: dict[str, Any], kind: type[Exception]
) -> None:
    with pytest.raises(kind, match=next(iter(arguments))):
        smd.Hook(**{"out_dir": str(tmp_path), **arguments})
    assert smd.get_hook() is None
    assert list(tmp_path.iterdir()) == []


def test_a_directory_with_a_finished_run_is_rejected(tmp_path: Path, net: Net) -> None:
    trained(smd.Hook(tmp_path), net)
    before = files_under(tmp_path)
    with pytest.raises(SMDebugRuntimeError, match="already contains a finished run") as caught:
        smd.Hook(tmp_path)
    assert str(tmp_path) in str(caught.value)
    assert files_under(tmp_path) == before


def test_a_directory_with_a_finished_run_of_format_v1_is_rejected(tmp_path: Path) -> None:
    make_run(tmp_path, format="v1")
    with pytest.raises(SMDebugRuntimeError, match="already contains a finished run"):
        smd.Hook(tmp_path)


def test_directory_with_other_files_is_accepted(tmp_path: Path, net: Net) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    trial = trained(smd.Hook(tmp_path), net)
    assert trial.tensor_names() == ["MSELoss_output_0"]
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_run_without_end_marker_is_resumed(tmp_path: Path, net: Net) -> None:
    make_run(tmp_path, steps=[0, 1], end=False)
    trial = trained(smd.Hook(tmp_path, save_config=smd.SaveConfig(save_steps=[2])), net)
    assert trial.steps() == [0, 1, 2]
    assert trial.tensor("MSELoss_output_0").steps() == [0, 2]


def test_the_older_name_is_the_same_class() -> None:
    assert smd.TornasoleHook is smd.Hook


# ---- inside SageMaker


def test_sagemaker_job_has_a_default_out_dir(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINING_JOB_NAME", "job")
    assert smd.Hook(dry_run=True).out_dir == DEFAULT_SAGEMAKER_OUTDIR == "/opt/ml/output/tensors"


def test_in_sagemaker_the_run_has_format_v1_and_no_end(
    tmp_path: Path, net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINING_JOB_NAME", "job")
    trial = trained(smd.Hook(tmp_path, save_config=EVERY), net)
    files = files_under(tmp_path)
    assert END_KEY not in files
    assert [each for each in files if each.startswith("index/")] == [
        f"index/000000000/{number:012d}_worker_0.json" for number in range(3)
    ]
    assert trial.steps() == [0, 1, 2]


def test_in_sagemaker_the_format_can_be_chosen(
    tmp_path: Path, net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINING_JOB_NAME", "job")
    trained(smd.Hook(tmp_path, format="v2"), net)
    assert any(each.endswith(".parquet") for each in files_under(tmp_path))


@pytest.mark.parametrize(
    ("variable", "argument", "ending"),
    [
        ("v1", None, ".json"),
        ("v1", "v2", ".parquet"),
        ("v2", None, ".parquet"),
        (None, "v1", ".json"),
    ],
)
def test_the_format_comes_from_the_argument_else_from_the_environment(
    tmp_path: Path, net: Net, monkeypatch: pytest.MonkeyPatch,
    variable: str | None, argument: str | None, ending: str,
) -> None:  # fmt: skip
    if variable is not None:
        monkeypatch.setenv("SMDEBUG_FORMAT", variable)
    trained(smd.Hook(tmp_path, format=argument), net)
    index = [each for each in files_under(tmp_path) if each.startswith("index/")]
    assert index
    assert all(each.endswith(ending) for each in index)


# ---- the hook of the process


def test_get_hook_returns_the_last_hook(tmp_path: Path) -> None:
    assert smd.get_hook() is None
    first = smd.Hook(tmp_path / "a")
    second = smd.Hook(tmp_path / "b")
    assert smd.get_hook() is second
    smd.set_hook(first)
    assert smd.get_hook() is first
    smd.del_hook()
    assert smd.get_hook() is None


def test_hook_of_another_framework_is_unset(tmp_path: Path) -> None:
    other = BaseHook(tmp_path)
    assert current_hook() is other
    assert smd.get_hook() is None
    assert current_hook() is None
    other.close()


@pytest.mark.parametrize("value", [None, "hook", 7, object(), smd.Hook])
def test_only_a_hook_can_be_the_hook_of_the_process(value: Any) -> None:
    with pytest.raises(SMDebugTypeError, match="hook"):
        smd.set_hook(value)
    assert smd.get_hook() is None


@pytest.mark.parametrize("text", ["0", "false", "No", "off"])
def test_environment_disables_get_hook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("USE_SMDEBUG", text)
    hook = smd.Hook(tmp_path)
    assert smd.get_hook() is None
    assert smd.get_hook(create_if_not_exists=True) is None
    monkeypatch.delenv("USE_SMDEBUG")
    assert smd.get_hook() is hook


def write_job(path: Path, run: Path) -> Path:
    job = {
        "S3OutputPath": "s3://bucket/prefix",
        "LocalPath": str(run),
        "HookParameters": {
            "save_interval": "2",
            "eval.save_interval": 1,
            "include_regex": "relu_output",
        },
        "CollectionConfigurations": [
            {"CollectionName": "weights", "CollectionParameters": {"save_steps": "1"}},
            {
                "CollectionName": "tops",
                "CollectionParameters": {"include_regex": "fc2_output", "reductions": "min,l2"},
            },
        ],
    }
    path.write_text(json.dumps(job))
    return path


def test_a_json_config_describes_the_hook(tmp_path: Path, net: Net) -> None:
    run = tmp_path / "run"
    hook = smd.Hook.create_from_json_file(write_job(tmp_path / "job.json", run))
    assert isinstance(hook, smd.Hook)
    assert smd.get_hook() is hook
    assert hook.include_collections == {"weights", "tops", "default", "losses"}
    assert not run.exists()
    trial = trained(hook, net, steps=4)
    assert trial.tensor("relu_output_0").steps() == [0, 2]
    assert trial.tensor("MSELoss_output_0").steps() == [0, 2]
    # The schedule of a collection adds to that of the hook, field by field.
    assert trial.tensor("Net_fc1.weight").steps() == [0, 1, 2]
    assert set(trial.tensor("fc2_output_0").reduction_values(2)) == {("min", False), ("l2", False)}
    assert trial.collection("tops").include_regex == ["fc2_output"]


def test_get_hook_creates_a_hook_from_the_json_config_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_job(tmp_path / "job.json", tmp_path / "run")
    monkeypatch.setenv("SMDEBUG_CONFIG_FILE_PATH", str(path))
    assert smd.get_hook() is None
    hook = smd.get_hook(create_if_not_exists=True)
    assert hook is not None
    assert hook.out_dir == str(tmp_path / "run")
    assert smd.get_hook() is hook


def test_get_hook_ignores_its_json_config_once_there_is_a_hook(
    tmp_path: Path,
) -> None:
    first = write_job(tmp_path / "job.json", tmp_path / "run")
    second = write_job(tmp_path / "other.json", tmp_path / "other")
    hook = smd.get_hook(json_config_path=str(first), create_if_not_exists=True)
    assert hook is not None
    assert smd.get_hook(second, True) is hook


def test_get_hook_returns_none_without_a_json_config(tmp_path: Path) -> None:
    assert smd.get_hook(str(tmp_path / "none.json"), create_if_not_exists=True) is None


def test_create_from_json_file_raises_for_a_missing_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(FileNotFoundError):
        smd.Hook.create_from_json_file(str(tmp_path / "none.json"))
    monkeypatch.setenv("SMDEBUG_CONFIG_FILE_PATH", str(tmp_path / "none.json"))
    with pytest.raises(FileNotFoundError):
        smd.Hook.create_from_json_file()


def test_get_hook_raises_for_an_invalid_json_config(tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    path.write_text(json.dumps({"LocalPath": str(tmp_path), "HookParameters": {"save_all": "no"}}))
    with pytest.raises(SMDebugValueError, match="save_all"):
        smd.get_hook(path, create_if_not_exists=True)


# ---- collections of the process


def test_collections_prepared_before_the_hook_are_those_of_the_next_hook(
    tmp_path: Path, net: Net
) -> None:
    smd.get_collection("relu").include("relu_output")
    smd.get_collection("relu").save_config = smd.SaveConfig(save_steps=[1], end_step=0)
    smd.add_to_collection("mine", "Net_fc1.bias")
    smd.add_to_default_collection(["Net_fc2.bias"])
    assert set(smd.get_collections()) >= {"relu", "mine", "default"}
    hook = smd.Hook(tmp_path, save_config=EVERY, include_collections=["relu", "mine", "default"])
    trial = trained(hook, net)
    assert trial.tensor("relu_output_0").steps() == [1]
    assert trial.tensor("Net_fc1.bias").steps() == [0, 1, 2]
    assert trial.tensor("Net_fc2.bias").steps() == [0, 1, 2]


def test_prepared_collections_can_hold_modules_and_parameters(tmp_path: Path, net: Net) -> None:
    smd.add_to_collection("mine", [net.fc1.bias, net.relu])
    trial = trained(smd.Hook(tmp_path, save_config=EVERY, include_collections="mine"), net)
    assert trial.tensor_names(collection="mine") == ["Net_fc1.bias", "relu_output_0"]


def test_module_functions_use_the_collections_of_the_hook(tmp_path: Path) -> None:
    hook = smd.Hook(tmp_path)
    smd.get_collection("relu").include("relu_output")
    smd.add_to_default_collection("a")
    assert hook.get_collection("relu", create=False).include_regex == ["relu_output"]
    assert hook.get_collection("default").tensor_names == {"a"}
    assert smd.get_collections() == hook.get_collections()


def test_reset_collections_drops_prepared_collections(tmp_path: Path) -> None:
    smd.get_collection("relu").include("relu_output")
    smd.reset_collections()
    assert "relu" not in smd.Hook(tmp_path).get_collections()


# ---- registering


@pytest.mark.parametrize("value", [None, 7, "net", nn.Linear, torch.ones(1)])
def test_only_a_module_can_be_registered(tmp_path: Path, value: Any) -> None:
    hook = smd.Hook(tmp_path)
    for register in (hook.register_module, hook.register_hook):
        with pytest.raises(SMDebugError, match="module"):
            register(value)
    with pytest.raises(SMDebugError, match="loss_module"):
        hook.register_loss(value)
    assert not hook.has_registered_module
    assert not hook.has_registered_loss_module


def test_is_registered_includes_inner_modules(tmp_path: Path, net: Net) -> None:
    hook, loss = smd.Hook(tmp_path), nn.MSELoss()
    hook.register_hook(net)
    hook.register_hook(loss)
    assert hook.has_registered_module
    assert hook.has_registered_loss_module
    assert hook.module_set == {net, net.fc1, net.relu, net.fc2}


@pytest.mark.parametrize("which", ["itself", "part", "whole"])
def test_a_module_is_not_registered_twice(tmp_path: Path, net: Net, which: str) -> None:
    hook = smd.Hook(tmp_path)
    handle = hook.register_module(net)
    other = {"itself": net, "part": net.fc1, "whole": nn.Sequential(net, nn.ReLU())}[which]
    with pytest.raises(SMDebugError, match="twice"):
        hook.register_module(other)
    handle.remove()
    hook.register_module(other)
    assert hook.has_registered_module


def test_a_loss_registered_twice_is_saved_once(tmp_path: Path, net: Net) -> None:
    hook, loss = smd.Hook(tmp_path, save_config=EVERY), nn.MSELoss()
    hook.register_module(net)
    hook.register_loss(loss)
    hook.register_loss(loss)
    step(net, loss)
    hook.close()
    assert smd.create_trial(hook.out_dir).tensor_names() == ["MSELoss_output_0"]


def test_each_registered_root_counts_its_own_steps(tmp_path: Path) -> None:
    hook = smd.Hook(tmp_path, save_config=EVERY, include_collections="weights")
    encoder, decoder = nn.Linear(4, 4), nn.Bilinear(4, 4, 2)
    hook.register_module(encoder)
    hook.register_module(decoder)
    for _ in range(2):
        hidden = encoder(torch.ones(1, 4))
        decoder(hidden, hidden).sum().backward()
    assert hook.step == 3
    hook.close()
    trial = smd.create_trial(hook.out_dir)
    assert trial.steps() == [0, 1, 2, 3]
    assert trial.tensor_names() == ["Bilinear_weight", "Linear_weight"]


@pytest.mark.parametrize("how", ["remove", "with", "hook", "close"])
def test_removed_hook_restores_the_model(tmp_path: Path, net: Net, how: str) -> None:
    loss = nn.MSELoss()
    before = {name: dict(vars(module)) for name, module in net.named_modules()}
    hook = smd.Hook(tmp_path, save_all=True, save_config=EVERY)
    module_handle, loss_handle = hook.register_module(net), hook.register_loss(loss)
    assert hooks_on(net)
    assert hooks_on(loss)
    if how == "with":
        with module_handle, loss_handle:
            step(net, loss)
    elif how == "hook":
        with hook as entered:
            assert entered is hook
            step(net, loss)
    else:
        step(net, loss)
        if how == "remove":
            module_handle.remove()
            loss_handle.remove()
            module_handle.remove()
        else:
            hook.close()
    assert hooks_on(net) == {}
    assert hooks_on(loss) == {}
    assert not hook.has_registered_module
    assert not hook.has_registered_loss_module
    assert {name: dict(vars(module)) for name, module in net.named_modules()} == before
    saved = hook.step
    step(net, loss)
    assert hook.step == saved == 0


def test_hooks_of_the_user_are_kept(tmp_path: Path, net: Net) -> None:
    seen: list[str] = []
    net.fc1.register_forward_hook(lambda *_: seen.append("forward"))
    net.fc1.weight.register_hook(lambda _: seen.append("gradient"))
    hook = smd.Hook(tmp_path, save_all=True, save_config=EVERY)
    hook.register_module(net)
    step(net)
    hook.close()
    step(net)
    assert seen == ["forward", "gradient"] * 2


def test_removed_module_can_be_registered_again_and_continues_the_count(
    tmp_path: Path, net: Net
) -> None:
    hook = smd.Hook(tmp_path, save_config=EVERY, include_collections="biases")
    with hook.register_module(net):
        step(net)
    step(net)
    with hook.register_module(net):
        step(net)
    hook.close()
    assert smd.create_trial(hook.out_dir).tensor("Net_fc1.bias").steps() == [0, 1]


def test_copy_or_pickle_of_an_observed_model_is_independent(tmp_path: Path, net: Net) -> None:
    hook = smd.Hook(tmp_path, save_all=True, save_config=EVERY)
    hook.register_module(net)
    step(net)
    copies = [copy.deepcopy(net), pickle.loads(pickle.dumps(net))]
    for other in copies:
        assert step(other).isfinite()
        torch.testing.assert_close(other.fc1.weight, net.fc1.weight, rtol=0, atol=0)
    assert hook.step == 0
    assert pickle.loads(pickle.dumps(hook)).closed


# ---- the end


def test_close_marks_the_end_once(tmp_path: Path, net: Net) -> None:
    hook = smd.Hook(tmp_path, save_config=EVERY)
    trained(hook, net)
    before = {each: (tmp_path / each).stat().st_mtime_ns for each in files_under(tmp_path)}
    assert END_KEY in before
    hook.close()
    assert {each: (tmp_path / each).stat().st_mtime_ns for each in files_under(tmp_path)} == before


def test_hook_is_closed_at_the_end_of_its_with_block(tmp_path: Path, net: Net) -> None:
    with smd.Hook(tmp_path) as hook:
        hook.register_module(net)
        step(net)
    assert hook.closed
    assert (tmp_path / END_KEY).exists()


def test_the_exception_of_the_script_leaves_the_block_and_the_run_is_complete(
    tmp_path: Path, net: Net
) -> None:
    def block() -> None:
        with smd.Hook(tmp_path, save_all=True) as hook:
            hook.register_module(net)
            step(net)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        block()
    assert smd.create_trial(tmp_path).tensor("Net_fc1.weight").steps() == [0]


def test_after_close_nothing_is_saved_and_training_continues(tmp_path: Path, net: Net) -> None:
    hook = smd.Hook(tmp_path, save_config=EVERY, save_all=True)
    trial = trained(hook, net, steps=2)
    before = files_under(tmp_path)
    hook.register_module(net)
    step(net)
    hook.set_mode(EVAL)
    hook.save_scalar("late", 1.0)
    hook.save_tensor("late", torch.ones(2))
    hook.record_tensor_value("late", torch.ones(2))
    hook.export_collections()
    hook.flush()
    hook.close()
    assert files_under(tmp_path) == before
    assert trial.steps() == [0, 1]


def test_a_hook_that_saw_no_step_closes(
    tmp_path: Path, net: Net, caplog: pytest.LogCaptureFixture
) -> None:
    hook = smd.Hook(tmp_path)
    hook.register_module(net)
    hook.close()
    assert "never called" in caplog.text
    assert hook.closed


def test_losses_without_a_step_are_warned_of_once(
    tmp_path: Path, net: Net, caplog: pytest.LogCaptureFixture
) -> None:
    hook, loss = smd.Hook(tmp_path), nn.MSELoss()
    hook.register_module(net)
    hook.register_loss(loss)
    for _ in range(3):
        loss(torch.ones(2), torch.ones(2))
    assert caplog.text.count("no forward pass of the registered Net was seen") == 1


def test_close_logs_the_overhead_on_one_line(
    tmp_path: Path, net: Net, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "smdebug.hook"):
        trained(smd.Hook(tmp_path, save_config=EVERY), net)
    lines = [each.getMessage() for each in caplog.records if "steps saved" in each.getMessage()]
    assert len(lines) == 1
    assert lines[0].startswith(f"{tmp_path}: 3 of 3 steps saved, ")


# ---- modes and steps


@pytest.mark.parametrize("value", ["TRAIN", "train", 1, None])
def test_invalid_mode_is_rejected(tmp_path: Path, value: Any) -> None:
    with pytest.raises(SMDebugValueError, match="mode"):
        smd.Hook(tmp_path).set_mode(value)


def test_modes_count_their_own_steps(tmp_path: Path, net: Net) -> None:
    hook = smd.Hook(tmp_path, save_config=EVERY, include_collections=["biases", "gradients"])
    hook.register_module(net)
    order = [GLOBAL, TRAIN, TRAIN, EVAL, TRAIN, PREDICT, EVAL, EVAL]
    counts = dict.fromkeys([TRAIN, EVAL, PREDICT], -1)
    for number, mode in enumerate(order):
        hook.set_mode(mode)
        assert hook.mode is mode
        step(net)
        counts[mode] = number if mode is GLOBAL else counts[mode] + 1
        used = {each: count for each, count in counts.items() if each in order[: number + 1]}
        assert hook.mode_steps == {**used, GLOBAL: number}
        assert hook.step == number
    hook.close()
    trial = smd.create_trial(tmp_path)
    assert trial.steps() == list(range(8))
    assert trial.steps(TRAIN) == [0, 1, 2]
    assert trial.steps(EVAL) == [0, 1, 2]
    assert trial.steps(PREDICT) == [0]
    assert trial.mode_modestep(4) == (TRAIN, 2)
    assert trial.mode_modestep(7) == (EVAL, 2)
    assert trial.global_step(EVAL, 1) == 6
    assert trial.tensor("Net_fc1.bias").steps(EVAL) == [0, 1, 2]
    # The backward pass ran in every mode.
    assert trial.tensor("gradient/Net_fc1.bias").steps() == [0, 1, 2, 4]


def test_steps_of_a_mode_start_at_minus_one(tmp_path: Path) -> None:
    hook = smd.Hook(tmp_path)
    assert hook.mode_steps == {GLOBAL: -1}
    hook.set_mode(EVAL)
    assert hook.mode_steps == {GLOBAL: -1, EVAL: -1}


def test_schedules_are_about_the_steps_of_their_mode(tmp_path: Path, net: Net) -> None:
    schedule = smd.SaveConfig(
        {
            TRAIN: smd.SaveConfigMode(save_interval=2),
            EVAL: smd.SaveConfigMode(save_interval=3, start_step=1),
            PREDICT: smd.SaveConfigMode(end_step=0),
        }
    )
    hook = smd.Hook(tmp_path, save_config=schedule, include_collections="weights")
    hook.register_module(net)
    for _ in range(4):
        for mode in (TRAIN, EVAL, PREDICT, TRAIN, EVAL):
            hook.set_mode(mode)
            step(net)
    hook.close()
    trial = smd.create_trial(tmp_path)
    assert trial.steps(TRAIN) == [0, 2, 4, 6]
    assert trial.steps(EVAL) == [3, 6]
    assert trial.modes() == [TRAIN, EVAL]


def test_mode_without_save_config_has_the_default(tmp_path: Path, net: Net) -> None:
    schedule = {TRAIN: smd.SaveConfigMode(save_interval=1)}
    hook = smd.Hook(tmp_path, save_config=schedule, include_collections="weights")
    hook.register_module(net)
    for mode in (TRAIN, TRAIN, EVAL, EVAL):
        hook.set_mode(mode)
        step(net)
    hook.close()
    trial = smd.create_trial(tmp_path)
    assert trial.steps(TRAIN) == [0, 1]
    assert trial.steps(EVAL) == [0]


def test_should_save_describes_the_current_step(tmp_path: Path, net: Net) -> None:
    schedule = smd.SaveConfig(save_interval=2)
    hook = smd.Hook(tmp_path, save_config=schedule, include_collections="weights")
    assert not hook.should_save_tensor_or_collection("Net_fc1.weight", "weights")
    hook.register_module(net)
    step(net)
    assert hook.should_save_tensor_or_collection("Net_fc1.weight", "none")
    assert hook.should_save_tensor_or_collection("none", "weights")
    assert not hook.should_save_tensor_or_collection("none", "gradients")
    step(net)
    assert not hook.should_save_tensor_or_collection("Net_fc1.weight", "weights")


def test_last_saved_step(tmp_path: Path, net: Net) -> None:
    hook = smd.Hook(tmp_path, save_config=smd.SaveConfig(save_interval=2))
    loss = nn.MSELoss()
    hook.register_module(net)
    hook.register_loss(loss)
    for _ in range(4):
        step(net, loss)
    hook.close()
    assert hook.last_saved_step == 2


# ---- a step


def test_weights_are_those_before_the_update_and_gradients_those_of_the_backward_pass(
    tmp_path: Path, net: Net
) -> None:
    hook = smd.Hook(tmp_path, save_config=EVERY, include_collections=["weights", "gradients"])
    hook.register_module(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    expected: dict[str, list[Any]] = {"weight": [], "gradient": []}
    for number in range(3):
        expected["weight"].append(net.fc1.weight.detach().clone().numpy())
        optimizer.zero_grad()
        step(net, seed=number)
        assert net.fc1.weight.grad is not None
        expected["gradient"].append(net.fc1.weight.grad.clone().numpy())
        optimizer.step()
    hook.close()
    trial = smd.create_trial(tmp_path)
    for number in range(3):
        weight = trial.tensor("Net_fc1.weight").value(number)
        gradient = trial.tensor("gradient/Net_fc1.weight").value(number)
        np.testing.assert_array_equal(weight, expected["weight"][number])
        np.testing.assert_array_equal(gradient, expected["gradient"][number])


def test_of_several_backward_passes_in_a_step_the_last_gradient_is_saved(
    tmp_path: Path, net: Net
) -> None:
    hook = smd.Hook(tmp_path, save_config=EVERY, include_collections="gradients")
    hook.register_module(net)
    output = net(torch.ones(2, 4))
    output.sum().backward(retain_graph=True)
    net.zero_grad()
    (3 * output).sum().backward()
    assert net.fc1.bias.grad is not None
    expected = net.fc1.bias.grad.clone().numpy()
    hook.close()
    np.testing.assert_array_equal(
        smd.create_trial(tmp_path).tensor("gradient/Net_fc1.bias").value(0), expected
    )


def test_gradient_is_that_of_its_own_backward_pass_and_not_accumulated(
    tmp_path: Path, net: Net
) -> None:
    hook = smd.Hook(tmp_path, save_config=EVERY, include_collections="gradients")
    hook.register_module(net)
    for number in range(3):
        step(net, seed=number)
    hook.close()
    trial = smd.create_trial(tmp_path)
    for number in range(3):
        net.zero_grad()
        step(net, seed=number)
        assert net.fc1.weight.grad is not None
        np.testing.assert_array_equal(
            trial.tensor("gradient/Net_fc1.weight").value(number), net.fc1.weight.grad.numpy()
        )


def test_frozen_parameters_have_weights_and_no_gradients(tmp_path: Path, net: Net) -> None:
    net.fc1.requires_grad_(False)
    hook = smd.Hook(tmp_path, save_config=EVERY, include_collections=["weights", "gradients"])
    hook.register_module(net)
    step(net)
    net.fc1.requires_grad_(True)
    step(net)
    hook.close()
    trial = smd.create_trial(tmp_path)
    assert trial.tensor("Net_fc1.weight").steps() == [0, 1]
    assert trial.tensor("gradient/Net_fc2.weight").steps() == [0, 1]
    # It was thawed, and is watched from the next step on.
    assert trial.tensor("gradient/Net_fc1.weight").steps() == [1]


def test_an_exception_in_the_forward_pass_ends_neither_the_hook_nor_the_run(
    tmp_path: Path, net: Net
) -> None:
    hook = smd.Hook(tmp_path, save_config=EVERY, save_all=True)
    hook.register_module(net)
    with pytest.raises(RuntimeError):
        net(torch.ones(2, 5))
    step(net)
    hook.close()
    assert hooks_on(net) == {}
    trial = smd.create_trial(tmp_path)
    assert trial.tensor("Net_output_0").steps() == [1]
    assert trial.tensor("fc1_input_0").steps() == [0, 1]


def test_steps_under_no_grad_and_inference_mode_are_saved(tmp_path: Path, net: Net) -> None:
    hook = smd.Hook(tmp_path, save_config=EVERY, save_all=True)
    hook.register_module(net)
    hook.set_mode(EVAL)
    with torch.no_grad():
        first = net(torch.ones(2, 4))
    with torch.inference_mode():
        second = net(2 * torch.ones(2, 4))
    hook.set_mode(TRAIN)
    step(net)
    hook.close()
    trial = smd.create_trial(tmp_path)
    for number, expected in enumerate([first, second]):
        value = trial.tensor("Net_output_0").value(number, EVAL)
        np.testing.assert_array_equal(value, expected.numpy())
        weight = trial.tensor("Net_fc1.weight").value(number, EVAL)
        np.testing.assert_array_equal(weight, net.fc1.weight.detach().numpy())
    assert trial.tensor("gradient/Net_fc1.weight").steps() == [2]


def test_parts_added_and_replaced_while_training_are_seen(tmp_path: Path, net: Net) -> None:
    hook = smd.Hook(tmp_path, save_config=EVERY, save_all=True)
    hook.register_module(net)
    step(net)
    net.fc2 = nn.Linear(8, 2)
    step(net)
    net.relu.register_module("inner", nn.Linear(1, 1))
    step(net)
    hook.close()
    trial = smd.create_trial(tmp_path)
    weights = trial.tensor("Net_fc2.weight")
    assert [weights.shape(number) for number in range(3)] == [(3, 8), (2, 8), (2, 8)]
    gradients = trial.tensor("gradient/Net_fc2.weight")
    assert [gradients.shape(number) for number in range(3)] == [(3, 8), (2, 8), (2, 8)]
    assert trial.tensor("Net_relu.inner.weight").steps() == [2]


def test_parameters_that_change_their_shape_or_type_while_training_are_saved_as_they_are(
    tmp_path: Path, net: Net
) -> None:
    hook = smd.Hook(tmp_path, save_config=EVERY, include_collections=["weights", "gradients"])
    hook.register_module(net)
    expected: list[torch.Tensor] = []

    def saved_step(x: torch.Tensor) -> None:
        expected.append(net.fc2.weight.detach().clone())
        net.zero_grad()
        net(x).sum().backward()

    saved_step(torch.ones(2, 4))
    net.double()
    saved_step(torch.ones(2, 4).double())
    # Grown in place: the parameter is still the same object.
    net.fc2.weight.data = torch.randn(5, 8).double()
    net.fc2.bias.data = torch.randn(5).double()
    net.zero_grad()
    saved_step(torch.ones(2, 4).double())
    net.fc2.register_parameter("weight_scale", nn.Parameter(torch.ones(3)))
    saved_step(torch.ones(2, 4).double())
    hook.close()
    trial = smd.create_trial(tmp_path)
    assert trial.steps() == [0, 1, 2, 3]
    for number, weight in enumerate(expected):
        found = trial.tensor("Net_fc2.weight").value(number)
        assert found.dtype == weight.numpy().dtype
        np.testing.assert_array_equal(found, weight.numpy())
        gradient = trial.tensor("gradient/Net_fc2.weight").value(number)
        assert gradient.shape == tuple(weight.shape)
        assert gradient.dtype == weight.numpy().dtype
    assert trial.tensor("Net_fc2.weight_scale").steps() == [3]


def test_two_hooks_may_observe_one_model(tmp_path: Path, net: Net) -> None:
    first = smd.Hook(tmp_path / "a", save_config=EVERY, include_collections=["gradients"])
    second = smd.Hook(tmp_path / "b", save_config=EVERY, save_all=True)
    first.register_module(net)
    second.register_module(net)
    step(net)
    first.close()
    step(net)
    second.close()
    assert hooks_on(net) == {}
    assert smd.create_trial(tmp_path / "a").tensor("gradient/Net_fc1.bias").steps() == [0]
    trial = smd.create_trial(tmp_path / "b")
    for name in ("gradient/Net_fc1.bias", "relu_output_0", "Net_fc1.weight", "Net_output_0"):
        assert trial.tensor(name).steps() == [0, 1], name


@pytest.mark.parametrize("format", ["v1", "v2"])
def test_training_with_the_hook_ends_with_the_same_bits(tmp_path: Path, format: str) -> None:
    def run(hooked: bool) -> tuple[dict[str, Any], torch.Tensor]:
        torch.manual_seed(7)
        model = nn.Sequential(
            nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 2)
        )
        loss = nn.CrossEntropyLoss()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
        hook = None
        if hooked:
            every = smd.ReductionConfig(["mean", "median"], norms=["l2"], save_raw_tensor=True)
            hook = smd.Hook(
                tmp_path, save_all=True, save_config=EVERY, reduction_config=every, format=format
            )
            hook.register_module(model)
            hook.register_loss(loss)
        for _ in range(8):
            optimizer.zero_grad()
            loss(model(torch.randn(10, 6)), torch.randint(2, (10,))).backward()
            optimizer.step()
        if hook is not None:
            hook.close()
        return model.state_dict(), torch.get_rng_state()

    (plain, plain_random), (watched, watched_random) = run(False), run(True)
    assert torch.equal(plain_random, watched_random)
    assert plain.keys() == watched.keys()
    for name, value in plain.items():
        assert torch.equal(value, watched[name]), name
    assert smd.create_trial(tmp_path).steps() == list(range(8))
