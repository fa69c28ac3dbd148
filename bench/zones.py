"""Scan events from files into bronze and silver: the zones of the medallion template, and one stream for each zone.

Both ways run the same transformers (audit; snake_case, flatten, trim) over the same JSON, in one session. The usual way
reads the files in one streaming query, writes bronze, and reads bronze again in a second one, which writes silver. Ours
keeps malformed records and rows that break the template's rules in tables of their own; the usual way leaves them out.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import shape
import ways
import yaml
from measure import Cost, Record, best, cost_of

import anabranch.cli
from anabranch.generate.entities import ENTITIES
from anabranch.generate.faults import Faults
from anabranch.generate.run import Made, Wanted, generate
from anabranch.generate.to_files import FolderTarget

if TYPE_CHECKING:
    from cases import Bench
    from pyspark.sql import DataFrame, SparkSession

NAME = "shipment_scan_event"
TEMPLATE = Path(anabranch.cli.__file__).parent / "templates" / "medallion"
#: Numbers of the events that make the tables, and of those that are measured: they have no key in common.
FEW, MANY = (10_000_000, 1_000), 0
ROUNDS = 2


@dataclass(frozen=True)
class Zones:
    """One lake: where its files come in, and how silver takes its rows."""

    spark: SparkSession
    folder: Path
    upsert: bool

    @property
    def landing(self) -> Path:
        return self.folder / "landing" / NAME

    def land(self, files: Path) -> None:
        """Let files come in."""
        self.landing.mkdir(parents=True, exist_ok=True)
        for path in sorted(files.iterdir()):
            (self.landing / path.name).hardlink_to(path)

    def place(self, zone: str) -> str:
        return str(self.folder / zone)


def entity() -> dict[str, Any]:
    """The scan events as the template has them."""
    text = (TEMPLATE / "entities" / "scan_events.yml").read_text(encoding="utf-8")
    found: dict[str, Any] = yaml.safe_load(text.replace("${scans}", "files"))["entities"][NAME]
    return found


def one_pass(zones: Zones) -> None:
    """A project with both zones, run until everything is read."""
    from anabranch.engine.run import run
    from anabranch.load.project import read_project

    spec = yaml.safe_load((TEMPLATE / "anabranch.yml").read_text(encoding="utf-8").replace("{{ name }}", "bench"))
    for key in ("include", "libraries", "values", "environments"):
        del spec[key]
    spec["storage"] = "lake"
    spec["sources"] = {"files": {"format": "json", "path": str(zones.landing.parent / "{entity}")}}
    spec["zones"]["silver"]["mode"] = "upsert" if zones.upsert else "append"
    spec["entities"] = {NAME: entity()}
    (zones.folder / "anabranch.yml").write_text(yaml.safe_dump(spec, sort_keys=False), encoding="utf-8")
    run(read_project(zones.folder), once=True, listener=lambda _: None)


def stream_per_zone(zones: Zones) -> None:
    """Files into bronze, then bronze into silver, each in a streaming query of its own."""
    from pyspark.sql import functions as F

    from anabranch.core.origin import FILE
    from anabranch.operators.audit import audit

    raw = zones.spark.readStream.schema(entity()["schema"]).json(str(zones.landing))
    _written(zones, audit(raw.select("*", F.col("_metadata.file_path").alias(FILE))), "bronze")
    silver = _silver(zones.spark.readStream.format("delta").load(zones.place("bronze")))
    if zones.upsert:
        _merged(zones, silver)
    else:
        _written(zones, silver, "silver")


def _silver(bronze: DataFrame) -> DataFrame:
    from anabranch.operators.flatten import flatten
    from anabranch.operators.snake_case import snake_case
    from anabranch.operators.trim import trim

    return trim(flatten(snake_case(bronze))).where("facility_facility_id IS NOT NULL")


def _written(zones: Zones, rows: DataFrame, zone: str) -> None:
    writer = rows.writeStream.format("delta").trigger(availableNow=True)
    writer = writer.option("checkpointLocation", zones.place(f"checkpoints/{zone}"))
    writer.start(zones.place(zone)).awaitTermination()


def _merged(zones: Zones, rows: DataFrame) -> None:
    """The newest row of each key of a batch, merged into silver."""
    from pyspark.sql import functions as F

    place = zones.place("silver")
    columns = ", ".join(f"`{name}` {kind}" for name, kind in rows.dtypes)
    zones.spark.sql(f"CREATE TABLE IF NOT EXISTS delta.`{place}` ({columns}) USING delta")

    def merge(batch: DataFrame, _number: int) -> None:
        whole = F.struct("ingest_time", *(c for c in batch.columns if c not in ("event_id", "ingest_time")))
        newest = batch.groupBy("event_id").agg(F.max_by(F.struct("*"), whole.getField("ingest_time")).alias("row"))
        newest.select("row.*").createOrReplaceTempView("changes")
        batch.sparkSession.sql(
            f"MERGE INTO delta.`{place}` t USING changes c ON t.event_id = c.event_id "
            "WHEN MATCHED AND c.ingest_time >= t.ingest_time THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )

    writer = rows.writeStream.foreachBatch(merge).trigger(availableNow=True)
    writer.option("checkpointLocation", zones.place("checkpoints/silver")).start().awaitTermination()


USUAL = "one stream per zone (Delta)"
WAYS: dict[str, Callable[[Zones], None]] = {ways.OURS: one_pass, USUAL: stream_per_zone}
CASES = {"zones, silver appended": False, "zones, silver merged by key": True}


def zones(bench: Bench) -> Iterator[Record]:
    """Raw to bronze to silver, silver with all rows and with the newest of each key."""
    count, rounds = (100_000, 1) if bench.quick else (1_000_000, ROUNDS)
    bench.say(f"making {count:,} scan events, once")
    few, many = scan_files(*FEW, 1), scan_files(MANY, count, 8)
    for case, upsert in CASES.items():
        costs: dict[str, list[Cost]] = {way: [] for way in WAYS}
        for turn in range(1, rounds + 1):
            for way, work in WAYS.items():
                lake = Zones(bench.spark, bench.folder / f"zones-{len(costs[way])}-{way[:4]}-{upsert}", upsert)
                lake.land(few)
                work(lake)  # makes the tables, as those of a stream that runs
                lake.land(many)
                cost = cost_of(lambda work=work, lake=lake: work(lake))  # type: ignore[misc]
                costs[way].append(cost)
                split = ", ".join(f"{role} {seconds:.2f}" for role, seconds in cost.cpu.items())
                bench.say(f"{case}, round {turn}: {way}: {cost.cpu_s:.2f} CPU-s ({split}), {cost.wall_s:.2f} s")
                _check_rows(way, lake, count + FEW[1])
                shutil.rmtree(lake.folder)
        for way, found in costs.items():
            yield best(case, way, 2, count, found)


def scan_files(start: int, rows: int, files: int) -> Path:
    """A folder of files, made once and kept. Each file is a second younger than the one before."""
    folder = shape.DATA / f"scans-{start}-{rows}"
    if not folder.exists():
        aside = shape.DATA / f".{folder.name}.part"
        shutil.rmtree(aside, ignore_errors=True)
        made: dict[str, Made] = {}
        generate(Wanted([ENTITIES[NAME]], rows, start=start, files=files, faults=Faults()), FolderTarget(aside), made)
        for number, path in enumerate(sorted((aside / NAME).iterdir())):
            os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
        (aside / NAME).rename(folder)
        aside.rmdir()
    return folder


def _check_rows(way: str, lake: Zones, wanted: int) -> None:
    """Refuse figures of a way that did not write all rows: none of these breaks a rule, and no key is there twice."""
    from deltalake import DeltaTable

    from anabranch import read

    for zone in ("bronze", "silver"):
        if way == ways.OURS:
            found = read.cut(lake.folder).arrow(f"{zone}.{NAME}").num_rows
        else:
            found = DeltaTable(lake.place(zone)).to_pyarrow_dataset().count_rows()
        if found != wanted:
            raise AssertionError(f"{way} wrote {found:,} rows to {zone}, not {wanted:,}")
