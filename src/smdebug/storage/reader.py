"""Reading a run: its index as tables, its raw tensors as views, whatever the format."""

from __future__ import annotations

import itertools
import json
import logging
from typing import TYPE_CHECKING, Any, TypeVar

from smdebug.exceptions import IndexReaderException
from smdebug.storage.arrow import pa
from smdebug.storage.catalog import Segment, StepArrays
from smdebug.storage.classic import ClassicSegment, ClassicStep, parse_classic
from smdebug.storage.index import SCHEMA, newest_rows
from smdebug.storage.index_file import ColumnCache, IndexFile
from smdebug.storage.layout import (
    COLLECTIONS_PREFIX,
    END_KEY,
    INDEX_PREFIX,
    IndexName,
    classic_index_start,
    parse_collections_worker,
    parse_index_key,
)
from smdebug.storage.raw import Place, RawReader, each

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from smdebug.reductions import Array
    from smdebug.storage.store import Store

logger = logging.getLogger("smdebug.storage")

# Compaction may take files away while they are being opened; it never does so for ever.
_TRIES = 5

T = TypeVar("T")
R = TypeVar("R")


class RunReader:
    """Reads a run from a store.

    Args:
        store: where the run is kept.

    Attributes:
        version: grows whenever a refresh found something new.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.version = 0
        self._cache = ColumnCache()
        self._files: dict[str, IndexFile] = {}
        self._classic: list[ClassicSegment] = []
        self._seen: set[str] = set()
        self._raw = RawReader(store)

    # ---- finding what is there

    def finished(self) -> bool:
        """Whether the job has said that there is no more to come."""
        try:
            self.store.read(END_KEY)
        except KeyError:
            return False
        return True

    def collections(self) -> dict[str, dict[str, Any]]:
        """The collections files by worker, parsed.

        Raises:
            IndexReaderException: one of them is not a JSON object.
        """
        found = {}
        for key in self.store.list(COLLECTIONS_PREFIX):
            worker = parse_collections_worker(key)
            if worker is None:
                continue
            try:
                content = json.loads(bytes(self.store.read(key)))
            except (ValueError, RecursionError) as error:
                raise IndexReaderException(f"{key}: not JSON: {error}") from error
            if not isinstance(content, dict):
                raise IndexReaderException(f"{key}: expected a JSON object")
            found[worker] = content
        return found

    def refresh(self, since_step: int | None = None) -> bool:
        """Looks for index files that are new, and for those that compaction has replaced.

        Args:
            since_step: look only at files of this step and later ones; replaced files are then
                not noticed.

        Returns:
            Whether anything changed.

        Raises:
            IndexReaderException: a file is damaged or is none of ours.
        """
        for _ in range(_TRIES):
            try:
                return self._refresh_once(since_step)
            except KeyError:
                continue
        raise IndexReaderException(f"{self.store.url}: index files vanish while they are read")

    def _refresh_once(self, since_step: int | None) -> bool:
        if since_step is not None:
            keys = set(self.store.list(INDEX_PREFIX, classic_index_start(since_step)))
            gone: set[str] = set()
        else:
            keys = set(self.store.list(INDEX_PREFIX))
            gone = set(self._files) - keys
            if gone:
                # Old files are deleted after their replacement is there: this listing shows it.
                keys = set(self.store.list(INDEX_PREFIX))
                gone = set(self._files) - keys
        new = self._open_all(sorted(keys - self._seen))
        for key in gone:
            del self._files[key]
            self._seen.discard(key)
        self.version += bool(new or gone)
        return new or bool(gone)

    def _open_all(self, keys: list[str]) -> bool:
        named = [(key, parse_index_key(key)) for key in keys]
        for key, name in named:
            if name is None:
                logger.warning(
                    "%s/%s is not an index file of a run; it is ignored", self.store.url, key
                )
        known = [(key, name) for key, name in named if name is not None]
        classic = self._open_classic([item for item in known if item[1].seq is None])
        modern = [item for item in known if item[1].seq is not None]
        opened = self._each(lambda item: self._open_file(*item), modern)
        # Nothing is taken over before everything is open: a refresh that fails changes nothing.
        self._classic += classic
        self._files.update(zip((key for key, _ in modern), opened, strict=True))
        self._seen.update(keys)
        return bool(known)

    def _open_file(self, key: str, name: IndexName) -> IndexFile:
        file = IndexFile(self.store, key, name, self._cache)
        # Read here and not later, so that a file that vanishes is noticed while it can be replaced.
        _ = file.steps
        return file

    def _open_classic(self, items: list[tuple[str, IndexName]]) -> list[ClassicSegment]:
        def parse(item: tuple[str, IndexName]) -> ClassicStep:
            return parse_classic(bytes(self.store.read(item[0])), *item)

        by_worker: dict[str, list[ClassicStep]] = {}
        for (_, name), step in zip(items, self._each(parse, items), strict=True):
            by_worker.setdefault(name.worker, []).append(step)
        return [
            ClassicSegment(worker, steps, self._read_scalars) for worker, steps in by_worker.items()
        ]

    # ---- the index

    @property
    def segments(self) -> list[Segment]:
        return [*self._classic, *self._files.values()]

    def names(self) -> dict[str, int]:
        """Every tensor with the modes it was saved in, as bits."""
        names: dict[str, int] = {}
        for segment in self.segments:
            for name, bits in segment.names.items():
                names[name] = names.get(name, 0) | bits
        return names

    def steps(self) -> dict[str, StepArrays]:
        """The steps of every worker."""
        pieces: dict[str, list[StepArrays]] = {}
        for segment in self.segments:
            pieces.setdefault(segment.worker, []).append(segment.steps)
        return {worker: StepArrays.concatenate(piece) for worker, piece in pieces.items()}

    def names_at(self, step: int) -> set[str]:
        """The tensors saved at a global step."""
        return self._again(lambda: set().union(*(s.names_at(step) for s in self.segments)))

    def original_name(self, tensor: str) -> str:
        """The name a tensor had in the framework's graph."""
        found = (each.originals[tensor] for each in self._classic if tensor in each.originals)
        return next(found, tensor)

    def rows(self, tensor: str, columns: Sequence[str], steps: set[int] | None = None) -> pa.Table:
        """The rows of one tensor, by worker and step, the newest of each.

        With `steps`, rows of other steps may be missing.
        """
        needed = list(dict.fromkeys([*columns, "worker", "tensor", "step", "seq", "position"]))

        def read() -> pa.Table:
            pieces = [segment.rows(tensor, needed, steps) for segment in self.segments]
            found = [piece for piece in pieces if piece is not None]
            return pa.concat_tables(found or [SCHEMA.empty_table().select(needed)])

        return newest_rows(self._again(read)).select(list(columns))

    def table(self, columns: Sequence[str] | None = None) -> pa.Table:
        """The whole index; without `columns`, those that hold anything."""
        if columns is None:
            present = set().union(*(segment.present_columns() for segment in self.segments))
            columns = [name for name in SCHEMA.names if name in present]
        needed = list(dict.fromkeys([*columns, "worker", "tensor", "step", "seq", "position"]))

        def read() -> pa.Table:
            empty = SCHEMA.empty_table().select(needed)
            return pa.concat_tables([empty, *(s.table(needed) for s in self.segments)])

        return newest_rows(self._again(read)).select(list(columns))

    def check_all(self) -> None:
        """Verifies every byte of the v2 index files."""
        for file in self._files.values():
            file.check_all()

    def parquet_files(self) -> list[str] | None:
        """The keys of the index files when they alone, read as they are, make the index.

        None when rows of one step lie in several files, or in files of format v1. Every byte of
        the files has been verified when this returns.
        """
        if self._classic or not self._files:
            return None
        reach: dict[str, list[tuple[int, int]]] = {}
        for file in self._files.values():
            reach.setdefault(file.worker, []).append(file.step_range())
        for ranges in reach.values():
            ranges.sort()
            if any(second[0] <= first[1] for first, second in itertools.pairwise(ranges)):
                return None
        self.check_all()
        return sorted(self._files)

    def _again(self, read: Callable[[], R]) -> R:
        try:
            return read()
        except KeyError:
            # A file was replaced by compaction since it was opened.
            self.refresh()
            return read()

    # ---- raw tensors

    def read_values(self, places: Sequence[Place]) -> list[Array]:
        """Reads records; see `RawReader.read_values`."""
        return self._raw.read_values(places)

    def _read_scalars(self, places: list[Place]) -> list[float]:
        return [float(value.reshape(-1)[0]) for value in self.read_values(places)]

    def _each(self, work: Callable[[T], R], items: Sequence[T]) -> list[R]:
        return each(self.store, work, items)
