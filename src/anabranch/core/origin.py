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
