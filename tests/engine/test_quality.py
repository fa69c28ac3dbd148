"""Expectations: what they count, what they keep out, and that it all comes from the one pass."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import anabranch
from anabranch import Output, read
from anabranch.core import crash
from anabranch.core.declarations import Action, Dataset, Expectation, Flow, Kind, Pipeline
from anabranch.core.events import EpochPublished, Event
from anabranch.core.quality import FlowQuality
from anabranch.core.where import Where
from anabranch.engine import epoch
from anabranch.engine.started import run_to_the_end
from anabranch.errors import AnabranchError, DataError, ProjectError
from anabranch.load.project import project_at

pytestmark = pytest.mark.spark

HERE = Where("test_quality.py")
SCHEMA = "id INT, amount INT, country STRING"


class Shop:
    """Orders in files, and the lake they go to."""

    def __init__(self, folder: Path, spark: Any) -> None:
        self.folder, self.spark = folder / "landing", spark
        self.lake = folder / "lake"
        self.folder.mkdir()
        self.events: list[Event] = []
        self.files = 0

    def feed(self, *rows: tuple[int | None, int | None, str | None]) -> None:
        self.files += 1
        text = "".join(json.dumps(dict(zip(("id", "amount", "country"), row, strict=True))) + "\n" for row in rows)
        path = self.folder / f"{self.files:03d}.json"
        path.write_text(text)
        os.utime(path, (self.files, self.files))  # Spark reads files in the order of their times

    @property
    def stream(self) -> Any:
        return self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(self.folder))

    def run(self, outputs: Any) -> None:
        anabranch.fan_out(self.stream, outputs, storage=self.lake, listener=self.events.append).run_once()

    def rows(self, table: str, *columns: str) -> list[Any]:
        found = read.cut(self.lake).arrow(table).to_pylist()
        return sorted((tuple(row[c] for c in columns) for row in found), key=repr)

    @property
    def quality(self) -> list[tuple[FlowQuality, ...]]:
        return [e.quality for e in self.events if isinstance(e, EpochPublished)]


@pytest.fixture
def shop(tmp_path: Path, spark: Any) -> Shop:
    return Shop(tmp_path, spark)


ORDERS = Output(
    lambda df: df,
    expect={"known_country": "country IN ('de', 'fr')"},
    expect_or_drop={"has_id": "id IS NOT NULL"},
    expect_or_quarantine={"positive": "amount > 0", "has_country": "country IS NOT NULL"},
)
ROWS = [
    (1, 5, "de"),
    (2, 5, "us"),  # counted only
    (None, 5, "de"),  # dropped
    (4, -1, "de"),  # put aside
    (5, None, None),  # put aside for two reasons, and counted for a third: null is not true
    (None, 0, "de"),  # dropped and put aside: it is kept aside
]


@pytest.fixture(params=["driver", "workers"])
def both_ways(request: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small batches are written by the driver, others by the workers: they must agree."""
    monkeypatch.setattr(epoch, "SMALL_BYTES", 1 << 20 if request.param == "driver" else -1)


@pytest.mark.usefixtures("both_ways")
def test_rows_are_counted_left_out_and_put_aside_in_one_pass(shop: Shop) -> None:
    shop.feed(*ROWS)
    shop.run({"orders": ORDERS, "everything": lambda df: df})
    assert shop.rows("orders", "id") == [(1,), (2,)]
    assert len(shop.rows("everything", "id")) == len(ROWS)
    (found,) = shop.quality[0]
    assert found == FlowQuality(
        "orders",
        "orders",
        rows=6,
        broken={"known_country": 2, "has_id": 2, "positive": 3, "has_country": 1},
        dropped=1,
        quarantined=3,
        breaking=5,
    )
    aside = read.cut(shop.lake).arrow("orders_quarantine").to_pylist()
    assert {(json.loads(r["payload"])["id"], tuple(r["reasons"])) for r in aside} == {
        (4, ("positive",)),
        (5, ("known_country", "positive", "has_country")),
        (None, ("has_id", "positive")),
    }
    assert {(r["flow"], r["epoch"]) for r in aside} == {("orders", 0)}
    assert all(set(json.loads(r["payload"])) == {"id", "amount", "country"} for r in aside)


def test_what_is_put_aside_and_what_is_kept_stand_at_one_epoch(shop: Shop) -> None:
    shop.feed((1, 1, "de"), (2, -1, "de"))
    shop.feed((3, 1, "de"))
    shop.feed((4, -1, "de"))
    shop.run({"orders": ORDERS})
    cut = read.cut(shop.lake)
    assert {t.epoch for t in cut.record.tables.values()} == {2}
    assert shop.rows("orders_quarantine", "epoch") == [(0,), (2,)]
    assert [q[0].rows for q in shop.quality] == [2, 1, 1]


def test_counts_are_those_of_the_epoch_that_was_kept(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.feed(*ROWS)
    for point in ("staged", "decided"):
        with monkeypatch.context() as patch:
            patch.setenv(crash.VARIABLE, f"{point}:raise")
            with pytest.raises(AnabranchError, match=point):
                shop.run({"orders": ORDERS})
    shop.run({"orders": ORDERS})
    with read.open_ledger(project_at(shop.lake, "fan_out")) as (ledger, pipeline):
        record = ledger.last(pipeline.pipeline_id, "stream", 1)
    assert record is not None
    assert [(q.rows, q.dropped, q.quarantined) for q in record.quality] == [(6, 1, 3)]
    assert len(shop.rows("orders_quarantine", "epoch")) == 3


@pytest.mark.usefixtures("both_ways")
def test_a_rule_that_fails_gives_the_epoch_up_before_anything_is_visible(shop: Shop) -> None:
    outputs = {"orders": Output(lambda df: df, expect_or_fail={"has_id": "id IS NOT NULL"}), "all": lambda df: df}
    shop.feed((1, 1, "de"))
    shop.run(outputs)
    shop.feed((2, 2, "de"), (None, 7, "xx"))
    with pytest.raises(DataError) as caught:
        shop.run(outputs)
    assert caught.value.code == "EXPECTATION_FAILED"
    assert '1 of 2 rows of flow "orders" break "has_id"' in caught.value.message
    assert '{"id":null,"amount":7,"country":"xx"}' in caught.value.message
    assert (shop.rows("orders", "id"), shop.rows("all", "id")) == ([(1,)], [(1,)])
    # the source is mended: nothing was lost
    (shop.folder / "002.json").write_text('{"id": 2, "amount": 2, "country": "de"}\n')
    shop.run(outputs)
    assert (shop.rows("orders", "id"), shop.rows("all", "id")) == ([(1,), (2,)], [(1,), (2,)])


def test_a_condition_that_makes_no_sense_is_refused_before_anything_runs(shop: Shop) -> None:
    shop.feed((1, 1, "de"))
    for condition in ("nothing > 0", "id >", "country", "upper(id, 2)"):
        with pytest.raises(ProjectError) as caught:
            shop.run({"orders": Output(lambda df: df, expect={"odd": condition})})
        assert caught.value.code == "EXPECTATION_INVALID", condition
        assert '"odd" of "orders"' in caught.value.message
    assert not shop.lake.exists() or not read_tables(shop.lake)


def read_tables(lake: Path) -> list[Path]:
    return list(lake.glob("tables/*"))


def pipeline_of(datasets: dict[str, Dataset], flows: dict[str, tuple[str, Callable[[], Any]]]) -> Pipeline:
    return Pipeline(
        "quality", tuple(datasets.values()), tuple(Flow(n, t, q, HERE) for n, (t, q) in flows.items()), HERE
    )


def rules(**conditions: str) -> tuple[Expectation, ...]:
    """Rules named after what they do: drop_x, aside_x, warn_x."""
    actions = {"drop": Action.DROP, "aside": Action.QUARANTINE, "warn": Action.WARN}
    return tuple(Expectation(n, c, actions[n.split("_")[0]], HERE) for n, c in conditions.items())


def test_the_rules_of_a_view_hold_for_all_that_read_it_and_are_counted_once(shop: Shop) -> None:
    spark = shop.spark
    datasets = {
        "orders": Dataset(
            "orders", Kind.TEMPORARY_VIEW, HERE, expectations=rules(drop_id="id IS NOT NULL", aside_amount="amount > 0")
        ),
        "german": Dataset("german", Kind.STREAMING_TABLE, HERE, expectations=rules(warn_large="amount > 3")),
        "french": Dataset("french", Kind.STREAMING_TABLE, HERE),
    }
    flows = {
        "orders": ("orders", lambda: shop.stream),
        "german": ("german", lambda: spark.readStream.table("orders").where("country = 'de'")),
        "french": ("french", lambda: spark.sql("SELECT id FROM STREAM(orders) WHERE country = 'fr'")),
    }
    shop.feed((1, 5, "de"), (2, 1, "de"), (3, 9, "fr"), (None, 1, "fr"), (5, -1, "fr"), (6, 0, "de"))
    run_to_the_end(project_at(shop.lake, "quality"), pipeline_of(datasets, flows), shop.events.append)
    assert (shop.rows("german", "id"), shop.rows("french", "id")) == ([(1,), (2,)], [(3,)])
    found = {q.flow: q for q in shop.quality[0]}
    assert (found["orders"].rows, dict(found["orders"].broken)) == (6, {"drop_id": 1, "aside_amount": 2})
    assert (found["german"].rows, dict(found["german"].broken)) == (2, {"warn_large": 1})
    assert "french" not in found
    assert len(shop.rows("orders_quarantine", "flow")) == 2


def test_several_flows_into_one_table_are_judged_each(shop: Shop) -> None:
    datasets = {
        "orders": Dataset("orders", Kind.STREAMING_TABLE, HERE, expectations=rules(drop_country="country IS NOT NULL"))
    }
    flows = {
        "first": ("orders", lambda: shop.stream.where("amount > 1")),
        "second": ("orders", lambda: shop.stream.select("id", "amount")),  # has no country: every row breaks the rule
    }
    shop.feed((1, 5, "de"), (2, 1, "de"), (3, 9, None))
    run_to_the_end(project_at(shop.lake, "quality"), pipeline_of(datasets, flows), shop.events.append)
    assert shop.rows("orders", "id") == [(1,)]
    assert {q.flow: (q.rows, q.dropped) for q in shop.quality[0]} == {"first": (2, 1), "second": (3, 3)}


def test_rules_of_a_stateful_flow_judge_what_comes_out_of_it(shop: Shop) -> None:
    query = lambda df: df.dropDuplicates(["id"])  # noqa: E731
    shop.feed((1, 5, "de"), (1, 5, "de"), (2, -5, "de"))
    shop.feed((2, 1, "de"), (3, 1, "de"))
    shop.run({"orders": Output(query, expect_or_drop={"positive": "amount > 0"}), "all": lambda df: df})
    assert shop.rows("orders", "id") == [(1,), (3,)]
    assert len(shop.rows("all", "id")) == 5
    assert Counter((q[0].rows, q[0].dropped) for q in shop.quality) == Counter([(2, 1), (1, 0)])


def test_rows_go_where_a_condition_sends_them(shop: Shop) -> None:
    shop.feed((1, 5, "de"), (2, 5, "fr"), (3, 7, "fr"))
    shop.run({"german": "country = 'de'", "large": "amount > 6"})
    assert (shop.rows("german", "id"), shop.rows("large", "id")) == ([(1,)], [(3,)])
