"""A Delta table's files: names of staged ones, and what the log says that delta-rs does not pass on.

Which commit took an epoch, which files were ever named, how statistics are written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa

from anabranch.connectors.folder import Folder, Found

if TYPE_CHECKING:
    from deltalake import DeltaTable

LOG = "_delta_log"
_COMMIT = re.compile(rf"{LOG}/(\d{{20}})\.json")
_NUMBERED = re.compile(rf"{LOG}/(\d{{20}})\.(.*)")
_STAGED = re.compile(r"ab-(?P<owner>[0-9a-f]{8})-(?P<generation>\d+)-(?P<epoch>\d+)-(?P<token>\d+)-.*\.parquet")
_CLOCKS_APART = 24 * 3600.0  # seconds by which clocks of writers and storage may differ


def staged_prefix(owner: str, generation: int, epoch: int, token: int) -> str:
    """How names of staged files begin; `owner` is eight hex digits.

    >>> staged_prefix("0a1b2c3d", 1, 7, 3)
    'ab-0a1b2c3d-1-7-3'
    """
    return f"ab-{owner}-{generation}-{epoch}-{token}"


def staged_name(path: str) -> re.Match[str] | None:
    """The parts of a staged file's name: owner, generation, epoch, token.

    >>> staged_name("day=1/ab-0a1b2c3d-1-7-3-0-0-ff.parquet")["epoch"], staged_name("part-0.parquet")
    ('7', None)
    """
    return _STAGED.fullmatch(path.rpartition("/")[2])


def live_files(table: DeltaTable) -> set[str]:
    """Paths of the files that make up a table's version."""
    return {unquote(path) for path in pa.table(table.get_add_actions())["path"].to_pylist()}


def commit_path(version: int) -> str:
    """
    >>> commit_path(7)
    '_delta_log/00000000000000000007.json'
    """
    return f"{LOG}/{version:020}.json"


def commit_version(folder: Folder, app: str, epoch: int, newest: int) -> int | None:
    """The version whose commit carries the transaction (app, epoch), looking back from `newest`.

    None when an older epoch of the same transaction turns up first, or the log does not reach back further.
    """
    for version in range(newest, -1, -1):
        raw = folder.read(commit_path(version))
        if raw is None:
            return None
        for transaction in actions(raw, "txn"):
            if transaction["appId"] == app:
                if transaction["version"] == epoch:
                    return version
                if transaction["version"] < epoch:
                    return None
    return None


@dataclass(frozen=True, slots=True)
class Log:
    """The commits that are still there, oldest first."""

    folder: Folder
    commits: tuple[tuple[int, Found], ...]

    @classmethod
    def of(cls, folder: Folder) -> Log:
        """List the log once."""
        found = [(int(m[1]), f) for f in folder.files(LOG, deep=False) if (m := _COMMIT.fullmatch(f.path))]
        return cls(folder, tuple(sorted(found, key=lambda commit: commit[0])))

    def reaches(self, moment: float) -> bool:
        """Whether every commit since `moment` is there."""
        if not self.commits:
            return False
        version, oldest = self.commits[0]
        return version == 0 or oldest.modified < moment - _CLOCKS_APART

    def newest_first(self) -> Iterator[tuple[Found, bytes]]:
        """The commits with their contents."""
        for _, found in reversed(self.commits):
            raw = self.folder.read(found.path)
            if raw is not None:
                yield found, raw

    def ever_named(self, files: list[Found]) -> set[str]:
        """Those of the files' paths that a commit still in the log names."""
        wanted = {f.path for f in files}
        named: set[str] = set()
        for _, raw in self.newest_first():
            if named == wanted:
                break
            named |= {unquote(action["path"]) for action in actions(raw, "add", "remove")} & wanted
        return named

    def never_named(self, files: list[Found]) -> list[Found]:
        """Those files of which it is certain that no commit ever named them.

        A commit cannot name a file before it is written; where the log does not reach back that far, the file is in
        doubt and left out.
        """
        named = self.ever_named(files)
        return [f for f in files if f.path not in named and self.reaches(f.modified)]

    def removed_since(self, moment: float) -> set[str]:
        """Files that a commit took out of the table at `moment` or later, or a little before: clocks differ."""
        removed: set[str] = set()
        for found, raw in self.newest_first():
            if found.modified < moment - _CLOCKS_APART:
                break
            removed |= {unquote(action["path"]) for action in actions(raw, "remove")}
        return removed


def unneeded_log(folder: Folder, oldest: int, before: float) -> list[str]:
    """Files of the log older than `before` that are not needed to load version `oldest` or any later one.

    A version is loaded from the newest checkpoint not above it; the caller has loaded `oldest`, so that one is whole.
    What is left begins early enough for `Log.reaches(before)` to hold: the next clean-up must find what it asks for.
    They are in the order in which to remove them: should that be interrupted, what is left still has no gap.
    """
    numbered = [(int(m[1]), m[2], f) for f in folder.files(LOG, deep=False) if (m := _NUMBERED.fullmatch(f.path))]
    settled = {v for v, kind, f in numbered if kind == "json" and f.modified < before - _CLOCKS_APART}
    starts = (v for v, kind, _ in numbered if kind == "checkpoint.parquet" and v <= oldest and v in settled)
    start = max(starts, default=0)
    return sorted(f.path for version, _, f in numbered if version < start and f.modified < before)


def stats_text(stats: Mapping[str, Any], schema: Any) -> str:
    """Statistics as the log has them, given the rows' schema in Delta's JSON form: decimals are exact numbers there.

    >>> schema = {"type": "struct", "fields": [{"name": "d", "type": "decimal(9,2)"}]}
    >>> stats_text({"numRecords": 1, "minValues": {"d": "0.10"}}, schema)
    '{"numRecords":1,"minValues":{"d":0.10}}'
    """
    return _text(stats, {"fields": [{"name": key, "type": schema} for key in ("minValues", "maxValues")]})


def _text(value: Any, kind: Any) -> str:
    if isinstance(value, Mapping):
        kinds = {f["name"]: f["type"] for f in kind["fields"]} if isinstance(kind, Mapping) else {}
        return "{" + ",".join(f"{json.dumps(k)}:{_text(v, kinds.get(k))}" for k, v in value.items()) + "}"
    return str(value) if isinstance(kind, str) and kind.startswith("decimal") else json.dumps(value)


def actions(raw: bytes, *kinds: str) -> Iterator[Any]:
    """The actions of these kinds in a commit."""
    marks = [f'"{kind}"'.encode() for kind in kinds]
    for line in raw.splitlines():
        if any(mark in line for mark in marks):
            action = json.loads(line)
            for kind in kinds:
                if action.get(kind):
                    yield action[kind]
