"""Events, and what tables with state over them must hold: models in plain Python, which know nothing of Spark."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

DELAY = 10  # minutes that a watermark stays behind


@dataclass(frozen=True)
class Event:
    id: int
    kind: str
    user: str
    minute: float  # since midnight
    amount: int = 1

    @property
    def at(self) -> datetime:
        return datetime(2024, 1, 1, tzinfo=UTC) + timedelta(minutes=self.minute)

    def as_json(self) -> dict[str, Any]:
        return {"id": self.id, "kind": self.kind, "user": self.user, "amount": self.amount, "at": self.at.isoformat()}


#: Each list is a file, and so an epoch.
FILES: list[list[Event]] = [
    [
        Event(1, "view", "ann", 1),
        Event(2, "view", "bob", 2),
        Event(1, "click", "ann", 3),
        Event(1, "click", "ann", 3),
        Event(3, "view", "ann", 14),
    ],
    [
        Event(4, "view", "cyd", 16),
        Event(2, "click", "bob", 6),  # late, but not too late
        Event(3, "click", "bob", 15),
        Event(4, "view", "ann", 17, 5),
    ],
    [
        Event(5, "view", "ann", 61),
        Event(5, "click", "ann", 65),
        Event(6, "view", "dee", 66),
    ],
    [
        Event(7, "view", "ann", 5, 100),  # far too late for whatever has a watermark
        Event(6, "click", "dee", 67),
        Event(6, "view", "eve", 68),
        Event(8, "view", "bob", 69),
    ],
    [
        Event(1, "view", "ann", 142),  # so much later that 1 has been forgotten
        Event(9, "view", "fay", 143),
        Event(10, "click", "bob", 144),
    ],
]


#: How far time has come at the end of each file.
TICKS = [14.5, 20, 70, 72, 150]


def in_time(*, lateness: Callable[[Event], float] = lambda e: e.minute) -> list[Event]:
    """Events that come before the watermark has passed them."""
    kept, watermark = [], -math.inf
    for events, tick in zip(FILES, TICKS, strict=True):
        kept += [e for e in events if lateness(e) > watermark]
        watermark = tick - DELAY
    return kept


LAST = TICKS[-1] - DELAY


def model_log() -> Counter[Any]:
    return Counter((e.user, e.id, e.kind) for events in FILES for e in events)


def model_totals() -> Counter[Any]:
    def end(e: Event) -> float:
        return e.minute // 10 * 10 + 10

    totals: dict[tuple[str, float], int] = {}
    for e in in_time(lateness=end):
        key = (e.user, end(e) - 10)
        totals[key] = totals.get(key, 0) + e.amount
    return Counter((*key, amount) for key, amount in totals.items() if key[1] + 10 <= LAST)


def model_users() -> Counter[Any]:
    return Counter({(e.user,) for events in FILES for e in events})


def model_fresh() -> Counter[Any]:
    """An id is known until the watermark is past the time of its first event and the delay."""
    known: dict[tuple[str, int], float] = {}
    kept: Counter[Any] = Counter()
    watermark = -math.inf
    for events, tick in zip(FILES, TICKS, strict=True):
        known = {key: until for key, until in known.items() if until > watermark}
        for e in events:
            if e.minute > watermark and (e.user, e.id) not in known:
                known[e.user, e.id] = e.minute + DELAY
                kept[e.user, e.id] += 1
        watermark = tick - DELAY
    return kept


def pairs() -> list[tuple[Event, Event]]:
    events = in_time()
    views, clicks = ([e for e in events if e.kind == kind] for kind in ("view", "click"))
    return [(v, c) for v in views for c in clicks if v.id == c.id and v.minute <= c.minute <= v.minute + 5]


def model_clicked() -> Counter[Any]:
    return Counter((v.user, v.id, c.minute) for v, c in pairs())


def model_seen() -> Counter[Any]:
    matched = pairs()
    alone = [v for v in in_time() if v.kind == "view" and all(v != m for m, _ in matched)]
    return Counter(
        [(v.user, v.id, c.minute) for v, c in matched] + [(v.user, v.id, None) for v in alone if v.minute + 5 < LAST]
    )


def model_named() -> Counter[Any]:
    names = {"ann": ("Ann", 1), "bob": ("Bob", 2)}
    return Counter((e.user, e.id, *names.get(e.user, (None, None))) for events in FILES for e in events)


def model_counted() -> Counter[Any]:
    """After each file the new count of every user in it."""
    counts: Counter[str] = Counter()
    given: list[tuple[str, int]] = []
    for events in FILES:
        counts.update(e.user for e in events)
        given += [(user, counts[user]) for user in {e.user for e in events}]
    return Counter(given)


#: Table -> which rows it must hold when all files have been read.
MODELS: dict[str, Callable[[], Counter[Any]]] = {
    "log": model_log,
    "totals": model_totals,
    "users": model_users,
    "fresh": model_fresh,
    "clicked": model_clicked,
    "seen": model_seen,
    "named": model_named,
    "counted": model_counted,
    "counted_rows": model_counted,
    "counted_frames": model_counted,
}
