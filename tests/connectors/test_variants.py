"""Variant columns, without Spark: staged, committed, compared, read back and written anew."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from anabranch.connectors.delta import DeltaSink, arrow_dataset
from anabranch.connectors.delta_changes import DeltaChanges
from anabranch.connectors.parquet_files import StagedWriter
from anabranch.connectors.variants import VARIANT, is_variant
from anabranch.core.changes import DELETES, SEQUENCE, Merge
from anabranch.core.epoch import EpochKey, Receipt
from anabranch.errors import ProjectError

#: As Spark hands variants over.
SPARKS = pa.struct(
    [
        pa.field("value", pa.binary(), nullable=False),
        pa.field("metadata", pa.binary(), nullable=False, metadata={b"variant": b"true"}),
    ]
)
PLAIN = pa.struct([("value", pa.binary()), ("metadata", pa.binary())])
ONE = {"value": b"\x0c\x01", "metadata": b"\x01\x00\x00"}
TWO = {"value": b"\x0c\x02", "metadata": b"\x01\x00\x00"}
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("v", SPARKS),
        ("many", pa.list_(SPARKS)),
        ("s", pa.struct([("n", pa.int64()), ("v", SPARKS)])),
        ("m", pa.map_(pa.string(), SPARKS)),
        ("last", pa.int64()),
    ]
)
ROWS: list[dict[str, Any]] = [
    {"id": 1, "v": ONE, "many": [ONE, None, TWO], "s": {"n": 7, "v": ONE}, "m": [("a", ONE), ("b", None)], "last": 9},
    {"id": 2, "v": None, "many": None, "s": {"n": 8, "v": None}, "m": None, "last": None},
    {"id": 3, "v": TWO, "many": [], "s": None, "m": [], "last": 5},
]


def put(sink: Any, epoch: int, rows: list[dict[str, Any]]) -> Receipt:
    key = EpochKey("p-1", "main", 1, epoch)
    staging = sink.staging(key, 1)
    writer = StagedWriter(staging, "0-0")
    writer.write(pa.RecordBatch.from_pylist(rows, schema=staging.schema))
    receipt = Receipt.from_json(sink.receipt(key, writer.close()).to_json())
    sink.apply(key, receipt)
    return receipt


def sink_at(folder: Path, schema: pa.Schema = SCHEMA, **options: Any) -> DeltaSink:
    sink = DeltaSink("events", str(folder), pipeline="p-1", **options)
    sink.prepare(schema)
    return sink


def types(folder: Path) -> dict[str, Any]:
    return {f["name"]: f["type"] for f in json.loads(DeltaTable(str(folder)).schema().to_json())["fields"]}


def newest(folder: Path) -> pa.Table:
    return arrow_dataset(str(folder), DeltaTable(str(folder)).version()).to_table().sort_by("id")


def test_a_variant_is_one_in_the_table_wherever_it_stands(tmp_path: Path) -> None:
    sink = sink_at(tmp_path)
    found = types(tmp_path)
    assert found["v"] == found["many"]["elementType"] == found["m"]["valueType"] == "variant"
    assert [f["type"] for f in found["s"]["fields"]] == ["long", "variant"]
    put(sink, 0, ROWS)
    table = newest(tmp_path)
    assert table.to_pylist() == ROWS
    assert is_variant(table.schema.field("v").type)
    assert is_variant(table.schema.field("many").type.value_type)
    assert sink.examine(SCHEMA) == "matches"
    sink_at(tmp_path)  # it takes its own rows when prepared again
    put(sink, 1, ROWS[:1])
    assert newest(tmp_path).num_rows == 4


def test_statistics_leave_variants_out_and_count_on_after_them(tmp_path: Path) -> None:
    (file,) = put(sink_at(tmp_path), 0, ROWS).files
    assert file.stats["minValues"] == {"id": 1, "s": {"n": 7}, "last": 5}
    assert file.stats["nullCount"] == {"id": 0, "s": {"n": 1}, "last": 1}


def test_duckdb_and_filters_see_a_struct(tmp_path: Path) -> None:
    put(sink_at(tmp_path), 0, ROWS)
    events = arrow_dataset(str(tmp_path), 1)
    assert duckdb.sql("SELECT id FROM events WHERE v IS NULL").fetchall() == [(2,)]
    assert duckdb.sql("SELECT v.value FROM events WHERE id = 3").fetchall() == [(TWO["value"],)]
    assert events.schema.field("v").type.field(0).name == "value"


def test_a_variant_column_is_added_to_a_table_that_has_none(tmp_path: Path) -> None:
    put(sink_at(tmp_path, pa.schema([("id", pa.int64())])), 0, [{"id": 0}])
    assert DeltaTable(str(tmp_path)).protocol().reader_features is None
    grown = pa.schema([("id", pa.int64()), ("v", SPARKS), ("s", pa.struct([("v", SPARKS)]))])
    sink = sink_at(tmp_path, grown)
    assert sink.examine(grown) == "columns to be added: v, s"
    put(sink, 1, [{"id": 1, "v": ONE, "s": {"v": None}}])
    assert DeltaTable(str(tmp_path)).protocol().reader_features == ["variantType"]
    assert [(r["id"], r["v"]) for r in newest(tmp_path).to_pylist()] == [(0, None), (1, ONE)]
    wider = grown.append(pa.field("w", SPARKS)).append(pa.field("n", pa.int64()))
    put(sink_at(tmp_path, wider), 2, [{"id": 2, "v": TWO, "s": None, "w": ONE, "n": 3}])
    assert [(r["v"], r["w"]) for r in newest(tmp_path).to_pylist()] == [(None, None), (ONE, None), (TWO, ONE)]


@pytest.mark.parametrize(
    ("table", "rows", "problem"),
    [
        (PLAIN, SPARKS, 'column "v" is struct in the table, variant in the rows'),
        (SPARKS, PLAIN, 'column "v" is variant in the table, struct in the rows'),
        (pa.list_(PLAIN), pa.list_(SPARKS), 'column "v.element" is struct in the table, variant in the rows'),
    ],
)
def test_a_variant_and_a_struct_of_two_binaries_are_told_apart(
    tmp_path: Path, table: pa.DataType, rows: pa.DataType, problem: str
) -> None:
    sink_at(tmp_path, pa.schema([("v", table)]))
    with pytest.raises(ProjectError, match=problem) as refused:
        sink_at(tmp_path, pa.schema([("v", rows)]))
    assert refused.value.code == "SCHEMA_INCOMPATIBLE"


def test_rows_with_variants_are_changed_by_key(tmp_path: Path) -> None:
    changes = pa.schema([*SCHEMA, pa.field(SEQUENCE, pa.int64()), pa.field(DELETES, pa.bool_())])
    sink = DeltaChanges("events", str(tmp_path), pipeline="p-1", merge=Merge(("id",), keep_when_null=("v",)))
    sink.prepare(changes)
    put(sink, 0, [{**r, SEQUENCE: 1, DELETES: False} for r in ROWS])
    put(sink, 1, [{**ROWS[0], "v": None, "last": 1, SEQUENCE: 2, DELETES: False}])
    assert newest(tmp_path).to_pylist() == [{**ROWS[0], "last": 1}, *ROWS[1:]]
    assert types(tmp_path)["v"] == "variant"


@pytest.mark.parametrize(
    ("kind", "hint"),
    [
        (pa.duration("us"), "CAST(x AS STRING)"),
        (pa.month_day_nano_interval(), "CAST(x AS STRING)"),
        (pa.time64("ns"), "CAST(x AS STRING)"),
        (pa.null(), "CAST(x AS STRING)"),
        (
            pa.struct([("srid", pa.int32()), pa.field("wkb", pa.binary(), metadata={"geometry": "true"})]),
            "ST_AsBinary(x)",
        ),
    ],
)
def test_what_delta_has_no_place_for_is_refused_with_a_way_out(tmp_path: Path, kind: pa.DataType, hint: str) -> None:
    with pytest.raises(ProjectError, match=r'column "x" is of type .*, which Delta has no place for') as refused:
        sink_at(tmp_path, pa.schema([("x", kind)]))
    assert refused.value.code == "SCHEMA_UNSUPPORTED"
    assert refused.value.hint
    assert hint in refused.value.hint


def test_a_table_is_not_partitioned_by_a_variant(tmp_path: Path) -> None:
    with pytest.raises(ProjectError) as refused:
        sink_at(tmp_path, pa.schema([("id", pa.int64()), ("v", VARIANT)]), partition_by=("v",))
    assert refused.value.code == "PARTITION_COLUMN_TYPE"
