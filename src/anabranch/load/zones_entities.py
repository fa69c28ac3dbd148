"""Decide what each entity is: its reading, its zones, their tables and rules. All that is wrong is reported."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from anabranch.core.declarations import Action, Expectation, Unique
from anabranch.core.where import Where
from anabranch.core.zones import Entity, Reading, Step, Zone
from anabranch.errors import ProjectError, did_you_mean
from anabranch.load.zones_files import Said, ZoneFiles
from anabranch.load.zones_layers import Layers
from anabranch.load.zones_models import EntitySpec, RuleSpec, ZoneSpec
from anabranch.load.zones_steps import called_steps
from anabranch.load.zones_transformers import Registered

Report = Callable[[ProjectError], None]

#: What a table is called unless its zone says otherwise.
TABLE = "{zone}.{entity}"
#: Formats whose records can be malformed one by one.
_OF_RECORDS = ("json", "csv", "kafka")


@dataclass(frozen=True, slots=True)
class _Of:
    """One entity while it is being decided."""

    name: str
    said: Said[EntitySpec]
    files: ZoneFiles
    functions: Mapping[str, Registered]
    report: Report

    def fault(self, code: str, text: str, where: Where, hint: str) -> None:
        self.report(ProjectError(code, f'entity "{self.name}": {text}', where=where, hint=hint))

    def layers(self, *nearer: Said[Any] | None) -> Layers:
        return Layers([*(each for each in nearer if each), *self.files.defaults])


def entities(files: ZoneFiles, functions: Mapping[str, Registered], report: Report) -> list[Entity]:
    """The entities that are enabled; one that is faulty is reported and left out."""
    found = []
    for name, said in files.entities.items():
        faults: list[ProjectError] = []
        one = _entity(_Of(name, said, files, functions, faults.append)) if said.spec.enabled else None
        for fault in faults:
            report(fault)
        if one and not faults:
            found.append(one)
    return found


def _entity(of: _Of) -> Entity | None:
    zones = _zones(of)
    reading = _reading(of)
    if reading is None:
        return None
    audited = any(step.name == "audit" for zone in zones for step in zone.steps)
    layers = of.layers(of.said)
    return Entity(
        of.name,
        of.said.where(),
        replace(reading, origin=audited),
        tuple(zones),
        layers.get("trigger"),
        layers.get("owner"),
        layers.together("tags"),
        of.said.spec.description,
    )


def _reading(of: _Of) -> Reading | None:
    source = _source(of)
    layers = of.layers(of.said, source)
    spec = of.said.spec
    kind = layers.get("format") or ("kafka" if layers.get("topic") else None)
    if kind is None or (kind == "kafka" and not layers.get("topic")) or (kind != "kafka" and not layers.get("path")):
        missing = "topic" if kind == "kafka" else "path" if kind else "source, or format and path,"
        hint = "name one of `sources`, or say `format` with `path`, or `topic` with `bootstrap`"
        of.fault("ENTITY_INCOMPLETE", f"says no {missing} to read", of.said.where(), hint)
        return None
    if kind == "kafka" and not layers.get("bootstrap"):
        hint = "add `bootstrap: host:9092` to the source"
        of.fault("ENTITY_INCOMPLETE", "has a topic without the address of its brokers", layers.where("topic"), hint)
    if spec.record_schema is not None and spec.fields is not None:
        hint = "keep one of them"
        of.fault("ENTITY_INCOMPLETE", "has both `schema` and `fields`", of.said.where("fields"), hint)
    if kind == "kafka" and not (spec.record_schema or spec.fields):
        hint = "add `schema` or `fields`: values are read as JSON"
        of.fault("ENTITY_INCOMPLETE", "reads a topic without saying what is in it", of.said.where(), hint)
    if layers.get("envelope") and kind != "json":
        hint = "leave `envelope` out, or say format: json"
        of.fault("ENTITY_INCOMPLETE", f"has an envelope around {kind}", layers.where("envelope"), hint)
    clean = layers.get("clean")
    if (clean == "archive") != (layers.get("archive") is not None):
        place = layers.where("clean" if clean == "archive" else "archive")
        of.fault("ENTITY_INCOMPLETE", "`clean: archive` and `archive` go together", place, "say both, or none")
    return Reading(
        kind,
        of.said.where(),
        _path(of, layers.get("path")) if kind != "kafka" else None,
        _named(of, layers.get("topic")) if kind == "kafka" else None,
        layers.get("bootstrap"),
        layers.get("starting"),
        layers.get("envelope"),
        spec.record_schema or spec.fields,
        layers.together("reader"),
        layers.get("max_files"),
        layers.get("max_per_trigger"),
        None if clean == "keep" else clean,
        _path(of, layers.get("archive")),
        spec.explode,
        letters=kind in _OF_RECORDS,
    )


def _source(of: _Of) -> Said[Any] | None:
    layers = of.layers(of.said)
    name = layers.get("source")
    if name is None or name in of.files.sources:
        return of.files.sources.get(name or "")
    known = ", ".join(of.files.sources) or "none"
    hint = did_you_mean(name, of.files.sources) or f"sources there are: {known}"
    of.fault("ENTITY_UNKNOWN_SOURCE", f'there is no source "{name}"', layers.where("source"), hint)
    return None


def _named(of: _Of, text: str | None) -> str | None:
    return None if text is None else text.replace("{entity}", of.name)


def _path(of: _Of, text: str | None) -> str | None:
    """Paths start from the project's folder; addresses stay as they are."""
    named = _named(of, text)
    if named is None or "://" in named or named.startswith("file:"):
        return named
    return str(of.files.root / Path(named).expanduser())


def _zones(of: _Of) -> list[Zone]:
    own = {name: Said(spec, of.said.file, (*of.said.steps, "zones", name)) for name, spec in of.said.spec.zones.items()}
    names = list(of.files.zones or own)
    for name in (name for name in own if name not in names):
        hint = did_you_mean(name, names) or f"zones there are: {', '.join(names)}"
        of.fault("ENTITY_UNKNOWN_ZONE", f'there is no zone "{name}"', own[name].where(), hint)
    found: list[Zone] = []
    enabled = [name for name in names if Layers([*_of_zone(of, own, name)]).get("enabled", True)]
    for name in enabled:
        before = found[-1].cadence if found else None
        found.append(_zone(of, name, own, before, last=name == enabled[-1]))
    if not found:
        hint = "add a zone under `zones`, such as bronze, or say `enabled: false` for the entity"
        of.fault("ENTITY_INCOMPLETE", "has no zone to go to", of.said.where(), hint)
    return found


def _of_zone(of: _Of, own: Mapping[str, Said[ZoneSpec]], name: str) -> list[Said[ZoneSpec]]:
    return [each for each in (own.get(name), of.files.zones.get(name)) if each]


def _zone(of: _Of, name: str, own: Mapping[str, Said[ZoneSpec]], before: float | None, *, last: bool) -> Zone:
    layers = Layers(_of_zone(of, own, name))
    # What the entity says of itself is nearer than what is said of a zone for all entities.
    wider = of.layers(own.get(name), of.said, of.files.zones.get(name))
    steps, rules = called_steps(layers, of.name, name, of.functions, of.report)
    rules += _rules(of, layers)
    rules += _rules(of, Layers([of.said])) if last else []
    upsert = layers.get("mode", "append") == "upsert"
    keys, sequence_by = _keys(steps, wider)
    if upsert and not (keys and sequence_by):
        missing = "keys" if not keys else "sequence_by"
        hint = f"add `{missing}: ...` to the entity or to its zone; the row with the greatest sequence is kept"
        of.fault("ENTITY_INCOMPLETE", f"zone {name} is upserted without {missing}", of.said.where(), hint)
    _refuse_unbounded(of, layers, steps, upsert=upsert)
    options = layers.together("writer") or wider.together("writer")
    if path := layers.get("path"):
        options = {**options, "path": _path(of, path) or ""}
    return Zone(
        name,
        (layers.get("name") or TABLE).replace("{zone}", name).replace("{entity}", of.name),
        own[name].where() if name in own else of.said.where(),
        tuple(step for step in steps if not (step.name == "dedupe" and upsert and "within" not in step.arguments)),
        tuple(rules),
        upsert,
        tuple(keys),
        sequence_by,
        wider.get("deletes") if upsert else None,
        bool(layers.get("history")),
        tuple(wider.get("partition_by") or ()),
        layers.get("format") or "delta",
        options,
        layers.together("properties"),
        layers.get("cadence") or before,
        layers.get("description") or of.said.spec.description,
        _observed(layers.get("observe")),
    )


def _observed(said: bool | list[str] | None) -> tuple[str, ...] | None:
    return () if said is True else tuple(said) if said else None


def _keys(steps: list[Step], layers: Layers) -> tuple[list[str], str | None]:
    """What rows are merged by: said as such, or by a `dedupe`, which is then the merge's to do."""
    dedupe = next((s.arguments for s in steps if s.name == "dedupe" and "within" not in s.arguments), {})
    keys = layers.get("keys") or dedupe.get("keys") or []
    return keys, layers.get("sequence_by") or dedupe.get("sequence_by")


def _refuse_unbounded(of: _Of, layers: Layers, steps: list[Step], *, upsert: bool) -> None:
    for step in steps:
        if step.name == "dedupe" and not upsert and not ("within" in step.arguments and "at" in step.arguments):
            hint = "say within: 1 hour and at: the column with the time; or use mode: upsert, which keeps the newest"
            text = "dedupe does not say for how long keys are remembered"
            of.fault("DEDUPE_UNBOUNDED", text, layers.where("transformers"), hint)


def _rules(of: _Of, layers: Layers) -> list[Expectation | Unique]:
    found: list[Expectation | Unique] = []
    every: dict[str, RuleSpec] = layers.together("expectations")
    for name, spec in every.items():
        where = next(s.where("expectations", name) for s in layers.said if name in (s.spec.expectations or {}))
        if (spec.rule is None) == (spec.unique is None):
            hint = "write `rule: SQL that is true for a good row`, or `unique: [columns]`"
            of.fault("ENTITY_INCOMPLETE", f"expectation {name} needs one of `rule` and `unique`", where, hint)
        elif spec.rule is not None:
            found.append(Expectation(name, spec.rule, Action(spec.action), where))
        else:
            found.append(Unique(name, tuple(spec.unique or ()), Action(spec.action), where))
    return found
