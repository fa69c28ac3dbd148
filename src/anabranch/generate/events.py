"""Request events of a web service as files of JSON lines: what the quickstart and the benchmarks read."""

from __future__ import annotations

import math
from functools import cache
from itertools import pairwise
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.generate.files import numbered, whole
from anabranch.generate.hashing import Numbers, below
from anabranch.generate.text import DAY_MS, digits, fixed, joined, joined_lists, moments, raw, taken

COUNTRIES = ("US", "DE", "IN", "PL", "BR", "CN", "FR", "JP")
ENDPOINTS = tuple(f"/api/v1/{name}" for name in ("orders", "users", "cart", "search", "login", "pay", "items", "ship"))
STATUSES = {200: 70, 201: 8, 204: 5, 400: 6, 404: 5, 500: 4, 503: 2}
SEVERITIES = ("LOW", "MEDIUM", "HIGH")
_MARCH_MS = int(np.datetime64("2026-03-01", "ms").astype(np.int64))
_LATENCIES = 4_096
BATCH = 16_384


def request_events(seed: int, numbers: Numbers, late: Any = False, hot: Any = False) -> Any:
    """The events of these numbers, each with its line end; requests that failed carry one to three errors.

    Where `late` holds, the event happened a month earlier; where `hot` holds, it is of one user.

    >>> request_events(7, np.array([7]))[0].as_py()[:72]
    '{"eventId": "evt-0000000007", "timestamp": "2026-03-08T07:07:49.007Z", "'
    """
    n = numbers
    day, hour = n % 28 - np.where(late, 28, 0), n % 24
    when = _MARCH_MS + day * DAY_MS + hour * 3_600_000 + n % 60 * 60_000 + n * 7 % 60 * 1_000 + n % 1_000
    statuses = np.repeat(list(STATUSES), list(STATUSES.values()))[below(seed, "status", n, 100)]
    errors = np.where(statuses >= 400, 1 + below(seed, "errors", n, 3), 0)
    users = np.where(hot, 1, 1 + below(seed, "user", n, 100_000))
    return joined(
        fixed('{"eventId": "evt-', digits(n, 12)[:, 2:], '", "timestamp": "', moments(when), '", "user": {"userId":'),
        ' "u', pa.array(users).cast(pa.string()),
        '", "country": "', taken(pa.array(COUNTRIES), below(seed, "country", n, len(COUNTRIES))),
        '"}, "request": {"endpoint": "', taken(pa.array(ENDPOINTS), below(seed, "endpoint", n, len(ENDPOINTS))),
        '", "latency_ms": ', taken(_latencies(), below(seed, "latency", n, _LATENCIES)),
        fixed(', "status_code": ', digits(statuses, 4)[:, 1:], '}, "errors": ['),
        _errors(seed, n, errors), "]}\n",
    )  # fmt: skip


def _errors(seed: int, numbers: Numbers, counts: Numbers) -> Any:
    event = np.repeat(numbers, counts)
    place = np.arange(len(event)) - np.repeat(np.cumsum(counts) - counts, counts)
    number = event * 4 + place
    comma = taken(pa.array(["", " "]), np.minimum(place, 1))  # as `json.dumps` writes lists: a space after each comma
    code = digits(100 + below(seed, "error code", number, 500), 4)[:, 1:]
    severity = taken(pa.array(SEVERITIES), below(seed, "severity", number, len(SEVERITIES)))
    return joined_lists(joined(comma, fixed('{"errorCode": "E', code, '", "severity": "'), severity, '"}'), counts)


@cache
def _latencies() -> Any:
    """Values of a log-normal distribution, each as likely as the others."""
    normal = NormalDist(4, 0.8)
    return pa.array([f"{math.exp(normal.inv_cdf((i + 0.5) / _LATENCIES)):.2f}" for i in range(_LATENCIES)])


def write_request_events(folder: Path, rows: int, files: int, seed: int = 7, start: int = 0) -> list[Path]:
    """Write `rows` events, numbered from `start`, into `files` new files of `folder`.

    A file appears under its name only when it is complete, so a stream may be reading the folder meanwhile.
    """
    folder.mkdir(parents=True, exist_ok=True)
    bounds = [start + rows * i // files for i in range(files + 1)]
    written = []
    for first, after in pairwise(bounds):
        path = folder / numbered("events", first, after, "json")
        with whole(path) as out:
            for begin in range(first, after, BATCH):
                out.write(raw(request_events(seed, np.arange(begin, min(begin + BATCH, after)))))
        written.append(path)
    return written
