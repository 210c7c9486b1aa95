"""The public names and signatures, frozen: a change here is a change for every user."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import pytest

NAMES = {
    "smdebug": [
        "Collection", "CollectionKeys", "ReductionConfig", "SaveConfig", "SaveConfigMode",
        "__version__", "create_trial", "modes",
    ],
    "smdebug.trials": [
        "Column", "Frame", "LocalTrial", "S3Trial", "StepState", "Tensor", "Trial", "create_trial",
    ],
    "smdebug.testing": [
        "AdapterContract", "ReductionContract", "StoreContract", "Trained", "make_run",
    ],
    "smdebug.rules": [
        "ColumnRule", "Finding", "Need", "Outcome", "RequiredTensors", "RequiredTensorsForTrial",
        "Rule", "RuleReport", "RuleRunner", "hook_configuration", "invoke_rule", "make_rule",
        "rule_class", "rule_names", "run_rules",
    ],
    "smdebug.rules.action": ["Actions"],
    "smdebug.analysis.utils": ["no_refresh", "parse_bool", "parse_list_from_str", "refresh"],
    "smdebug.core.modes": [
        "ALLOWED_MODES", "ALLOWED_MODE_NAMES", "MODE_PLUGIN_NAME", "MODE_STEP_PLUGIN_NAME",
        "ModeKeys", "str_to_mode_keys",
    ],
    "smdebug.core.tensor": ["StepState", "Tensor"],
    "smdebug.core.reader": ["FileReader"],
    "smdebug.core.writer": ["FileWriter"],
    "smdebug.core.collection_manager": ["CollectionManager"],
    "smdebug.core.save_config": ["SaveConfig", "SaveConfigMode"],
    "smdebug.core.reduction_config": ["ALLOWED_NORMS", "ALLOWED_REDUCTIONS", "ReductionConfig"],
    "smdebug.core.access_layer": [
        "TSAccessFile", "TSAccessS3", "check_dir_exists", "has_training_ended",
        "is_rule_signalled_gracetime_passed", "training_has_ended",
    ],
    "smdebug.core.access_layer.s3handler": [
        "DeleteRequest", "ListRequest", "ReadObjectRequest", "S3Handler",
    ],
    "smdebug.core.hook_utils": ["verify_and_get_out_dir"],
    "smdebug.core.json_config": ["create_hook_from_json_config", "get_json_config_as_dict"],
    "smdebug.core.locations": ["IndexFileLocationUtils", "TensorFileLocation"],
    "smdebug.core.logger": ["DuplicateLogFilter", "get_logger"],
    "smdebug.core.utils": ["FRAMEWORK", "is_s3", "match_inc", "split"],
    "smdebug.core.sagemaker_utils": ["is_sagemaker_job"],
}  # fmt: skip

SIGNATURES = {
    "smdebug.trials.create_trial": ("path name profiler output_dir out_dir options"),
    "smdebug.trials.Trial.tensor_names": ("self show_prefixed_tensors step mode regex collection"),
    "smdebug.trials.Trial.steps": "self mode show_incomplete_steps",
    "smdebug.trials.Trial.wait_for_steps": "self required_steps mode timeout",
    "smdebug.trials.Trial.has_passed_step": "self step mode",
    "smdebug.trials.Trial.global_step": "self mode mode_step",
    "smdebug.trials.Trial.sql": "self query",
    "smdebug.trials.Trial.plot": ("self tensors collection reduction step kind mode worker ax"),
    "smdebug.trials.Tensor.plot": "self reduction step mode worker ax",
    "smdebug.trials.Trial.to_arrow": "self columns",
    "smdebug.trials.Tensor.value": "self step_num mode worker",
    "smdebug.trials.Tensor.values": "self mode worker steps",
    "smdebug.trials.Tensor.series": "self reduction mode worker abs steps",
    "smdebug.trials.Tensor.reduction_value": "self step_num reduction_name mode worker abs",
    "smdebug.trials.Tensor.reduction_values": "self step_num mode worker",
    "smdebug.trials.Tensor.shape": "self step_num mode worker",
    "smdebug.trials.Tensor.prev_steps": "self step n mode",
    "smdebug.core.access_layer.TSAccessFile": "path mode",
    "smdebug.core.access_layer.TSAccessS3": (
        "bucket_name key_name aws_access_key_id aws_secret_access_key binary"
    ),
    "smdebug.core.access_layer.s3handler.S3Handler.get_objects": (
        "object_requests use_multiprocessing n_process"
    ),
    "smdebug.core.access_layer.s3handler.ListRequest": "Bucket Prefix Delimiter StartAfter",
    "smdebug.core.json_config.add_collections_to_manager": (
        "collection_manager params_dict hook_params"
    ),
    "smdebug.core.json_config.create_hook_from_json_config": (
        "hook_cls json_config_path default_values"
    ),
    "smdebug.core.json_config.collect_hook_config_params": "params_dict",
    "smdebug.core.utils.ensure_dir": "file_path is_file",
    "smdebug.rules.Rule": "base_trial action_str other_trials",
    "smdebug.rules.invoke_rule": "rule_obj start_step end_step raise_eval_cond",
    "smdebug.rules.run_rules": "trial rules follow record on_finding",
    "smdebug.rules.RequiredTensors.add": "self name steps trial should_match_regex",
    "smdebug.SaveConfig": (
        "mode_save_configs save_interval start_step end_step save_steps when_nan skip_num_steps"
    ),
    "smdebug.SaveConfigMode": (
        "save_interval start_step end_step save_steps when_nan skip_num_steps"
    ),
    "smdebug.ReductionConfig": (
        "reductions abs_reductions norms abs_norms save_raw_tensor save_shape"
    ),
    "smdebug.Collection": (
        "name include_regex tensor_names reduction_config save_config save_histogram exclude_regex"
    ),
}

# Every built-in rule: after the trial its parameters with their defaults, in order.
RULES: dict[str, dict[str, Any]] = {
    "AllZero": {"collection_names": None, "tensor_regex": None, "threshold": 100},
    "CheckInputImages": {
        "threshold_mean": 0.2,
        "threshold_samples": 500,
        "regex": ".*hybridsequential0_input_0",
        "channel": 1,
    },
    "ClassImbalance": {
        "threshold_imbalance": 10,
        "threshold_misprediction": 0.7,
        "samples": 500,
        "argmax": False,
        "labels_regex": ".*labels",
        "predictions_regex": ".*predictions",
    },
    "Confusion": {
        "category_no": None,
        "labels": "labels",
        "predictions": "predictions",
        "labels_collection": "labels",
        "predictions_collection": "predictions",
        "min_diag": 0.9,
        "max_off_diag": 0.1,
    },
    "CreateXgboostReport": {"report_path": None},
    "DeadRelu": {"tensor_regex": None, "threshold_inactivity": 1.0, "threshold_layer": 50.0},
    "ExplodingTensor": {"collection_names": None, "tensor_regex": None, "only_nan": False},
    "FeatureImportanceOverweight": {
        "threshold": 0.8,
        "nfeatures": 3,
        "tensor_regex": ".*feature_importance/weight",
    },
    "FrozenParameter": {"patience": 3},
    "GradientSpike": {"window": 100, "factor": 8.0, "min_history": 20},
    "LossNotDecreasing": {
        "collection_names": None,
        "tensor_regex": None,
        "use_losses_collection": True,
        "num_steps": 10,
        "diff_percent": 0.0,
        "mode": None,
    },
    "LossSpike": {
        "collection_names": None,
        "tensor_regex": None,
        "use_losses_collection": True,
        "window": 50,
        "factor": 8.0,
        "min_history": 10,
    },
    "NLPSequenceRatio": {
        "tensor_regex": ".*embedding0_input_0",
        "token_values": "0",
        "token_thresholds_percent": "50,50",
    },
    "NonFinite": {"gradient_patience": 1},
    "Overfit": {"tensor_regex": None, "start_step": 0, "patience": 1, "ratio_threshold": 0.1},
    "Overtraining": {"patience_train": 5, "patience_validation": 10, "delta": 0.1},
    "PoorWeightInitialization": {
        "activation_inputs_regex": ".*relu_input",
        "threshold": 10.0,
        "distribution_range": 0.001,
        "patience": 5,
        "steps": 10,
    },
    "ReplicaDivergence": {
        "collection_names": None,
        "tensor_regex": None,
        "rtol": 1e-06,
        "atol": 0.0,
    },
    "SaturatedActivation": {
        "collection_names": None,
        "tensor_regex": None,
        "threshold_tanh_min": -9.4999,
        "threshold_tanh_max": 9.4999,
        "threshold_sigmoid_min": -23.0,
        "threshold_sigmoid_max": 16.99999,
        "threshold_inactivity": 1.0,
        "threshold_layer": 50.0,
    },
    "SimilarAcrossRuns": {
        "other_trial": "required",
        "collection_names": None,
        "tensor_regex": None,
    },
    "StalledTrainingRule": {
        "threshold": 1800,
        "stop_training_on_fire": False,
        "training_job_name_prefix": None,
    },
    "TensorVariance": {
        "collection_names": None,
        "tensor_regex": None,
        "max_threshold": None,
        "min_threshold": None,
    },
    "TreeDepth": {"depth": 4},
    "UnchangedTensor": {
        "collection_names": None,
        "tensor_regex": None,
        "num_steps": 3,
        "rtol": 1e-05,
        "atol": 1e-08,
        "equal_nan": False,
    },
    "VanishingGradient": {"threshold": 1e-07},
    "WeightUpdateRatio": {
        "num_steps": None,
        "large_threshold": 10.0,
        "small_threshold": 1e-08,
        "epsilon": 1e-09,
    },
}


EXCEPTIONS = {
    "SMDebugTypeError": TypeError,
    "SMDebugRuntimeError": RuntimeError,
    "SMDebugValueError": ValueError,
    "SMDebugNotImplementedError": NotImplementedError,
}
OTHER_EXCEPTIONS = [
    "DataCorrupted", "IndexReaderException", "InsufficientInformationForRuleInvocation",
    "InvalidCollectionConfiguration", "InvalidWorker", "MissingCollectionFiles", "NoMoreData",
    "NoMoreProfilerData", "RuleEvaluationConditionMet", "SMDebugCustomerError",
    "ShapeUnavailableForStep", "StepNotYetAvailable", "StepUnavailable", "TensorUnavailable",
    "TensorUnavailableForStep", "TrialNotFound", "WriteFailed",
]  # fmt: skip


def found(path: str) -> Any:
    """The object of a dotted path."""
    parts = path.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        try:
            thing = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            thing = getattr(thing, part)
        return thing
    raise AssertionError(path)


@pytest.mark.parametrize(("module", "names"), NAMES.items())
def test_names(module: str, names: list[str]) -> None:
    loaded = importlib.import_module(module)
    assert set(names) <= set(loaded.__all__)
    assert all(hasattr(loaded, name) for name in loaded.__all__)


@pytest.mark.parametrize(
    "module", ["smdebug", "smdebug.trials", "smdebug.rules", "smdebug.analysis.utils"]
)
def test_nothing_else_is_public(module: str) -> None:
    assert sorted(importlib.import_module(module).__all__) == sorted(NAMES[module])


@pytest.mark.parametrize(
    "path",
    [
        "smdebug.rules.rule_invoker.invoke_rule",
        "smdebug.rules.rule.Rule",
        "smdebug.rules.action.action.Actions",
        "smdebug.rules.action.message_action.MessageAction",
        "smdebug.rules.action.stop_training_action.StopTrainingAction",
        "tornasole.rules.rule_invoker.invoke_rule",
        "tornasole.rules.rule.Rule",
    ],
)
def test_paths_that_scripts_for_the_original_use(path: str) -> None:
    assert isinstance(found(path), type) or callable(found(path))


@pytest.mark.parametrize(("path", "names"), SIGNATURES.items())
def test_signature(path: str, names: str) -> None:
    assert list(inspect.signature(found(path)).parameters) == names.split(" ")


@pytest.mark.parametrize(("name", "expected"), RULES.items())
def test_parameters_of_rules(name: str, expected: dict[str, Any]) -> None:
    first, *given, last = inspect.signature(
        found(f"smdebug.rules.generic.{name}")
    ).parameters.values()
    assert (first.name, last.name) == ("base_trial", "action_str")
    empty = inspect.Parameter.empty
    assert {each.name: "required" if each.default is empty else each.default for each in given} == (
        expected
    )
    assert list(expected) == [each.name for each in given]
    assert getattr(importlib.import_module("tornasole.rules.generic"), name) is not None


def test_every_rule_is_frozen_here() -> None:
    assert sorted(RULES) == sorted(importlib.import_module("smdebug.rules.generic").__all__)


@pytest.mark.parametrize(("name", "builtin"), EXCEPTIONS.items())
def test_exceptions_are_builtin_ones_too(name: str, builtin: type) -> None:
    assert issubclass(found(f"smdebug.exceptions.{name}"), builtin)


@pytest.mark.parametrize("name", [*EXCEPTIONS, *OTHER_EXCEPTIONS])
def test_all_exceptions_have_one_root(name: str) -> None:
    exceptions = importlib.import_module("smdebug.exceptions")
    assert issubclass(getattr(exceptions, name), exceptions.SMDebugError)


@pytest.mark.parametrize("module", ["", ".trials", ".rules", ".exceptions", ".analysis.utils"])
def test_the_older_name_gives_the_same_objects(module: str) -> None:
    new = importlib.import_module("smdebug" + module)
    old = importlib.import_module("tornasole" + module)
    names = getattr(new, "__all__", None) or [*EXCEPTIONS, *OTHER_EXCEPTIONS]
    assert all(getattr(old, name) is getattr(new, name) for name in names)


def test_modes_have_the_numbers_that_are_on_disk() -> None:
    modes = found("smdebug.modes")
    assert {mode.name: mode.value for mode in modes} == {
        "TRAIN": 1, "EVAL": 2, "PREDICT": 3, "GLOBAL": 4,
    }  # fmt: skip
