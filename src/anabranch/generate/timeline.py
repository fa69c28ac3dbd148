"""Which scan event belongs to which shipment, and when it happened: arithmetic, both ways.

A day has 1,000 shipments with 8 events each, in four sessions of six hours: collected, at the hub, at the destination,
delivered. In each session a shipment has two events 18 minutes apart; the order of shipments differs from session to
session within each half of it, so there are 2 to 9 hours between sessions, and from collection to delivery it takes 15
to 21 hours. Event times grow with the number of the event.
"""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np

from anabranch.generate.hashing import Numbers, below

STAGES = (
    "picked_up", "departed_origin", "in_transit", "departed_hub", "arrived", "sorted", "out_for_delivery", "delivered",
)  # fmt: skip
#: The day of event 0.
BEGINNING = datetime(2026, 1, 5, tzinfo=UTC)
BEGINNING_MS = int(BEGINNING.timestamp()) * 1_000
SPACING_MS = 10_800
_SHIPMENTS, _HALF, _GROUP = 1_000, 500, 100
_EVENTS, _SESSION = _SHIPMENTS * len(STAGES), _SHIPMENTS * 2
#: The place of shipment j of half a day in each session is j * factor + shift, modulo the shipments of half a day.
_FACTORS = np.array([1, 387, 663, 219])
_SHIFTS = np.array([0, 411, 87, 730])
_INVERSES = np.array([pow(int(f), -1, _HALF) for f in _FACTORS])


def shipment_and_stage(events: Numbers) -> tuple[Numbers, Numbers]:
    """The shipment of each event, and how far it is: an index into `STAGES`.

    >>> shipment, stage = shipment_and_stage(np.arange(20_000))
    >>> bool((event_of(shipment, stage) == np.arange(20_000)).all())
    True
    """
    day, rest = events // _EVENTS, events % _EVENTS
    session, rest = rest // _SESSION, rest % _SESSION
    group, rest = rest // (2 * _GROUP), rest % (2 * _GROUP)
    place = group * _GROUP + rest % _GROUP
    of_day = place // _HALF * _HALF + (place % _HALF - _SHIFTS[session]) * _INVERSES[session] % _HALF
    return day * _SHIPMENTS + of_day, session * 2 + rest // _GROUP


def event_of(shipments: Numbers, stage: Numbers | int) -> Numbers:
    """The number of the event in which each shipment reached a stage."""
    session, second = np.divmod(np.broadcast_to(np.asarray(stage), shipments.shape), 2)
    of_day = shipments % _SHIPMENTS
    place = of_day // _HALF * _HALF + (of_day % _HALF * _FACTORS[session] + _SHIFTS[session]) % _HALF
    within = place // _GROUP * 2 * _GROUP + second * _GROUP + place % _GROUP
    found: Numbers = shipments // _SHIPMENTS * _EVENTS + session * _SESSION + within
    return found


def happened(seed: int, events: Numbers) -> Numbers:
    """When each event happened, in milliseconds of the epoch."""
    return BEGINNING_MS + events * SPACING_MS + below(seed, "moment", events, SPACING_MS)


def shipments_before(event: int) -> int:
    """How many shipments were collected before this event; every shipment of an earlier event is one of them.

    >>> shipments_before(0), shipments_before(1), shipments_before(8_000), shipments_before(100_000)
    (0, 1, 1000, 13000)
    """
    day, rest = divmod(event, _EVENTS)
    if rest >= _SESSION:
        return (day + 1) * _SHIPMENTS
    return day * _SHIPMENTS + rest // (2 * _GROUP) * _GROUP + min(rest % (2 * _GROUP), _GROUP)
