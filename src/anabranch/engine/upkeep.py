"""Upkeep of a pipeline that is not running: recover it, start a channel over, remove files no retained cut needs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from anabranch.connectors.contract import Versioned
from anabranch.core.declarations import Dataset
from anabranch.core.events import Listener
from anabranch.engine.lease import lease
from anabranch.engine.opened import Opened
from anabranch.engine.recover import Recovered, recover
from anabranch.errors import ProjectError, did_you_mean
from anabranch.load.python_files import examine_pipeline

_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Vacuumed:
    """What vacuum removed, or would remove."""

    table: str
    files: tuple[str, ...]


def declared_outputs(opened: Opened) -> tuple[Dataset, ...]:
    """The outputs that the project declares, as far as its files can be loaded without Spark.

    They say how to reach other systems. Functions of the project are left out: they need a run.
    """
    outputs = (d for d in examine_pipeline(opened.project, with_spark=False).pipeline.datasets if d.is_output)
    return tuple(replace(d, handler=None) for d in outputs)


def recover_all(opened: Opened, listener: Listener, declared: Sequence[Dataset] = ()) -> dict[str, Recovered]:
    """Recover every channel, as a run would at its start. Some sinks can be finished only if they are `declared`."""
    done = {}
    for channel in opened.ledger.channels(opened.pipeline.pipeline_id):
        with lease(opened, channel.channel) as (held, _):
            done[channel.channel] = recover(opened.ledger, held, opened.sinks(channel.outputs, declared), listener)
    return done


def reset(opened: Opened, channel: str) -> int:
    """Begin a new generation of a channel: its next run reads the sources from the start.

    The first epoch of the new generation replaces what the tables hold; until it is published readers of the cut keep
    the last one.
    """
    names = [c.channel for c in opened.ledger.channels(opened.pipeline.pipeline_id)]
    if channel not in names:
        raise ProjectError(
            "CHANNEL_UNKNOWN",
            f'no channel "{channel}"',
            hint=did_you_mean(channel, names) or f"channels there: {', '.join(names) or 'none'}",
        )
    with lease(opened, channel) as (held, _):
        return opened.ledger.new_generation(held)


def vacuum(opened: Opened, *, dry_run: bool) -> list[Vacuumed]:
    """Forget cuts older than the retention, then remove data files that neither a table nor a retained cut needs."""
    ledger, pipeline = opened.ledger, opened.pipeline.pipeline_id
    horizon = time.time() - opened.project.retention_seconds
    done: list[Vacuumed] = []
    for channel in ledger.channels(pipeline):
        # The lease keeps a run from staging files while the folders are listed.
        with lease(opened, channel.channel):
            if not dry_run:
                ledger.prune(pipeline, channel.channel, published_before=horizon)
            needed = ledger.retained(pipeline, published_since=horizon)
            for output in channel.outputs:
                sink = opened.sinks([output])[output.name]
                if isinstance(sink, Versioned):
                    versions = {t.version for t in needed if t.location == output.location}
                    hours = opened.project.retention_seconds / _HOUR
                    files = sink.vacuum(versions, older_than_hours=hours, dry_run=dry_run)
                    done.append(Vacuumed(output.name, tuple(files)))
    return done
