"""Folders of Parquet, JSON or CSV files that plain readers can glob, with a manifest of what came with which epoch.

Rows are staged as Parquet below the storage, where no reader looks. Taking an epoch gives each file its name in the
folder, then writes the manifest, which is what says that the epoch is there; staged files go last. So whatever is
interrupted is done again from the staged files, and files that no manifest names are leftovers.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, BinaryIO

from anabranch.connectors.contract import SinkSpec, Staging
from anabranch.connectors.delta_log import staged_prefix
from anabranch.connectors.delta_schema import compare, delta_arrow_schema, delta_json
from anabranch.connectors.file_sink_manifest import (
    ABOUT,
    MANIFESTS,
    REPLACED,
    Manifest,
    Named,
    about,
    aside,
    listed,
    live,
    merged_schema,
    read,
    transaction_of,
    write_whole,
)
from anabranch.connectors.file_sink_text import check_columns, write_rows
from anabranch.connectors.folder import Folder
from anabranch.connectors.parquet_partitions import check_partition_columns
from anabranch.core import crash
from anabranch.core.epoch import Applied, EpochKey, Receipt, StagedFile
from anabranch.core.formats import CSV, JSON, PARQUET
from anabranch.errors import InternalError, ProjectError, StateError

if TYPE_CHECKING:
    import pyarrow as pa

_OURS = re.compile(r"\.?ab-(?P<owner>[0-9a-f]{8})-\d+-\d+-(?P<token>\d+)-.*\.(parquet|json|csv)(\.gz)?(\.tmp|\.old)?")
_BATCH_ROWS = 10_000
_CHUNK = 1 << 20


def open_parquet(spec: SinkSpec) -> FileSink:
    """A folder of Parquet files."""
    return FileSink(spec, "parquet")


def open_json(spec: SinkSpec) -> FileSink:
    """A folder of JSON lines."""
    return FileSink(spec, "json")


def open_csv(spec: SinkSpec) -> FileSink:
    """A folder of CSV files."""
    return FileSink(spec, "csv")


class FileSink:
    """A folder of files, one or more for each epoch."""

    def __init__(self, spec: SinkSpec, form: str) -> None:
        self.name, self.location, self.format = spec.name, spec.location, form
        self.capabilities = {"parquet": PARQUET, "json": JSON, "csv": CSV}[form].capabilities
        self.folder, self._staged = Folder(spec.location), Folder(spec.spool)
        self._spec = spec
        self._schema: pa.Schema | None = None

    def examine(self, schema: pa.Schema) -> str:
        """What `prepare` would find or do, in words; nothing is touched."""
        self._accept(schema)
        return "matches" if about(self.folder) else "will be created"

    def prepare(self, schema: pa.Schema) -> None:
        """Make the folder ours, or see that it is."""
        self._schema = self._accept(schema)
        if about(self.folder) != self._about:
            write_whole(self.folder, ABOUT, json.dumps(self._about, indent=1, sort_keys=True))

    def staging(self, key: EpochKey, token: int) -> Staging:
        """Files wait below the storage."""
        prefix = staged_prefix(self._owner(key.pipeline), key.generation, key.epoch, token)
        return Staging(self.name, self._spec.spool, prefix, self._prepared(), self._spec.partition_by)

    def receipt(self, key: EpochKey, files: Iterable[StagedFile], *, replace: bool = False) -> Receipt:
        """The files in a fixed order, with the rows' schema in Delta's JSON form."""
        found = tuple(sorted(files, key=lambda f: f.path))
        return Receipt(self.name, found, delta_json(self._prepared()), replace)

    def damaged(self, receipt: Receipt) -> str | None:
        """What is wrong with the staged files, reading every byte."""
        return self._staged.damage(receipt.files)

    def apply(self, key: EpochKey, receipt: Receipt) -> Applied:
        """Give the files their names and write the manifest, unless it is there."""
        if not receipt.files and not receipt.replace:
            return Applied(self.version())
        found = self._find(key)
        if found is None:
            files = tuple(self._placed(file) for file in receipt.files)
            self.folder.sync(file.path for file in files)
            told = Manifest(
                key.pipeline, key.channel, key.generation, key.epoch, receipt.replace, receipt.schema, files
            )
            self._check_ours()
            at = Named(self._newest() + 1, transaction_of(key, self.name), key.epoch)
            write_whole(self.folder, at.path, told.to_json())
            crash.point("committed", self.name)
        else:
            at = found
        if receipt.replace:
            self._put_aside(at.version)
        self.discard(file.path for file in receipt.files)
        return Applied(str(at.version), already=found is not None)

    def find(self, key: EpochKey) -> Applied | None:
        """Whether the epoch has its manifest."""
        found = self._find(key)
        return Applied(str(found.version), already=True) if found else None

    def latest(self, key: EpochKey) -> int | None:
        """The newest epoch that has its manifest."""
        own = transaction_of(key, self.name)
        return max((each.epoch for each in listed(self.folder) if each.transaction == own), default=None)

    def version(self) -> str:
        """How many epochs have brought files, or taken some away."""
        return str(self._newest())

    def has(self, version: str) -> bool:
        """Whether the folder is there and has come at least as far as this version."""
        return self._newest() >= int(version)

    def leftovers(self, keep: frozenset[str], token: int) -> list[tuple[str, int]]:
        """Staged files that no epoch waits for, and files in the folder that no manifest names; these by full path."""
        staged = [found for found in self._staged.files() if self._older(found.path, token) and found.path not in keep]
        placed = [found for found in self.folder.files() if self._older(found.path, token)]
        named: set[str] = set()
        if placed:
            files = [file.path for each in listed(self.folder) for file in read(self.folder, each).files]
            named = {*files, *(aside(path) for path in files)}
        orphans = [(f"{self.location}/{found.path}", found.size) for found in placed if found.path not in named]
        return sorted([*((found.path, found.size) for found in staged), *orphans])

    def discard(self, paths: Iterable[str]) -> None:
        """Remove files of ours."""
        for path in paths:
            if self._own(path) is None:
                raise InternalError("NOT_A_STAGED_FILE", f"{path} was not staged by {self.name}, it is not removed")
            inside = path.removeprefix(f"{self.location}/")
            (self._staged if inside == path else self.folder).remove(inside)

    def remove(self) -> None:
        """Remove the files that are ours and the manifests; whatever else is in the folder stays."""
        ours = [found.path for found in self.folder.files() if self._own(found.path)]
        for path in [*ours, *(found.path for found in self.folder.files(MANIFESTS))]:
            self.folder.remove(path)
        self.discard(found.path for found in self._staged.files() if self._own(found.path))
        if self.folder.is_local:
            _remove_empty(self.folder.full(""))

    def vacuum(self, versions: set[str], *, older_than_hours: float, dry_run: bool) -> list[str]:
        """Remove files that were replaced that long ago and that none of the versions needs."""
        horizon = time.time() - older_than_hours * 3600
        needed = {aside(f.path) for v in versions for manifest in live(self.folder, int(v)) for f in manifest.files}
        replaced = [found for found in self.folder.files(REPLACED) if found.modified < horizon]
        old = sorted(found.path for found in replaced if self._own(found.path) and found.path not in needed)
        for path in [] if dry_run else old:
            self.folder.remove(path)
        return old

    @property
    def _about(self) -> dict[str, str | list[str]]:
        return {
            "pipeline": self._spec.pipeline or "",
            "name": self.name,
            "format": self.format,
            "header": self._spec.option("header", "true").lower(),
            "compression": self._spec.option("compression", "none").lower(),
            "partition_by": list(self._spec.partition_by),
        }

    def _accept(self, schema: pa.Schema) -> pa.Schema:
        rows = delta_arrow_schema(schema)
        check_partition_columns(rows, self._spec.partition_by)
        inside = rows.remove_metadata()
        check_columns(self.name, self.format, inside)
        if self._about["compression"] not in ("none", "gzip"):
            raise ProjectError(
                "FILES_SINK_OPTION",
                f'"{self.name}" has compression "{self._about["compression"]}", which files are not written with',
                hint='write "gzip", or leave the option out',
            )
        there = about(self.folder)
        if there and (there["pipeline"], there["name"]) != (self._about["pipeline"], self.name):
            raise ProjectError(
                "FILES_FOLDER_TAKEN",
                f'{self.location} has the files of "{there["name"]}" of another output or pipeline',
                hint="give this output a folder of its own",
            )
        if there and there["partition_by"] != self._about["partition_by"]:
            raise self._differs("it is partitioned by other columns")
        before = merged_schema(live(self.folder))
        if before and (problems := compare(before, delta_json(rows)).problems):
            raise self._differs("; ".join(problems))
        return rows

    def _differs(self, how: str) -> ProjectError:
        return ProjectError(
            "FILES_SCHEMA",
            f'the folder of "{self.name}" cannot take these rows: {how}',
            hint="undo the change, or give the output another name or folder",
        )

    def _prepared(self) -> pa.Schema:
        if self._schema is None:
            raise InternalError("SINK_NOT_PREPARED", f'"{self.name}" was asked to stage rows before prepare')
        return self._schema

    def _check_ours(self) -> None:
        """A folder that lost its manifests must not begin anew beside files that are there."""
        if about(self.folder) is None:
            raise StateError(
                "TABLE_GONE",
                f"{self.location}/{ABOUT} is gone: which files belong to which epoch is not known",
                hint="put the folder _manifest back, or rebuild the output: anabranch run --full-refresh",
            )

    def _find(self, key: EpochKey) -> Named | None:
        own = transaction_of(key, self.name)
        return next((e for e in listed(self.folder) if e.transaction == own and e.epoch == key.epoch), None)

    def _newest(self) -> int:
        return max((each.version for each in listed(self.folder)), default=0)

    def _placed(self, staged: StagedFile) -> StagedFile:
        """The file under the name at which readers find it."""
        told = about(self.folder) or self._about
        packed = self.format != "parquet" and told["compression"] == "gzip"
        ending = f".{self.format}{'.gz' if packed else ''}"
        path = staged.path.removesuffix(".parquet") + ending
        before, _, name = path.rpartition("/")
        hidden = f"{before}/.{name}.tmp".lstrip("/") if self.folder.is_local else path  # a store shows whole files only
        self.folder.remove(hidden)
        with self.folder.create(hidden) as out:
            if self.format == "parquet":
                self._copy(staged, out)
            else:
                write_rows(self._batches(staged), out, self.format, header=told["header"] == "true", packed=packed)
        if self.folder.is_local:
            self.folder.sync_file(hidden)
            os.replace(self.folder.full(hidden), self.folder.full(path))
        found = self.folder.checksum(path)
        assert found is not None, "it has just been written"
        return StagedFile(path, staged.rows, *found, staged.partition)

    def _batches(self, staged: StagedFile) -> Iterator[pa.RecordBatch]:
        import pyarrow.parquet as pq

        with self._staged.system.open_input_file(self._staged.full(staged.path)) as source:
            yield from pq.ParquetFile(source).iter_batches(batch_size=_BATCH_ROWS)

    def _copy(self, staged: StagedFile, out: BinaryIO) -> None:
        with self._staged.system.open_input_stream(self._staged.full(staged.path)) as source:
            while chunk := source.read(_CHUNK):
                out.write(chunk)

    def _put_aside(self, version: int) -> None:
        """Take files of versions before out of plain readers' sight; readers of those versions find them still."""
        now = {file.path for each in listed(self.folder) if each.version == version for file in self._files(each)}
        before = {file.path for each in listed(self.folder) if each.version < version for file in self._files(each)}
        there = before - now - set(self.folder.missing(before - now))
        for path in sorted(there):
            target = aside(path)
            if self.folder.is_local:
                os.makedirs(os.path.dirname(self.folder.full(target)), exist_ok=True)
            with self.folder.asked():
                self.folder.system.move(self.folder.full(path), self.folder.full(target))

    def _files(self, named: Named) -> tuple[StagedFile, ...]:
        return read(self.folder, named).files

    def _owner(self, pipeline: str | None) -> str:
        return hashlib.blake2b(f"{pipeline}/{self.name}".encode(), digest_size=4).hexdigest()

    def _older(self, path: str, token: int) -> bool:
        parts = self._own(path)
        return parts is not None and int(parts["token"]) < token

    def _own(self, path: str) -> re.Match[str] | None:
        match = _OURS.fullmatch(path.rpartition("/")[2])
        return match if match and match["owner"] == self._owner(self._spec.pipeline) else None


def _remove_empty(root: str) -> None:
    for folder, _, _ in os.walk(root, topdown=False):
        if not os.listdir(folder):
            os.rmdir(folder)
