"""What workers run of a read group: JSON parsed by Arrow, flows as SQL of DuckDB over the records of a batch.

Plain values that can be sent to a worker.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from anabranch.native.parse import JsonShape
from anabranch.native.parse_csv_shape import CsvShape

#: The table that the SQL of a flow reads: the columns that the program `reads`, and the number of the record.
RECORDS = "records"
#: Which record of the batch a row comes from.
RECORD = "record_number"
#: True for a row that need not be Spark's.
DOUBT = "in_doubt"
#: The time of the batch, for flows that ask what time it is.
NOW = "batch_time"


@dataclass(frozen=True, slots=True)
class Parse:
    """A raw column of documents, and the name of the column that they become."""

    raw: str
    name: str
    shape: JsonShape | CsvShape


@dataclass(frozen=True, slots=True)
class Taken:
    """A column of a flow that is a field of a record: the column of the record, then the names of fields."""

    name: str
    place: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Instant:
    """A column of all records: the instant that is written at a place in them."""

    name: str
    place: tuple[str, ...]
    utc: bool  # where no zone is written


@dataclass(frozen=True, slots=True)
class NativeFlow:
    """A flow: what is taken from the records, and SQL for what must be computed, if anything must.

    The SQL gives a row for each record, in their order, unless rows are `chosen`; then it gives `RECORD` too. It gives
    both `RECORD` and `DOUBT` if it may doubt a row. If a flow computes nothing but which records it takes, that is a
    column of the records, its `mask`.
    """

    sql: str | None
    schema: pa.Schema
    taken: tuple[Taken, ...] = ()
    chosen: bool = False
    mask: str | None = None


@dataclass(frozen=True, slots=True)
class NativeProgram:
    """All native flows of a group over the same records, which have the columns `raw`.

    First the `instants`, then the columns of `shared` are computed once and become columns of the records. SQL sees of
    a record what is in `reads`: what it does not ask for need not be made known to DuckDB.
    """

    raw: tuple[str, ...]
    parses: tuple[Parse, ...]
    flows: tuple[NativeFlow, ...]
    shared: NativeFlow | None = None
    instants: tuple[Instant, ...] = ()
    reads: tuple[Taken, ...] = ()
    asks_time: bool = False
    skips_blank: bool = False  # a value that is blank is no record
