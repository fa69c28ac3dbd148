"""The small entities: facilities, routes, service levels, exception types, customers and items."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.generate.entities import ENTITIES
from anabranch.generate.hashing import below, choose
from anabranch.generate.timeline import BEGINNING

#: City, country, latitude, longitude.
CITIES = (
    ("Hamburg", "DE", 53.55, 9.99), ("Leipzig", "DE", 51.34, 12.37), ("Rotterdam", "NL", 51.92, 4.48),
    ("Lyon", "FR", 45.76, 4.84), ("Milan", "IT", 45.46, 9.19), ("Warsaw", "PL", 52.23, 21.01),
    ("Madrid", "ES", 40.42, -3.70), ("Gothenburg", "SE", 57.71, 11.97), ("Chicago", "US", 41.88, -87.63),
    ("Memphis", "US", 35.15, -90.05), ("Dallas", "US", 32.78, -96.80), ("Toronto", "CA", 43.65, -79.38),
    ("Monterrey", "MX", 25.69, -100.32), ("Mumbai", "IN", 19.08, 72.88), ("Osaka", "JP", 34.69, 135.50),
)  # fmt: skip
CARRIERS = ("Northway Freight", "Bluestone Parcel", "Kestrel Logistics", "Harbour Line", "Redwood Express")
_LEVELS = (
    ("EXPRESS", 0.97, 6.5, 24),
    ("PRIORITY", 0.94, 4.2, 30),
    ("STANDARD", 0.9, 2.1, 36),
    ("ECONOMY", 0.85, 1.2, 48),
)
#: How often a service level keeps what it promises.
ON_TIME = np.array([level[1] for level in _LEVELS])
_EXCEPTIONS = (
    ("address not found", "address", "MEDIUM", False), ("recipient absent", "delivery", "LOW", False),
    ("damaged in transit", "damage", "HIGH", True), ("temperature out of range", "damage", "HIGH", True),
    ("held by customs", "customs", "MEDIUM", False), ("vehicle breakdown", "delay", "MEDIUM", True),
    ("weather", "delay", "LOW", False), ("package missing", "loss", "HIGH", True),
)  # fmt: skip
_FACILITY_TYPES = ("hub", "depot", "cross_dock", "warehouse", "pickup_point")
_MODES = ("road", "rail", "air", "sea")
_SEGMENTS = ("enterprise", "mid_market", "small_business", "public_sector")
_NAMES = (
    "Adler",
    "Borealis",
    "Cobalt",
    "Delta",
    "Ember",
    "Falcon",
    "Granite",
    "Helix",
    "Iris",
    "Juniper",
    "Kite",
    "Lumen",
)
_TRADES = ("Industries", "Machines", "Components", "Chemicals", "Foods", "Medical", "Energy", "Textiles")
_PARTS = ("bearing", "valve", "gasket", "pump", "filter", "sensor", "coupling", "motor", "cable", "relay")
_CATEGORIES = ("mechanical", "electrical", "hydraulic", "consumable", "tooling")
#: One item in so many has an SKU in small letters, which does not match `SKU_PATTERN`.
BAD_SKU_EVERY = 50
SKU_PATTERN = "^[A-Z]{2}-[0-9]{5}-[A-Z]$"


def organization(seed: int) -> str:
    """The company of the group that this seed stands for."""
    return f"ORG-{seed % 100:02d}"


def numbers_of(entity: str) -> Any:
    """The numbers of all records of an entity of fixed size."""
    return np.arange(ENTITIES[entity].size or 0)


@cache
def facilities(seed: int) -> Mapping[str, list[Any]]:
    """Sixty of them, in fifteen cities."""
    n = numbers_of("facility")
    cities = [CITIES[i % len(CITIES)] for i in n]
    types = choose(seed, "facility type", n, _FACILITY_TYPES)
    shifts = (below(seed, "facility place", n, 200) - 100) / 1_000
    return {
        "facility_id": [f"FAC-{i:04d}" for i in n],
        "facility_name": [f"{c[0]} {t} {i // len(CITIES) + 1}" for i, c, t in zip(n, cities, types, strict=True)],
        "facility_type": types,
        "city": [c[0] for c in cities],
        "country": [c[1] for c in cities],
        "latitude": [round(c[2] + s, 4) for c, s in zip(cities, shifts.tolist(), strict=True)],
        "longitude": [round(c[3] - s, 4) for c, s in zip(cities, shifts.tolist(), strict=True)],
        "capacity_per_day": (500 + 100 * below(seed, "facility capacity", n, 50)).tolist(),
    }


def route_stops(seed: int, routes: Any) -> tuple[Any, Any, Any]:
    """The facilities where routes begin, change over and end: three different ones each."""
    count = ENTITIES["facility"].size or 0
    begin = below(seed, "route begin", routes, count)
    hub = (begin + 1 + below(seed, "route hub", routes, 19)) % count
    return begin, hub, (hub + 1 + below(seed, "route end", routes, 19)) % count


def route_carrier(seed: int, routes: Any) -> Any:
    """Who drives on each route: an index into `CARRIERS`."""
    return below(seed, "route carrier", routes, len(CARRIERS))


@cache
def routes(seed: int) -> Mapping[str, list[Any]]:
    """Ways from one facility over a second to a third."""
    n = numbers_of("route")
    names = facilities(seed)["facility_id"]
    begin, hub, end = ([names[i] for i in stops] for stops in route_stops(seed, n))
    carriers = route_carrier(seed, n).tolist()
    return {
        "route_id": [f"RTE-{i:04d}" for i in n],
        "origin_facility_id": begin,
        "hub_facility_id": hub,
        "destination_facility_id": end,
        "carrier_id": [f"CAR-{c:02d}" for c in carriers],
        "carrier_name": [CARRIERS[c] for c in carriers],
        "mode": choose(seed, "route mode", n, _MODES),
        "distance_km": (80 + below(seed, "route distance", n, 1_400)).tolist(),
    }


def service_levels(seed: int) -> Mapping[str, list[Any]]:
    """Four of them; what they promise is kept about as often as their target says."""
    columns = ("service_level_name", "on_time_target", "price_per_kg", "max_transit_hours")
    ids = [f"SVL-{i:02d}" for i in range(len(_LEVELS))]
    return {"service_level_id": ids, **{c: [level[i] for level in _LEVELS] for i, c in enumerate(columns)}}


def exception_types(seed: int) -> Mapping[str, list[Any]]:
    """What can go wrong."""
    columns = ("description", "category", "severity", "carrier_fault")
    ids = [f"EXC-{i:02d}" for i in range(len(_EXCEPTIONS))]
    return {"exception_code": ids, **{c: [e[i] for e in _EXCEPTIONS] for i, c in enumerate(columns)}}


def customers(seed: int) -> Mapping[str, list[Any]]:
    """Those who order."""
    n = numbers_of("customer")
    names = choose(seed, "customer name", n, _NAMES)
    trades = choose(seed, "customer trade", n, _TRADES)
    cities = choose(seed, "customer city", n, CITIES)
    since = BEGINNING.timestamp() - 86_400 * (30 + below(seed, "customer since", n, 3_000))
    return {
        "customer_id": [f"CUS-{i:06d}" for i in n],
        "customer_name": [f"{a} {b} {i}" for i, a, b in zip(n, names, trades, strict=True)],
        "segment": choose(seed, "customer segment", n, _SEGMENTS),
        "email": [f"orders{i}@{a.lower()}.example" for i, a in zip(n, names, strict=True)],
        "city": [c[0] for c in cities],
        "country": [c[1] for c in cities],
        "credit_limit": (1_000.0 * (1 + below(seed, "customer credit", n, 500))).tolist(),
        "active": (below(seed, "customer active", n, 20) > 0).tolist(),
        "customer_since": [int(s) * 1_000_000 for s in since],
    }


@cache
def items(seed: int) -> list[dict[str, str]]:
    """What can be ordered, every value as text."""
    n = numbers_of("item")
    letters = [(chr(65 + a), chr(65 + b), chr(65 + c)) for a, b, c in
               zip(*(below(seed, f"sku {i}", n, 26).tolist() for i in range(3)), strict=True)]  # fmt: skip
    price = below(seed, "item price", n, 50_000).tolist()
    weight = below(seed, "item weight", n, 400).tolist()
    stock = below(seed, "item stock", n, 5_000).tolist()
    day = np.datetime_as_string(np.datetime64("2018-01-01") + below(seed, "item day", n, 2_800)).tolist()
    parts = choose(seed, "item part", n, _PARTS)
    categories = choose(seed, "item category", n, _CATEGORIES)
    hazardous = below(seed, "item hazardous", n, 25).tolist()
    found = []
    for i in n.tolist():
        a, b, c = letters[i]
        sku = f"{a}{b}-{i:05d}-{c}"
        found.append(
            {
                "item_id": f"ITM-{i:06d}",
                "sku": sku.lower() if i % BAD_SKU_EVERY == BAD_SKU_EVERY - 1 else sku,
                "description": f"{categories[i]} {parts[i]} {i}",
                "category": categories[i],
                "unit_price": f"{1 + price[i] / 100:.2f}",
                "weight_kg": f"{0.1 + weight[i] / 10:.1f}",
                "stock": str(stock[i]),
                "hazardous": "true" if hazardous[i] == 0 else "false",
                "introduced_on": day[i],
            }
        )
    return found


_COLUMNS: Mapping[str, Callable[[int], Mapping[str, list[Any]]]] = {
    "facility": facilities,
    "route": routes,
    "service_level": service_levels,
    "exception_type": exception_types,
    "customer": customers,
}
_MOMENT = pa.timestamp("us", "UTC")
_TYPES = {"customer_since": _MOMENT, "capacity_per_day": pa.int32(), "distance_km": pa.int32()}
_TYPES |= {"max_transit_hours": pa.int32()}


def table(entity: str, seed: int) -> Any:
    """All records of an entity as a table of Arrow."""
    columns = dict(_COLUMNS[entity](seed))
    rows = len(next(iter(columns.values())))
    arrays = {name: pa.array(values, _TYPES.get(name)) for name, values in columns.items()}
    arrays["organization_id"] = pa.array([organization(seed)] * rows)
    arrays["generation_time"] = pa.array([BEGINNING] * rows, _MOMENT)
    return pa.table(arrays)
