"""Detectors and targets of alerts as they are written become declarations; every fault is told with its place."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ValidationError

from anabranch.core.alert_targets import Command, LogFile, Target, Terminal, Webhook
from anabranch.core.declarations import Dataset, Flow
from anabranch.core.detectors import Detector, Interruption, Lag, PartitionSkew, Period, Severity, Skew, Sla
from anabranch.core.names import resolve
from anabranch.core.quality import quarantine_of
from anabranch.core.secrets import has_secret
from anabranch.core.where import Where
from anabranch.errors import ProjectError, did_you_mean
from anabranch.load.declare import Arguments
from anabranch.load.detector_specs import NEEDED_BY_TARGETS, OF_DETECTORS, OF_TARGETS, AlertSpec, DetectorSpec
from anabranch.load.durations import parse_duration
from anabranch.load.yaml_file import YamlFile

#: Told with the key that is wrong, what is wrong with it, and a way out.
Fault = Callable[[str, str, str], None]

_MISSING = "missing"
_OF_PARTITIONS = ("ratio", "within")
_OF_VOLUMES = ("tolerance", "since", "periods")


def detectors_of(file: YamlFile[Any], specs: Sequence[DetectorSpec]) -> tuple[list[Detector], list[ProjectError]]:
    """The detectors of a project file."""
    return _each(file, "detectors", specs, lambda spec, where, fault, _: declared(spec, where, fault))


def targets_of(
    file: YamlFile[Any], specs: Sequence[AlertSpec], root: Path
) -> tuple[tuple[Target, ...], list[ProjectError]]:
    """Where a project's alerts go; names are made for those that have none."""
    taken: set[str] = {spec.name for spec in specs if spec.name}
    found, problems = _each(
        file, "alerts", specs, lambda spec, where, fault, n: _target(spec, where, fault, _free(spec, taken), root)
    )
    names = [target.name for target in found]
    for target in found:
        if names.count(target.name) > 1 and target.where:
            text = f'alerts: two targets are called "{target.name}"'
            problems.append(ProjectError("PROJECT_DECLARED_TWICE", text, where=target.where, hint="give them names"))
    return tuple(found), problems


def _each(
    file: YamlFile[Any], section: str, specs: Sequence[Any], make: Callable[[Any, Where, Fault, int], Sequence[Any]]
) -> tuple[list[Any], list[ProjectError]]:
    """What each entry of a list in the file becomes."""
    problems: list[ProjectError] = []
    found: list[Any] = []
    whole = file.length(section) == len(specs)  # else faulty ones are gone, and the n-th there is another one here
    for number, spec in enumerate(specs):
        steps: tuple[str | int, ...] = (section, number) if whole else (section,)

        def fault(key: str, message: str, hint: str, steps: tuple[str | int, ...] = steps) -> None:
            written = file.where(*steps, key) != file.where(*steps)
            if written and message.startswith(_MISSING):
                return  # it is there, and what is wrong with it is told already
            text = f"{'.'.join(map(str, (*steps, key)))}: {message}"
            problems.append(ProjectError("PROJECT_BAD_VALUE", text, where=file.where(*steps, key), hint=hint))

        found += make(spec, file.where(*steps), fault, number)
    return found, problems


def declare_detector(taken: Arguments, said: dict[str, Any]) -> None:
    """What `dp.detect` was called with."""

    def fault(key: str, message: str, hint: str) -> None:
        taken.fault("PROJECT_BAD_ARGUMENT", f"{key}: {message}", hint)

    for needed in ("kind", "on"):
        if said.get(needed) is None:
            example = 'dp.detect("interruption", on="orders")'
            taken.fault("PROJECT_MISSING_ARGUMENT", f"{needed} is missing", f"write {example}")
            return
    try:
        spec = DetectorSpec.model_validate({key: value for key, value in said.items() if value is not None})
    except ValidationError as error:
        for found in error.errors(include_url=False):
            hint = str(found.get("ctx", {}).get("hint", "")) or "correct the value"
            given = f", not {found['input']!r}" if found["msg"].startswith("must") else ""
            fault(".".join(map(str, found["loc"])), f"{found['msg']}{given}"[:200], hint)
        return
    for detector in declared(spec, taken.where, fault):
        taken.registry.detectors.append(detector)


def declared(spec: DetectorSpec, where: Where, fault: Fault) -> list[Detector]:
    """The detectors that one entry declares; none if something is wrong with it."""
    faults = 0

    def tell(key: str, message: str, hint: str) -> None:
        nonlocal faults
        faults += 1
        fault(key, message, hint)

    _only(spec, spec.kind, OF_DETECTORS, ("kind", "on", "name", "severity"), tell)
    found = _made(spec, where, tell)
    return [] if faults else found


def _made(spec: DetectorSpec, where: Where, fault: Fault) -> list[Detector]:
    severity = Severity(spec.severity)
    name = spec.name or f"{spec.kind} of {spec.on}"
    match spec.kind:
        case "interruption":
            lulls = spec.lulls is not False
            return [Interruption(name, spec.on, where, severity, spec.within, lulls)]
        case "skew":
            return [_skew(spec, where, severity, fault)]
        case "lag":
            unit = spec.unit or "time"
            most = _limit(spec, unit, fault)
            return [Lag(name, spec.on, where, severity, unit, most, spec.percentile, spec.ask or {})]
        case "sla":
            return list(_slas(spec, where, severity, fault))


def _skew(spec: DetectorSpec, where: Where, severity: Severity, fault: Fault) -> Detector:
    over = spec.over if spec.over is not None else "runs"
    by_parts = over in ("partitions", "source")
    for key in _OF_VOLUMES if by_parts else _OF_PARTITIONS:
        if getattr(spec, key) is not None:
            rightly = "rows of runs, epochs or stretches of time" if by_parts else "partitions"
            fault(key, f"has no meaning with over: {over}", f"it is for comparing {rightly}")
    if over == "partitions" or over == "source":
        name = spec.name or f"skew of {spec.on} over {over}"
        found = PartitionSkew(name, spec.on, where, severity, "source" if over == "source" else "partitions")
        said = {"ratio": spec.ratio, "at_least": spec.at_least, "within": spec.within}
        return dataclasses.replace(found, **{k: v for k, v in said.items() if v is not None})  # type: ignore[arg-type]
    for period in spec.periods or ():
        if period.end <= period.begin:
            fault("periods", "a period ends before it begins", "`until` is the first day that is no part of it")
    periods = tuple(Period(p.begin, p.end, p.tolerance) for p in spec.periods or ())
    words: Literal["runs", "epochs"] = "epochs" if over == "epochs" else "runs"
    unit = words if isinstance(over, str) else over
    tolerance = spec.tolerance if spec.tolerance is not None else 0.5
    name = spec.name or f"skew of {spec.on}"
    return Skew(name, spec.on, where, severity, unit, tolerance, spec.at_least or 0, spec.since, periods)


def _limit(spec: DetectorSpec, unit: str, fault: Fault) -> float | None:
    """What may wait, in the unit."""
    if unit == "time":
        if isinstance(spec.most, float):
            fault("most", "must be a duration", 'such as "10 minutes"; or say the unit: offsets, files or versions')
            return None
        return None if spec.most is None else parse_duration(spec.most)
    if spec.most is None:
        fault("most", f"{_MISSING} field: how many {unit} may wait", "write `most: 500`, or leave out `unit`")
    elif isinstance(spec.most, str):
        fault("most", f"must be a number of {unit}", "such as 500; `unit: time` takes a duration")
    else:
        return spec.most
    return None


def _slas(spec: DetectorSpec, where: Where, severity: Severity, fault: Fault) -> Iterator[Sla]:
    """One for each promise: the two are missed apart from each other."""
    if spec.processing is None and spec.event_time is None:
        fault("processing", f"{_MISSING} field: nothing is promised", 'write `processing: "1 minute"`, or `event_time`')
    if spec.rows is not None and spec.event_time is None:
        fault("rows", "has no meaning without event_time", "processing is measured for all rows of an epoch together")
    if spec.per == "run" and spec.event_time is not None:
        fault("per", "must be epoch for event_time", "rows are as old as they are when their epoch is published")
    both = spec.processing is not None and spec.event_time is not None
    name = spec.name or f"sla of {spec.on}"
    if spec.processing is not None:
        own = f"{name} (processing)" if both else name
        yield Sla(
            own, spec.on, where, "processing", spec.processing, severity, spec.per or "epoch", "newest", spec.percentile
        )
    if spec.event_time is not None:
        own = f"{name} (event time)" if both else name
        rows = spec.rows or "newest"
        yield Sla(own, spec.on, where, "event_time", spec.event_time, severity, "epoch", rows, spec.percentile)


def _target(spec: AlertSpec, where: Where, fault: Fault, name: str, root: Path) -> list[Target]:
    needed = NEEDED_BY_TARGETS.get(spec.to)
    if needed and getattr(spec, needed) is None:
        fault(needed, f"{_MISSING} field", f"a target of kind {spec.to} needs `{needed}: ...`")
        return []
    _only(spec, spec.to, OF_TARGETS, ("to", "name", "least"), fault)
    least, timeout = Severity(spec.least), spec.timeout or 10.0
    match spec.to:
        case "log":
            return [LogFile(name, str(root / Path(spec.path or "").expanduser()), least, where)]
        case "webhook":
            url = spec.url or ""
            if not has_secret(url) and (urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname):
                fault("url", "is no address", "it begins with https:// or http://")
            return [Webhook(name, url, spec.headers or {}, timeout, least, where)]
        case "command":
            return [Command(name, tuple(spec.command or ()), timeout, least, where)]
        case _:
            return [Terminal(name, least, where)]


def _only(spec: BaseModel, kind: str, keys: Any, shared: tuple[str, ...], fault: Fault) -> None:
    """Tell of keys that are known, but not for this kind."""
    for key in spec.model_fields_set - {*keys[kind], *shared}:
        if getattr(spec, key) is not None:
            fault(key, f"has no meaning for {kind}", f"keys of {kind}: {', '.join(keys[kind]) or 'none'}")


def _free(spec: AlertSpec, taken: set[str]) -> str:
    """The name of a target: its own, or its kind, with a number where there are several."""
    if spec.name:
        return spec.name
    number, name = 1, spec.to
    while name in taken:
        number += 1
        name = f"{spec.to}-{number}"  # type: ignore[assignment]
    taken.add(name)
    return name


def finished_detectors(
    detectors: Iterable[Detector],
    datasets: Sequence[Dataset],
    flows: Sequence[Flow],
    home: tuple[str, str],
    *,
    complete: bool,
) -> tuple[tuple[Detector, ...], list[ProjectError]]:
    """Detectors with what they are on by its full name; `complete` if everything there is has been declared."""
    problems: list[ProjectError] = []
    found: dict[str, Detector] = {}
    by_flow = {f.name: f.target for f in flows}
    names = [d.name for d in datasets]
    names += [aside.name for d in datasets if (aside := quarantine_of(d)) and aside.name not in names]
    for detector in detectors:
        on = resolve(detector.on, names, home) or (detector.on if detector.on in by_flow else None)
        if on is None and complete:
            known = [*names, *by_flow]
            hint = (
                did_you_mean(detector.on, known) or f"datasets and flows: {', '.join(dict.fromkeys(known)) or 'none'}"
            )
            text = f'detector "{detector.name}" is on "{detector.on}", which nothing declares'
            problems.append(ProjectError("DETECTOR_ON_NOTHING", text, where=detector.where, hint=hint))
            continue
        if other := found.get(detector.name):
            text = f'a second detector is called "{detector.name}"; the first is at {other.where}'
            hint = "give one of them a `name`: incidents are kept by it"
            problems.append(ProjectError("PROJECT_DECLARED_TWICE", text, where=detector.where, hint=hint))
            continue
        found[detector.name] = dataclasses.replace(detector, on=on or detector.on)
    return tuple(found.values()), problems
