"""A DuckDB of a thread's own: one thread, as Spark counts its cores; and no way out of the process."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb

_SETTINGS = (
    "SET threads = 1",
    "SET TimeZone = 'UTC'",
    "SET preserve_insertion_order = true",
    "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false",
    "SET enable_external_access = false",
    "SET lock_configuration = true",
)


def open_database() -> duckdb.DuckDBPyConnection:
    """In memory, and empty."""
    import duckdb

    database = duckdb.connect(":memory:")
    for setting in _SETTINGS:
        database.execute(setting)
    return database
