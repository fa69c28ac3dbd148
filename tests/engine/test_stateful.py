"""Flows that keep state, beside row-wise ones in the same epochs: over restarts and crashes they say what a model says.

Every run is a new query over the same checkpoint. The models are in `stateful_model`.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

sys.path.insert(0, str(Path(__file__).parent))

from stateful_model import FILES, MODELS, TICKS, Event

import anabranch
from anabranch import read
from anabranch.core import crash
from anabranch.engine.catalyst import keeps_state
from anabranch.engine.catalyst_nodes import analyzed
from anabranch.errors import AnabranchError, ProjectErrors

if TYPE_CHECKING:
    from conftest import Made

pytestmark = pytest.mark.spark

HEAD = """
@dp.temporary_view
def events():
    schema = "id INT, kind STRING, user STRING, amount INT, at TIMESTAMP"
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(LANDING)

@dp.temporary_view
def timed():
    return spark.readStream.table("events").withWatermark("at", "10 minutes")

@dp.table
def log():
    return spark.readStream.table("events").select("user", "id", "kind")
"""

#: How many files come before each run: the rest of a run's epochs has no rows, and lets what is final out.
RUNS = (1, 1, 2, 1)


def land(made: Made, number: int) -> None:
    """A file of events; a tick of each kind makes the watermark the same wherever in a query Spark takes it."""
    ticks = (Event(0, kind, "tick", TICKS[number]) for kind in ("view", "click"))
    made.feed(e.as_json() for e in (*FILES[number], *ticks))


def run_all(made: Made) -> None:
    """All files; each run starts anew from the checkpoint."""
    number = 0
    for files in RUNS:
        for _ in range(files):
            land(made, number)
            number += 1
        made.run()


def found(made: Made, table: str) -> Counter[tuple[Any, ...]]:
    """The rows of a table without ticks, as often as they are there."""
    return Counter(row for row in map(_plain, made.rows(table)) if row[0] != "tick")


def _plain(row: dict[str, Any]) -> tuple[Any, ...]:
    midnight = datetime(2024, 1, 1, tzinfo=UTC)
    return tuple((v - midnight) / timedelta(minutes=1) if isinstance(v, datetime) else v for v in row.values())


TOTALS = """
@dp.table
def totals():
    windows = spark.readStream.table("timed").groupBy(F.window("at", "10 minutes"), "user")
    return windows.agg(F.sum("amount").alias("sum")).select("user", "window.start", "sum")
"""

USERS = """
@dp.table
def users():
    return spark.readStream.table("events").dropDuplicates(["user"]).select("user")
"""

FRESH = """
@dp.table
def fresh():
    return spark.readStream.table("timed").dropDuplicatesWithinWatermark(["user", "id"]).select("user", "id")
"""

JOINS = """
def joined(how):
    timed = spark.readStream.table("timed")
    views = timed.where("kind = 'view'").select("user", "id", F.col("at").alias("seen"))
    clicks = timed.where("kind = 'click'").select(F.col("id").alias("on"), F.col("at").alias("clicked"))
    near = F.expr("id = on AND clicked BETWEEN seen AND seen + INTERVAL 5 MINUTES")
    return views.join(clicks, near, how).select("user", "id", "clicked")

@dp.table
def clicked():
    return joined("inner")

@dp.table
def seen():
    return joined("leftOuter")
"""

STATIC = """
@dp.table
def named():
    numbers = spark.createDataFrame([("ann", 1), ("bob", 2)], "user STRING, number INT")
    names = spark.read.parquet(LANDING + "/../names")
    events = spark.readStream.table("events").join(names, "user", "left").join(numbers, "user", "left")
    return events.select("user", "id", "name", "number")
"""

IN_PANDAS = """
import pandas as pd
from pyspark.sql.streaming.state import GroupStateTimeout

def count(key, frames, state):
    n = (state.get[0] if state.exists else 0) + sum(len(frame) for frame in frames)
    state.update((n,))
    yield pd.DataFrame({"user": [key[0]], "n": [n]})

@dp.table
def counted():
    users = spark.readStream.table("events").groupBy("user")
    return users.applyInPandasWithState(
        count, "user STRING, n LONG", "n LONG", "append", GroupStateTimeout.NoTimeout
    )
"""

WITH_STATE = """
import pandas as pd
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

class Count(StatefulProcessor):
    def init(self, handle):
        self.n = handle.getValueState("n", "n LONG")

    def handleInputRows(self, key, rows, timerValues):
        n = (self.n.get()[0] if self.n.exists() else 0) + sum(map(self.size, rows))
        self.n.update((n,))
        yield self.row(key[0], n)

    def size(self, row):
        return 1

    def row(self, user, n):
        return Row(user=user, n=n)

    def close(self):
        pass

class CountFrames(Count):
    def size(self, frame):
        return len(frame)

    def row(self, user, n):
        return pd.DataFrame({"user": [user], "n": [n]})

@dp.table
def counted_rows():
    users = spark.readStream.table("events").groupBy("user")
    return users.transformWithState(Count(), "user STRING, n LONG", "Append", "None")

@dp.table
def counted_frames():
    users = spark.readStream.table("events").groupBy("user")
    return users.transformWithStateInPandas(CountFrames(), "user STRING, n LONG", "Append", "None")
"""


def write(made: Made, *codes: str) -> None:
    made.write(HEAD + "".join(codes))
    names = pa.table({"user": ["ann", "bob"], "name": ["Ann", "Bob"]})
    (made.root / "names").mkdir()
    pq.write_table(names, made.root / "names" / "names.parquet")


def check(made: Made) -> None:
    tables = read.cut(made.root).record.tables
    for name in tables:
        assert found(made, name) == MODELS[name](), name
    assert len({table.epoch for table in tables.values()}) == 1  # they all moved together


PLAIN = (TOTALS, USERS, FRESH, JOINS, STATIC, IN_PANDAS)


@pytest.fixture(autouse=True)
def the_store_that_spark_chooses(spark: Any) -> Iterator[None]:
    """A flow that needs another state store sets it for the session, which these tests share with others."""
    yield
    spark.conf.unset("spark.sql.streaming.stateStore.providerClass")


@pytest.mark.parametrize("codes", [PLAIN, (TOTALS, USERS, WITH_STATE)], ids=["plain store", "RocksDB"])
def test_state_goes_on_over_epochs_and_restarts(made: Made, codes: tuple[str, ...]) -> None:
    write(made, *codes)
    run_all(made)
    check(made)
    declared = re.findall(r"@dp.table\ndef (\w+)", HEAD + "".join(codes))
    assert set(read.cut(made.root).record.tables) == set(declared)


@pytest.mark.parametrize(
    ("point", "codes"),
    [
        ("staged", (TOTALS, FRESH)),
        ("decided", (TOTALS, FRESH)),
        ("published", (TOTALS, FRESH)),
        ("decided", (TOTALS, WITH_STATE)),
    ],
    ids=["staged", "decided", "published", "decided, RocksDB"],
)
def test_killed_between_epochs_state_and_watermark_are_right(
    made: Made, monkeypatch: pytest.MonkeyPatch, point: str, codes: tuple[str, ...]
) -> None:
    write(made, *codes)
    for number in range(len(FILES)):
        land(made, number)
    # In the second epoch, then in the last one that has rows: what is final is known only from its watermark.
    for turn in (2, 3):
        with monkeypatch.context() as patch:
            patch.setattr(crash, "_hits", Counter())  # others may have passed it as often
            patch.setenv(crash.VARIABLE, f"{point}:raise@{turn}")
            with pytest.raises(AnabranchError, match=f"crash point {point}"):
                made.run()
    made.run()
    check(made)


def test_a_query_with_state_that_is_not_ours_goes_on_after_a_crash(
    made: Made, monkeypatch: pytest.MonkeyPatch, spark: Any
) -> None:
    def run() -> None:
        events = spark.readStream.schema("id INT, user STRING").option("maxFilesPerTrigger", 1).json(str(made.landing))
        outputs = {"users": lambda df: df.select("user"), "long": "length(user) > 3"}
        with anabranch.each_batch(outputs, storage=made.root / "lake") as write:
            query = events.dropDuplicates(["user"]).writeStream.foreachBatch(write).trigger(availableNow=True)
            query.option("checkpointLocation", str(made.root / "checkpoint")).start().awaitTermination()

    for number in range(len(FILES)):
        land(made, number)
    with monkeypatch.context() as patch:
        patch.setattr(crash, "_hits", Counter())
        patch.setenv(crash.VARIABLE, "published:raise@2")
        with pytest.raises(StreamingQueryException, match="crash point published"):
            run()
    run()
    cut = read.cut(made.root / "lake")
    everybody = {e.user for events in FILES for e in events} | {"tick"}
    assert sorted(cut.arrow("users")["user"].to_pylist()) == sorted(everybody)
    assert cut.arrow("long")["user"].to_pylist() == ["tick"]


def test_an_aggregate_that_is_never_final_is_refused(made: Made) -> None:
    write(
        made,
        """
@dp.table
def per_user():
    return spark.readStream.table("events").groupBy("user").count()

@dp.table
def in_order():
    return spark.readStream.table("events").orderBy("at")
""",
    )
    land(made, 0)
    with pytest.raises(ProjectErrors) as caught:
        made.run()
    per_user, in_order = caught.value.problems
    assert (per_user.code, in_order.code) == ("AGGREGATE_WITHOUT_WATERMARK", "STREAM_UNSUPPORTED")
    text = (made.root / "transformations" / "pipeline.py").read_text().splitlines()
    for problem, name in ((per_user, "per_user"), (in_order, "in_order")):
        assert problem.where is not None
        assert problem.where.file.endswith("pipeline.py")
        assert any(f"def {name}" in line for line in text[problem.where.line - 1 : problem.where.line + 1])
        assert "materialized view" in (problem.hint or "")
    assert "withWatermark" in (per_user.hint or "")
    assert "Sorting is not supported" in in_order.message


def test_what_keeps_state_is_known(spark: Any) -> None:
    stream = spark.readStream.format("rate").load().withWatermark("timestamp", "1 minute")
    static = spark.range(3).withColumnRenamed("id", "value")
    other = stream.withColumnsRenamed({"timestamp": "at", "value": "number"})
    near = F.expr("value = number AND at BETWEEN timestamp AND timestamp + INTERVAL 1 MINUTE")
    keeping = [
        stream.groupBy(F.window("timestamp", "1 minute")).count().select("count"),
        stream.dropDuplicates(["value"]).where("value > 3"),
        stream.dropDuplicatesWithinWatermark(["value"]),
        stream.distinct(),
        stream.join(other, near).select("value"),
        stream.limit(3),
    ]
    assert all(keeps_state(analyzed(frame)) for frame in keeping)
    plain = [
        stream.where("value > 3").select(F.explode(F.array("value"))),
        stream.join(static, "value", "left"),
        stream.join(static.groupBy("value").count(), "value"),
        stream.union(stream),
        static.distinct(),
    ]
    assert not any(keeps_state(analyzed(frame)) for frame in plain)
