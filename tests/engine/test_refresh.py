"""Change of code and rebuilding: outputs that join are given their past, tables are rebuilt without a gap."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from anabranch import read
from anabranch.core import crash
from anabranch.core.events import EpochPublished
from anabranch.core.events_data import Backfilled, QueryChanged
from anabranch.core.selection import Selection
from anabranch.engine.run import run
from anabranch.errors import DataError, ProjectErrors, StateError

pytestmark = pytest.mark.spark

HEAD = """
@dp.temporary_view
def landing():
    reader = spark.readStream.schema("id INT, kind STRING").option("maxFilesPerTrigger", 1)
    return reader.json(LANDING).where("id > 0")

@dp.table
def everything():
    return spark.readStream.table("landing")
"""
FROM_TABLE = """
@dp.table
def odd():
    return spark.readStream.table("everything").where("id % 2 = 1")
"""
FROM_SOURCE = """
@dp.table
@dp.expect_or_quarantine("known", "kind = 'a'")
def kinds():
    return spark.readStream.table("landing").select("kind")
"""
STATEFUL = """
@dp.table
def once():
    return spark.readStream.table("everything").dropDuplicates(["id"])
"""


def ids(made: Any, table: str, column: str = "id") -> list[Any]:
    return sorted(row[column] for row in made.rows(table))


def feed(made: Any, *numbers: int) -> None:
    made.feed({"id": n, "kind": "a" if n % 3 else "b"} for n in numbers)


@pytest.fixture
def begun(made: Any) -> Any:
    made.write(HEAD)
    for n in range(12):  # more than ten: Spark's list of files is put together at the tenth
        feed(made, n * 2 + 1, n * 2 + 2, -1)
    for name in ("part [1].json", "part {2}.json"):  # which are no globs
        min(made.landing.glob("0*.json")).rename(made.landing / name)
    made.run()
    return made


ALL = list(range(1, 25))


def test_an_output_that_joins_is_given_its_past_from_its_upstream(begun: Any) -> None:
    version = read.cut(begun.root).versions["everything"]
    begun.write(HEAD + FROM_TABLE + FROM_SOURCE)
    begun.run()  # nothing new has come, and yet they are complete and in the cut
    assert ids(begun, "odd") == [n for n in ALL if n % 2]
    assert ids(begun, "kinds", "kind") == ["a"] * sum(1 for n in ALL if n % 3)
    assert len(begun.rows("kinds_quarantine")) == sum(1 for n in ALL if not n % 3)
    assert read.cut(begun.root).versions["everything"] == version  # the others are not touched
    feed(begun, 101, 102)
    begun.run()
    assert ids(begun, "odd") == [n for n in ALL if n % 2] + [101]
    assert len(begun.rows("kinds")) + len(begun.rows("kinds_quarantine")) == len(ALL) + 2
    assert {t.epoch for t in read.cut(begun.root).record.tables.values()} == {12}


def test_no_past_is_made_of_a_checkpoint_that_is_not_the_right_one(begun: Any) -> None:
    [newest] = begun.root.rglob("offsets/11")
    newest.rename(begun.root / "aside")
    begun.write(HEAD + FROM_SOURCE)
    with pytest.raises(StateError) as told:
        begun.run()
    assert told.value.code == "CHECKPOINT_OLDER"
    (begun.root / "aside").rename(newest)
    begun.run()
    assert len(begun.rows("kinds")) + len(begun.rows("kinds_quarantine")) == len(ALL)


@pytest.mark.parametrize("point", ["committed(odd)", "committed(kinds)"])
def test_killed_while_it_is_given_its_past_nothing_is_there_twice(
    begun: Any, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    begun.write(HEAD + FROM_TABLE + FROM_SOURCE)
    with monkeypatch.context() as patch:
        patch.setenv(crash.VARIABLE, f"{point}:raise")
        with pytest.raises(crash.CrashPointError):
            begun.run()
    feed(begun, 101)
    begun.run()
    assert ids(begun, "odd") == [n for n in ALL if n % 2] + [101]
    assert len(begun.rows("kinds")) + len(begun.rows("kinds_quarantine")) == len(ALL) + 1


def test_rows_of_the_past_are_held_to_the_rules_too(begun: Any) -> None:
    strict = FROM_TABLE.replace("@dp.table", '@dp.table\n@dp.expect_or_fail("small", "id < 20")')
    begun.write(HEAD + strict)
    with pytest.raises(DataError) as caught:
        begun.run()
    assert caught.value.code == "EXPECTATION_FAILED"
    assert "odd" not in read.cut(begun.root).versions


def test_state_has_no_past_and_that_is_said(begun: Any) -> None:
    begun.write(HEAD + STATEFUL)
    with pytest.raises(StateError) as caught:
        begun.run()
    assert caught.value.code == "OUTPUT_ADDED"
    assert "keeps state" in caught.value.message
    assert ids(begun, "everything") == ALL


def test_one_table_is_rebuilt_from_what_it_reads(begun: Any) -> None:
    begun.write(HEAD + FROM_TABLE)
    begun.run()
    begun.write(HEAD + FROM_TABLE.replace("id % 2 = 1", "id % 2 = 0"))
    before = read.cut(begun.root).versions["everything"]
    refresh(begun, full_refresh=frozenset({"odd"}))
    assert ids(begun, "odd") == [n for n in ALL if n % 2 == 0]
    assert read.cut(begun.root).versions["everything"] == before
    feed(begun, 101, 102)
    begun.run()
    assert ids(begun, "odd") == [*(n for n in ALL if n % 2 == 0), 102]


def refresh(made: Any, **selection: Any) -> None:
    made.events.clear()
    run(made.project, once=True, listener=made.events.append, selection=Selection(**selection))


def test_everything_is_rebuilt_in_one_epoch_and_readers_never_see_less(begun: Any) -> None:
    begun.write(HEAD + FROM_TABLE)
    begun.run()
    seen: list[int] = []
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            seen.append(len(begun.rows("everything")))

    reader = threading.Thread(target=look)
    reader.start()
    try:
        refresh(begun, full_refresh_all=True)
    finally:
        done.set()
        reader.join()
    assert set(seen) == {len(ALL)}
    published = [e for e in begun.events if isinstance(e, EpochPublished)]
    assert [(e.generation, e.epoch, e.rows["everything"]) for e in published] == [(2, 0, len(ALL))]
    assert ids(begun, "odd") == [n for n in ALL if n % 2]
    feed(begun, 101)
    begun.run()
    assert ids(begun, "everything") == [*ALL, 101]


def test_a_protected_table_is_passed_over_or_refused(begun: Any) -> None:
    kept = FROM_TABLE.replace("@dp.table", '@dp.table(table_properties={"pipelines.reset.allowed": "false"})')
    begun.write(HEAD + kept)
    begun.run()
    with pytest.raises(ProjectErrors) as caught:
        refresh(begun, full_refresh=frozenset({"odd", "even"}))
    assert [e.code for e in caught.value.problems] == ["DATASET_UNKNOWN", "RESET_NOT_ALLOWED"]
    refresh(begun, full_refresh_all=True)
    assert [set(e.rows) for e in begun.events if isinstance(e, Backfilled)] == [{"everything"}]
    assert (ids(begun, "everything"), ids(begun, "odd")) == (ALL, [n for n in ALL if n % 2])


def test_only_what_is_selected_is_brought_up_to_date(begun: Any, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    more = f"""
@dp.table
def apart():
    return spark.readStream.schema("id INT").json({str(other)!r})

@dp.materialized_view
def counted():
    return spark.table("everything").selectExpr("count(*) AS n")

@dp.materialized_view
def counted_apart():
    return spark.table("apart").selectExpr("count(*) AS n")
"""
    begun.write(HEAD + more)
    begun.run()
    (other / "1.json").write_text('{"id": 1}\n')
    feed(begun, 101)
    refresh(begun, refresh=frozenset({"apart", "counted_apart"}))
    assert (len(begun.rows("apart")), begun.rows("counted_apart")) == (1, [{"n": 1}])
    assert (len(begun.rows("everything")), begun.rows("counted")) == (len(ALL), [{"n": len(ALL)}])
    begun.run()
    assert begun.rows("counted") == [{"n": len(ALL) + 1}]


def test_a_changed_query_asks_for_a_refresh_only_where_rows_would_differ(begun: Any) -> None:
    begun.write(HEAD + FROM_TABLE)
    begun.run()
    same = FROM_TABLE.replace('.where("id % 2 = 1")', '.select("*").where("1 = id % 2 AND true").where("id > 0")')
    begun.write("# moved\n\n" + HEAD + same)
    begun.events.clear()
    begun.run()
    assert [e for e in begun.events if isinstance(e, QueryChanged)] == []
    begun.write(HEAD + FROM_TABLE.replace("id % 2 = 1", "id % 2 = 0"))
    begun.run()
    assert [e.dataset for e in begun.events if isinstance(e, QueryChanged)] == ["odd"]
    begun.events.clear()
    begun.run()  # told once
    assert [e for e in begun.events if isinstance(e, QueryChanged)] == []


WINDOWED = """
@dp.table
def counted():
    rows = spark.readStream.schema("id INT, kind STRING, at TIMESTAMP").json(LANDING).withWatermark("at", "1 minute")
    return rows.groupBy(F.window("at", "1 minute"), "kind").agg(F.count("*").alias("n")).select("kind", "n")
"""


def test_state_that_does_not_fit_is_told_in_plain_words(made: Any) -> None:
    made.write(WINDOWED)
    made.feed([{"id": 1, "kind": "a", "at": "2024-01-01T00:00:00Z"}])
    made.run()
    made.write(
        WINDOWED.replace('"kind")', '"id")').replace(
            '.select("kind", "n")', '.selectExpr("CAST(id AS STRING) AS kind", "n")'
        )
    )
    made.feed([{"id": 1, "kind": "a", "at": "2024-01-01T01:00:00Z"}])
    with pytest.raises(StateError) as caught:
        made.run()
    assert caught.value.code == "STATE_INCOMPATIBLE"
    assert "--full-refresh" in caught.value.hint
