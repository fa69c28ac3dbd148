"""Rows as Avro records, by fastavro."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from anabranch.connectors.kafka_errors import extra_missing
from anabranch.errors import DataError, ProjectError

if TYPE_CHECKING:
    import pyarrow as pa


class AvroValues:
    """Encodes rows by a schema; `frame` goes before each value."""

    def __init__(self, text: str, sink: str, frame: bytes = b"") -> None:
        try:
            import fastavro
        except ImportError as error:
            raise extra_missing("avro", "Avro", error) from error
        self._fastavro = fastavro
        self._sink, self._frame = sink, frame
        self.schema = parsed(text, sink)
        self._parsed = fastavro.parse_schema(self.schema)

    def check(self, schema: pa.Schema, columns: Sequence[str]) -> None:
        """Compare columns with the record's fields: none may be lost, and none that is needed may lack."""
        fields = {field["name"]: field for field in self.schema["fields"]}
        if lost := [name for name in columns if name not in fields]:
            raise mismatch(self._sink, f"the Avro schema has no field for {', '.join(lost)}")
        lacking = [n for n, f in fields.items() if n not in columns and "default" not in f and not _nullable(f["type"])]
        if lacking:
            raise mismatch(self._sink, f"the rows have no column for {', '.join(lacking)}, which the Avro schema needs")

    def __call__(self, batch: pa.RecordBatch, columns: tuple[str, ...]) -> list[bytes | None]:
        """One record for each row."""
        write, parsed_schema, frame = self._fastavro.schemaless_writer, self._parsed, self._frame
        rows = batch.select(list(columns)).to_pylist(maps_as_pydicts="strict")
        values: list[bytes | None] = []
        out = io.BytesIO()
        for row in rows:
            out.seek(0)
            out.truncate()
            out.write(frame)
            try:
                write(out, parsed_schema, row)
            except (ValueError, TypeError, KeyError, AttributeError, OverflowError, IndexError) as error:
                raise self._does_not_fit(row, error) from error
            values.append(out.getvalue())
        return values

    def _does_not_fit(self, row: Mapping[str, Any], error: Exception) -> DataError:
        from fastavro.validation import ValidationError

        said = str(error) or type(error).__name__
        try:
            self._fastavro.validate(row, self._parsed, raise_errors=True)
        except ValidationError as found:
            said = "; ".join(str(each) for each in found.errors)
        return does_not_fit(self._sink, said)


def parsed(text: str, sink: str) -> dict[str, Any]:
    """The schema of a record, from its JSON form."""
    try:
        schema = json.loads(text)
    except ValueError as error:
        raise mismatch(sink, f"the Avro schema is no JSON: {error}") from error
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise mismatch(sink, "the Avro schema is not that of a record")
    return schema


def mismatch(sink: str, what: str) -> ProjectError:
    """Rows and schema do not belong together."""
    return ProjectError(
        "WIRE_SCHEMA_MISMATCH",
        f'"{sink}": {what}',
        hint="select the columns that the schema names, by the same names, or change the schema",
    )


def does_not_fit(sink: str, what: str) -> DataError:
    """A value does not fit its field."""
    return DataError(
        "WIRE_VALUE_DOES_NOT_FIT",
        f'a row of "{sink}" does not fit its schema: {what}',
        hint="cast the column in the flow, or leave such rows out with an expectation (expect_or_drop)",
    )


def _nullable(kind: Any) -> bool:
    return kind == "null" or (isinstance(kind, list) and "null" in kind)
