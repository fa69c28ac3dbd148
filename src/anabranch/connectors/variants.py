"""Variant columns: a struct of two binaries in Arrow and in the files, a type of its own in a table's schema.

Spark tells such a struct from others by metadata on one of its fields. It is kept on all ways from the rows to the
files and back, so that a table's rows that are written anew are variants again.
"""

from __future__ import annotations

import pyarrow as pa

#: How Spark marks what its Arrow form has no type for, by the field that carries the mark.
_MARKED = {"variant": "metadata", "geometry": "wkb", "geography": "wkb"}

VARIANT = pa.struct([pa.field("value", pa.binary()), pa.field("metadata", pa.binary(), metadata={"variant": "true"})])


def marked(kind: pa.DataType) -> str | None:
    """Which of Spark's types a struct stands for, if it is marked.

    >>> marked(VARIANT), marked(pa.struct([("value", pa.binary()), ("metadata", pa.binary())]))
    ('variant', None)
    """
    if not pa.types.is_struct(kind):
        return None
    marks = {(f.name, mark.decode()) for f in kind for mark, value in (f.metadata or {}).items() if value == b"true"}
    return next((name for name, field in _MARKED.items() if (field, name) in marks), None)


def is_variant(kind: pa.DataType) -> bool:
    """Whether a type is that of variants."""
    return marked(kind) == "variant"
