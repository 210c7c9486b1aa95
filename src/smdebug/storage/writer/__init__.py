"""Writing a run: a bounded queue, a publisher, and the thread between them."""

from smdebug.storage.writer.run_writer import RunWriter as RunWriter
