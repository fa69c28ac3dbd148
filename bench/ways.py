"""The ways of getting events into tables. Each is a function of a `Task`; each writes the same rows.

Those with Spark share one session, so all run in the same warm JVM with the same settings.
"""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import shape

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


@dataclass
class Task:
    """Read what is new in `source`, append it to `outputs` under `scratch`; may be done again when more has come.

    `per_epoch` files make an epoch, if given. `newest` is where the newest files came from, for ways that are no
    streams. `code` is the pipeline of ours, if it is not that of the outputs. `progress`, `times` and `records` are
    filled in by ways that have epochs: what Spark says about each, and what ours says; and how many records of native
    flows were computed by whom.
    """

    spark: SparkSession
    outputs: list[shape.Output]
    scratch: Path
    newest: Path
    per_epoch: int | None = None
    code: str | None = None
    progress: list[dict[str, Any]] = field(default_factory=list)
    times: list[dict[str, float]] = field(default_factory=list)
    records: Counter[str] = field(default_factory=Counter)

    @property
    def source(self) -> Path:
        return self.scratch / "landing"

    def land(self, folder: Path, turn: int) -> None:
        """Let the files of a folder come in."""
        self.source.mkdir(parents=True, exist_ok=True)
        for path in sorted(folder.iterdir()):
            (self.source / f"{turn}-{path.name}").hardlink_to(path)
        self.newest = folder

    def stream(self) -> DataFrame:
        reader = self.spark.readStream.format("text")
        if self.per_epoch:
            reader = reader.option("maxFilesPerTrigger", self.per_epoch)
        return reader.load(str(self.source))

    def place(self, output: shape.Output) -> str:
        return str(self.scratch / output.name)

    def note(self, query: StreamingQuery) -> None:
        self.progress += [dict(p["durationMs"]) for p in query.recentProgress if "addBatch" in p["durationMs"]]


Way = Callable[[Task], None]

HEAD = "from anabranch import pipelines as dp"


def write_streams(task: Task) -> None:
    """One streaming query per table, into Delta."""
    queries = []
    for output in task.outputs:
        rows = shape.flow(output, shape.parsed(task.stream()))
        writer = rows.writeStream.format("delta").trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(task.scratch / "checkpoints" / output.name))
        queries.append(writer.start(task.place(output)))
    for query in queries:
        query.awaitTermination()
        task.note(query)


def foreach_batch(*, delta: bool, threads: bool) -> Way:
    """One query whose batches are parsed, kept, and written table by table."""

    def way(task: Task) -> None:

        def write(batch: DataFrame, number: int) -> None:
            events = shape.parsed(batch).persist()

            def one(output: shape.Output) -> None:
                writer = shape.flow(output, events).write.mode("append")
                if delta:
                    marked = writer.format("delta").option("txnAppId", task.place(output))
                    writer = marked.option("txnVersion", number)
                else:
                    writer = writer.format("parquet")
                writer.save(task.place(output))

            with ThreadPoolExecutor(len(task.outputs) if threads else 1) as pool:
                list(pool.map(one, task.outputs))
            events.unpersist()

        _run(task, write)

    return way


def empty_batches(task: Task) -> None:
    """A query that does nothing with its batches: what Spark itself needs for each."""
    _run(task, lambda _batch, _number: None)


def _run(task: Task, write: Callable[[DataFrame, int], None]) -> None:
    writer = task.stream().writeStream.foreachBatch(write).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(task.scratch / "checkpoint")).start()
    query.awaitTermination()
    task.note(query)


def ours(task: Task) -> None:
    """A project with a table for each output, run until everything is read."""
    from anabranch.core.events import EpochPublished, Event
    from anabranch.engine.run import run

    queries: list[StreamingQuery] = []

    def listen(event: Event) -> None:
        if isinstance(event, EpochPublished):
            if not queries:
                queries.extend(task.spark.streams.active)
            task.times.append(dict(event.times))
            task.records.update(event.records)

    run(project(task), once=True, listener=listen)
    for query in queries:
        task.note(query)


def project(task: Task, decorator: str = "@dp.table") -> Any:
    """The files of a project in the task's folder, read."""
    from anabranch.load.project import read_project

    code = task.code or shape.pipeline_code(task.outputs, task.source, task.per_epoch, HEAD, decorator)
    _write_project(task.scratch, code, "anabranch.yml", "name: bench\n")
    return read_project(task.scratch)


def spark_pipelines(task: Task) -> None:
    """Spark's own command line, in a process of its own; its start is in its figures. It writes plain Parquet.

    Its catalogue does not outlive a run, and it refuses tables that are there already: each time begins from nothing.
    """
    folder = task.scratch / uuid.uuid4().hex
    head = "from pyspark import pipelines as dp\nfrom pyspark.sql import SparkSession\n\nspark = SparkSession.active()"
    code = shape.pipeline_code(task.outputs, task.newest, task.per_epoch, head, "@dp.table")
    cores = task.spark.sparkContext.defaultParallelism
    spec = (
        f"name: bench\nstorage: file://{folder}/storage\n"
        'libraries:\n  - glob:\n      include: "transformations/**"\n'
        f"configuration:\n  spark.sql.shuffle.partitions: '{cores}'\n  spark.sql.session.timeZone: UTC\n"
    )
    _write_project(folder, code, "spark-pipeline.yml", spec)
    command = [
        str(Path(sys.executable).with_name("spark-pipelines")),
        "--conf", "spark.ui.enabled=false",
        "--conf", f"spark.sql.warehouse.dir={folder}/warehouse",
        "run", "--spec", str(folder / "spark-pipeline.yml"),
    ]  # fmt: skip
    env = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"):
        env.pop(name, None)
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    rows = [path for path in folder.glob("warehouse/*/*.parquet") if path.stat().st_size]
    if done.returncode or {path.parent.name for path in rows} != {output.name for output in task.outputs}:
        raise RuntimeError(f"spark-pipelines ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")


def _write_project(folder: Path, code: str, spec_name: str, spec: str) -> None:
    (folder / "transformations").mkdir(parents=True, exist_ok=True)
    (folder / "transformations" / "pipeline.py").write_text(code)
    (folder / spec_name).write_text(spec)


def duckdb_alone(task: Task) -> None:
    """DuckDB in this process: no stream, no commit."""
    import duckdb

    connection = duckdb.connect()
    connection.execute(f"SET threads = {task.spark.sparkContext.defaultParallelism}; SET timezone = 'UTC'")
    connection.execute(
        f"""CREATE TEMP TABLE events AS
        SELECT eventId AS event_id, timestamp::TIMESTAMPTZ AS ts, "user".userId AS user_id, "user".country AS country,
               request.endpoint AS endpoint, request.latency_ms AS latency_ms, request.status_code AS status_code,
               request.latency_ms > 200 AS slow, errors
        FROM read_json('{task.newest}/*.json', format = 'newline_delimited', columns = {{
            eventId: 'VARCHAR', timestamp: 'VARCHAR', user: 'STRUCT(userId VARCHAR, country VARCHAR)',
            request: 'STRUCT(endpoint VARCHAR, latency_ms DOUBLE, status_code INTEGER)',
            errors: 'STRUCT(errorCode VARCHAR, severity VARCHAR)[]'}})"""
    )
    each = "(SELECT event_id, ts, x.errorCode AS error_code, x.severity AS severity "
    each += "FROM (SELECT event_id, ts, unnest(errors) AS x FROM events))"
    for output in task.outputs:
        rows = f"SELECT {', '.join(output.columns)} FROM {each if output.per_error else 'events'}"
        connection.execute(
            f"COPY ({rows} WHERE {output.condition()}) TO '{task.place(output)}.parquet' "
            "(FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 1)"
        )
    connection.close()


def pyarrow_alone(task: Task) -> None:
    """Pyarrow in this process: no stream, no commit."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    writers: dict[str, pq.ParquetWriter] = {}
    for path in sorted(task.newest.iterdir()):
        events, errors = read_with_pyarrow(path)
        for output in task.outputs:
            rows = errors if output.per_error else events
            if output.where:
                rows = rows.filter(_expression(output))
            rows = rows.select(list(output.columns))
            if output.name not in writers:
                writers[output.name] = pq.ParquetWriter(
                    f"{task.place(output)}.parquet", rows.schema, compression="zstd", compression_level=1
                )
            writers[output.name].write_table(rows)
    for writer in writers.values():
        writer.close()
    pa.default_memory_pool().release_unused()


def read_with_pyarrow(path: Path) -> tuple[Any, Any]:
    """The events of a file, flat, and their errors."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.json

    text = pa.string()
    errors = pa.list_(pa.struct([("errorCode", text), ("severity", text)]))
    request = pa.struct([("endpoint", text), ("latency_ms", pa.float64()), ("status_code", pa.int32())])
    user = pa.struct([("userId", text), ("country", text)])
    schema = pa.schema(
        [("eventId", text), ("timestamp", text), ("user", user), ("request", request), ("errors", errors)]
    )
    found = pa.json.read_json(path, parse_options=pa.json.ParseOptions(explicit_schema=schema))
    found = found.combine_chunks()
    ts = found["timestamp"].cast(pa.timestamp("us", "UTC"))
    flat = {"event_id": found["eventId"], "ts": ts, "user_id": pc.struct_field(found["user"], 0)}
    flat |= {"country": pc.struct_field(found["user"], 1), "endpoint": pc.struct_field(found["request"], 0)}
    flat |= {"latency_ms": pc.struct_field(found["request"], 1), "status_code": pc.struct_field(found["request"], 2)}
    flat["slow"] = pc.greater(flat["latency_ms"], 200)
    rows = pc.list_parent_indices(found["errors"])
    each = pc.list_flatten(found["errors"])
    per_error = {"event_id": found["eventId"].take(rows), "ts": ts.take(rows)}
    per_error |= {"error_code": pc.struct_field(each, 0), "severity": pc.struct_field(each, 1)}
    return pa.table(flat), pa.table(per_error)


def _expression(output: shape.Output) -> Any:
    import pyarrow.compute as pc

    assert output.where is not None
    column, op, value = output.where
    field = pc.field(column)
    return {">": field > value, ">=": field >= value, "=": field == value}[op]


OURS = "ours"
STREAMS = "one writeStream per table (Delta)"
PARQUET = "foreachBatch, persist, Parquet"
PARQUET_THREADS = "foreachBatch, persist, threads, Parquet"
DELTA = "foreachBatch, persist, Delta txn"
DELTA_THREADS = "foreachBatch, persist, threads, Delta txn"
DELTA_DEFAULT = "foreachBatch, persist, Delta txn, 50 snapshot partitions"
PIPELINES = "spark-pipelines (own process)"
DUCKDB = "DuckDB alone"
PYARROW = "pyarrow alone"
ENCODE = "pyarrow encode only"
EMPTY = "empty foreachBatch"

WAYS: dict[str, Way] = {
    OURS: ours,
    PARQUET: foreach_batch(delta=False, threads=False),
    PARQUET_THREADS: foreach_batch(delta=False, threads=True),
    DELTA: foreach_batch(delta=True, threads=False),
    DELTA_THREADS: foreach_batch(delta=True, threads=True),
    DELTA_DEFAULT: foreach_batch(delta=True, threads=False),
    STREAMS: write_streams,
    PIPELINES: spark_pipelines,
    DUCKDB: duckdb_alone,
    PYARROW: pyarrow_alone,
    EMPTY: empty_batches,
}
