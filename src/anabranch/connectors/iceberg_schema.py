"""Which rows an Iceberg table can take: Arrow schemas put into Iceberg's types, and compared with a table's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from itertools import count
from typing import Any

import pyarrow as pa
from pyiceberg import types as ice
from pyiceberg.schema import Schema

from anabranch.connectors.delta_schema import Difference
from anabranch.connectors.variants import marked
from anabranch.errors import ProjectError

_NARROW = (pa.types.is_int8, pa.types.is_int16)
_TEXTS = (pa.types.is_large_string, pa.types.is_string_view)
_BYTES = (pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary)
_LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
_SAME = (
    pa.types.is_boolean,
    pa.types.is_int32,
    pa.types.is_int64,
    pa.types.is_float32,
    pa.types.is_float64,
    pa.types.is_date32,
    pa.types.is_string,
    pa.types.is_binary,
    pa.types.is_decimal128,
)


def iceberg_arrow_schema(schema: pa.Schema) -> pa.Schema:
    """The schema that staged files have: types that Iceberg has, everything nullable.

    >>> iceberg_arrow_schema(pa.schema([pa.field("n", pa.int16(), nullable=False), ("t", pa.timestamp("ns", "UTC"))]))
    n: int32
    t: timestamp[us, tz=UTC]
    """
    fields = [pa.field(f.name, _file_type(f.type, f.name)) for f in schema]
    folded: dict[str, str] = {}
    for f in fields:
        if other := folded.get(f.name.lower()):
            raise ProjectError(
                "SCHEMA_UNSUPPORTED",
                f'columns "{other}" and "{f.name}" differ in case only',
                hint="rename one of them: Spark does not tell such columns of an Iceberg table apart",
            )
        folded[f.name.lower()] = f.name
        if "." in f.name:
            raise ProjectError(
                "SCHEMA_UNSUPPORTED",
                f'column "{f.name}" has a dot in its name, which stands for a field of a struct in Iceberg',
                hint="rename the column in the flow",
            )
    return pa.schema(fields)


def _file_type(kind: pa.DataType, path: str) -> pa.DataType:
    if any(same(kind) for same in _SAME):
        return kind
    if any(narrow(kind) for narrow in _NARROW):
        return pa.int32()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    if any(text(kind) for text in _TEXTS):
        return pa.string()
    if any(binary(kind) for binary in _BYTES):
        return pa.binary()
    if pa.types.is_date64(kind):
        return pa.date32()
    if pa.types.is_dictionary(kind):
        return _file_type(kind.value_type, path)
    if pa.types.is_map(kind):
        return pa.map_(_file_type(kind.key_type, f"{path}.key"), _file_type(kind.item_type, f"{path}.value"))
    if any(several(kind) for several in _LISTS):
        return pa.list_(pa.field("element", _file_type(kind.value_type, f"{path}.element")))
    mark = marked(kind)
    if mark is None and pa.types.is_struct(kind) and kind.num_fields:
        return pa.struct([pa.field(f.name, _file_type(f.type, f"{path}.{f.name}")) for f in kind])
    hint = {
        "variant": f"keep it as text: to_json({path}), or as the columns that are needed: variant_get({path}, ...)",
        None: f"cast it in the flow, for example CAST({path} AS STRING)",
    }
    raise ProjectError(
        "SCHEMA_UNSUPPORTED",
        f'column "{path}" is of type {mark or kind}, which a table of format iceberg has no place for',
        hint=hint.get(mark) or f"keep its well-known binary form: ST_AsBinary({path})",
    )


def iceberg_schema(schema: pa.Schema) -> Schema:
    """Rows of such a schema in Iceberg's terms; a table that takes them gives the columns ids of its own.

    >>> print(iceberg_schema(pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))])))
    table {
      1: id: optional long
      2: at: optional timestamptz
    }
    """
    ids = count(1)
    return Schema(*_fields(schema, ids))


def _fields(fields: Any, ids: Iterator[int]) -> list[ice.NestedField]:
    numbered = [(next(ids), f) for f in fields]
    return [ice.NestedField(number, f.name, iceberg_type(f.type, ids), required=False) for number, f in numbered]


def iceberg_type(kind: pa.DataType, ids: Iterator[int]) -> ice.IcebergType:
    """The Iceberg type of one of the types that `iceberg_arrow_schema` gives."""
    if pa.types.is_timestamp(kind):
        return ice.TimestamptzType() if kind.tz else ice.TimestampType()
    if pa.types.is_decimal(kind):
        return ice.DecimalType(kind.precision, kind.scale)
    if pa.types.is_map(kind):
        key, value = next(ids), next(ids)
        return ice.MapType(
            key, iceberg_type(kind.key_type, ids), value, iceberg_type(kind.item_type, ids), value_required=False
        )
    if pa.types.is_list(kind):
        element = next(ids)
        return ice.ListType(element, iceberg_type(kind.value_type, ids), element_required=False)
    if pa.types.is_struct(kind):
        return ice.StructType(*_fields(kind, ids))
    return _PRIMITIVES[kind]()


_PRIMITIVES: dict[pa.DataType, Callable[[], ice.PrimitiveType]] = {
    pa.bool_(): ice.BooleanType,
    pa.int32(): ice.IntegerType,
    pa.int64(): ice.LongType,
    pa.float32(): ice.FloatType,
    pa.float64(): ice.DoubleType,
    pa.date32(): ice.DateType,
    pa.string(): ice.StringType,
    pa.binary(): ice.BinaryType,
}
#: Types that other writers may have put into a table, and that can be read.
_READ: dict[str, pa.DataType] = {
    **{str(kind()): arrow for arrow, kind in _PRIMITIVES.items()},
    "timestamptz": pa.timestamp("us", "UTC"),
    "timestamp": pa.timestamp("us"),
    "time": pa.time64("us"),
    "uuid": pa.binary(16),
}


def arrow_schema(schema: Schema) -> pa.Schema:
    """A table's schema as its files are read.

    >>> arrow_schema(iceberg_schema(pa.schema([("l", pa.list_(pa.int32()))]))).field("l").type
    ListType(list<element: int32>)
    """
    return pa.schema([pa.field(f.name, arrow_type(f.field_type)) for f in schema.fields])


def arrow_type(kind: ice.IcebergType) -> pa.DataType:
    """The Arrow type that values of an Iceberg type are read as."""
    if isinstance(kind, ice.StructType):
        return pa.struct([pa.field(f.name, arrow_type(f.field_type)) for f in kind.fields])
    if isinstance(kind, ice.ListType):
        return pa.list_(pa.field("element", arrow_type(kind.element_type)))
    if isinstance(kind, ice.MapType):
        return pa.map_(arrow_type(kind.key_type), arrow_type(kind.value_type))
    if isinstance(kind, ice.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, ice.FixedType):
        return pa.binary(len(kind))
    return _READ[str(kind)]


def physical(text: str | None, kind: ice.IcebergType) -> Any:
    """A partition value that was written down as text, as Iceberg's manifests have it.

    >>> physical("19723", ice.DateType()), physical("1.50", ice.DecimalType(9, 2)), physical(None, ice.LongType())
    (19723, Decimal('1.50'), None)
    """
    if text is None or isinstance(kind, ice.StringType):
        return text
    if isinstance(kind, ice.BooleanType):
        return text == "true"
    return Decimal(text) if isinstance(kind, ice.DecimalType) else int(text)


def compare(table: Schema, rows: Schema) -> Difference:
    """What stands between a table and the rows it is to take.

    >>> there = iceberg_schema(pa.schema([("a", pa.int64()), ("b", pa.date32())]))
    >>> compare(there, iceberg_schema(pa.schema([("a", pa.string()), ("c", pa.int64())])))
    Difference(added=['c'], missing=['b'], problems=['column "a" is long in the table, string in the rows'])
    """
    difference = Difference()
    _compare_fields(table.fields, rows.fields, "", difference)
    return difference


def _compare_fields(table: Any, rows: Any, path: str, difference: Difference) -> None:
    theirs = {f.name: f for f in table}
    folded = {name.lower(): name for name in theirs}
    ours = {f.name.lower() for f in rows}
    for f in rows:
        name = path + f.name
        if f.name in theirs:
            _compare_types(theirs[f.name].field_type, f.field_type, name, difference)
        elif other := folded.get(f.name.lower()):
            difference.problems.append(f'column "{name}" is called "{path}{other}" in the table')
        else:
            difference.added.append(name)
    for f in table:
        if f.required:
            difference.problems.append(f'column "{path}{f.name}" may not be null in the table')
        elif f.name.lower() not in ours:
            difference.missing.append(path + f.name)


def _compare_types(table: Any, rows: Any, path: str, difference: Difference) -> None:
    if isinstance(table, ice.StructType) and isinstance(rows, ice.StructType):
        _compare_fields(table.fields, rows.fields, f"{path}.", difference)
    elif isinstance(table, ice.ListType) and isinstance(rows, ice.ListType):
        _compare_types(table.element_type, rows.element_type, f"{path}.element", difference)
        if table.element_required:
            difference.problems.append(f'elements of "{path}" may not be null in the table')
    elif isinstance(table, ice.MapType) and isinstance(rows, ice.MapType):
        _compare_types(table.key_type, rows.key_type, f"{path}.key", difference)
        _compare_types(table.value_type, rows.value_type, f"{path}.value", difference)
        if table.value_required:
            difference.problems.append(f'values of "{path}" may not be null in the table')
    elif table != rows:
        difference.problems.append(f'column "{path}" is {_word(table)} in the table, {_word(rows)} in the rows')


def _word(kind: ice.IcebergType) -> str:
    return str(kind) if isinstance(kind, ice.PrimitiveType) else type(kind).__name__.removesuffix("Type").lower()
