"""Lineage for others: OpenLineage events of a run, built to version 2-0-2 of its public specification.

The pipeline is a job, and so is each of its channels: `shop`, and `shop.orders` whose parent is the run of `shop`. A
channel reads certain sources and writes certain tables, all of them at once, so its job has exactly these as inputs
and outputs; were the whole pipeline one job, every source would seem to feed every table.

    run begins        START of the pipeline
    channels at work  START of each channel, with its inputs and outputs
    epoch published   RUNNING of its channel: rows, versions, schemas, columns, what rules found
    run ends          COMPLETE, FAIL or ABORT of each channel and of the pipeline
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Protocol

from anabranch.core.column_lineage import DatasetColumns
from anabranch.core.epoch import EpochKey
from anabranch.core.events import ChannelFailed, EpochPublished, Event, RunStarted
from anabranch.core.events_data import LineageChanged
from anabranch.core.hidden import hidden
from anabranch.core.places import ChannelParts, Place
from anabranch.errors import AnabranchError, Interrupted
from anabranch.load.project import Project
from anabranch.store.records import EpochRecord
from anabranch.watch.kept_ledger import KeptLedger
from anabranch.watch.open_lineage_columns import of_columns
from anabranch.watch.open_lineage_facets import CORE, PRODUCER, Facet, facet, of_quality, of_receipt


class Finder(Protocol):
    """Finds what the ledger knows of epochs."""

    def __call__(self, channel: str, generation: int, epoch: int) -> EpochRecord | None:
        """One epoch; None if it cannot be found."""

    def close(self) -> None:
        """Nothing more is sought."""


class Transport(Protocol):
    """Takes events to where they are to be told; complains, and counts, instead of raising."""

    def send(self, document: Mapping[str, Any]) -> None:
        """Send one, or put it where it is sent from."""

    def close(self, patience: float) -> None:
        """Send what is left, if that takes no longer than `patience` seconds."""

    def lost(self) -> int:
        """How many could not be sent so far."""


class OpenLineage:
    """The watcher that tells lineage.

    `column_lineage` is what is known of columns when the run begins; what the run itself finds comes as events.
    """

    def __init__(
        self,
        pipeline: str,
        namespace: str,
        transport: Transport,
        find: Finder,
        column_lineage: Mapping[str, DatasetColumns] | None = None,
    ) -> None:
        self._pipeline, self._namespace, self._transport, self._find = pipeline, namespace, transport, find
        self._columns = dict(column_lineage or {})
        self._column_facets: dict[str, dict[str, Facet]] = {}  # by output; made anew when lineage changes
        self._run = uuid.uuid4()
        self._parts: dict[str, ChannelParts] = {}
        self._early: list[tuple[float, EpochPublished]] = []  # epochs may be done before the run says that it began
        self._known: dict[str, dict[str, Facet]] = {}  # facets of outputs that stay true after their epoch
        self._failed: dict[str, ChannelFailed] = {}
        self._actions: dict[tuple[str, str], str] = {}

    def begin(self, at: float) -> None:
        """Tell that the pipeline begins."""
        self._send(at, "START", None)

    def take(self, at: float, event: Event) -> None:
        """Tell what is lineage; remember what is told at the end."""
        match event:
            case RunStarted(parts=parts):
                self._parts = {part.channel: part for part in parts}
                self._column_facets.clear()
                self._actions = {(r.dataset, r.rule): r.action for part in parts for r in part.rules}
                for part in parts:
                    self._send(at, "START", part)
                early, self._early = self._early, []
                for then, epoch in early:
                    self._epoch(then, epoch)
            case EpochPublished(channel=channel):
                if not self._parts:
                    self._early.append((at, event))
                    return
                self._failed.pop(channel, None)
                self._epoch(at, event)
            case LineageChanged(dataset=dataset, document=document):
                self._columns[dataset] = DatasetColumns.from_record(json.loads(document))
                self._column_facets.clear()
            case ChannelFailed(channel=channel):
                self._failed[channel] = event
            case _:
                pass

    def end(self, at: float, error: BaseException | None, patience: float) -> None:
        """Tell how each channel and the pipeline ended."""
        stopped = isinstance(error, Interrupted | KeyboardInterrupt | SystemExit | GeneratorExit)
        try:
            for name, part in self._parts.items():
                if failed := self._failed.get(name):
                    self._send(at, "FAIL", part, why=f"{failed.message} ({failed.code})")
                elif error is None or (self._failed and not stopped):
                    self._send(at, "COMPLETE", part)
                else:
                    self._send(at, "ABORT" if stopped else "FAIL", part, why=None if stopped else _words(error))
            if error is None:
                self._send(at, "COMPLETE", None)
            else:
                self._send(at, "ABORT" if stopped else "FAIL", None, why=None if stopped else _words(error))
        finally:
            self._find.close()
            self._transport.close(patience)

    def lost(self) -> int:
        """Events that could not be sent."""
        return self._transport.lost()

    def _epoch(self, at: float, event: EpochPublished) -> None:
        part = self._parts.get(event.channel) or ChannelParts(event.channel)
        record = self._find(event.channel, event.generation, event.epoch)
        written: dict[str, dict[str, Facet]] = {}
        for name, rows in event.rows.items():
            facets: dict[str, Facet] = {}
            outputs = {"outputStatistics": facet("outputStatistics", rowCount=rows)}
            if record and name in record.receipts:
                facets, outputs = of_receipt(record.receipts[name])
                if name in record.applied:
                    facets["version"] = facet("version", datasetVersion=record.applied[name].version)
            kept = {key: said for key, said in facets.items() if key in ("schema", "version")}
            self._known[name] = {**self._known.get(name, {}), **kept}
            facets |= of_quality(name, event.quality, self._actions)
            written[name] = {"facets": facets, "outputFacets": outputs}
        said = facet("anabranch_epoch", channel=event.channel, generation=event.generation, epoch=event.epoch)
        self._send(at, "RUNNING", part, written=written, facets={"anabranch_epoch": said})

    def _send(
        self,
        at: float,
        state: str,
        part: ChannelParts | None,
        *,
        why: str | None = None,
        written: Mapping[str, Mapping[str, Facet]] | None = None,
        facets: Mapping[str, Facet] | None = None,
    ) -> None:
        """Send an event of the pipeline, or of the channel whose parts are given."""
        run: dict[str, Any] = dict(facets or {})
        if why is not None:
            run["errorMessage"] = facet("errorMessage", message=why, programmingLanguage="PYTHON")
        if part is not None:
            job = {"namespace": self._namespace, "name": self._pipeline}
            run["parent"] = facet("parent", run={"runId": str(self._run)}, job=job)
        kind = facet("jobType", processingType="STREAMING", integration="ANABRANCH", jobType="JOB" if part else "DAG")
        document = {
            "eventType": state,
            "eventTime": datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds"),
            "producer": PRODUCER,
            "schemaURL": f"{CORE}#/$defs/RunEvent",
            "run": {"runId": str(uuid.uuid5(self._run, part.channel) if part else self._run), "facets": run},
            "job": {
                "namespace": self._namespace,
                "name": f"{self._pipeline}.{part.channel}" if part else self._pipeline,
                "facets": {"jobType": kind},
            },
            "inputs": [_dataset(place) for place in part.reads] if part else [],
            "outputs": self._outputs(part, written or {}) if part else [],
        }
        self._transport.send(hidden(document))

    def _outputs(self, part: ChannelParts, written: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
        found = []
        for output in part.writes:
            said = written.get(output.dataset, {})
            if output.dataset not in self._column_facets:
                self._column_facets[output.dataset] = of_columns(self._columns, output.dataset, part)
            columns = self._column_facets[output.dataset]
            facets = {**self._known.get(output.dataset, {}), **said.get("facets", {}), **columns}
            found.append({**_dataset(output.place, facets), "outputFacets": said.get("outputFacets", {})})
        return found


class EpochFinder:
    """Finds epochs in a project's ledger, which stays open until this is closed."""

    def __init__(self, project: Project) -> None:
        self._ledger = KeptLedger(project)

    def __call__(self, channel: str, generation: int, epoch: int) -> EpochRecord | None:
        try:
            ledger, pipeline = self._ledger.opened()
            return ledger.epoch(EpochKey(pipeline, channel, generation, epoch))
        except AnabranchError:
            return None  # lineage without versions and schemas is better than none

    def close(self) -> None:
        """Give the ledger back."""
        self._ledger.close()


def _dataset(place: Place, facets: Mapping[str, Facet] | None = None) -> dict[str, Any]:
    return {"namespace": place.namespace, "name": place.name, "facets": dict(facets or {})}


def _words(error: BaseException) -> str:
    return (
        f"{error.message} ({error.code})" if isinstance(error, AnabranchError) else f"{type(error).__name__}: {error}"
    )
