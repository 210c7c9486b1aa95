"""Which tensors belong together."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smdebug.config import collection as module
from smdebug.config.collection import Collection, CollectionKeys
from smdebug.config.reduction_config import ReductionConfig
from smdebug.config.save_config import SaveConfig, SaveConfigMode
from smdebug.exceptions import SMDebugError, SMDebugTypeError, SMDebugValueError
from smdebug.mode_keys import ModeKeys


@pytest.mark.parametrize(
    ("fields", "name", "expected"),
    [
        ({}, "x", False),
        ({"include_regex": "relu"}, "net.relu_output_0", True),
        ({"include_regex": "^relu"}, "net.relu_output_0", False),
        ({"include_regex": ["a", ["b", ["c"]]]}, "xcx", True),
        ({"include_regex": SimpleNamespace(name="conv0")}, "conv0_output", True),
        ({"tensor_names": ["a+b"]}, "a+b", True),
        ({"tensor_names": {"a"}}, "ab", False),
        ({"tensor_names": ["a"], "exclude_regex": "a"}, "a", False),
        ({"include_regex": ".*", "exclude_regex": ["^gradient"]}, "gradient/w", False),
        ({"include_regex": ".*", "exclude_regex": ["^gradient"]}, "w", True),
    ],
)
def test_matches(fields: dict[str, Any], name: str, expected: bool) -> None:
    assert Collection("c", **fields).matches(name) is expected


def test_regexes_may_be_appended_to_the_list() -> None:
    collection = Collection("c")
    collection.include_regex.append("relu")
    assert collection.matches("relu_0")


BAD: list[tuple[Any, type[SMDebugError], list[str]]] = [
    (lambda: Collection(""), SMDebugValueError, ["name", "non-empty", "''"]),
    (lambda: Collection(5), SMDebugValueError, ["name", "string", "5"]),  # type: ignore[arg-type]
    (
        lambda: Collection("c", include_regex="("),
        SMDebugValueError,
        ["'c'", "include_regex", "valid regular expression", "'('", "unterminated"],
    ),
    (
        lambda: Collection("c", exclude_regex=["a", "[b"]),
        SMDebugValueError,
        ["'c'", "exclude_regex", "valid regular expression", "'[b'", "unterminated"],
    ),
    (lambda: Collection("c").include(5), SMDebugTypeError, ["'c'", "include_regex", "string", "5"]),
    (
        lambda: Collection("c").include([None]),
        SMDebugTypeError,
        ["'c'", "include_regex", "strings", "None"],
    ),
    (lambda: Collection("c").exclude(b"x"), SMDebugTypeError, ["exclude_regex", "string", "b'x'"]),
    (lambda: Collection("c").add(5), SMDebugTypeError, ["'c'", "tensor name", "string", "5"]),
    (
        lambda: Collection("c", tensor_names="abc"),  # type: ignore[arg-type]
        SMDebugTypeError,
        ["'c'", "tensor_names", "a list or a set", "'abc'"],
    ),
    (
        lambda: Collection("c", tensor_names=("abc",)),  # type: ignore[arg-type]
        SMDebugTypeError,
        ["'c'", "tensor_names", "a list or a set", "'abc'"],
    ),
    (
        lambda: Collection("c", tensor_names=[5]),  # type: ignore[list-item]
        SMDebugTypeError,
        ["'c'", "tensor_names", "string", "5"],
    ),
    (
        lambda: Collection("c", save_config=SaveConfigMode()),  # type: ignore[arg-type]
        SMDebugTypeError,
        ["'c'", "save_config", "SaveConfig or a dict", "SaveConfigMode("],
    ),
    (
        lambda: Collection("c", save_config=5),  # type: ignore[arg-type]
        SMDebugTypeError,
        ["'c'", "save_config", "SaveConfig or a dict", "5"],
    ),
    (
        lambda: Collection("c", reduction_config={}),  # type: ignore[arg-type]
        SMDebugTypeError,
        ["'c'", "reduction_config", "ReductionConfig", "{}"],
    ),
    (
        lambda: Collection("c", save_histogram="maybe"),  # type: ignore[arg-type]
        SMDebugValueError,
        ["'c'", "save_histogram", "true or false", "'maybe'"],
    ),
    (lambda: Collection.from_dict({}), SMDebugValueError, ["collection", "name", "{}"]),
    (lambda: Collection.from_dict([]), SMDebugValueError, ["collection", "dict", "[]"]),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("make", "error", "fragments"), BAD)
def test_bad(make: Any, error: type[SMDebugError], fragments: list[str]) -> None:
    with pytest.raises(error) as caught:
        make()
    assert all(fragment in str(caught.value) for fragment in fragments), str(caught.value)


def test_rejected_regex_does_not_change_the_collection() -> None:
    collection = Collection("c", include_regex="a")
    with pytest.raises(SMDebugValueError):
        collection.include(["b", "("])
    assert collection.include_regex == ["a"]


def test_tensor_names() -> None:
    collection = Collection("c", tensor_names=["a"])
    collection.add_tensor_name("b")
    collection.add(["c", SimpleNamespace(name="d")])
    collection.remove_tensor_name("a")
    collection.remove_tensor_name("not there")
    assert collection.has_tensor_name("b")
    assert collection.tensor_names == {"b", "c", "d"}
    collection.tensor_names = None
    assert collection.is_empty()


def test_old_spellings() -> None:
    collection = Collection("c", include_regex="a", tensor_names=["t"])
    config = SaveConfig(save_interval=5)
    reduction = ReductionConfig(["min"])
    collection.set_save_config(config)
    collection.set_reduction_config(reduction)
    assert collection.get_save_config() is collection.save_config is config
    assert collection.get_reduction_config() is collection.reduction_config is reduction
    assert collection.get_include_regex() == ["a"]
    assert collection.get_tensor_names() == {"t"}
    collection.set_save_config({ModeKeys.TRAIN: SaveConfigMode(save_interval=2)})
    assert collection.save_config == SaveConfig({ModeKeys.TRAIN: SaveConfigMode(save_interval=2)})


def test_bias_is_biases() -> None:
    assert Collection("bias").name == CollectionKeys.BIASES
    assert Collection.from_dict({"name": "bias"}).name == "bias"


HOOK_SAVE = SaveConfig(save_interval=7)
HOOK_REDUCTION = ReductionConfig(["min"])
RAW = ReductionConfig(save_raw_tensor=True)


def test_fill_from_takes_whole_configurations() -> None:
    collection = Collection("c")
    collection.fill_from(HOOK_SAVE, HOOK_REDUCTION)
    assert collection.save_config is HOOK_SAVE
    assert collection.reduction_config is HOOK_REDUCTION
    assert collection.save_histogram


def test_fill_from_keeps_what_is_set_and_fills_open_modes() -> None:
    own = SaveConfig({ModeKeys.TRAIN: SaveConfigMode(start_step=5, when_nan="loss")})
    collection = Collection("c", save_config=own, reduction_config=ReductionConfig(["median"]))
    collection.fill_from(HOOK_SAVE, HOOK_REDUCTION)
    assert collection.save_config is not None
    train = collection.save_config.mode_save_configs[ModeKeys.TRAIN]
    assert train == SaveConfigMode(start_step=5, when_nan="loss")  # no field comes from the hook
    assert collection.save_config.get_save_config(ModeKeys.EVAL).save_interval == 7
    assert own.mode_save_configs[ModeKeys.EVAL] is None
    assert collection.reduction_config == ReductionConfig(["median"])


@pytest.mark.parametrize("name", sorted(module.NON_REDUCTION_COLLECTIONS))
def test_scalars_are_saved_raw(name: str) -> None:
    collection = Collection(name, reduction_config=ReductionConfig(["mean"]))
    collection.fill_from(HOOK_SAVE, HOOK_REDUCTION)
    assert collection.reduction_config == RAW
    assert not collection.save_histogram


def test_overlay() -> None:
    present = Collection("losses", include_regex="loss", save_config=HOOK_SAVE)
    present.overlay(
        Collection("losses", ["loss", "nll"], ["t"], HOOK_REDUCTION, None, False, exclude_regex="x")
    )
    assert present == Collection(
        "losses", ["loss", "nll"], ["t"], HOOK_REDUCTION, HOOK_SAVE, False, exclude_regex="x"
    )


def test_json_has_only_the_keys_of_smdebug_1() -> None:
    fields = Collection("c", ["b", "a"], {"y", "x"}).to_json_dict()
    assert fields == {
        "name": "c",
        "include_regex": ["b", "a"],
        "tensor_names": ["x", "y"],
        "reduction_config": None,
        "save_config": None,
        "save_histogram": True,
    }
    assert Collection("c", exclude_regex="a").to_json_dict()["exclude_regex"] == ["a"]


def test_equality_and_hash() -> None:
    assert Collection("c") == Collection("c")
    assert hash(Collection("c")) == hash(Collection("c", include_regex="a"))
    assert Collection("c") != Collection("c", exclude_regex="a")
    assert Collection("c") != "c"
    assert '"name": "c"' in repr(Collection("c"))


def test_sets_and_keys() -> None:
    keys = {key: value for key, value in vars(CollectionKeys).items() if key.isupper()}
    assert {value.upper() for value in keys.values()} == set(keys)
    scalars = {"losses", "metrics", "feature_importance", "average_shap", "sm_metrics"}
    assert scalars <= module.SCALAR_COLLECTIONS
    assert module.NON_REDUCTION_COLLECTIONS == module.NON_HISTOGRAM_COLLECTIONS
    for name in ("TF", "PYTORCH", "MXNET", "XGBOOST"):
        defaults = getattr(module, f"DEFAULT_{name}_COLLECTIONS")
        assert {"all", "default", "losses"} <= defaults <= set(keys.values())


collections = st.builds(
    Collection,
    st.sampled_from(["c", "relu", "gewichte_ü"]),
    st.lists(st.sampled_from(["a", "^b.*", 'c"d', "e,f"]), max_size=3),
    st.sets(st.text(max_size=5), max_size=3),
    st.none() | st.just(ReductionConfig(["median", "max"], save_shape=True)),
    st.none() | st.just(SaveConfig(save_interval=5, when_nan="loss")),
    st.booleans(),
    st.lists(st.sampled_from(["x", "y$"]), max_size=2),
)


@given(collections)
def test_json_round_trip(collection: Collection) -> None:
    assert Collection.from_json(collection.to_json()) == collection
