"""Building the segments of format v2: an event file with raw tensors and its index file."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from smdebug.storage.arrow import pa
from smdebug.storage.format import records
from smdebug.storage.format.dtypes import dtype_name, is_string, plain_array
from smdebug.storage.format.events import encode_tensor
from smdebug.storage.format.keys import event_key, index_key
from smdebug.storage.format.record_templates import SchemaTemplates
from smdebug.storage.run_id import RunId
from smdebug.storage.v2.compaction import compact, last_seq, run_of_index
from smdebug.storage.v2.index import (
    BlockRows,
    IndexRow,
    blocks_to_table,
    encode_index,
    newest_rows,
    rows_to_table,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from smdebug.reductions import Array
    from smdebug.storage.batch import Block, BlockSchema, Entry, StepBatch
    from smdebug.storage.stores.base import Buffer, Store
    from smdebug.storage.v2.index import Ints

# From here on a checksum is worth a thread: it is taken while the bytes are being written.
_LARGE = 1 << 20
# How many layouts are remembered; a hook has a few, unless they change at every step.
_MOST_LAYOUTS = 256


class SegmentBuilder:
    """Gathers steps and publishes them as one segment, event file first.

    Attributes:
        waiting: bytes gathered and not yet published.
        written: bytes published so far.
        identity: the name of the run.
    """

    def __init__(self, store: Store, worker: str) -> None:
        self._store = store
        self._worker = worker
        self.identity = RunId(store, worker, run_of_index)
        self._seq: int | None = None
        self._checksums = ThreadPoolExecutor(1, "smdebug-checksum")
        self.written = 0
        self._templates: dict[BlockSchema, SchemaTemplates] = {}
        self._begin()

    def _begin(self) -> None:
        self.waiting = 0
        self._rows: list[IndexRow] = []
        self._blocks: list[BlockRows] = []
        # What the event file holds, in order: single records, and the chunks of whole blocks.
        self._records: list[_Record | list[Buffer]] = []
        self._event_bytes = 0
        self._positions: dict[int, int] = {}

    def add(self, batch: StepBatch) -> None:
        """Takes the tensors of a step."""
        start = self._positions.get(batch.step, 0)
        for number, entry in enumerate(batch.entries):
            place = number if entry.position is None else entry.position
            self._rows.append(self._row(batch, entry, start + place))
        position = start + len(batch.entries)
        for block in batch.blocks:
            size = len(block.layout.names)
            own = block.positions
            places = np.arange(position, position + size) if own is None else start + own
            self._blocks.append(self._block_rows(batch, block, places))
            position += size
        self._positions[batch.step] = max(position, start + batch.placed)
        self.waiting += batch.nbytes

    def publish(self) -> None:
        """Writes what was gathered; until this returns no reader sees any of it."""
        rows, blocks = self._rows, self._blocks
        if not rows and not blocks:
            return
        first = min([row.step for row in rows] + [block.step for block in blocks])
        seq = self._next_seq()
        key = event_key(first, seq, self._worker)
        if self._records:
            self._store.write(key, _chunks(self._records))
            for record in self._records:
                if isinstance(record, _Record):
                    record.row.event_file = key
                    record.row.checksum, record.row.digest = record.sums.result()
        tables = [rows_to_table(rows, self._worker, seq)] if rows else []
        tables += blocks_to_table(blocks, self._worker, seq, key)
        table = newest_rows(pa.concat_tables(tables, promote_options="default"))
        data = encode_index(table, self.identity.find())
        self.identity.published()
        self._store.write(index_key(first, seq, self._worker), [data])
        self.written += self._event_bytes + len(data)
        self._begin()

    def discard(self) -> None:
        """Gives up what was gathered."""
        self._begin()

    def close(self) -> None:
        """Joins the worker's small index files into large ones."""
        self._checksums.shutdown()
        if self._seq is not None:
            compact(self._store, self._worker, self._next_seq)

    def _row(self, batch: StepBatch, entry: Entry, position: int) -> IndexRow:
        row = IndexRow(
            step=batch.step, mode=batch.mode, mode_step=batch.mode_step, tensor=entry.name,
            time=batch.time if entry.time is None else entry.time, position=position,
            dtype=entry.dtype, shape=entry.shape, reductions=dict(entry.reductions),
        )  # fmt: skip
        if entry.value is not None:
            array = plain_array(entry.value)
            row.dtype, row.shape = dtype_name(array.dtype), array.shape
            row.value = scalar_value(array)
            if row.value is None:
                self._add_record(row, array)
        return row

    def _block_rows(self, batch: StepBatch, block: Block, positions: Ints) -> BlockRows:
        rows = BlockRows(
            batch.step, batch.mode, batch.mode_step, batch.time, positions, block.layout,
            block.reductions, numbers=block.numbers,
        )  # fmt: skip
        if block.values is not None:
            if block.layout not in self._templates:
                if len(self._templates) >= _MOST_LAYOUTS:
                    self._templates.clear()
                self._templates[block.layout] = SchemaTemplates(block.layout)
            # Every record ends on the alignment, so a block always starts on it.
            chunks: list[Buffer] = []
            rows.offset = self._event_bytes
            rows.lengths, rows.checksums = self._templates[block.layout].encode(
                batch, block.values, chunks
            )
            self._records.append(chunks)
            self._event_bytes += sum(rows.lengths)
        return rows

    def _add_record(self, row: IndexRow, array: Array) -> None:
        payload = encode_tensor(
            row.tensor, array, step=row.step, mode=row.mode, mode_step=row.mode_step,
            wall_time=row.time, content_at=self._event_bytes + records.HEADER_SIZE,
        )  # fmt: skip
        size = sum(len(chunk) for chunk in payload)
        row.offset, row.length = self._event_bytes, size + records.OVERHEAD
        sums = self._sum_beside(payload) if size >= _LARGE else _Done(records.checksum(payload))
        self._records.append(_Record(row, payload, size, sums))
        self._event_bytes += row.length

    def _sum_beside(self, payload: list[Buffer]) -> Future[tuple[int, int | None]] | _Done:
        try:
            return self._checksums.submit(_both_sums, payload)
        except RuntimeError:
            # The interpreter is going down, and starts no threads any more.
            return _Done(*_both_sums(payload))

    def _next_seq(self) -> int:
        if self._seq is None:
            self._seq = last_seq(self._store, self._worker)
        self._seq += 1
        return self._seq


class _Done:
    """Sums that are known at once, as those of a small payload are."""

    def __init__(self, checksum: int, digest: int | None = None) -> None:
        self._sums = (checksum, digest)

    def result(self) -> tuple[int, int | None]:
        return self._sums


@dataclass
class _Record:
    row: IndexRow
    payload: list[Buffer]
    size: int
    sums: Future[tuple[int, int | None]] | _Done


def _both_sums(payload: list[Buffer]) -> tuple[int, int | None]:
    return records.checksum(payload), records.digest(payload)


def _chunks(entries: Iterable[_Record | list[Buffer]]) -> Iterator[Buffer]:
    for record in entries:
        if isinstance(record, list):
            yield from record
            continue
        yield records.header(record.size)
        yield from record.payload
        # Asked for only now: the sums of a large one were computed while it went out.
        yield records.footer(records.mask(record.sums.result()[0]))


def scalar_value(array: Array) -> float | None:
    """The float64 that holds a one-element tensor exactly, bit for bit, or None."""
    if array.size != 1 or is_string(array.dtype) or array.dtype.kind == "c":
        return None
    with np.errstate(all="ignore"):
        wide = array.reshape(-1).astype(np.float64)
        back = wide.astype(array.dtype)
    # Compared as bytes: -0.0 and the payload of a NaN count.
    return float(wide[0]) if back.tobytes() == array.tobytes() else None
