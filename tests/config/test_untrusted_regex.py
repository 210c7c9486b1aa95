"""Regexes of unknown origin give the answers of `re`, in bounded time."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest
import regex as regex_package
from hypothesis import given, settings
from hypothesis import strategies as st

from smdebug.config import untrusted_regex
from smdebug.config.collection import Collection
from smdebug.config.collection_manager import CollectionManager
from smdebug.config.untrusted_regex import UntrustedRegex, UntrustedRegexes, is_quick

# Those that smdebug 1.0.34 writes, and what people write.
KNOWN = [
    "^(?!gradient).*weight", "^weights/.*/((?!bias).)*$", ".*loss.*", "^gradient", "[Ll]oss",
    "^[a-zA-z]+-(auc|map)$", "[^/bias]$", "bias$", "relu_output|tanh", "(?i)LOSS", r"\bfc\b",
    "(?<!gradient/)fc", "(a|b)*abb", "a{2,3}b", "x*", "", "^$", "a.c", "(?<=ab)c", r"\d+_\w*$",
    "(?:a|ab)(?:c|bcd)(?:d*)$", "^(?=.*x)(?=.*y)", "(?m)^b", "a*?b", r"\Aab?\Z", "(?s)a.b",
    "(?i:ABB)", "a(?i:B(?-i:c))d", "(?!(?i:A))b", r"^(?![^-]*-(?i:AUC|map)(?:@[^-]*)?-?$)[^-]*-.+$",
    r"(a)\1", "(?P<x>b)(?P=x)", "(a)?(?(1)b|c)", "a{,2}b", "[a-z&&b]", "[&--b]", "[a||b]",
    "(?x)a b",
]  # fmt: skip
NAMES = [
    "gradient/fc.weight", "fc.weight", "weights/a/bias/b", "weights/a/kernel", "loss", "",
    "CrossEntropyLoss_output_0", "train-auc", "xgb/bias", "fc/relu_output_0", "abb", "aaaab",
    "a\nb", "ab\n", "abcd", "x1_y", "yx", "größe/αβ_1", "&-|",
]  # fmt: skip


def untrusted(pattern: str) -> UntrustedRegex:
    return UntrustedRegexes().get(pattern, "mine")


@pytest.mark.filterwarnings("ignore:Possible:FutureWarning")
@pytest.mark.parametrize("pattern", KNOWN)
def test_known_regexes(pattern: str) -> None:
    found = untrusted(pattern)
    assert found.matching(NAMES) == [name for name in NAMES if re.search(pattern, name)]
    for name in NAMES:
        assert found.search(name) == bool(re.search(pattern, name)), name


_LEAVES = st.sampled_from(
    ["a", "b", ".", "[ab]", "[^a]", "^", "$", r"\b", r"\w", "ab", r"\s", r"\W"]
)
_PATTERNS = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda two: f"(?:{two[0]}|{two[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+?", "?", "{0,2}", "{2}"])).map(
            lambda two: f"({two[0]}){two[1]}"
        ),
        inner.map(lambda one: f"(?={one})"),
        inner.map(lambda one: f"(?i:{one})"),
        inner.map(lambda one: f"(?!{one})"),
    ),
    max_leaves=5,
)


@settings(max_examples=500, deadline=None)
@given(_PATTERNS, st.text("abB \nßé_", max_size=8))
def test_any_regex(pattern: str, name: str) -> None:
    assert untrusted(pattern).search(name) == bool(re.search(pattern, name))


@pytest.mark.filterwarnings("ignore:Possible nested set:FutureWarning")
@pytest.mark.parametrize(
    ("pattern", "name", "with_re"),
    [
        ("(?:abc){e<=1}", "abd", False),
        ("[[:alpha:]]", "x", False),
        (r"^\w$", "\u0301", False),
        (r"\s", "\x1c", True),
    ],
)
def test_where_regex_differs_from_re(pattern: str, name: str, with_re: bool) -> None:
    """The differences that the module's docstring lists."""
    assert bool(re.search(pattern, name)) is with_re
    assert untrusted(pattern).search(name) is not with_re


@pytest.mark.parametrize(
    "pattern",
    ["(a+)+$", "(a|aa)+$", "(?:a?){30}a{30}b", "^(?=(?:.*a){20}b)", "(?:a+?)*?(?:b*?)*?$"],
)
def test_catastrophic_pattern_is_stopped(pattern: str, caplog: pytest.LogCaptureFixture) -> None:
    regexes = UntrustedRegexes()
    found = regexes.get(pattern, "mine")
    assert found.matching(["a" * 3000 + "c", "a" * 2000 + "bc"]) == []
    # It matches nothing from now on, without another search.
    searches = regexes.searches
    assert not found.search("aaaa")
    assert regexes.searches == searches
    assert "Collection 'mine': ignoring the regex" in caplog.text
    assert pattern in caplog.text
    assert caplog.text.count("takes more than 0.05 s") == 1


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(?:a{1000}){1000}", "nested repeats"),
        ("a{4294967294}", "nested repeats"),
        # Each `+` doubles what is in its group.
        ("(?:" * 20 + "a?" + ")+" * 20, "nested repeats"),
        ("a" * 3000, "3000 characters"),
        ("(", "missing )"),
        ("(?R)?b|a(?R)", "unknown extension"),
        ("(?:" * 600 + ")" * 600, ""),
    ],
)
def test_patterns_that_are_rejected(
    pattern: str, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    found = untrusted(pattern)
    assert [found.search("a"), found.search("b")] == [False, False]
    assert "collection 'mine'" in caplog.text.lower()
    assert why in caplog.text
    assert len(caplog.records) == 1


def test_regexes_share_a_budget(caplog: pytest.LogCaptureFixture) -> None:
    regexes = UntrustedRegexes(seconds=1.0)
    assert regexes.get("a$", "first").search("a")
    regexes.spend(2.0)
    assert regexes.get("a$", "first").matching(["a", "ba"]) == ["a"]
    assert not regexes.get("b$", "second").search("ab")
    assert regexes.searches == 1
    assert caplog.text.count("together they take too long") == 1
    assert "beginning with 'a$' of collection 'first'" in caplog.text


def test_every_name_adds_to_the_budget() -> None:
    regexes = UntrustedRegexes(seconds=-1.0)
    assert not regexes.get("a$", "first").search("a")
    regexes.number_names([f"name{number}" for number in range(6000)])
    assert regexes.get("a$", "first").search("a")


def test_run_with_many_names_is_within_the_budget(caplog: pytest.LogCaptureFixture) -> None:
    names = [f"gradient/model.layers.{number}.weight" for number in range(50_000)]
    ordinary = KNOWN[:10]
    entries = {f"c{number}": {"include_regex": [each]} for number, each in enumerate(ordinary)}
    regexes = UntrustedRegexes()
    manager = CollectionManager.from_json_dict({"collections": entries}, regexes)
    for _ in range(3):
        for pattern, collection in zip(ordinary, manager.get_collections().values(), strict=True):
            expected = [name for name in names if re.search(pattern, name)]
            assert collection.filter(names) == expected
        assert regexes.searches == 10 * 50_000
    assert not caplog.records


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("weight", True),
        ("^(?!gradient).*weight", True),
        ("[Ll]oss_(?!input).*output", True),
        ("(relu|tanh)_output", True),
        ("(a+)+$", False),
        ("a?a?a?aaa", False),
        ("(a|a)(a|a)b", False),
        (".*.*x", False),
        ("(?:layer){e}", False),
    ],
)
def test_only_searches_that_may_be_slow_have_a_timeout(pattern: str, expected: bool) -> None:
    assert is_quick(pattern) is expected
    seen: list[dict[str, Any]] = []
    real = regex_package.compile(pattern)

    class Recorded:
        def search(self, name: str, **options: Any) -> Any:
            seen.append(options)
            return real.search(name)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(untrusted_regex, "_compile", lambda pattern: Recorded())
        # In a long name a square is slow, too.
        untrusted(pattern).matching(["short", "long" * 200])
    assert ["timeout" in options for options in seen] == [not expected, True]


def test_timeout_caused_by_other_threads_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """`regex` counts the CPU time of the process: a search that was not slow itself is repeated."""
    real = regex_package.compile("a$")
    timeouts: list[float] = []

    class Interrupted:
        def search(self, name: str, timeout: float, concurrent: bool) -> Any:
            timeouts.append(timeout)
            if len(timeouts) < 3:
                raise TimeoutError
            return real.search(name)

    monkeypatch.setattr(untrusted_regex, "_compile", lambda pattern: Interrupted())
    assert untrusted("(a|b)+$").search("ba")
    assert timeouts == [0.05, 0.4, 3.2]


def test_regexes_of_a_run_and_of_the_user() -> None:
    entry = {"include_regex": ["(a|b)+$"], "exclude_regex": "^no", "tensor_names": ["listed"]}
    content = {"collections": {"mine": entry}}
    collection = CollectionManager.from_json_dict(content, UntrustedRegexes()).get("mine")
    assert collection.include_regex == ["(a|b)+$"]
    names = ["c" * 40, "xa", "no a", "listed", "xa"]
    assert [collection.matches(name) for name in names] == [False, True, False, True, True]
    assert collection.filter(names) == ["xa", "listed", "xa"]
    # What a user adds is compiled by `re`, which has no fuzzy matching.
    collection.include_regex.append("(?:abc){e<=1}")
    assert not collection.matches("abd")
    assert not collection.filter(["abd"])


@given(
    st.lists(st.sampled_from(["a", "b$", "^c", "ab"]), max_size=2),
    st.lists(st.sampled_from(["a", "b$", "^c", "ab"]), max_size=2),
    st.lists(st.text("abc", max_size=3), max_size=5),
    st.lists(st.text("abc", max_size=3), max_size=2),
)
def test_filter_agrees_with_matches(
    include: list[str], exclude: list[str], names: list[str], listed: list[str]
) -> None:
    own = Collection("mine", include, listed, exclude_regex=exclude)
    content = {"collections": {"mine": own.to_json_dict()}}
    stored = CollectionManager.from_json_dict(content, UntrustedRegexes()).get("mine")
    for collection in (own, stored):
        assert collection.filter(names) == [name for name in names if own.matches(name)]


def test_a_run_whose_regexes_are_not_strings(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        content = {"collections": {"mine": {"include_regex": [3], "tensor_names": ["x"]}}}
        manager = CollectionManager.from_json_dict(content, UntrustedRegexes())
    assert "ignoring include_regex" in caplog.text
    assert manager.get("mine").matches("x")
