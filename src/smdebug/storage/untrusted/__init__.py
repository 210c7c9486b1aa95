"""Validation of files of unknown origin before a library parses them.

The names below are for Parquet files; `limits` is for all other files.
"""

from smdebug.storage.untrusted.parquet import MAGIC as MAGIC
from smdebug.storage.untrusted.parquet import TAIL_BYTES as TAIL_BYTES
from smdebug.storage.untrusted.parquet import ParquetFooter as ParquetFooter
from smdebug.storage.untrusted.parquet import footer_size as footer_size
from smdebug.storage.untrusted.parquet import validate_file as validate_file
