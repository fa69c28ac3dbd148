"""Flows of a stream in one query: fused, with state, with other readings of the same files."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

sys.path.insert(0, str(Path(__file__).parent))

from together import collected, program_of, taken

from anabranch.engine.program import Program

pytestmark = pytest.mark.spark

SCHEMA = "id STRING, ts TIMESTAMP, ms INT, who STRUCT<name: STRING>, errors ARRAY<STRUCT<code: STRING, level: INT>>"


def event(
    number: int, hour: int, name: str | None, ms: int | None, errors: list[tuple[str, int]] | None
) -> dict[str, Any]:
    return {
        "id": f"e{number}",
        "ts": f"2024-01-{1 + hour // 24:02}T{hour % 24:02}:30:00Z",
        "ms": ms,
        "who": name and {"name": name},
        "errors": errors and [{"code": code, "level": level} for code, level in errors],
    }


EVENTS = [
    [
        event(1, 0, "ann", 10, [("E1", 1), ("E2", 2)]),
        event(2, 0, "bob", 0, None),
        event(1, 0, "ann", 10, [("E1", 1), ("E2", 2)]),
    ],
    [event(3, 1, None, None, []), event(2, 1, "bob", 0, None), event(4, 2, "eve", 5, [("E1", 3)])],
    [event(5, 2, "ann", 20, [("E3", 1)] * 3), event(6, 50, "bob", 1, None)],  # the last closes all windows before it
]


@pytest.fixture(autouse=True)
def by_spark(spark: Any) -> Iterator[None]:
    """What is fused here would be native otherwise; `tests/native` has that."""
    spark.conf.set("spark.anabranch.native", "false")
    yield
    spark.conf.unset("spark.anabranch.native")


@pytest.fixture
def landing(tmp_path: Path) -> Path:
    folder = tmp_path / "landing"
    folder.mkdir()
    for number, events in enumerate(EVENTS):
        file = folder / f"{number}.json"
        file.write_text("".join(json.dumps(e) + "\n" for e in events))
        os.utime(file, (1_700_000_000 + number,) * 2)
    return folder


@pytest.fixture
def bronze(spark: Any, landing: Path) -> Iterator[DataFrame]:
    texts = spark.readStream.option("maxFilesPerTrigger", 1).text(str(landing))
    texts.select(F.from_json("value", SCHEMA).alias("e")).select("e.*").createOrReplaceTempView("bronze")
    yield spark.readStream.table("bronze")
    spark.catalog.dropTempView("bronze")


class Ran:
    """What a program gave for everything that was there."""

    def __init__(self, program: Program, checkpoint: Path) -> None:
        self.found: dict[str, Counter[Any]] = {part.output: Counter() for part in program.parts}

        def batch(frame: DataFrame, _: int) -> None:
            for name, some in taken(program, collected(frame)).items():
                self.found[name] += some

        writer = program.frame.writeStream.foreachBatch(batch).option("checkpointLocation", str(checkpoint))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        self.progress = query.recentProgress
        self.executed = str(query._jsq.explainInternal(False))


def texts(*of: tuple[Any, ...]) -> Counter[Any]:
    return Counter(tuple(map(repr, row)) for row in of)


def test_fused_flows_and_flows_with_state_in_one_query(spark: Any, bronze: DataFrame, tmp_path: Path) -> None:
    timed = bronze.withWatermark("ts", "1 hour")
    names = spark.createDataFrame([("ann", 1), ("bob", 2)], "name STRING, team INT")
    program = program_of(
        {
            "all": bronze.select("id", "ms", "who.name"),
            "timely": timed.select("id"),
            "rates": bronze.where("ms != 0").selectExpr("id", "100 DIV ms AS rate"),
            "errors": bronze.select("id", F.explode("errors").alias("e")).where("e.level > 1").select("id", "e.code"),
            "errors_outer": spark.sql("SELECT id, e.code FROM bronze LATERAL VIEW OUTER explode(errors) AS e"),
            "unique": timed.dropDuplicatesWithinWatermark(["id"]).select("id"),
            "hours": timed.groupBy(F.window("ts", "1 hour")).count().select(F.hour("window.start").alias("h"), "count"),
            "teams": bronze.select("id", "who.name").join(names, "name").select("id", "team"),
        }
    )
    assert {name for name, how in program.how.items() if how == "fused"} == {
        "all", "timely", "rates", "errors", "errors_outer",
    }  # fmt: skip
    assert program.how["unique"] == "branch: drops duplicates"
    assert len(program.sources) == 4  # the fused flows, and each branch
    ran = Ran(program, tmp_path / "checkpoint")
    events = [e for some in EVENTS for e in some]
    teams = {"ann": 1, "bob": 2}
    assert ran.found == {
        "all": texts(*((e["id"], e["ms"], e["who"] and e["who"]["name"]) for e in events)),
        "timely": texts(*((e["id"],) for e in events)),
        "rates": texts(*((e["id"], 100 // e["ms"]) for e in events if e["ms"])),
        "errors": texts(*((e["id"], x["code"]) for e in events for x in e["errors"] or () if x["level"] > 1)),
        "errors_outer": texts(*((e["id"], x["code"]) for e in events for x in e["errors"] or [{"code": None}])),
        "unique": texts(*((name,) for name in sorted({e["id"] for e in events}))),
        "hours": texts((0, 3), (1, 2), (2, 2)),
        "teams": texts(*((e["id"], teams[e["who"]["name"]]) for e in events if e["who"] and e["who"]["name"] in teams)),
    }
    with_rows = [p for p in ran.progress if p["numInputRows"]]
    assert len(with_rows) == len(EVENTS)
    assert {len(p["sources"]) for p in with_rows} == {1}  # one source with one offset, read by four branches


def test_json_is_parsed_once_for_any_number_of_flows(bronze: DataFrame, tmp_path: Path) -> None:
    program = program_of(
        {
            "all": bronze,
            "some": bronze.where("who.name = 'ann'").select("id"),
            "rates": bronze.where("ms != 0").selectExpr("100 / ms AS rate"),
            "errors": bronze.select("id", F.explode("errors").alias("e")).select("id", "e.*"),
            "many": bronze.withWatermark("ts", "1 hour").select(F.posexplode_outer("errors")),
        }
    )
    assert set(program.how.values()) == {"fused"}
    assert len(program.sources) == 1
    ran = Ran(program, tmp_path / "checkpoint")
    assert ran.executed.count("from_json") == 1
    assert sum(p["numInputRows"] for p in ran.progress) == sum(map(len, EVENTS))
    assert sum(ran.found["errors"].values()) == 8


def test_two_readings_of_the_same_files_are_one_source(spark: Any, landing: Path, tmp_path: Path) -> None:
    def read(**options: str) -> DataFrame:
        frame: DataFrame = spark.readStream.schema(SCHEMA).options(**options).json(str(landing))
        return frame

    same_again = read().withColumn("twice", F.expr("ms * 2"))
    program = program_of(
        {
            "one": read().select("id", "ms"),
            "two": same_again.where("ms > 1").select("id", "twice"),
            "named": read().select("id", "_metadata.file_name"),
            "named_too": read().select(F.col("_metadata.file_name").alias("file")),
            "exploded": read().select("id", F.explode("errors.code")),
            "united": read().where("ms > 1").select("id").union(read().select("who.name")),
            "itself": same_again.select("id").union(same_again.select("id")),
        }
    )
    assert set(program.how.values()) == {"fused"}
    assert len(program.sources) == 1
    found = Ran(program, tmp_path / "checkpoint").found
    events = [(number, e) for number, some in enumerate(EVENTS) for e in some]
    assert found["two"] == texts(*((e["id"], e["ms"] * 2) for _, e in events if (e["ms"] or 0) > 1))
    assert found["named"] == texts(*((e["id"], f"{number}.json") for number, e in events))
    assert found["named_too"] == texts(*((f"{number}.json",) for number, _ in events))
    assert sum(found["exploded"].values()) == 8
    assert sum(found["united"].values()) == 4 + 8
    assert sum(found["itself"].values()) == 2 * 8
    assert len(program_of({"one": read(), "other": read(maxFilesPerTrigger="1")}).sources) == 2


def test_a_branch_reads_the_same_source_as_a_flow_that_asks_for_the_file(
    spark: Any, landing: Path, tmp_path: Path
) -> None:
    stream = spark.readStream.schema(SCHEMA).json(str(landing))
    other = spark.readStream.schema(SCHEMA).json(str(landing))
    program = program_of(
        {
            "files": stream.select("id", "_metadata.file_name"),
            "both": other.select("id").union(spark.readStream.schema("id STRING").json(str(landing))),
            "unique": other.withWatermark("ts", "1 day").dropDuplicatesWithinWatermark(["id"]).select("id"),
        }
    )
    ran = Ran(program, tmp_path / "checkpoint")
    assert sum(ran.found["files"].values()) == 8
    assert sum(ran.found["both"].values()) == 16
    assert sum(ran.found["unique"].values()) == 6
    assert {len(p["sources"]) for p in ran.progress if p["numInputRows"]} == {2}


def test_a_stream_joined_with_itself(spark: Any, landing: Path, tmp_path: Path) -> None:
    def read() -> DataFrame:
        frame: DataFrame = spark.readStream.schema(SCHEMA).json(str(landing))
        return frame

    left, right = read().alias("l"), read().alias("r")
    program = program_of({"rows": read().select("id"), "pairs": left.join(right, F.expr("l.id = r.id")).select("l.id")})
    found = Ran(program, tmp_path / "checkpoint").found
    counts = Counter(e["id"] for some in EVENTS for e in some)
    assert found["rows"] == texts(*((name,) for name in counts.elements()))
    assert found["pairs"] == texts(*((name,) for name, n in counts.items() for _ in range(n * n)))
