"""The nine entities: their keys, times, types, and that the same is made again."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.generate.dimensions import SKU_PATTERN
from anabranch.generate.entities import ENTITIES, SCHEMAS, SHIPPING
from anabranch.generate.run import Made, Wanted, generate
from anabranch.generate.timeline import STAGES, event_of, shipment_and_stage, shipments_before
from anabranch.generate.to_files import FolderTarget

ROWS = 20_000


def make(folder: Path, **given: Any) -> dict[str, Made]:
    made: dict[str, Made] = {}
    generate(Wanted(given.pop("entities", SHIPPING), **given), FolderTarget(folder), made)
    return made


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.fixture(scope="module")
def landing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("landing")
    make(folder, rows=ROWS, files=3)
    return folder


@pytest.fixture(scope="module")
def lake(landing: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Every entity as a view with the columns of its DDL; documents as their rows."""
    with duckdb.connect() as found:
        found.execute("SET TimeZone = 'UTC'")
        for entity in SHIPPING:
            view(found, entity.name, landing)
        yield found


def view(lake: duckdb.DuckDBPyConnection, name: str, landing: Path) -> None:
    files = f"{landing}/{name}/{name}-*"
    if ENTITIES[name].form == "parquet":
        lake.execute(f"CREATE VIEW \"{name}\" AS SELECT * FROM read_parquet('{files}')")
        return
    columns = ", ".join(f"'{c}': '{duck(t)}'" for c, t in members(SCHEMAS[name]))
    form = "newline_delimited" if ENTITIES[name].form == "lines" else "unstructured"
    source = f"read_json('{files}', columns={{{columns}}}, format='{form}', maximum_object_size=100000000)"
    row = "*" if ENTITIES[name].form == "lines" else "_meta, unnest(data, max_depth := 2)"
    lake.execute(f'CREATE VIEW "{name}" AS SELECT {row} FROM {source}')


def members(text: str) -> list[tuple[str, str]]:
    """Names and types of `a INT, b STRUCT<c: INT>`."""
    found, depth, begin = [], 0, 0
    for place, letter in enumerate([*text, ","]):
        depth += {"<": 1, ">": -1}.get(letter, 0)
        if letter == "," and not depth:
            name, _, kind = text[begin:place].strip().partition(" ")
            found.append((name.rstrip(":"), kind))
            begin = place + 1
    return found


def duck(kind: str) -> str:
    """A type of Spark in the words of DuckDB."""
    if kind.startswith("ARRAY<"):
        return duck(kind[6:-1]) + "[]"
    if kind.startswith("STRUCT<"):
        return "STRUCT(" + ", ".join(f'"{n}" {duck(t)}' for n, t in members(kind[7:-1])) + ")"
    return {"STRING": "VARCHAR", "TIMESTAMP": "TIMESTAMPTZ"}.get(kind, kind)


def fits(value: Any, kind: str) -> bool:
    """Whether a value of JSON has a type, with all its members and no others."""
    if kind.startswith("ARRAY<"):
        return isinstance(value, list) and all(fits(v, kind[6:-1]) for v in value)
    if kind.startswith("STRUCT<"):
        known = dict(members(kind[7:-1]))
        return value is None or (list(value) == list(known) and all(fits(value[n], t) for n, t in known.items()))
    if kind == "TIMESTAMP":
        return value is None or bool(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", value))
    python = {"STRING": str, "INT": int, "DOUBLE": float, "BOOLEAN": bool}[kind]
    return type(value) is python


@pytest.mark.parametrize("name", [e.name for e in SHIPPING if e.form != "parquet"])
def test_json_has_exactly_the_members_and_types_of_its_ddl(name: str, landing: Path) -> None:
    whole = f"STRUCT<{', '.join(f'{n}: {t}' for n, t in members(SCHEMAS[name]))}>"
    for path in sorted((landing / name).iterdir()):
        text = path.read_text()
        values = (
            [json.loads(line) for line in text.splitlines()[::17]]
            if ENTITIES[name].form == "lines"
            else [json.loads(text)]
        )
        assert [v for v in values if not fits(v, whole)][:1] == []


@pytest.mark.parametrize("entity", [e for e in SHIPPING if e.form == "parquet"], ids=lambda e: e.name)
def test_parquet_has_exactly_the_columns_of_its_ddl(entity: Any, landing: Path) -> None:
    (path,) = (landing / entity.name).iterdir()
    table = pq.read_table(path)
    spark = {"string": "STRING", "int32": "INT", "double": "DOUBLE", "bool": "BOOLEAN"}
    spark["timestamp[us, tz=UTC]"] = "TIMESTAMP"
    assert [(f.name, spark[str(f.type)]) for f in table.schema] == members(entity.ddl)
    assert table.num_rows == entity.size
    assert len(table.column(entity.key).unique()) == entity.size
    assert [c for c in table.column_names if table.column(c).null_count] == []


def test_scan_events_flatten_to_more_than_thirty_fields() -> None:
    def leaves(kind: str) -> int:
        kind = kind[6:-1] if kind.startswith("ARRAY<") else kind
        return sum(leaves(t) for _, t in members(kind[7:-1])) if kind.startswith("STRUCT<") else 1

    assert sum(leaves(t) for _, t in members(SCHEMAS["shipment_scan_event"])) >= 40


REFERENCES = [
    ("order", "customer_id", "customer", "customer_id"),
    ('(SELECT unnest(order_lines, recursive := true) FROM "order")', "item_id", "item", "item_id"),
    ("shipment", "order_id", "order", "order_id"),
    ("shipment", "customer_id", "customer", "customer_id"),
    ("shipment", "route_id", "route", "route_id"),
    ("shipment", "service_level_id", "service_level", "service_level_id"),
    ("shipment", "origin_facility_id", "facility", "facility_id"),
    ("route", "origin_facility_id", "facility", "facility_id"),
    ("route", "hub_facility_id", "facility", "facility_id"),
    ("route", "destination_facility_id", "facility", "facility_id"),
    ("shipment_scan_event", "shipment.shipment_id", "shipment", "shipment_id"),
    ("shipment_scan_event", "shipment.order_id", "order", "order_id"),
    ("shipment_scan_event", "shipment.customer_id", "customer", "customer_id"),
    ("shipment_scan_event", "shipment.service_level_id", "service_level", "service_level_id"),
    ("shipment_scan_event", "route.route_id", "route", "route_id"),
    ("shipment_scan_event", "facility.facility_id", "facility", "facility_id"),
    ("shipment_scan_event", "exception.exception_code", "exception_type", "exception_code"),
]


@pytest.mark.parametrize(("name", "column", "other", "key"), REFERENCES, ids=lambda v: str(v)[:30])
def test_every_reference_leads_somewhere(
    lake: duckdb.DuckDBPyConnection, name: str, column: str, other: str, key: str
) -> None:
    source = name if name.startswith("(") else f'"{name}"'
    (found, orphans), = lake.execute(
        f'SELECT count(k), count(k) FILTER (k NOT IN (SELECT {key} FROM "{other}")) '
        f"FROM (SELECT a.{column} AS k FROM {source} AS a)"
    ).fetchall()  # fmt: skip
    assert found > 0
    assert orphans == 0


def test_a_shipment_its_order_and_its_events_agree(lake: duckdb.DuckDBPyConnection) -> None:
    disagree = """
        SELECT count(*) FROM shipment_scan_event e JOIN shipment s ON s.shipment_id = e.shipment.shipment_id
        JOIN "order" o ON o.order_id = s.order_id JOIN route r ON r.route_id = s.route_id
        WHERE e.shipment.order_id <> s.order_id OR e.shipment.customer_id <> o.customer_id
        OR s.customer_id <> o.customer_id OR e.route.route_id <> s.route_id OR e.shipment.pieces <> s.pieces
        OR e.package.weight_kg <> s.weight_kg OR e.carrier.carrier_id <> r.carrier_id
        OR e.facility.facility_id NOT IN (r.origin_facility_id, r.hub_facility_id, r.destination_facility_id)
        OR len(e.scans) <> s.pieces OR o.ordered_at >= s.picked_up_at OR e.event_time < s.picked_up_at
        OR (e.event_type = 'delivered' AND e.event_time <> s.actual_delivery_at)"""
    assert lake.execute(disagree).fetchall() == [(0,)]


def test_timelines(lake: duckdb.DuckDBPyConnection) -> None:
    """Stages in their order, sessions with gaps between them, an on-time rate that is neither 0 nor 1."""
    lake.execute(
        "CREATE OR REPLACE TEMP TABLE gaps AS SELECT event_type, lag(event_type) OVER w AS before, "
        "event_time - lag(event_time) OVER w AS gap FROM shipment_scan_event "
        "WINDOW w AS (PARTITION BY shipment.shipment_id ORDER BY event_time)"
    )
    follows = dict(lake.execute("SELECT event_type, any_value(before) FROM gaps WHERE event_type <> 'exception' "
                                "AND before <> 'exception' GROUP BY 1").fetchall())  # fmt: skip
    assert follows == {after: before for before, after in pairwise(STAGES)}
    sessions = lake.execute(
        "SELECT count(*) FILTER (gap < INTERVAL 30 MINUTE), count(*) FILTER (gap > INTERVAL 2 HOUR), "
        "count(gap) FROM gaps"
    ).fetchone()
    assert sessions is not None
    within, between, gaps = sessions
    assert within + between == gaps
    assert min(within, between) > 5_000
    rates = lake.execute(
        "SELECT service_level_name, avg((actual_delivery_at <= promised_delivery_at)::INT) - max(on_time_target) "
        "FROM shipment JOIN service_level USING (service_level_id) WHERE actual_delivery_at IS NOT NULL GROUP BY 1"
    ).fetchall()
    assert len(rates) == 4
    assert all(abs(difference) < 0.06 for _, difference in rates)
    assert lake.execute("SELECT count(*) FROM shipment WHERE (status = 'exception') <> (actual_delivery_at IS NULL)").fetchall() == [(0,)]  # fmt: skip  # noqa: E501


def test_values_that_need_a_cast_and_a_pattern(lake: duckdb.DuckDBPyConnection) -> None:
    bad = f"SELECT count(*), count(*) FILTER (NOT regexp_matches(sku, '{SKU_PATTERN}')) FROM item"
    assert lake.execute(bad).fetchall() == [(2_000, 40)]
    lake.execute("SELECT unit_price::DECIMAL(9, 2), weight_kg::DOUBLE, stock::INT, hazardous::BOOLEAN, "
                 "introduced_on::DATE FROM item").fetchall()  # fmt: skip


def test_the_same_arguments_give_the_same_bytes(landing: Path, tmp_path: Path) -> None:
    make(tmp_path / "again", rows=ROWS, files=3)
    assert contents(tmp_path / "again") == contents(landing)
    make(tmp_path / "other", rows=ROWS, files=3, seed=8)
    other = contents(tmp_path / "other")
    fixed = ("service_level", "exception_type")
    assert [n for n, b in contents(landing).items() if other[n] == b and not n.startswith(fixed)] == []


def records(folder: Path, name: str) -> list[Any]:
    found: list[Any] = []
    for path in sorted((folder / name).glob("*.json")):
        text = path.read_text()
        found += text.splitlines() if ENTITIES[name].form == "lines" else json.loads(text)["data"]
    return found


def test_several_calls_give_the_rows_of_one(landing: Path, tmp_path: Path) -> None:
    for start, rows in ((0, 777), (777, 5_000), (5_777, ROWS - 5_777)):
        make(tmp_path, rows=rows, start=start)
    for name in ("order", "shipment", "shipment_scan_event", "item"):
        assert records(tmp_path, name) == records(landing, name)


@given(st.integers(0, 10**9), st.integers(0, 7))
def test_events_and_stages_of_shipments_are_one_to_one(number: int, stage: int) -> None:
    shipment, at = shipment_and_stage(np.array([number]))
    assert event_of(shipment, at).tolist() == [number]
    assert shipments_before(number + 1) > shipment[0]
    event = event_of(np.array([number]), stage)
    assert [v.tolist() for v in shipment_and_stage(event)] == [[number], [stage]]
    assert shipments_before(int(event_of(np.array([number]), 0)[0])) == number
