"""Request events of a web service as files of JSON lines: what the quickstart and the benchmarks read."""

from __future__ import annotations

import json
import os
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

COUNTRIES = ("US", "DE", "IN", "PL", "BR", "CN", "FR", "JP")
ENDPOINTS = tuple(f"/api/v1/{name}" for name in ("orders", "users", "cart", "search", "login", "pay", "items", "ship"))
STATUSES = {200: 70, 201: 8, 204: 5, 400: 6, 404: 5, 500: 4, 503: 2}
SEVERITIES = ("LOW", "MEDIUM", "HIGH")


def request_event(number: int, chance: random.Random) -> dict[str, Any]:
    """One event; requests that failed carry one to three errors.

    >>> event = request_event(7, random.Random(1))
    >>> event["eventId"], event["timestamp"]
    ('evt-0000000007', '2026-03-08T07:07:49.007Z')
    """
    status = chance.choices(list(STATUSES), list(STATUSES.values()))[0]
    errors = chance.randint(1, 3) if status >= 400 else 0
    return {
        "eventId": f"evt-{number:010d}",
        "timestamp": f"2026-03-{1 + number % 28:02d}T{number % 24:02d}:{number % 60:02d}:{number * 7 % 60:02d}"
        f".{number % 1000:03d}Z",
        "user": {"userId": f"u{chance.randint(1, 100_000)}", "country": chance.choice(COUNTRIES)},
        "request": {
            "endpoint": chance.choice(ENDPOINTS),
            "latency_ms": round(chance.lognormvariate(4, 0.8), 2),
            "status_code": status,
        },
        "errors": [
            {"errorCode": f"E{chance.randint(100, 599)}", "severity": chance.choice(SEVERITIES)} for _ in range(errors)
        ],
    }


def write_request_events(folder: Path, rows: int, files: int, seed: int = 7, start: int = 0) -> list[Path]:
    """Write `rows` events, numbered from `start`, into `files` new files of `folder`.

    A file appears under its name only when it is complete, so a stream may be reading the folder meanwhile.
    """
    folder.mkdir(parents=True, exist_ok=True)
    bounds = [start + rows * i // files for i in range(files + 1)]
    written = []
    for first, after in pairwise(bounds):
        chance = random.Random(f"{seed}:{first}")
        path = folder / f"events-{first:010d}.json"
        hidden = folder / f".{path.name}.part"
        with hidden.open("w", encoding="utf-8") as out:
            out.writelines(json.dumps(request_event(number, chance)) + "\n" for number in range(first, after))
        os.replace(hidden, path)
        written.append(path)
    return written
