"""The work that every way does: request events of `anabranch.generate`, parsed from JSON text, into tables.

An output is a choice of columns and rows, said once here and turned into Spark's expressions, DuckDB's SQL and
pyarrow's, so that all ways write the same rows.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.generate.events import COUNTRIES, ENDPOINTS, SEVERITIES, STATUSES, write_request_events

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DATA = Path(__file__).with_name(".data")

SCHEMA = (
    "eventId string, timestamp string, user struct<userId:string,country:string>, "
    "request struct<endpoint:string,latency_ms:double,status_code:int>, "
    "errors array<struct<errorCode:string,severity:string>>"
)

#: Column -> Spark's expression over the parsed event; `x` is one error.
SPARK = {
    "event_id": "eventId",
    "ts": "ts",
    "user_id": "user.userId",
    "country": "user.country",
    "endpoint": "request.endpoint",
    "latency_ms": "request.latency_ms",
    "status_code": "request.status_code",
    "slow": "request.latency_ms > 200",
    "error_code": "x.errorCode",
    "severity": "x.severity",
}

REQUEST = ("event_id", "ts", "user_id", "country", "endpoint", "latency_ms", "status_code")
ERROR = ("event_id", "ts", "error_code", "severity")


@dataclass(frozen=True)
class Output:
    """A table: its columns, and the rows for which `column op value` holds. With errors in it, a row for each error."""

    name: str
    columns: tuple[str, ...]
    where: tuple[str, str, Any] | None = None

    @property
    def per_error(self) -> bool:
        return "error_code" in self.columns

    def condition(self, names: dict[str, str] | None = None) -> str:
        """The choice of rows as SQL."""
        if self.where is None:
            return "true"
        column, op, value = self.where
        return f"{names[column] if names else column} {op} {value!r}"


def routed(count: int) -> list[Output]:
    """Tables as a service would have them: three main ones, then tables for a part of the events each."""
    main = [
        Output("request_logs", REQUEST),
        Output("error_events", ERROR),
        Output("performance_metrics", ("endpoint", "ts", "latency_ms", "slow")),
    ]
    parts = [
        Output("slow_requests", REQUEST, ("latency_ms", ">", 200.0)),
        Output("failed_requests", REQUEST, ("status_code", ">=", 400)),
        *(Output(f"severity_{s.lower()}", ERROR, ("severity", "=", s)) for s in SEVERITIES),
        *(Output(f"country_{c.lower()}", REQUEST, ("country", "=", c)) for c in COUNTRIES),
        *(Output(f"endpoint_{e.split('/')[-1]}", REQUEST, ("endpoint", "=", e)) for e in ENDPOINTS),
        *(Output(f"status_{s}", REQUEST, ("status_code", "=", s)) for s in STATUSES),
    ]
    found = (main + parts)[:count]
    assert len(found) == count, "not that many outputs are known"
    return found


def copies(count: int) -> list[Output]:
    """Tables that all hold every event."""
    return [Output(f"copy_{i}", REQUEST) for i in range(count)]


def parsed(raw: DataFrame) -> DataFrame:
    """Events out of lines of text."""
    from pyspark.sql import functions as F

    events = raw.select(F.from_json("value", SCHEMA).alias("e")).select("e.*")
    return events.withColumn("ts", F.to_timestamp("timestamp"))


def flow(output: Output, events: DataFrame) -> DataFrame:
    """The rows of an output."""
    if output.per_error:
        events = events.selectExpr("*", "explode(errors) AS x")
    if output.where:
        events = events.where(output.condition(SPARK))
    return events.selectExpr(*(f"{SPARK[c]} AS {c}" for c in output.columns))


def pipeline_code(outputs: list[Output], source: Path, per_epoch: int | None, head: str, table: str) -> str:
    """The same flows as the file of a declarative pipeline; `table` is the decorator of each."""
    one_by_one = f'.option("maxFilesPerTrigger", {per_epoch})' if per_epoch else ""
    raw = f'spark.readStream.format("text"){one_by_one}.load({str(source)!r})'
    return f"{head}\n{view_code(raw)}{table_code(outputs, table)}"


def view_code(raw: str) -> str:
    """The view of parsed events over a frame of raw ones, whose text is `value`."""
    return (
        "from pyspark.sql import functions as F\n\n\n@dp.temporary_view\ndef events():\n"
        f"    raw = {raw}\n"
        f'    found = raw.select(F.from_json("value", {SCHEMA!r}).alias("e")).select("e.*")\n'
        f'    return found.withColumn("ts", F.to_timestamp("timestamp"))\n'
    )


def table_code(outputs: list[Output], table: str) -> str:
    """The tables over that view."""
    parts = []
    for output in outputs:
        steps = '.selectExpr("*", "explode(errors) AS x")' if output.per_error else ""
        steps += f".where({output.condition(SPARK)!r})" if output.where else ""
        columns = ", ".join(repr(f"{SPARK[c]} AS {c}") for c in output.columns)
        parts.append(
            f"\n\n{table}\ndef {output.name}():\n"
            f'    return spark.readStream.table("events"){steps}.selectExpr({columns})\n'
        )
    return "".join(parts)


def event_files(name: str, rows: int, files: int) -> Path:
    """A folder of event files, made once and kept. Each file is a second younger than the one before."""
    folder = DATA / name
    if not folder.exists():
        aside = DATA / f".{name}.part"
        for number, path in enumerate(write_request_events(aside, rows, files)):
            os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
        aside.rename(folder)
    return folder


def repeated(folder: Path, times: int) -> Path:
    """A folder that holds the files of another one several times over."""
    target = DATA / f"{folder.name}-x{times}"
    if not target.exists():
        aside = DATA / f".{target.name}.part"
        aside.mkdir(exist_ok=True)
        for turn in range(times):
            for path in sorted(folder.iterdir()):
                (aside / f"{turn}-{path.name}").hardlink_to(path)
        aside.rename(target)
    return target
