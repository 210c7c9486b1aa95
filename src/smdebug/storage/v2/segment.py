"""Builder of segments of format v2: an event file with raw tensors and its index file."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
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
    from smdebug.storage.batch import Block, Entry, StepBatch
    from smdebug.storage.stores.base import Buffer, Store
    from smdebug.storage.v2.index import Ints

# The checksum of a payload of this size is computed on a thread while it is being written.
_LARGE = 1 << 20
# A hook has a few schemas, unless they change at every step.
_MAX_SCHEMAS = 256


class SegmentBuilder:
    """Collects steps and publishes them as one segment, event file first.

    Attributes:
        waiting: bytes collected and not yet published.
        written: bytes published so far.
        run_id: the ID of the run.
    """

    def __init__(self, store: Store, worker: str) -> None:
        self._store = store
        self._worker = worker
        self.run_id = RunId(store, worker, run_of_index)
        self._seq: int | None = None
        self._checksums = ThreadPoolExecutor(1, "smdebug-checksum")
        self.written = 0
        self._templates = lru_cache(_MAX_SCHEMAS)(SchemaTemplates)
        self._reset()

    def _reset(self) -> None:
        self.waiting = 0
        self._rows: list[IndexRow] = []
        self._blocks: list[BlockRows] = []
        # The content of the event file in order: single records, and the chunks of whole blocks.
        self._records: list[_Record | list[Buffer]] = []
        self._event_bytes = 0
        self._positions: dict[int, int] = {}

    def add(self, batch: StepBatch) -> None:
        """Take the tensors of a step."""
        start = self._positions.get(batch.step, 0)
        for number, entry in enumerate(batch.entries):
            position = number if entry.position is None else entry.position
            self._rows.append(self._row(batch, entry, start + position))
        position = start + len(batch.entries)
        for block in batch.blocks:
            size = len(block.schema.names)
            own = block.positions
            positions = np.arange(position, position + size) if own is None else start + own
            self._blocks.append(self._block_rows(batch, block, positions))
            position += size
        self._positions[batch.step] = max(position, start + batch.placed)
        self.waiting += batch.nbytes

    def publish(self) -> None:
        """Write what was collected; no reader sees any of it until this returns."""
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
        data = encode_index(table, self.run_id.find())
        self.run_id.published()
        self._store.write(index_key(first, seq, self._worker), [data])
        self.written += self._event_bytes + len(data)
        self._reset()

    def discard(self) -> None:
        """Drop what was collected."""
        self._reset()

    def close(self) -> None:
        """Compact the worker's small index files into large ones."""
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
            batch.step, batch.mode, batch.mode_step, batch.time, positions, block.schema,
            block.reductions, numbers=block.numbers,
        )  # fmt: skip
        if block.values is not None:
            # Every record ends on the alignment, so a block always starts on it.
            chunks: list[Buffer] = []
            rows.offset = self._event_bytes
            templates = self._templates(block.schema)
            rows.lengths, rows.checksums = templates.encode(batch, block.values, chunks)
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
        sums = (
            self._checksum_in_background(payload)
            if size >= _LARGE
            else _Done(records.checksum(payload))
        )
        self._records.append(_Record(row, payload, size, sums))
        self._event_bytes += row.length

    def _checksum_in_background(
        self, payload: list[Buffer]
    ) -> Future[tuple[int, int | None]] | _Done:
        try:
            return self._checksums.submit(_both_sums, payload)
        except RuntimeError:
            # The interpreter is shutting down and starts no threads.
            return _Done(*_both_sums(payload))

    def _next_seq(self) -> int:
        if self._seq is None:
            self._seq = last_seq(self._store, self._worker)
        self._seq += 1
        return self._seq


class _Done:
    """Checksums that are known at once, in the shape of a future."""

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
        # Waited for only now: large payloads are summed while they are written.
        yield records.footer(records.mask(record.sums.result()[0]))


def scalar_value(array: Array) -> float | None:
    """Return the float64 that represents a one-element tensor bit for bit, or None."""
    if array.size != 1 or is_string(array.dtype) or array.dtype.kind == "c":
        return None
    with np.errstate(all="ignore"):
        wide = array.reshape(-1).astype(np.float64)
        back = wide.astype(array.dtype)
    # Compared as bytes: -0.0 and the payload of a NaN matter.
    return float(wide[0]) if back.tobytes() == array.tobytes() else None
