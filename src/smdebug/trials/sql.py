"""SQL over the index of a run, by duckdb."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from smdebug.exceptions import SMDebugRuntimeError
from smdebug.storage.findings import findings_table
from smdebug.storage.v2.index import SCHEMA

if TYPE_CHECKING:
    from smdebug.storage.reader import RunReader


def run_query(
    query: str, reader: RunReader, range_steps: tuple[int | None, int | None] = (None, None)
) -> Any:
    """Runs a query with the index as the table `run`, and what rules found as `findings`.

    Where the index files are local and hold every row once, duckdb reads them itself, only the
    columns and row groups the query needs. Otherwise it gets the table from memory. The answer is
    a pandas DataFrame.
    """
    try:
        import duckdb
        import pandas  # noqa: F401
    except ImportError as error:
        raise SMDebugRuntimeError(
            "sql needs duckdb and pandas: pip install 'tornasole[sql]'"
        ) from error
    with duckdb.connect() as connection:
        if "findings" in query.lower():
            connection.register("findings", findings_table(reader.store))
        try:
            return _answer(connection, query, _stored(connection, reader), range_steps)
        except duckdb.IOException:
            # Compaction took the files away in between; what was read of them is still here.
            return _answer(connection, query, reader.table(SCHEMA.names), range_steps)


def _stored(connection: Any, reader: RunReader) -> Any:
    paths = [reader.store.path(key) for key in reader.parquet_files() or ()]
    # duckdb takes a path for a pattern, and a pattern could match another run.
    if paths and not any(path is None or set(path) & set("*?[]{}") for path in paths):
        return connection.read_parquet(paths)
    return reader.table(SCHEMA.names)


def _answer(
    connection: Any, query: str, stored: Any, range_steps: tuple[int | None, int | None]
) -> Any:
    begin, end = range_steps
    condition = f"step >= {begin or 0}" + (f" and step < {end}" if end is not None else "")
    connection.register("stored", stored)
    connection.execute(f"create or replace view run as select * from stored where {condition}")
    return connection.execute(query).df()
