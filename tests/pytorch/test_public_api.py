"""The public names and signatures of the PyTorch adapter, frozen."""

from __future__ import annotations

import importlib
import inspect

import pytest

import smdebug.pytorch as smd
from smdebug.config.options import HookOptions

NAMES = [
    "Collection", "CollectionKeys", "Hook", "ReductionConfig", "SaveConfig", "SaveConfigMode",
    "TornasoleHook", "add_to_collection", "add_to_default_collection", "create_trial", "del_hook",
    "get_collection", "get_collections", "get_hook", "modes", "reset_collections", "set_hook",
]  # fmt: skip
SIGNATURES = {
    "register_module": "self module begins_steps follow_training",
    "begin_step": "self module",
    "loss_computed": "self loss_module args kwargs output",
    "register_loss": "self loss_module",
    "register_hook": "self module",
    "set_mode": "self mode",
    "save_scalar": "self name value sm_metric timestamp",
    "save_tensor": "self tensor_name tensor_value collections_to_write",
    "record_tensor_value": "self tensor_name tensor_value",
    "add_collection": "self collection",
    "get_collection": "self name create",
    "get_collections": "self",
    "add_to_collection": "self collection_name variable",
    "create_from_json_file": "json_file_path",
    "export_collections": "self",
    "should_save_tensor_or_collection": "self tensor_name collection_name",
    "has_default_configuration": "self",
    "has_default_hook_configuration": "self",
    "flush": "self",
    "close": "self",
    "stats": "self",
}
ATTRIBUTES = [
    "out_dir", "tensorboard_dir", "dry_run", "worker", "chief_worker", "save_all_workers",
    "include_collections", "save_config", "reduction_config", "include_regex",
    "collection_manager", "step", "mode", "mode_steps", "last_saved_step",
    "has_registered_module", "has_registered_loss_module", "module_set",
]  # fmt: skip


def test_names() -> None:
    assert sorted(smd.__all__) == sorted(NAMES)
    assert all(hasattr(smd, name) for name in NAMES)


def test_the_hook_takes_what_hook_options_take_in_the_same_order() -> None:
    def parameters(kind: type) -> list[tuple[str, object]]:
        return [(each.name, each.default) for each in inspect.signature(kind).parameters.values()]

    assert parameters(smd.Hook) == parameters(HookOptions)


@pytest.mark.parametrize(("name", "parameters"), SIGNATURES.items())
def test_methods(name: str, parameters: str) -> None:
    method = getattr(smd.Hook, name)
    assert list(inspect.signature(method).parameters) == parameters.split(" ")
    assert inspect.getdoc(method)


def test_attributes_that_scripts_read(tmp_path: object) -> None:
    with smd.Hook(f"{tmp_path}/run") as hook:
        assert all(hasattr(hook, name) for name in ATTRIBUTES)


@pytest.mark.parametrize(
    "path",
    ["smdebug.pytorch.hook", "tornasole.pytorch", "tornasole.pytorch.hook"],
)
def test_other_import_paths_are_the_same_class(path: str) -> None:
    module = importlib.import_module(path)
    assert module.Hook is module.TornasoleHook is smd.Hook is smd.TornasoleHook


def test_the_older_name_has_the_same_functions() -> None:
    old = importlib.import_module("tornasole.pytorch")
    assert all(getattr(old, name) is getattr(smd, name) for name in NAMES)
    singleton = importlib.import_module("smdebug.pytorch.singleton_utils")
    assert singleton.get_hook is smd.get_hook
