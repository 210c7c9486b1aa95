"""Findings of rules in a run: one small Parquet file per evaluation that found something.

Parquet, because a value may be NaN, which JSON cannot represent, and because every engine that
reads the index then reads the findings, too.
"""

from __future__ import annotations

import dataclasses
import json
import time as clock
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

from smdebug.exceptions import IndexReaderException
from smdebug.mode_keys import ModeKeys
from smdebug.storage.arrow import PARQUET_ERRORS, from_list, pa, pq
from smdebug.storage.format.checksum import (
    checksummed_name,
    fits_checksum,
    has_checksum,
    renamed_for_run,
)
from smdebug.storage.run_id import run_ids
from smdebug.storage.segment_summary import one_array
from smdebug.storage.untrusted import validate_file
from smdebug.storage.untrusted.limits import COLUMN_BYTES, FINDINGS_ROWS, check_json, read_small
from smdebug.storage.v2.index_schema import check_texts

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from smdebug.storage.stores.base import Store

FINDINGS_PREFIX = "findings/"
_SCHEMA = pa.schema(
    [
        pa.field("rule", pa.string(), nullable=False),
        pa.field("step", pa.int64(), nullable=False),
        pa.field("mode", pa.string(), nullable=False),
        pa.field("mode_step", pa.int64()),
        pa.field("tensor", pa.string()),
        pa.field("worker", pa.string()),
        pa.field("value", pa.float64()),
        pa.field("threshold", pa.float64()),
        pa.field("message", pa.string(), nullable=False),
        pa.field("time", pa.float64(), nullable=False),
    ]
)
_TEXTS = [each.name for each in _SCHEMA if each.type == pa.string()]


@dataclass(frozen=True, eq=False)
class Finding:
    """A problem that a rule found.

    Attributes:
        rule: the rule's name.
        step: the global step at which the condition first held.
        message: one sentence for the user, with the name of the tensor.
        tensor: the tensor; None if it concerns the run.
        value: the number that was compared.
        threshold: the number it was compared with.
        mode: the mode of the step.
        mode_step: the number of the step within its mode.
        worker: the worker of the tensor.
        time: when it was found, in seconds since 1970.
        about: distinguishes several conditions of one rule and tensor; not stored.

    Example:
        >>> print(Finding("VanishingGradient", 40, "gradient/fc.weight has vanished"))
        VanishingGradient, step 40: gradient/fc.weight has vanished
    """

    rule: str
    step: int
    message: str
    tensor: str | None = None
    value: float | None = None
    threshold: float | None = None
    mode: ModeKeys = ModeKeys.GLOBAL
    mode_step: int | None = None
    worker: str | None = None
    time: float = field(default_factory=clock.time)
    about: str = ""

    def _compared(self) -> tuple[object, ...]:
        # NaN is not equal to itself, but findings of NaN are; the time does not count.
        values = [value for name, value in vars(self).items() if name not in ("time", "about")]
        return tuple("nan" if value != value else value for value in values)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Finding):
            return NotImplemented
        return self._compared() == other._compared()

    def __hash__(self) -> int:
        return hash(self._compared())

    def __str__(self) -> str:
        return f"{self.rule}, step {self.step}: {self.message}"

    def to_dict(self) -> dict[str, Any]:
        """Return the fields, with the mode by name."""
        fields = {**dataclasses.asdict(self), "mode": self.mode.name}
        del fields["about"]
        return fields


def write_findings(store: Store, findings: Sequence[Finding]) -> str | None:
    """Add findings to a run; return the key of the file, None without findings."""
    if not findings:
        return None
    table = _table_of(findings)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", write_page_checksum=True)
    return _write(store, "parquet", memoryview(sink.getvalue()))


def read_findings(store: Store) -> list[Finding]:
    """Return all findings of a run by step, each once, however often rules found it.

    Raises:
        IndexReaderException: a file is damaged.
    """
    found: dict[Finding, None] = {}
    for key in store.list(FINDINGS_PREFIX):
        if key.endswith(".parquet"):
            found.update(dict.fromkeys(_read(store, key)))
    return sorted(found, key=lambda each: (each.step, each.time))


def findings_table(store: Store) -> Any:
    """Return all findings of a run as an Arrow table."""
    return _table_of(read_findings(store))


def _table_of(findings: Sequence[Finding]) -> pa.Table:
    rows = [finding.to_dict() for finding in findings]
    columns = [from_list([row[field.name] for row in rows], field.type) for field in _SCHEMA]
    return pa.Table.from_arrays(columns, schema=_SCHEMA)


def write_report(store: Store, report: dict[str, Any]) -> str:
    """Store the outcome of each rule with the findings."""
    return _write(store, "json", memoryview(json.dumps(report).encode()))


def read_reports(store: Store) -> list[dict[str, Any]]:
    """Return the outcomes of rules, one report per completed evaluation, newest last."""
    reports = []
    for key in store.list(FINDINGS_PREFIX):
        if key.endswith(".json"):
            reports.append(_report(store, key))
    return reports


def _report(store: Store, key: str) -> dict[str, Any]:
    try:
        report = json.loads(check_json(_checked(store, key), key))
    except (ValueError, RecursionError) as error:
        raise IndexReaderException(f"{key}: not JSON: {error}") from error
    if not isinstance(report, dict):
        raise IndexReaderException(f"{key}: expected a JSON object")
    return report


def copy_findings(source: Store, target: Store) -> None:
    """Copy findings and reports into a copy of their run, which has another run ID.

    Raises:
        IndexReaderException: one of them is damaged.
    """
    run = next(run_ids(target), None)
    for key in source.list(FINDINGS_PREFIX):
        content = _checked(source, key)
        target.write(renamed_for_run(key, content, run), [content])


def check_file(store: Store, key: str) -> int:
    """Verify a file of findings or a report; return its size in bytes.

    Raises:
        IndexReaderException: it is damaged.
        KeyError: it does not exist.
    """
    if not has_checksum(key):
        raise IndexReaderException(f"{key}: the name has no checksum")
    if key.endswith(".parquet"):
        list(_read(store, key))
    else:
        _report(store, key)
    return len(store.read(key))


def _write(store: Store, ending: str, content: memoryview) -> str:
    # With a checksum in the name: Parquet's own do not cover page headers.
    try:
        run = next(run_ids(store), None)
    except IndexReaderException:
        # A damaged collections file must not keep findings from being stored.
        run = None
    key = checksummed_name(FINDINGS_PREFIX, ending, content, run)
    store.write(key, [content])
    return key


def _checked(store: Store, key: str) -> bytes:
    """Return the verified content of a file.

    Raises:
        IndexReaderException: it is not what was written.
    """
    content = read_small(store, key)
    if not has_checksum(key):
        return content
    # The run ID may be that of any worker, or missing in an old run.
    try:
        intact = any(fits_checksum(key, content, run) for run in chain([None], run_ids(store)))
    except IndexReaderException as error:
        raise IndexReaderException(f"{key}: cannot be checked: {error}") from error
    if not intact:
        raise IndexReaderException(
            f"{key}: damaged, renamed, or left here by another run: its checksum is not that of "
            "its name"
        )
    return content


def _read(store: Store, key: str) -> Iterable[Finding]:
    data = _checked(store, key)
    try:
        metadata = validate_file(data, FINDINGS_ROWS, COLUMN_BYTES).metadata
        if not 0 <= metadata.num_rows <= FINDINGS_ROWS:
            raise IndexReaderException(
                f"it claims {metadata.num_rows:,} findings, expected at most {FINDINGS_ROWS:,}"
            )
        # On this thread only: a thread of Arrow's pool that still has memory of Python when the
        # interpreter ends aborts the process.
        file = pq.ParquetFile(
            pa.BufferReader(pa.py_buffer(data)),
            metadata=metadata,
            pre_buffer=False,
            page_checksum_verification=True,
            read_dictionary=_TEXTS,
        )
        table = file.read(columns=_SCHEMA.names, use_threads=False)
        for name in _TEXTS:
            if not pa.types.is_dictionary(table[name].type):
                raise IndexReaderException(f"column {name} has no strings")
            check_texts(name, one_array(table[name]))
        rows = table.select(_SCHEMA.names).cast(_SCHEMA).to_pylist()
        return [Finding(**{**row, "mode": ModeKeys[row["mode"]]}) for row in rows]
    except (*PARQUET_ERRORS, KeyError, ValueError, IndexReaderException) as error:
        raise IndexReaderException(f"{key}: not a file of findings: {error}") from error
