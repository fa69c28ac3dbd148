"""Columns that say where a row came from, and when."""

from __future__ import annotations

#: The time at which the rows of an epoch were read; the same for all of them.
INGESTED_AT = "_ingested_at"

#: The number of the epoch that wrote the row, put in when it is written.
EPOCH = "_epoch"

#: What sources say of a row: the file, or the place in a topic.
FILE = "_source_file"
TOPIC, PARTITION, OFFSET = "_topic", "_partition", "_offset"
ORIGIN = (FILE, TOPIC, PARTITION, OFFSET)

#: What a column with the value before a cast begins with. It is there to be judged, and not written to tables.
BEFORE_CAST = "_uncast_"

#: The column that says where a row came from, for tables that ask for it, and what is in it. `position` is where in a
#: file its block begins; `flow` made the row, of one made by `parent`. All but the flow may be null.
ROW_ORIGIN = "_origin"
ROW_ORIGIN_FIELDS = (
    "source string",
    "file string",
    "position bigint",
    "topic string",
    "partition int",
    "offset bigint",
    "flow string",
    "parent string",
)


def with_origin_columns(schema: str, *, epoch: bool) -> str:
    """A declared schema with the columns that say where rows came from.

    >>> with_origin_columns("id BIGINT", epoch=True).endswith("parent: string>, _epoch BIGINT")
    True
    """
    fields = ", ".join(each.replace(" ", ": ") for each in ROW_ORIGIN_FIELDS)
    return f"{schema}, {ROW_ORIGIN} STRUCT<{fields}>{f', {EPOCH} BIGINT' if epoch else ''}"


#: What the headers of a message begin with that say the same.
ORIGIN_HEADERS = "anabranch-origin-"
