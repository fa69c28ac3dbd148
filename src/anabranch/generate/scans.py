"""Scan events as JSON lines: one message says what happened to a shipment, with a scan of each of its packages."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.generate import dimensions
from anabranch.generate.hashing import Numbers, below, choose
from anabranch.generate.shipments import (
    LAST,
    POOL,
    failed,
    keys_text,
    level_of,
    package_of,
    packages,
    pieces_of,
    route_of,
    value_pool,
)
from anabranch.generate.text import digits, fixed, joined, joined_lists, moments, pool, taken
from anabranch.generate.timeline import STAGES, happened, shipment_and_stage

#: The shipment that a skewed share of the events is about.
HOT_SHIPMENT = 0
#: How much too early a late event's time is, at least.
LATE_MS = 2 * 86_400_000
_NEAR, _VEHICLES, _SCANNERS = 64, 512, 4_096


def scan_events(seed: int, events: Numbers, late: Any, hot: Any) -> tuple[Any, Numbers]:
    """The messages of these numbers, each with its line end, and the numbers of their shipments.

    Where `late` holds the event happened days before its neighbours; where `hot` holds it is about `HOT_SHIPMENT`.
    """
    shipments, stage = shipment_and_stage(events)
    shipments = np.where(hot, HOT_SHIPMENT, shipments)
    when = happened(seed, events) - np.where(late, LATE_MS + below(seed, "late by", events, 3 * LATE_MS), 0)
    routes = route_of(seed, shipments)
    place = _place(seed, routes, stage)
    trouble = _trouble(seed, events, shipments, stage)
    text = joined(
        fixed('{"event_id":"EVT-', digits(events, 12), '","event_type":"'),
        taken(_TYPES, np.where(trouble > 0, len(STAGES), stage)),
        fixed('","event_time":"', moments(when), '","ingest_time":"',
              moments(when + 500 + below(seed, "ingest", events, 9_000)),
              f'","organization_id":"{dimensions.organization(seed)}","schema_version":3,"shipment":{{'),
        keys_text(seed, shipments),
        fixed(',"service_level_id":"SVL-', digits(level_of(seed, shipments), 4)[:, 2:],
              '","pieces":', digits(pieces_of(seed, shipments), 4)[:, 3:], ","),
        taken(value_pool(seed), below(seed, "value of", shipments, POOL)),
        '},"carrier":', taken(_carriers(seed), dimensions.route_carrier(seed, routes) * _VEHICLES
                              + below(seed, "vehicle", shipments * 4 + stage // 2, _VEHICLES)),
        ',"route":', taken(_routes(seed), routes),
        taken(_places(seed), place * _NEAR + below(seed, "near", events, _NEAR)),
        ',"package":', taken(_packages(seed), package_of(seed, shipments)),
        ',"sensors":', taken(_sensors(seed), below(seed, "sensors", events, POOL)),
        ',"exception":', taken(_exceptions(seed), trouble),
        ',"scans":[', _scans(seed, events, when, pieces_of(seed, shipments)), "]}\n",
    )  # fmt: skip
    return text, shipments


_TYPES = pa.array([*STAGES, "exception"])


def _place(seed: int, routes: Numbers, stage: Numbers) -> Numbers:
    """The facility: where the route begins, then the hub, then where it ends."""
    stops = np.stack(dimensions.route_stops(seed, np.arange(len(_routes(seed)))))
    found: Numbers = stops[np.array([0, 0, 1, 1, 2, 2, 2, 2])[stage], routes]
    return found


def _trouble(seed: int, events: Numbers, shipments: Numbers, stage: Numbers) -> Numbers:
    """0, or 1 + the exception type: at the end for deliveries that failed, at the hub for one event in 40."""
    at_hub = (stage == 2) & (below(seed, "trouble", events, 40) == 0)
    at_end = (stage == LAST) & failed(seed, shipments)
    return np.where(at_hub | at_end, 1 + below(seed, "what", events, len(_exceptions(seed)) - 1), 0)


def _scans(seed: int, events: Numbers, when: Numbers, pieces: Numbers) -> Any:
    event = np.repeat(events, pieces)
    piece = np.arange(len(event)) - np.repeat(np.cumsum(pieces) - pieces, pieces) + 1
    number = event * 4 + piece
    return joined_lists(
        joined(
            fixed('{"scan_id":"SCN-', digits(event, 12), "-", digits(piece, 4)[:, 3:],
                  '","piece":', digits(piece, 4)[:, 3:],
                  ',"scan_time":"', moments(np.repeat(when, pieces) + (piece - 1) * 4_000), '",'),
            taken(_scanners(seed), below(seed, "scanner", number, _SCANNERS)),
        ),
        pieces,
    )  # fmt: skip


@cache
def _scanners(seed: int) -> Any:
    n = np.arange(_SCANNERS)
    condition = choose(seed, "condition", n, ("ok",) * 17 + ("dented", "wet", "label_damaged"))
    signal = (-90 + below(seed, "signal", n, 60)).tolist()
    return pa.array(
        [f'"scanner_id":"SC-{i % 400:04d}","condition":"{condition[i]}","signal_dbm":{signal[i]}}}' for i in n]
    )


@cache
def _carriers(seed: int) -> Any:
    n = np.arange(len(dimensions.CARRIERS) * _VEHICLES)
    kinds = choose(seed, "vehicle type", n, ("van", "truck", "trailer", "bike"))
    drivers = below(seed, "driver", n, 2_000).tolist()
    return pool(
        {
            "carrier_id": f"CAR-{i // _VEHICLES:02d}",
            "name": dimensions.CARRIERS[i // _VEHICLES],
            "vehicle": {"vehicle_id": f"VEH-{i:04d}", "type": kinds[i], "plate": f"AB {1000 + i}"},
            "driver": {"driver_id": f"DRV-{drivers[i]:04d}", "shift": ("day", "night")[drivers[i] % 2]},
        }
        for i in n.tolist()
    )


@cache
def _routes(seed: int) -> Any:
    columns = ("route_id", "origin_facility_id", "destination_facility_id", "distance_km")
    rows = zip(*(dimensions.routes(seed)[c] for c in columns), strict=True)
    return pool(dict(zip(columns, row, strict=True)) for row in rows)


@cache
def _places(seed: int) -> Any:
    """Every facility with each of the places near it where it may have been scanned."""
    f = dimensions.facilities(seed)
    n = np.arange(len(f["facility_id"]) * _NEAR)
    north, east = ((below(seed, f"near {way}", n, 400) - 200) / 1e5 for way in ("north", "east"))
    accuracy = (3 + below(seed, "accuracy", n, 40)).tolist()
    columns = ("facility_id", "facility_name", "facility_type", "city", "country")
    found = []
    for i, (up, right) in enumerate(zip(north.tolist(), east.tolist(), strict=True)):
        at = i // _NEAR
        facility = {c.removeprefix("facility_") if c != "facility_id" else c: f[c][at] for c in columns}
        latitude, longitude = round(f["latitude"][at] + up, 5), round(f["longitude"][at] + right, 5)
        location = {"latitude": latitude, "longitude": longitude, "accuracy_m": accuracy[i]}
        found.append({"facility": facility, "location": location})
    return joined(",", pa.compute.utf8_slice_codeunits(pool(found), 1, -1))


@cache
def _packages(seed: int) -> Any:
    return pool(packages(seed))


@cache
def _sensors(seed: int) -> Any:
    n = np.arange(POOL)
    warm, damp, shock = (below(seed, f"sensor {i}", n, count).tolist() for i, count in enumerate((300, 700, 40)))
    return pool(
        [
            {"name": "temperature", "value": round(-4 + warm[i] / 10, 1), "unit": "C"},
            {"name": "humidity", "value": round(20 + damp[i] / 10, 1), "unit": "%"},
            {"name": "shock", "value": round(shock[i] / 10, 1), "unit": "g"},
        ]
        for i in n.tolist()
    )


@cache
def _exceptions(seed: int) -> Any:
    """`null`, then each exception type."""
    types = dimensions.exception_types(seed)
    rows = zip(types["exception_code"], types["description"], types["severity"], strict=True)
    return pool([None, *({"exception_code": c, "note": d, "resolved": s == "LOW"} for c, d, s in rows)])
