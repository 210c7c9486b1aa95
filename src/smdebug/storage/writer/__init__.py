"""Writing a run: a bounded queue, a publisher, and the thread between them."""

from smdebug.storage.writer.thread import RunWriter as RunWriter
