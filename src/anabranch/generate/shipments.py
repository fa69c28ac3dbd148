"""What belongs to a shipment and to an order, as functions of their numbers; and both as the rows of documents."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.generate import dimensions
from anabranch.generate.entities import ENTITIES
from anabranch.generate.hashing import Numbers, below, share
from anabranch.generate.text import digits, fixed, joined, joined_lists, moments, pool, taken
from anabranch.generate.timeline import STAGES, event_of, happened

HOUR_MS = 3_600_000
POOL = 4_096
LAST = len(STAGES) - 1


def order_of(shipments: Numbers) -> Numbers:
    """Of every five shipments, the last two belong to one order."""
    return shipments // 5 * 4 + np.minimum(shipments % 5, 3)


def orders_before(shipment: int) -> int:
    """How many orders have their first shipment before this one.

    >>> [orders_before(n) for n in range(7)]
    [0, 1, 2, 3, 4, 4, 5]
    """
    return shipment // 5 * 4 + min(shipment % 5, 4)


def customer_of(seed: int, orders: Numbers) -> Numbers:
    """Who ordered."""
    return below(seed, "customer", orders, ENTITIES["customer"].size or 0)


def route_of(seed: int, shipments: Numbers) -> Numbers:
    """Which way a shipment goes."""
    return below(seed, "route", shipments, ENTITIES["route"].size or 0)


def level_of(seed: int, shipments: Numbers) -> Numbers:
    """The service level that was bought."""
    return below(seed, "service level", shipments, ENTITIES["service_level"].size or 0)


def pieces_of(seed: int, shipments: Numbers) -> Numbers:
    """How many packages: 1 to 3."""
    return 1 + below(seed, "pieces", shipments, 3)


def failed(seed: int, shipments: Numbers) -> Any:
    """Whether the delivery came to nothing, for one in 25."""
    return below(seed, "failed", shipments, 25) == 0


def package_of(seed: int, shipments: Numbers) -> Numbers:
    """The number of the shipment's package in the pool of packages."""
    return below(seed, "package", shipments, POOL)


@cache
def packages(seed: int) -> list[dict[str, Any]]:
    """Packages to take from."""
    n = np.arange(POOL)
    weight, length, width, height, kind = (
        below(seed, f"package {what}", n, count).tolist()
        for what, count in (("weight", 600), ("length", 110), ("width", 70), ("height", 60), ("kind", 40))
    )
    return [
        {
            "weight_kg": round(0.2 + weight[i] / 20, 2),
            "dimensions": {"length_cm": 10 + length[i], "width_cm": 8 + width[i], "height_cm": 4 + height[i]},
            "fragile": kind[i] < 6,
            "hazardous": kind[i] == 39,
        }
        for i in range(POOL)
    ]


@cache
def _weights(seed: int) -> Any:
    return pool(p["weight_kg"] for p in packages(seed))


@cache
def value_pool(seed: int) -> Any:
    """What is declared as the value of a shipment, with its currency."""
    amounts = 10 + below(seed, "value", np.arange(POOL), 990_000) / 100
    currencies = below(seed, "currency", np.arange(POOL), 3).tolist()
    return pa.array(
        [
            f'"declared_value":{a:.2f},"currency":"{("EUR", "USD", "INR")[c]}"'
            for a, c in zip(amounts.tolist(), currencies, strict=True)
        ]
    )


def keys_text(seed: int, shipments: Numbers) -> Any:
    """The members that a shipment and its scan events have in common, up to the customer."""
    orders = order_of(shipments)
    return fixed(
        '"shipment_id":"SHP-', digits(shipments, 12),
        '","tracking_number":"1ZA', digits(below(seed, "tracking", shipments, 10_000), 4), digits(shipments, 12),
        '","order_id":"ORD-', digits(orders, 12),
        '","customer_id":"CUS-', digits(customer_of(seed, orders), 8)[:, 2:], '"',
    )  # fmt: skip


@cache
def _route_texts(seed: int) -> Any:
    r = dimensions.routes(seed)
    rows = zip(r["route_id"], r["origin_facility_id"], r["destination_facility_id"], strict=True)
    return pa.array(
        [f'"route_id":"{a}","origin_facility_id":"{b}","destination_facility_id":"{c}"' for a, b, c in rows]
    )


def promised(seed: int, shipments: Numbers) -> Numbers:
    """The hour by which delivery was promised: kept as often as the service level does."""
    delivery = happened(seed, event_of(shipments, LAST))
    kept = share(seed, "on time", shipments) < dimensions.ON_TIME[level_of(seed, shipments)]
    slack = below(seed, "slack", shipments, 4)
    found: Numbers = np.where(kept, delivery // HOUR_MS + 1 + slack, delivery // HOUR_MS - slack) * HOUR_MS
    return found


def shipment_rows(seed: int, first: int, after: int) -> Any:
    """Shipments as JSON."""
    n = np.arange(first, after)
    lost = failed(seed, n)
    status = pa.array(["delivered", "exception"]).take(pa.array(lost.astype(np.int64)))
    arrived = fixed('"', moments(happened(seed, event_of(n, LAST))), '"')
    return joined(
        "{", keys_text(seed, n),
        fixed(',"service_level_id":"SVL-', digits(level_of(seed, n), 4)[:, 2:], '",'),
        taken(_route_texts(seed), route_of(seed, n)),
        fixed(',"pieces":', digits(pieces_of(seed, n), 4)[:, 3:], ',"weight_kg":'),
        taken(_weights(seed), package_of(seed, n)), ",",
        taken(value_pool(seed), below(seed, "value of", n, POOL)),
        ',"status":"', status,
        fixed('","picked_up_at":"', moments(happened(seed, event_of(n, 0))),
              '","promised_delivery_at":"', moments(promised(seed, n)), '","actual_delivery_at":'),
        pa.compute.if_else(pa.array(lost), "null", arrived), "}",
    )  # fmt: skip


@cache
def _order_texts() -> Any:
    return pool(
        {
            "channel": channel,
            "priority": priority,
            "currency": currency,
            "payment": {"method": method, "authorized": method != "invoice"},
        }
        for channel in ("web", "edi", "phone", "partner")
        for priority in ("low", "normal", "high")
        for currency in ("EUR", "USD", "INR")
        for method in ("card", "invoice", "transfer")
    )


def order_rows(seed: int, first: int, after: int) -> Any:
    """Orders as JSON, each with one to four lines; placed 2 to 50 hours before the first shipment is collected."""
    n = np.arange(first, after)
    collected = happened(seed, event_of(n // 4 * 5 + n % 4, 0))
    placed = collected - 2 * HOUR_MS - below(seed, "placed", n, 48 * HOUR_MS)
    lines = 1 + below(seed, "lines", n, 4)
    order = np.repeat(n, lines)
    number = np.arange(len(order)) - np.repeat(np.cumsum(lines) - lines, lines) + 1
    line = order * 4 + number
    discounts = pa.array(["0", "0", "2.5", "5", "10"])
    details = joined(
        fixed('{"line_number":', digits(number, 4)[:, 3:],
              ',"item_id":"ITM-', digits(below(seed, "item", line, ENTITIES["item"].size or 0), 8)[:, 2:],
              '","quantity":"'),
        pa.array(1 + below(seed, "quantity", line, 40)).cast(pa.string()),
        '","discount_percent":"', taken(discounts, below(seed, "discount", line, 5)), '"}',
    )  # fmt: skip
    about = _order_texts()
    return joined(
        fixed('{"order_id":"ORD-', digits(n, 12), '","customer_id":"CUS-', digits(customer_of(seed, n), 8)[:, 2:],
              '","ordered_at":"', moments(placed), '",'),
        pa.compute.utf8_slice_codeunits(taken(about, below(seed, "about", n, len(about))), 1, -1),
        ',"order_lines":[', joined_lists(details, lines), "]}",
    )  # fmt: skip


@cache
def _item_texts(seed: int) -> Any:
    return pool(dimensions.items(seed))


def item_rows(seed: int, first: int, after: int) -> Any:
    """Items as JSON."""
    return _item_texts(seed)[first:after]
