"""A project over hostile JSON, run natively and by Spark alone: its files, its flows, and what came of a run."""

from __future__ import annotations

import gzip
import json
import os
import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from anabranch.core.events import ChannelFailed, EpochPublished, Event
from anabranch.errors import AnabranchError
from anabranch.load.project import read_project
from native.json_documents import NUMBERS, STRINGS, TIMES, WHOLE

#: A failed channel is not started again.
NO_RETRIES = {"spark.sql.pipelines.maxFlowRetryAttempts": "0"}

HEAD = """
from pyspark.sql import functions as F
from anabranch import pipelines as dp, sources

IN = {folder!r}
FIELDS = '''
    id BIGINT, name STRING, n INT, d DOUBLE, at TIMESTAMP, day DATE, ok BOOLEAN, tags ARRAY<STRING>,
    items ARRAY<STRUCT<sku: STRING, qty: INT>>, inner STRUCT<a: INT, `b.c`: STRING, deep: STRUCT<x: BIGINT>>,
    `odd.name` STRING, `it's"q"` STRING, `.ünï[x]` INT
'''
CORRUPT = FIELDS + ", _corrupt_record STRING"

def by_file(folder, most=1):
    return spark.readStream.option("maxFilesPerTrigger", most)
"""

#: Flows over any view of events with the columns above; `{0}` is the name of the view and a part of those of tables.
FLOWS = """
@dp.table
def {0}_all():
    return spark.readStream.table("{0}")

@dp.table
def {0}_few():
    return spark.readStream.table("{0}").where("n > 1 AND name IS NOT NULL").select("id", "n", "name", "inner.deep.x")

@dp.table
def {0}_computed():
    computed = spark.readStream.table("{0}").withColumn("x", F.expr("CAST(n AS BIGINT) * 3 + 1"))
    return computed.where("x > 5 OR upper(name) LIKE 'A%'").select("id", "x", F.lower("name").alias("small"), "at")

@dp.table
def {0}_items():
    return spark.readStream.table("{0}").select("id", F.explode("items").alias("item")).select("id", "item.*")

@dp.table
def {0}_items_outer():
    return spark.readStream.table("{0}").select("id", F.explode_outer("items").alias("item")).select("id", "item.sku")

@dp.table
def {0}_places():
    return spark.readStream.table("{0}").select("id", F.posexplode("tags").alias("place", "tag"))

@dp.table
def {0}_places_outer():
    return spark.readStream.table("{0}").select("id", F.posexplode_outer("items").alias("place", "item"), "d")

@dp.table
def {0}_inline():
    return spark.readStream.table("{0}").where("n < 100").select("id", F.inline("items"))

@dp.table
def {0}_inline_outer():
    return spark.readStream.table("{0}").select("day", F.inline_outer("items"))

@dp.table
def {0}_twice():
    once = spark.readStream.table("{0}").select("id", "tags", F.explode("items").alias("item"))
    return once.select("id", "item.qty", F.explode_outer("tags").alias("tag")).where("qty > 0 OR tag IS NULL")

@dp.table
def {0}_united():
    events = spark.readStream.table("{0}")
    return events.where("ok").select("id", "name").union(events.where("NOT ok").select("id", "inner.`b.c`"))

@dp.table
def {0}_sides():
    events = spark.readStream.table("{0}")
    loud = events.select("id", F.concat("name", F.lit("!")).alias("x"))
    return events.select("id", F.lower("name").alias("x")).union(loud).select("id", "x", F.length("x").alias("long"))

dp.create_streaming_table("{0}_together")

@dp.append_flow(target="{0}_together")
def {0}_ids():
    return spark.readStream.table("{0}").where("id > 3").select("id", "d")

@dp.append_flow(target="{0}_together")
def {0}_names():
    return spark.readStream.table("{0}").select("id", F.length("name").alias("long"), "name")

@dp.table
@dp.expect("named", "name IS NOT NULL")
@dp.expect_or_drop("has_id", "id IS NOT NULL")
@dp.expect_or_drop("small", "n < 100 OR d IS NOT NULL")
def {0}_judged():
    return spark.readStream.table("{0}").select("id", "name", "n", "d", "at", "inner")

@dp.table
def {0}_time():
    now = F.current_timestamp()
    return spark.readStream.table("{0}").select("id", now.alias("now"), (F.col("at") < now).alias("past"))

@dp.table
def {0}_guarded():
    rows = spark.readStream.table("{0}").where("n <> 0 AND n BETWEEN -1000 AND 1000")
    return rows.select("id", F.expr("100 / n AS share"), F.expr("7 % n AS rest"), F.expr("n + 5 AS more"))

@dp.table
def {0}_names_odd():
    rows = spark.readStream.table("{0}").select(
        "`odd.name`",
        F.col("`it's\\"q\\"`").alias("a b"),
        F.col("`.ünï[x]`").alias("it's.[x]"),
        F.col("inner.`b.c`").alias('b"c'),
    )
    return rows.withColumn("naïve", F.col("`it's.[x]`") * 1.0).withColumnRenamed("a b", "a.b")

@dp.table
def {0}_doubled():
    rows = spark.readStream.table("{0}")
    return rows.select(F.col("id").alias("x"), F.col("n").alias("x"), F.upper("name").alias("x")).toDF("p", "q", "r")

@dp.table(partition_cols=["day"])
def {0}_by_day():
    return spark.readStream.table("{0}").where("day > '2000-01-01'").select("id", "day", "d")

@dp.temporary_view
def {0}_changes():
    rows = spark.readStream.table("{0}").where("name IN ('a', 'gone') OR name LIKE 'late%'")
    return rows.select("id", "n", "name", "inner")

dp.create_streaming_table("{0}_latest")
dp.create_auto_cdc_flow(
    target="{0}_latest", source="{0}_changes", keys=["id"], sequence_by="n", apply_as_deletes="name = 'gone'"
)
"""

#: Flows that are not native, over the same view.
OTHERS = """
@dp.table
@dp.expect_or_quarantine("small", "n < 100 AND d IS NOT NULL")
@dp.expect_or_quarantine("timed", "at > '2000-01-01'")
def {0}_aside():
    return spark.readStream.table("{0}").select("id", "name", "n", "d", "at", "inner")

@dp.table
def {0}_hashed():
    return spark.readStream.table("{0}").select("id", F.hash("id", "name", "d").alias("h"))

@dp.table
def {0}_python():
    return spark.readStream.table("{0}").select("id", F.udf(lambda name: name and name[::-1])("name").alias("back"))

@dp.table
def {0}_file():
    return spark.readStream.table("{0}").select("file_name")

@dp.table
def {0}_days():
    return spark.readStream.table("{0}").select("id", F.current_date().alias("today"))

@dp.table
def {0}_unique():
    timed = spark.readStream.table("{0}").where("at BETWEEN '2000-01-01' AND '3000-01-01'")
    return timed.withWatermark("at", "9 days").dropDuplicatesWithinWatermark(["id", "name"]).select("id", "name")
"""


def _documents() -> list[bytes]:
    """Lines of files: every odd value once, at home or not, after plain ones."""
    plain = [
        {"id": i, "name": f"N{i}", "n": i % 7 - 1, "d": i / 3, "at": f"2026-01-{i % 28 + 1:02d}T0{i % 10}:00:00Z",
         "day": f"2026-02-{i % 3 + 1:02d}", "ok": i % 2 == 0, "tags": ["a", None, "b"][: i % 4],
         "items": [{"sku": f"s{j}", "qty": j} for j in range(i % 3)],
         "inner": {"a": i, "b.c": "é", "deep": {"x": i * 10**12}},
         "odd.name": "o", 'it\'s"q"': "😀", ".ünï[x]": i}
        for i in range(40)
    ]  # fmt: skip
    plain += [{"id": i % 5, "n": i, "name": "gone" if i == 9 else "a"} for i in range(12)]
    plain += [
        {},
        {"id": 7},
        {"inner": None},
        {"inner": {}},
        {"items": [None, {}]},
        {"tags": []},
        {"items": [], "tags": [None]},
    ]
    texts = [json.dumps(one, ensure_ascii=i % 2 == 0) for i, one in enumerate(plain)]
    for i, value in enumerate([*map(json.dumps, TIMES), *NUMBERS, *STRINGS]):
        texts.append(f'{{"id":{i},"{("at", "d", "name", "day", "n", "id", "ok")[i % 7]}":{value},"n":3}}')
    texts += [
        '{"id":1,"items":[{"sku":1},{"qty":"x"}]}',
        '{"tags":{"a":1}}',
        '{"inner":{"a":"x","deep":{"x":1}}}',
        '{"id":1,"tags":["x",5]}',
        '{"id":1,"id":2}',
        '{"ID":5,"Name":"x"}',
        '{"n":2147483648,"id":4}',
        '{"n":1.0}',
        '{"id":1} trailing',
        "{'id': 9}",
        '{"id": 9,}',
    ]
    found = [text.encode("utf-8", "surrogatepass") for text in texts]
    found += [one for one in WHOLE if one and len(one) < 5000]
    return found


def landed(folder: Path, *, odd_name: str = "") -> None:
    """Files of odd lines in odd forms; the times of the files give their order."""
    lines = _documents()
    plain, odd = lines[:59], lines[59:]
    files = {
        "000.json": b"\n".join(plain),  # without the last newline
        odd_name or "001.json": b"\r\n".join(odd[:90]) + b"\r\n",
        "002.json": b"\r".join(odd[90:140]) + b"\r",
        "003.json": b"",
        "004.json": b"\xef\xbb\xbf" + b"\n\n \n".join([*plain[:3], *odd[140:]]),
        "005.json.gz": gzip.compress(b"\n".join([*plain[5:20], *odd[20:30]])),
        "006.json": b"\n",
    }
    files |= {f"{i:03d}.json": json.dumps({"id": i, "n": i, "name": f"late {i}"}).encode() for i in range(7, 13)}
    land(folder, files)


def land(folder: Path, files: Mapping[str, bytes]) -> None:
    """More files, in their order after those that are there."""
    folder.mkdir(parents=True, exist_ok=True)
    first = len(list(folder.iterdir()))
    for number, (name, content) in enumerate(files.items(), first):
        (folder / name).write_bytes(content)
        os.utime(folder / name, (1_700_000_000 + number,) * 2)


@contextmanager
def native(spark: Any, mode: str) -> Iterator[None]:
    """The setting, for runs inside."""
    spark.conf.set("spark.anabranch.native", mode)
    try:
        yield
    finally:
        spark.conf.unset("spark.anabranch.native")


@dataclass
class Ran:
    """A project that is run one way, and what came of it."""

    root: Path
    spark: Any
    mode: str
    events: list[Event] = field(default_factory=list)

    def write(self, code: str, folder: Path) -> None:
        """The project's one file, over the files in a folder."""
        (self.root / "transformations").mkdir(parents=True, exist_ok=True)
        (self.root / "transformations" / "p.py").write_text(HEAD.format(folder=str(folder)) + code)
        (self.root / "anabranch.yml").write_text(json.dumps({"name": "native", "configuration": NO_RETRIES}))

    def run(self) -> AnabranchError | None:
        """Run over everything that is there; the error if it failed."""
        from anabranch.engine.run import run

        with native(self.spark, self.mode):
            try:
                run(read_project(self.root), once=True, listener=self.events.append)
            except AnabranchError as error:
                return error
        return None

    def how(self) -> dict[str, str]:
        """How each flow is computed."""
        from anabranch.engine.planning import full_plan

        with native(self.spark, self.mode):
            plan = full_plan(read_project(self.root), lambda event: None)
        return {step.flow.name: step.how for part in plan.channels for step in part.flows if step.how}

    def rows(self, table: str) -> Counter[str]:
        """The rows of a table, to the bit."""
        from anabranch import read

        found = read.cut(self.root).arrow(table)
        columns = [[_exact(value) for value in _plain(column).to_pylist()] for column in found.columns]
        return Counter(map(repr, zip(*columns, strict=True)))

    def schemas(self) -> dict[str, Any]:
        """The tables that there are, with their columns."""
        from anabranch import read

        cut = read.cut(self.root)
        return {name: cut.arrow(name).schema for name in cut.versions}

    @property
    def published(self) -> list[EpochPublished]:
        return [event for event in self.events if isinstance(event, EpochPublished)]

    def quality(self) -> list[Any]:
        """What was counted of rules, in each epoch."""
        found = [(e.channel, e.epoch, replace(q, samples={})) for e in self.published for q in e.quality]
        return sorted(found, key=repr)

    def counts(self) -> dict[tuple[str, int], dict[str, int]]:
        """Rows of each output, by channel and epoch."""
        return {(e.channel, e.epoch): dict(e.rows) for e in self.published}

    def records(self, channel: str) -> Counter[str]:
        """Records of native flows: computed natively, and by Spark."""
        found: Counter[str] = Counter()
        for event in self.published:
            found.update(event.records if event.channel == channel else {})
        return found

    def failures(self) -> dict[str, str]:
        """The code that each channel failed with."""
        return {e.channel: e.code for e in self.events if isinstance(e, ChannelFailed)}


def ran_both_ways(folder: Path, spark: Any, code: str, landing: Path) -> tuple[Ran, Ran]:
    """A project, run by Spark alone and natively."""
    ways = Ran(folder / "false", spark, "false"), Ran(folder / "true", spark, "true")
    for ran in ways:
        ran.write(code, landing)
        assert ran.run() is None
    return ways


def _exact(value: Any) -> Any:
    if isinstance(value, float):
        return struct.pack(">d", value).hex()
    if isinstance(value, dict):
        return {key: _exact(one) for key, one in value.items()}
    return [_exact(one) for one in value] if isinstance(value, list) else value


def _plain(column: Any) -> Any:
    """As a type that Python has all values of: texts need not be text, and there are years after 9999."""
    kinds = {pa.string(): pa.binary(), pa.date32(): pa.int32()}
    kind = pa.int64() if pa.types.is_timestamp(column.type) else kinds.get(column.type)
    return column.cast(kind) if kind else column
