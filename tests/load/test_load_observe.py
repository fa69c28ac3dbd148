"""Columns to observe, as they are declared."""

from __future__ import annotations

from pathlib import Path

from anabranch.load.project import read_project
from anabranch.load.python_files import examine_pipeline

PYTHON = """
from anabranch import pipelines as dp

@dp.table
def none(): ...

@dp.table(observe=False)
def off(): ...

@dp.table(observe=True)
def whole(): ...

@dp.materialized_view(observe=["id", "amount"])
def some(): ...

dp.create_streaming_table("apart", observe=True)

@dp.table(observe="id")
def wrong(): ...

@dp.temporary_view(observe=True)
def view(): ...
"""
SQL = """
CREATE STREAMING TABLE in_sql TBLPROPERTIES ('anabranch.observe' = 'true') AS SELECT * FROM STREAM whole;
CREATE STREAMING TABLE named TBLPROPERTIES ('anabranch.observe' = 'id, amount') AS SELECT * FROM STREAM whole;
CREATE STREAMING TABLE off_in_sql TBLPROPERTIES ('anabranch.observe' = 'false') AS SELECT * FROM STREAM whole;
"""


def test_every_way_to_say_it(tmp_path: Path) -> None:
    (tmp_path / "anabranch.yml").write_text("name: shop\n")
    (tmp_path / "transformations").mkdir()
    (tmp_path / "transformations" / "a.py").write_text(PYTHON)
    (tmp_path / "transformations" / "b.sql").write_text(SQL)
    loaded = examine_pipeline(read_project(tmp_path), with_spark=False)
    found = {d.name: d.observe for d in loaded.pipeline.datasets}
    assert found == {
        **dict.fromkeys(("none", "off", "off_in_sql", "wrong", "view")),
        **dict.fromkeys(("whole", "apart", "in_sql"), ()),
        **dict.fromkeys(("some", "named"), ("id", "amount")),
    }
    assert [(p.code, p.message.partition(":")[0]) for p in loaded.problems] == [
        ("PROJECT_BAD_ARGUMENT", "dp.table"),
        ("PROJECT_UNKNOWN_ARGUMENT", "dp.temporary_view"),
    ]
