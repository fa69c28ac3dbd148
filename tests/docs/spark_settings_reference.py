"""Write docs/reference/spark-settings.md from the profile itself: `python tests/docs/spark_settings_reference.py`."""

from __future__ import annotations

from pathlib import Path

from anabranch.connectors import parquet_files as writer
from anabranch.engine import fuse, stateful
from anabranch.engine.compact import EVERY
from anabranch.engine.profile import CORES, PROFILE, Setting
from anabranch.engine.session import LOCAL_CHECKPOINT, STACK

TARGET = Path(__file__).parents[2] / "docs" / "reference" / "spark-settings.md"
HEAD = """# Spark settings

<!-- Written by tests/docs/spark_settings_reference.py from the profile itself. -->

What a session of Anabranch sets, and why. `configuration` in the [project file](project-file.md) wins over all of
these but the ones of single queries, and `--conf KEY=VALUE` of `anabranch run` wins over that. Under `spark-submit` its
own settings come between ours and those of the project; see [Run on a cluster](../how-to/run-on-a-cluster.md). A
session that was there before, as in a notebook, is left as it is.
"""
#: Settings of single queries, by the module that makes them, and what they are for.
QUERIES = {
    **dict.fromkeys(
        LOCAL_CHECKPOINT,
        "checkpoints: written aside and renamed, 30 to 100 ms an epoch faster on a local disk than Spark's default",
    ),
    "spark.sql.subexpressionElimination.skipForShortcutExpr": "fused flows: what one flow tests before it "
    "divides stays tested before",
    fuse.FOLLOWS_NAMES: "channels without state: with many names for one column the driver would run out of memory",
    **dict.fromkeys(stateful.UPDATING, "update flows: each was checked alone, and Spark would refuse two side by side"),
    stateful.PROVIDER: "flows with `transformWithState`, which needs RocksDB, unless another store was chosen",
}
VALUES = {
    **LOCAL_CHECKPOINT,
    **fuse.SETTINGS,
    fuse.FOLLOWS_NAMES: "false",
    **stateful.UPDATING,
    stateful.PROVIDER: "RocksDBStateStoreProvider",
}


def render() -> str:
    """The whole page."""
    return "\n".join([HEAD, *_sessions(), *_queries(), *_files(), *_left_alone()])


def _sessions() -> list[str]:
    places = {
        "everywhere": "In every session",
        "local": "On `local[*]`",
        "cluster": "On a cluster",
        "own JVM": "In a JVM of our own, not one that spark-submit started",
    }
    parts = []
    for place, title in places.items():
        rows = [_row(setting) for setting in PROFILE if setting.place == place]
        parts += [f"## {title}\n", "| setting | value | why |\n|---|---|---|", "\n".join(rows) + "\n"]
    words = "*cores* is how many tasks can run at once: the cores of `local[...]`, `spark.cores.max`, or instances of "
    words += "executors times their cores. Where none of these is said, the setting is left to Spark.\n"
    added = "Added to what a project says: the jars of Delta and others (`spark.jars`), Delta's extension "
    added += f"(`spark.sql.extensions`), and for a JVM of our own `{STACK}` and where it logs "
    return [*parts, words, added + "(`spark.driver.extraJavaOptions`).\n"]


def _row(setting: Setting) -> str:
    value = "*cores*" if setting.value == CORES else f"`{setting.value}`".replace("|", "\\|")
    return f"| `{setting.key}` | {value} | {setting.why} |"


def _queries() -> list[str]:
    rows = [f"| `{key}` | `{VALUES[key].split('.')[-1]}` | {why} |" for key, why in QUERIES.items()]
    return ["## For single queries\n", "| setting | value | for what |\n|---|---|---|", "\n".join(rows) + "\n"]


def _files() -> list[str]:
    rows = [
        f"| codec | {writer.COMPRESSION}, level {writer.COMPRESSION_LEVEL} | a third smaller than snappy for hardly "
        "more CPU, see [0014](../decisions/0014-zstd-and-file-sizes.md) | |",
        f"| size of a file | {writer.FILE_BYTES >> 20} MB | large enough to read in one go, small enough to be read in "
        f"parallel | property `{writer.TARGET_FILE_SIZE}` of a Delta table |",
        f"| row groups | {writer.ROW_GROUP_ROWS:,} rows or {writer.ROW_GROUP_BYTES >> 20} MB | bounds what waits in "
        "memory | |",
        "| files of an epoch | at most one for each core, output and partition value | optimised writes without a "
        "shuffle | `trigger`, `maxFilesPerTrigger` |",
        f"| compaction | every {EVERY} epochs, where there are 50 files of less than half the size | readers pay for "
        "each file | property `anabranch.compact` = `false` |",
    ]
    head = "| what | value | why | otherwise |\n|---|---|---|---|"
    return [
        "## Files, by our own writer\n",
        "Tables are not written by Spark, so these are not settings of Spark.\n",
        head,
        "\n".join(rows) + "\n",
    ]


def _left_alone() -> list[str]:
    items = [
        "`spark.sql.streaming.noDataMicroBatches.enabled` stays on: windows that a watermark has closed come out "
        "without waiting for new rows.",
        "`spark.databricks.delta.optimizeWrite.enabled` and `autoCompact.enabled` stay off: they cost a shuffle or a "
        "second write, and our tables do without. Turn them on for what functions of `foreach_batch_sink` write "
        "with Spark.",
        "`spark.sql.streaming.stateStore.providerClass` stays with the store in memory where RocksDB is not needed. "
        "For state that does not fit into memory choose RocksDB before the first run: a checkpoint keeps its store.",
        "Executors, memory and cores are those of your cluster: nothing is said about them.",
    ]
    return ["## Left to Spark on purpose\n", "\n".join(f"- {text}" for text in items) + "\n"]


if __name__ == "__main__":
    TARGET.write_text(render(), encoding="utf-8")
