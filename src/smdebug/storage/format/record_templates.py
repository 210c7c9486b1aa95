"""Templates of records: the parts that are the same at every step are encoded once.

A record is an event as `events.encode_tensor` makes it, with its fields in an order (protobuf
leaves it open) that puts the parts that change after the tensor's content:

    frame head | start | content | mode and step within it | end | time and step | frame tail

`start` and `end` are the same at every step. Both are padded with the unused field `node_name`, so
that the content lies on the alignment and the next record starts on it.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

import crc32c
import numpy as np

from smdebug.storage.format import records
from smdebug.storage.format.dtypes import dtype_number, dtype_of
from smdebug.storage.format.events import (
    ALIGNMENT,
    aligned,
    bytes_field,
    node_name,
    step_metadata,
    tensor_head,
    varint,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from smdebug.reductions import Array
    from smdebug.storage.batch import BlockSchema, StepBatch
    from smdebug.storage.stores.base import Buffer

# A step has at most twelve digits, 40 bits: six groups of seven. The varint is padded to that, as
# protobuf allows, so that time and step take the same room at every step.
_STEP_GROUPS = 6
_TIME_AND_STEP = 1 + 8 + 1 + _STEP_GROUPS
_TIME = struct.Struct("<Bd")
_FOOTER = struct.Struct("<I")


class _Template(NamedTuple):
    """The unchanging parts of a record."""

    head: bytes  # the frame's head and `start`
    end: bytes
    start_sum: int  # CRC32C of `start`
    length: int  # of the whole record


class SchemaTemplates:
    """Encodes the records of a block schema, step after step.

    Args:
        schema: the tensors; numbers, none of them empty.
    """

    def __init__(self, schema: BlockSchema) -> None:
        self._schema = schema
        # By the length of the metadata, which grows with the digits of the step.
        self._templates: dict[int, list[_Template]] = {}

    def encode(
        self, batch: StepBatch, values: Sequence[Array], chunks: list[Buffer]
    ) -> tuple[list[int], list[int]]:
        """Append the records of one step to `chunks`; return their lengths and checksums."""
        metadata = step_metadata(batch.mode_step, batch.mode)
        tail = _TIME.pack(0x09, batch.time) + b"\x10" + _padded_varint(batch.step)
        lengths, sums = [], []
        crc, mask, footer, add = crc32c.crc32c, records.mask, _FOOTER.pack, chunks.append
        for template, value in zip(self._of(len(metadata)), values, strict=True):
            # Through uint8, because the buffer protocol has no code for some types.
            content = value.reshape(-1).view(np.uint8).data
            rest = metadata + template.end + tail
            checksum = crc(rest, crc(content, template.start_sum))
            add(template.head)
            add(content)
            add(rest + footer(mask(checksum)))
            lengths.append(template.length)
            sums.append(checksum)
        return lengths, sums

    def _of(self, metadata_size: int) -> list[_Template]:
        if metadata_size not in self._templates:
            schema = self._schema
            self._templates[metadata_size] = [
                _template(name, dtype_of(dtype), shape, metadata_size)
                for name, dtype, shape in zip(
                    schema.names, schema.dtypes, schema.shapes, strict=True
                )
            ]
        return self._templates[metadata_size]


def _template(
    name: str, dtype: np.dtype[Any], shape: tuple[int, ...], metadata_size: int
) -> _Template:
    nbytes = int(np.prod(shape)) * dtype.itemsize
    tag = bytes_field(1, name.encode())
    head = tensor_head(name, dtype_number(dtype), shape) + b"\x22" + varint(nbytes)
    tensor_size = len(head) + nbytes
    tensor_field = b"\x42" + varint(tensor_size)

    def start_with(padding: bytes, end: bytes) -> bytes:
        inside = len(tag) + len(padding) + len(tensor_field) + tensor_size
        value_size = inside + metadata_size + len(end)
        value = b"\x0a" + varint(value_size)
        summary = b"\x2a" + varint(len(value) + value_size)
        return b"".join((summary, value, tag, padding, tensor_field, head))

    # Where `start` ends modulo the alignment does not depend on `end`, so `end` can come first.
    end = node_name(-(nbytes + metadata_size + _TIME_AND_STEP + 4) % ALIGNMENT)
    start = aligned(lambda padding: start_with(padding, end), records.HEADER_SIZE)
    size = len(start) + nbytes + metadata_size + len(end) + _TIME_AND_STEP
    return _Template(
        records.header(size) + start, end, crc32c.crc32c(start), size + records.OVERHEAD
    )


def _padded_varint(value: int) -> bytes:
    groups = [(value >> (7 * group)) & 0x7F | 0x80 for group in range(_STEP_GROUPS)]
    groups[-1] &= 0x7F
    return bytes(groups)
