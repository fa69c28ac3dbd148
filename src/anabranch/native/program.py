"""What workers run of a read group: JSON parsed by Arrow, flows as SQL of DuckDB over the records of a batch.

Plain values that can be sent to a worker.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from anabranch.native.parse import JsonShape

#: The table that the SQL of a flow reads: raw columns, parsed ones, and the two below.
RECORDS = "records"
#: Which record of the batch a row comes from.
RECORD = "record_number"
#: True for a row that need not be Spark's.
DOUBT = "in_doubt"
#: The time of the batch, for flows that ask what time it is.
NOW = "batch_time"


@dataclass(frozen=True, slots=True)
class Parse:
    """A raw column of JSON documents, and the name of the column that they become."""

    raw: str
    name: str
    shape: JsonShape


@dataclass(frozen=True, slots=True)
class Taken:
    """A column of a flow that is a field of a record: the column of the record, then the names of fields."""

    name: str
    place: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NativeFlow:
    """A flow: what is taken from the records, and SQL for what must be computed, if anything must.

    The SQL gives a row for each record, in their order, unless rows are `chosen`; then it gives `RECORD` too. It gives
    both `RECORD` and `DOUBT` if it may doubt a row.
    """

    sql: str | None
    schema: pa.Schema
    taken: tuple[Taken, ...] = ()
    chosen: bool = False


@dataclass(frozen=True, slots=True)
class NativeProgram:
    """All native flows of a group over the same records, which have the columns `raw`.

    The columns of `shared` are computed once and become columns of the records.
    """

    raw: tuple[str, ...]
    parses: tuple[Parse, ...]
    flows: tuple[NativeFlow, ...]
    shared: NativeFlow | None = None
    asks_time: bool = False
    skips_blank: bool = False  # a value that is blank is no record
