"""The few looks inside Spark that its Python API does not offer, through py4j, all in this file.

Each call here has a test; an upgrade of Spark fails in `check_version` first and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from anabranch.errors import SetupError

#: The minor versions whose internals were tried.
SUPPORTED = ("4.1.",)

#: Options that tell one source from another. Never credentials: what is found here is stored.
_IDENTIFYING = ("path", "subscribe", "subscribepattern", "assign", "topic", "dbtable", "rowspersecond")


def check_version(spark: SparkSession) -> None:
    """Refuse a Spark whose internals nobody looked at."""
    if not spark.version.startswith(SUPPORTED):
        raise SetupError(
            "SPARK_VERSION",
            f"Spark {spark.version} is running; this version was made for {', '.join(SUPPORTED)}x",
            hint="install the pyspark that anabranch asks for",
        )


def views_read(frame: DataFrame) -> set[str]:
    """The temporary views that a frame's query went through, by name."""
    return {
        node.desc().identifier().table()
        for node in _nodes(_analyzed(frame))
        if node.getClass().getSimpleName() == "View" and node.isTempView()
    }


def sources(frame: DataFrame) -> tuple[str, ...]:
    """A line for each streaming source of a frame, in the order in which its checkpoint numbers them."""
    found: list[Any] = []
    for node in _nodes(_analyzed(frame)):
        streaming = node.getClass().getSimpleName() in ("StreamingRelation", "StreamingRelationV2")
        # One relation used twice is one source, as in Spark's own bookkeeping.
        if streaming and not any(node.fastEquals(other) for other in found):
            found.append(node)
    return tuple(_describe(node) for node in found)


def _describe(relation: Any) -> str:
    if relation.getClass().getSimpleName() == "StreamingRelation":
        name, options = relation.dataSource().className(), _pairs(relation.dataSource().options())
    else:
        name, options = relation.sourceName(), dict(relation.extraOptions().asCaseSensitiveMap())
    shown = {key.lower(): value for key, value in options.items() if key.lower() in _IDENTIFYING}
    return " ".join([name, *(f"{key}={value}" for key, value in sorted(shown.items()))])


def _analyzed(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().analyzed()  # noqa: SLF001


def _nodes(plan: Any) -> Iterator[Any]:
    """Every node of a plan and of the queries inside its expressions, top down and left to right."""
    yield plan
    for inner in (plan.children(), plan.subqueries()):
        for position in range(inner.size()):
            yield from _nodes(inner.apply(position))


def _pairs(scala_map: Any) -> dict[str, str]:
    pairs = scala_map.toSeq()
    return {pairs.apply(i)._1(): pairs.apply(i)._2() for i in range(pairs.size())}  # noqa: SLF001
