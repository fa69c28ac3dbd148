"""The manifests of a folder of files: which file came with which epoch, in order. They are its versions.

_manifest/about.json                      whose folder it is and how its files are written
_manifest/VERSION-TRANSACTION-EPOCH.json  what one epoch brought; VERSION counts from 1
_replaced/....old                         files that a full refresh took away, for readers of older versions
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from anabranch.connectors.delta_schema import arrow_schema
from anabranch.connectors.delta_versions import staged_dataset
from anabranch.connectors.folder import Folder
from anabranch.core.epoch import EpochKey, StagedFile
from anabranch.errors import StateError

if TYPE_CHECKING:
    import pyarrow.dataset as ds

MANIFESTS, REPLACED, ABOUT = "_manifest", "_replaced", "_manifest/about.json"
_NAME = re.compile(r"(?P<version>\d{20})-(?P<transaction>[0-9a-f]{16})-(?P<epoch>\d+)\.json")


@dataclass(frozen=True, slots=True)
class Named:
    """A manifest, by its name alone."""

    version: int
    transaction: str
    epoch: int

    @property
    def path(self) -> str:
        """Where it is in the folder."""
        return f"{MANIFESTS}/{self.version:020}-{self.transaction}-{self.epoch}.json"


@dataclass(frozen=True, slots=True)
class Manifest:
    """What one epoch brought. With `replaces`, it took the place of everything before it."""

    pipeline: str
    channel: str
    generation: int
    epoch: int
    replaces: bool
    schema: str
    files: tuple[StagedFile, ...]

    def to_json(self) -> str:
        """The same text for the same epoch, whoever writes it."""
        told: dict[str, Any] = {**asdict(self), "rows": sum(file.rows for file in self.files)}
        for file in told["files"]:
            del file["stats"]
        return json.dumps(told, indent=1, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        """What `to_json` wrote."""
        told = json.loads(text)
        del told["rows"]
        return cls(**{**told, "files": tuple(StagedFile(**file) for file in told["files"])})


def aside(path: str) -> str:
    """Where a file is that was replaced: its ending keeps it out of whatever is globbed."""
    return f"{REPLACED}/{path}.old"


def transaction_of(key: EpochKey, sink: str) -> str:
    """A short form of the key's transaction, for names."""
    return hashlib.blake2b(key.transaction_id(sink).encode(), digest_size=8).hexdigest()


def listed(folder: Folder) -> list[Named]:
    """Every manifest, in order."""
    names = (found.path.rpartition("/")[2] for found in folder.files(MANIFESTS, deep=False))
    matches = (match for name in names if (match := _NAME.fullmatch(name)))
    return sorted(
        (Named(int(m["version"]), m["transaction"], int(m["epoch"])) for m in matches), key=lambda each: each.version
    )


def read(folder: Folder, named: Named) -> Manifest:
    """One manifest."""
    raw = folder.read(named.path)
    if raw is None:
        raise _gone(folder.location, named.version, f"{named.path} is missing")
    return Manifest.from_json(raw.decode())


def live(folder: Folder, version: int | None = None) -> list[Manifest]:
    """The manifests whose files together are a version, the newest one unless said otherwise."""
    found: list[Manifest] = []
    for named in reversed(listed(folder)):
        if version is None or named.version <= version:
            found.append(read(folder, named))
            if found[-1].replaces:
                break
    return found[::-1]


def merged_schema(manifests: list[Manifest]) -> str | None:
    """The columns of all of them, in Delta's JSON form."""
    fields: dict[str, Any] = {}
    for manifest in manifests:
        for each in json.loads(manifest.schema)["fields"]:
            fields.setdefault(each["name"], each)
    return json.dumps({"type": "struct", "fields": list(fields.values())}) if manifests else None


def write_whole(folder: Folder, path: str, text: str) -> None:
    """All of the text or nothing, durable."""
    if not folder.is_local:
        with folder.create(path) as out:
            out.write(text.encode())
        return
    beside = f"{os.path.dirname(folder.full(path))}/.{os.path.basename(path)}.tmp"
    os.makedirs(os.path.dirname(beside), exist_ok=True)
    with open(beside, "wb") as file:
        file.write(text.encode())
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, folder.full(path))
    folder.sync([path])
    folder.sync_itself()


def read_version(location: str, version: str) -> ds.Dataset:
    """The files of one version, as a dataset; those that were replaced since are kept aside."""
    from deltalake import Schema

    folder = Folder(location)
    manifests = live(folder, int(version))
    schema = merged_schema(manifests)
    if schema is None:
        raise _gone(location, int(version), "no rows had come by then, so its columns are not known")
    files = [file for manifest in manifests for file in manifest.files]
    replaced = set(folder.missing(file.path for file in files))
    moved = [_at(file, aside(file.path)) if file.path in replaced else file for file in files]
    if gone := folder.missing(file.path for file in moved):
        raise _gone(location, int(version), f"{len(gone)} of its files are gone, {gone[0]} among them")
    return staged_dataset(folder, moved, arrow_schema(Schema.from_json(schema)))


def _at(file: StagedFile, path: str) -> StagedFile:
    return StagedFile(path, file.rows, file.size, file.checksum, file.partition)


def about(folder: Folder) -> Mapping[str, Any] | None:
    """Whose folder it is and how its files are written, if anybody has said so."""
    raw = folder.read(ABOUT)
    found: Mapping[str, Any] | None = json.loads(raw) if raw else None
    return found


def _gone(location: str, version: int, why: str) -> StateError:
    return StateError(
        "VERSION_GONE",
        f"version {version} of {location} cannot be read any more: {why}",
        hint="read a newer cut; to keep cuts longer, raise the retention and vacuum with anabranch only",
    )
