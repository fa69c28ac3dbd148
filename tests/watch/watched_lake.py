"""A project whose ledger and history are written without Spark, as runs would."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from anabranch.core.epoch import Applied, EpochKey, Receipt, StagedFile
from anabranch.core.events import Event
from anabranch.core.quality import FlowQuality
from anabranch.engine.opened import Opened, open_project
from anabranch.load.project import Project, read_project
from anabranch.store.history import History
from anabranch.store.history_writer import HistoryWriter
from anabranch.store.ledger import OutputRecord

SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": "id", "type": "long", "nullable": True, "metadata": {}},
            {"name": "at", "type": {"type": "struct", "fields": [{"name": "x", "type": "double"}]}},
        ],
    }
)
STATS = {"numRecords": 3, "minValues": {"id": 1, "at": {"x": 0.5}}, "maxValues": {"id": 9}, "nullCount": {"id": 2}}


@dataclass
class Lake:
    """One project; `next_epoch` of each channel is the one to publish."""

    root: Path
    said: str = ""
    next_epoch: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        (self.root / "anabranch.yml").write_text(f"name: shop\n{self.said}")
        (self.root / "pipeline.py").touch()

    @property
    def project(self) -> Project:
        return read_project(self.root)

    @property
    def history(self) -> History:
        return History.of(self.project.storage)

    @contextmanager
    def opened(self) -> Iterator[Opened]:
        with open_project(self.project, create=True) as opened:
            yield opened

    def publish(
        self,
        channel: str,
        rows: Mapping[str, int],
        *,
        quality: Sequence[FlowQuality] = (),
        window: float = 0.02,
        epochs: int = 1,
    ) -> None:
        """Publish epochs as a run would that dies before it tells anybody."""
        with self.opened() as opened:
            ledger, pipeline = opened.ledger, opened.pipeline.pipeline_id
            outputs = [OutputRecord(name, "delta", f"tables/{name}") for name in rows]
            made = ledger.ensure_channel(pipeline, channel, outputs)
            lease = ledger.acquire(pipeline, channel, seconds=60)
            for _ in range(epochs):
                number = self.next_epoch.get(channel, 0)
                key = EpochKey(pipeline, channel, made.generation, number)
                receipts = [
                    Receipt(name, (StagedFile("f.parquet", count, 10 * count, "c", {}, STATS),), SCHEMA)
                    for name, count in rows.items()
                ]
                ledger.decide(lease, key, receipts, offsets="{}", times={"stage": 0.2}, quality=quality)
                for name in rows:
                    ledger.record_applied(lease, key, name, Applied(str(number + 1)), at=0.0)
                ledger.publish(lease, key, window=window, times={})
                self.next_epoch[channel] = number + 1
            ledger.release(lease)

    def tell(self, *events: Event, outcome: str = "done") -> None:
        """Write events down as a run would."""
        writer = HistoryWriter(self.history.path, "shop", keep_seconds=1e9, tell=_fail)
        for event in events:
            writer.put(event)
        writer.close(outcome)


def _fail(why: str) -> None:
    raise AssertionError(why)


STATES = ("START", "RUNNING", "COMPLETE", "ABORT", "FAIL", "OTHER")
REQUIRED = {
    "schema": (),
    "version": ("datasetVersion",),
    "dataQualityMetrics": ("columnMetrics",),
    "dataQualityAssertions": ("assertions",),
    "outputStatistics": (),
    "errorMessage": ("message", "programmingLanguage"),
    "parent": ("run", "job"),
    "jobType": ("processingType", "integration"),
    "anabranch_epoch": (),
    "columnLineage": ("fields",),
}


def conforms(event: Mapping[str, Any]) -> None:
    """What version 2-0-2 of the specification requires of a run event and of the facets that are used here."""
    assert event["schemaURL"] == "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
    assert event["eventType"] in STATES
    assert datetime.fromisoformat(event["eventTime"]).tzinfo is not None
    assert ":" in event["producer"]
    uuid.UUID(event["run"]["runId"])
    assert event["job"]["namespace"]
    assert event["job"]["name"]
    facets = [event["run"]["facets"], event["job"]["facets"]]
    for dataset in (*event["inputs"], *event["outputs"]):
        assert dataset["namespace"]
        assert dataset["name"]
        facets += [dataset["facets"], dataset.get("outputFacets", {})]
    for name, said in (pair for group in facets for pair in group.items()):
        assert said["_producer"] == event["producer"]
        assert said["_schemaURL"].startswith("https://openlineage.io/spec/")
        assert {*REQUIRED[name]} <= {*said}, name
        for each in said.get("assertions", ()):
            assert isinstance(each["assertion"], str)
            assert isinstance(each["success"], bool)
        if name == "columnLineage":
            assert said["_schemaURL"].endswith("/1-2-0/ColumnLineageDatasetFacet.json#/$defs/ColumnLineageDatasetFacet")
            fields = list(said["fields"].values())
            assert all(f["inputFields"] or f["transformationDescription"] for f in fields)  # never silently empty
            for read in [*said["dataset"], *(each for f in fields for each in f["inputFields"])]:
                assert {"namespace", "name"} <= {*read} >= {"field"}
                assert {t["type"] for t in read["transformations"]} <= {"DIRECT", "INDIRECT"}
        if name == "parent":
            uuid.UUID(said["run"]["runId"])
            assert {"namespace", "name"} <= {*said["job"]}
