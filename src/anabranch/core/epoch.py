"""The epoch: its identity, its states, what staging returned (receipts) and what applying returned.

Everything here is small, JSON and free of clocks and run ids, so that a receipt written by one process can be applied
by another one after any crash.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from anabranch.core.changes import Merge


@dataclass(frozen=True, slots=True, order=True)
class EpochKey:
    """Which epoch: the only thing idempotence keys are made of.

    >>> key = EpochKey("p-1", "requests", 1, 7)
    >>> key.transaction_id("errors")
    'anabranch/p-1/requests/1/errors'
    """

    pipeline: str
    channel: str
    generation: int
    epoch: int

    def transaction_id(self, sink: str) -> str:
        """What a sink remembers its last epoch under; the epoch itself is the version beside it."""
        return f"anabranch/{self.pipeline}/{self.channel}/{self.generation}/{sink}"


class State(StrEnum):
    """How far an epoch has come. Only the states from `DECIDED` on are ever stored."""

    READ = "read"
    STAGED = "staged"
    DECIDED = "decided"
    RESTAGE = "restage"
    APPLIED = "applied"
    PUBLISHED = "published"
    DISCARDED = "discarded"


#: An epoch that is decided and has not come to its end.
OPEN = (State.DECIDED, State.RESTAGE, State.APPLIED)

#: The moves an epoch may make. `DECIDED -> RESTAGE` is the one way back: a staged file was found damaged before its
#: sink took it, so those sinks are staged again from the same offsets. A decided epoch is discarded by a reset only,
#: whose first epoch replaces what the sinks hold.
MOVES: Mapping[State, frozenset[State]] = {
    State.READ: frozenset({State.STAGED, State.DISCARDED}),
    State.STAGED: frozenset({State.DECIDED, State.DISCARDED}),
    State.DECIDED: frozenset({State.APPLIED, State.RESTAGE, State.DISCARDED}),
    State.RESTAGE: frozenset({State.DECIDED, State.DISCARDED}),
    State.APPLIED: frozenset({State.PUBLISHED, State.DISCARDED}),
    State.PUBLISHED: frozenset(),
    State.DISCARDED: frozenset(),
}


def may_move(old: State, new: State) -> bool:
    """Whether an epoch may go from one state to the other.

    >>> may_move(State.DECIDED, State.APPLIED), may_move(State.PUBLISHED, State.DECIDED)
    (True, False)
    """
    return new in MOVES[old]


@dataclass(frozen=True, slots=True)
class StagedFile:
    """One durable file that no reader can see yet; `path` is relative to the sink's root."""

    path: str
    rows: int
    size: int
    checksum: str
    partition: Mapping[str, str | None] = field(default_factory=dict)
    stats: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Receipt:
    """What staging one sink returned. `schema` is the sink's own wording of the rows' schema.

    `replace` asks the sink to take these rows instead of all it holds: the first epoch of a new generation. With
    `merge` the rows are changes by key.
    """

    sink: str
    files: tuple[StagedFile, ...]
    schema: str
    replace: bool = False
    merge: Merge | None = None

    @property
    def rows(self) -> int:
        """Rows in all files."""
        return sum(f.rows for f in self.files)

    def to_json(self) -> str:
        """One line of JSON that `from_json` turns back.

        >>> r = Receipt("errors", (StagedFile("a.parquet", 3, 99, "c0"),), "{}")
        >>> Receipt.from_json(r.to_json()) == r
        True
        """
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Receipt:
        """The receipt that `to_json` wrote."""
        raw = json.loads(text)
        merge = Merge.from_record(raw["merge"]) if raw.get("merge") else None
        return cls(raw["sink"], tuple(StagedFile(**f) for f in raw["files"]), raw["schema"], raw["replace"], merge)


@dataclass(frozen=True, slots=True)
class Applied:
    """What a sink stands at once it has taken a receipt. `version` means something to that sink's readers only."""

    version: str
    already: bool = False  # the sink had it before this call
    note: str | None = None  # what whoever runs the pipeline has to know, in words; it is told, and not stored


@dataclass(frozen=True, slots=True)
class CutTable:
    """One table of a cut, pinned."""

    name: str
    format: str
    location: str
    version: str
    channel: str
    epoch: int


@dataclass(frozen=True, slots=True)
class CutRecord:
    """One consistent cut: for every channel its published epoch, for every table the version that belongs to it."""

    pipeline: str
    epochs: Mapping[str, int]
    tables: Mapping[str, CutTable]


def digest(text: str) -> str:
    """A short checksum of a text, for recognising a torn or altered record.

    >>> digest("a") == digest("a"), digest("a") == digest("b")
    (True, False)
    """
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
