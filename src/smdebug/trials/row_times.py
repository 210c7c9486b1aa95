"""When the rows of a run were taken."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smdebug.exceptions import IndexReaderException
from smdebug.storage.raw_tensors import record_locations

if TYPE_CHECKING:
    import pyarrow as pa

    from smdebug.storage.reader import RunReader

# Records up to this size, in bytes, are read for their time alone.
_SMALL = 4096


def row_times(table: pa.Table, reader: RunReader) -> list[float | None]:
    """When what rows hold was taken, in seconds since 1970; None where nothing says it.

    The index of format v1 has no times: there a small record gives its own, and to every other row
    the first record of its step.

    Args:
        table: rows with the columns `VALUE_COLUMNS`, `time`, `worker` and `tensor`.
        reader: of the run.

    Raises:
        IndexReaderException: an event file that the index names is not there.
    """
    try:
        return _row_times(table, reader)
    except KeyError as error:
        raise IndexReaderException(
            f"{error.args[0]} is named by the index of {reader.store.url} but is not there"
        ) from error


def _row_times(table: pa.Table, reader: RunReader) -> list[float | None]:
    times: list[float | None] = table["time"].to_pylist()
    if None not in times:
        return times
    workers, steps = table["worker"].to_pylist(), table["step"].to_pylist()
    small, of_step = {}, {}
    for row, place in enumerate(record_locations(table)):
        if times[row] is not None:
            continue
        if place is not None and place.length <= _SMALL:
            small[row] = place
            continue
        key = workers[row], steps[row]
        if key not in of_step:
            of_step[key] = reader.v1_time(*key)
        times[row] = of_step[key]
    for row, time in zip(small, reader.read_times(list(small.values())), strict=True):
        times[row] = time
    return times
