"""The public names and signatures of the XGBoost adapter, frozen."""

from __future__ import annotations

import importlib
import inspect
import pickle
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import xgboost
from tests.xgboost import data

import smdebug.xgboost as smd
from smdebug.config.collection import DEFAULT_XGBOOST_COLLECTIONS, Collection
from smdebug.config.options import HookOptions

if TYPE_CHECKING:
    from pathlib import Path

NAMES = [
    "Collection", "CollectionKeys", "Hook", "SaveConfig", "SaveConfigMode", "TornasoleHook",
    "add_to_collection", "add_to_default_collection", "create_trial", "del_hook",
    "get_collection", "get_collections", "get_hook", "modes", "reset_collections", "set_hook",
]  # fmt: skip
# The positional order of smdebug 1.0, then what came later.
PARAMETERS = [
    "out_dir", "export_tensorboard", "tensorboard_dir", "dry_run", "reduction_config",
    "save_config", "include_regex", "include_collections", "save_all", "include_workers",
    "hyperparameters", "train_data", "validation_data",
    "worker", "format", "queue_bytes", "flush_seconds", "on_error", "rules", "on_finding",
    "before_update", "actions", "shap_samples", "resume", "overwrite",
]  # fmt: skip
SIGNATURES = {
    "before_training": "self model",
    "before_iteration": "self model epoch evals_log",
    "after_iteration": "self model epoch evals_log",
    "after_training": "self model",
    "hook_from_config": "json_config_path",
    "create_from_json_file": "json_file_path",
    "set_mode": "self mode",
    "save_scalar": "self name value sm_metric timestamp",
    "save_tensor": "self tensor_name tensor_value collections_to_write",
    "add_collection": "self collection",
    "get_collection": "self name create",
    "get_collections": "self",
    "add_to_collection": "self collection_name variable",
    "export_collections": "self",
    "should_save_tensor_or_collection": "self tensor_name collection_name",
    "has_default_configuration": "self",
    "has_default_hook_configuration": "self",
    "flush": "self",
    "close": "self",
    "stats": "self",
    "findings": "self",
    "rule_report": "self",
}
FUNCTIONS = {
    "get_hook": "json_config_path",
    "set_hook": "hook",
    "del_hook": "",
    "get_collection": "name",
    "get_collections": "",
    "add_to_collection": "collection_name args",
    "add_to_default_collection": "args",
    "reset_collections": "",
}
ATTRIBUTES = [
    "out_dir", "tensorboard_dir", "dry_run", "worker", "chief_worker", "save_all_workers",
    "include_collections", "save_config", "reduction_config", "include_regex",
    "collection_manager", "step", "mode", "mode_steps", "last_saved_step", "closed",
    "hyperparameters", "train_data", "validation_data", "shap_samples",
]  # fmt: skip
ASSIGNABLE = ["hyperparameters", "train_data", "validation_data", "shap_samples"]


def parameters_of(function: Any) -> list[tuple[str, object]]:
    return [(each.name, each.default) for each in inspect.signature(function).parameters.values()]


def test_names() -> None:
    assert sorted(smd.__all__) == sorted(NAMES)
    assert all(hasattr(smd, name) for name in NAMES)
    # As in smdebug 1.0: reductions are not for XGBoost.
    assert "ReductionConfig" not in smd.__all__


def test_a_star_import_brings_the_names_and_nothing_else() -> None:
    names: dict[str, object] = {}
    exec("from smdebug.xgboost import *", names)
    assert sorted(names.keys() - {"__builtins__"}) == sorted(NAMES)


def test_the_order_of_the_hooks_parameters() -> None:
    assert [name for name, _ in parameters_of(smd.Hook)] == PARAMETERS


def test_the_hook_takes_what_hook_options_take_with_the_same_defaults() -> None:
    own = dict(parameters_of(smd.Hook))
    shared = parameters_of(HookOptions)
    assert {name: own[name] for name, _ in shared} == dict(shared)
    # In the same order, too: it is what a JSON config's arguments are handed on by.
    assert [name for name in own if name in dict(shared)] == [name for name, _ in shared]


def test_defaults_of_xgboost_arguments() -> None:
    own = dict(parameters_of(smd.Hook))
    for name in dict(parameters_of(HookOptions)):
        del own[name]
    assert own == {
        "hyperparameters": None,
        "train_data": None,
        "validation_data": None,
        "shap_samples": 10_000,
    }


def test_all_parameters_are_described() -> None:
    text = inspect.getdoc(smd.Hook) or ""
    assert [name for name in PARAMETERS if f"\n    {name}: " not in text] == []


@pytest.mark.parametrize(("name", "parameters"), SIGNATURES.items())
def test_methods(name: str, parameters: str) -> None:
    method = getattr(smd.Hook, name)
    assert [each for each, _ in parameters_of(method)] == parameters.split(" ")
    assert inspect.getdoc(method)


@pytest.mark.parametrize(("name", "parameters"), FUNCTIONS.items())
def test_functions(name: str, parameters: str) -> None:
    function = getattr(smd, name)
    assert [each for each, _ in parameters_of(function)] == parameters.split()
    assert inspect.getdoc(function)


def test_attributes_that_scripts_read(tmp_path: Path) -> None:
    with smd.Hook(tmp_path / "run") as hook:
        assert all(hasattr(hook, name) for name in ATTRIBUTES)


@pytest.mark.parametrize("name", ASSIGNABLE)
def test_attributes_that_scripts_set(tmp_path: Path, name: str) -> None:
    matrix = data.matrix(10)
    value: Any = {
        "hyperparameters": {"eta": 0.1}, "train_data": matrix, "validation_data": matrix,
        "shap_samples": 7,
    }[name]  # fmt: skip
    hook = smd.Hook(tmp_path / "run")
    setattr(hook, name, value)
    assert getattr(hook, name) is value
    assert inspect.getdoc(getattr(smd.Hook, name))


@pytest.mark.parametrize("name", ["hyperparameters", "train_data", "validation_data"])
def test_inputs_can_be_removed(tmp_path: Path, name: str) -> None:
    value: Any = {"eta": 1} if name == "hyperparameters" else data.matrix(10)
    given: dict[str, Any] = {name: value}
    hook = smd.Hook(tmp_path / "run", **given)
    setattr(hook, name, None)
    assert getattr(hook, name) is None


def test_default_arguments_of_a_hook(tmp_path: Path) -> None:
    hook = smd.Hook(tmp_path / "run")
    found = {name: getattr(hook, name) for name in ATTRIBUTES[:-4]}
    del found["collection_manager"], found["save_config"], found["reduction_config"]
    assert found == {
        "out_dir": str(tmp_path / "run"),
        "tensorboard_dir": None,
        "dry_run": False,
        "worker": "worker_0",
        "chief_worker": "worker_0",
        "save_all_workers": False,
        "include_collections": {"metrics"},
        "include_regex": (),
        "step": -1,
        "mode": smd.modes.GLOBAL,
        "mode_steps": {smd.modes.GLOBAL: -1},
        "last_saved_step": None,
        "closed": False,
    }
    assert [getattr(hook, name) for name in ASSIGNABLE] == [None, None, None, 10_000]
    assert hook.reduction_config.save_raw_tensor
    assert hook.has_default_configuration()
    for mode in smd.modes:
        assert hook.save_config.get_save_config(mode).save_interval == 10


def test_a_hook_makes_no_files_until_it_is_used(tmp_path: Path) -> None:
    smd.Hook(tmp_path / "run").close()
    assert list(tmp_path.iterdir()) == []


def test_a_hook_is_a_callback_of_xgboost(tmp_path: Path) -> None:
    assert issubclass(smd.Hook, xgboost.callback.TrainingCallback)
    model = data.train(rounds=1)
    hook = smd.Hook(tmp_path / "run")
    # What XGBoost expects of callbacks: the model back, and whether to end.
    assert hook.before_training(model) is model
    assert hook.before_iteration(model, 0, {}) is False
    assert hook.after_iteration(model, 0, {"train": {"rmse": [1.0]}}) is False
    assert hook.after_training(model) is model


def test_default_collections(tmp_path: Path) -> None:
    hook = smd.Hook(tmp_path / "run")
    assert set(hook.get_collections()) == {*DEFAULT_XGBOOST_COLLECTIONS, "scalars"}
    assert all(type(each) is Collection for each in hook.get_collections().values())


def test_the_hook_of_a_process(tmp_path: Path) -> None:
    hook = smd.Hook(tmp_path / "run")
    assert smd.get_hook() is hook
    smd.del_hook()
    assert smd.get_hook() is None
    smd.set_hook(hook)
    assert smd.get_hook() is hook


@pytest.mark.parametrize(
    "path",
    ["smdebug.xgboost.hook", "tornasole.xgboost", "tornasole.xgboost.hook"],
)
def test_other_import_paths_are_the_same_class(path: str) -> None:
    module = importlib.import_module(path)
    assert module.Hook is module.TornasoleHook is smd.Hook is smd.TornasoleHook


def test_the_older_name_has_the_same_functions() -> None:
    old = importlib.import_module("tornasole.xgboost")
    assert sorted(old.__all__) == sorted(NAMES)
    assert all(getattr(old, name) is getattr(smd, name) for name in NAMES)
    singleton = importlib.import_module("smdebug.xgboost.singleton_utils")
    assert singleton.get_hook is smd.get_hook


def test_the_adapter_loads_no_other_framework() -> None:
    program = "import sys, smdebug.xgboost; print(*{'torch', 'tensorflow'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=True
    )
    assert done.stdout.strip() == ""


def test_an_unpickled_hook_answers_everything_and_saves_nothing(tmp_path: Path) -> None:
    matrix = data.matrix(10)
    hook = smd.Hook(tmp_path / "run", hyperparameters={"eta": 0.1}, train_data=matrix)
    copy = pickle.loads(pickle.dumps(hook))
    assert all(hasattr(copy, name) for name in ATTRIBUTES)
    assert [getattr(copy, name) for name in ASSIGNABLE] == [None, None, None, 10_000]
    copy.train_data = copy.validation_data = matrix
    copy.hyperparameters, copy.shap_samples = {"eta": 0.2}, 5
    assert [getattr(copy, name) for name in ASSIGNABLE] == [{"eta": 0.2}, matrix, matrix, 5]
    copy.set_mode(smd.modes.TRAIN)
    copy.get_collection("trees").include("^tree")
    copy.save_scalar("a", 1.0)
    copy.save_tensor("b", [1.0])
    copy.step = 5
    data.train(copy, 3)
    copy.flush()
    copy.export_collections()
    assert (copy.stats().saved_steps, copy.findings(), copy.rule_report()) == (0, [], None)
    copy.close()
    assert list(tmp_path.iterdir()) == []
