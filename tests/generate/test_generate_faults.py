"""Faults: as many as are counted, and nothing else is wrong."""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.generate.entities import ENTITIES, REQUESTS, SHIPPING, Entity
from anabranch.generate.faults import EXCLUSIVE, Faults
from anabranch.generate.rows import lines
from anabranch.generate.run import Made, Wanted, generate
from anabranch.generate.scans import LATE_MS
from anabranch.generate.timeline import happened
from anabranch.generate.to_files import MANIFEST, FolderTarget

ROWS = 20_000
ALL = Faults(late=0.02, duplicate=0.03, malformed=0.01, drift=0.04, skew=0.3, disorder=0.05)
SCANS = ENTITIES["shipment_scan_event"]


def make(folder: Path, entities: tuple[Entity, ...], faults: Faults, rows: int = ROWS, **given: Any) -> dict[str, Made]:
    made: dict[str, Made] = {}
    generate(Wanted(entities, rows, faults=faults, **given), FolderTarget(folder), made)
    return made


def parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return None


def observed(texts: list[str], plain: list[str], event_id: str) -> Counter[str]:
    """The faults that a reader finds who knows how the lines should have been."""
    clean = {json.loads(line)[event_id]: line for line in plain}
    found: Counter[str] = Counter()
    seen: set[str] = set()
    newest = ""
    for line in texts:
        event = parsed(line)
        if event is None:
            found["malformed"] += 1
            continue
        name = event[event_id]
        if name in seen:
            found["duplicate"] += 1
            assert line == clean[name]
            continue
        seen.add(name)
        found["drift"] += _paths(event) != _paths(json.loads(clean[name]))
        found["disorder"] += name < newest
        newest = max(newest, name)
    found["rows"] = len(seen)
    return found


def _paths(value: Any, at: str = "") -> set[str]:
    """Every member with its type, so that a new name and a new type both show."""
    if isinstance(value, dict):
        return {p for k, v in value.items() for p in _paths(v, f"{at}.{k}")}
    if isinstance(value, list):
        return {p for v in value[:1] for p in _paths(v, f"{at}[]")}
    return {f"{at}:{type(value).__name__}"}


@pytest.mark.parametrize(
    ("entity", "event_id"), [(SCANS, "event_id"), (REQUESTS[0], "eventId")], ids=["scans", "requests"]
)
@pytest.mark.parametrize("fault", ["duplicate", "malformed", "drift", "disorder"])
def test_there_are_as_many_as_are_counted(entity: Entity, event_id: str, fault: str) -> None:
    faults = Faults(**{fault: 0.05})
    (plain,) = lines(entity, 7, 3_000, 7_000, Faults())
    (rows,) = lines(entity, 7, 3_000, 7_000, faults)
    found = observed(rows.texts.to_pylist(), plain.texts.to_pylist(), event_id)
    assert found[fault] == rows.faults[fault]
    assert 100 < rows.faults[fault] < 300
    expected = Counter({fault: rows.faults[fault], "rows": 4_000 - rows.faults["malformed"]})
    assert +found == expected


def test_late_events_are_days_before_the_others() -> None:
    numbers = np.arange(4_000)
    (rows,) = lines(SCANS, 7, 0, 4_000, Faults(late=0.05))
    events = [json.loads(line) for line in rows.texts.to_pylist()]
    times = [datetime.fromisoformat(e["event_time"]).timestamp() * 1_000 for e in events]
    late = [abs(due - at) > 1 for due, at in zip(happened(7, numbers).tolist(), times, strict=True)]
    assert sum(late) == rows.faults["late"] > 100
    early = [due - at for due, at, is_late in zip(happened(7, numbers).tolist(), times, late, strict=True) if is_late]
    assert min(early) >= LATE_MS


def test_skewed_events_are_about_one_shipment() -> None:
    (rows,) = lines(SCANS, 7, 8_000, 12_000, Faults(skew=0.3))
    hot = [json.loads(t) for t in rows.texts.to_pylist() if "SHP-000000000000" in t]
    assert len(hot) == rows.faults["skew"] == (rows.keys == 0).sum()
    assert 1_000 < len(hot) < 1_400


def test_all_together_still_add_up(tmp_path: Path) -> None:
    made = make(tmp_path, SHIPPING, ALL, files=3)["shipment_scan_event"]
    texts = [t for p in sorted((tmp_path / SCANS.name).glob("ship*.json")) for t in p.read_text().splitlines()]
    assert len(texts) == made.written == ROWS + made.faults["duplicate"]
    whole = [e for t in texts if (e := parsed(t)) is not None]
    assert len(texts) - len(whole) == made.faults["malformed"]
    assert len({e["event_id"] for e in whole}) == ROWS - made.faults["malformed"]
    assert all(made.faults[name] > 0 for name in ALL.asked())


def test_documents_have_drift_and_duplicates_and_may_be_broken(tmp_path: Path) -> None:
    made = make(tmp_path, SHIPPING, Faults(duplicate=0.05, drift=0.05, malformed=0.4), files=4)
    broken = 0
    for name in ("order", "shipment", "item"):
        documents = [parsed(p.read_text()) for p in sorted((tmp_path / name).glob(f"{name}-*.json"))]
        assert documents.count(None) == made[name].faults["malformed"]
        broken += documents.count(None)
        noted = json.loads((tmp_path / name / MANIFEST).read_text())["files"]
        for document, entry in zip(documents, noted.values(), strict=True):
            assert (document is None) == bool(entry["faults"]["malformed"])
            if document is not None:
                keys = [r[f"{name}_id"] for r in document["data"]]
                assert len(keys) == entry["written"]
                assert len(set(keys)) == entry["rows"] == len(keys) - entry["faults"]["duplicate"]
    assert broken > 0


def test_the_manifest_has_every_file_and_keeps_those_of_earlier_calls(tmp_path: Path) -> None:
    make(tmp_path, (SCANS,), ALL, rows=1_000, files=2)
    more = make(tmp_path, (SCANS,), Faults(), rows=500, start=1_000)
    noted = json.loads((tmp_path / SCANS.name / MANIFEST).read_text())["files"]
    assert sorted(noted) == sorted(p.name for p in (tmp_path / SCANS.name).glob("*.json") if p.name != MANIFEST)
    assert more[SCANS.name].faults == Counter()
    for name, entry in noted.items():
        written = (tmp_path / SCANS.name / name).read_text().splitlines()
        assert len(written) == entry["written"]
        assert sum(parsed(t) is None for t in written) == entry["faults"].get("malformed", 0)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.floats(0, 0.25), min_size=4, max_size=4),
    st.floats(0, 1),
    st.integers(0, 10**6),
    st.integers(1, 600),
    st.integers(0, 2**64),
)
def test_any_shares_add_up(shares: list[float], disorder: float, start: int, rows: int, seed: int) -> None:
    faults = Faults(**dict(zip(EXCLUSIVE, shares, strict=True)), disorder=disorder)
    (plain,) = lines(SCANS, seed, start, start + rows, Faults())
    (made,) = lines(SCANS, seed, start, start + rows, faults)
    assert len(made.texts) == rows + made.faults["duplicate"] == len(made.keys)
    events = [parsed(t) for t in made.texts.to_pylist()]
    assert events.count(None) == made.faults["malformed"]
    ids = Counter(e["event_id"] for e in events if e)
    assert sum(n - 1 for n in ids.values()) == made.faults["duplicate"]
    assert set(ids) <= {json.loads(t)["event_id"] for t in plain.texts.to_pylist()}
    shipments = {f"SHP-{n:012d}" for n in made.keys.tolist()}
    assert {e["shipment"]["shipment_id"] for e in events if e} <= shipments
