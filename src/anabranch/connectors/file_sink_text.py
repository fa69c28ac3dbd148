"""Rows as lines of JSON or CSV: the same bytes for the same rows, so that doing it again changes nothing."""

from __future__ import annotations

import base64
import datetime as dt
import gzip
import json
import math
import re
from collections.abc import Iterable
from contextlib import nullcontext
from decimal import Decimal
from typing import Any, BinaryIO

import pyarrow as pa
from pyarrow import csv

from anabranch.errors import ProjectError

#: A decimal on its way through `json`, which would write it with the digits of a float.
_DIGITS = re.compile(r'"\\u0000(-?[0-9]+(?:\.[0-9]+)?)\\u0000"')


def write_rows(batches: Iterable[pa.RecordBatch], out: BinaryIO, form: str, *, header: bool, packed: bool) -> None:
    """Write rows in a format; `packed` by gzip, without a time in it."""
    with gzip.GzipFile("", "wb", 6, out, mtime=0) if packed else nullcontext(out) as stream:
        if form == "json":
            for batch in batches:
                stream.write("".join(json_line(row) for row in batch.to_pylist(maps_as_pydicts="strict")).encode())
            return
        options = csv.WriteOptions(include_header=header)
        for number, batch in enumerate(batches):
            if number:
                options.include_header = False
            csv.write_csv(batch, stream, options)


def json_line(row: dict[str, Any]) -> str:
    """A row as a line; columns that are null are left out, as Spark does.

    >>> json_line({"a": Decimal("1.50"), "b": None, "t": dt.date(2024, 1, 2)})
    '{"a":1.50,"t":"2024-01-02"}\\n'
    """
    kept = {name: value for name, value in row.items() if value is not None}
    text = json.dumps(_plain(kept), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return _DIGITS.sub(r"\1", text) + "\n"


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dt.datetime):
        text = value.replace(tzinfo=None).isoformat(timespec="microseconds")
        return f"{text}Z" if value.tzinfo else text
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
    if isinstance(value, Decimal):
        return f"\0{value:f}\0"
    return value


def check_columns(name: str, form: str, schema: pa.Schema) -> None:
    """Refuse columns that a format has no place for."""
    nested = [each.name for each in schema if pa.types.is_nested(each.type) or pa.types.is_binary(each.type)]
    if form == "csv" and nested:
        raise ProjectError(
            "CSV_COLUMN",
            f'"{name}" is written as CSV, which has no place for {", ".join(nested)}',
            hint="turn them into text in the flow, as to_json(...) or base64(...), or write JSON or Parquet",
        )
