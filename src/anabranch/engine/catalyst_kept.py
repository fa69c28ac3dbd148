"""A physical plan that is made once, and put over other rows: to optimize and plan a query costs more than a few rows.

Only plans of nodes that take rows one by one: others may keep what they computed, and would give it again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from anabranch.engine.catalyst_nodes import Node, analyzed, children_of, items, kind, nodes

_ROW_BY_ROW = ("WholeStageCodegenExec", "InputAdapter", "ProjectExec", "FilterExec", "GenerateExec", "ExpandExec")
_SCAN = "RDDScanExec"
_RDD = 1  # which of its arguments are the rows


@dataclass(frozen=True)
class KeptPlan:
    """The plan of a frame over rows that were sent to Spark. Every message to the JVM costs: few are needed."""

    session: SparkSession
    schema: Any  # of the frame
    above: tuple[Node, ...]  # what is done with the rows, from the top of the physical plan
    scan: Node  # of the rows
    arguments: Any  # of the scan
    nothing: Any  # an empty sequence

    @classmethod
    def of(cls, frame: DataFrame) -> KeptPlan | None:
        """None if a part of the plan may remember rows, or the rows come in at several places."""
        top: Node = frame._jdf.queryExecution().executedPlan()  # noqa: SLF001
        *above, scan = nodes(top)
        if kind(scan) != _SCAN or any(kind(node) not in _ROW_BY_ROW or len(children_of(node)) != 1 for node in above):
            return None
        session = frame.sparkSession
        gateway: Any = session.sparkContext._gateway  # noqa: SLF001
        given = items(scan.productIterator().toSeq())
        arguments = gateway.new_array(gateway.jvm.Object, len(given))
        for number, one in enumerate(given):
            arguments[number] = one
        return cls(session, frame._jdf.schema(), tuple(above), scan, arguments, scan.children())  # noqa: SLF001

    def over(self, rows: DataFrame) -> DataFrame:
        """The same over other rows, which come in the same way: `analyzed` has them as they are, in an RDD."""
        self.arguments[_RDD] = analyzed(rows).rdd()
        node = self.scan.makeCopy(self.arguments)
        for one in reversed(self.above):
            node = one.withNewChildren(self.nothing.prepended(node))
        given = self.session._jsparkSession.internalCreateDataFrame(node.execute(), self.schema, False)  # noqa: SLF001
        return DataFrame(given, self.session)
