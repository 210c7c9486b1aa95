"""SQL over the index of a run, by duckdb."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from smdebug.exceptions import SMDebugRuntimeError
from smdebug.storage.index import SCHEMA

if TYPE_CHECKING:
    from smdebug.storage.reader import RunReader


def run_query(
    query: str, reader: RunReader, range_steps: tuple[int | None, int | None] = (None, None)
) -> Any:
    """Runs a query with the index as the table `run`; returns a pandas DataFrame.

    Where the index files are local and hold every row once, duckdb reads them itself, only the
    columns and row groups the query needs. Otherwise it gets the table from memory.
    """
    try:
        import duckdb
        import pandas  # noqa: F401
    except ImportError as error:
        raise SMDebugRuntimeError(
            "sql needs duckdb and pandas: pip install 'tornasole[sql]'"
        ) from error
    keys = reader.parquet_files()
    paths = [reader.store.path(key) for key in keys or ()]
    with duckdb.connect() as connection:
        if paths and all(path is not None for path in paths):
            connection.register("stored", connection.read_parquet(paths))
        else:
            connection.register("stored", reader.table(SCHEMA.names))
        begin, end = range_steps
        condition = f"step >= {begin or 0}" + (f" and step < {end}" if end is not None else "")
        connection.execute(f"create view run as select * from stored where {condition}")
        return connection.execute(query).df()
