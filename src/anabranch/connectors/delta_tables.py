"""Which of the two Delta sinks an output needs."""

from __future__ import annotations

from anabranch.connectors.contract import Sink, SinkSpec
from anabranch.connectors.delta import DeltaSink
from anabranch.connectors.delta_changes import DeltaChanges, has_changes


def open_delta(spec: SinkSpec) -> Sink:
    """The sink of a Delta table.

    A table that has a log of changes is opened with it, whatever is declared by now: an epoch may wait to be finished.
    Such a table needs no rules: those that it may have are true by themselves.
    """
    how = (spec.name, spec.location, spec.partition_by, spec.properties, spec.comment)
    if spec.merge or has_changes(spec.location):
        return DeltaChanges(*how, pipeline=spec.pipeline, merge=spec.merge)
    return DeltaSink(*how, pipeline=spec.pipeline, unique=spec.unique)
