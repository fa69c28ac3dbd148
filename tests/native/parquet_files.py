"""Files of Parquet with hostile values, in the forms that workers read, and in others."""

from __future__ import annotations

import io
import math
import struct
from collections.abc import Iterator
from decimal import Decimal
from itertools import cycle, islice
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

SCHEMA = """
    id BIGINT, ok BOOLEAN, b TINYINT, s SMALLINT, i INT, n BIGINT, f FLOAT, d DOUBLE, m DECIMAL(9, 2), l DECIMAL(18, 6),
    h DECIMAL(38, 10), day DATE, at TIMESTAMP, clock TIMESTAMP_NTZ, name STRING, raw BINARY, tags ARRAY<STRING>,
    inner STRUCT<a: INT, `b.c`: STRING, deep: STRUCT<x: TIMESTAMP>>, items ARRAY<STRUCT<sku: STRING, qty: INT>>,
    `odd.name` STRING, `ünï` INT
"""

_NAN = struct.unpack("<d", bytes.fromhex("01000000000ff87f"))[0]  # not the usual one
_MICROS = 86_400_000_000
UTC = pa.timestamp("us", "UTC")
INNER = pa.struct([("a", pa.int32()), ("b.c", pa.string()), ("deep", pa.struct([("x", UTC)]))])
ITEM = pa.struct([("sku", pa.string()), ("qty", pa.int32())])

_TEXTS = [None, "", "a", "A", "ß", "\x00", "a\x00b", "😀", "\ufeff", "日本語", "x" * 3000, "\uffff", "\n", "late"]
_TIMES = [None, 0, -1, 1, -62_135_596_800_000_000, 253_402_300_799_999_999, -719_162 * _MICROS, 1_585_443_600_123_456]

#: Values that are read, by column.
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "ok": (pa.bool_(), [True, False, None]),
    "b": (pa.int8(), [0, -128, 127, None]),
    "s": (pa.int16(), [-32768, None, 32767]),
    "i": (pa.int32(), [0, 2, -(2**31), 2**31 - 1, None]),
    "n": (pa.int64(), [0, 7, -(2**63), 2**63 - 1, None, 5]),
    "f": (pa.float32(), [0.0, -0.0, math.nan, math.inf, -math.inf, 1e-45, None, 3.4028234663852886e38]),
    "d": (pa.float64(), [0.0, -0.0, math.nan, _NAN, math.inf, -math.inf, 4.9e-324, None, 1.7976931348623157e308]),
    "m": (pa.decimal128(9, 2), [None, Decimal("0.00"), Decimal("-9999999.99"), Decimal("9999999.99")]),
    "l": (pa.decimal128(18, 6), [None, Decimal("999999999999.999999"), Decimal("-0.000001")]),
    "h": (pa.decimal128(38, 10), [None, Decimal("9" * 28 + "." + "9" * 10), Decimal("-" + "9" * 28), Decimal("0")]),
    "day": (pa.date32(), [None, 0, -1, -719_162, 2_932_896, -141_428, -141_427, 18_321]),
    "at": (UTC, _TIMES),
    "clock": (pa.timestamp("us"), _TIMES[::-1]),
    "name": (pa.string(), _TEXTS),
    "raw": (pa.binary(), [None, b"", b"\x00\xff", b"\xed\xa0\x80", b"plain"]),
    "tags": (pa.list_(pa.string()), [None, [], [None], ["a", None, "ß"], [""], ["x"] * 20]),
    "inner": (
        INNER,
        [
            None,
            {"a": 1, "b.c": "x", "deep": None},
            {"a": None, "b.c": None, "deep": {"x": None}},
            {"a": 3, "b.c": "", "deep": {"x": -62_135_596_800_000_000}},
        ],
    ),
    "items": (pa.list_(ITEM), [None, [], [None], [{"sku": "a", "qty": 1}, None, {"sku": None, "qty": None}]]),
    "odd.name": (pa.string(), ["o", None]),
    "ünï": (pa.int32(), [1, None, 3]),
}


def table(rows: int = 120, first: int = 0) -> pa.Table:
    """Rows in which the values of each column come in turns, as they are declared."""
    columns = {"id": pa.array(range(first, first + rows), pa.int64())}
    for place, (name, (kind, values)) in enumerate(VALUES.items()):
        columns[name] = _array(islice(cycle(values), place, place + rows), kind)
    return pa.table(columns)


def _array(values: Iterator[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return pa.array(values, pa.int64() if pa.types.is_timestamp(kind) else pa.int32()).cast(kind)
    return pa.array(values, kind)


def with_columns(one: pa.Table, **columns: pa.Array | None) -> pa.Table:
    """The table with columns of other forms in their places, or without them."""
    for name, column in columns.items():
        place = one.schema.names.index(name) if name in one.schema.names else None
        if column is None:
            one = one.drop_columns([name])
        elif place is None:
            one = one.append_column(name, column)
        else:
            one = one.set_column(place, name, column)
    return one


def packed(one: pa.Table, **options: Any) -> bytes:
    """A file of the table."""
    sink = io.BytesIO()
    pq.write_table(one, sink, **options)
    return sink.getvalue()


def usual() -> dict[str, bytes]:
    """Files that workers read, in many forms."""
    whole = table()
    millis = [None, 0, -1, -62_135_596_800_000, 253_402_300_799_999, 1_600_000_000_123]
    times = pa.array(islice(cycle(millis), 120), pa.int64())
    small = pa.array(islice(cycle([None, 5, -(2**31), 2**31 - 1]), 120), pa.int32())
    texts = whole.column("name").combine_chunks()
    other = with_columns(
        table(first=1000),
        n=small,
        at=times.cast(pa.timestamp("ms", "Europe/Berlin")),
        clock=times.cast(pa.timestamp("ms")),
        name=texts.dictionary_encode(),
        tags=whole.column("tags").cast(pa.large_list(pa.large_string())),
    )
    fewer = with_columns(table(first=2000), h=None, at=None, items=None, ünï=None)
    naive = with_columns(
        table(first=3000),
        at=whole.column("at").cast(pa.timestamp("us")),
        name=texts.cast(pa.binary()),
        unknown=pa.array([1] * 120, pa.uint64()),
        pairs=pa.array([[("a", 1)]] * 120, pa.map_(pa.string(), pa.int32())),
        inner=pa.array(
            [None if n % 3 else {"deep": {"y": 1, "x": n}, "more": [1], "B.C": "x", "a": n} for n in range(120)],
            pa.struct(
                [
                    ("deep", pa.struct([("y", pa.int32()), ("x", UTC)])),
                    ("more", pa.list_(pa.int32())),
                    ("B.C", pa.string()),
                    ("a", pa.int32()),
                ]
            ),
        ),
    )
    never = pa.schema([f.with_nullable(False) if f.name == "id" else f for f in whole.schema])
    delta = {"id": "DELTA_BINARY_PACKED", "odd.name": "DELTA_BYTE_ARRAY", "raw": "DELTA_LENGTH_BYTE_ARRAY"}
    capitals = fewer.rename_columns([name.upper() if name.isascii() else name for name in fewer.schema.names])
    return {
        "000.parquet": packed(whole, row_group_size=7),
        "001.parquet": packed(other, compression="zstd", data_page_version="2.0", row_group_size=50),
        "002.parquet": packed(fewer, compression="gzip", store_decimal_as_integer=True),
        "003.parquet": packed(naive, compression="none", use_dictionary=False, version="1.0"),
        "004.parquet": packed(capitals.select(capitals.schema.names[::-1]), store_schema=False, data_page_size=64),
        "005.parquet": packed(table(50, 4000).cast(never), use_dictionary=False, column_encoding=delta),
        "006.parquet": packed(whole.schema.empty_table()),
        "007.parquet": packed(pa.table({"strange": [1, 2, 3]})),
        "008.parquet": b"",
        "009.parquet": packed(whole.slice(0, 3), store_decimal_as_integer=True, use_compliant_nested_type=False),
    }


def odd() -> dict[str, bytes]:
    """Files that workers do not read; Spark may or may not."""
    whole, count = table(3), 3
    mixed = whole.append_column("NAME", pa.array(["x"] * count))
    days = pa.array([2_932_897] * count, pa.int32()).cast(pa.date32())
    rest = packed(whole)
    changed = {
        "unsigned": with_columns(whole, n=pa.array([1, 2, 3], pa.uint32())),
        "wider": with_columns(whole, i=pa.array([1, 2, 3], pa.int64())),
        "nanoseconds": with_columns(whole, at=pa.array([1, 2, 3], pa.timestamp("ns", "UTC"))),
        "zoned clock": with_columns(whole, clock=pa.array([1, 2, 3], UTC)),
        "other decimal": with_columns(whole, m=pa.array([Decimal("1.5")] * count, pa.decimal128(9, 3))),
        "late day": with_columns(whole, day=days),
        "late time": with_columns(whole, at=pa.array([2**60] * count, pa.int64()).cast(UTC)),
        "no text": with_columns(whole, name=pa.array([b"\xff", b"a", None])),
        "fixed": with_columns(whole, raw=pa.array([b"ab"] * count, pa.binary(2))),
        "text for bytes": with_columns(whole, raw=pa.array(["ab"] * count)),
        "half": with_columns(whole, f=pa.array([1, 2, 3], pa.float16())),
        "text for number": with_columns(whole, i=pa.array(["1", "2", "3"])),
        "other struct": with_columns(whole, inner=pa.array([{"a": 1}] * count)),
        "map": with_columns(whole, tags=pa.array([[("a", 1)]] * count, pa.map_(pa.string(), pa.int32()))),
        "no list": with_columns(whole, tags=pa.array(["a"] * count)),
        "duration": with_columns(whole, n=pa.array([1, 2, 3], pa.duration("us"))),
        "only nulls": with_columns(whole, n=pa.nulls(count)),
        "two names": mixed,
        "letters": whole.rename_columns(["ÜNÏ" if name == "ünï" else name for name in whole.schema.names]),
    }
    found = {name: packed(one) for name, one in changed.items()}
    found |= {
        "old Spark": packed(whole.replace_schema_metadata({"org.apache.spark.version": "2.4.8"})),
        "old calendar": packed(
            whole.replace_schema_metadata({"org.apache.spark.version": "4.1.0", "org.apache.spark.legacyDateTime": ""})
        ),
        "int96 of others": packed(whole, use_deprecated_int96_timestamps=True),
        "truncated": rest[:-20],
        "damaged": rest[:200] + b"\x00\xff" * 40 + rest[280:],
        "no Parquet": b"id,name\n1,a\n",
        "short": b"PAR1",
    }
    return found
