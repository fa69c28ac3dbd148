"""How rows become the bytes of a message's value: JSON, Avro, Protobuf, or one column as it is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from anabranch.connectors.kafka_rows import raw_values
from anabranch.connectors.wire_avro import AvroValues
from anabranch.connectors.wire_json import check_json, json_rows
from anabranch.connectors.wire_protobuf import ProtobufValues, schema_missing
from anabranch.connectors.wire_registry import Registered, newest
from anabranch.errors import ProjectError

if TYPE_CHECKING:
    import pyarrow as pa

    from anabranch.connectors.contract import SinkSpec

FORMATS = ("json", "avro", "protobuf", "raw")


class Values(Protocol):
    """One way to encode values."""

    def check(self, schema: pa.Schema, columns: Sequence[str]) -> None:
        """Refuse columns that cannot be encoded, before there are rows."""

    def __call__(self, batch: pa.RecordBatch, columns: tuple[str, ...]) -> list[bytes | None]:
        """The values of a batch's rows."""


class JsonValues:
    """Rows as JSON objects."""

    def __init__(self, sink: str) -> None:
        self._sink = sink

    def check(self, schema: pa.Schema, columns: Sequence[str]) -> None:
        """Every type but a few has a form in JSON."""
        import pyarrow as pa

        check_json(pa.schema([schema.field(name) for name in columns]), self._sink)

    def __call__(self, batch: pa.RecordBatch, columns: tuple[str, ...]) -> list[bytes | None]:
        """One object for each row."""
        values: list[bytes | None] = json_rows(batch, columns).to_pylist()
        return values


class RawValues:
    """A column that is a text or bytes already."""

    def check(self, schema: pa.Schema, columns: Sequence[str]) -> None:
        """The layout of the rows has seen to it."""

    def __call__(self, batch: pa.RecordBatch, columns: tuple[str, ...]) -> list[bytes | None]:
        """The column as it is."""
        return raw_values(batch, columns)


def open_values(spec: SinkSpec) -> Values:
    """The encoding that a sink's options ask for; a registry is asked now."""
    form = spec.option("value.format", "json")
    if form == "json":
        return JsonValues(spec.name)
    if form == "raw":
        return RawValues()
    if form == "avro":
        return _avro(spec)
    if form == "protobuf":
        return _protobuf(spec)
    raise _wrong(spec, f'there is no value.format "{form}"', f"choose one of {', '.join(FORMATS)}")


def _avro(spec: SinkSpec) -> AvroValues:
    found, path = _registered(spec), spec.option("value.schema")
    if path:
        try:
            return AvroValues(Path(path).read_text("utf-8"), spec.name, found.frame if found else b"")
        except OSError as error:
            raise schema_missing(spec.name, path, error) from error
    if found is None:
        hint = 'name a file (.avsc) with "value.schema", or a schema registry with "value.registry"'
        raise _wrong(spec, "values in Avro need a schema", hint)
    if found.kind != "AVRO":
        raise _wrong(spec, f"the registry has a schema of kind {found.kind}, not AVRO", "choose another value.format")
    return AvroValues(found.text, spec.name, found.frame)


def _protobuf(spec: SinkSpec) -> ProtobufValues:
    path, message = spec.option("value.schema"), spec.option("value.message")
    if not path or not message:
        hint = 'set "value.schema" (a file of protoc --descriptor_set_out) and "value.message" (package.Message)'
        raise _wrong(spec, "values in Protobuf need a descriptor set and the name of a message", hint)
    found = _registered(spec)
    return ProtobufValues(path, message, spec.name, found.frame if found else b"")


def _registered(spec: SinkSpec) -> Registered | None:
    url = spec.option("value.registry")
    return newest(url, f"{spec.option('topic')}-value", spec.option("value.registry.auth")) if url else None


def _wrong(spec: SinkSpec, what: str, hint: str) -> ProjectError:
    return ProjectError("OPTION_INVALID", f'"{spec.name}" (kafka): {what}', hint=hint)
