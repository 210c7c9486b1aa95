"""What every `Store` must do, as a pytest class to subclass."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import pytest

from smdebug.exceptions import SMDebugValueError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from smdebug.storage.stores.base import Buffer, Store

_TEN = b"0123456789"

# Sorted as plain strings: '-' and '.' come before '/', '%' and ' ' before all of them.
_KEYS = sorted(
    [
        "a b/x",
        "a%20b/x",
        "a%2Fb",
        "a-b/x",
        "a-b.x",
        "a.b",
        "a/b",
        "a/b-c",
        "a/c/d/e",
        "a/c/d-e",
        "a/c.d",
        "aa",
        "b",
        "ünï/çødé",
    ]
)
# Whole folders, beginnings of names, names themselves, and what is not there.
_PREFIXES = [
    "a",
    "a/",
    "a/c",
    "a/c/",
    "a/c/d",
    "a/c.",
    "a-",
    "a b",
    "a b/",
    "a%",
    "a%2",
    "a%20b/",
    "b",
    "b/",
    "zzz",
    "zzz/",
    "a/zzz/",
    "a/b/",
    "ü",
    "ünï/",
]
_FORMS: list[tuple[int, int | None]] = [(0, None), (0, 0), (0, 3), (3, None), (-3, None), (-3, 1)]
_BAD_KEYS = ["", "/a", "a/", "../a", "a/../b", "a/..", "./a", "a/./b", "a//b", "a\\b", "a\0b"]


class StoreContract:
    """Subclass it and override the `store` fixture with an empty store.

    Example:
        >>> class TestMyStore(StoreContract):
        ...     @pytest.fixture
        ...     def store(self) -> Store:
        ...         return MyStore()
    """

    @pytest.fixture
    def store(self) -> Store:
        raise NotImplementedError("override the fixture `store` with one that gives an empty store")

    # ---- reading and writing

    def test_says_what_it_is(self, store: Store) -> None:
        assert isinstance(store.url, str)
        assert store.parallel >= 1
        assert isinstance(store.remote, bool)

    def test_reads_what_was_written(self, store: Store) -> None:
        store.write("events/x", [b"ab", b"", b"c"])
        assert bytes(store.read("events/x")) == b"abc"

    @pytest.mark.parametrize("start", [0, 4, 9, 10, 11, 1000, -1, -4, -10, -11, -1000])
    def test_range_is_a_slice(self, store: Store, start: int) -> None:
        store.write("x", [_TEN])
        assert bytes(store.read("x", start)) == _TEN[start:]
        for length in (0, 1, 6, 10, 11, 2**40):
            assert bytes(store.read("x", start, length)) == _TEN[start:][:length]

    @pytest.mark.parametrize("start", [0, 5, -5])
    def test_empty_object(self, store: Store, start: int) -> None:
        store.write("empty", [])
        store.write("hollow", [b"", bytearray(), memoryview(b"")])
        assert list(store.list()) == ["empty", "hollow"]
        for length in (None, 0, 5):
            assert bytes(store.read("empty", start, length)) == b""
            assert bytes(store.read("hollow", start, length)) == b""

    def test_large_object_and_its_pieces(self, store: Store) -> None:
        piece = bytes(range(256)) * 1024
        store.write("large", [piece, piece, piece])
        assert bytes(store.read("large")) == piece * 3
        assert bytes(store.read("large", 5, 300_000)) == (piece * 3)[5:300_005]
        assert bytes(store.read("large", -70_001, 70_000)) == (piece * 3)[-70_001:-1]

    def test_many_chunks(self, store: Store) -> None:
        chunks = [b"%05d" % number for number in range(2500)]
        store.write("many", iter(chunks))
        assert bytes(store.read("many")) == b"".join(chunks)

    @pytest.mark.parametrize(
        "chunk",
        [
            b"bytes",
            bytearray(b"bytearray"),
            memoryview(b"view"),
            memoryview(b"a view that is cut")[2:6],
            memoryview(array("f", [1.5, -2.0, 0.25])),
            memoryview(array("d", [1.0])),
            memoryview(array("f")),
            memoryview(bytes(24)).cast("f", [2, 3]),
        ],
        ids=["bytes", "bytearray", "view", "cut", "float32", "float64", "no-floats", "matrix"],
    )
    def test_chunk_types(self, store: Store, chunk: Buffer) -> None:
        store.write("x", [b"<", chunk, b">"])
        assert bytes(store.read("x")) == b"<" + bytes(chunk) + b">"

    def test_views_are_read_only(self, store: Store) -> None:
        store.write("small", [_TEN])
        store.write("large", [bytes(1 << 17)])
        for view in (store.read("small"), store.read("small", 2, 3), store.read("large")):
            assert isinstance(view, memoryview)
            assert view.format == "B"
            assert view.readonly

    def test_overwriting_replaces(self, store: Store) -> None:
        store.write("x", [b"a longer first content"])
        before = store.read("x")
        store.write("x", [b"second"])
        assert bytes(store.read("x")) == b"second"
        assert bytes(before) == b"a longer first content"
        assert list(store.list()) == ["x"]

    @pytest.mark.parametrize(("start", "length"), _FORMS)
    def test_missing_key(self, store: Store, start: int, length: int | None) -> None:
        store.write("folder/x", [_TEN])
        for key in ("folder/y", "elsewhere/x", "folder", "folder/x/under", "fol"):
            with pytest.raises(KeyError):
                store.read(key, start, length)

    def test_failing_chunks_leave_nothing(self, store: Store) -> None:
        with pytest.raises(ZeroDivisionError):
            store.write("x", _failing())
        assert list(store.list()) == []
        with pytest.raises(KeyError):
            store.read("x")

    def test_failing_chunks_leave_the_old_object(self, store: Store) -> None:
        store.write("x", [b"old"])
        with pytest.raises(ZeroDivisionError):
            store.write("x", _failing())
        assert bytes(store.read("x")) == b"old"
        assert list(store.list()) == ["x"]

    def test_nobody_sees_a_part(self, store: Store) -> None:
        def chunks() -> Iterator[Buffer]:
            yield bytes(2 << 20)
            assert list(store.list()) == []
            with pytest.raises(KeyError):
                store.read("x")
            yield b"end"

        store.write("x", chunks())
        assert len(store.read("x")) == (2 << 20) + 3

    # ---- deleting

    def test_delete(self, store: Store) -> None:
        store.write("a/x", [b"1"])
        store.write("a/y", [b"2"])
        store.delete("a/x")
        assert list(store.list()) == ["a/y"]
        with pytest.raises(KeyError):
            store.read("a/x")

    @pytest.mark.parametrize("key", ["nothing", "no/folder", "a/y", "a", "a/x/under"])
    def test_deleting_what_is_missing(self, store: Store, key: str) -> None:
        store.write("a/x", [b"1"])
        store.delete(key)
        assert list(store.list()) == ["a/x"]

    def test_a_deleted_key_can_be_written_again(self, store: Store) -> None:
        store.write("a/b/x", [b"1"])
        store.delete("a/b/x")
        store.write("a/b/x", [b"2"])
        assert bytes(store.read("a/b/x")) == b"2"

    # ---- listing

    def test_nothing_there(self, store: Store) -> None:
        assert list(store.list()) == []
        assert list(store.list("index/")) == []
        assert list(store.list("index/", "index/000")) == []

    def test_list_is_sorted_as_plain_strings(self, store: Store) -> None:
        _fill(store)
        assert list(store.list()) == _KEYS
        for key in _KEYS:
            assert bytes(store.read(key)) == key.encode()

    @pytest.mark.parametrize("prefix", _PREFIXES)
    def test_list_by_prefix(self, store: Store, prefix: str) -> None:
        _fill(store)
        assert list(store.list(prefix)) == [key for key in _KEYS if key.startswith(prefix)]

    @pytest.mark.parametrize("after", ["a", "a-b.x", "a/", "a/b", "a/c", "a/c/d-e", "a/zzz", "zz"])
    @pytest.mark.parametrize("prefix", ["", "a", "a/", "a/c/"])
    def test_list_after(self, store: Store, prefix: str, after: str) -> None:
        _fill(store)
        expected = [key for key in _KEYS if key.startswith(prefix) and key > after]
        assert list(store.list(prefix, after)) == expected

    @pytest.mark.parametrize("prefix", ["/", "../", "..", "a/../", "./", "a//", "/etc/"])
    def test_list_stays_inside(self, store: Store, prefix: str) -> None:
        store.write("a/x", [b"1"])
        try:
            found = list(store.list(prefix))
        except SMDebugValueError:
            return
        assert found == []

    # ---- keys

    @pytest.mark.parametrize("key", _BAD_KEYS)
    def test_bad_keys_are_refused(self, store: Store, key: str) -> None:
        with pytest.raises(SMDebugValueError, match="key"):
            store.read(key)
        with pytest.raises(SMDebugValueError, match="key"):
            store.read(key, 0, 0)
        with pytest.raises(SMDebugValueError, match="key"):
            store.write(key, [b"x"])
        with pytest.raises(SMDebugValueError, match="key"):
            store.delete(key)
        assert list(store.list()) == []


def _fill(store: Store) -> None:
    for key in reversed(_KEYS):
        store.write(key, [key.encode()])


def _failing() -> Iterator[Buffer]:
    yield b"first"
    raise ZeroDivisionError
