"""Entities as datasets and flows: a view of the source, and a table for each zone, all in one epoch."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from anabranch.core.changes import Changes
from anabranch.core.declarations import Action, Dataset, Expectation, Flow, Kind, Unique
from anabranch.core.zones import Entity, Zone
from anabranch.load.zones_entities import entities
from anabranch.load.zones_files import ZoneFiles

if TYPE_CHECKING:
    from anabranch.load.registry import Registry

#: What turns entities into frames; it needs Spark, and is called when the flows are.
_ROWS = "anabranch.engine.zone_rows"


def declare_zones(files: ZoneFiles, registry: Registry) -> None:
    """Add what the entities of a project declare."""
    for entity in entities(files, registry.transformers, registry.report):
        _declare(entity, registry)


def _declare(entity: Entity, registry: Registry) -> None:
    before = f"{entity.name}_source"
    _view(registry, entity, before, _later("source_rows", entity), (), _readable(entity), f"{entity.name}_dead_letters")
    table = before
    audited = False
    for zone in entity.zones:
        audited = audited or any(step.name == "audit" for step in zone.steps)
        # A zone on its own cadence reads the table before it; the others go on with the rows themselves.
        reads = table if zone.cadence else before
        rows = _later("zone_rows", entity, zone, reads)
        if zone.upsert:
            before = f"{zone.table}_rows"
            _view(registry, entity, before, rows, (reads,), _expectations(zone), f"{zone.table}_quarantine")
            _table(registry, entity, zone, audited=audited)
            changes = Changes(before, zone.keys, zone.sequence_by, zone.deletes, scd_type=2 if zone.history else 1)
            _flow(registry, zone.table, zone, _later("rows_of", before), (before,), changes)
        else:
            _table(registry, entity, zone, audited=audited, rules=_expectations(zone))
            _flow(registry, zone.table, zone, rows, (reads,))
            before = zone.table
        table = zone.table


def _later(function: str, *arguments: Any) -> Callable[[], Any]:
    def query() -> Any:
        return getattr(import_module(_ROWS), function)(*arguments)

    return query


def _readable(entity: Entity) -> tuple[Expectation, ...]:
    if not entity.reading.letters:
        return ()
    return (Expectation("readable", "_dead_letter IS NULL", Action.QUARANTINE, entity.reading.where),)


def _expectations(zone: Zone) -> tuple[Expectation, ...]:
    return tuple(rule for rule in zone.rules if isinstance(rule, Expectation))


def _view(
    registry: Registry,
    entity: Entity,
    name: str,
    query: Callable[[], Any],
    inputs: tuple[str, ...],
    rules: tuple[Expectation, ...],
    aside: str,
) -> None:
    where = entity.where
    registry.add_dataset(Dataset(name, Kind.TEMPORARY_VIEW, where, expectations=rules, quarantine=aside))
    registry.add_flow(Flow(name, name, query, where, inputs), inputs_said=True)


def _table(
    registry: Registry, entity: Entity, zone: Zone, *, audited: bool, rules: tuple[Expectation, ...] = ()
) -> None:
    registry.add_dataset(
        Dataset(
            zone.table,
            Kind.STREAMING_TABLE,
            zone.where,
            comment=zone.comment,
            partition_by=zone.partition_by,
            format=zone.format,
            options=zone.options,
            properties=zone.properties,
            expectations=rules,
            unique=tuple(rule for rule in zone.rules if isinstance(rule, Unique)),
            trigger=zone.cadence or entity.trigger,
            detached=zone.cadence is not None,
            observe=zone.observe,
            owner=entity.owner,
            tags=entity.tags,
            epoch_column="_epoch" if audited else None,
        )
    )


def _flow(
    registry: Registry,
    table: str,
    zone: Zone,
    query: Callable[[], Any],
    inputs: tuple[str, ...],
    changes: Changes | None = None,
) -> None:
    registry.add_flow(Flow(table, table, query, zone.where, inputs, changes=changes), inputs_said=True)
