"""The same project, with not a letter changed, by Spark's own runner and by ours."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

sys.path.insert(0, str(Path(__file__).parent))

import sixteen_operators as operators
from sixteen_operators import Row
from spark_pipelines import SPEC, SparkPipelines, files_scanned
from together import rows

from anabranch import read
from anabranch.core.events import EpochPublished, Event
from anabranch.engine.planning import full_plan
from anabranch.engine.run import run
from anabranch.errors import AnabranchError
from anabranch.load.project import read_project

pytestmark = pytest.mark.spark

TABLES = ("germans", "large", "lines")

CODE = """\
from pyspark import pipelines as dp
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

spark = SparkSession.active()


@dp.temporary_view
def orders():
    schema = "id BIGINT, country STRING, amount DOUBLE, at TIMESTAMP, lines ARRAY<STRUCT<sku: STRING, count: INT>>"
    return spark.readStream.format("json").schema(schema).load({landing!r})


@dp.table
def germans():
    return spark.readStream.table("orders").where("country = 'de'").select("id", "at")


@dp.table
def large():
    orders = spark.readStream.table("orders")
    return orders.where(F.col("amount") > 100).select("id", F.round("amount").cast("INT").alias("amount"), "country")


@dp.table
def lines():
    orders = spark.readStream.table("orders")
    return orders.select("id", F.explode("lines").alias("line")).select("id", "line.sku", "line.count")
"""


def land(folder: Path, number: int) -> str:
    """One more file of orders; its name."""
    folder.mkdir(exist_ok=True)
    orders = [
        {
            "id": 10 * number + i,
            "country": ("de", "fr", None)[i % 3],
            "amount": 30.25 * i if i != 5 else None,
            "at": f"2024-01-{number + 1:02d}T00:00:{i:02d}Z",
            "lines": [{"sku": f"s{j}", "count": i * j} for j in range(i % 4)],
        }
        for i in range(10)
    ]
    path = folder / f"{number}.json"
    path.write_text("".join(json.dumps(order) + "\n" for order in orders))
    os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
    return path.name


def test_one_view_that_feeds_three_tables(tmp_path: Path, spark: Any) -> None:
    landing = tmp_path / "landing"
    theirs, ours = SparkPipelines(tmp_path / "theirs"), SparkPipelines(tmp_path / "ours")
    for made in (theirs, ours):
        made.write(CODE.format(landing=str(landing)))
    landed = {land(landing, number) for number in range(3)}
    done = theirs.run()
    assert done.code == 0, done.output
    project = read_project(ours.root / SPEC)
    events: list[Event] = []
    run(project, once=True, listener=events.append)

    cut = read.cut(ours.root)
    for table in TABLES:
        wanted = theirs.rows(table)
        assert wanted.num_rows > 0
        assert rows(cut.arrow(table).select(wanted.column_names)) == rows(wanted), table
    assert len([e for e in events if isinstance(e, EpochPublished)]) == 1
    # Spark: a query for each table, and each has read every file. Ours: one query, which has read each file once.
    assert files_scanned(theirs.storage) == [landed] * 3
    assert files_scanned(ours.storage) == [landed]
    (channel,) = full_plan(project, events.append).channels
    assert len(channel.scans) == 1


#: Streams of three sources into one table, tables of one view, a view of views, a view that fails when it meets row 9.
EVERYTHING = """\
from pyspark import pipelines as dp
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

spark = SparkSession.active()


@dp.temporary_view
def rows():
    return spark.readStream.format("json").schema("id INT, name STRING, amount INT").load({landing!r})


@dp.table
def t1():
    return spark.readStream.table("rows")


@dp.temporary_view
def paid():
    return spark.readStream.table("rows").where("amount IS NOT NULL")


@dp.table
def large():
    return spark.readStream.table("paid").where("amount >= 30").select("id", "amount")


dp.create_streaming_table("names")


@dp.append_flow(target="names")
def names_paid():
    return spark.readStream.table("paid").select("name", F.lit("paid").alias("why"))


@dp.append_flow(target="names")
def names_all():
    return spark.readStream.table("rows").select("name", F.lit("any").alias("why"))


@dp.materialized_view
def fragile():
    return spark.read.table("t1").selectExpr("id", "10 DIV (9 - id) AS share")
"""

IN_SQL = """\
CREATE STREAMING TABLE small AS SELECT id, upper(name) AS name FROM STREAM paid WHERE amount < 30;
CREATE MATERIALIZED VIEW totals AS SELECT name, sum(amount) AS amount FROM t1 GROUP BY name;
"""

#: What `t1` gets: before the first run, and before the second. Row 9 makes `fragile` divide by zero.
FIRST = [(i, ("ann", "bob", None)[i % 3], None if i % 4 == 3 else i * 10) for i in range(9)]
SECOND = [(9, "bob", 90)]


def land_rows(folder: Path, number: int, rows: list[Row]) -> None:
    folder.mkdir(exist_ok=True)
    path = folder / f"{number}.json"
    path.write_text("".join(json.dumps(dict(zip(("id", "name", "amount"), r, strict=True))) + "\n" for r in rows))
    os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


def model(rows: list[Row]) -> dict[str, list[tuple[Any, ...]]]:
    """What the datasets of `EVERYTHING` and of the SQL file hold, `fragile` apart."""
    paid = [row for row in rows if row[2] is not None]
    known = {name: [a for _, n, a in rows if n == name and a is not None] for name in {n for _, n, _ in rows}}
    return {
        "t1": list(rows),
        "large": [(i, a) for i, _, a in paid if a >= 30],
        "small": [(i, n and n.upper()) for i, n, a in paid if a < 30],
        "names": [*((n, "paid") for _, n, _ in paid), *((n, "any") for _, n, _ in rows)],
        "totals": [(name, sum(amounts) if amounts else None) for name, amounts in known.items()],
    }


def plain(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)


def listed(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(rows, key=repr)


@pytest.mark.timeout(600)  # three starts of a command that takes its time
def test_sixteen_operators_over_a_table_that_grows_and_a_view_that_fails(tmp_path: Path, spark: Any) -> None:
    landing = tmp_path / "landing"
    land_rows(landing, 0, FIRST)
    everything = EVERYTHING.format(landing=str(landing))
    fresh, theirs, ours = (SparkPipelines(tmp_path / name) for name in ("fresh", "theirs", "ours"))
    ours.write(everything, more_sql=IN_SQL, views_py=operators.views(), tables_py=operators.tables(str(landing)))
    project = read_project(ours.root / SPEC)

    # Of a catalogue that does not know the tables yet Spark asks for them already while the files are loaded.
    fresh.write(everything, tried_py=operators.each_tried(str(landing)))
    refused = dict(re.findall(r"^REFUSED (\w+) (\S+)$", fresh.dry_run().output, flags=re.MULTILINE))
    assert refused == dict.fromkeys((*operators.NOT_REGISTERED, *operators.OVER_A_STREAM), "TABLE_OR_VIEW_NOT_FOUND")

    theirs.write(everything, more_sql=IN_SQL)
    done = theirs.run()
    assert done.completed >= {"t1", "large", "small", "totals", "fragile"}, done.output
    run(project, once=True, listener=lambda _: None)
    before = read.cut(ours.root)
    is_right(before, FIRST)
    shares = listed([(i, 10 // (9 - i)) for i, _, _ in FIRST])
    assert plain(before.arrow("fragile")) == shares == plain(theirs.rows("fragile"))
    # The queries of two flows into one table of files share its log, where a batch has a place by its number: only one
    # of the flows is in it. The other one loses a race, or takes its batch for done.
    assert len(set(theirs.rows_listed("names")["why"].to_pylist())) == 1
    are_equal(theirs, before)

    land_rows(landing, 1, SECOND)
    theirs.write(everything, more_sql=IN_SQL, views_py=operators.views())
    done = theirs.run()
    assert done.code == 1, done.output
    assert done.completed >= {*operators.ALL, "t1", "large", "small", "totals"}, done.output
    with pytest.raises(AnabranchError) as caught:
        run(project, once=True, listener=lambda _: None)
    assert "DIVIDE_BY_ZERO" in caught.value.message
    after = read.cut(ours.root)
    is_right(after, [*FIRST, *SECOND])
    are_equal(theirs, after)
    # The view that fails: theirs has been emptied, ours has the rows it had.
    assert not list((theirs.warehouse / "fragile").glob("*.parquet"))
    assert plain(after.arrow("fragile")) == shares
    # Eight of the sixteen have missed the row that came, although they have come to their end without an error.
    found = {name: plain(theirs.rows(name)) for name in operators.ALL}
    stale = {name for name, (_, says) in operators.ALL.items() if found[name] == listed(says(FIRST))}
    right = {name for name, (_, says) in operators.ALL.items() if found[name] == listed(says([*FIRST, *SECOND]))}
    assert stale == set(operators.BOUND_TOO_EARLY)
    assert right == set(operators.BOUND_TO_THE_GRAPH)


def is_right(cut: read.Cut, rows_so_far: list[Row]) -> None:
    """Ours is what the models say."""
    for name, wanted in model(rows_so_far).items():
        assert plain(cut.arrow(name)) == listed(wanted), name
    for name, (_, says) in (operators.ALL | operators.OVER_A_STREAM).items():
        assert plain(cut.arrow(name)) == listed(says(rows_so_far)), name


def are_equal(theirs: SparkPipelines, cut: read.Cut) -> None:
    """Where Spark's runner is right, both have the same."""
    for name in ("t1", "large", "small", "totals"):
        assert rows(theirs.rows(name)) == rows(cut.arrow(name)), name
