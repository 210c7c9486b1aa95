"""The public names and signatures of the MXNet adapter, frozen."""

from __future__ import annotations

import importlib
import inspect
import pickle
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from mxnet import gluon, nd

import smdebug.mxnet as smd
from smdebug.config.collection import DEFAULT_MXNET_COLLECTIONS
from smdebug.config.options import HookOptions
from smdebug.exceptions import SMDebugTypeError

if TYPE_CHECKING:
    from pathlib import Path

NAMES = [
    "Collection", "CollectionKeys", "Hook", "ReductionConfig", "SaveConfig", "SaveConfigMode",
    "TornasoleHook", "add_to_collection", "add_to_default_collection", "create_trial", "del_hook",
    "get_collection", "get_collections", "get_hook", "modes", "reset_collections", "set_hook",
]  # fmt: skip
SIGNATURES = {
    "register_block": "self block",
    "register_hook": "self block",
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
ATTRIBUTES = {
    "tensorboard_dir": None,
    "dry_run": False,
    "worker": "worker_0",
    "chief_worker": "worker_0",
    "save_all_workers": False,
    "include_collections": {"losses"},
    "include_regex": (),
    "step": -1,
    "mode": smd.modes.GLOBAL,
    "mode_steps": {smd.modes.GLOBAL: -1},
    "last_saved_step": None,
    "closed": False,
    "model": None,
    "registered_blocks": set(),
}


def parameters_of(function: Any) -> list[tuple[str, object]]:
    return [(each.name, each.default) for each in inspect.signature(function).parameters.values()]


def test_names() -> None:
    assert sorted(smd.__all__) == sorted(NAMES)
    names: dict[str, object] = {}
    exec("from smdebug.mxnet import *", names)
    assert sorted(names.keys() - {"__builtins__"}) == sorted(NAMES)


def test_the_hook_takes_what_hook_options_take_with_the_same_defaults() -> None:
    assert parameters_of(smd.Hook) == parameters_of(HookOptions)


def test_all_parameters_are_described() -> None:
    text = inspect.getdoc(smd.Hook) or ""
    assert [name for name, _ in parameters_of(smd.Hook) if f"\n    {name}: " not in text] == []


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


def test_default_arguments_of_a_hook(tmp_path: Path) -> None:
    hook = smd.Hook(tmp_path / "run")
    assert hook.out_dir == str(tmp_path / "run")
    assert {name: getattr(hook, name) for name in ATTRIBUTES} == ATTRIBUTES
    assert hook.reduction_config.save_raw_tensor
    assert hook.has_default_configuration()
    assert {hook.save_config.get_save_config(mode).save_interval for mode in smd.modes} == {500}


def test_model_and_registered_blocks(tmp_path: Path) -> None:
    hook, net, loss = smd.Hook(tmp_path / "run"), gluon.nn.Dense(2), gluon.loss.L2Loss()
    hook.register_hook(net)
    hook.register_hook(loss)
    assert hook.model is net
    assert hook.registered_blocks == {net, loss}


def test_a_hook_makes_no_files_until_it_is_used(tmp_path: Path) -> None:
    smd.Hook(tmp_path / "run").close()
    assert list(tmp_path.iterdir()) == []


def test_pickled_hook_answers_and_saves_nothing(tmp_path: Path) -> None:
    hook = smd.Hook(tmp_path / "run", save_all=True)
    net, loss = gluon.nn.Dense(2), gluon.loss.L2Loss()
    net.initialize()
    hook.register_block(net)
    copy = pickle.loads(pickle.dumps(hook))
    assert {name: getattr(copy, name) for name in ATTRIBUTES} == {
        **ATTRIBUTES, "dry_run": True, "closed": True,
    }  # fmt: skip
    with copy.register_block(net), copy.register_hook(loss):
        out = net(nd.ones((3, 4)))
        loss(out, nd.ones((3, 2)))
    assert copy.registered_blocks == set()
    assert copy.get_collection("losses").name == "losses"
    copy.set_mode(smd.modes.TRAIN)
    copy.save_scalar("one", nd.ones(1))
    copy.save_tensor("out", out)
    copy.flush()
    copy.close()
    assert copy.stats().saved_steps == 0
    assert (hook.step, hook.registered_blocks) == (0, {net})
    with pytest.raises(SMDebugTypeError, match="block must be"):
        copy.register_block("net")


def test_default_collections(tmp_path: Path) -> None:
    hook = smd.Hook(tmp_path / "run")
    assert set(hook.get_collections()) == {*DEFAULT_MXNET_COLLECTIONS, "scalars"}
    assert all(type(each) is smd.Collection for each in hook.get_collections().values())


@pytest.mark.parametrize(
    ("name", "is_loss"),
    [
        ("softmaxcrossentropyloss0_output_0", True), ("l2loss12_output_0", True),
        ("myloss_output_0", True), ("net_loss0_output_1", True), ("loss0_input_0", False),
        ("lossnet0_dense0_output_0", False), ("dense0_output_0", False),
    ],
)  # fmt: skip
def test_which_tensors_are_losses(tmp_path: Path, name: str, is_loss: bool) -> None:
    assert smd.Hook(tmp_path / "run").get_collection("losses").matches(name) == is_loss


def test_the_hook_of_a_process(tmp_path: Path) -> None:
    hook = smd.Hook(tmp_path / "run")
    assert smd.get_hook() is hook
    smd.del_hook()
    assert smd.get_hook() is None
    smd.set_hook(hook)
    assert smd.get_hook() is hook


def test_older_names() -> None:
    import tornasole.mxnet as older
    from tornasole.mxnet.hook import TornasoleHook

    assert TornasoleHook is older.TornasoleHook is older.Hook is smd.Hook
    assert sorted(older.__all__) == sorted(NAMES)


@pytest.mark.parametrize("module", ["hook", "collection", "singleton_utils"])
def test_modules_that_scripts_import(module: str) -> None:
    found = importlib.import_module(f"smdebug.mxnet.{module}")
    names = {"hook": "Hook", "collection": "Collection", "singleton_utils": "get_hook"}
    assert getattr(found, names[module]) is getattr(smd, names[module])


def test_the_adapter_loads_no_other_framework() -> None:
    program = (
        "import sys, smdebug.mxnet\n"
        "print([name for name in ('torch', 'tensorflow', 'keras', 'xgboost', 'duckdb', 'pandas')"
        " if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=True,
        timeout=100,
    )  # fmt: skip
    assert done.stdout.strip() == "[]"
