"""JSON with trailing commas."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smdebug.config.lenient_json import parse_json, without_trailing_commas


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{}", {}),
        ('{"a": 1,}', {"a": 1}),
        ('{"a": [1, 2 , \n ] , \t}', {"a": [1, 2]}),
        ('[[1,],{"b":[],},]', [[1], {"b": []}]),
        ('{"a": ",}"}', {"a": ",}"}),
        ('{"a": "x\\",]",}', {"a": 'x",]'}),
        ('{"a": "\\\\",}', {"a": "\\"}),
        ('["a,",]', ["a,"]),
        ("[true,null,]", [True, None]),
    ],
)
def test_accepted(text: str, expected: Any) -> None:
    assert parse_json(text) == expected


@pytest.mark.parametrize("text", ["[,]", "{,}", "[1,,]", "[1,,2]", '{"a":,}', ",", "1,", '"a', ""])
def test_still_mistakes(text: str) -> None:
    with pytest.raises(json.JSONDecodeError):
        parse_json(text)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet='",]}[{\\ab '),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(alphabet='",]}\\a', max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(JSON_VALUES, st.sampled_from([None, 2]))
def test_strict_json_is_unchanged(value: Any, indent: int | None) -> None:
    text = json.dumps(value, indent=indent)
    assert without_trailing_commas(text) == text
