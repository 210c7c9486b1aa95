"""All collections of a run."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smdebug.config.collection import Collection, DefinedName
from smdebug.config.collection_manager import CollectionManager, check_included
from smdebug.config.reduction_config import ReductionConfig
from smdebug.config.save_config import SaveConfig
from smdebug.exceptions import SMDebugError, SMDebugTypeError, SMDebugValueError


class LoudCollection(Collection):
    """A framework's own collection."""


class LoudManager(CollectionManager):
    collection_class = LoudCollection


def test_get_creates_by_default() -> None:
    manager = CollectionManager()
    relu = manager.get("relu")
    assert manager.get("relu", create=False) is relu
    assert manager.create_collection("relu") is relu
    assert manager.get_collections() == {"relu": relu}
    assert isinstance(LoudManager().get("x"), LoudCollection)
    assert "relu" in repr(manager)


def test_add_replaces() -> None:
    manager = CollectionManager([Collection("a", include_regex="x")])
    manager.add("a")
    assert manager.get("a").include_regex == ["x"]
    manager.add(Collection("a"))
    assert manager.get("a").include_regex == []


def test_bias_is_biases() -> None:
    manager = CollectionManager()
    assert manager.get("bias") is manager.get("biases")
    assert list(manager.get_collections()) == ["biases"]
    assert manager.get("bias", create=False).name == "biases"


def test_stored_bias_and_biases_are_kept() -> None:
    text = json.dumps({"collections": {"bias": {"name": "bias"}, "biases": {"name": "biases"}}})
    manager = CollectionManager.from_json(text)
    assert manager.get("bias", create=False) is not manager.get("biases", create=False)
    assert manager.get("bias").name == "bias"


def test_overlay_keeps_the_object_scripts_hold() -> None:
    manager = CollectionManager([Collection("losses", include_regex="loss")])
    held = manager.get("losses")
    assert manager.overlay(Collection("losses", include_regex="nll")) is held
    assert held.include_regex == ["loss", "nll"]
    assert manager.overlay(Collection("new", include_regex="n")).include_regex == ["n"]


def test_meta() -> None:
    manager = CollectionManager()
    assert manager.get_num_workers() == 1
    manager.set_num_workers(4)
    manager.update_meta({"framework": "pytorch"})
    assert manager.meta == {"num_workers": 4, "framework": "pytorch"}
    manager.update_meta({"num_workers": 2})
    assert manager.get_num_workers() == 2


BAD: list[tuple[Any, type[SMDebugError], list[str]]] = [
    (lambda m: m.add(5), SMDebugTypeError, ["collection", "a Collection or a name", "5"]),
    (lambda m: m.add(None), SMDebugTypeError, ["collection", "a Collection or a name", "None"]),
    (lambda m: m.get(""), SMDebugValueError, ["collection name", "non-empty", "''"]),
    (lambda m: m.get(5), SMDebugValueError, ["collection name", "string", "5"]),
    (lambda m: m.get("wieghts", create=False), SMDebugValueError, ["weights", "'wieghts'"]),
    (lambda m: m.get("x", create=False), SMDebugValueError, ["Unknown collection", "from weights"]),
    (lambda m: m.set_num_workers(0), SMDebugValueError, ["num_workers", "positive", "0"]),
    (lambda m: m.set_num_workers("all"), SMDebugValueError, ["num_workers", "positive", "'all'"]),
    (lambda m: m.update_meta([]), SMDebugValueError, ["meta", "dict", "[]"]),
    (lambda m: m.update_meta({"a": {1}}), SMDebugValueError, ["meta", "JSON", "{1}"]),
    (lambda m: m.from_json("{"), SMDebugValueError, ["collections", "JSON", "'{'"]),
    (lambda m: m.from_json(""), SMDebugValueError, ["collections", "JSON", "''"]),
    (lambda m: m.from_json("[]"), SMDebugValueError, ["collections file", "dict", "[]"]),
    (lambda m: m.from_json("{}"), SMDebugValueError, ["'collections'", "dict", "None"]),
    (
        lambda m: m.from_json('{"collections": {"a": 5}}'),
        SMDebugValueError,
        ["collection 'a'", "dict", "5"],
    ),
    (
        lambda m: m.from_json('{"collections": {}, "_meta": 5}'),
        SMDebugValueError,
        ["_meta", "dict", "5"],
    ),
]


@pytest.mark.parametrize(("act", "error", "fragments"), BAD)
def test_bad(act: Any, error: type[SMDebugError], fragments: list[str]) -> None:
    with pytest.raises(error) as caught:
        act(CollectionManager([Collection("weights")]))
    assert all(fragment in str(caught.value) for fragment in fragments), str(caught.value)


def test_json_has_only_the_keys_of_smdebug_1() -> None:
    manager = CollectionManager([Collection("a")])
    manager.update_meta({"format": "v2"})
    data = manager.to_json_dict()
    assert set(data) == {"collections", "_meta"}
    assert data["_meta"] == {"num_workers": 1, "format": "v2"}


STORED_BY_SMDEBUG_1 = """{"collections": {"relu": {"name": "relu", "include_regex": ["relu"],
 "tensor_names": ["a", "b"], "reduction_config": {"save_raw_tensor": false,
 "reductions": "min,l1_norm,abs_max,abs_l2_norm", "save_shape": false},
 "save_config": {"TRAIN": {"save_interval": 5, "save_steps": [], "start_step": 0, "end_step": null},
 "EVAL": null, "PREDICT": null, "GLOBAL": null}, "save_histogram": true}},
 "_meta": {"num_workers": 2}}"""


def test_reads_a_file_of_smdebug_1() -> None:
    manager = CollectionManager.load_from_string(STORED_BY_SMDEBUG_1)
    relu = manager.get("relu", create=False)
    assert relu.reduction_config == ReductionConfig(["min"], ["max"], ["l1"], ["l2"])
    assert manager.get_num_workers() == 2
    assert manager.to_json_dict() == json.loads(STORED_BY_SMDEBUG_1)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("save_config", {"TRAIN": {"save_interval": 5, "start_step": 9, "end_step": 3}}),
        ("reduction_config", {"reductions": "quantile"}),
        ("include_regex", ["("]),
    ],
)
def test_a_run_is_readable_whatever_its_configuration(
    key: str, value: object, caplog: pytest.LogCaptureFixture
) -> None:
    entry = {"name": "a", "tensor_names": ["t"], key: value}
    with caplog.at_level(logging.WARNING, "smdebug.config"):
        manager = CollectionManager.from_json(json.dumps({"collections": {"a": entry}, "new": 1}))
    assert manager.get("a", create=False) == Collection("a", tensor_names=["t"])
    assert key in caplog.text


@given(
    st.lists(
        st.builds(
            Collection,
            st.text(min_size=1, max_size=5).filter(str.strip),
            st.lists(st.sampled_from(["a", "^b"]), max_size=2),
            st.sets(st.text(max_size=3), max_size=2),
            st.none() | st.just(ReductionConfig(["median", "min"])),
            st.none() | st.just(SaveConfig(save_interval=3, when_nan="x")),
        ),
        max_size=3,
    ),
    st.integers(1, 100),
)
def test_json_round_trip(collections: list[Collection], workers: int) -> None:
    manager = CollectionManager(collections)
    manager.set_num_workers(workers)
    assert CollectionManager.from_json(manager.to_json()) == manager
    assert manager != 5


FRAMEWORK = ["all", "default", "weights", "biases", "gradients", "losses", "feature_importance"]


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("gradient", "gradients"),
        ("loses", "losses"),
        ("wieghts", "weights"),
        ("Weights", "weights"),
        ("weightss", "weights"),
        ("feature_importances", "feature_importance"),
    ],
)
def test_misspelled_name_is_rejected(name: str, near: str) -> None:
    with pytest.raises(SMDebugValueError) as caught:
        check_included(["weights", name], FRAMEWORK)
    assert str(caught.value).startswith(
        f"Unknown collection '{name}' in include_collections. Did you mean '{near}'?"
    )
    # Unless the user has made it, or a JSON config defines it.
    check_included([name], FRAMEWORK, made=[name])
    check_included([DefinedName(name)], FRAMEWORK)


@pytest.mark.parametrize(
    "name", ["mine", "relu", "weights_2", "weights2", "my_losses", "first", "late", "shap", "loss"]
)
def test_custom_name_is_accepted(name: str) -> None:
    check_included([name], FRAMEWORK)
