"""Expressions as the native pass computes them beside Spark: over the same rows, bit by bit."""

# ruff: noqa: E501  (long lines of one thought)
from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa

from anabranch.engine.catalyst_nodes import analyzed, identity, items
from anabranch.engine.catalyst_tree import tree
from anabranch.native.expressions import compile_expr, sql_type
from anabranch.native.tree import Compiled, NotKnown


@dataclass
class Native:
    """An expression as the native pass computes it, over the rows of a table."""

    text: str
    compiled: Compiled
    values: pa.ChunkedArray
    doubt: list[bool]


def database() -> duckdb.DuckDBPyConnection:
    """DuckDB as workers have it."""
    connection = duckdb.connect(":memory:")
    connection.execute("SET threads = 1")
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def compiled(frame: Any, expressions: Iterable[str]) -> dict[str, Compiled | NotKnown]:
    """Each expression over a frame of Spark's, compiled, or why not."""
    columns = {str(identity(a)): f'"{a.name()}"' for a in items(analyzed(frame).output())}
    found: dict[str, Compiled | NotKnown] = {}
    texts = list(dict.fromkeys(expressions))
    if not texts:
        return found
    for text, node in zip(texts, items(analyzed(frame.selectExpr(*texts)).projectList()), strict=True):
        expr = tree(node)
        try:
            found[text] = compile_expr(expr, columns)
            sql_type(expr.type)
        except NotKnown as reason:
            found[text] = reason
    return found


def natively(table: pa.Table, expressions: dict[str, Compiled]) -> list[Native]:
    """What the native pass makes of a table."""
    table = pa.table([_zoneless(column) for column in table.columns], names=table.column_names)
    if not expressions:
        return []
    parts = [f"{one.sql} AS v{i}, {one.doubt or 'FALSE'} AS d{i}" for i, one in enumerate(expressions.values())]
    connection = database()
    connection.register("records", table)
    found = connection.sql(f"SELECT {', '.join(parts)} FROM records").to_arrow_table()
    natives = []
    for i, (text, one) in enumerate(expressions.items()):
        doubt = found.column(f"d{i}").to_pylist()
        assert None not in doubt, f"the doubt of {text} is null"
        natives.append(Native(text, one, found.column(f"v{i}"), doubt))
    return natives


def _zoneless(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.timestamp("us")) if pa.types.is_timestamp(column.type) else column


def different(spark: Any, table: pa.Table, expressions: Sequence[str], *, all_known: bool = True) -> list[str]:
    """The rows of a table for which the native pass gives something else than Spark, and has no doubt."""
    found = compiled(frame_of(spark, table), expressions)
    wrong = [f"{text}: {reason}" for text, reason in found.items() if isinstance(reason, NotKnown)] if all_known else []
    natives = natively(table, {text: one for text, one in found.items() if isinstance(one, Compiled)})
    if not natives:
        return wrong
    try:
        theirs = _in_spark(spark, table, natives)
    except Exception:  # noqa: BLE001  one of many: which one is it?
        return wrong + [line for native in natives for line in _alone(spark, table, native)]
    for native, values in zip(natives, theirs, strict=True):
        wrong += _compare(native, values, table)
        if all_known and not any(not d and v for d, v in zip(native.doubt, values.is_valid().to_pylist(), strict=True)):
            wrong.append(f"{native.text}: is null or in doubt for every row")
    return wrong


def _in_spark(spark: Any, table: pa.Table, natives: Sequence[Native]) -> list[pa.ChunkedArray]:
    """What Spark gives; of rows that the native pass is in doubt of it is not asked, and for no other may it raise."""
    sure = [[not native.doubt[row] for native in natives] for row in range(table.num_rows)]
    masked = _frame(spark, table.append_column("sure", pa.array(sure, pa.list_(pa.bool_()))))
    columns = [f"CASE WHEN sure[{i}] THEN {native.text} END AS v{i}" for i, native in enumerate(natives)]
    return list(masked.selectExpr(*columns).toArrow().columns)


def _alone(spark: Any, table: pa.Table, native: Native) -> list[str]:
    """The same for one expression, over no other rows: Spark may compute what is in a branch for rows not in it."""
    sure = pa.array([not doubt for doubt in native.doubt])
    rows = table.filter(sure)
    if not rows.num_rows:
        return []
    try:
        theirs = _frame(spark, rows).selectExpr(f"{native.text} AS v").toArrow().column("v")
    except Exception as error:  # noqa: BLE001
        return [f"{native.text}: Spark raises {str(error)[:300]}"]
    return _compare(
        Native(native.text, native.compiled, native.values.filter(sure), [False] * rows.num_rows), theirs, rows
    )


def _frame(spark: Any, table: pa.Table) -> Any:
    """A frame that is no local relation: such a one Spark computes while it plans, without the code that it generates."""
    spark.conf.set("spark.sql.execution.arrow.localRelationThreshold", "0")
    try:
        return frame_of(spark, table)
    finally:
        spark.conf.unset("spark.sql.execution.arrow.localRelationThreshold")


def frame_of(spark: Any, table: pa.Table) -> Any:
    """A frame of a table; a timestamp without a zone is one in Spark, too, and not one of the session's zone."""
    spark.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    try:
        return spark.createDataFrame(table)
    finally:
        spark.conf.unset("spark.sql.timestampType")


def _compare(native: Native, theirs: pa.ChunkedArray, table: pa.Table) -> list[str]:
    ours, spark_has = plain_values(native.values), plain_values(theirs)
    wrong = []
    if _shown(native.values.type) != _shown(theirs.type):
        wrong.append(f"{native.text}: has type {native.values.type}, Spark's is {theirs.type}")
    for row, doubt in enumerate(native.doubt):
        if not doubt and ours[row] != spark_has[row]:
            given = {name: table.column(name).slice(row, 1).combine_chunks() for name in table.column_names}
            shown = {name: plain_values(value)[0] for name, value in given.items()}
            wrong.append(f"{native.text}: {ours[row]!r}, Spark has {spark_has[row]!r} of {str(shown)[:300]}")
            break
    return wrong


def _shown(kind: pa.DataType) -> str:
    return re.sub(r"\[us, tz=[^]]*\]", "[us]", str(kind)).replace("item: ", "").replace("element: ", "").replace("l: ", "").replace(" not null", "")  # fmt: skip


def plain_values(values: Any) -> list[Any]:
    """Values that are equal only if they are the same bits; every NaN is one."""
    kind = values.type
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, pa.ChunkedArray):  # no rows
        return []
    if pa.types.is_date(kind):
        return values.cast(pa.int32()).to_pylist()  # type: ignore[no-any-return]
    if pa.types.is_timestamp(kind):
        return values.cast(pa.int64()).to_pylist()  # type: ignore[no-any-return]
    if pa.types.is_list(kind):
        inner = plain_values(values.flatten())
        found, at = [], 0
        for length in pa.compute.list_value_length(values).to_pylist():
            found.append(None if length is None else inner[at : at + length])
            at += length or 0
        return found
    if pa.types.is_struct(kind):
        fields = [plain_values(field) for field in values.flatten()]
        return [None if null else row for null, row in zip(values.is_null().to_pylist(), zip(*fields, strict=True), strict=True)]  # fmt: skip
    return [_bits(value) for value in values.to_pylist()]


def _bits(value: Any) -> Any:
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else struct.pack("<d", value).hex() + f" ({value})"
    return value
