"""Faults on request, each in a share of the rows, and counted.

Late, duplicate, malformed and drift exclude each other: a row has at most one of them, so what a pipeline should make
of the rows can be computed from the counts. Skew and disorder come on top.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.generate.hashing import Numbers, below, share

EXCLUSIVE = ("malformed", "drift", "duplicate", "late")
MALFORMED, DRIFT, DUPLICATE, LATE = range(1, 5)
#: How far a repeated or delayed line moves down, in lines.
_AWAY = 200
#: What is left of a malformed line: the beginning, so many characters, or all but so many of the last.
_CUTS = (24, 180, -3)


@dataclass(frozen=True, slots=True)
class Faults:
    """The share of rows that have each fault, from 0 to 1."""

    late: float = 0.0
    duplicate: float = 0.0
    malformed: float = 0.0
    drift: float = 0.0
    skew: float = 0.0
    disorder: float = 0.0

    @property
    def exclusive(self) -> float:
        """How many rows have one of the faults that exclude each other."""
        return self.malformed + self.drift + self.duplicate + self.late

    def asked(self) -> dict[str, float]:
        """Those that are not zero."""
        return {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name)}

    def in_documents(self) -> Faults:
        """What the rows of a document can have: drift and duplicates. Malformed is the document, or it is not."""
        return replace(self, late=0.0, malformed=0.0, skew=0.0, disorder=0.0)


@dataclass(frozen=True, slots=True)
class Drift:
    """Three ways in which records of an entity change: a new member, another name, a number that became text."""

    extra: tuple[str, str]
    renamed: tuple[str, str]
    retyped: tuple[str, str]


DRIFTS: Mapping[str, Drift] = {
    "shipment_scan_event": Drift(
        ('"schema_version":3', '"schema_version":4,"firmware":"4.2.0"'),
        ('"facility":{"facility_id":', '"facility":{"facilityId":'),
        ('"weight_kg":([0-9.]+)', r'"weight_kg":"\1"'),
    ),
    "shipment": Drift(
        ('"status":', '"insured":true,"status":'),
        ('"pieces":', '"package_count":'),
        ('"weight_kg":([0-9.]+)', r'"weight_kg":"\1"'),
    ),
    "order": Drift(
        ('"channel":', '"campaign":"spring","channel":'),
        ('"ordered_at":', '"order_date":'),
        ('"line_number":([0-9]+)', r'"line_number":"\1"'),
    ),
    "item": Drift(
        ('"category":', '"origin":"EU","category":'),
        ('"stock":', '"quantity_on_hand":'),
        ('"stock":"([0-9]+)"', r'"stock":\1'),
    ),
    "request_event": Drift(
        ('"user": {', '"region": "eu-1", "user": {'),
        ('"endpoint":', '"path":'),
        ('"status_code": ([0-9]+)', r'"status_code": "\1"'),
    ),
}


def chosen(faults: Faults, seed: int, entity: str, numbers: Numbers) -> Numbers:
    """Which of the exclusive faults each row has: 0 for none, else 1 + its place in `EXCLUSIVE`."""
    if not faults.exclusive:
        return np.zeros(len(numbers), np.int64)
    ends = np.cumsum([getattr(faults, name) for name in EXCLUSIVE])
    return (np.searchsorted(ends, share(seed, f"fault {entity}", numbers), side="right") + 1) % (len(EXCLUSIVE) + 1)


def picked(part: float, seed: int, purpose: str, numbers: Numbers) -> Any:
    """Whether each row is one of a share of them."""
    return share(seed, purpose, numbers) < part if part else np.zeros(len(numbers), bool)


def disturb(
    texts: Any, numbers: Numbers, kinds: Numbers, faults: Faults, seed: int, entity: str
) -> tuple[Any, Numbers, Counter[str]]:
    """The texts with faults in them, the places in `texts` that they came from, and how many faults there are."""
    counts = Counter({name: int((kinds == i).sum()) for i, name in enumerate(EXCLUSIVE, 1) if getattr(faults, name)})
    if faults.malformed:
        texts = _with(texts, kinds == MALFORMED, below(seed, "cut", numbers, len(_CUTS)), [_cut(c) for c in _CUTS])
    if faults.drift:
        change = DRIFTS[entity]
        ways = [
            lambda t: pc.replace_substring(t, *change.extra, max_replacements=1),
            lambda t: pc.replace_substring(t, *change.renamed, max_replacements=1),
            lambda t: pc.replace_substring_regex(t, *change.retyped, max_replacements=1),
        ]
        texts = _with(texts, kinds == DRIFT, below(seed, "drift", numbers, len(ways)), ways)
    if not (faults.duplicate or faults.disorder):
        return texts, np.arange(len(numbers)), counts
    order, counts["disorder"] = _order(numbers, kinds, faults, seed)
    if not faults.disorder:
        del counts["disorder"]
    return texts.take(pa.array(order)), order, counts


def _cut(left: int) -> Any:
    return lambda texts: pc.binary_join_element_wise(pc.utf8_slice_codeunits(texts, 0, left), "\n", "")


def _with(texts: Any, where: Any, way: Numbers, changes: Sequence[Any]) -> Any:
    """The texts, where `where` holds changed in one of several ways."""
    places = np.arange(len(texts))
    parts, after = [texts], len(texts)
    for number, change in enumerate(changes):
        those = np.flatnonzero(where & (way == number))
        parts.append(change(texts.take(pa.array(those))))
        places[those] = after + np.arange(len(those))
        after += len(those)
    return pa.concat_arrays(parts).take(pa.array(places))


def _order(numbers: Numbers, kinds: Numbers, faults: Faults, seed: int) -> tuple[Numbers, int]:
    """The order of lines, and how many of them come after one that should have been later."""
    places = np.arange(len(numbers))
    again = np.flatnonzero(kinds == DUPLICATE)
    delayed = picked(faults.disorder, seed, "disorder", numbers)
    away = 1.5 + below(seed, "away", numbers, _AWAY)
    keys = np.concatenate([places + np.where(delayed, away, 0), again + 2 * _AWAY + away[again]])
    ranked = np.argsort(keys, kind="stable")
    order = np.concatenate([places, again])[ranked]
    originals = order[ranked < len(places)]
    return order, int((originals < np.maximum.accumulate(originals)).sum()) if len(originals) else 0
