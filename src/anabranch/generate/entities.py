"""What is generated: each entity with its form and the types of its raw records.

Keys: orders refer to customers, order lines to items; shipments to orders, customers, routes, service levels and
facilities; routes to facilities; scan events to shipments, orders, customers, routes, facilities, service levels and,
where something went wrong, exception types.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Form = Literal["lines", "documents", "parquet"]


@dataclass(frozen=True, slots=True)
class Entity:
    """A kind of record; `size` is how many there are, or None where it depends on the number of events."""

    name: str
    form: Form
    key: str
    ddl: str
    size: int | None = None


_META = "_meta STRUCT<organization_id: STRING, generation_time: TIMESTAMP, batch_id: STRING, schema_version: INT>"
_OWNER = "organization_id STRING, generation_time TIMESTAMP"

_SCAN_EVENT = (
    "event_id STRING, event_type STRING, event_time TIMESTAMP, ingest_time TIMESTAMP, organization_id STRING, "
    "schema_version INT, "
    "shipment STRUCT<shipment_id: STRING, tracking_number: STRING, order_id: STRING, customer_id: STRING, "
    "service_level_id: STRING, pieces: INT, declared_value: DOUBLE, currency: STRING>, "
    "carrier STRUCT<carrier_id: STRING, name: STRING, "
    "vehicle: STRUCT<vehicle_id: STRING, type: STRING, plate: STRING>, "
    "driver: STRUCT<driver_id: STRING, shift: STRING>>, "
    "route STRUCT<route_id: STRING, origin_facility_id: STRING, destination_facility_id: STRING, distance_km: INT>, "
    "facility STRUCT<facility_id: STRING, name: STRING, type: STRING, city: STRING, country: STRING>, "
    "location STRUCT<latitude: DOUBLE, longitude: DOUBLE, accuracy_m: INT>, "
    "package STRUCT<weight_kg: DOUBLE, dimensions: STRUCT<length_cm: INT, width_cm: INT, height_cm: INT>, "
    "fragile: BOOLEAN, hazardous: BOOLEAN>, "
    "sensors ARRAY<STRUCT<name: STRING, value: DOUBLE, unit: STRING>>, "
    "exception STRUCT<exception_code: STRING, note: STRING, resolved: BOOLEAN>, "
    "scans ARRAY<STRUCT<scan_id: STRING, piece: INT, scan_time: TIMESTAMP, scanner_id: STRING, condition: STRING, "
    "signal_dbm: INT>>"
)
_SHIPMENT = (
    "shipment_id: STRING, tracking_number: STRING, order_id: STRING, customer_id: STRING, service_level_id: STRING, "
    "route_id: STRING, origin_facility_id: STRING, destination_facility_id: STRING, pieces: INT, "
    "weight_kg: DOUBLE, declared_value: DOUBLE, currency: STRING, status: STRING, picked_up_at: TIMESTAMP, "
    "promised_delivery_at: TIMESTAMP, actual_delivery_at: TIMESTAMP"
)
_ORDER = (
    "order_id: STRING, customer_id: STRING, ordered_at: TIMESTAMP, channel: STRING, priority: STRING, "
    "currency: STRING, payment: STRUCT<method: STRING, authorized: BOOLEAN>, "
    "order_lines: ARRAY<STRUCT<line_number: INT, item_id: STRING, quantity: STRING, discount_percent: STRING>>"
)
_ITEM = (
    "item_id: STRING, sku: STRING, description: STRING, category: STRING, unit_price: STRING, weight_kg: STRING, "
    "stock: STRING, hazardous: STRING, introduced_on: STRING"
)

#: The nine entities of shipping, in the order in which they refer to each other.
SHIPPING = (
    Entity(
        "facility",
        "parquet",
        "facility_id",
        "facility_id STRING, facility_name STRING, facility_type STRING, city STRING, country STRING, "
        f"latitude DOUBLE, longitude DOUBLE, capacity_per_day INT, {_OWNER}",
        size=60,
    ),
    Entity(
        "route",
        "parquet",
        "route_id",
        "route_id STRING, origin_facility_id STRING, hub_facility_id STRING, destination_facility_id STRING, "
        f"carrier_id STRING, carrier_name STRING, mode STRING, distance_km INT, {_OWNER}",
        size=200,
    ),
    Entity(
        "service_level",
        "parquet",
        "service_level_id",
        "service_level_id STRING, service_level_name STRING, on_time_target DOUBLE, price_per_kg DOUBLE, "
        f"max_transit_hours INT, {_OWNER}",
        size=4,
    ),
    Entity(
        "exception_type",
        "parquet",
        "exception_code",
        f"exception_code STRING, description STRING, category STRING, severity STRING, carrier_fault BOOLEAN, {_OWNER}",
        size=8,
    ),
    Entity(
        "customer",
        "parquet",
        "customer_id",
        "customer_id STRING, customer_name STRING, segment STRING, email STRING, city STRING, country STRING, "
        f"credit_limit DOUBLE, active BOOLEAN, customer_since TIMESTAMP, {_OWNER}",
        size=5_000,
    ),
    Entity("item", "documents", "item_id", f"{_META}, data ARRAY<STRUCT<{_ITEM}>>", size=2_000),
    Entity("order", "documents", "order_id", f"{_META}, data ARRAY<STRUCT<{_ORDER}>>"),
    Entity("shipment", "documents", "shipment_id", f"{_META}, data ARRAY<STRUCT<{_SHIPMENT}>>"),
    Entity("shipment_scan_event", "lines", "shipment_id", _SCAN_EVENT),
)

#: Requests to a web service: what the quickstart and the benchmarks read.
REQUESTS = (
    Entity(
        "request_event",
        "lines",
        "eventId",
        "eventId STRING, timestamp TIMESTAMP, user STRUCT<userId: STRING, country: STRING>, "
        "request STRUCT<endpoint: STRING, latency_ms: DOUBLE, status_code: INT>, "
        "errors ARRAY<STRUCT<errorCode: STRING, severity: STRING>>",
    ),
)

SHAPES: Mapping[str, tuple[Entity, ...]] = {"medallion": SHIPPING, "requests": REQUESTS}
ENTITIES: Mapping[str, Entity] = {e.name: e for shape in SHAPES.values() for e in shape}

#: The columns of each entity's raw records in Spark's DDL: of a line, of a document with its `data`, of a Parquet file.
SCHEMAS: Mapping[str, str] = {name: entity.ddl for name, entity in ENTITIES.items()}
