"""Names that must not collide."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from smdebug.config.names import unique_name


def test_numbers_are_appended() -> None:
    assert unique_name("a", set()) == "a"
    assert unique_name("a", {"a": 1}) == "a_1"
    assert unique_name("a", ["a", "a_1", "a_3"]) == "a_2"


@given(st.lists(st.sampled_from(["a", "a_1", "a_2", "b", "a_1_1"])))
def test_names_are_distinct(names: list[str]) -> None:
    given: list[str] = []
    for name in names:
        unique = unique_name(name, given)
        assert unique.startswith(name)
        given.append(unique)
    assert len(set(given)) == len(names)
