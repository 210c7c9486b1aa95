"""Parquet footers made to do harm, with valid checksums.

A footer is taken apart into what the compact protocol of Thrift is made of, whatever it means,
changed in a few places, and written again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import crc32c

from smdebug.storage.format.checksum import PARQUET_KEY
from smdebug.storage.format.events import varint
from smdebug.storage.untrusted import MAGIC

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

TRUE, FALSE, BYTE, SHORT, INT, LONG, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
INTEGERS = (SHORT, INT, LONG)
_TAIL = 8
_DEEPEST = 64


@dataclass
class Node:
    """A value: of a field of a struct, or of a list.

    Attributes:
        kind: its type.
        value: a number, bytes, a list of nodes, or of pairs of a field and a node.
        of: the type of what a list holds.
        claimed: the declared length of a list; None for the real one.
    """

    kind: int
    value: Any
    of: int = 0
    claimed: int | None = None

    def copy(self) -> Node:
        value = self.value
        if self.kind == STRUCT:
            value = [(field, node.copy()) for field, node in value]
        elif self.kind in (LIST, SET):
            value = [node.copy() for node in value]
        return Node(self.kind, value, self.of, self.claimed)

    def get(self, *fields: int) -> Node | None:
        """The value of a field, or of one in it."""
        found: Node | None = self
        for field in fields:
            if found is None or found.kind != STRUCT:
                return None
            found = dict(found.value).get(field)
        return found


def struct(**fields: Node) -> Node:
    """A struct: `_3` is the field 3."""
    return Node(STRUCT, [(int(name[1:]), node) for name, node in fields.items()])


def numbers(*values: int) -> Node:
    """A list of integers."""
    return Node(LIST, [Node(LONG, value) for value in values], LONG)


class _Reading:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    def number(self) -> int:
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def bytes(self, size: int) -> bytes:
        self.at += size
        return self.data[self.at - size : self.at]

    def node(self, kind: int, listed: bool = False) -> Node:
        if kind in (TRUE, FALSE):
            return Node(self.byte() if listed else kind, None)
        if kind in INTEGERS:
            return Node(kind, self.number())
        if kind in (BYTE, DOUBLE):
            return Node(kind, self.bytes(1 if kind == BYTE else 8))
        if kind == BINARY:
            return Node(kind, self.bytes(self.varint()))
        if kind == LIST:
            head = self.byte()
            size = head >> 4 if head >> 4 < 15 else self.varint()
            return Node(kind, [self.node(head & 15, True) for _ in range(size)], head & 15)
        assert kind == STRUCT, kind
        fields, field = [], 0
        while head := self.byte():
            field = field + (head >> 4) if head >> 4 else self.number()
            fields.append((field, self.node(head & 15)))
        return Node(STRUCT, fields)


def parse(footer: bytes) -> Node:
    """A footer, taken apart."""
    return _Reading(footer).node(STRUCT)


def encode(node: Node, listed: bool = False) -> bytes:
    """A footer, or a piece of one, put together."""
    if node.kind in (TRUE, FALSE):
        return bytes([node.kind]) if listed else b""
    if node.kind in INTEGERS:
        value = int(node.value)
        return varint(((value << 1) ^ (value >> 63)) & (2**64 - 1))
    if node.kind in (BYTE, DOUBLE):
        return bytes(node.value)
    if node.kind == BINARY:
        claimed = len(node.value) if node.claimed is None else node.claimed
        return varint(claimed) + bytes(node.value)
    if node.kind in (LIST, SET):
        size = len(node.value) if node.claimed is None else node.claimed
        head = bytes([size << 4 | node.of]) if size < 15 else bytes([240 | node.of]) + varint(size)
        return head + b"".join(encode(each, True) for each in node.value)
    if node.kind != STRUCT:
        return b"\x00"
    parts, last = [], 0
    for field, each in node.value:
        if 0 < field - last < 16:
            parts.append(bytes([(field - last) << 4 | each.kind]))
        else:
            parts.append(bytes([each.kind]) + varint((field << 1) ^ (field >> 63)))
        parts.append(encode(each))
        last = field
    return b"".join(parts) + b"\x00"


def split(data: bytes) -> tuple[bytes, bytes]:
    """What comes before the footer of a file, and the footer without its tail."""
    size = int.from_bytes(data[-_TAIL:-4], "little")
    return data[: -_TAIL - size], data[-_TAIL - size : -_TAIL]


def join(body: bytes, footer: bytes) -> bytes:
    """A file of a body and a footer."""
    return body + footer + len(footer).to_bytes(4, "little") + MAGIC


def _listed(node: Node | None) -> list[Node]:
    return node.value if node is not None and node.kind == LIST else []


def _sum(body: bytes, chunk: Node) -> int:
    """The checksum of a column chunk, wherever it says that it lies."""
    first = chunk.get(3, 11) or chunk.get(3, 9)
    size = chunk.get(3, 7)
    if first is None or size is None or {first.kind, size.kind} - set(INTEGERS):
        return 0
    return int(crc32c.crc32c(body[max(first.value, 0) : max(first.value + size.value, 0)]))


def sealed(body: bytes, tree: Node) -> bytes:
    """An index file with this footer and valid checksums."""
    groups = _listed(tree.get(4))
    chunks = [chunk for group in groups for chunk in _listed(group.get(1))]
    sums = b"".join(b"%08x" % _sum(body, chunk) for chunk in chunks[:100_000])
    text = b"crc32c:%08d:" % (len(sums) // 8) + sums
    for entry in _listed(tree.get(5)):
        key, value = entry.get(1), entry.get(2)
        if (
            key is not None
            and key.value == PARQUET_KEY
            and value is not None
            and value.kind == BINARY
        ):
            value.value = text + b"0" * 8
    return sealed_bytes(body, encode(tree))


def sealed_bytes(body: bytes, footer: bytes) -> bytes:
    """A file with a valid checksum of its footer, if it has one."""
    whole = bytearray(join(body, footer))
    start = len(body)
    match = re.compile(rb"crc32c:([0-9]{8}):").search(whole, whole.rfind(PARQUET_KEY, start))
    if match is not None:
        own = match.end() + 8 * int(match[1])
        whole[own : own + 8] = b"0" * 8
        whole[own : own + 8] = b"%08x" % crc32c.crc32c(whole[start:])
    return bytes(whole)


# ---- changes

_NUMBERS = [0, 1, 2, 3, -1, 7, 15, 127, 2**15, 2**31 - 1, 2**31, -(2**31), 2**40, 2**63 - 1,
            -(2**63)]  # fmt: skip


def places(tree: Node) -> dict[str, list[tuple[Node, int]]]:
    """Where something can be changed: for every kind of place its parents, and which child."""
    found: dict[str, list[tuple[Node, int]]] = {}

    def look(node: Node, path: str, depth: int) -> None:
        if depth > _DEEPEST:
            return
        if node.kind == STRUCT:
            for number, (field, each) in enumerate(node.value):
                found.setdefault(f"{path}.{field}", []).append((node, number))
                look(each, f"{path}.{field}", depth + 1)
        elif node.kind == LIST:
            for number, each in enumerate(node.value):
                found.setdefault(f"{path}[]", []).append((node, number))
                look(each, f"{path}[]", depth + 1)

    look(tree, "", 0)
    return found


def _child(parent: Node, number: int) -> Node:
    found: Node = parent.value[number][1] if parent.kind == STRUCT else parent.value[number]
    return found


def _replace(parent: Node, number: int, node: Node) -> None:
    if parent.kind == STRUCT:
        parent.value[number] = (parent.value[number][0], node)
    else:
        parent.value[number] = node


def any_node(rng: random.Random, depth: int = 0) -> Node:
    """A value of any type."""
    kind = rng.choice([TRUE, FALSE, BYTE, *INTEGERS, DOUBLE, BINARY, LIST, STRUCT])
    if kind in INTEGERS:
        return Node(kind, rng.choice(_NUMBERS))
    if kind in (BYTE, DOUBLE):
        return Node(kind, rng.randbytes(1 if kind == BYTE else 8))
    if kind == BINARY:
        return Node(kind, rng.randbytes(rng.choice([0, 1, 7, 8, 9, 300])))
    if kind == LIST:
        of = any_node(rng, depth + 1) if depth < 3 else Node(LONG, 5)
        return Node(kind, [of.copy() for _ in range(rng.choice([0, 1, 2, 20]))], of.kind)
    if kind == STRUCT:
        fields = sorted(rng.sample(range(1, 18), rng.choice([0, 1, 3]) if depth < 3 else 0))
        return Node(kind, [(field, any_node(rng, depth + 1)) for field in fields])
    return Node(kind, None)


def _number(node: Node, rng: random.Random) -> str:
    near = [node.value + 1, node.value - 1, node.value * 2, -node.value, rng.randrange(40)]
    node.value = max(min(rng.choice(_NUMBERS + near), 2**63 - 1), -(2**63))
    return f"={node.value}"


def _bytes(node: Node, rng: random.Random) -> str:
    ways: dict[str, Callable[[], bytes]] = {
        "nothing": lambda: b"",
        "shorter": lambda: node.value[:-1],
        "longer": lambda: node.value + b"x",
        "random": lambda: rng.randbytes(len(node.value)),
        "8 bytes": lambda: rng.randbytes(8),
        "100 kB": lambda: b"x" * 100_000,
    }
    how = rng.choice([*ways, "claims"])
    if how == "claims":
        node.claimed = rng.choice([0, 1, 2**31 - 1, 2**32 - 1, 2**63 - 1, 10_000])
    else:
        node.value = ways[how]()
    return how


def _list(node: Node, rng: random.Random) -> str:
    some = node.value or [any_node(rng)]
    ways: dict[str, Callable[[], list[Node]]] = {
        "empty": list,
        "one less": lambda: node.value[:-1],
        "one more": lambda: [*node.value, some[-1].copy()],
        "first gone": lambda: node.value[1:],
        "shuffled": lambda: rng.sample(node.value, len(node.value)),
        "twice": lambda: [*node.value, *(each.copy() for each in node.value)],
        "many": lambda: (
            [some[0]] * (rng.choice([1000, 30_000]) if len(encode(some[0])) < 40 else 9)
        ),
    }
    how = rng.choice([*ways, "claims", "type"])
    if how == "claims":
        node.claimed = rng.choice([0, 1, 14, 15, 1000, 2**31 - 1, 2**32 - 1, 10**7])
    elif how == "type":
        node.of = rng.randrange(16)
    else:
        node.value = ways[how]()
        node.of = node.of or some[0].kind
    return how


def nested(depth: int, kind: int) -> Node:
    """Structs in structs, or lists in lists."""
    node = Node(kind, [], STRUCT)
    for _ in range(depth):
        node = Node(STRUCT, [(1, node)]) if kind == STRUCT else Node(LIST, [node], LIST)
    return node


def _struct(node: Node, rng: random.Random) -> str:
    how = rng.choice(["gone", "again", "new", "empty", "other number", "known"])
    fields = node.value
    place = rng.randrange(len(fields)) if fields else 0
    if how == "empty":
        node.value = []
    elif how == "known":
        field, what = rng.choice(_known(rng))
        node.value = sorted([*fields, (field, what)], key=lambda pair: pair[0])
        return f"{how} {field}"
    elif how == "new" or not fields:
        field = rng.choice([*range(1, 20), 100, 32767, -1])
        fields.insert(place, (field, any_node(rng)))
        return f"{how} {field}"
    elif how == "gone":
        return f"{how} {fields.pop(place)[0]}"
    elif how == "again":
        fields.insert(place, fields[place])
    else:
        fields[place] = (rng.randrange(20), fields[place][1])
    return f"{how} {fields[place][0] if fields else ''}"


def _known(rng: random.Random) -> list[tuple[int, Node]]:
    """Fields that the format has somewhere and that our files do not have."""
    number, key = Node(LONG, rng.choice(_NUMBERS)), Node(BINARY, b"key")
    long_list = numbers(*[rng.choice(_NUMBERS)] * rng.randrange(6))
    histograms = struct(_1=Node(LONG, 3), _2=long_list, _3=numbers(*[1] * rng.randrange(6)))
    return [
        (8, struct(_1=struct())), (8, struct(_2=struct(_1=Node(LIST, [key], BINARY), _2=key))),
        (8, struct(_1=struct(_1=key, _2=key, _3=Node(TRUE, None)))),
        (8, struct(_2=struct(_1=key))), (9, Node(BINARY, rng.randbytes(40))), (1, key),
        (14, number), (15, Node(INT, 2**31 - 1)), (16, histograms), (16, histograms),
        (12, struct(_3=number, _5=key, _6=key)), (4, Node(LONG, 4)), (5, Node(INT, 40)),
        (6, Node(LONG, 4)), (7, Node(INT, 40)),
        (17, struct(_1=struct(_1=Node(DOUBLE, bytes(8))), _2=numbers(1, 2))),
        (10, struct(**{f"_{rng.randrange(1, 20)}": struct()})),
        (10, struct(_5=struct(_1=Node(INT, 2**31 - 1), _2=Node(INT, -1)))),
        (10, struct(_10=struct(_1=Node(BYTE, b"\x07"), _2=Node(TRUE, None)))),
        (10, struct(_8=struct(_1=Node(FALSE, None), _2=struct(_9=struct())))),
        (13, Node(LIST, [struct(_1=number, _2=number, _3=number)], STRUCT)),
        (7, Node(LIST, [struct()], STRUCT)), (11, number), (2, Node(INT, -1)),
    ]  # fmt: skip


def _change(tree: Node, rng: random.Random) -> str:
    found = places(tree)
    path = rng.choice(list(found))
    parent, number = rng.choice(found[path])
    node = _child(parent, number)
    how = rng.random()
    if how < 0.05:
        _replace(parent, number, any_node(rng))
        return f"{path}: another type"
    if how < 0.1:
        other = rng.choice(found[rng.choice(list(found))])
        _replace(parent, number, _child(*other).copy())
        return f"{path}: what is elsewhere"
    if how < 0.11:
        depth = rng.choice([3, 30, 60])
        _replace(parent, number, nested(depth, rng.choice([STRUCT, LIST])))
        return f"{path}: {depth} in each other"
    if node.kind == STRUCT:
        return f"{path}: {_struct(node, rng)}"
    if node.kind == LIST:
        return f"{path}: {_list(node, rng)}"
    if node.kind == BINARY:
        return f"{path}: {_bytes(node, rng)}"
    if node.kind in INTEGERS:
        return f"{path}: {_number(node, rng)}"
    _replace(parent, number, any_node(rng))
    return f"{path}: another type"


def mutated(body: bytes, tree: Node, rng: random.Random) -> tuple[bytes, str]:
    """A file with another footer, and what is other about it."""
    changed = tree.copy()
    said = [_change(changed, rng) for _ in range(rng.choice([1, 1, 1, 2, 3]))]
    data = sealed(body, changed)
    if rng.random() < 0.05:
        footer = bytearray(split(data)[1])
        place = rng.randrange(len(footer))
        footer[place] ^= 1 << rng.randrange(8)
        data = sealed_bytes(body, bytes(footer))
        said.append(f"byte {place}")
    return data, ", ".join(said)


def all_mutated(data: bytes, seed: str, first: int, end: int) -> Iterator[tuple[int, bytes, str]]:
    """Files made of one, by number."""
    import random

    body, footer = split(data)
    tree = parse(footer)
    assert encode(tree) == footer
    for number in range(first, end):
        yield number, *mutated(body, tree, random.Random(f"{seed} {number}"))
