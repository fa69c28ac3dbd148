"""Rows as Protobuf messages: classes made from a descriptor set, fields filled by name.

A descriptor set is what `protoc --include_imports --descriptor_set_out=shop.desc shop.proto` writes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.connectors.wire_avro import does_not_fit, mismatch
from anabranch.errors import ProjectError

if TYPE_CHECKING:
    import pyarrow as pa
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

_TIMESTAMP = "google.protobuf.Timestamp"

#: Sets one field of a message to a value that is not null.
Setter = Callable[[Any, Any], None]


class ProtobufValues:
    """Encodes rows as messages of one type; `frame` goes before each."""

    def __init__(self, path: str, message: str, sink: str, frame: bytes = b"") -> None:
        self._sink, self._frame = sink, frame
        self.descriptor = message_type(path, message, sink)
        from google.protobuf.message_factory import GetMessageClass

        self._make = GetMessageClass(self.descriptor)
        self._setters = _setters(self.descriptor)
        if frame:
            self._frame = frame + message_index(self.descriptor)

    def check(self, schema: pa.Schema, columns: Sequence[str]) -> None:
        """No column may be lost; fields without a column keep their default."""
        if lost := [name for name in columns if name not in self._setters]:
            raise mismatch(self._sink, f"the message {self.descriptor.full_name} has no field for {', '.join(lost)}")

    def __call__(self, batch: pa.RecordBatch, columns: tuple[str, ...]) -> list[bytes | None]:
        """One message for each row."""
        rows = batch.select(list(columns)).to_pylist(maps_as_pydicts="strict")
        return [self._frame + self._encoded(row) for row in rows]

    def _encoded(self, row: Mapping[str, Any]) -> bytes:
        message = self._make()
        for name, value in row.items():
            if value is not None:
                try:
                    self._setters[name](message, value)
                except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
                    raise does_not_fit(self._sink, f"column {name}: {error}") from error
        return bytes(message.SerializeToString())


def message_type(path: str, message: str, sink: str) -> Descriptor:
    """A message type of a descriptor set."""
    from google.protobuf import descriptor_pb2, descriptor_pool
    from google.protobuf.message import DecodeError

    try:
        found = descriptor_pb2.FileDescriptorSet.FromString(Path(path).read_bytes())
        pool = descriptor_pool.DescriptorPool()
        for file in found.file:
            pool.AddSerializedFile(file.SerializeToString())
        return pool.FindMessageTypeByName(message)
    except OSError as error:
        raise schema_missing(sink, path, error) from error
    except (DecodeError, TypeError) as error:
        raise ProjectError(
            "WIRE_SCHEMA_MISMATCH",
            f'"{sink}": {path} is no descriptor set, or lacks files it imports: {error}',
            hint="make it with protoc --include_imports --descriptor_set_out=FILE",
        ) from error
    except KeyError as error:
        names = sorted(f"{f.package}.{m.name}".lstrip(".") for f in found.file for m in f.message_type)
        raise mismatch(sink, f'{path} has no message "{message}"; it has {", ".join(names)}') from error


def schema_missing(sink: str, path: str, error: OSError) -> ProjectError:
    """The file of a schema is not to be had."""
    return ProjectError(
        "WIRE_SCHEMA_MISSING",
        f'"{sink}": the schema {path} cannot be read: {error.strerror}',
        hint='name a file with "value.schema": an absolute path, or one from the folder the run is started in',
    )


def message_index(descriptor: Descriptor) -> bytes:
    """Which message of its file it is, as Confluent's framing has it: a single zero for the first."""
    path: list[int] = []
    inner: Any = descriptor
    while inner is not None:
        siblings = inner.containing_type.nested_types if inner.containing_type else list(_top_level(inner))
        path.insert(0, [each.full_name for each in siblings].index(inner.full_name))
        inner = inner.containing_type
    return b"\x00" if path == [0] else b"".join(map(_zigzag, [len(path), *path]))


def _top_level(descriptor: Any) -> Sequence[Any]:
    return list(descriptor.file.message_types_by_name.values())


def _zigzag(number: int) -> bytes:
    number, out = number << 1, bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _setters(descriptor: Descriptor) -> dict[str, Setter]:
    return {field.name: _setter(field) for field in descriptor.fields}


def _setter(field: FieldDescriptor) -> Setter:
    name = field.name
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return partial(_set_map, name, field.message_type.fields_by_name["value"])
    if field.is_repeated:
        return partial(_set_repeated, name, field)
    if field.message_type is not None:
        return lambda message, value: _fill(getattr(message, name), value)
    convert = _scalar(field)
    return lambda message, value: setattr(message, name, convert(value))


def _set_map(name: str, item: FieldDescriptor, message: Any, value: Mapping[Any, Any]) -> None:
    target = getattr(message, name)
    for key, each in value.items():
        if item.message_type is not None:
            _fill(target[key], each)
        else:
            target[key] = _scalar(item)(each)


def _set_repeated(name: str, field: FieldDescriptor, message: Any, value: Sequence[Any]) -> None:
    target = getattr(message, name)
    if any(each is None for each in value):
        raise ValueError("Protobuf has no nulls in repeated fields")
    if field.message_type is not None:
        for each in value:
            _fill(target.add(), each)
    else:
        target.extend(map(_scalar(field), value))


def _fill(message: Any, value: Any) -> None:
    """Fill a message that is a field's value; one without any field set is still there."""
    message.SetInParent()
    if isinstance(value, datetime) and message.DESCRIPTOR.full_name == _TIMESTAMP:
        message.FromDatetime(value)
    elif isinstance(value, Mapping):
        fields = message.DESCRIPTOR.fields_by_name
        for name, each in value.items():
            if name not in fields:
                raise ValueError(f"{message.DESCRIPTOR.full_name} has no field {name}")
            if each is not None:
                _setter(fields[name])(message, each)
    elif [field.name for field in message.DESCRIPTOR.fields] == ["value"]:  # google.protobuf.StringValue and its like
        _setter(message.DESCRIPTOR.fields_by_name["value"])(message, value)
    else:
        raise TypeError(f"{type(value).__name__} for a {message.DESCRIPTOR.full_name}")


def _scalar(field: FieldDescriptor) -> Callable[[Any], Any]:
    if field.enum_type is not None:
        numbers = field.enum_type.values_by_name
        return lambda value: numbers[value].number if isinstance(value, str) else value
    if field.cpp_type in (field.CPPTYPE_DOUBLE, field.CPPTYPE_FLOAT):
        return float
    return _same


def _same(value: Any) -> Any:
    return value
