"""The same order in Avro and in Protobuf, for tests of sources and sinks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, timestamp_pb2
from google.protobuf.message_factory import GetMessageClass

ORDER = "shop.Order"

AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "name", "type": ["null", "string"], "default": None},
            {"name": "tags", "type": {"type": "array", "items": "string"}},
            {
                "name": "inner",
                "type": ["null", {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "double"}]}],
                "default": None,
            },
        ],
    }
)


def descriptors() -> descriptor_pb2.FileDescriptorSet:
    """What protoc writes for a file with a message of every kind of field."""
    file = descriptor_pb2.FileDescriptorProto(
        name="shop.proto", package="shop", syntax="proto3", dependency=["google/protobuf/timestamp.proto"]
    )
    kind = file.enum_type.add(name="Kind")
    kind.value.add(name="SMALL", number=0)
    kind.value.add(name="LARGE", number=1)
    inner = file.message_type.add(name="Inner")
    field = descriptor_pb2.FieldDescriptorProto
    inner.field.add(name="x", number=1, type=field.TYPE_DOUBLE, label=field.LABEL_OPTIONAL)
    order = file.message_type.add(name="Order")
    single, many = field.LABEL_OPTIONAL, field.LABEL_REPEATED
    order.field.add(name="id", number=1, type=field.TYPE_INT64, label=single)
    order.field.add(name="name", number=2, type=field.TYPE_STRING, label=single, proto3_optional=True, oneof_index=0)
    order.oneof_decl.add(name="_name")
    order.field.add(name="tags", number=3, type=field.TYPE_STRING, label=many)
    order.field.add(name="inner", number=4, type=field.TYPE_MESSAGE, type_name=".shop.Inner", label=single)
    order.field.add(name="kind", number=5, type=field.TYPE_ENUM, type_name=".shop.Kind", label=single)
    moment = ".google.protobuf.Timestamp"
    order.field.add(name="at", number=6, type=field.TYPE_MESSAGE, type_name=moment, label=single)
    entry = order.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=field.TYPE_STRING, label=single)
    entry.field.add(name="value", number=2, type=field.TYPE_INT32, label=single)
    counts = ".shop.Order.CountsEntry"
    order.field.add(name="counts", number=7, type=field.TYPE_MESSAGE, type_name=counts, label=many)
    known = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(known)
    return descriptor_pb2.FileDescriptorSet(file=[known, file])


def write_descriptors(path: Path) -> Path:
    path.write_bytes(descriptors().SerializeToString())
    return path


def message_class() -> Any:
    pool = descriptor_pool.DescriptorPool()
    for file in descriptors().file:
        pool.AddSerializedFile(file.SerializeToString())
    return GetMessageClass(pool.FindMessageTypeByName(ORDER))
