"""Epoch records survive JSON; crash points do what they say."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import anabranch
from anabranch.core import crash
from anabranch.core.epoch import MOVES, EpochKey, Receipt, StagedFile, State, may_move
from anabranch.core.event_kinds import vocabulary
from anabranch.core.events import Event

pytestmark = pytest.mark.core

PACKAGE = Path(anabranch.__file__).parent

files = st.builds(
    StagedFile,
    path=st.text(min_size=1),
    rows=st.integers(0),
    size=st.integers(0),
    checksum=st.text(),
    partition=st.dictionaries(st.text(), st.none() | st.text()),
    stats=st.dictionaries(st.text(), st.integers() | st.text()),
)


@given(st.text(), st.lists(files), st.text(), st.booleans())
def test_a_receipt_survives_json(sink: str, found: list[StagedFile], schema: str, replace: bool) -> None:
    receipt = Receipt(sink, tuple(found), schema, replace)
    assert Receipt.from_json(receipt.to_json()) == receipt
    assert receipt.rows == sum(f.rows for f in found)


def test_a_published_epoch_never_moves_and_nothing_skips_the_decision() -> None:
    assert MOVES[State.PUBLISHED] == frozenset()
    assert [s for s in State if may_move(s, State.PUBLISHED)] == [State.APPLIED]
    assert [s for s in State if may_move(s, State.APPLIED)] == [State.DECIDED]


def test_idempotence_keys_differ_in_everything_but_the_epoch() -> None:
    key = EpochKey("p", "c", 1, 7)
    others = [EpochKey("q", "c", 1, 7), EpochKey("p", "d", 1, 7), EpochKey("p", "c", 2, 7)]
    ids = {k.transaction_id("s") for k in [key, *others]} | {key.transaction_id("t")}
    assert len(ids) == 5
    assert EpochKey("p", "c", 1, 8).transaction_id("s") == key.transaction_id("s")


def test_every_event_is_in_the_vocabulary_once() -> None:
    classes = {c.__name__: c.kind for c in Event.__subclasses__()}
    assert sorted(vocabulary()) == sorted(classes.values())
    declared = [re.findall(r"^class (\w+)\(Event\):", f.read_text(), re.M) for f in PACKAGE.rglob("*.py")]
    assert sorted(name for names in declared for name in names) == sorted(classes)  # no module was missed


@pytest.mark.parametrize(
    ("armed", "passes", "expected"),
    [
        ("decided", ["decided"], -signal.SIGKILL),
        ("decided@2", ["decided"], 0),
        ("decided@2", ["decided", "decided"], -signal.SIGKILL),
        ("committed(b)", ["committed:a"], 0),
        ("committed(b)", ["committed:a", "committed:b"], -signal.SIGKILL),
        ("staging:enospc", ["staging"], 1),
        ("read:raise", ["read"], 1),
        ("other", ["decided"], 0),
    ],
)
def test_a_crash_point_acts_at_its_hit(armed: str, passes: list[str], expected: int) -> None:
    code = "import sys\nfrom anabranch.core import crash\nfor p in sys.argv[1:]: crash.point(*p.split(':'))"
    done = subprocess.run([sys.executable, "-c", code, *passes], env={crash.VARIABLE: armed, "PYTHONPATH": _path()})
    assert done.returncode == expected


def _path() -> str:
    return ":".join(p for p in sys.path if p)
