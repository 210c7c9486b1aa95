"""`FileReader` under the path of smdebug 1.0."""

from smdebug.storage.v1.event_file import FileReader

__all__ = ["FileReader"]
