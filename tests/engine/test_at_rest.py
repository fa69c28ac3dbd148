"""Flows that run once, and tables made of snapshots."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch import read
from anabranch.core import crash
from anabranch.core.events_data import Backfilled, ViewKept
from anabranch.core.selection import Selection
from anabranch.engine.run import run
from anabranch.errors import ProjectError

pytestmark = pytest.mark.spark

STREAM = """
dp.create_streaming_table("events")

@dp.append_flow(target="events")
def live():
    return spark.readStream.schema("id INT").json(LANDING)

@dp.append_flow(target="events", once=True)
def history():
    return spark.createDataFrame([(i,) for i in range(100, 105)], "id INT")

@dp.table
@dp.expect_or_drop("not_104", "id <> 104")
def even():
    return spark.readStream.table("events").where("id % 2 = 0")
"""


def ids(made: Any, table: str) -> list[int]:
    return sorted(row["id"] for row in made.rows(table))


def test_a_flow_that_runs_once_gives_its_rows_once_also_to_what_reads_its_table(made: Any) -> None:
    made.write(STREAM)
    made.feed([{"id": 1}, {"id": 2}])
    made.run()
    assert ids(made, "events") == [1, 2, 100, 101, 102, 103, 104]
    assert ids(made, "even") == [2, 100, 102]
    made.feed([{"id": 4}])
    made.run()
    assert ids(made, "events") == [1, 2, 4, 100, 101, 102, 103, 104]
    assert ids(made, "even") == [2, 4, 100, 102]
    assert {t.epoch for t in read.cut(made.root).record.tables.values()} == {1}


def test_one_that_is_declared_later_runs_at_the_next_start(made: Any) -> None:
    later = STREAM.index('@dp.append_flow(target="events", once=True)')
    made.write(STREAM[:later] + STREAM[STREAM.index("@dp.table") :])
    made.feed([{"id": 1}])
    made.run()
    made.write(STREAM)
    made.run()  # nothing new has come
    assert ids(made, "events") == [1, 100, 101, 102, 103, 104]
    assert [e.rows for e in made.events if isinstance(e, Backfilled)] == [{"events": 5, "even": 2}]


@pytest.mark.parametrize("point", ["committed(events)", "committed(even)"])
def test_killed_half_way_the_rest_is_appended_and_nothing_twice(
    made: Any, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    made.write(STREAM)
    made.feed([{"id": 1}])
    with monkeypatch.context() as patch:
        patch.setenv(crash.VARIABLE, f"{point}:raise@{2 if point == 'committed(events)' else 1}")
        with pytest.raises(crash.CrashPointError):
            made.run()
    made.run()
    assert ids(made, "events") == [1, 100, 101, 102, 103, 104]
    assert ids(made, "even") == [100, 102]


def test_it_runs_again_when_everything_is_rebuilt(made: Any) -> None:
    made.write(STREAM)
    made.feed([{"id": 1}])
    made.run()
    run(made.project, once=True, listener=made.events.append, selection=Selection(full_refresh_all=True))
    assert ids(made, "events") == [1, 100, 101, 102, 103, 104]


def test_a_table_of_such_flows_alone_needs_no_stream(made: Any) -> None:
    made.write("""
dp.create_streaming_table("numbers")

@dp.append_flow(target="numbers", once=True)
def few():
    return spark.range(3).selectExpr("CAST(id AS INT) AS id")

@dp.append_flow(target="numbers", once=True)
def more():
    return spark.range(10, 12).selectExpr("CAST(id AS INT) AS id")
""")
    made.run()
    assert ids(made, "numbers") == [0, 1, 2, 10, 11]
    made.run()
    assert ids(made, "numbers") == [0, 1, 2, 10, 11]
    assert ViewKept("numbers", "its flows have run") in made.events


def test_what_its_rows_would_give_to_state_is_refused(made: Any) -> None:
    made.write(STREAM.replace('.where("id % 2 = 0")', '.dropDuplicates(["id"])'))
    made.feed([{"id": 1}])
    with pytest.raises(ProjectError) as caught:
        made.run()
    assert caught.value.code == "ONCE_NOT_POSSIBLE"


SNAPSHOTS = """
@dp.table
def events():
    return spark.readStream.schema("id INT, city STRING, day INT").json(LANDING)

@dp.materialized_view
def today():
    rows = spark.read.table("events")
    return rows.where(F.col("day") == rows.agg(F.max("day")).head()[0]).drop("day")

dp.create_streaming_table("people")
dp.create_auto_cdc_from_snapshot_flow(target="people", source="today", keys=["id"], stored_as_scd_type=KIND)
"""
DAYS = [
    [(1, "Bonn"), (2, "Ulm"), (3, None)],
    [(1, "Bonn"), (2, "Hof"), (4, "Kiel")],
    [(2, "Hof"), (3, "Ulm"), (4, None)],
]


@pytest.mark.parametrize("kind", [1, 2])
def test_a_table_is_made_what_each_snapshot_is(made: Any, kind: int) -> None:
    made.write(SNAPSHOTS.replace("KIND", str(kind)))
    line: list[tuple[Any, ...]] = []
    for number, people in enumerate(DAYS, start=1):
        made.feed({"id": i, "city": c, "day": number} for i, c in people)
        made.run()
        held = {r[0]: r for r in line if r[3] is None}
        line = [r for r in line if r[3] is not None]
        now = dict(people)
        for i, row in held.items():
            same = i in now and now[i] == row[1]
            line.append(row if same else (*row[:3], number))
            if same:
                del now[i]
        line += [(i, c, number, None) for i, c in now.items()]
        found = [tuple(r.values()) for r in made.rows("people")]
        wanted = line if kind == 2 else [r[:2] for r in line if r[3] is None]
        assert sorted(found, key=repr) == sorted(wanted, key=repr)
    made.events.clear()
    made.run()
    assert ViewKept("people", "nothing changed") in made.events


GIVEN = """
def next_snapshot(latest):
    version = (latest or 0) + 1
    days = {1: [(1, "a")], 2: [(1, "b"), (2, "c")], 5: [(2, "c")]}
    for version in sorted(days):
        if latest is None or version > latest:
            return spark.createDataFrame(days[version], "id INT, name STRING"), version

dp.create_streaming_table("people")
dp.create_auto_cdc_from_snapshot_flow(target="people", source=next_snapshot, keys=["id"], stored_as_scd_type=2)
"""


def test_a_function_gives_snapshots_with_their_versions(made: Any) -> None:
    made.write(GIVEN)
    made.run()
    found = sorted(tuple(r.values()) for r in made.rows("people"))
    assert found == [(1, "a", 1, 2), (1, "b", 2, 5), (2, "c", 2, None)]
    made.run()
    assert sorted(tuple(r.values()) for r in made.rows("people")) == found
