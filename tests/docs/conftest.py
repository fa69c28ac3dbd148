"""The quickstart after three epochs, made without Spark: what the documentation's readers have before them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pytest

from anabranch.cli.init import write_project
from anabranch.connectors.parquet_files import StagedWriter
from anabranch.core.epoch import EpochKey
from anabranch.engine.commit import apply, decide, publish
from anabranch.engine.lease import lease
from anabranch.engine.opened import open_project
from anabranch.load.project import read_project
from anabranch.store.ledger import OutputRecord

_MOMENT = pa.timestamp("us", "UTC")
_SCHEMAS = {
    "request_logs": pa.schema(
        [
            ("eventId", pa.string()),
            ("timestamp", _MOMENT),
            ("userId", pa.string()),
            ("country", pa.string()),
            ("endpoint", pa.string()),
            ("latency_ms", pa.float64()),
            ("status_code", pa.int32()),
        ]
    ),
    "error_events": pa.schema(
        [
            ("eventId", pa.string()),
            ("timestamp", _MOMENT),
            ("endpoint", pa.string()),
            ("errorCode", pa.string()),
            ("severity", pa.string()),
        ]
    ),
    "slow_requests": pa.schema(
        [
            ("eventId", pa.string()),
            ("timestamp", _MOMENT),
            ("country", pa.string()),
            ("endpoint", pa.string()),
            ("latency_ms", pa.float64()),
        ]
    ),
}


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the project; the one above it is where `read.cut("quickstart")` works."""
    folder = tmp_path_factory.mktemp("docs") / "quickstart"
    write_project(folder, "quickstart")
    project = read_project(folder)
    outputs = [OutputRecord(name, "delta", f"tables/{name}") for name in _SCHEMAS]
    with open_project(project, create=True) as opened:
        record = opened.ledger.ensure_channel(opened.pipeline.pipeline_id, "requests", outputs)
        sinks = opened.sinks(record.outputs)
        for name, schema in _SCHEMAS.items():
            sinks[name].prepare(schema)
        with lease(opened, "requests") as (held, _):
            for number, file in enumerate(sorted((folder / "landing").glob("*.json"))):
                key = EpochKey(opened.pipeline.pipeline_id, "requests", record.generation, number)
                receipts = []
                for name, rows in _rows(file):
                    writer = StagedWriter(sinks[name].staging(key, held.token), "docs")
                    for batch in rows.to_batches():
                        writer.write(batch)
                    receipts.append(sinks[name].receipt(key, writer.close()))
                decided = decide(opened.ledger, held, key, receipts, offsets=str(number), times={})
                committed = apply(opened.ledger, held, decided, sinks)
                publish(opened.ledger, held, key, window=committed.window, times={})
    return folder


def _rows(file: Path) -> Iterator[tuple[str, pa.Table]]:
    """The rows of each table, as the quickstart's flows compute them."""
    events = [json.loads(line) for line in file.read_text().splitlines()]
    flat = [
        {**event, **event["user"], **event["request"], "timestamp": datetime.fromisoformat(event["timestamp"])}
        for event in events
    ]
    rows = {
        "request_logs": flat,
        "error_events": [{**event, **error} for event in flat for error in event["errors"]],
        "slow_requests": [event for event in flat if event["latency_ms"] > 200],
    }
    for name, schema in _SCHEMAS.items():
        yield name, pa.Table.from_pylist(rows[name], schema=schema)
