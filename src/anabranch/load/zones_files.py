"""The project file with the files that it includes: values put in, everything validated, nothing declared twice."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from anabranch.core.environment import chosen_environment
from anabranch.core.where import Where
from anabranch.errors import ProjectError
from anabranch.load.yaml_file import RawYaml, YamlFile, load_yaml, validated
from anabranch.load.zones_models import DefaultsSpec, EntitySpec, IncludedSpec, SourceSpec, ZoneSpec
from anabranch.load.zones_values import Values, environment_problem

M = TypeVar("M", bound=BaseModel)

#: Keys that make a project file one with values in it.
KEYS = ("include", "values", "environments", "defaults", "sources", "zones", "entities")
_NOT_REPLACED = ("values", "environments")


@dataclass(frozen=True, slots=True)
class Said(Generic[M]):
    """What a file says under one name; `where` gives the place of a field of it."""

    spec: M
    file: YamlFile[Any]
    steps: tuple[str | int, ...]

    def where(self, *steps: str | int) -> Where:
        return self.file.where(*self.steps, *steps)

    def says(self, name: str) -> bool:
        return name in self.spec.model_fields_set


@dataclass(frozen=True, slots=True)
class ZoneFiles:
    """All sources, zones and entities of a project, with their places. `root` is what paths start from."""

    root: Path
    defaults: tuple[Said[DefaultsSpec], ...]
    sources: Mapping[str, Said[SourceSpec]]
    zones: Mapping[str, Said[ZoneSpec]]
    entities: Mapping[str, Said[EntitySpec]]


@dataclass(slots=True)
class SpecFiles(Generic[M]):
    """The project file and what it includes; `problems` are those beside the file's own."""

    main: YamlFile[M]
    zones: ZoneFiles | None = None
    environment: str | None = None
    problems: list[ProjectError] = field(default_factory=list)


def read_spec_files(path: Path, model: type[M]) -> SpecFiles[M]:
    """Read a project file as `model`, and the files that it includes."""
    raw = load_yaml(path)
    data = raw.data if isinstance(raw.data, dict) else {}
    name = chosen_environment()
    if not any(key in data for key in KEYS):
        found = SpecFiles(validated(raw, raw.data, model))
        if name:
            found.problems.append(environment_problem(name, {}, raw))
        return found
    problems: list[ProjectError] = []
    environments = _mapping(data.get("environments"))
    if name and name not in environments:
        problems.append(environment_problem(name, environments, raw))
    special = _mapping(_mapping(environments.get(name or "")).get("values"))
    values = Values({**_mapping(data.get("values")), **special})
    included = [load_yaml(each) for each in _included(raw, values, problems)]
    more = [(each, _mapping(_mapping(each.data).get("values"))) for each in included]
    _refuse_twice("values", [(raw, _mapping(data.get("values"))), *more], problems)
    values.known = {key: value for _, section in reversed(more) for key, value in section.items()} | {**values.known}
    main = validated(raw, _replaced(raw, values), model)
    files: list[YamlFile[Any]] = [validated(each, _replaced(each, values), IncludedSpec) for each in included]
    problems += [*values.problems, *(problem for file in files for problem in file.problems)]
    read: list[YamlFile[Any]] = [main, *files]
    every = [(each, file) for each, file in zip([raw, *included], read, strict=True) if file.value]
    for section in ("sources", "zones", "entities"):
        _refuse_twice(section, [(each, getattr(file.value, section)) for each, file in every], problems)
    _refuse_twice("defaults", [(each, _default_fields(file)) for each, file in every], problems)
    zones = _together(path.parent, [file for _, file in every])
    return SpecFiles(main, zones, name, problems)


def _together(root: Path, files: list[YamlFile[Any]]) -> ZoneFiles:
    def section(name: str) -> dict[str, Said[Any]]:
        found: dict[str, Said[Any]] = {}
        for file in files:
            for key, spec in getattr(file.value, name).items():
                found.setdefault(key, Said(spec, file, (name, key)))
        return found

    defaults = tuple(Said(spec.defaults, file, ("defaults",)) for file in files if (spec := file.value))
    return ZoneFiles(root, defaults, section("sources"), section("zones"), section("entities"))


def _default_fields(file: YamlFile[Any]) -> dict[str, None]:
    return dict.fromkeys(file.value.defaults.model_fields_set) if file.value else {}


def _refuse_twice(
    section: str, said: Iterable[tuple[RawYaml, Mapping[str, Any]]], problems: list[ProjectError]
) -> None:
    first: dict[str, RawYaml] = {}
    for raw, names in said:
        for name in names:
            other = first.setdefault(name, raw)
            if other is not raw:
                text = f"{section}.{name}: declared a second time; the first is at {other.where(section, name)}"
                where = raw.where(section, name)
                problems.append(ProjectError("PROJECT_DECLARED_TWICE", text, where=where, hint="keep one of them"))


def _included(raw: RawYaml, values: Values, problems: list[ProjectError]) -> list[Path]:
    """The files that `include` names, each once, in the order of the patterns and sorted within one."""
    said = _mapping(raw.data).get("include")
    patterns = values.put_into(raw, said, ("include",)) if isinstance(said, list) else []
    values.problems.clear()  # they are found once more when the whole file is looked at
    found: dict[Path, None] = {}
    for place, pattern in enumerate(patterns):
        if not isinstance(pattern, str):
            continue  # the model says so
        names = sorted(glob.glob(pattern, root_dir=raw.path.parent, recursive=True))
        paths = [raw.path.parent / name for name in names if (raw.path.parent / name).is_file()]
        if not paths:
            where = raw.where("include", place)
            hint = "a path from the folder of this file, such as entities/*.yml"
            text = f'include: no file matches "{pattern}"'
            problems.append(ProjectError("PROJECT_INCLUDE_NOT_FOUND", text, where=where, hint=hint))
        found.update(dict.fromkeys(path for path in paths if path.resolve() != raw.path.resolve()))
    return list(found)


def _replaced(raw: RawYaml, values: Values) -> Any:
    if not isinstance(raw.data, dict):
        return raw.data
    return {
        key: value if key in _NOT_REPLACED else values.put_into(raw, value, (key,)) for key, value in raw.data.items()
    }


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
