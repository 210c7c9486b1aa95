"""TensorBoard events: scalars, histograms, and the first event of a file."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from smdebug.storage.format.events import bytes_field, event_head

if TYPE_CHECKING:
    from smdebug.histogram import Histogram
    from smdebug.storage.stores.base import Buffer

_DOUBLE = struct.Struct("<d")
_FLOAT = struct.Struct("<f")
# The wire type of a double, which follows the field number.
_FIXED64 = 1


def encode_scalar(name: str, value: float, *, step: int, wall_time: float) -> list[Buffer]:
    """Encode an event with a plain TensorBoard scalar."""
    summary_value = bytes_field(1, name.encode()) + b"\x15" + _FLOAT.pack(value)
    summary = bytes_field(1, summary_value)
    return [event_head(wall_time, step) + bytes_field(5, summary)]


def encode_histogram(
    name: str, histogram: Histogram, *, step: int, wall_time: float
) -> list[Buffer]:
    """Encode an event with a TensorBoard histogram."""
    numbers = b"".join(
        bytes((field << 3 | _FIXED64,)) + _DOUBLE.pack(number)
        for field, number in enumerate(histogram[:5], 1)
    )
    limits = bytes_field(6, histogram.limits.astype("<f8").tobytes())
    counts = bytes_field(7, histogram.counts.astype("<f8").tobytes())
    value = bytes_field(1, name.encode()) + bytes_field(5, numbers + limits + counts)
    return [event_head(wall_time, step) + bytes_field(5, bytes_field(1, value))]


def encode_file_version(wall_time: float) -> list[Buffer]:
    """Encode the event that TensorBoard expects first in a file."""
    return [event_head(wall_time, 0) + bytes_field(3, b"brain.Event:2")]
