"""The result of `smdebug compact`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from smdebug.storage.v2.compaction import Compaction


def compaction_lines(done: Compaction, remove_orphans: bool) -> list[str]:
    """Return lines with files and bytes before and after, and the removed files."""
    if done.files_before == 0:
        lines = ["nothing to compact: the run has no index files of format v2"]
    elif done.files_before == done.files_after:
        lines = [
            f"nothing to compact: index files: {done.files_before}, {done.bytes_before:,} bytes"
        ]
    else:
        lines = [
            f"index files: {done.files_before} before, {done.files_after} after; bytes: "
            f"{done.bytes_before:,} before, {done.bytes_after:,} after"
        ]
    if remove_orphans:
        lines += [f"removed {key}" for key in done.removed]
        lines += [f"files removed: {len(done.removed)}, {done.removed_bytes:,} bytes"]
    return lines
