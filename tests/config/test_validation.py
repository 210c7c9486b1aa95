"""Checks of single values."""

from __future__ import annotations

import pytest

from smdebug.config import validation
from smdebug.exceptions import SMDebugValueError


def test_long_values_are_cut() -> None:
    with pytest.raises(SMDebugValueError) as caught:
        validation.text("name", ["x"] * 1000)
    assert len(str(caught.value)) < 200
    assert str(caught.value).endswith("...")


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, []), ("", []), ("a, b,,", ["a", "b"]), ([" a", ""], ["a"]), (("a,b",), ["a,b"])],
)
def test_comma_list(value: object, expected: list[str]) -> None:
    assert validation.comma_list("key", value) == expected


@pytest.mark.parametrize(
    ("value", "expected"), [(True, True), (0, False), ("TRUE", True), (" false ", False)]
)
def test_boolean(value: object, expected: bool) -> None:
    assert validation.boolean("key", value) is expected


def test_unknown_keys() -> None:
    known = ("save_interval", "LocalPath")
    assert validation.unknown_keys(["save_interval", "colour"], known) == ["colour"]
    with pytest.raises(
        SMDebugValueError, match=r"Unknown key 'localPath'. Did you mean 'LocalPath'"
    ):
        validation.unknown_keys(["localPath"], known)


def test_names_of_sets_are_sorted() -> None:
    assert validation.names("key", {"b", "a"}) == ["a", "b"]
