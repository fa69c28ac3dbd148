"""What the contract suite needs to know of a sink to try it: one module `case_*.py` for each, with a `CASE`."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from anabranch.connectors.contract import Sink, SinkSpec
from anabranch.connectors.parquet_files import StagedWriter
from anabranch.connectors.registry import open_sink
from anabranch.core import crash
from anabranch.core.changes import DELETES, SEQUENCE
from anabranch.core.epoch import EpochKey, Receipt, StagedFile

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
WIDER = SCHEMA.append(pa.field("more", pa.float64()))

#: What another writer adds.
FOREIGN = {"id": 99, "name": "foreign"}

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Case:
    """A sink under test. Subclasses say where it is, and what a plain reader sees there."""

    format: str
    module: str  # the name of the module that has this as `CASE`, for child processes
    survives: ClassVar[bool] = True  # whether rows outlive the process that took them

    def target(self, request: pytest.FixtureRequest, folder: Path) -> SinkSpec:
        """A target of its own for one test; everything in it must survive a trip through JSON."""
        raise NotImplementedError

    def rows(self, spec: SinkSpec) -> list[dict[str, Any]]:
        """What a plain reader of the target sees, without columns that are null; [] if there is nothing yet."""
        raise NotImplementedError

    def foreign(self, spec: SinkSpec) -> bool:
        """Let another writer add the row FOREIGN; False where there can be none."""
        return False

    def refusing(self, spec: SinkSpec) -> AbstractContextManager[None] | None:
        """While inside, the target takes nothing; None where that cannot be brought about."""
        return None

    def open(self, spec: SinkSpec) -> Sink:
        """The sink, as a new process opens it."""
        return open_sink(self.format, spec)


@dataclass
class Trial:
    """One test's target, and its sink as the process at work has it."""

    case: Case
    spec: SinkSpec
    sink: Sink

    def reopened(self, schema: pa.Schema = SCHEMA) -> Sink:
        """The sink as another process opens it, from the declaration."""
        sink = self.case.open(self.spec)
        sink.prepare(schema)
        return sink

    def remembered(self) -> Sink:
        """The sink as recovery opens it, from what the ledger remembers and the declaration says of the target."""
        kept = {"merge": None, "unique": (), "partition_by": (), "properties": {}, "comment": None}
        return self.case.open(replace(self.spec, **kept))

    @property
    def rows(self) -> list[dict[str, Any]]:
        """What a plain reader sees, sorted."""
        return sorted(self.case.rows(self.spec), key=lambda row: (row["id"], str(row)))


def cases() -> list[Case]:
    """Every sink that is tried."""
    found = sorted(Path(__file__).parent.glob("case_*.py"))
    return [importlib.import_module(path.stem).CASE for path in found]


def key(epoch: int, generation: int = 1, channel: str = "main") -> EpochKey:
    return EpochKey("p-1", channel, generation, epoch)


def stage(
    sink: Sink, at: EpochKey, rows: Iterable[Row], *, token: int = 1, schema: pa.Schema = SCHEMA, replace: bool = False
) -> Receipt:
    """Stage rows as the engine does, in two files; the receipt after its trip through the ledger."""
    files: list[StagedFile] = []
    every = list(rows)
    for part, half in enumerate((every[::2], every[1::2])):
        if half:
            writer = StagedWriter(sink.staging(at, token), f"{part}")
            writer.write(pa.RecordBatch.from_pylist([dict(row) for row in half], schema=schema))
            files += writer.close()
    return Receipt.from_json(sink.receipt(at, files, replace=replace).to_json())


def changes(*rows: tuple[int, str, int, bool]) -> list[Row]:
    """Staged changes: id, name, sequence, whether it deletes."""
    return [{"id": i, "name": n, SEQUENCE: s, DELETES: d} for i, n, s, d in rows]


def changes_schema() -> pa.Schema:
    return SCHEMA.append(pa.field(SEQUENCE, pa.int64())).append(pa.field(DELETES, pa.bool_()))


def apply_in_child(trial: Trial, at: EpochKey, receipt: Receipt, crashes: str) -> int:
    """Apply a receipt in another process that dies at a crash point; how it ended."""
    spec = trial.spec
    plain = {
        "name": spec.name,
        "location": spec.location,
        "pipeline": spec.pipeline,
        "storage": spec.storage,
        "options": dict(spec.options),
        "merge": asdict(spec.merge) if spec.merge else None,
    }
    what = json.dumps([trial.case.module, plain, [at.pipeline, at.channel, at.generation, at.epoch], receipt.to_json()])
    environment = {**os.environ, crash.VARIABLE: crashes}
    child = [sys.executable, str(Path(__file__).with_name("contract_child.py")), what]
    return subprocess.run(child, env=environment, timeout=280, check=False).returncode
