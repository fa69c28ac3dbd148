"""SQL files: the statements of Spark's pipelines and of Databricks', with every fault at its line and column."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.core import graph
from anabranch.core.declarations import Action, Kind
from anabranch.load.project import Project
from anabranch.load.python_files import Loaded, examine_pipeline
from anabranch.load.registry import Registry
from anabranch.load.sql_files import declare_sql

MakeProject = Callable[..., Project]

EVERYTHING = """
-- comment; with a semicolon
SET pipelines.limit = 10;
USE CATALOG main; USE silver;

CREATE OR REFRESH STREAMING TABLE orders (
  id BIGINT NOT NULL COMMENT 'the key; really',
  items ARRAY<STRUCT<sku: STRING, price: DECIMAL(10, 2)>>,
  day DATE,
  CONSTRAINT has_id EXPECT (id IS NOT NULL) ON VIOLATION DROP ROW,
  CONSTRAINT has_items EXPECT (size(items) > 0),
  CONSTRAINT sane EXPECT (day > '2000-01-01') ON VIOLATION FAIL UPDATE,
  CONSTRAINT `odd one` EXPECT (id % 2 = 0) ON VIOLATION QUARANTINE ROW,
  CONSTRAINT pk PRIMARY KEY (id)
)
USING delta
PARTITIONED BY (day)
CLUSTER BY (id, `day`)
COMMENT 'It''s all of it'
TBLPROPERTIES ('quality' = 'silver', delta.appendOnly = true)
AS SELECT id, items, day FROM STREAM(raw) /* not; here /* nor here; */ */ WHERE note <> ';';

CREATE STREAMING TABLE target;
CREATE FLOW one AS INSERT INTO target BY NAME SELECT * FROM STREAM(LIVE.orders);
SET spark.sql.ansi.enabled = 'false';
CREATE FLOW two COMMENT 'more' AS INSERT INTO ONCE live.target BY NAME SELECT * FROM old.orders;

CREATE MATERIALIZED VIEW per_day AS SELECT day, count(*) AS n FROM orders GROUP BY day;
CREATE LIVE TABLE also_a_view AS SELECT 1 AS x;
CREATE TEMPORARY STREAMING LIVE TABLE hidden SCHEDULE EVERY 1 HOUR COMMENT 'x' AS SELECT * FROM STREAM orders;
CREATE TEMPORARY VIEW raw AS WITH a AS (SELECT 1) SELECT * FROM a, LIVE.hidden;
CREATE VIEW IF NOT EXISTS plain AS SELECT "a;b" AS t, `c;d` FROM raw;
"""


def loaded(make_project: MakeProject, text: str, with_spark: bool = False) -> Loaded:
    return examine_pipeline(make_project({"pipelines/a.sql": text}), with_spark=with_spark)


def told(found: Loaded) -> list[tuple[str, str, str]]:
    return [(p.code, str(p.where).rpartition("a.sql:")[2], p.message) for p in found.problems]


@pytest.mark.parametrize("with_spark", [False, True])
def test_every_statement(make_project: MakeProject, with_spark: bool) -> None:
    found = loaded(make_project, EVERYTHING, with_spark)
    assert told(found) == []
    assert [(d.name, d.kind, d.where.line) for d in found.pipeline.datasets] == [
        ("orders", Kind.STREAMING_TABLE, 5),
        ("target", Kind.STREAMING_TABLE, 22),
        ("per_day", Kind.MATERIALIZED_VIEW, 27),
        ("also_a_view", Kind.MATERIALIZED_VIEW, 28),
        ("hidden", Kind.STREAMING_TABLE, 29),
        ("raw", Kind.TEMPORARY_VIEW, 30),
        ("plain", Kind.TEMPORARY_VIEW, 31),
    ]
    orders = found.pipeline.datasets[0]
    assert orders.schema == (
        "id BIGINT NOT NULL COMMENT 'the key; really', "
        "items ARRAY<STRUCT<sku: STRING, price: DECIMAL(10, 2)>>, day DATE"
    )
    assert (orders.format, orders.comment, orders.partition_by) == ("delta", "It's all of it", ("day",))
    assert orders.cluster_by == ("id", "day")
    assert orders.properties == {"quality": "silver", "delta.appendOnly": "true"}
    assert [(e.name, e.condition, e.action, e.where.line, e.where.column) for e in orders.expectations] == [
        ("has_id", "id IS NOT NULL", Action.DROP, 9, 14),
        ("has_items", "size(items) > 0", Action.WARN, 10, 14),
        ("sane", "day > '2000-01-01'", Action.FAIL, 11, 14),
        ("odd one", "id % 2 = 0", Action.QUARANTINE, 12, 14),
    ]
    assert orders.ignored == ("CONSTRAINT pk (keys are not enforced)",)
    assert [(f.name, f.target, f.inputs, f.once) for f in found.pipeline.flows] == [
        ("orders", "orders", ("raw",), False),
        ("one", "target", ("orders",), False),
        ("two", "target", ("old.orders",), True),
        ("per_day", "per_day", ("orders",), False),
        ("also_a_view", "also_a_view", (), False),
        ("hidden", "hidden", ("orders",), False),
        ("raw", "raw", ("hidden",), False),
        ("plain", "plain", ("raw",), False),
    ]
    assert found.pipeline.flows[0].settings == {"pipelines.limit": "10"}
    assert found.pipeline.flows[2].settings == {"pipelines.limit": "10", "spark.sql.ansi.enabled": "false"}
    assert found.pipeline.flows[2].comment == "more"
    assert "SCHEDULE EVERY 1 HOUR" in found.pipeline.datasets[4].ignored
    assert found.pipeline.datasets[4].comment == "x"
    assert [(n.code, n.message) for n in found.notes] == [
        ("SETTING_IGNORED", "ignored: USE CATALOG main"),
        ("SETTING_IGNORED", "ignored: USE silver"),
    ]


def test_changes_by_key(make_project: MakeProject) -> None:
    text = """
    CREATE STREAMING TABLE people;
    CREATE FLOW apply_feed AS AUTO CDC INTO people FROM STREAM(feed) KEYS (id, `region`)
      IGNORE NULL UPDATES
      APPLY AS DELETE WHEN op = 'D' AND (x IN (SELECT 1))
      APPLY AS TRUNCATE WHEN op = 'T'
      SEQUENCE BY struct(at, n)
      COLUMNS * EXCEPT (op, at)
      STORED AS SCD TYPE 1;
    CREATE STREAMING TABLE history FLOW AUTO CDC FROM STREAM feed KEYS (id) SEQUENCE BY at
      COLUMNS a, b STORED AS SCD TYPE 2 TRACK HISTORY ON (a);
    APPLY CHANGES INTO LIVE.people FROM STREAM(LIVE.feed) KEYS (id) SEQUENCE BY at;
    CREATE VIEW feed AS SELECT * FROM STREAM(s.feed);
    """
    found = loaded(make_project, text)
    assert told(found) == []
    first, history, legacy, _ = found.pipeline.flows
    assert first.changes is not None
    assert (first.name, first.target, first.inputs) == ("apply_feed", "people", ("feed",))
    assert (first.changes.keys, first.changes.sequence_by) == (("id", "region"), "struct(at, n)")
    assert (first.changes.deletes, first.changes.truncates) == ("op = 'D' AND (x IN (SELECT 1))", "op = 'T'")
    assert (first.changes.columns, first.changes.except_columns) == (None, ("op", "at"))
    assert (first.changes.scd_type, first.changes.ignore_null_updates) == (1, True)
    assert history.changes is not None
    assert (history.name, history.changes.scd_type, history.changes.columns) == ("history", 2, ("a", "b"))
    assert history.changes.track_history == ("a",)
    assert (legacy.name, legacy.target, legacy.inputs) == ("people", "people", ("feed",))


@pytest.mark.parametrize(
    ("text", "code", "place", "message"),
    [
        ("SELECT 1", "SQL_UNKNOWN_STATEMENT", "1:1", "SELECT is not a statement of a pipeline"),
        ("CREATE TABLE t AS SELECT 1", "SQL_UNKNOWN_STATEMENT", "1:1", "CREATE TABLE is not a statement of a pipeline"),
        ("CREATE STREAMING TABEL t", "SQL_SYNTAX", "1:18", 'expected what to create, found "TABEL"'),
        (
            "CREATE STREAMING TABLE t\n  PARTITION BY (x) AS SELECT 1",
            "SQL_SYNTAX",
            "2:3",
            'expected a clause, found "PARTITION"',
        ),
        ("CREATE STREAMING TABLE t (a INT", "SQL_SYNTAX", "1:26", "the parenthesis that opens here is not closed"),
        ("CREATE STREAMING TABLE t COMMENT 'a", "SQL_SYNTAX", "1:34", "the text that begins here is not closed"),
        ("CREATE VIEW v", "SQL_SYNTAX", "1:14", "the temporary view has no query, found the end of the statement"),
        (
            "CREATE STREAMING TABLE t (a) AS SELECT 1 a",
            "SQL_SYNTAX",
            "1:28",
            "expected the type of the column, found the end of the statement",
        ),
        (
            "CREATE STREAMING TABLE t (CONSTRAINT c EXPECT (x) ON VIOLATION DROP)",
            "SQL_SYNTAX",
            "1:64",
            'expected what to do, found "DROP"',
        ),
        ("CREATE FLOW f AS INSERT INTO t SELECT 1", "SQL_SYNTAX", "1:32", 'expected BY NAME, found "SELECT"'),
        (
            "CREATE FLOW f AS AUTO CDC INTO t FROM STREAM(s) KEYS (a)",
            "SQL_SYNTAX",
            "1:1",
            "SEQUENCE BY column is missing",
        ),
        (
            "CREATE STREAMING TABLE t AS SELECT * FROM STREAM read_files('/x')",
            "SQL_NOT_SUPPORTED",
            "1:50",
            "read_files is a function of Databricks",
        ),
        ("SET x", "SQL_SYNTAX", "1:6", "expected =, found the end of the statement"),
        ("/* a", "SQL_SYNTAX", "1:1", "the comment that begins here is not closed"),
        ("CREATE VIEW `a b` AS SELECT 1", "PROJECT_BAD_NAME", "1:13", None),
    ],
)
def test_faults_are_told_with_their_place(
    make_project: MakeProject, text: str, code: str, place: str, message: str | None
) -> None:
    found = loaded(make_project, text)
    ((said_code, said_place, said),) = told(found)
    assert (said_code, said_place) == (code, place)
    assert message is None or said == message
    assert all(p.hint for p in found.problems)


def test_one_faulty_statement_does_not_hide_the_next(make_project: MakeProject) -> None:
    text = "CREATE VIEW;\nSELECT 1;\nCREATE VIEW v AS SELECT * FROM nowhere;\nCREATE FLOW;"
    found = loaded(make_project, text)
    assert [place for _, place, _ in told(found)] == ["1:12", "2:1", "4:12"]
    (problem,) = [p for p in graph.problems(found.pipeline) if p.code == "PROJECT_UNKNOWN_INPUT"]
    assert str(problem.where).endswith("a.sql:3:13")


def test_sql_and_python_files_make_one_pipeline(make_project: MakeProject) -> None:
    python = """
    from pyspark import pipelines as dp

    @dp.temporary_view
    def raw():
        return spark.readStream.format("rate").load()

    @dp.append_flow(target="all_rows")
    def more():
        return spark.readStream.table("raw")
    """
    sql = "CREATE STREAMING TABLE all_rows AS SELECT * FROM STREAM(raw)"
    found = examine_pipeline(make_project({"pipelines/a.py": python, "pipelines/b.sql": sql}), with_spark=False)
    assert told(found) == []
    assert graph.problems(found.pipeline) == []
    assert [f.name for f in found.pipeline.flows] == ["raw", "more", "all_rows"]


def test_cells_of_a_notebook_are_statements(make_project: MakeProject) -> None:
    text = """
    -- Databricks notebook source
    CREATE VIEW a AS SELECT 1 AS x

    -- COMMAND ----------

    CREATE VIEW b AS SELECT * FROM a -- no semicolon either
    """
    found = loaded(make_project, text)
    assert told(found) == []
    assert [(d.name, d.where.line) for d in found.pipeline.datasets] == [("a", 2), ("b", 6)]


_PIECES = st.sampled_from(
    [*EVERYTHING.split(), "(", ")", ",", "'", "`", ";", "--", "/*", "*/", "KEYS", "AUTO", "CDC", "\n"]
)


@given(st.lists(_PIECES, max_size=30))
def test_no_text_makes_it_fall_over(pieces: list[str]) -> None:
    text = " ".join(pieces)
    registry = Registry()
    declare_sql(text, "a.sql", registry)
    assert all(problem.where and problem.hint for problem in registry.problems)


PROGRAM = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession
from anabranch.load.project import read_project
from anabranch.load.python_files import load_pipeline
from anabranch.load.surroundings import surroundings
from anabranch.engine.flows import resolve_flows

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
project = read_project(Path(sys.argv[1]))
pipeline = load_pipeline(project, with_spark=True).pipeline
with surroundings(project.root, project.files, {"spark": spark}):
    resolved = resolve_flows(spark, pipeline)
print({name: (frame.isStreaming, frame.columns) for name, frame in resolved.frames.items()})
print([(f.name, f.inputs) for f in resolved.graph.pipeline.flows])
"""


@pytest.mark.spark
def test_the_queries_resolve_to_datasets_of_the_pipeline(make_project: MakeProject) -> None:
    # In a process of its own: a JVM started here, without jars, would serve all later tests of this process.
    files = {
        "anabranch.yml": "name: x\nlibraries:\n  - glob: {include: a.py}\n  - glob: {include: b.sql}\n",
        "a.py": """
        import dlt

        @dlt.view
        def raw():
            return spark.readStream.format("rate").load()

        @dlt.table
        def late():
            import dlt as again
            return again.read_stream("called").union(dlt.read_stream("LIVE.called"))
        """,
        "b.sql": """
        CREATE STREAMING TABLE bare AS SELECT value AS v FROM STREAM raw;
        SET shift = 3;
        CREATE STREAMING TABLE called AS SELECT v + ${shift} AS w FROM STREAM(LIVE.bare) WHERE v > 0;
        CREATE FLOW more AS INSERT INTO called BY NAME SELECT timestamp, value AS w FROM STREAM(raw);
        """,
    }
    project = make_project(files)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(project.root)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYSPARK_PYTHON": sys.executable},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-2:] == [
        "{'raw': (True, ['timestamp', 'value']), 'bare': (True, ['v']), 'called': (True, ['w']), "
        "'more': (True, ['timestamp', 'w']), 'late': (True, ['w', 'timestamp'])}",
        "[('raw', ()), ('late', ('called',)), ('bare', ('raw',)), ('called', ('bare',)), ('more', ('raw',))]",
    ]
