"""The manager of smdebug 1.0, which reads and writes its file itself.

The one in `smdebug.config` is a value without I/O, and the library stores its text through a Store;
these two methods are only for scripts that call them, so they live here.
"""

from __future__ import annotations

import os
from pathlib import Path

from smdebug.config.collection_manager import CollectionManager as _CollectionManager

__all__ = ["CollectionManager"]


class CollectionManager(_CollectionManager):
    """Collections by name, with their file on a local disk.

    Example:
        >>> manager = CollectionManager()
        >>> manager.export("run", "worker_0_collections.json")  # doctest: +SKIP
    """

    def export(self, out_dir: str | os.PathLike[str], filename: str) -> None:
        """Write `<out_dir>/collections/000000000/<filename>`.

        Under a temporary name first: a reader never sees half a file.
        """
        path = Path(out_dir) / "collections" / "000000000" / filename
        path.parent.mkdir(parents=True, exist_ok=True)
        # The process id keeps two processes that share the directory from renaming the same file.
        temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        temporary.write_text(self.to_json(), encoding="utf-8")
        temporary.replace(path)

    @classmethod
    def load(cls, filename: str | os.PathLike[str]) -> CollectionManager:
        """Read a file that `export` wrote."""
        return cls.from_json(Path(filename).read_text(encoding="utf-8"))
