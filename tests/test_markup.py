"""Long texts are cut, and those that stand together can still be told apart."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from smdebug.markup import cut, cut_apart

WORDS = st.sampled_from(["a", "layers", "12", ".", "/", "_", "…", "weight"])
TEXTS = st.lists(st.lists(WORDS, max_size=8).map("".join), max_size=5)


@given(TEXTS, st.integers(1, 20))
def test_they_fit_and_short_ones_stay(texts: list[str], length: int) -> None:
    shown = cut_apart(texts, length)
    assert [len(each) <= length for each in shown] == [True] * len(texts)
    short = [each for each in texts if len(each) <= length]
    assert [new for old, new in zip(texts, shown, strict=True) if len(old) <= length] == short
    assert len(set(shown)) >= len({cut(each, length) for each in texts})


def test_as_ever_where_that_tells_them_apart() -> None:
    names = ["first_layer_of_them_all", "second_layer_of_them_all"]
    assert cut_apart(names, 12) == [cut(each, 12) for each in names]


def test_two_differences_of_one_name() -> None:
    names = [f"model.layers.{n}.attention.{part}.weight" for n in (1, 11) for part in "qk"]
    assert cut_apart(names, 18) == [
        "…1.attent…q.weight", "…1.attent…k.weight", "…11.atten…q.weight", "…11.atten…k.weight",
    ]  # fmt: skip


def test_what_cannot_be_told_apart() -> None:
    assert cut_apart(["aaaaaa", "bbbbbb"], 1) == ["…", "…"]
    assert cut_apart(["same_text", "same_text"], 5) == [cut("same_text", 5)] * 2
    assert cut_apart([], 5) == []
