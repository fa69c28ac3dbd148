"""Look at the rows of a dataset without running anything: what its sources hold now, through its flows.

Nothing is written: no table, no checkpoint, no ledger, no schema of a source that is inferred.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.core.changes import DELETES, SEQUENCE, TRUNCATES
from anabranch.engine.flows import union_of
from anabranch.engine.planning import open_spark, plan_with_spark
from anabranch.engine.quality import kept
from anabranch.engine.sources_at_rest import at_rest
from anabranch.errors import ProjectError, did_you_mean

if TYPE_CHECKING:
    import pyarrow as pa

    from anabranch.core.events import Listener
    from anabranch.load.project import Project


def preview(project: Project, dataset: str, rows: int, listener: Listener) -> pa.Table:
    """Some rows that a dataset would be given if it were fed from the start; of changes by key, the changes."""
    spark = open_spark(project, listener, Path(tempfile.gettempdir()) / f"anabranch-{os.getpid()}")
    planned = plan_with_spark(project, spark, {}, pin=False)
    name = planned.graph.meaning(dataset)
    frames = [planned.frames[f.name] for f in planned.graph.feeding(name or "") if f.name in planned.frames]
    if name is None or not frames:
        known = [d.name for d in planned.graph.datasets.values()]
        raise ProjectError(
            "DATASET_UNKNOWN",
            f'"{dataset}" is no dataset of this pipeline that streams feed',
            hint=did_you_mean(dataset, known) or f"there are: {', '.join(known)}",
        )
    wanted = planned.graph.datasets[name]
    frame = union_of(frames)
    if SEQUENCE not in frame.columns:
        frame = kept(frame, wanted)
    found = at_rest(spark, frame, None)
    if found is None:
        raise ProjectError(
            "SOURCE_NOT_AT_REST",
            f'"{name}" reads a source whose rows can only be had by running: files and Kafka can be looked at',
            where=wanted.where,
            hint="run the pipeline with another storage folder, or a memory sink, and look at what comes out",
        )
    return found.drop(SEQUENCE, DELETES, TRUNCATES).limit(rows).toArrow()
