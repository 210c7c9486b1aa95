"""What to save of a tensor."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smdebug.config.reduction_config import ReductionConfig
from smdebug.exceptions import SMDebugValueError
from smdebug.reductions import ALLOWED_NORMS, ALLOWED_REDUCTIONS, COUNTS

READABLE_BY_SMDEBUG_1 = {"min", "max", "mean", "std", "variance", "sum", "prod"}
READABLE_BY_SMDEBUG_1 |= {"l1_norm", "l2_norm"}
READABLE_BY_SMDEBUG_1 |= {f"abs_{name}" for name in READABLE_BY_SMDEBUG_1}


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({}, ()),
        (
            {
                "abs_norms": ["l2"],
                "abs_reductions": ["max"],
                "norms": ["l1"],
                "reductions": ["min", "nans"],
            },
            ("min", "nans", "l1", "abs_max", "abs_l2"),
        ),
        ({"reductions": ["median", "max", "min", "max"]}, ("max", "min", "median")),
        ({"reductions": "min, max"}, ("min", "max")),
        ({"norms": ("l1_norm",)}, ("l1",)),
        ({"reductions": {"max", "min"}}, ("max", "min")),
    ],
)
def test_names(fields: dict[str, Any], names: tuple[str, ...]) -> None:
    assert ReductionConfig(**fields).names == names


BAD_FIELDS: list[tuple[str, object, str, str]] = [
    ("reductions", ["mode"], "min", "'mode'"),
    ("reductions", ["l1"], "min", "'l1'"),
    ("reductions", ["abs_max"], "min", "'abs_max'"),
    ("reductions", ["Min"], "min", "'Min'"),
    ("reductions", 5, "a list of strings", "5"),
    ("reductions", [5], "a list of strings", "[5]"),
    ("norms", ["max"], "l1, l2", "'max'"),
    ("norms", ["l3"], "l1, l2", "'l3'"),
    ("abs_reductions", ["l2"], "min", "'l2'"),
    ("abs_reductions", ["nans"], "min", "'nans'"),
    ("abs_norms", ["mean"], "l1, l2", "'mean'"),
    ("save_raw_tensor", "true", "True or False", "'true'"),
    ("save_raw_tensor", 1, "True or False", "1"),
    ("save_raw_tensor", None, "True or False", "None"),
    ("save_shape", "false", "True or False", "'false'"),
    ("save_shape", 0, "True or False", "0"),
]


@pytest.mark.parametrize(("key", "value", "expected", "given_value"), BAD_FIELDS)
def test_bad_field(key: str, value: Any, expected: str, given_value: str) -> None:
    with pytest.raises(SMDebugValueError) as caught:
        ReductionConfig(**{key: value})
    assert all(part in str(caught.value) for part in (key, expected, given_value))


BAD_DICTS: list[tuple[Any, list[str]]] = [
    ([], ["reduction_config", "dict", "[]"]),
    ("min", ["reduction_config", "dict", "'min'"]),
    ({"reductions": "min,mode"}, ["reductions", "median", "'mode'"]),
    ({"reductions": "abs_l3"}, ["reductions", "min", "'l3'"]),
    ({"reductions": 5}, ["reductions", "commas", "5"]),
    ({"reductions": "min", "save_raw_tensor": "true"}, ["save_raw_tensor", "True", "'true'"]),
]


@pytest.mark.parametrize(("params", "fragments"), BAD_DICTS)
def test_bad_dict(params: Any, fragments: list[str]) -> None:
    with pytest.raises(SMDebugValueError) as caught:
        ReductionConfig.from_dict(params)
    assert all(fragment in str(caught.value) for fragment in fragments), str(caught.value)


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        (None, None),
        ({}, ReductionConfig()),
        ({"reductions": ""}, ReductionConfig()),
        (
            {"reductions": " min , abs_max, l1_norm,abs_l2_norm", "save_raw_tensor": True},
            ReductionConfig(["min"], ["max"], ["l1"], ["l2"], save_raw_tensor=True),
        ),
        ({"reductions": "l1,abs_l2"}, ReductionConfig(norms=["l1"], abs_norms=["l2"])),
        ({"reductions": ["median", "zeros"]}, ReductionConfig(["median", "zeros"])),
        ({"reductions": "min", "later_version": 1}, ReductionConfig(["min"])),
    ],
)
def test_from_dict(params: Any, expected: ReductionConfig | None) -> None:
    assert ReductionConfig.from_dict(params) == expected


def test_lists_of_reductions_of_smdebug_1() -> None:
    config = ReductionConfig(["min", "nans"], ["max"], ["l1"], ["l2"], save_shape=True)
    assert config.reductions == ["min", "nans"]
    assert config.abs_reductions == ["max"]
    assert config.norms == ["l1"]
    assert config.abs_norms == ["l2"]
    assert eval(repr(config)) == config
    assert hash(config) == hash(eval(repr(config)))
    with pytest.raises(AttributeError):
        config.save_shape = False  # type: ignore[misc]


def test_json_is_readable_by_smdebug_1() -> None:
    config = ReductionConfig(
        [*ALLOWED_REDUCTIONS, *COUNTS], ALLOWED_REDUCTIONS, ALLOWED_NORMS, ALLOWED_NORMS
    )
    fields = config.to_json_dict()
    assert set(fields["reductions"].split(",")) == READABLE_BY_SMDEBUG_1
    assert fields["more_reductions"] == "median,nans,infs,zeros,abs_median"
    plain = ReductionConfig(["min"], ["max"], ["l1"], ["l2"]).to_json_dict()
    assert plain == {
        "save_raw_tensor": False,
        "reductions": "min,l1_norm,abs_max,abs_l2_norm",
        "save_shape": False,
    }


def names_of(allowed: tuple[str, ...]) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(allowed), max_size=6)


reduction_configs = st.builds(
    ReductionConfig,
    names_of((*ALLOWED_REDUCTIONS, *COUNTS)),
    names_of(ALLOWED_REDUCTIONS),
    names_of(ALLOWED_NORMS),
    names_of(ALLOWED_NORMS),
    st.booleans(),
    st.booleans(),
)


@given(reduction_configs)
def test_json_round_trip(config: ReductionConfig) -> None:
    assert ReductionConfig.from_json(config.to_json()) == config
    names = json.loads(config.to_json())["reductions"].split(",")
    assert set(names) <= READABLE_BY_SMDEBUG_1 | {""}


@pytest.mark.parametrize("key", ["reduction", "save_raw_tensors"])
def test_misspelled_key_gets_a_suggestion(key: str) -> None:
    with pytest.raises(SMDebugValueError, match=f"{key}.*Did you mean"):
        ReductionConfig.from_dict({key: "min"})


def test_invalid_json() -> None:
    with pytest.raises(SMDebugValueError, match="reduction_config must be JSON"):
        ReductionConfig.from_json("{")
