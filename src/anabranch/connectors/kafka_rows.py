"""Which columns of the rows become key, value, headers, partition and time of a Kafka message, and the messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from anabranch.core.epoch import EpochKey
from anabranch.core.origin import ORIGIN_HEADERS, ROW_ORIGIN
from anabranch.errors import ProjectError

#: Columns of a frame that came from Kafka; as with Spark's own sink they say nothing when rows go there raw.
_IGNORED = ("topic", "offset", "timestamp", "timestampType")

#: Makes the values of a batch: bytes, or null for a message without a value.
Encode = Callable[[pa.RecordBatch, tuple[str, ...]], list[bytes | None]]

Headers = list[tuple[str, str | bytes | None]]

#: Value, key, headers, partition, time in milliseconds.
Message = tuple[bytes | None, bytes | None, Headers | None, int, int]

ANY_PARTITION = -1
NOW = 0


@dataclass(frozen=True, slots=True)
class Layout:
    """What each column is for."""

    key: str | None
    headers: str | None
    partition: str | None
    timestamp: str | None
    values: tuple[str, ...]  # the columns that the value is made of; the key is one of them
    origin: str | None = None  # where a row came from, which becomes headers

    @classmethod
    def of(cls, schema: pa.Schema, options: Mapping[str, str], sink: str) -> Layout:
        """The layout that options ask for.

        >>> rows = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
        >>> Layout.of(rows, {"key": "id", "timestamp": "at"}, "out").values
        ('id',)
        """
        raw = options.get("value.format") == "raw"
        named = {part: options.get(part) for part in ("key", "headers", "partition", "timestamp")}
        for part, column in named.items():
            if column and column not in schema.names:
                there = ", ".join(schema.names)
                raise _wrong(sink, f'the option "{part}" names "{column}", which is no column', f"columns: {there}")
        if raw:
            named = {p: c or (p if p in schema.names and p != "timestamp" else None) for p, c in named.items()}
        beside = {column for part, column in named.items() if column and part != "key"}
        wanted = options.get("origin.headers", "").strip().lower() == "true"
        origin = ROW_ORIGIN if wanted and ROW_ORIGIN in schema.names else None
        beside |= {origin} if origin else set()
        values = tuple(name for name in schema.names if name not in beside)
        if raw:
            values = _raw_value(sink, tuple(name for name in values if name != named["key"]))
        layout = cls(named["key"], named["headers"], named["partition"], named["timestamp"], values, origin)
        layout._check(schema, sink, raw=raw)
        return layout

    def messages(self, batch: pa.RecordBatch, encode: Encode, key: EpochKey | None = None) -> Iterator[Message]:
        """The messages of a batch, in its order; `key` is that of the epoch, for headers that say where rows are from.

        An epoch that is sent again has the same rows and the same key, and so the same headers.
        """
        rows = batch.num_rows
        values = encode(batch, self.values)
        keys = byte_list(batch.column(self.key)) if self.key else [None] * rows
        headers: list[Headers | None] = _headers(batch.column(self.headers)) if self.headers else [None] * rows
        if self.origin and key:
            origins = _origin_headers(batch.column(self.origin), key)
            headers = [[*(own or ()), *more] for own, more in zip(headers, origins, strict=True)]
        partitions = _whole(batch.column(self.partition), ANY_PARTITION) if self.partition else [ANY_PARTITION] * rows
        times = _milliseconds(batch.column(self.timestamp)) if self.timestamp else [NOW] * rows
        return zip(values, keys, headers, partitions, times, strict=True)

    def _check(self, schema: pa.Schema, sink: str, *, raw: bool) -> None:
        kinds = {name: schema.field(name).type for name in schema.names}
        if self.key and not (_is_text(kinds[self.key]) or pa.types.is_integer(kinds[self.key])):
            raise _wrong(sink, f'key "{self.key}" is {kinds[self.key]}', "cast it to string or binary in the flow")
        if self.partition and not pa.types.is_integer(kinds[self.partition]):
            raise _wrong(sink, f'partition "{self.partition}" is {kinds[self.partition]}', "cast it to int in the flow")
        if self.timestamp and not pa.types.is_timestamp(kinds[self.timestamp]):
            raise _wrong(sink, f'timestamp "{self.timestamp}" is {kinds[self.timestamp]}', "cast it to timestamp")
        if self.headers and not _are_headers(kinds[self.headers]):
            raise _wrong(
                sink,
                f'headers "{self.headers}" are {kinds[self.headers]}',
                "make it array<struct<key:string,value:binary>>, as Spark has it, or map<string,string>",
            )
        if raw and not _is_text(kinds[self.values[0]]):
            raise _wrong(
                sink, f"value is {kinds[self.values[0]]}", "cast it to string or binary, or choose a value.format"
            )


def byte_list(array: pa.Array) -> list[bytes | None]:
    """Texts, binaries and whole numbers as bytes."""
    if pa.types.is_integer(array.type):
        array = array.cast(pa.string())
    found: list[bytes | None] = array.cast(pa.binary()).to_pylist()
    return found


def raw_values(batch: pa.RecordBatch, columns: tuple[str, ...]) -> list[bytes | None]:
    """The one column as it is."""
    return byte_list(batch.column(columns[0]))


def _raw_value(sink: str, columns: tuple[str, ...]) -> tuple[str, ...]:
    other = [name for name in columns if name != "value" and name not in _IGNORED]
    if "value" not in columns:
        raise _wrong(sink, 'there is no column "value"', 'name one so, or choose a value.format: "json", "avro", ...')
    if other:
        raise _wrong(
            sink,
            f"rows that go there raw have columns that would be lost: {', '.join(other)}",
            'drop them, or choose a value.format: "json", "avro", "protobuf"',
        )
    return ("value",)


def _headers(array: pa.Array) -> list[Headers | None]:
    return [None if row is None else [_header(entry) for entry in row] for row in array.to_pylist()]


def _origin_headers(array: pa.Array, key: EpochKey) -> list[Headers]:
    """Who sent a message, and from where its row came; what is not known is left out."""
    sent = {"pipeline": key.pipeline, "channel": key.channel, "generation": key.generation, "epoch": key.epoch}
    return [
        [
            (ORIGIN_HEADERS + name, str(value).encode())
            for name, value in {**sent, **(row or {})}.items()
            if value is not None
        ]
        for row in array.to_pylist()
    ]


def _header(entry: Any) -> tuple[str, str | bytes | None]:
    name, value = (entry["key"], entry["value"]) if isinstance(entry, dict) else entry
    return name, value.encode() if isinstance(value, str) else value


def _whole(array: pa.Array, missing: int) -> list[int]:
    return [missing if value is None else value for value in array.to_pylist()]


def _milliseconds(array: pa.Array) -> list[int]:
    return _whole(array.cast(pa.timestamp("ms"), safe=False).cast(pa.int64()), NOW)


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_large_binary(kind)
    )


def _are_headers(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind):
        return bool(pa.types.is_string(kind.key_type)) and _is_text(kind.item_type)
    if not pa.types.is_list(kind) or not pa.types.is_struct(kind.value_type):
        return False
    fields = {field.name: field.type for field in kind.value_type}
    return fields.keys() == {"key", "value"} and bool(pa.types.is_string(fields["key"])) and _is_text(fields["value"])


def _wrong(sink: str, what: str, hint: str) -> ProjectError:
    return ProjectError("KAFKA_COLUMNS", f'"{sink}" (kafka): {what}', hint=hint)
