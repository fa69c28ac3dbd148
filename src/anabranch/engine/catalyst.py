"""The looks inside Spark that its Python API does not offer, through py4j: `catalyst*` and `fuse` are all of them.

Each call here has a test; an upgrade of Spark fails in `check_version` first and nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from copy import copy
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote, urlsplit

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from anabranch.core.epoch import digest
from anabranch.core.hidden import hide
from anabranch.engine.catalyst_nodes import Node, analyzed, children_of, items, kind, nodes, queries_in, said
from anabranch.errors import SetupError

if TYPE_CHECKING:
    import pyarrow as pa

#: The minor versions whose internals were tried.
SUPPORTED = ("4.1.",)

#: Options that tell one source from another. Never credentials: what is found here is stored.
_IDENTIFYING = ("path", "subscribe", "subscribepattern", "assign", "topic", "dbtable", "rowspersecond")

#: The column with a file's path, size and time, which Spark adds to a source where a query asks for it.
METADATA_COLUMN = "_metadata"

#: Expressions that ask for the time of the batch.
CLOCKS = ("CurrentTimestamp", "Now")

_EPOCH = datetime.fromtimestamp(0, UTC)

#: Attributes that others stand for: the identity of the old one, the old one, the new one.
Replaced = Mapping[int, tuple[Node, Node]]


def check_version(spark: SparkSession) -> None:
    """Refuse a Spark whose internals nobody looked at."""
    if not spark.version.startswith(SUPPORTED):
        raise SetupError(
            "SPARK_VERSION",
            f"Spark {spark.version} is running; this version was made for {', '.join(SUPPORTED)}x",
            hint="install the pyspark that anabranch asks for",
        )


def views_read(frame: DataFrame) -> set[str]:
    """The temporary views that a frame's query names; not those that these were made of."""

    def named(plan: Node) -> Iterator[str]:
        if kind(plan) == "View" and plan.isTempView():
            yield plan.desc().identifier().table()
            return
        for node in (*children_of(plan), *queries_in(plan)):
            yield from named(node)

    return set(named(analyzed(frame)))


def is_source(node: Node) -> bool:
    """Whether a node is a streaming source."""
    return kind(node) in ("StreamingRelation", "StreamingRelationV2")


def sources(frame: DataFrame) -> tuple[str, ...]:
    """A line for each place where a streaming source stands in a frame's plan.

    Spark's checkpoint has one offset for each of these places, in this order: the same source read by two branches of
    a union is one source in two places.
    """
    return tuple(describe(node) for node in nodes(analyzed(frame)) if is_source(node))


def source_numbers(frame: DataFrame) -> tuple[int, ...]:
    """For each of `sources`, which one it is: Spark's checkpoint has one folder for each that is not the same."""
    known: list[Node] = []
    numbers = []
    for node in (node for node in nodes(analyzed(frame)) if is_source(node)):
        number = next((i for i, other in enumerate(known) if node.equals(other)), len(known))
        known += [node] if number == len(known) else []
        numbers.append(number)
    return tuple(numbers)


def options_of_sources(frame: DataFrame) -> list[dict[str, str]]:
    """The options of each source, in the order of `sources`. May hold credentials."""
    return [source_options(node)[1] for node in nodes(analyzed(frame)) if is_source(node)]


def describe(relation: Node) -> str:
    """A streaming source in one line that may be stored and shown."""
    name, options = source_options(relation)
    shown = {key: value for key, value in options.items() if key in _IDENTIFYING}
    return " ".join([name, *(f"{key}={value}" for key, value in sorted(shown.items()))])


def same_source(relation: Node) -> tuple[Any, ...]:
    """Equal for two relations that read the same thing in the same way. Holds options: not to be stored or shown."""
    name, options = source_options(relation)
    columns = tuple(
        (a.name(), a.dataType().catalogString()) for a in items(relation.output()) if a.name() != METADATA_COLUMN
    )
    return kind(relation), name, tuple(sorted(options.items())), columns


def source_options(relation: Node) -> tuple[str, dict[str, str]]:
    """The format of a streaming source and its options, in lower case. May hold credentials."""
    if kind(relation) == "StreamingRelation":
        pairs = items(relation.dataSource().options().toSeq())
        options = {pair._1(): pair._2() for pair in pairs}  # noqa: SLF001
        return relation.dataSource().className(), {k.lower(): v for k, v in options.items()}
    options = dict(relation.extraOptions().asCaseSensitiveMap())
    return relation.sourceName(), {k.lower(): v for k, v in options.items()}


def fingerprint(frame: DataFrame) -> str:
    """Equal for two frames that compute the same of the same tables, in whatever version these are."""
    return digest(analyzed(frame).canonicalized().toString())


def meaning(frame: DataFrame) -> str:
    """Equal for two frames that Spark would compute in the same way, however they are written."""
    execution = frame._jdf.queryExecution()  # noqa: SLF001
    plan = execution.analyzed()
    with suppress(PySparkException, Py4JJavaError):  # constants that overflow: the flow says so when it runs
        plan = execution.sparkSession().sessionState().optimizer().execute(plan)
    text = plan.canonicalized().toString()
    # A streaming source and a Python function are shown with the identity of their object.
    # Another password is not another query.
    return digest(re.sub(r"@[0-9a-f]{4,}|0x[0-9a-f]+|#\d+L?", "", hide(text)))


def reads_only(frame: DataFrame, locations: Collection[str]) -> bool:
    """Whether a query depends on nothing but tables at these places: no other source, clock, chance or Python code."""
    plan = analyzed(frame)
    patterns = frame.sparkSession._jvm.org.apache.spark.sql.catalyst.trees.TreePattern  # type: ignore[union-attr]  # noqa: SLF001
    for node in nodes(plan):
        if not node.deterministic() or any(
            node.containsPattern(getattr(patterns, name)()) for name in ("CURRENT_LIKE", "PYTHON_UDF", "SCALA_UDF")
        ):
            return False
        if children_of(node) or kind(node) in ("OneRowRelation", "LocalRelation"):
            continue
        if kind(node) != "LogicalRelation" or not _is_at(node, locations):
            return False
    return True


def _is_at(relation: Node, locations: Collection[str]) -> bool:
    roots = [urlsplit(str(path)).path for path in items(relation.relation().location().rootPaths())]
    return all(unquote(root).rstrip("/") in {place.rstrip("/") for place in locations} for root in roots)


def collect_arrow(frame: DataFrame) -> list[pa.RecordBatch]:
    """The rows of a frame as Spark gives them.

    `toArrow` casts them to the very same types, which pyarrow refuses where a field that is never null stands in a
    struct that is.
    """
    batches: list[pa.RecordBatch] = frame._collect_as_arrow()  # type: ignore[operator]  # noqa: SLF001
    return batches


def frame_of(session: SparkSession, rows: pa.Table, types: StructType) -> DataFrame:
    """A frame of rows that are here.

    `createDataFrame` makes its session the active one of the whole process: in an epoch that is one of the query's own,
    which whoever asks later for the session would be given.
    """
    zone = str(session.conf.get("spark.sql.session.timeZone"))
    made: DataFrame = session._create_from_arrow_table(rows, types, zone)  # noqa: SLF001
    return made


def too_large_for_driver(error: Exception) -> bool:
    """Whether Spark gave up because the rows are more than a driver may collect."""
    return "spark.driver.maxResultSize" in str(error)


class _Classes:
    """The classes of a package, each looked up once."""

    def __init__(self, package: Any) -> None:
        self._package = package

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._package, name)
        setattr(self, name, found)
        return found


def catalyst_of(spark: SparkSession) -> Catalyst:
    """What makes plans and expressions for a session. Every class costs messages to be found; they are found once."""
    found: Catalyst = said(spark._jvm, "catalyst", lambda _: Catalyst(spark))  # noqa: SLF001
    return found.of(spark)


class Catalyst:
    """Makes plans and expressions."""

    def __init__(self, spark: SparkSession) -> None:
        check_version(spark)
        self._spark = spark
        jvm: Any = spark._jvm  # noqa: SLF001
        self._jvm = cast(Any, jvm)
        catalyst = self._jvm.org.apache.spark.sql.catalyst
        #: The package of expressions: `catalyst.e.And(a, b)`.
        self.e = _Classes(catalyst.expressions)
        self._plans = _Classes(catalyst.plans.logical)
        self._optimizer = _Classes(catalyst.optimizer)
        self._types = _Classes(self._jvm.org.apache.spark.sql.types.DataTypes)
        self._lists = _Classes(self._jvm.java.util)
        self._converters = _Classes(self._jvm.scala.jdk.javaapi.CollectionConverters)
        self._patterns = _Classes(catalyst.trees.TreePattern)
        self._python = self._patterns.PYTHON_UDF()
        #: Scala's None.
        self.nothing = getattr(getattr(self._jvm.scala, "None$"), "MODULE$")
        self._empty = self.seq([])
        self._new_number = getattr(getattr(self.e, "NamedExpression$"), "MODULE$").newExprId
        self._attribute_map = getattr(getattr(self.e, "AttributeMap$"), "MODULE$").apply
        self._pair = self._jvm.scala.Tuple2

    def of(self, spark: SparkSession) -> Catalyst:
        """The same for another session: each batch of a stream comes with one of its own."""
        found = copy(self)
        found._spark = spark  # noqa: SLF001
        return found

    def seq(self, things: Iterable[Any]) -> Any:
        """A Scala sequence."""
        together = self._lists.ArrayList()
        for thing in things:
            together.add(thing)
        return self._converters.asScala(together).toSeq()

    def calls_python(self, node: Node) -> bool:
        """Whether a plan or an expression calls a Python function, in itself or below."""
        found: bool = node.containsPattern(self._python)
        return found

    def unites(self, plan: Node) -> bool:
        """Whether there is a union in a plan."""
        found: bool = plan.containsPattern(self._patterns.UNION())
        return found

    def alias(self, expression: Node, name: str, like: Node | None = None) -> Node:
        """An expression with a name; `like` gives it the identity of another alias or attribute."""
        number = like.exprId() if like is not None else self._new_number()
        return self.e.Alias(expression, name, number, self._empty, self.nothing, self._empty)

    def integer(self, value: int) -> Node:
        """A whole number."""
        return self.e.Literal(value, self._types.IntegerType)

    @cached_property
    def false(self) -> Node:
        """The truth value."""
        return self.e.Literal(False, self._types.BooleanType)

    def null(self, data_type: Any) -> Node:
        """Nothing, of a type."""
        return self.e.Literal(None, data_type)

    def project(self, expressions: Iterable[Node], plan: Node) -> Node:
        """A projection."""
        return self._plans.Project(self.seq(expressions), plan)

    def adding(self, expressions: Iterable[Node], plan: Node) -> Node:
        """A projection that keeps every column of a plan."""
        return self._plans.Project(plan.output().appendedAll(self.seq(expressions)), plan)

    def exploded(self, array: Node, attribute: Node, plan: Node) -> Node:
        """A row for each element of an array, which becomes an attribute."""
        # Of an inner explode Spark may infer a filter that computes the array, and so parses its JSON, once more.
        explode = self.e.Explode(array)
        return self._plans.Generate(explode, self._empty, True, self.nothing, self.seq([attribute]), plan)

    def filtered(self, condition: Node, plan: Node) -> Node:
        """The rows for which a condition holds, and everything below computed once.

        Spark would move the condition below the projections that compute what it tests, and so compute that twice. It
        moves nothing below a column that is not deterministic: here the number of the partition, which costs nothing.
        """
        number = self.alias(self.e.SparkPartitionID(), "partition")
        here = self.e.GreaterThanOrEqual(number.toAttribute(), self.integer(0))
        return self._plans.Filter(self.e.And(condition, here), self.adding([number], plan))

    def inlined(self, plan: Node) -> Node:
        """The plan with the queries of its WITH clauses put where they are read, as the optimizer would."""
        if not plan.containsPattern(self._patterns.CTE()):
            return plan
        return self._optimizer.InlineCTE(False, False).apply(plan)

    def with_children(self, plan: Node, children: Iterable[Node]) -> Node:
        """The node over other children."""
        return plan.withNewChildren(self.seq(children))

    def rewrite(self, plan: Node, replaced: Replaced) -> Node:
        """The node, its children left alone, with attributes replaced."""
        if not replaced:
            return plan
        return plan.rewriteAttrs(self._attribute_map(self.seq(self._pair(old, new) for old, new in replaced.values())))

    def setting(self, key: str) -> str:
        """A setting of the session."""
        return str(self._spark.conf.get(key))

    def at_time(self, plan: Node, now: datetime) -> Node:
        """The plan with every question what time it is answered."""
        if not plan.containsPattern(self._patterns.CURRENT_LIKE()):
            return plan
        micros = round((now - _EPOCH) / timedelta(microseconds=1))
        return self._answered(plan, self.e.Literal(micros, self._types.TimestampType))

    def _answered(self, node: Node, time: Node) -> Node:
        if not node.containsPattern(self._patterns.CURRENT_LIKE()):
            return node
        if kind(node) in CLOCKS:
            return time
        node = self.with_children(node, [self._answered(child, time) for child in children_of(node)])
        if kind(node) == "Project":
            return self.project([self._answered(e, time) for e in items(node.projectList())], node.child())
        if kind(node) == "Filter":
            return self._plans.Filter(self._answered(node.condition(), time), node.child())
        return node

    def frame(self, plan: Node) -> DataFrame:
        """A frame of a plan."""
        session = self._spark._jsparkSession  # noqa: SLF001
        return DataFrame(self._jvm.org.apache.spark.sql.classic.Dataset.ofRows(session, plan), self._spark)


def check_appends(frame: DataFrame, *, updates: bool = False) -> None:
    """Raise Spark's own exception if a streaming query cannot do with adding rows, or cannot be run as a stream.

    With `updates` it may give rows again that have changed.
    """
    jvm: Any = frame.sparkSession._jvm  # noqa: SLF001
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    modes = jvm.org.apache.spark.sql.streaming.OutputMode
    checker.checkForStreaming(analyzed(frame), modes.Update() if updates else modes.Append())


def keeps_state(plan: Node) -> bool:
    """Whether a streaming plan has an operator that remembers rows from one batch to the next."""
    return any(_is_stateful(node) and node.isStreaming() for node in nodes(plan))


def _is_stateful(node: Node) -> bool:
    if kind(node) == "Join":
        return all(child.isStreaming() for child in children_of(node))
    return kind(node) in _STATEFUL or "WithState" in kind(node)


_STATEFUL = ("Aggregate", "Distinct", "Deduplicate", "DeduplicateWithinWatermark", "GlobalLimit")


def batch_keeps_state(batch: DataFrame) -> bool:
    """Whether the query that a micro-batch comes from keeps state: a batch has no plan of it, only what computes it."""
    lineage: str = batch._jdf.queryExecution().toRdd().toDebugString()  # noqa: SLF001
    return "StateStore" in lineage


def transforms_with_state(frame: DataFrame) -> bool:
    """Whether a query uses `transformWithState`, for which not every state store will do."""
    return any(kind(node).startswith("TransformWithState") for node in nodes(analyzed(frame)))


def watermarks(frame: DataFrame) -> dict[tuple[str, ...], int]:
    """The delays of a streaming query's watermarks in milliseconds, by the column and the sources they look at."""
    jvm: Any = frame.sparkSession._jvm  # noqa: SLF001
    companion = getattr(jvm.org.apache.spark.sql.catalyst.plans.logical, "EventTimeWatermark$")
    delay_of = getattr(companion, "MODULE$").getDelayMs
    found: dict[tuple[str, ...], int] = {}
    for node in nodes(analyzed(frame)):
        if kind(node) == "EventTimeWatermark" and node.isStreaming():
            looked_at = sorted({describe(below) for below in nodes(node) if is_source(below)})
            clock = (node.eventTime().name(), *looked_at)
            found[clock] = max(found.get(clock, 0), delay_of(node.delay()))
    return found
