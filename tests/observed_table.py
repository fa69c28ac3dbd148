"""A project with one Delta table whose epochs are given as Arrow rows: everything of a run but Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from anabranch.connectors.contract import SinkSpec, Staging
from anabranch.connectors.registry import open_sink
from anabranch.core.epoch import EpochKey
from anabranch.core.events import Event
from anabranch.engine.epoch import ChannelRun
from anabranch.engine.event_log import recorded
from anabranch.engine.opened import open_project
from anabranch.engine.rows import OutputColumns, Rows, Staged
from anabranch.load.project import read_project
from anabranch.store.history import History
from anabranch.store.ledger import EpochRecord, OutputRecord

TABLE, CHANNEL = "orders", "orders"


class _Offsets:
    def offsets(self, epoch: int) -> str | None:
        return str(epoch)

    def input_bytes(self, epoch: int) -> int | None:
        return None

    def settle(self, epoch: int) -> None:
        pass

    def same_offsets(self, record: EpochRecord) -> None:
        pass


@dataclass
class Shop:
    """The project in a folder; `heard` are the events that a run of it told."""

    folder: Path
    schema: pa.Schema
    observe: tuple[str, ...] | None = ()
    partition_by: tuple[str, ...] = ()
    heard: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "transformations").mkdir(exist_ok=True)
        (self.folder / "transformations" / "shop.py").write_text("")
        (self.folder / "anabranch.yml").write_text("name: shop\nstorage: lake\n")

    @property
    def history(self) -> History:
        return History.of(self.folder / "lake")

    @property
    def location(self) -> Path:
        return self.folder / "lake" / "tables" / TABLE

    @contextmanager
    def run(self) -> Iterator[ChannelRun]:
        """One run: its `batch` takes a list of Arrow tables, one for each task, and the number of an epoch."""
        with open_project(read_project(self.folder), create=True) as opened:
            pipeline = opened.pipeline.pipeline_id
            opened.ledger.ensure_channel(pipeline, CHANNEL, [OutputRecord(TABLE, "delta", f"tables/{TABLE}")])
            lease = opened.ledger.acquire(pipeline, CHANNEL, seconds=60)
            spec = SinkSpec(
                TABLE, str(self.location), pipeline, str(opened.storage.root), partition_by=self.partition_by
            )
            sink = open_sink("delta", spec)
            sink.prepare(self.schema)
            path = opened.storage.own / "history.db"
            observe = {} if self.observe is None else {TABLE: self.observe}
            try:
                with recorded(lambda event: None, path, "shop", keep_seconds=1e9) as listener:

                    def hear(event: Event) -> None:
                        self.heard.append(event)
                        listener(event)

                    yield ChannelRun(opened.ledger, lease, 1, {TABLE: sink}, _staged, _Offsets(), hear, observe)
            finally:
                opened.ledger.release(lease)

    def epochs(self, *epochs: list[pa.Table]) -> None:
        """A run of some epochs, after those that there are."""
        with self.run() as channel:
            last = channel.ledger.last(channel.lease.pipeline_id, CHANNEL, 1)
            for number, tasks in enumerate(epochs, 0 if last is None else last.key.epoch + 1):
                channel.batch(tasks, number)


def _staged(frame: Any, stagings: Mapping[str, Staging], key: EpochKey, *, small: bool) -> Staged:
    """What `stage` does: each task gives its rows, and what it answers goes through JSON."""
    from anabranch.core.profile import Observed, all_observed

    files, answers = {name: [] for name in stagings}, []
    for number, table in enumerate(frame):
        part = OutputColumns(TABLE, None, tuple((name, name) for name in table.column_names))
        rows = Rows([part], stagings, key, str(number))
        for batch in table.to_batches(max_chunksize=1_000):
            rows.take(batch)
        staged = rows.close()
        for name, found in staged.files.items():
            files[name] += found
        answers.append(json.loads(json.dumps(staged.observed.to_json())))
    return Staged(files, (), all_observed(Observed.from_json(answer) for answer in answers))
