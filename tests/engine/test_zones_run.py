"""The template medallion, with faults in its data: every row of bronze and silver against plain Python."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch import read
from anabranch.cli.main import main
from anabranch.load.project import read_project

pytestmark = pytest.mark.spark

FAULTS = "malformed=0.12,drift=0.08,duplicate=0.08,late=0.05,disorder=0.1"
AUDIT = ("_ingested_at", "_epoch", "_source_file")
DIMENSIONS = {
    "facility": "facility_id",
    "route": "route_id",
    "service_level": "service_level_id",
    "exception_type": "exception_code",
    "customer": "customer_id",
}
Row = dict[str, Any]


class Ran:
    """A project that was run, its tables, and what plain Python makes of its files."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.landing = root / "landing"
        self.cut = read.cut(root)

    def table(self, name: str) -> list[Row]:
        return self.cut.arrow(name).to_pylist()

    def without_audit(self, name: str) -> list[Row]:
        return [{k: v for k, v in row.items() if k not in AUDIT} for row in self.table(name)]

    def columns(self, name: str) -> pa.Schema:
        return self.cut.arrow(name).schema

    def files(self, entity: str) -> list[Path]:
        return sorted(p for p in (self.landing / entity).iterdir() if not p.name.startswith("_"))

    def lines(self, entity: str) -> Iterator[str]:
        for path in self.files(entity):
            yield from path.read_text().splitlines()


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Ran:
    from anabranch.engine.run import run

    root = tmp_path_factory.mktemp("zones") / "shipping"
    assert main(["init", str(root), "--template", "medallion", "-q"]) == 0
    spec = root / "anabranch.yml"
    # Several epochs of scan events, so that duplicates meet what was written before.
    files = "each line\n    format: json"
    assert files in spec.read_text()
    spec.write_text(spec.read_text().replace(files, f"{files}\n    max_files: 1"))
    said = ["--project", str(root), "--seed", "11", "--faults", FAULTS, "-q"]
    assert main(["gen", *said, "--rows", "1200", "--files", "3"]) == 0
    # Exceptions come later than the first events.
    assert main(["gen", "shipment_scan_event", *said, "--start", "3000", "--rows", "300", "--files", "1"]) == 0
    run(read_project(root), once=True, listener=lambda event: None)
    return Ran(root)


def typed(value: Any, kind: pa.DataType) -> Any:
    """A value of a JSON document as a column of this type has it; members that a record lacks are null."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: typed(value.get(field.name), field.type) for field in kind}
    if pa.types.is_list(kind):
        return [typed(each, kind.value_type) for each in value]
    if pa.types.is_timestamp(kind):
        return datetime.fromisoformat(value).astimezone(UTC)
    if pa.types.is_floating(kind):
        return float(value)
    return str(value) if pa.types.is_string(kind) else value


def flat(row: Row) -> Row:
    found: Row = {}
    for name, value in row.items():
        found |= {f"{name}_{k}": v for k, v in flat(value).items()} if isinstance(value, dict) else {name: value}
    return found


def flat_columns(schema: pa.Schema) -> list[str]:
    def names(field: pa.Field, above: str) -> Iterator[str]:
        if pa.types.is_struct(field.type):
            for inner in field.type:
                yield from names(inner, f"{above}{field.name}_")
        else:
            yield above + field.name

    return [name for field in schema if field.name not in AUDIT for name in names(field, "")]


def flat_with_nulls(row: Row, schema: pa.Schema) -> Row:
    """A struct that is null gives a null for each of its fields."""
    names = dict.fromkeys(flat_columns(schema))
    return names | {k: v for k, v in flat(row).items() if k in names}


def fits(entity: str, record: Any) -> bool:
    """Whether a record can be read: the faults change the type of one member in some."""
    if not isinstance(record, dict):
        return False
    if entity == "order":
        return all(isinstance(line["line_number"], int) for line in record["order_lines"])
    if entity == "item":
        return True
    weight = (record["package"] if entity == "shipment_scan_event" else record).get("weight_kg")
    return isinstance(weight, int | float)


def parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def records(ran: Ran, entity: str) -> tuple[list[Row], int]:
    """The records that can be read, typed, and the number of those that cannot."""
    if entity == "shipment_scan_event":
        every = [parsed(line) for line in ran.lines(entity)]
        dead = 0
    else:
        documents = [parsed(path.read_text()) for path in ran.files(entity)]
        dead = documents.count(None)
        every = [{**record, "_meta": doc["_meta"]} for doc in documents if doc for record in doc["data"]]
    good = [record for record in every if fits(entity, record)]
    schema = [field for field in ran.columns(f"bronze.{entity}") if field.name not in AUDIT]
    rows = [{field.name: typed(record.get(field.name), field.type) for field in schema} for record in good]
    return rows, dead + len(every) - len(good)


def in_order(rows: list[Row]) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True, default=str) for row in rows)


def newest(rows: list[Row], *keys: str) -> list[Row]:
    """One row of each key: the copies that the faults make are all alike."""
    return list({tuple(row[key] for key in keys): row for row in rows}.values())


def trimmed(row: Row) -> Row:
    return {k: (v.strip() or None) if isinstance(v, str) else v for k, v in row.items()}


def assert_same(found: list[Row], wanted: list[Row]) -> None:
    assert len(found) == len(wanted)
    for name in wanted[0]:
        numbers = [row[name] for row in wanted if isinstance(row[name], int | float) and row[name] is not None]
        if numbers:
            total = math.fsum(row[name] for row in found if row[name] is not None)
            assert total == pytest.approx(math.fsum(numbers)), name
    assert in_order(found) == in_order(wanted)


@pytest.mark.parametrize(("entity", "key"), DIMENSIONS.items())
def test_dimensions(ran: Ran, entity: str, key: str) -> None:
    rows = [row for path in ran.files(entity) for row in pq.read_table(path).to_pylist()]
    assert_same(ran.without_audit(f"bronze.{entity}"), rows)
    wanted = [trimmed(row) for row in newest(rows, key)]
    if entity == "customer":
        wanted = [{**row, "email": row["email"].lower(), "country": row["country"].upper()} for row in wanted]
    assert_same(ran.without_audit(f"silver.{entity}"), wanted)


@pytest.mark.parametrize("entity", ["item", "order", "shipment", "shipment_scan_event"])
def test_bronze_has_every_record_that_can_be_read(ran: Ran, entity: str) -> None:
    rows, dead = records(ran, entity)
    assert_same(ran.without_audit(f"bronze.{entity}"), rows)
    letters = ran.table(f"{entity}_dead_letters")
    assert len(letters) == dead
    for letter in letters:
        told = json.loads(letter["payload"])
        assert told["reason"]
        assert Path(told["file"]).parent.name == entity


def test_some_of_every_fault_was_there(ran: Ran) -> None:
    """Otherwise the rest would prove little."""
    faults = {}
    for entity in ("item", "order", "shipment", "shipment_scan_event"):
        files = json.loads((ran.landing / entity / "_faults.json").read_text())["files"].values()
        names = {name for file in files for name in file["faults"]}
        faults[entity] = {name: sum(file["faults"].get(name, 0) for file in files) for name in names}
    assert all(count > 0 for name, count in faults["shipment_scan_event"].items()), faults
    assert any(faults[entity]["malformed"] for entity in ("item", "order", "shipment")), faults
    assert all(faults[entity]["drift"] and faults[entity]["duplicate"] for entity in ("order", "shipment")), faults


def test_items_are_cast_and_validated(ran: Ran) -> None:
    rows, _ = records(ran, "item")
    schema, wanted = ran.columns("bronze.item"), []
    for row in (trimmed(flat_with_nulls(row, schema)) for row in newest(rows, "item_id")):
        stock = row["stock"]
        row |= {
            "sku": row["sku"].upper(),
            "unit_price": Decimal(row["unit_price"]),
            "weight_kg": float(row["weight_kg"]),
        }
        row |= {"stock": None if stock is None else int(stock), "hazardous": row["hazardous"] == "true"}
        wanted.append(row | {"introduced_on": date.fromisoformat(row["introduced_on"])})
    assert_same(ran.without_audit("silver.item"), wanted)


def test_orders_become_lines(ran: Ran) -> None:
    rows, _ = records(ran, "order")
    lines, aside = [], 0
    for row in rows:
        for line in row.pop("order_lines"):
            found = trimmed(flat({**row, **line}))
            found |= {"quantity": int(line["quantity"]), "discount_percent": Decimal(line["discount_percent"])}
            aside += found["ordered_at"] is None
            lines += [] if found["ordered_at"] is None else [found]
    found = ran.without_audit("silver.order_line")
    assert_same(found, [_in(row, found[0]) for row in newest(lines, "order_id", "line_number")])
    quarantined = ran.table("silver.order_line_quarantine")
    assert len(quarantined) == aside > 0
    assert {tuple(row["reasons"]) for row in quarantined} == {("ordered_when",)}


def _in(row: Row, like: Row) -> Row:
    """The same columns, and decimals with as many digits."""
    return {k: row[k].quantize(like[k]) if isinstance(row[k], Decimal) else row[k] for k in like}


def test_shipments_get_their_delay(ran: Ran) -> None:
    rows, _ = records(ran, "shipment")
    schema, wanted = ran.columns("bronze.shipment"), []
    for row in newest([row for row in rows if row["pieces"] is not None], "shipment_id"):
        made = trimmed(flat_with_nulls(row, schema))
        arrived = row["actual_delivery_at"]
        late = (math.floor(arrived.timestamp()) - row["promised_delivery_at"].timestamp()) // 60 if arrived else None
        wanted.append(made | {"delay_minutes": None if late is None else int(max(late, 0))})
    assert_same(ran.without_audit("silver.shipment"), wanted)
    assert len(ran.table("silver.shipment_quarantine")) == sum(row["pieces"] is None for row in rows) > 0


def test_scan_events_are_flat_and_there_once(ran: Ran) -> None:
    rows, _ = records(ran, "shipment_scan_event")
    schema = ran.columns("bronze.shipment_scan_event")
    assert len(flat_columns(schema)) > 30
    known = [row for row in rows if row["facility"]["facility_id"] is not None]
    wanted = [trimmed(flat_with_nulls(row, schema)) for row in newest(known, "event_id")]
    assert_same(ran.without_audit("silver.shipment_scan_event"), wanted)
    assert len(ran.table("silver.shipment_scan_event_quarantine")) == len(rows) - len(known) > 0
    assert len(rows) > len(newest(rows, "event_id"))


def test_rows_say_where_they_came_from(ran: Ran) -> None:
    rows = ran.table("bronze.shipment_scan_event")
    assert {row["_epoch"] for row in rows} == {0, 1, 2, 3}
    by_epoch = {(row["_epoch"], row["_ingested_at"], Path(row["_source_file"]).name) for row in rows}
    assert len(by_epoch) == 4, "one file and one time in each epoch"
    assert {name for _, _, name in by_epoch} == {path.name for path in ran.files("shipment_scan_event")}
    assert {row["_epoch"] for row in ran.table("silver.shipment_scan_event")} <= {0, 1, 2, 3}


def test_gold_agrees_with_silver(ran: Ran) -> None:
    shipments = ran.table("silver.shipment")
    events = ran.table("silver.shipment_scan_event")
    status = {row["shipment_id"]: row for row in ran.table("gold.shipment_status")}
    assert set(status) == {row["shipment_id"] for row in shipments}
    latest: dict[str, Row] = {}
    for event in events:
        before = latest.get(event["shipment_shipment_id"])
        if before is None or event["event_time"] > before["event_time"]:
            latest[event["shipment_shipment_id"]] = event
    for name, row in status.items():
        assert row["last_event"] == (latest[name]["event_type"] if name in latest else None)
    rates = ran.table("gold.on_time_by_route_and_day")
    delivered = [row for row in shipments if row["actual_delivery_at"] is not None]
    assert sum(row["delivered"] for row in rates) == len(delivered)
    assert sum(row["on_time"] for row in rates) == sum(row["delay_minutes"] == 0 for row in delivered)
    assert sum(row["events"] for row in ran.table("gold.scan_sessions")) == len(events)
    exceptions = [event for event in events if event["exception_exception_code"] is not None]
    assert sum(row["exceptions"] for row in ran.table("gold.exceptions_by_facility")) == len(exceptions) > 0
