"""Tables with a channel of their own, which read the tables before them as rows come."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch import read
from anabranch.core.events import EpochPublished
from anabranch.core.explain import as_text
from anabranch.core.selection import Selection
from anabranch.engine.planning import full_plan
from anabranch.engine.run import run
from anabranch.errors import ProjectErrors, StateError

pytestmark = pytest.mark.spark

PIPELINE = """
@dp.temporary_view
def landing():
    return spark.readStream.schema("id INT, at INT, gone BOOLEAN").option("maxFilesPerTrigger", 1).json(LANDING)

@dp.table(name="bronze.orders")
def bronze():
    return spark.readStream.table("landing")

dp.create_streaming_table("silver.orders")
dp.create_auto_cdc_flow("silver.orders", "landing", ["id"], "at", apply_as_deletes="gone", except_column_list=["gone"])

@dp.temporary_view
def doubled():
    return spark.readStream.table("bronze.orders").withColumn("twice", F.col("id") * 2)

OFTEN = {"anabranch.detached": "true", "pipelines.trigger.interval": "1 second"}

@dp.table(name="gold.doubled", table_properties=OFTEN)
def gold():
    return spark.readStream.table("doubled").select("id", "twice")

@dp.table(name="gold.changes", table_properties={"anabranch.detached": "true"})
def changes():
    return spark.readStream.table("silver.orders")

@dp.table(name="gold.last", table_properties={"anabranch.detached": "true"})
def last():
    return spark.sql("SELECT id FROM STREAM gold.doubled WHERE twice > 2")
"""


def everything(made: Any) -> dict[str, list[Any]]:
    cut = read.cut(made.root)
    return {name: sorted(map(tuple, (row.values() for row in cut.arrow(name).to_pylist()))) for name in cut.versions}


def feed(made: Any, *rows: tuple[int, int, bool]) -> None:
    made.feed({"id": i, "at": at, "gone": gone} for i, at, gone in rows)


def test_turn_by_turn(made: Any) -> None:
    made.write(PIPELINE)
    text = as_text(full_plan(made.project, made.events.append))
    assert 'channel "doubled": 1 output, committed together, every 1 seconds, detached' in text
    feed(made, (1, 1, False), (2, 1, False))
    feed(made, (1, 2, False), (3, 1, False))
    run(made.project, once=True, listener=made.events.append)
    found = everything(made)
    assert found["bronze.orders"] == [(1, 1, False), (1, 2, False), (2, 1, False), (3, 1, False)]
    assert found["silver.orders"] == [(1, 2), (2, 1), (3, 1)]
    assert found["gold.doubled"] == [(1, 2), (1, 2), (2, 4), (3, 6)]
    assert found["gold.changes"] == [(1, 1), (1, 2), (2, 1), (3, 1)]
    assert found["gold.last"] == [(2,), (3,)]
    feed(made, (2, 2, True), (4, 1, False))
    made.events.clear()
    run(made.project, once=True, listener=made.events.append)
    found = everything(made)
    assert found["silver.orders"] == [(1, 2), (3, 1), (4, 1)]
    assert found["gold.doubled"] == [(1, 2), (1, 2), (2, 4), (2, 4), (3, 6), (4, 8)]
    assert found["gold.changes"] == [(1, 1), (1, 2), (2, 1), (3, 1), (4, 1)]  # what deletes is no row
    assert found["gold.last"] == [(2,), (2,), (3,), (4,)]
    published = [(e.channel, e.rows) for e in made.events if isinstance(e, EpochPublished)]
    assert [rows for channel, rows in published if channel == "doubled"] == [{"gold.doubled": 2}]

    run(made.project, once=True, listener=made.events.append, selection=Selection(full_refresh_all=True))
    assert everything(made) == found | {"gold.changes": found["gold.changes"]}

    rebuilt = Selection(full_refresh=frozenset({"bronze.orders", "silver.orders"}))
    run(made.project, once=True, listener=made.events.append, selection=rebuilt)
    with pytest.raises(StateError) as refused:
        run(made.project, once=True, listener=made.events.append)
    assert refused.value.code == "UPSTREAM_REBUILT"
    assert "anabranch run --full-refresh" in (refused.value.hint or "")


def test_a_view_that_others_read(made: Any) -> None:
    made.write(
        PIPELINE
        + """
@dp.table
def beside():
    return spark.readStream.table("doubled")
"""
    )
    with pytest.raises((ProjectErrors, Exception)) as refused:
        full_plan(made.project, made.events.append)
    assert getattr(refused.value, "code", "") == "DETACHED_SHARES_VIEW"
