"""Events that are unlike the request events, or are those with faults in them; and a pipeline over each kind.

All are made once and kept, as the request events are.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import shape
from shape import Output
from ways import HEAD

#: One record in this many has a fault.
FAULTY = 20


@dataclass(frozen=True)
class Kind:
    """Events of one kind: a schema, records of it by their number, and the tables that are made of them."""

    name: str
    schema: str
    record: Callable[[int], str]
    tables: dict[str, str]  # name -> steps behind the view of parsed events
    csv: bool = False  # records are lines of CSV, in files that Spark's reader takes

    @property
    def outputs(self) -> list[Output]:
        return [Output(name, ()) for name in self.tables]

    def files(self, rows: int, files: int) -> Path:
        """A folder of files with records of this kind."""
        lines = (self.record(number) + "\n" for number in range(rows))
        return _kept(f"{self.name}-{rows}", _shared_out(lines, rows, files))

    def code(self, source: Path) -> str:
        """The pipeline."""
        view = f"{HEAD}\nfrom pyspark.sql import functions as F\n\n\n@dp.temporary_view\ndef events():\n"
        if self.csv:
            view += f"    return spark.readStream.schema({self.schema!r}).csv({str(source)!r})\n"
        else:
            view += (
                f'    raw = spark.readStream.format("text").load({str(source)!r})\n'
                f'    return raw.select(F.from_json("value", {self.schema!r}).alias("e")).select("e.*")\n'
            )
        return view + "".join(
            f'\n\n@dp.table\ndef {name}():\n    return spark.readStream.table("events"){steps}\n'
            for name, steps in self.tables.items()
        )


def truncated(folder: Path) -> Path:
    """The same events; of one in twenty the end is missing."""
    return _changed(folder, "truncated", lambda line: line[: len(line) * 3 // 5] + "\n")


def mistyped(folder: Path) -> Path:
    """The same events; in one of twenty a number is written as a string."""

    def change(line: str) -> str:
        head, name, tail = line.partition('"latency_ms": ')
        number, comma, rest = tail.partition(",")
        return f'{head}{name}"{number}"{comma}{rest}'

    return _changed(folder, "mistyped", change)


def doubted(folder: Path) -> Path:
    """The same events; one in a thousand has a field twice, which Spark has to read."""
    return _changed(folder, "doubted", lambda line: '{"eventId": "none", ' + line[1:], every=1000)


def _wide(number: int) -> str:
    event: dict[str, object] = {}
    for place in range(50):
        event[f"text_{place}"] = f"value {(number * 7 + place) % 5000} of field {place}"
        event[f"word_{place}"] = f"w{(number + place) % 97}"
        event[f"amount_{place}"] = ((number * 31 + place * 17) % 100_000) / 100
        event[f"count_{place}"] = (number * 13 + place) % 1_000_000 if place % 5 else number % 2 == 0
    return json.dumps(event)


def _wide_schema() -> str:
    fields = []
    for place in range(50):
        kind = "bigint" if place % 5 else "boolean"
        fields += [f"text_{place} string", f"word_{place} string", f"amount_{place} double", f"count_{place} {kind}"]
    return ", ".join(fields)


def _tiny(number: int) -> str:
    return f'{{"id": {number}, "key": "k{number % 1000}", "value": {number % 1003 / 10}}}'


def _request_line(number: int) -> str:
    """One in ten has a value between quotes."""
    at = f"2026-03-{number % 28 + 1:02}T{number % 24:02}:{number % 60:02}:{number * 7 % 60:02}.{number % 1000:03}Z"
    endpoint = f'"/api/orders?ids={number % 9},{number % 7}"' if number % 10 == 0 else f"/api/orders/{number % 5000}"
    country = ("DE", "FR", "US", "")[number % 4]
    return f"{number},{at},user-{number % 9973},{country},{endpoint},{number % 5003 / 7:.3f},{200 + number % 5 * 75}"


def _huge(number: int, quote: str) -> str:
    """About 50 KB: 420 items, and a text of 20 KB."""
    items = [
        {
            "sku": f"sku-{(number * 420 + place) % 99_991}",
            "quantity": place % 9,
            "price": place * 0.25,
            "note": "as ever",
        }
        for place in range(420)
    ]
    word = f"the {quote}{number % 1000}th{quote} page of a longer text, "
    text = (word * (20_000 // len(word) + 1))[:20_000]
    return json.dumps({"id": number, "at": "2026-03-01T00:00:00.000Z", "text": text, "items": items, "total": 1.5})


_HUGE_SCHEMA = (
    "id bigint, at timestamp, text string, total double, "
    "items array<struct<sku:string,quantity:int,price:double,note:string>>"
)
_HUGE_TABLES = {
    "heads": '.selectExpr("id", "at", "total", "size(items) AS items")',
    "texts": '.selectExpr("id", "text")',
    "items": '.selectExpr("id", "explode(items) AS x").selectExpr("id", "x.sku", "x.quantity", "x.price")',
}

WIDE = Kind(
    "wide",
    _wide_schema(),
    _wide,
    {
        "everything": "",
        "dear": '.where("amount_0 > 500").selectExpr(*[f"text_{i}" for i in range(10)], "amount_0", "count_1")',
        "numbers": '.selectExpr(*[f"amount_{i}" for i in range(5)])',
    },
)
TINY = Kind(
    "tiny",
    "id bigint, key string, value double",
    _tiny,
    {"everything": "", "large": '.where("value > 50")', "keys": '.selectExpr("key", "value * 2 AS twice")'},
)
CSV = Kind(
    "CSV",
    "id bigint, at timestamp, user string, country string, endpoint string, latency_ms double, status int",
    _request_line,
    {
        "request_logs": "",
        "failed_requests": '.where("status >= 400").selectExpr("id", "at", "user", "endpoint", "status")',
        "performance_metrics": '.selectExpr("endpoint", "at", "latency_ms", "latency_ms > 200 AS slow")',
    },
    csv=True,
)
HUGE = Kind("huge", _HUGE_SCHEMA, lambda number: _huge(number, ""), _HUGE_TABLES)
QUOTED = Kind("huge-quoted", _HUGE_SCHEMA, lambda number: _huge(number, '"'), _HUGE_TABLES)


def json_code(outputs: list[Output], source: Path) -> str:
    """The pipeline over request events that Spark's reader of JSON files takes."""
    view = (
        f"{HEAD}\nfrom pyspark.sql import functions as F\n\n\n@dp.temporary_view\ndef events():\n"
        f"    found = spark.readStream.schema({shape.SCHEMA!r}).json({str(source)!r})\n"
        f'    return found.withColumn("ts", F.to_timestamp("timestamp"))\n'
    )
    return view + shape.table_code(outputs, "@dp.table")


def parquet_files(folder: Path) -> Path:
    """The same events in files of Parquet, their times as timestamps."""
    import pyarrow as pa
    import pyarrow.json
    import pyarrow.parquet as pq

    text = pa.string()
    kinds = {
        "eventId": text,
        "timestamp": pa.timestamp("us", "UTC"),
        "user": pa.struct([("userId", text), ("country", text)]),
        "request": pa.struct([("endpoint", text), ("latency_ms", pa.float64()), ("status_code", pa.int32())]),
        "errors": pa.list_(pa.struct([("errorCode", text), ("severity", text)])),
    }
    asked = pyarrow.json.ParseOptions(
        explicit_schema=pa.schema({**kinds, "timestamp": text}), unexpected_field_behavior="ignore"
    )
    target = shape.DATA / f"{folder.name}-parquet"
    if not target.exists():
        aside = shape.DATA / f".{target.name}.part"
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        for number, path in enumerate(sorted(folder.iterdir())):
            made = aside / f"{path.stem}.parquet"
            pq.write_table(pyarrow.json.read_json(path, parse_options=asked).cast(pa.schema(kinds)), made)
            os.utime(made, (1_700_000_000 + number, 1_700_000_000 + number))
        aside.rename(target)
    return target


def parquet_code(outputs: list[Output], source: Path) -> str:
    """The pipeline over request events in files of Parquet."""
    schema = shape.SCHEMA.replace("timestamp string", "timestamp timestamp")
    view = (
        f"{HEAD}\nfrom pyspark.sql import functions as F\n\n\n@dp.temporary_view\ndef events():\n"
        f"    found = spark.readStream.schema({schema!r}).parquet({str(source)!r})\n"
        f'    return found.withColumnRenamed("timestamp", "ts")\n'
    )
    return view + shape.table_code(outputs, "@dp.table")


def kafka_code(outputs: list[Output], bootstrap: str, topic: str) -> str:
    """The pipeline over request events in a topic."""
    view = (
        f"{HEAD}\nfrom anabranch import sources\nfrom pyspark.sql import functions as F\n\n\n"
        "@dp.temporary_view\ndef events():\n"
        f"    raw = sources.kafka({topic!r}, {bootstrap!r}, value='json', schema={shape.SCHEMA!r})\n"
        f'    return raw.select("value.*").withColumn("ts", F.to_timestamp("timestamp"))\n'
    )
    return view + shape.table_code(outputs, "@dp.table")


def mixed_code(outputs: list[Output], source: Path) -> str:
    """The pipeline over request events with one more table, whose expression workers do not know."""
    more = (
        '\n\n@dp.table\ndef hashed():\n    return spark.readStream.table("events")'
        '.selectExpr("eventId AS event_id", "hash(eventId, user.userId) AS bucket")\n'
    )
    return shape.pipeline_code(outputs, source, None, HEAD, "@dp.table") + more


def _changed(folder: Path, how: str, change: Callable[[str], str], every: int = FAULTY) -> Path:
    """One line of `every` so many is changed, in each file."""

    def parts() -> Iterator[tuple[str, Iterable[str]]]:
        for path in sorted(folder.iterdir()):
            with path.open(encoding="utf-8") as lines:
                yield path.name, (change(x) if n % every == every // 2 else x for n, x in enumerate(lines))

    return _kept(f"{folder.name}-{how}", parts())


def _shared_out(lines: Iterator[str], rows: int, files: int) -> Iterator[tuple[str, Iterable[str]]]:
    each = -(-rows // files)
    for number in range(files):
        yield f"{number:04}.json", (line for _, line in zip(range(each), lines, strict=False))


def _kept(name: str, files: Iterable[tuple[str, Iterable[str]]]) -> Path:
    """A folder of files, each a second younger than the one before."""
    folder = shape.DATA / name
    if not folder.exists():
        aside = shape.DATA / f".{name}.part"
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        for number, (called, lines) in enumerate(files):
            path = aside / called
            with path.open("w", encoding="utf-8") as out:
                out.writelines(lines)
            os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
        aside.rename(folder)
    return folder
