"""The import paths of smdebug 1.0 that lead to the configuration."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

import smdebug
from smdebug.config.collection import Collection
from smdebug.core.collection_manager import CollectionManager
from smdebug.core.json_config import (
    add_collections_to_manager,
    collect_hook_config_params,
    get_include_collections,
    get_json_config_as_dict,
)
from smdebug.core.sagemaker_utils import is_sagemaker_job

PATHS = {
    "modes": "ModeKeys ALLOWED_MODES ALLOWED_MODE_NAMES MODE_STEP_PLUGIN_NAME MODE_PLUGIN_NAME "
    "str_to_mode_keys",
    "collection": "Collection CollectionKeys SCALAR_COLLECTIONS SM_METRIC_COLLECTIONS "
    "NON_REDUCTION_COLLECTIONS NON_HISTOGRAM_COLLECTIONS SUMMARIES_COLLECTIONS "
    "DEFAULT_TF_COLLECTIONS DEFAULT_PYTORCH_COLLECTIONS DEFAULT_MXNET_COLLECTIONS "
    "DEFAULT_XGBOOST_COLLECTIONS",
    "collection_manager": "CollectionManager",
    "save_config": "SaveConfig SaveConfigMode DEFAULT_SAVE_CONFIG_INTERVAL "
    "DEFAULT_SAVE_CONFIG_START_STEP DEFAULT_SAVE_CONFIG_END_STEP DEFAULT_SAVE_CONFIG_SAVE_STEPS",
    "reduction_config": "ReductionConfig ALLOWED_REDUCTIONS ALLOWED_NORMS",
    "reductions": "REDUCTIONS_PREFIX get_numpy_reduction get_reduction_tensor_name "
    "reverse_reduction_tensor_name",
    "json_config": "CONFIG_FILE_PATH_ENV_STR DEFAULT_SAGEMAKER_OUTDIR get_json_config_as_dict "
    "get_include_collections collect_hook_config_params add_collections_to_manager "
    "create_hook_from_json_config",
    "config_constants": "CONFIG_FILE_PATH_ENV_STR DEFAULT_SAGEMAKER_OUTDIR METADATA_FILENAME",
    "sagemaker_utils": "is_sagemaker_job",
    "tensor": "Tensor StepState",
    "writer": "FileWriter",
    "reader": "FileReader",
    "access_layer": "TSAccessFile TSAccessS3 training_has_ended has_training_ended "
    "check_dir_exists is_rule_signalled_gracetime_passed ENV_RULE_STOP_SIGNAL_FILENAME "
    "DEFAULT_GRACETIME_FOR_RULE_STOP_SEC",
    "access_layer.file": "get_temp_path SMDEBUG_TEMP_PATH_SUFFIX TSAccessFile",
    "access_layer.s3": "TSAccessS3",
    "access_layer.s3handler": "S3Handler ListRequest ReadObjectRequest DeleteRequest",
    "locations": "TensorFileLocation IndexFileLocationUtils",
    "utils": "is_s3 ensure_dir match_inc flatten split get_path_to_collections make_numpy_array "
    "parse_worker_name_from_file get_worker_name_from_collection_file serialize_tf_device "
    "deserialize_tf_device FRAMEWORK",
    "hook_utils": "verify_and_get_out_dir",
    "logger": "get_logger DuplicateLogFilter",
}


MOVING = Path(__file__).parents[2] / "docs" / "moving.md"
SOURCE = Path(smdebug.__file__).parent


def missing_names() -> list[str]:
    """What the page about moving says is not there."""
    rows = [line for line in MOVING.read_text(encoding="utf-8").splitlines() if line[:3] == "| `"]
    return [name for row in rows for name in re.findall(r"`(smdebug[\w.]*)`", row.split("|")[1])]


@pytest.mark.parametrize("name", missing_names())
def test_modules_listed_as_missing_do_not_exist(name: str) -> None:
    # By their files: importing a framework's package needs the framework.
    path = SOURCE.joinpath(*name.split(".")[1:])
    assert not path.exists()
    assert not path.with_suffix(".py").exists()
    holder = path.parent.with_suffix(".py")
    if holder.exists():
        module, _, attribute = name.rpartition(".")
        assert not hasattr(importlib.import_module(module), attribute)


@pytest.mark.parametrize("name", PATHS)
def test_names(name: str) -> None:
    module = importlib.import_module(f"smdebug.core.{name}")
    for attribute in (*PATHS[name].split(), *module.__all__):
        assert hasattr(module, attribute)


def test_manager_file(tmp_path: Path) -> None:
    manager = CollectionManager([Collection("a", include_regex="ü")])
    manager.export(tmp_path, "worker_0_collections.json")
    folder = tmp_path / "collections" / "000000000"
    assert [path.name for path in folder.iterdir()] == ["worker_0_collections.json"]
    loaded = CollectionManager.load(folder / "worker_0_collections.json")
    assert isinstance(loaded, CollectionManager)
    assert loaded == manager


def test_parts_of_a_json_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "job.json"
    path.write_text('{"LocalPath": "run", "CollectionConfigurations": [{"CollectionName": "a"}]}')
    monkeypatch.setenv("SMDEBUG_CONFIG_FILE_PATH", str(path))
    config = get_json_config_as_dict()
    assert config == get_json_config_as_dict(path)
    assert get_include_collections(config) == ["a"]
    assert collect_hook_config_params(config)["out_dir"] == "run"
    manager = CollectionManager()
    add_collections_to_manager(manager, config)
    assert list(manager.get_collections()) == ["a"]


def test_is_sagemaker_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRAINING_JOB_NAME", raising=False)
    assert not is_sagemaker_job()
    monkeypatch.setenv("TRAINING_JOB_NAME", "job")
    assert is_sagemaker_job()
