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
    "smdebug.trials": ["LocalTrial", "S3Trial", "StepState", "Tensor", "Trial", "create_trial"],
    "smdebug.testing": ["StoreContract", "make_run"],
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
    "smdebug.core.access_layer": ["check_dir_exists", "has_training_ended", "training_has_ended"],
    "smdebug.core.logger": ["get_logger"],
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
    "smdebug.trials.Trial.to_arrow": "self columns",
    "smdebug.trials.Tensor.value": "self step_num mode worker",
    "smdebug.trials.Tensor.values": "self mode worker steps",
    "smdebug.trials.Tensor.series": "self reduction mode worker abs",
    "smdebug.trials.Tensor.reduction_value": "self step_num reduction_name mode worker abs",
    "smdebug.trials.Tensor.reduction_values": "self step_num mode worker",
    "smdebug.trials.Tensor.shape": "self step_num mode worker",
    "smdebug.trials.Tensor.prev_steps": "self step n mode",
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


@pytest.mark.parametrize("module", ["smdebug", "smdebug.trials", "smdebug.analysis.utils"])
def test_nothing_else_is_public(module: str) -> None:
    assert sorted(importlib.import_module(module).__all__) == sorted(NAMES[module])


@pytest.mark.parametrize(("path", "names"), SIGNATURES.items())
def test_signature(path: str, names: str) -> None:
    assert list(inspect.signature(found(path)).parameters) == names.split(" ")


@pytest.mark.parametrize(("name", "builtin"), EXCEPTIONS.items())
def test_exceptions_are_builtin_ones_too(name: str, builtin: type) -> None:
    assert issubclass(found(f"smdebug.exceptions.{name}"), builtin)


@pytest.mark.parametrize("name", [*EXCEPTIONS, *OTHER_EXCEPTIONS])
def test_all_exceptions_have_one_root(name: str) -> None:
    exceptions = importlib.import_module("smdebug.exceptions")
    assert issubclass(getattr(exceptions, name), exceptions.SMDebugError)


@pytest.mark.parametrize("module", ["", ".trials", ".exceptions", ".analysis.utils"])
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
