"""Rows of any entity by their numbers, with the faults that were asked for."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from anabranch.generate import dimensions
from anabranch.generate.entities import Entity
from anabranch.generate.events import BATCH, request_events
from anabranch.generate.faults import LATE, Faults, chosen, disturb, picked
from anabranch.generate.hashing import Numbers
from anabranch.generate.scans import scan_events
from anabranch.generate.shipments import item_rows, order_rows, shipment_rows
from anabranch.generate.timeline import BEGINNING_MS


@dataclass(frozen=True, slots=True)
class Rows:
    """Texts of JSON, the numbers in their keys, and how many faults are in them."""

    texts: Any
    keys: Numbers
    faults: Counter[str]


@dataclass(frozen=True, slots=True)
class Document:
    """Rows in an envelope: head, rows with commas between them, tail. A broken one ends before its rows do."""

    head: str
    rows: Rows
    tail: str
    broken: bool


#: What the keys of rows begin with, and how many digits follow.
KEYS: Mapping[str, tuple[str, int]] = {
    "shipment_scan_event": ("SHP-", 12),
    "shipment": ("SHP-", 12),
    "order": ("ORD-", 12),
    "item": ("ITM-", 6),
    "request_event": ("evt-", 10),
}
_DOCUMENT_ROWS: Mapping[str, Callable[[int, int, int], Any]] = {
    "item": item_rows,
    "order": order_rows,
    "shipment": shipment_rows,
}


def lines(entity: Entity, seed: int, first: int, after: int, faults: Faults) -> Iterator[Rows]:
    """Events as JSON lines, some thousand at a time. Lines are repeated or delayed only within such a batch."""
    for begin in range(first, after, BATCH):
        numbers = np.arange(begin, min(begin + BATCH, after))
        kinds = chosen(faults, seed, entity.name, numbers)
        hot = picked(faults.skew, seed, "skew", numbers)
        if entity.name == "request_event":
            texts, keys = request_events(seed, numbers, kinds == LATE, hot), numbers
        else:
            texts, keys = scan_events(seed, numbers, kinds == LATE, hot)
        texts, order, counts = disturb(texts, numbers, kinds, faults, seed, entity.name)
        if faults.skew:
            counts["skew"] = int(hot.sum())
        yield Rows(texts, keys[order], counts)


def document(entity: Entity, seed: int, first: int, after: int, faults: Faults) -> Document:
    """Records with these numbers in one document."""
    numbers = np.arange(first, after)
    of_rows = faults.in_documents()
    kinds = chosen(of_rows, seed, entity.name, numbers)
    texts = _DOCUMENT_ROWS[entity.name](seed, first, after)
    texts, order, counts = disturb(texts, numbers, kinds, of_rows, seed, entity.name)
    broken = bool(picked(faults.malformed, seed, f"broken {entity.name}", numbers[:1])[0])
    if faults.malformed:
        counts["malformed"] = int(broken)
    meta = {
        "organization_id": dimensions.organization(seed),
        "generation_time": str(np.datetime64(BEGINNING_MS, "ms")) + "Z",
        "batch_id": f"{entity.name}-{first:010d}",
        "schema_version": 1,
    }
    head = '{"_meta":' + json.dumps(meta, separators=(",", ":")) + ',"data":[\n'
    return Document(head, Rows(texts, numbers[order], counts), "\n]}\n", broken)
