"""Regexes of somebody else: the same answers as those of `re`, in bounded time."""

from __future__ import annotations

import logging
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smdebug.config.collection_manager import CollectionManager
from smdebug.config.untrusted_regex import ForeignRegex, Work

# Those that smdebug 1.0.34 writes, and what people write.
KNOWN = [
    "^(?!gradient).*weight", "^weights/.*/((?!bias).)*$", ".*loss.*", "^gradient", "[Ll]oss",
    "^[a-zA-z]+-(auc|map)$", "[^/bias]$", "bias$", "relu_output|tanh", "(?i)LOSS", r"\bfc\b",
    "(?<!gradient/)fc", "(a|b)*abb", "a{2,3}b", "x*", "", "^$", "a.c", "(?<=ab)c", r"\d+_\w*$",
    "(?:a|ab)(?:c|bcd)(?:d*)$", "^(?=.*x)(?=.*y)", "(?m)^b", "a*?b", r"\Aab?\Z", "(?s)a.b",
    "(?i:ABB)", "a(?i:B(?-i:c))d", "(?!(?i:A))b", r"^(?![^-]*-(?i:AUC|map)(?:@[^-]*)?-?$)[^-]*-.+$",
]  # fmt: skip
NAMES = [
    "gradient/fc.weight", "fc.weight", "weights/a/bias/b", "weights/a/kernel", "loss", "",
    "CrossEntropyLoss_output_0", "train-auc", "xgb/bias", "fc/relu_output_0", "abb", "aaaab",
    "a\nb", "ab\n", "abcd", "x1_y", "yx",
]  # fmt: skip


@pytest.mark.parametrize("regex", KNOWN)
def test_known_regexes(regex: str) -> None:
    foreign = ForeignRegex(regex, "mine", Work())
    for name in NAMES:
        assert foreign.search(name) == bool(re.search(regex, name)), name


_LEAVES = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", "^", "$", r"\b", r"\w", "ab"])
_REGEXES = st.recursive(
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


@settings(max_examples=300, deadline=None)
@given(_REGEXES, st.text("abB \n", max_size=8))
def test_any_regex(regex: str, name: str) -> None:
    assert ForeignRegex(regex, "mine", Work()).search(name) == bool(re.search(regex, name))


@pytest.mark.parametrize(
    "regex",
    ["(a+)+$", "(a|a)*b", "(a|aa)+$", "(x+x+)+y", "((a*)*)*b", "(a?){30}a{30}b", "(.*a){20}b"],
)
def test_what_takes_re_for_ever(regex: str) -> None:
    work = Work()
    assert not ForeignRegex(regex, "mine", work).search("a" * 3000 + "c")
    # One step for each character, and a few for each set of ways.
    assert Work().left - work.left < 200_000


@pytest.mark.parametrize(
    ("regex", "why"),
    [
        (r"(a)\1", "groupref is not followed"),
        ("(?:a{1000}){1000}", "more than 5000 states"),
        ("a" * 3000, "3000 characters"),
        ("(", "missing )"),
        ("(?:" * 600 + ")" * 600, ""),
    ],
)
def test_what_is_not_followed(regex: str, why: str, caplog: pytest.LogCaptureFixture) -> None:
    foreign = ForeignRegex(regex, "mine", Work())
    assert [foreign.search("a"), foreign.search("b")] == [False, False]
    for record in caplog.records:
        assert "collection 'mine'" in record.getMessage()
        assert why in record.getMessage()


def test_all_together_take_a_number_of_steps(caplog: pytest.LogCaptureFixture) -> None:
    work = Work(10_000)
    regexes = [ForeignRegex(f"a|b{number}", "mine", work) for number in range(100)]
    found = [regex.search(f"name{number}a") for number in range(100) for regex in regexes]
    assert found[0]
    assert not found[-1]
    assert caplog.text.count("take too long") == 1


def test_of_a_run_and_of_a_user() -> None:
    entry = {"include_regex": ["(a+)+$"], "exclude_regex": "^no", "tensor_names": ["listed"]}
    manager = CollectionManager.from_json_dict({"collections": {"mine": entry}}, Work())
    collection = manager.get("mine")
    assert collection.include_regex == ["(a+)+$"]
    assert [collection.matches(name) for name in ("a" * 40 + "b", "xa", "no a", "listed")] == [
        False, True, False, True,
    ]  # fmt: skip
    # What a user adds to it is of `re`, with everything that has.
    collection.include_regex.append(r"(x)\1")
    assert collection.matches("xx")


def test_a_run_whose_regexes_are_no_texts(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        content = {"collections": {"mine": {"include_regex": [3], "tensor_names": ["x"]}}}
        manager = CollectionManager.from_json_dict(content, Work())
    assert "include_regex is ignored" in caplog.text
    assert manager.get("mine").matches("x")
