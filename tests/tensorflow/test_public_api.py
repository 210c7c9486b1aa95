"""The public names and signatures of the TensorFlow adapter, frozen."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import tensorflow as tf

import smdebug.tensorflow as smd
from smdebug.config.collection import DEFAULT_TF_COLLECTIONS
from smdebug.config.options import HookOptions

if TYPE_CHECKING:
    from pathlib import Path

keras: Any = tf.keras
NAMES = [
    "Collection", "CollectionKeys", "EstimatorHook", "KerasHook", "ReductionConfig", "SaveConfig",
    "SaveConfigMode", "SessionHook", "add_to_collection", "add_to_default_collection",
    "create_trial", "del_hook", "get_collection", "get_collections", "get_hook", "modes",
    "reset_collections", "set_hook",
]  # fmt: skip
SHARED = {
    "set_mode": "self mode",
    "save_scalar": "self name value sm_metric timestamp",
    "save_tensor": "self tensor_name tensor_value collections_to_write",
    "add_collection": "self collection",
    "get_collection": "self name create",
    "get_collections": "self",
    "add_to_collection": "self collection_name variable",
    "create_from_json_file": "json_file_path",
    "export_collections": "self",
    "should_save_tensor_or_collection": "self tensor_name collection_name",
    "has_default_configuration": "self",
    "has_default_hook_configuration": "self",
    "wrap_optimizer": "self optimizer",
    "flush": "self",
    "close": "self",
    "stats": "self",
    "findings": "self",
    "rule_report": "self",
}
KERAS = {
    "register_model": "self model",
    "wrap_tape": "self tape",
    "save_tape_logs": "self model_inputs outputs",
    "record_tensor_value": "self tensor_name tensor_value",
    "set_gradients": "self gradients gradients_and_variables",
    "set_optimizer_variables": "self optimizer_variables",
    "should_save_layer": "self layer_name",
    "on_train_begin": "self logs",
    "on_test_begin": "self logs",
    "on_predict_begin": "self logs",
    "on_train_end": "self logs",
    "on_test_end": "self logs",
    "on_predict_end": "self logs",
    "on_train_batch_begin": "self batch logs",
    "on_train_batch_end": "self batch logs",
    "on_test_batch_begin": "self batch logs",
    "on_test_batch_end": "self batch logs",
    "on_predict_batch_begin": "self batch logs",
    "on_predict_batch_end": "self batch logs",
    "on_epoch_end": "self epoch logs",
    "set_model": "self model",
}
FUNCTIONS = {
    "get_hook": "hook_type json_config_path create_if_not_exists",
    "set_hook": "hook",
    "del_hook": "",
    "get_collection": "name",
    "get_collections": "",
    "add_to_collection": "collection_name args",
    "add_to_default_collection": "args",
    "reset_collections": "",
}
COLLECTION = {
    "add": "self tensor_names",
    "add_keras_layer": "self layer inputs outputs",
}
ATTRIBUTES = [
    "out_dir", "tensorboard_dir", "dry_run", "worker", "chief_worker", "save_all_workers",
    "include_collections", "save_config", "reduction_config", "include_regex",
    "collection_manager", "step", "mode", "mode_steps", "last_saved_step", "closed",
]  # fmt: skip


def parameters_of(function: Any) -> list[tuple[str, object]]:
    return [(each.name, each.default) for each in inspect.signature(function).parameters.values()]


def test_names() -> None:
    assert sorted(smd.__all__) == sorted(NAMES)
    assert all(hasattr(smd, name) for name in NAMES)


def test_a_star_import_brings_the_names_and_nothing_else() -> None:
    names: dict[str, object] = {}
    exec("from smdebug.tensorflow import *", names)
    assert sorted(names.keys() - {"__builtins__"}) == sorted(NAMES)


@pytest.mark.parametrize("kind", [smd.KerasHook, smd.SessionHook])
def test_the_hooks_take_what_hook_options_take_in_the_same_order(kind: Any) -> None:
    assert parameters_of(kind) == parameters_of(HookOptions)
    text = inspect.getdoc(kind) or ""
    assert [name for name, _ in parameters_of(HookOptions) if f"\n    {name}: " not in text] == []


@pytest.mark.parametrize("kind", [smd.KerasHook, smd.SessionHook])
@pytest.mark.parametrize(("name", "parameters"), SHARED.items())
def test_methods_of_both_hooks(kind: Any, name: str, parameters: str) -> None:
    method = getattr(kind, name)
    assert [each for each, _ in parameters_of(method)] == parameters.split(" ")
    assert inspect.getdoc(method)


@pytest.mark.parametrize(("name", "parameters"), KERAS.items())
def test_methods_of_the_hook_for_keras(name: str, parameters: str) -> None:
    method = getattr(smd.KerasHook, name)
    assert [each for each, _ in parameters_of(method)] == parameters.split(" ")
    assert inspect.getdoc(method)


@pytest.mark.parametrize(("name", "parameters"), COLLECTION.items())
def test_methods_of_collections(name: str, parameters: str) -> None:
    method = getattr(smd.Collection, name)
    assert [each for each, _ in parameters_of(method)] == parameters.split(" ")


@pytest.mark.parametrize(("name", "parameters"), FUNCTIONS.items())
def test_functions(name: str, parameters: str) -> None:
    function = getattr(smd, name)
    assert [each for each, _ in parameters_of(function)] == parameters.split()
    assert inspect.getdoc(function)


def test_a_hook_is_a_callback_of_keras(tmp_path: Path) -> None:
    assert issubclass(smd.KerasHook, keras.callbacks.Callback)
    assert isinstance(smd.KerasHook(tmp_path), keras.callbacks.Callback)


def test_default_arguments_of_a_hook(tmp_path: Path) -> None:
    hook = smd.KerasHook(tmp_path / "run")
    found = {name: getattr(hook, name) for name in ATTRIBUTES}
    del found["collection_manager"], found["save_config"], found["reduction_config"]
    assert found == {
        "out_dir": str(tmp_path / "run"),
        "tensorboard_dir": None,
        "dry_run": False,
        "worker": "worker_0",
        "chief_worker": "worker_0",
        "save_all_workers": False,
        "include_collections": {"losses", "metrics", "sm_metrics", "searchable_scalars"},
        "include_regex": (),
        "step": -1,
        "mode": smd.modes.GLOBAL,
        "mode_steps": {smd.modes.GLOBAL: -1},
        "last_saved_step": None,
        "closed": False,
    }
    assert hook.has_default_configuration()
    for mode in smd.modes:
        assert hook.save_config.get_save_config(mode).save_interval == 500
    hook.close()
    assert list(tmp_path.iterdir()) == []


def test_default_collections(tmp_path: Path) -> None:
    hook = smd.KerasHook(tmp_path / "run")
    assert set(hook.get_collections()) == {*DEFAULT_TF_COLLECTIONS, "labels", "predictions"}
    assert all(type(each) is smd.Collection for each in hook.get_collections().values())


def test_the_hook_of_a_process(tmp_path: Path) -> None:
    hook = smd.KerasHook(tmp_path / "run")
    assert smd.get_hook() is hook
    smd.del_hook()
    assert smd.get_hook() is None
    smd.set_hook(hook)
    assert smd.get_hook() is hook


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("smdebug.tensorflow.keras", "KerasHook"),
        ("smdebug.tensorflow.session", "SessionHook"),
        ("smdebug.tensorflow.session", "EstimatorHook"),
        ("smdebug.tensorflow.collection", "Collection"),
        ("smdebug.tensorflow.singleton_utils", "get_hook"),
    ],
)
def test_other_import_paths_are_the_same(path: str, name: str) -> None:
    assert getattr(importlib.import_module(path), name) is getattr(smd, name)


def test_the_older_package_has_the_same_names() -> None:
    old = importlib.import_module("tornasole.tensorflow")
    assert set(NAMES) <= set(old.__all__)
    assert all(getattr(old, name) is getattr(smd, name) for name in NAMES)


def test_the_adapter_loads_no_other_framework() -> None:
    program = "import sys, smdebug.tensorflow; print(*{'torch', 'xgboost'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=True
    )
    assert done.stdout.strip() == ""
