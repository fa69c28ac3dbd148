"""The Spark settings of a session, each with its reason. Whatever a project says in `configuration` wins over these.

docs/reference/spark-settings.md is written from this list.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

DELTA_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
DELTA_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"

#: Settings and options whose values are secrets.
_SECRET_NAMES = "(?i)secret|password|token|access[.]?key|credential|jaas|api[.]?key|authorization"

#: In a value: the number of tasks that can run at once.
CORES = "{cores}"

#: Where a setting is made: in every session, only if Spark runs in one process or on a cluster, or only in a JVM that
#: was started here and not by `spark-submit`.
Place = Literal["everywhere", "local", "cluster", "own JVM"]


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of Spark; `value` may hold `CORES`, and then is not set where that number is not known."""

    key: str
    value: str
    why: str
    place: Place = "everywhere"


PROFILE = (
    Setting(
        "spark.sql.catalog.spark_catalog",
        DELTA_CATALOG,
        "Tables are Delta's, also those that handlers and SQL name by path.",
    ),
    Setting(
        "spark.sql.session.timeZone",
        "UTC",
        "No result may depend on where the machine stands; and delta-rs takes the name UTC, not Etc/UTC.",
    ),
    Setting(
        "spark.anabranch.native",
        "true",
        "Flows over JSON are computed in the workers where the result is certain to be Spark's. `false`: by Spark; "
        "`audit`: Spark computes a sample of each epoch again.",
    ),
    Setting(
        "spark.sql.adaptive.enabled",
        "true",
        "Materialized views join and group tables at rest: their shuffles get as many tasks as their rows are worth.",
    ),
    Setting(
        "spark.sql.parquet.compression.codec",
        "zstd",
        "Files that Spark itself writes, in handlers, are like those of our own writer: smaller than with snappy.",
    ),
    Setting(
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled",
        "true",
        "Where state is in RocksDB, an epoch uploads what it changed and not the files of the store.",
    ),
    Setting(
        "spark.redaction.regex", _SECRET_NAMES, "What Spark blots out where it shows settings: its own words and more."
    ),
    Setting(
        "spark.sql.redaction.options.regex",
        f"{_SECRET_NAMES}|url",
        "The same for options of sources and sinks, whose URLs may hold a password.",
    ),
    Setting(
        "spark.sql.shuffle.partitions",
        CORES,
        "Spark's 200 tasks for each shuffle, and as many state stores, are for large clusters. A checkpoint keeps the "
        "number it was begun with.",
    ),
    Setting(
        "spark.python.daemon.module",
        "anabranch.engine.worker_daemon",
        "Arrow, DuckDB, pandas and the engine are imported once and not by every worker; pyspark is not taken from a "
        "zip file, which Python would compile each time.",
        "local",
    ),
    Setting(
        "spark.databricks.delta.snapshotPartitions",
        "1",
        "Delta replays its log with 50 tasks unless told otherwise: seconds for each look at a small table.",
        "local",
    ),
    Setting(
        "spark.databricks.delta.snapshotPartitions",
        CORES,
        "As many tasks as can run at once replay the log of a table, not 50.",
        "cluster",
    ),
    Setting(
        "spark.driver.host",
        "127.0.0.1",
        "The host's own name may not resolve, and nobody else needs to reach this driver.",
        "local",
    ),
    Setting("spark.driver.bindAddress", "127.0.0.1", "As above: nothing listens to the network.", "local"),
    Setting("spark.ui.enabled", "false", "Nobody was asked whether to open a port.", "own JVM"),
    Setting("spark.ui.showConsoleProgress", "false", "Bars of stages would be drawn over our own lines.", "own JVM"),
)


def profile(settings: Mapping[str, str], *, own_jvm: bool) -> dict[str, str]:
    """Our settings where Spark is to run with these `settings`, which say the master and, on a cluster, its size."""
    cores = cores_of(settings)
    wanted = {"everywhere", "local" if is_local(settings) else "cluster", *(["own JVM"] if own_jvm else [])}
    known = [s for s in PROFILE if s.place in wanted and (CORES not in s.value or cores is not None)]
    return {s.key: s.value.replace(CORES, str(cores)) for s in known}


def is_local(settings: Mapping[str, str]) -> bool:
    """Whether Spark's tasks run in the driver's own process."""
    return settings.get("spark.master", "local[*]").startswith("local")


def cores_of(settings: Mapping[str, str]) -> int | None:
    """How many tasks can run at once, if that is said.

    >>> cores_of({"spark.master": "local[3]"}), cores_of({"spark.master": "spark://m:7077", "spark.cores.max": "8"})
    (3, 8)
    >>> cores_of({"spark.master": "yarn", "spark.executor.instances": "4", "spark.executor.cores": "2"})
    8
    >>> cores_of({"spark.master": "spark://m:7077"})
    """
    if is_local(settings):
        said = re.fullmatch(r"local(?:\[(\d+|\*)(?:, *\d+)?\])?", settings.get("spark.master", "local[*]"))
        count = said[1] if said else "*"
        return _here() if count == "*" else int(count or 1)
    most = list(_numbers(settings, "spark.cores.max"))
    executors = list(_numbers(settings, "spark.executor.instances", "spark.executor.cores"))
    return most[0] if most else executors[0] * executors[1] if len(executors) == 2 else None


def _numbers(settings: Mapping[str, str], *keys: str) -> Iterator[int]:
    for key in keys:
        if settings.get(key, "").isdigit():
            yield int(settings[key])


def _here() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
