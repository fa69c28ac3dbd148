"""A project with something to see: zones, rules that are broken, dead letters, hostile values; made without Spark.

Ledger, tables and history are written by the parts of the engine that a run uses, with a clock that is turned back, so
that epochs lie apart as they would.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa

from anabranch.connectors.contract import Sink, SinkSpec
from anabranch.connectors.parquet_files import StagedWriter
from anabranch.connectors.registry import open_sink
from anabranch.core.column_lineage import ColumnOrigins, DatasetColumns, How, Influence, RowOrigins
from anabranch.core.epoch import EpochKey
from anabranch.core.events import (
    ChannelProgress,
    EpochPublished,
    EpochRecovered,
    RunFailed,
    RunFinished,
    RunStarted,
    SourceProgress,
)
from anabranch.core.events_data import ColumnsProfiled, LineageChanged, SinkTold
from anabranch.core.quality import FlowQuality
from anabranch.engine.commit import apply, decide, publish
from anabranch.engine.observe import profile_of
from anabranch.engine.opened import Opened, open_project
from anabranch.load.project import read_project
from anabranch.store.history_writer import HistoryWriter
from anabranch.store.ledger import Lease, OutputRecord
from anabranch.watch.detect import look_once, watched

FILES = '''"""A shop: raw events, cleaned orders and users, and what the business looks at."""

from pyspark.sql import functions as F

from anabranch import pipelines as dp


@dp.table(name="bronze.events", comment="Every event as it came")
def events():
    return spark.readStream.format("kafka").option("subscribe", "shop-events").load()


@dp.table(
    name="silver.orders",
    comment="Orders that can be billed, one row each",
    table_properties={"anabranch.owner": "orders team", "anabranch.tags.tier": "1"},
)
@dp.expect_or_quarantine("has_customer", "customer IS NOT NULL")
@dp.expect_or_quarantine("positive_amount", "amount > 0")
@dp.expect("known_country", "country IN ('DE', 'FR', 'PL', 'US')")
def orders():
    return spark.readStream.table("bronze.events").where("kind = 'order'")


@dp.table(name="silver.clicks")
def clicks():
    return spark.readStream.table("bronze.events").where("kind = 'click'")


@dp.table(name="silver.refunds")
def refunds():
    return spark.readStream.table("bronze.events").where("kind = 'refund'")


@dp.materialized_view(name="gold.revenue_by_day", comment="What finance looks at in the morning")
def revenue_by_day():
    return spark.read.table("silver.orders").groupBy("day").agg(F.sum("amount"))


@dp.materialized_view(name="gold.conversion")
def conversion():
    return spark.read.table("silver.clicks").join(spark.read.table("silver.orders"), "customer")


dp.create_sink("orders_topic", "kafka", {"kafka.bootstrap.servers": "localhost:9092", "topic": "orders"})


@dp.append_flow(target="orders_topic")
def to_topic():
    return spark.readStream.table("silver.orders")
'''

DETECTORS = """
detectors:
  - {kind: lag, on: silver.orders, unit: offsets, most: 500}
  - {kind: interruption, on: silver.orders, within: 1 minute, severity: error}
"""

HOSTILE = '<script>document.title="owned"</script><img src="http://evil.example/x.png" onerror="alert(1)">'

ORDERS = pa.schema(
    [
        ("order_id", pa.int64()),
        ("customer", pa.string()),
        ("amount", pa.float64()),
        ("country", pa.string()),
        ("note", pa.string()),
        ("lines", pa.list_(pa.struct([("sku", pa.string()), ("count", pa.int64())]))),
        ("raw", pa.binary()),
    ]
)
ASIDE = pa.schema(
    [
        ("reasons", pa.list_(pa.string())),
        ("payload", pa.string()),
        ("flow", pa.string()),
        ("generation", pa.int64()),
        ("epoch", pa.int64()),
    ]
)
SCHEMAS = {
    "bronze.events": pa.schema([("key", pa.string()), ("kind", pa.string()), ("value", pa.string())]),
    "silver.orders": ORDERS,
    "silver.orders_quarantine": ASIDE,
    "silver.clicks": pa.schema([("customer", pa.string()), ("page", pa.string())]),
    "silver.refunds": pa.schema([("order_id", pa.int64()), ("amount", pa.float64())]),
}
CHANNEL = "bronze.events"
RUNS = 6
FAILED = "KAFKA_UNREACHABLE"  # what the last of them ended with
NAMES = ("Ada", "Bo", "Chidi", "Dana", "Eun-ji", "Farid", "Grete", "Hana")
NOTES = (None, "leave at the door", "gift wrap", "ring twice")


@contextmanager
def clock(started: float) -> Iterator[Any]:
    """The time of day, begun at `started` and put forward by adding to `at.now`."""
    hand = mock.Mock(now=started)
    with mock.patch("time.time", side_effect=lambda: hand.now):
        yield hand


def make_files(folder: Path, name: str = "shop") -> None:
    """The project, not run yet."""
    (folder / "transformations").mkdir(parents=True)
    (folder / "transformations" / "shop.py").write_text(FILES)
    (folder / "anabranch.yml").write_text(f"name: {name}\nstorage: lake\n{DETECTORS}")


def make_shop(folder: Path, *, epochs: int = 48, apart: float = 90.0) -> Path:
    """The project after several runs; the last one failed, a while ago."""
    make_files(folder)
    with (
        clock(time.time() - (epochs + RUNS) * apart - 120) as at,
        open_project(read_project(folder), create=True) as opened,
    ):
        sinks = {name: _sink(opened, name, schema) for name, schema in SCHEMAS.items()}
        pipeline = opened.pipeline.pipeline_id
        places = [OutputRecord(name, "delta", f"tables/{name}") for name in sinks]
        opened.ledger.ensure_channel(pipeline, CHANNEL, places)
        _mark(opened)
        per_run = epochs // RUNS
        for run in range(RUNS):
            lease = opened.ledger.acquire(pipeline, CHANNEL, seconds=1e6)
            writer = _writer(opened)
            writer.put(RunStarted("shop", (CHANNEL,)))
            if run == 2:
                writer.put(EpochRecovered(CHANNEL, run * per_run, ("silver.clicks",)))
            if run in (0, 3):
                writer.put(_lineage(run * per_run, first=run == 0))
            for number in range(run * per_run, (run + 1) * per_run):
                at.now += apart
                _epoch(opened, lease, writer, sinks, number, at)
            if run == 1:
                writer.put(SinkTold("orders_topic", "3 rows are kept: the broker did not answer; they are sent again"))
            _end(writer, failed=run == RUNS - 1, seconds=per_run * apart)
            opened.ledger.release(lease)
            at.now += apart
    look_once(watched(read_project(folder)), show=lambda _: None)
    return folder


def _lineage(epoch: int, *, first: bool) -> LineageChanged:
    """Where the columns of orders come from; later on a function cleans the notes."""
    value = ColumnOrigins(frozenset({Influence("bronze.events", "value", How.TRANSFORMED)}))
    cleaned = ColumnOrigins(value.used(How.UNKNOWN).direct, unknown=frozenset({'the Python function "clean"'}))
    columns = {**dict.fromkeys(ORDERS.names, value), "note": value if first else cleaned}
    columns["raw"] = ColumnOrigins(frozenset({Influence("bronze.events", "value", How.IDENTITY)}))
    rows = RowOrigins(frozenset({Influence("bronze.events", "kind", How.FILTER)}), reads=frozenset({"bronze.events"}))
    found = DatasetColumns("silver.orders", columns, rows, "orders team", {"tier": "1"})
    changed = tuple(columns) if first else ("note",)
    return LineageChanged(CHANNEL, "silver.orders", epoch, changed, json.dumps(found.as_record()), first)


def _sink(opened: Opened, name: str, schema: pa.Schema) -> Sink:
    location = opened.storage.absolute(f"tables/{name}")
    sink = open_sink("delta", SinkSpec(name, location, opened.pipeline.pipeline_id, str(opened.storage.root)))
    sink.prepare(schema)
    return sink


def _mark(opened: Opened) -> None:
    mark = opened.storage.own / "checkpoints" / CHANNEL / "1" / "anabranch.json"
    mark.parent.mkdir(parents=True)
    mark.write_text(json.dumps({"sources": ["kafka shop-events"]}))


def _writer(opened: Opened) -> HistoryWriter:
    return HistoryWriter(opened.storage.own / "history.db", "shop", keep_seconds=1e9, tell=print)


def _end(writer: HistoryWriter, *, failed: bool, seconds: float) -> None:
    if failed:
        text = "the broker at localhost:9092 did not answer within 30 seconds"
        writer.put(RunFailed("shop", FAILED, text, writer.epochs, writer.rows, seconds, "transformations/shop.py:41"))
        writer.close("failed", FAILED, text)
    else:
        writer.put(RunFinished("shop", writer.epochs, writer.rows, seconds))
        writer.close("done")


def _epoch(
    opened: Opened, lease: Lease, writer: HistoryWriter, sinks: Mapping[str, Sink], number: int, at: Any
) -> None:
    dice = random.Random(number)
    key = EpochKey(opened.pipeline.pipeline_id, CHANNEL, 1, number)
    rows = _rows(number, dice)
    receipts = []
    for name, sink in sinks.items():
        staged = StagedWriter(sink.staging(key, lease.token), "shop")
        staged.write(pa.RecordBatch.from_pylist(rows[name], schema=SCHEMAS[name]))
        receipts.append(sink.receipt(key, staged.close()))
    aside, good = rows["silver.orders_quarantine"], rows["silver.orders"]
    profile = profile_of(pa.Table.from_pylist(good, schema=ORDERS))
    writer.put(ColumnsProfiled(CHANNEL, 1, number, "silver.orders", profile))
    broken = {rule: sum(rule in row["reasons"] for row in aside) for rule in ("has_customer", "positive_amount")}
    broken["known_country"] = sum(row["country"] == "XX" for row in good)
    judged = len(good) + len(aside)
    breaking = len(aside) + broken["known_country"]
    quality = (FlowQuality("silver.orders", "orders", judged, broken, 0, len(aside), breaking=breaking),)
    times = {"stage": 0.21 + dice.random() * 0.12, "decide": 0.004 + dice.random() * 0.003}
    offsets = json.dumps({"shop-events": {"0": 1200 * (number + 1), "1": 1180 * (number + 1)}})
    record = decide(opened.ledger, lease, key, receipts, offsets=offsets, times=times, quality=quality)
    at.now += 0.05
    committed = apply(opened.ledger, lease, record, sinks)
    times["apply"] = 0.05 + dice.random() * 0.04
    at.now += times["apply"]
    window = min(committed.window, 0.03) + dice.random() * 0.01
    publish(opened.ledger, lease, key, window=window, times={"apply": times["apply"]})
    written = {receipt.sink: receipt.rows for receipt in receipts}
    writer.put(EpochPublished(CHANNEL, 1, number, written, times, window, quality))
    rate, behind = sum(written.values()) / sum(times.values()), max(0, int(4000 - 70 * number + dice.gauss(0, 220)))
    source = SourceProgress("kafka shop-events", sum(written.values()), behind, "offsets")
    writer.put(ChannelProgress(CHANNEL, number, sum(written.values()), rate * 0.9, rate, (source,)))


def _rows(number: int, dice: random.Random) -> dict[str, list[dict[str, Any]]]:
    orders = [_order(number, place, dice) for place in range(60 + dice.randrange(50))]
    aside = [(row, _reasons(row)) for row in orders]
    good = [row for row, reasons in aside if not reasons]
    bad = [_letter(row, reasons, number) for row, reasons in aside if reasons]
    clicks = [{"customer": dice.choice(NAMES), "page": f"/p/{dice.randrange(90)}"} for _ in range(180)]
    refunds = [{"order_id": row["order_id"], "amount": row["amount"]} for row in good[:5]]
    kinds = ["order"] * len(orders) + ["click"] * len(clicks) + ["refund"] * len(refunds)
    events = [{"key": f"{number}-{i}", "kind": kind, "value": "{}"} for i, kind in enumerate(kinds)]
    return {
        "bronze.events": events,
        "silver.orders": good,
        "silver.orders_quarantine": bad,
        "silver.clicks": clicks,
        "silver.refunds": refunds,
    }


def _order(number: int, place: int, dice: random.Random) -> dict[str, Any]:
    return {
        "order_id": number * 1000 + place,
        "customer": None if dice.random() < 0.03 else dice.choice(NAMES),
        "amount": -1.0 if dice.random() < 0.02 else round(dice.lognormvariate(3.4, 0.8), 2),
        "country": "XX" if dice.random() < 0.012 else dice.choice(("DE", "FR", "PL", "US")),
        "note": _note(place, dice),
        "lines": [{"sku": f"sku-{dice.randrange(400)}", "count": 1 + dice.randrange(4)}],
        "raw": bytes(dice.randrange(256) for _ in range(40 if place == 2 else 6)),
    }


def _note(place: int, dice: random.Random) -> str | None:
    """The first rows have what a page must survive."""
    hostile = {0: HOSTILE, 1: "very long " * 2000, 3: "turned \u202e round \x1b[31m"}
    return hostile.get(place) or dice.choice(NOTES)


def _reasons(row: Mapping[str, Any]) -> list[str]:
    found = ["has_customer"] if row["customer"] is None else []
    return [*found, "positive_amount"] if row["amount"] <= 0 else found


def _letter(row: Mapping[str, Any], reasons: Sequence[str], number: int) -> dict[str, Any]:
    payload = {**row, "raw": row["raw"].hex()}
    return {
        "reasons": list(reasons),
        "payload": json.dumps(payload),
        "flow": "orders",
        "generation": 1,
        "epoch": number,
    }
