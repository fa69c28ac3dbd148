"""A project run with real Spark, in this process: what comes out, what is refused, what goes on later."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from anabranch import read
from anabranch.core.events import EpochDiscarded, EpochPublished
from anabranch.core.events_data import OutputsRemoved
from anabranch.engine.opened import open_project
from anabranch.engine.upkeep import recover_all, reset, vacuum
from anabranch.errors import AnabranchError, ProjectErrors

pytestmark = pytest.mark.spark

SOURCE = """
SCHEMA = "id INT, tags ARRAY<STRING>, price DOUBLE"

@dp.temporary_view
def orders():
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(LANDING)
"""

THREE = (
    SOURCE
    + """
@dp.table
def all_orders():
    return spark.readStream.table("orders")

@dp.table
def tags():
    return spark.sql("SELECT id, explode(tags) AS tag FROM STREAM orders")

@dp.table(partition_cols=["cheap"])
def priced():
    return spark.table("all_orders").where("price > 1").withColumn("cheap", F.col("price") < 5)
"""
)


def orders(first: int, count: int) -> list[dict[str, Any]]:
    return [
        {"id": i, "tags": [f"t{i}-{k}" for k in range(i % 3)], "price": float(i % 10)}
        for i in range(first, first + count)
    ]


def expected(rows: list[dict[str, Any]]) -> dict[str, Counter[Any]]:
    """What the three tables must hold, by a plain model."""
    return {
        "all_orders": Counter((r["id"], tuple(r["tags"]), r["price"]) for r in rows),
        "tags": Counter((r["id"], tag) for r in rows for tag in r["tags"]),
        "priced": Counter((r["id"], tuple(r["tags"]), r["price"], r["price"] < 5) for r in rows if r["price"] > 1),
    }


def found(made: Any, **at: Any) -> dict[str, Counter[Any]]:
    cut = read.cut(made.root, **at)
    shaped: dict[str, Counter[Any]] = {}
    for table in ("all_orders", "tags", "priced"):
        rows = cut.arrow(table).to_pylist()
        columns = {
            "all_orders": ("id", "tags", "price"),
            "tags": ("id", "tag"),
            "priced": ("id", "tags", "price", "cheap"),
        }
        shaped[table] = Counter(
            tuple(tuple(v) if isinstance(v := row[c], list) else v for c in columns[table]) for row in rows
        )
    return shaped


def test_every_table_holds_what_a_plain_model_says_at_every_epoch(made: Any) -> None:
    made.write(THREE)
    first, second = orders(0, 40), orders(40, 7)
    made.feed(first)
    made.feed(second)
    summary = made.run()
    assert summary.epochs == 2
    assert found(made) == expected(first + second)
    assert found(made, at=0) == expected(first)
    published = [e for e in made.events if isinstance(e, EpochPublished)]
    assert [e.epoch for e in published] == [0, 1]
    assert published[1].rows == {"all_orders": 7, "tags": sum(len(r["tags"]) for r in second), "priced": 5}
    assert list(published[0].times) == ["stage", "decide", "apply", "publish"]


def test_a_second_run_reads_only_what_is_new_and_a_third_nothing(made: Any) -> None:
    made.write(THREE)
    made.feed(orders(0, 5))
    made.run()
    made.feed(orders(5, 5))
    assert made.run().epochs == 1
    assert made.run().epochs == 0
    assert found(made) == expected(orders(0, 10))


def test_the_cut_is_read_by_spark_and_by_duckdb_alike(made: Any, spark: Any) -> None:
    made.write(THREE)
    made.feed(orders(0, 20))
    made.run()
    made.feed(orders(20, 20))
    made.run()
    old, new = read.cut(made.root, at=0), read.cut(made.root)
    for cut, rows in ((old, 20), (new, 40)):
        assert cut.spark("all_orders", spark).count() == rows
        assert cut.sql("SELECT count(*) AS n FROM all_orders").to_pylist() == [{"n": rows}]
    joined = "SELECT count(*) AS n FROM tags JOIN all_orders USING (id)"
    assert new.sql(joined).to_pylist() == [{"n": sum(expected(orders(0, 40))["tags"].values())}]


def test_an_epoch_without_rows_for_one_table_still_moves_the_cut(made: Any) -> None:
    made.write(THREE)
    made.feed([{"id": 1, "tags": [], "price": 0.0}])
    made.feed([])
    made.feed(orders(2, 3))
    made.run()
    cut = read.cut(made.root)
    assert cut.epochs == {"orders": 2}
    assert found(made) == expected([{"id": 1, "tags": [], "price": 0.0}, *orders(2, 3)])


def test_many_flows_feed_one_table_and_lack_columns(made: Any) -> None:
    made.write(
        SOURCE
        + """
dp.create_streaming_table("both")

@dp.append_flow(target="both")
def cheap():
    return spark.readStream.table("orders").where("price < 5").select("id", "price")

@dp.append_flow(target="both")
def tagged():
    return spark.readStream.table("orders").where("size(tags) = 2").select("id", F.lit("tagged").alias("why"))
"""
    )
    made.feed(orders(0, 30))
    made.run()
    rows = Counter((r["id"], r["price"], r["why"]) for r in made.rows("both"))
    model = [(r["id"], r["price"], None) for r in orders(0, 30) if r["price"] < 5]
    model += [(r["id"], None, "tagged") for r in orders(0, 30) if len(r["tags"]) == 2]
    assert rows == Counter(model)


def test_two_channels_have_epochs_of_their_own(made: Any, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "a.json").write_text('{"id": 1}\n')
    made.write(
        THREE
        + f"""
@dp.table
def strays():
    return spark.readStream.schema("id INT").json({str(other)!r})
"""
    )
    made.feed(orders(0, 3))
    made.feed(orders(3, 3))
    made.run()
    cut = read.cut(made.root)
    assert cut.epochs == {"orders": 1, "strays": 0}
    assert cut.arrow("strays").to_pylist() == [{"id": 1}]


def test_a_column_that_is_added_evolves_the_table_inside_the_epoch(made: Any) -> None:
    made.write(SOURCE + '\n@dp.table\ndef t():\n    return spark.readStream.table("orders").select("id")\n')
    made.feed(orders(0, 2))
    made.run()
    made.write(SOURCE + '\n@dp.table\ndef t():\n    return spark.readStream.table("orders").select("id", "price")\n')
    made.feed(orders(2, 2))
    made.run()
    assert sorted((r["id"], r["price"]) for r in made.rows("t")) == [
        (0, None),
        (1, None),
        (2, 2.0),
        (3, 3.0),
    ] or sorted(((r["id"], r["price"]) for r in made.rows("t")), key=str) == sorted(
        [(0, None), (1, None), (2, 2.0), (3, 3.0)], key=str
    )
    assert made.rows("t", at=0) == [{"id": 0}, {"id": 1}]


def test_an_incompatible_schema_is_refused_before_anything_is_staged(made: Any) -> None:
    made.write(SOURCE + '\n@dp.table\ndef t():\n    return spark.readStream.table("orders").select("id")\n')
    made.feed(orders(0, 2))
    made.run()
    made.write(
        SOURCE
        + '\n@dp.table\ndef t():\n    return spark.readStream.table("orders").select(F.col("id").cast("string"))\n'
    )
    made.feed(orders(2, 2))
    before = sorted(p for p in made.root.rglob("*.parquet"))
    error = refused(made)
    assert error.code == "SCHEMA_INCOMPATIBLE"
    assert sorted(p for p in made.root.rglob("*.parquet")) == before
    assert [r["id"] for r in made.rows("t")] == [0, 1]


def test_a_declared_schema_is_held_to(made: Any) -> None:
    head = '\n@dp.table(schema="id INT, price DOUBLE")\ndef t():\n'
    code = head + '    return spark.readStream.table("orders").select({})\n'
    made.write(SOURCE + code.format('"id", "price"'))
    made.feed(orders(0, 2))
    made.run()
    assert [r["id"] for r in made.rows("t")] == [0, 1]
    made.write(SOURCE + code.format('"id", "tags"'))
    error = refused(made)
    assert isinstance(error, ProjectErrors)
    assert [p.code for p in error.problems] == ["SCHEMA_DIFFERS"]
    assert "price is missing, not double; tags is array<string>, not declared" in error.problems[0].message


def refused(made: Any) -> AnabranchError:
    with pytest.raises(AnabranchError) as raised:
        made.run()
    error = raised.value
    assert error.hint or isinstance(error, ProjectErrors)
    return error


def test_an_output_that_joins_a_channel_is_given_its_past_and_a_reset_reads_all_again(made: Any) -> None:
    made.write(SOURCE + '\n@dp.table\ndef all_orders():\n    return spark.readStream.table("orders")\n')
    made.feed(orders(0, 5))
    made.run()
    made.write(THREE)
    made.feed(orders(5, 5))
    made.run()
    assert found(made) == expected(orders(0, 10))
    with open_project(made.project) as opened:
        assert reset(opened, "orders") == 2
    made.run()
    assert found(made) == expected(orders(0, 10))
    assert read.cut(made.root).epochs == {"orders": 0}  # a rebuild is one epoch


def test_an_output_that_goes_keeps_its_table_and_is_reported(made: Any) -> None:
    made.write(THREE)
    made.feed(orders(0, 5))
    made.run()
    made.write(SOURCE + '\n@dp.table\ndef all_orders():\n    return spark.readStream.table("orders")\n')
    made.feed(orders(5, 5))
    made.run()
    assert OutputsRemoved("orders", ("priced", "tags")) in made.events
    assert len(made.rows("all_orders")) == 10
    assert (made.root / "lake" / "tables" / "tags" / "_delta_log").is_dir()


def test_moving_flows_about_in_the_file_changes_nothing(made: Any, tmp_path: Path) -> None:
    """Spark numbers sources by their place in the plan; a mix-up would read the one with the other's offsets."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "a.json").write_text('{"id": 100}\n')
    head = """
dp.create_streaming_table("both")
"""
    one = '\n@dp.append_flow(target="both")\ndef one():\n    return spark.readStream.schema("id INT").json(LANDING)\n'
    two = one.replace("one", "two").replace("LANDING", repr(str(other)))
    made.write(head + one + two)
    made.feed([{"id": 1}])
    made.run()
    made.write(head + two + one)
    made.feed([{"id": 2}])
    made.run()
    assert sorted(r["id"] for r in made.rows("both")) == [1, 2, 100]
    made.write(head + one + two.replace("other", "elsewhere"))
    assert refused(made).code in ("SOURCES_CHANGED", "PROJECT_INVALID")


def test_a_source_that_changes_is_refused(made: Any, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    code = '\n@dp.table\ndef t():\n    return spark.readStream.schema("id INT").json({})\n'
    made.write(code.format("LANDING"))
    made.feed([{"id": 1}])
    made.run()
    made.write(code.format(repr(str(other))))
    assert refused(made).code == "SOURCES_CHANGED"


@pytest.mark.parametrize(
    ("body", "code", "line", "words"),
    [
        ('return spark.readStream.table("orders").select("idd")', "FLOW_FAILED", 0, "idd"),
        ("return 1 / 0", "FLOW_FAILED", 0, "ZeroDivisionError"),
        ("return 7", "FLOW_NO_FRAME", -1, "int"),
        ("return spark.range(3)", "FLOW_NOT_STREAMING", -1, "batch"),
        ('return spark.sql("SELEC 1")', "FLOW_FAILED", 0, "SELEC"),
        ('return spark.readStream.table("outside.nowhere")', "FLOW_FAILED", 0, "nowhere"),
    ],
)
def test_a_flow_that_cannot_be_planned_is_told_by_its_line(
    made: Any, body: str, code: str, line: int, words: str
) -> None:
    made.write(SOURCE + f"\n@dp.table\ndef broken():\n    {body}\n")
    made.feed(orders(0, 1))
    error = refused(made)
    assert isinstance(error, ProjectErrors)
    (problem,) = error.problems
    text = (made.root / "transformations" / "pipeline.py").read_text().splitlines()
    wanted = next(i for i, content in enumerate(text, start=1) if body in content) + line
    assert (problem.code, problem.where and problem.where.line) == (code, wanted)
    assert words in problem.message
    assert "org.apache" not in problem.message
    assert "\n" not in problem.message


def test_rows_that_break_a_flow_stop_the_epoch_whole_and_name_the_line(made: Any) -> None:
    made.write(
        THREE
        + """
@F.udf("int")
def fragile(price):
    if price == 3.0:
        raise ValueError("three!")
    return int(price)

@dp.table
def doubled():
    return spark.readStream.table("orders").select("id", fragile("price").alias("p"))
"""
    )
    made.feed(orders(0, 3))
    made.run()
    made.feed(orders(3, 3))
    error = refused(made)
    assert error.code == "FLOW_FAILED"
    assert "three!" in error.message
    assert error.where is not None
    assert error.where.file.endswith("pipeline.py")
    assert read.cut(made.root).epochs == {"orders": 0}
    assert found(made) == expected(orders(0, 3))
    assert EpochDiscarded("orders", 1, "staging failed: PythonException") in made.events


def test_recovery_and_vacuum_keep_every_retained_cut(made: Any) -> None:
    made.write(THREE, retention="1 hour")
    for first in range(0, 12, 3):
        made.feed(orders(first, 3))
    made.run()
    from deltalake import DeltaTable

    table = made.root / "lake" / "tables" / "all_orders"
    DeltaTable(table).optimize.compact()
    with open_project(made.project) as opened:
        done = recover_all(opened, made.events.append)
        assert (done["orders"].finished, done["orders"].files) == ((), 0)
        removed = vacuum(opened, dry_run=False)
    assert all(v.files == () for v in removed)
    for epoch in range(4):
        assert found(made, at=epoch) == expected(orders(0, 3 * epoch + 3))
    made.feed(orders(12, 3))
    made.run()
    assert found(made) == expected(orders(0, 15))


def test_vacuum_removes_what_no_retained_cut_needs(made: Any) -> None:
    from deltalake import DeltaTable

    made.write(THREE, retention="0 seconds")
    made.feed(orders(0, 3))
    made.feed(orders(3, 3))
    made.run()
    table = made.root / "lake" / "tables" / "all_orders"
    DeltaTable(table).optimize.compact()
    made.feed(orders(6, 3))
    made.run()
    for file in table.rglob("*"):  # vacuum leaves a margin for clocks that differ
        os.utime(file, (1_700_000_000, 1_700_000_000))
    with open_project(made.project) as opened:
        before = len(list(table.glob("*.parquet")))
        removed = {v.table: v.files for v in vacuum(opened, dry_run=False)}
    assert len(removed["all_orders"]) == before - len(list(table.glob("*.parquet"))) == 2
    assert found(made) == expected(orders(0, 9))
    with pytest.raises(AnabranchError) as gone:
        read.cut(made.root, at=0)
    assert gone.value.code == "CUT_NOT_FOUND"


def test_a_moved_project_is_refused_and_accepted_on_request(made: Any, tmp_path: Path) -> None:
    made.write(THREE)
    made.feed(orders(0, 3))
    made.run()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name in ("anabranch.yml", "transformations", "lake", "landing"):
        shutil.move(str(made.root / name), str(elsewhere / name))
    made.root = elsewhere
    assert refused(made).code == "LEDGER_COPIED"
    with open_project(made.project, moved=True) as opened:
        recover_all(opened, made.events.append)
    assert found(made) == expected(orders(0, 3))


def test_a_lost_table_is_not_silently_made_anew(made: Any) -> None:
    made.write(THREE)
    made.feed(orders(0, 3))
    made.run()
    shutil.rmtree(made.root / "lake" / "tables" / "tags")
    made.feed(orders(3, 3))
    assert refused(made).code == "TABLE_GONE"


def test_a_lost_ledger_is_refused(made: Any) -> None:
    made.write(THREE)
    made.feed(orders(0, 3))
    made.run()
    for file in (made.root / "lake" / "_anabranch").glob("ledger.db*"):
        file.unlink()
    assert refused(made).code == "LEDGER_MISSING"


def test_a_dry_run_reads_and_writes_nothing(made: Any) -> None:
    from anabranch.engine.dry_run import dry_run

    made.write(THREE)
    made.feed(orders(0, 3))
    records = dry_run(made.project, made.events.append)
    assert {r["output"]: r["state"] for r in records} == dict.fromkeys(
        ("all_orders", "tags", "priced"), "will be created"
    )
    assert not (made.root / "lake" / "tables").exists()
    assert not list((made.root / "lake").rglob("ledger.db"))
    made.run()
    assert {r["state"] for r in dry_run(made.project, made.events.append)} == {"matches"}
    json.dumps(records)


def test_the_dp_template_runs_as_it_is(made: Any, tmp_path: Path, spark: Any) -> None:
    from anabranch.cli.init import write_project

    folder = tmp_path / "shop"
    write_project(folder, "dp")
    made.root = folder
    made.run()
    cut = read.cut(folder)
    assert cut.sql("SELECT count(*) AS n FROM request_logs").to_pylist() == [{"n": 3000}]
