"""Unmodified files that say `from pyspark import pipelines as dp`: Spark's own declarations become ours.

The only module that knows `pyspark.pipelines`. Its decorators check little and hand what they got to the active
registry; ours takes it and checks it as our own decorators would.
"""

from __future__ import annotations

import dataclasses
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from pyspark.pipelines.flow import Flow
from pyspark.pipelines.graph_element_registry import GraphElementRegistry, graph_element_registration_context
from pyspark.pipelines.output import MaterializedView, Output, Sink, StreamingTable, Table, TemporaryView
from pyspark.pipelines.source_code_location import SourceCodeLocation

from anabranch.core.declarations import Kind
from anabranch.core.where import Where
from anabranch.errors import ProjectError
from anabranch.load.declare import Arguments, declare_dataset, declare_flow
from anabranch.load.registry import Registry
from anabranch.load.source import definition_of
from anabranch.load.sql_files import declare_sql

_KINDS: dict[type[Output], tuple[Kind, str]] = {
    StreamingTable: (Kind.STREAMING_TABLE, "dp.table"),
    MaterializedView: (Kind.MATERIALIZED_VIEW, "dp.materialized_view"),
    TemporaryView: (Kind.TEMPORARY_VIEW, "dp.temporary_view"),
    Sink: (Kind.SINK, "dp.create_sink"),
}


def capturing(registry: Registry) -> AbstractContextManager[None]:
    """What is declared through `pyspark.pipelines` inside goes to `registry`."""
    return graph_element_registration_context(_Capture(registry))


class _Capture(GraphElementRegistry):
    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def register_output(self, output: Output) -> None:
        kind, call = _KINDS[type(output)]
        taken = Arguments(call, _where(output.source_code_location), self._registry)
        said: dict[str, Any] = {"comment": output.comment}
        if isinstance(output, Table):
            stored = ("schema", "partition_cols", "cluster_by", "format", "table_properties")
            said |= {name: getattr(output, name) for name in stored}
        elif isinstance(output, Sink):
            said |= {"format": output.format, "options": output.options}
        declare_dataset(taken, kind, output.name, taken.where, **said)

    def register_flow(self, flow: Flow) -> None:
        where = _where(flow.source_code_location)
        taken = Arguments("dp.append_flow" if flow.name != flow.target else "dp.table", where, self._registry)
        if not taken.query(flow.func):
            return
        self._point_to_function(flow, where)
        self._registry.feeds(flow.func, declare_flow(taken, flow.name, flow.target, flow.func, flow.spark_conf))

    def _point_to_function(self, flow: Flow, where: Where) -> None:
        """A dataset declared by the same decorator as its flow is where the function is, as with our own module."""
        last = self._registry.datasets[-1] if self._registry.datasets else None
        if last is not None and last.name == flow.target and last.where == where:
            self._registry.datasets[-1] = dataclasses.replace(last, where=definition_of(flow.func) or where)

    def register_sql(self, sql_text: str, file_path: Path) -> None:
        declare_sql(sql_text, str(file_path), self._registry)

    def register_auto_cdc_flow(self, flow: Any) -> None:
        """Abstract from Spark 4.2 on: without it this class could not be instantiated there.

        Only who took the name from Spark before the load gets here; in the files themselves it is ours.
        """
        where = _where(flow.source_code_location)
        text = "create_auto_cdc_flow was taken from Spark outside the project's files"
        hint = "say `from pyspark import pipelines as dp` in the file that declares, and dp.create_auto_cdc_flow"
        self._registry.report(ProjectError("PROJECT_UNKNOWN_NAME", text, where=where, hint=hint))


def _where(location: SourceCodeLocation) -> Where:
    return Where(location.filename, location.line_number or 0)
