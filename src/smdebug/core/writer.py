"""`FileWriter` under the path of smdebug 1.0."""

from smdebug.storage.event_file import FileWriter

__all__ = ["FileWriter"]
