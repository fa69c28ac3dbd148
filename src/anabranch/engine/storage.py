"""The storage folder of a pipeline: where its things are, and whose they are.

tables/NAME                       the tables, unless a sink has a path of its own
staged/NAME                       rows for a sink that keeps no files of its own, until it has taken them
_anabranch/identity.json          which pipeline and ledger this storage belongs to
_anabranch/ledger.db              the ledger, unless the project names another one
_anabranch/checkpoints/CHANNEL/G  Spark's checkpoint of a channel, one folder per generation
_anabranch/schemas/               schemas inferred from the files of a source, kept so that they stay the same
_anabranch/queries/               which query made the rows of each table
_anabranch/once/                  which flows that run once have run
_anabranch/history.db             every event and every run, for looking back
_anabranch/logs/                  Spark's log
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from anabranch.connectors.registry import format_named
from anabranch.core.declarations import Dataset
from anabranch.core.durable import write_whole
from anabranch.engine.checkpoint import Checkpoint
from anabranch.errors import StateError
from anabranch.store.history import History
from anabranch.store.ledger import Ledger, PipelineRecord


@dataclass(frozen=True, slots=True)
class Storage:
    """Paths below a storage root."""

    root: Path

    @classmethod
    def of(cls, path: str) -> Storage:
        """The storage at a path."""
        return cls(Path(path))

    @property
    def own(self) -> Path:
        """Where everything but the tables is."""
        return self.root / "_anabranch"

    @property
    def has_tables(self) -> bool:
        """Whether there are tables of a run before, known or not."""
        tables = self.root / "tables"
        return tables.is_dir() and any(tables.iterdir())

    @property
    def logs(self) -> Path:
        """Where Spark's log is."""
        return self.own / "logs"

    @property
    def history(self) -> Path:
        """Where events and runs are written down."""
        return History.of(self.root).path

    @property
    def schemas(self) -> Path:
        """Where inferred schemas are kept."""
        return self.own / "schemas"

    @property
    def identity(self) -> Path:
        """The file that says whose storage this is."""
        return self.own / "identity.json"

    def checkpoint(self, channel: str, generation: int) -> Checkpoint:
        """The checkpoint of one generation of a channel."""
        return Checkpoint(self.own / "checkpoints" / channel / str(generation))

    def location(self, dataset: Dataset) -> str:
        """Where an output is kept, as the ledger remembers it: relative to the root when it is below it."""
        return format_named(dataset.format, dataset.name).where(dataset.name, dataset.options)

    def absolute(self, location: str) -> str:
        """A location as a path or URL that can be opened.

        >>> Storage(Path("/lake")).absolute("tables/orders"), Storage(Path("/lake")).absolute("s3://b/orders")
        ('/lake/tables/orders', 's3://b/orders')
        """
        return location if "://" in location else str(self.root / location)


def claim(storage: Storage, ledger: Ledger, name: str) -> PipelineRecord:
    """The pipeline's record, made at the first run; refuses a storage and a ledger that do not belong together."""
    found = json.loads(storage.identity.read_text()) if storage.identity.exists() else None
    if found and found["ledger"] != ledger.ledger_id:
        raise StateError(
            "LEDGER_FOREIGN",
            f"{storage.root} belongs to another ledger than the one the project names",
            hint="name the right ledger in the project file, or use another storage folder",
            details={"storage": found, "ledger": ledger.ledger_id},
        )
    record = ledger.register(name, str(storage.root))
    if found and found["pipeline"] != record.pipeline_id:
        raise StateError(
            "STORAGE_FOREIGN",
            f'{storage.root} belongs to the pipeline "{found["name"]}", not to "{name}"',
            hint="give this pipeline a storage folder of its own",
            details=found,
        )
    if not found:
        if ledger.epochs(record.pipeline_id, limit=1):
            raise StateError(
                "STORAGE_MISSING",
                f'the ledger knows epochs of "{name}", but {storage.root} does not hold them',
                hint="put the storage folder back, or give the pipeline a new name",
            )
        text = json.dumps({"pipeline": record.pipeline_id, "name": name, "ledger": ledger.ledger_id}, indent=2)
        write_whole(storage.identity, text)
    return record
