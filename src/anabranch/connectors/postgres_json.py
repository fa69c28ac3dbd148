"""Structs, lists and maps as JSON texts and back, through DuckDB.

Decimals and bytes become texts in them: nothing is rounded.
"""

from __future__ import annotations

import pyarrow as pa

from anabranch.connectors.changes import asking
from anabranch.core.names import quoted


def as_json(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with its nested columns as texts.

    >>> as_json(pa.record_batch({"s": pa.array([{"a": 1}, None])}))["s"].to_pylist()
    ['{"a":1}', None]
    """
    nested = [f for f in batch.schema if pa.types.is_nested(f.type)]
    if not nested:
        return batch
    made = _each(batch, [f"to_json(CAST({quoted(f.name)} AS {_type(f.type, plain=True)}))" for f in nested])
    for field, column in zip(nested, made.columns, strict=True):
        position = batch.schema.get_field_index(field.name)
        batch = batch.set_column(position, field.name, column.combine_chunks().cast(pa.string()))
    return batch


def from_json(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Texts that `as_json` made, as values of their type again."""
    batch = pa.record_batch({"v": texts})
    made = _each(batch, [f"CAST(CAST(v::JSON AS {_type(kind, plain=True)}) AS {_type(kind, plain=False)})"])
    return made.column(0).combine_chunks().cast(kind)


def from_hex(texts: pa.Array) -> pa.Array:
    """Bytes written as hexadecimal digits."""
    return _each(pa.record_batch({"v": texts}), ["unhex(v)"]).column(0).combine_chunks().cast(pa.binary())


def _each(batch: pa.RecordBatch, expressions: list[str]) -> pa.Table:
    listed = ", ".join(f"{expression} AS c{number}" for number, expression in enumerate(expressions))
    with asking() as database:
        database.execute("SET TimeZone = 'UTC'")
        database.register("plain_rows", batch)
        try:
            return database.sql(f"SELECT {listed} FROM plain_rows").to_arrow_table()
        finally:
            database.unregister("plain_rows")


def _type(kind: pa.DataType, *, plain: bool) -> str:
    """The type as DuckDB calls it; `plain` leaves what JSON has no exact form for as texts."""
    if pa.types.is_map(kind):
        return f"MAP({_type(kind.key_type, plain=plain)}, {_type(kind.item_type, plain=plain)})"
    if pa.types.is_struct(kind):
        return f"STRUCT({', '.join(f'{quoted(f.name)} {_type(f.type, plain=plain)}' for f in kind)})"
    if pa.types.is_nested(kind):
        return f"{_type(kind.value_type, plain=plain)}[]"
    if pa.types.is_decimal(kind):
        return "VARCHAR" if plain else f"DECIMAL({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        return "TIMESTAMPTZ" if kind.tz else "TIMESTAMP"
    if pa.types.is_binary(kind):
        return "VARCHAR" if plain else "BLOB"
    return _NAMES[kind]


_NAMES = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.date32(): "DATE",
    pa.string(): "VARCHAR",
}
