"""Report of a check: errors, notes, and what was checked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

# One zeroed file may have millions of rows: beyond this many they are only counted.
MOST_DAMAGES = 10_000
_MOST_NAMED = 10


@dataclass(frozen=True)
class CheckError:
    """Something that is damaged.

    Attributes:
        file: the key of the file in the run.
        what: what is wrong.
        offset: where in the file, in bytes.
        row: which row of an index file, counted from 0.
        tensor: the affected tensor, if known.
        step: its global step.
        worker: the worker that saved it.
    """

    file: str
    what: str
    offset: int | None = None
    row: int | None = None
    tensor: str | None = None
    step: int | None = None
    worker: str | None = None


@dataclass
class CheckNote:
    """Something worth knowing that is not an error.

    Attributes:
        what: a description.
        count: how many there are.
        bytes: their size; None if unknown.
        files: some of the affected files.
    """

    what: str
    count: int = 0
    bytes: int | None = None
    files: list[str] = field(default_factory=list)


@dataclass
class CheckReport:
    """Result of a check of a run.

    Attributes:
        damages: the errors; the first 10,000 of them.
        damaged: how many errors there are in total.
        remarks: the notes.
        files: how many files were checked.
        rows: how many rows of index files.
        records: how many records of event and TensorBoard files.
        bytes: how many bytes were read and checked.
        seconds: how long it took.
        finished: whether the run has an end marker.
    """

    damages: list[CheckError] = field(default_factory=list)
    damaged: int = 0
    remarks: list[CheckNote] = field(default_factory=list)
    files: int = 0
    rows: int = 0
    records: int = 0
    bytes: int = 0
    seconds: float = 0.0
    finished: bool = False

    def add(self, file: str, what: str, **where: Any) -> None:
        """Add an error."""
        self.damaged += 1
        if len(self.damages) < MOST_DAMAGES:
            self.damages.append(CheckError(file, what, **where))

    def remark(self, what: str, file: str, count: int = 1, size: int | None = None) -> None:
        """Count a note; notes with the same text are one."""
        found = next((each for each in self.remarks if each.what == what), None)
        if found is None:
            found = CheckNote(what)
            self.remarks.append(found)
        found.count += count
        if size is not None:
            found.bytes = (found.bytes or 0) + size
        if len(found.files) < _MOST_NAMED and file not in found.files:
            found.files.append(file)
