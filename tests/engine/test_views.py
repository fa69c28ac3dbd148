"""Materialized views: computed from the cut and swapped, kept when they fail or nothing changed, kept up where that is
the same."""

from __future__ import annotations

import json
import os
import signal
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as F

from anabranch import read
from anabranch.core import crash
from anabranch.core.declarations import Dataset, Flow, Kind, Pipeline
from anabranch.core.events import ChannelFailed, EpochPublished, Event
from anabranch.core.events_data import ViewKept
from anabranch.core.where import Where
from anabranch.engine import views as engine_views
from anabranch.engine.run import run
from anabranch.engine.started import run_to_the_end, started
from anabranch.errors import AnabranchError
from anabranch.load.project import project_at

pytestmark = pytest.mark.spark

HERE = Where("test_views.py")


class Shop:
    """Orders in files, a table of them, and views."""

    def __init__(self, folder: Path, spark: Any) -> None:
        self.folder, self.lake, self.spark = folder / "landing", folder / "lake", spark
        self.folder.mkdir()
        self.files = 0
        self.orders: list[dict[str, Any]] = []
        self.events: list[Event] = []
        self.datasets = {"orders": Dataset("orders", Kind.STREAMING_TABLE, HERE)}
        self.flows = {"orders": Flow("orders", "orders", self.stream, HERE)}

    def stream(self) -> Any:
        schema = "id INT, country STRING, amount INT, price DOUBLE"
        return self.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(self.folder))

    def feed(self, *rows: tuple[int, str | None, int | None]) -> None:
        self.files += 1
        orders = [{"id": i, "country": c, "amount": a, "price": i / 7} for i, c, a in rows]
        self.orders += orders
        path = self.folder / f"{self.files:03d}.json"
        path.write_text("".join(json.dumps(o) + "\n" for o in orders))
        os.utime(path, (self.files, self.files))

    def view(self, name: str, query: Any, kind: Kind = Kind.MATERIALIZED_VIEW, inputs: tuple[str, ...] = ()) -> None:
        self.datasets[name] = Dataset(name, kind, HERE)
        self.flows[name] = Flow(name, name, query, HERE, inputs=inputs or ("orders",))

    def run(self) -> None:
        self.events.clear()
        made = Pipeline("shop", tuple(self.datasets.values()), tuple(self.flows.values()), HERE)
        run_to_the_end(project_at(self.lake, "shop"), made, self.events.append)

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        found = read.cut(self.lake).arrow(table).to_pylist()
        return sorted((tuple(row.values()) for row in found), key=repr)

    def published(self, name: str) -> int:
        return sum(1 for e in self.events if isinstance(e, EpochPublished) and e.channel == name)

    def by_country(self) -> Any:
        return (
            self.spark.read.table("orders").groupBy("country").agg(F.count("*").alias("n"), F.sum("amount").alias("s"))
        )

    def model(self) -> list[tuple[Any, ...]]:
        groups = defaultdict(list)
        for order in self.orders:
            groups[order["country"]].append(order["amount"])
        rows = [
            (c, len(v), sum(known) if (known := [a for a in v if a is not None]) else None) for c, v in groups.items()
        ]
        return sorted(rows, key=repr)


@pytest.fixture
def shop(tmp_path: Path, spark: Any) -> Shop:
    shop = Shop(tmp_path, spark)
    shop.feed((1, "de", 5), (2, "fr", 7), (3, "de", None))
    return shop


def test_a_view_is_computed_from_the_cut_after_its_table(shop: Shop) -> None:
    shop.view("totals", shop.by_country)
    shop.view("names", lambda: shop.spark.sql("SELECT country FROM totals ORDER BY country"), inputs=("totals",))
    shop.run()
    assert shop.rows("totals") == shop.model()
    assert shop.rows("names") == [("de",), ("fr",)]
    shop.feed((4, None, 1), (5, "fr", 2))
    shop.run()
    assert shop.rows("totals") == shop.model()
    assert len(shop.rows("names")) == 3
    assert {t.name for t in read.cut(shop.lake).record.tables.values()} == {"orders", "totals", "names"}


def test_it_is_left_alone_when_nothing_changed(shop: Shop) -> None:
    shop.view("totals", shop.by_country)
    shop.view("now", lambda: shop.spark.table("orders").withColumn("at", F.current_timestamp()))
    shop.run()
    shop.run()
    assert [e for e in shop.events if isinstance(e, ViewKept)] == [ViewKept("totals", "nothing changed")]
    assert shop.published("now") == 1  # it depends on more than its table
    shop.view("totals", lambda: shop.by_country().where("n > 1"))
    shop.run()
    assert shop.rows("totals") == [("de", 2, 5)]  # another query is another view


def test_one_that_fails_keeps_its_rows_and_stops_nobody_else(shop: Shop) -> None:
    shop.view("totals", shop.by_country)
    shop.view("broken", lambda: shop.spark.table("orders").selectExpr("id", "10 DIV (id - 1) AS x").where("id > 1"))
    shop.view("after", lambda: shop.spark.table("broken"), inputs=("broken",))
    shop.run()
    before = {name: shop.rows(name) for name in ("broken", "after")}
    assert before["broken"] == [(2, 10), (3, 5)]
    shop.view("broken", lambda: shop.spark.table("orders").selectExpr("id", "10 DIV (id - id) AS x"))
    shop.feed((4, "de", 1))
    with pytest.raises(AnabranchError) as caught:
        shop.run()
    assert "DIVIDE_BY_ZERO" in caught.value.message
    assert {name: shop.rows(name) for name in before} == before
    assert shop.rows("totals") == shop.model()
    assert len(shop.rows("orders")) == 4
    assert [e.channel for e in shop.events if isinstance(e, ChannelFailed)] == ["broken"]
    assert ViewKept("after", "broken failed") in shop.events


def test_views_and_temporary_views_may_stand_between(shop: Shop) -> None:
    shop.view("large", lambda: shop.spark.read.table("orders").where("amount > 5"), Kind.TEMPORARY_VIEW)
    shop.view("count_large", lambda: shop.spark.read.table("large").selectExpr("count(*) AS n"), inputs=("large",))
    shop.run()
    assert shop.rows("count_large") == [(1,)]


def test_killed_at_any_step_of_a_refresh_it_is_the_old_or_the_new(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.view("totals", shop.by_country)
    shop.run()
    for n, point in enumerate(("staged", "decided", "committed(totals)", "applied(totals)", "publishing")):
        old = shop.rows("totals")
        shop.feed((100 + n, "de", 1))
        with monkeypatch.context() as patch:
            # the table passes some of these points as well, and must not be hit
            patch.setenv(crash.VARIABLE, f"{point}:raise" + ("" if "(" in point else "@2"))
            with pytest.raises(AnabranchError):
                shop.run()
        assert shop.rows("totals") in (old, shop.model())
        shop.run()
        assert shop.rows("totals") == shop.model()


def aggregates() -> list[Any]:
    return [
        F.count("*").alias("n"),
        F.count("amount").alias("known"),
        F.sum("amount").alias("s"),
        F.min("amount").alias("least"),
        F.max("id").alias("last"),
        F.sum(F.col("amount").cast("decimal(20,2)")).alias("d"),
    ]


ORDERS = st.tuples(
    st.integers(1, 9), st.sampled_from(["de", "fr", None]), st.one_of(st.none(), st.integers(-(2**31), 2**31 - 1))
)


@settings(
    max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(epochs=st.lists(st.lists(ORDERS, max_size=4), min_size=2, max_size=3))
def test_a_view_that_is_kept_up_is_the_view_computed_anew(
    epochs: list[Any], tmp_path_factory: Any, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(tmp_path_factory.mktemp("shop"), spark)
    shop.view("by_country", lambda: spark.table("orders").where("id < 8").groupBy("country").agg(*aggregates()))
    shop.view("overall", lambda: spark.table("orders").agg(*aggregates()))
    shop.view("pairs", lambda: spark.sql("SELECT country, id % 2 AS odd, count(id) AS n FROM orders GROUP BY 1, 2"))
    for number, rows in enumerate(epochs):
        shop.feed(*rows)
        kept_up: list[Any] = []
        with monkeypatch.context() as patch:
            patch.setattr(engine_views, "together", _noting(engine_views.together, kept_up))
            shop.run()
        assert len(kept_up) == (3 if number and rows else 0)
        cut = read.cut(shop.lake)
        orders = cut.spark("orders", spark)
        orders.createOrReplaceTempView("orders")
        anew = {
            "by_country": orders.where("id < 8").groupBy("country").agg(*aggregates()),
            "overall": orders.agg(*aggregates()),
            "pairs": spark.sql("SELECT country, id % 2 AS odd, count(id) AS n FROM orders GROUP BY 1, 2"),
        }
        for name, frame in anew.items():
            found = cut.spark(name, spark)
            assert found.schema.simpleString() == frame.schema.simpleString()
            assert sorted(map(repr, found.collect())) == sorted(map(repr, frame.collect())), name
        spark.catalog.dropTempView("orders")


def _noting(function: Any, calls: list[Any]) -> Any:
    def noted(*arguments: Any) -> Any:
        calls.append(arguments)
        return function(*arguments)

    return noted


@pytest.mark.parametrize(
    "query",
    [
        lambda t: t.groupBy("country").agg(F.sum("price").alias("s")),  # depends on the order of the rows
        lambda t: t.groupBy("country").agg(F.countDistinct("id").alias("n")),
        lambda t: t.groupBy("country").agg(F.avg("amount").alias("a")),
        lambda t: t.groupBy("country").count().where("count > 1"),
        lambda t: t.groupBy("country").agg((F.sum("amount") + 1).alias("s")),
        lambda t: t.groupBy("country", "id").agg(F.count("*").alias("n")).select("country"),
        lambda t: t.join(t.select("id"), "id").groupBy("country").count(),
        lambda t: t.distinct(),
    ],
)
def test_what_cannot_be_kept_up_is_computed_anew(shop: Shop, query: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_views, "together", None)  # would fail if it were called
    shop.view("made", lambda: query(shop.spark.table("orders")))
    shop.run()
    shop.feed((4, "de", 9), (5, "de", 1))
    shop.run()
    orders = read.cut(shop.lake).spark("orders", shop.spark)
    found = read.cut(shop.lake).spark("made", shop.spark)
    assert sorted(map(repr, found.collect())) == sorted(map(repr, query(orders).collect()))


def test_a_view_of_a_stream_is_refused_with_what_to_do(shop: Shop) -> None:
    shop.view("odd", shop.stream)
    with pytest.raises(AnabranchError) as caught:
        shop.run()
    assert caught.value.code == "VIEW_NOT_BATCH"
    assert len(shop.rows("orders")) == 3


def test_a_view_follows_its_table_while_that_goes_on(shop: Shop) -> None:
    shop.view("totals", shop.by_country)
    made = Pipeline("shop", tuple(shop.datasets.values()), tuple(shop.flows.values()), HERE)
    with started(project_at(shop.lake, "shop", trigger_seconds=0), made, shop.events.append) as work:
        work.process_available()
        assert shop.rows("totals") == shop.model()
        shop.feed((4, "it", 8))
        work.process_available()
        assert shop.rows("totals") == shop.model()
        before = len(shop.events)
        work.process_available()
        assert len(shop.events) == before  # nothing has moved, so it is not even looked at
    assert shop.published("totals") == 2


def test_following_from_the_command_refreshes_views_until_it_is_stopped(made: Any) -> None:
    code = """
    @dp.table
    def orders():
        return spark.readStream.schema("id INT").json(LANDING)

    @dp.materialized_view
    def counted():
        return spark.read.table("orders").selectExpr("count(*) AS n")
    """
    made.write(code, trigger="0 seconds")
    made.feed([{"id": 1}])
    seen: list[int] = []

    def listen(event: Event) -> None:
        made.events.append(event)
        if isinstance(event, EpochPublished) and event.channel == "counted":
            seen.append(made.rows("counted")[0]["n"])  # 0 if the view was faster than the first epoch of its table
            if seen[-1] == 3:
                signal.raise_signal(signal.SIGTERM)
            elif seen[-1] == 1:
                made.feed([{"id": 2}, {"id": 3}])

    run(made.project, once=False, listener=listen)
    assert seen[-2:] == [1, 3]
