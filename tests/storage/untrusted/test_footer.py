"""Footers are refused before pyarrow sees them, and those that it writes are not."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from tests.faults import footers
from tests.faults.footers import BINARY, LONG, Node, numbers, struct

from smdebug.exceptions import IndexReaderException
from smdebug.mode_keys import ModeKeys
from smdebug.storage.arrow import pa, pq
from smdebug.storage.untrusted import footer as index_footer
from smdebug.storage.untrusted.footer import check_footer
from smdebug.storage.v2.index import IndexRow, encode_index, rows_to_table

if TYPE_CHECKING:
    import re
    from collections.abc import Callable

OPTIONS: list[dict[str, Any]] = [
    {},
    {"write_page_index": True},
    {"write_statistics": False},
    {"write_statistics": ["step"]},
    {"use_dictionary": False, "compression": "none"},
    {"version": "1.0"},
    {"data_page_version": "2.0", "data_page_size": 16},
    {"sorting_columns": [pq.SortingColumn(0)]},
    {"row_group_size": 1},
]


def table() -> pa.Table:
    names = ["a", "b" * 60, "c" * 500, "d" * 5000]
    rows = [
        IndexRow(n, ModeKeys.TRAIN, n, name, 0.0, 0, value=1.0, shape=(2, n))
        for n, name in enumerate(names)
    ]
    return rows_to_table(rows, "w", 0)


def footer_of(data: bytes) -> bytes:
    return footers.split(data)[1]


def written(**options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table(), sink, **options)
    return footer_of(bytes(sink.getvalue()))


@pytest.fixture(autouse=True)
def patterns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has the usual column chunks be looked for from the first on."""
    monkeypatch.setattr(index_footer, "_WORTH", -1)


def unusual(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has every column chunk be read."""
    monkeypatch.setattr(index_footer, "_WORTH", 10**9)


@pytest.mark.parametrize("read", [False, True])
@pytest.mark.parametrize("options", OPTIONS)
def test_footers_of_pyarrow_are_accepted(
    options: dict[str, Any], read: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if read:
        unusual(monkeypatch)
    check_footer(written(**options))


def test_index_file_matches_the_pattern(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: Any) -> int:
        raise AssertionError

    monkeypatch.setattr(index_footer, "_check_chunk", none)
    check_footer(footer_of(bytes(encode_index(table().slice(0, 2), "run"))))


def test_patterns_are_compiled_for_many_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    made: set[index_footer.Leaf] = set()
    monkeypatch.setattr(index_footer, "_WORTH", 100)
    monkeypatch.setattr(index_footer, "_met", Counter())
    usual = index_footer._usual

    def counted(leaf: index_footer.Leaf) -> re.Pattern[bytes]:
        made.add(leaf)
        return usual(leaf)

    monkeypatch.setattr(index_footer, "_usual", counted)
    footer = footer_of(bytes(encode_index(table().slice(0, 2), "run")))
    check_footer(footer)
    assert not made
    for _ in range(101):
        check_footer(footer)
    assert len(made) > 1


def test_a_later_version_may_add_fields() -> None:
    tree = footers.parse(written())
    chunk = tree.get(4).value[0].get(1).value[0]  # type: ignore[union-attr]
    for node in (tree, chunk, chunk.get(3), chunk.get(3, 12), tree.get(2).value[1]):  # type: ignore[union-attr]
        node.value.append((30, struct(_1=numbers(1, 2), _2=Node(BINARY, b"x"))))
    check_footer(footers.encode(tree))


def other(fields: Node, field: int, node: Node) -> None:
    fields.value = sorted(
        [*(each for each in fields.value if each[0] != field), (field, node)],
        key=lambda each: each[0],
    )


def of_step(tree: Node) -> Node:
    found: Node = tree.get(4).value[0].get(1).value[0]  # type: ignore[union-attr]
    return found


LIES: dict[str, Callable[[Node], object]] = {
    # Old versions of pyarrow write none: both have one entry for a column that is never null.
    "definition levels": lambda t: other(of_step(t).get(3), 16, struct(_3=numbers(1, 2))),  # type: ignore[arg-type]
    "repetition levels": lambda t: other(of_step(t).get(3), 16, struct(_2=numbers(1, 2))),  # type: ignore[arg-type]
    "texts of numbers": lambda t: other(of_step(t).get(3), 16, struct(_1=Node(LONG, 3))),  # type: ignore[arg-type]
    "a short bound": lambda t: other(of_step(t).get(3, 12), 6, Node(BINARY, b"1234")),  # type: ignore[arg-type]
    "an old short bound": lambda t: other(of_step(t).get(3, 12), 1, Node(BINARY, b"")),  # type: ignore[arg-type]
    "an encrypted column": lambda t: other(of_step(t), 8, struct(_1=struct())),
    "encrypted metadata": lambda t: other(of_step(t), 9, Node(BINARY, b"x")),
    "an encrypted file": lambda t: other(t, 8, struct(_1=struct())),
    "no metadata": lambda t: of_step(t).value.pop(1),
    "a column less": lambda t: t.get(4).value[0].get(1).value.pop(),  # type: ignore[union-attr]
    "another type": lambda t: other(of_step(t).get(3), 1, Node(footers.INT, 6)),  # type: ignore[arg-type]
    "a wide type": lambda t: other(t.get(2).value[1], 3, Node(LONG, 0)),  # type: ignore[union-attr]
    "a type beyond 32 bits": lambda t: other(
        t.get(2).value[1],  # type: ignore[union-attr]
        3,
        Node(footers.INT, 1 << 32),
    ),
    "a field twice": lambda t: t.value.insert(1, t.value[1]),
    "no schema": lambda t: t.value.pop(1),
    "children": lambda t: other(t.get(2).value[0], 5, Node(footers.INT, 90)),  # type: ignore[union-attr]
    "fewer children": lambda t: other(t.get(2).value[0], 5, Node(footers.INT, 3)),  # type: ignore[union-attr]
    "deep": lambda t: other(t, 30, footers.nested(50, footers.STRUCT)),
    "long": lambda t: other(t, 30, numbers(*[1] * 100_000)),
}


@pytest.mark.parametrize("read", [False, True])
@pytest.mark.parametrize("lie", LIES)
def test_invalid_footers_are_rejected(
    lie: str, read: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if read:
        unusual(monkeypatch)
    tree = footers.parse(written())
    LIES[lie](tree)
    with pytest.raises(IndexReaderException, match="footer"):
        check_footer(footers.encode(tree))


def test_a_footer_that_is_cut_off() -> None:
    whole = written()
    for end in range(len(whole)):
        with pytest.raises(IndexReaderException, match="footer"):
            check_footer(whole[:end])
    with pytest.raises(IndexReaderException, match="after its end"):
        check_footer(whole + b"\x00")
