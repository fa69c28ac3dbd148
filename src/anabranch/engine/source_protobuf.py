"""Protobuf values decoded in Spark's Python workers, by a descriptor set; types as Spark's `from_protobuf` has them.

Fields that are not set are null where Protobuf can tell (messages, `optional`), else they have their default.
"""

from __future__ import annotations

import base64
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.connectors.wire_protobuf import message_type, schema_missing

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructType

_TIMESTAMP = "google.protobuf.Timestamp"
_SOURCE = "sources.kafka"


def from_protobuf(column: Column, path: str, message: str, *, framed: bool) -> Column:
    """Values of one message type; `framed` ones have message indexes before them."""
    from pyspark.sql import functions as F

    try:
        descriptors = base64.b64encode(Path(path).read_bytes()).decode()
    except OSError as error:
        raise schema_missing(_SOURCE, path, error) from error
    kind = spark_type(message_type(path, message, _SOURCE))

    # Without type hints: Spark would take them for those of another kind of function, and warn.
    decode = F.udf(lambda v: None if v is None else decoded(bytes(v), descriptors, message, framed), kind)
    return decode(column)


def spark_type(descriptor: Descriptor) -> StructType:
    """The row type of a message."""
    from pyspark.sql.types import StructType

    found = StructType()
    for field in descriptor.fields:
        found = found.add(field.name, _field_type(field), True)
    return found


def decoded(value: bytes, descriptors: str, message: str, framed: bool) -> dict[str, Any]:
    """The fields of one message."""
    body = value[_index_length(value) :] if framed else value
    return _row(_class(descriptors, message).FromString(body))


@cache
def _class(descriptors: str, message: str) -> Any:
    from google.protobuf import descriptor_pb2, descriptor_pool
    from google.protobuf.message_factory import GetMessageClass

    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(descriptors)).file:
        pool.AddSerializedFile(file.SerializeToString())
    return GetMessageClass(pool.FindMessageTypeByName(message))


def _index_length(value: bytes) -> int:
    """How many bytes the message indexes take: a zero alone, or a count and so many numbers."""
    if value[:1] == b"\x00":
        return 1
    at, left = 0, 1
    counted = False
    while left:
        number = shift = 0
        while True:
            byte = value[at]
            at += 1
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        left = (number >> 1) if not counted else left - 1
        counted = True
    return at


def _field_type(field: FieldDescriptor) -> DataType:
    from pyspark.sql import types as T

    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        entry = field.message_type.fields_by_name
        return T.MapType(_single_type(entry["key"]), _single_type(entry["value"]))
    return T.ArrayType(_single_type(field), False) if field.is_repeated else _single_type(field)


def _single_type(field: FieldDescriptor) -> DataType:
    from pyspark.sql import types as T

    if field.message_type is not None:
        if field.message_type.full_name == _TIMESTAMP:
            return T.TimestampType()
        return spark_type(field.message_type)
    if field.type == field.TYPE_BYTES:
        return T.BinaryType()
    kinds: dict[int, DataType] = {
        field.CPPTYPE_INT32: T.IntegerType(),
        field.CPPTYPE_INT64: T.LongType(),
        field.CPPTYPE_UINT32: T.LongType(),
        field.CPPTYPE_UINT64: T.DecimalType(20, 0),
        field.CPPTYPE_DOUBLE: T.DoubleType(),
        field.CPPTYPE_FLOAT: T.FloatType(),
        field.CPPTYPE_BOOL: T.BooleanType(),
        field.CPPTYPE_ENUM: T.StringType(),
        field.CPPTYPE_STRING: T.StringType(),
    }
    return kinds[field.cpp_type]


def _row(message: Any) -> dict[str, Any]:
    return {field.name: _field_value(message, field) for field in message.DESCRIPTOR.fields}


def _field_value(message: Any, field: FieldDescriptor) -> Any:
    if field.has_presence and not message.HasField(field.name):
        return None
    value = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        item = field.message_type.fields_by_name["value"]
        return {key: _single(value[key], item) for key in value}
    return [_single(each, field) for each in value] if field.is_repeated else _single(value, field)


def _single(value: Any, field: FieldDescriptor) -> Any:
    if field.message_type is not None:
        return value.ToDatetime() if field.message_type.full_name == _TIMESTAMP else _row(value)
    if field.enum_type is not None:
        found = field.enum_type.values_by_number.get(value)
        return found.name if found else str(value)
    if field.cpp_type == field.CPPTYPE_UINT64:
        from decimal import Decimal

        return Decimal(value)
    return value
