"""Variants through a stream: Spark reads back from the table what it put in, and so do Arrow and DuckDB."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import ArrayType, StructField, StructType, YearMonthIntervalType

import anabranch
from anabranch import Output, read
from anabranch.connectors.delta import arrow_dataset
from anabranch.engine import epoch
from anabranch.engine.row_types import arrow_types
from anabranch.errors import ProjectError

pytestmark = pytest.mark.spark

BODIES = ['{"a": 1, "b": ["x", null]}', "17", None, '"text"', "{}", "null"]
NESTED = "parse_json(body) AS v", "array(parse_json(body), NULL) AS many", "struct(id, parse_json(body) AS v) AS s"


@pytest.mark.parametrize("small_bytes", [1 << 20, -1], ids=["driver", "workers"])
def test_spark_reads_the_variants_it_wrote(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch, small_bytes: int
) -> None:
    monkeypatch.setattr(epoch, "SMALL_BYTES", small_bytes)
    landing = tmp_path / "landing"
    landing.mkdir()
    rows = [{"id": n, "body": body} for n, body in enumerate(BODIES)]
    (landing / "1.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    stream = spark.readStream.schema("id BIGINT, body STRING").json(str(landing))
    outputs = {
        "events": Output(
            lambda df: df.selectExpr("id", *NESTED),
            expect_or_quarantine={"no_number": "id <> 1"},
        ),
        "people": Output(lambda df: df.selectExpr("id", "parse_json(body) AS v"), keys=("id",), sequence_by="id"),
    }
    anabranch.fan_out(stream, outputs, storage=tmp_path / "lake").run_once()
    cut = read.cut(tmp_path / "lake")
    asked = ["id", "to_json(v) AS v", "to_json(many[0]) AS first", "many[1] IS NULL AS none", "to_json(s.v) AS inner"]
    expected = spark.createDataFrame(rows, "id BIGINT, body STRING").selectExpr("id", *NESTED).selectExpr(*asked)
    events = cut.spark("events", spark)
    assert dict(events.dtypes)["v"] == "variant"
    assert dict(events.dtypes)["many"] == "array<variant>"
    found = events.selectExpr(*asked).orderBy("id").collect()
    assert found == expected.where("id <> 1").orderBy("id").collect()
    assert found[0].v == '{"a":1,"b":["x",null]}'
    assert cut.spark("people", spark).selectExpr("variant_get(v, '$.a', 'int') AS a").where("a = 1").count() == 1
    assert cut.sql("SELECT id FROM events WHERE v IS NULL").to_pylist() == [{"id": 2}]
    assert cut.arrow("events_quarantine")["payload"].to_pylist() == [
        '{"id":1,"v":17,"many":[17,null],"s":{"id":1,"v":17}}'
    ]


def test_a_table_of_variants_that_spark_made_is_read(tmp_path: Path, spark: Any) -> None:
    frame = spark.createDataFrame(list(enumerate(BODIES)), "id BIGINT, body STRING").selectExpr("id", *NESTED)
    frame.write.format("delta").save(str(tmp_path / "t"))
    found = arrow_dataset(str(tmp_path / "t"), 0).to_table().sort_by("id").to_pylist()
    written = {row.id: bytes(row.v.value) if row.v is not None else None for row in frame.select("id", "v").collect()}
    assert {row["id"]: row["v"] and row["v"]["value"] for row in found} == written
    assert [row["s"]["v"] for row in found] == [row["v"] for row in found]
    assert [row["many"] for row in found] == [[row["v"], None] for row in found]


def test_types_without_a_place_are_refused_before_anything_runs(tmp_path: Path, spark: Any) -> None:
    stream = spark.readStream.format("rate").load()
    for kind in ("interval '1' day", "null", "time'10:00:00'"):
        outputs = {"t": lambda df, kind=kind: df.selectExpr(f"{kind} AS x")}
        with pytest.raises(ProjectError, match="which Delta has no place for") as refused:
            anabranch.fan_out(stream, outputs, storage=tmp_path / "lake").run_once()
        assert refused.value.hint == "cast it in the flow, for example CAST(x AS STRING)"


def test_intervals_that_arrow_has_no_form_for_are_refused_too() -> None:
    rows = StructType([StructField("x", ArrayType(YearMonthIntervalType()))])
    with pytest.raises(ProjectError, match='column "x" of "t" is of type array<interval year to month>') as refused:
        arrow_types("t", rows)
    assert refused.value.hint == "cast it in the flow, for example CAST(x AS STRING)"
