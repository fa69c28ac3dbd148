"""The project file: find it, read it, and list the files it names.

`anabranch.yml` is a superset of Spark's `spark-pipeline.yml`, which is read as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel, ConfigDict, Field

from anabranch.core.alert_targets import Target
from anabranch.core.detectors import Detector
from anabranch.core.secrets import has_secret
from anabranch.core.where import Where
from anabranch.errors import ProjectError, ProjectErrors
from anabranch.load.detector_specs import AlertSpec, DetectorSpec
from anabranch.load.detectors import detectors_of, targets_of
from anabranch.load.library_files import library_files
from anabranch.load.watch_spec import LineageTarget, OpenLineageSpec, SpansSpec, SpanTarget
from anabranch.load.yaml_file import YamlFile, read_yaml
from anabranch.load.yaml_types import Seconds, SettingText, SomeSeconds, Text
from anabranch.load.zones_files import ZoneFiles, read_spec_files
from anabranch.load.zones_models import DefaultsSpec, EntitySpec, EnvironmentSpec, SourceSpec, ZoneSpec

SPEC_NAMES = ("anabranch.yml", "anabranch.yaml", "spark-pipeline.yml", "spark-pipeline.yaml")


@dataclass(frozen=True, slots=True)
class Project:
    """What the project file says, with every path made absolute."""

    name: str
    spec_file: Path
    root: Path  # the folder of the spec file
    storage: str
    ledger: str  # a database URL, or the path of a SQLite file; may refer to secrets
    database: str | None
    catalog: str | None
    configuration: Mapping[str, str]  # may refer to secrets
    files: tuple[Path, ...]  # Python and SQL files that declare things, in the order they are run
    trigger_seconds: float = 10.0
    lease_seconds: float = 30.0
    retention_seconds: float = 7 * 86400.0  # how long old cuts stay readable
    history_seconds: float = 30 * 86400.0  # how long events and runs are kept
    open_lineage: LineageTarget | None = None
    spans: SpanTarget | None = None
    environment: str | None = None  # whose values are in place of `${name}`
    zones: ZoneFiles | None = field(default=None, compare=False)
    detectors: tuple[Detector, ...] = ()  # those of the file; Python files declare others
    alerts: tuple[Target, ...] = ()


def project_at(storage: Path, name: str, *, trigger_seconds: float = 10.0) -> Project:
    """What a project file would say of a pipeline that has none, with its ledger in the storage folder."""
    root = storage.resolve()
    return Project(
        name=name,
        spec_file=root,
        root=root,
        storage=str(root),
        ledger=str(root / "_anabranch" / "ledger.db"),
        database=None,
        catalog=None,
        configuration={},
        files=(),
        trigger_seconds=trigger_seconds,
    )


@dataclass(frozen=True, slots=True)
class ExaminedProject:
    """A project with everything found wrong with it; `project` is there if enough of the file makes sense."""

    project: Project | None
    problems: tuple[ProjectError, ...]


class _Glob(BaseModel):
    model_config = ConfigDict(extra="forbid")

    include: Text


class _Library(BaseModel):
    model_config = ConfigDict(extra="forbid")

    glob: _Glob


class SparkSpec(BaseModel):
    """The fields of `spark-pipeline.yml`."""

    model_config = ConfigDict(extra="forbid")

    name: Text
    storage: Text
    catalog: str | None = None
    database: str | None = None
    database_by_its_other_name: str | None = Field(None, alias="schema")
    configuration: dict[str, SettingText] = {}
    libraries: list[_Library] | None = None


class AnabranchSpec(SparkSpec):
    """The fields of `anabranch.yml`: those of Spark's file, fewer of them required, and our own."""

    storage: Text = "lake"
    ledger: Text | None = None
    trigger: Seconds = 10.0
    lease: SomeSeconds = 30.0
    retention: Seconds = 7 * 86400.0
    history: Seconds = 30 * 86400.0
    open_lineage: OpenLineageSpec | None = None
    spans: SpansSpec | None = None
    include: list[Text] = []
    environments: dict[str, EnvironmentSpec] = {}
    values: dict[str, Any] = {}
    defaults: DefaultsSpec = Field(default_factory=DefaultsSpec)
    sources: dict[str, SourceSpec] = {}
    zones: dict[str, ZoneSpec] = {}
    entities: dict[str, EntitySpec] = {}
    detectors: list[DetectorSpec] = []
    alerts: list[AlertSpec] = []


def find_spec(start: Path) -> Path:
    """The project file of the folder `start`, or of the nearest folder above it that has one."""
    start = start.resolve()
    for folder in (start, *start.parents) if start.is_dir() else start.parents:
        found = [folder / name for name in SPEC_NAMES if (folder / name).is_file()]
        same_kind = [path for path in found if path.stem == found[0].stem]
        if len(same_kind) > 1:
            text = f"{same_kind[0].name} and {same_kind[1].name} are both in {folder}"
            raise ProjectError("PROJECT_TWO_SPECS", text, where=Where(str(same_kind[1])), hint="keep one of them")
        if found:
            return found[0]
    text = f"no anabranch.yml or spark-pipeline.yml in {start} or any folder above it"
    raise ProjectError("PROJECT_NOT_FOUND", text, hint="`anabranch init` makes a project; `--spec` names a file")


def read_project(path: Path) -> Project:
    """Read a project file, or the one that `find_spec` finds from a folder; ProjectErrors names all that is wrong."""
    examined = examine_project(path)
    if examined.problems or examined.project is None:
        raise ProjectErrors(examined.problems)
    return examined.project


def examine_project(path: Path) -> ExaminedProject:
    """Like `read_project`, but the problems are returned, beside the project as far as it makes sense."""
    try:
        spec_file = find_spec(path) if path.is_dir() else path.resolve()
    except ProjectError as error:
        return ExaminedProject(None, (error,))
    if not spec_file.is_file():
        problem = ProjectError("PROJECT_NOT_FOUND", f"no file {spec_file}", hint="`anabranch init` makes a project")
        return ExaminedProject(None, (problem,))
    if spec_file.stem == "spark-pipeline":
        file = read_yaml(spec_file, SparkSpec)
        return _examine(file, tuple(_point_to_our_file(problem) for problem in file.problems))
    read = read_spec_files(spec_file, AnabranchSpec)
    examined = _examine(read.main, (), read.zones)
    project = examined.project and replace(examined.project, environment=read.environment, zones=read.zones)
    return ExaminedProject(project, (*examined.problems, *read.problems))


def _examine(
    file: YamlFile[Any], reworded: tuple[ProjectError, ...], zones: ZoneFiles | None = None
) -> ExaminedProject:
    spec: SparkSpec | None = file.value
    problems = list(reworded or file.problems)
    if spec is None:
        return ExaminedProject(None, tuple(problems))
    root = file.path.parent
    ours = spec if isinstance(spec, AnabranchSpec) else AnabranchSpec.model_validate({"name": spec.name})
    globs = _globs(file, spec)
    files, faults = library_files(root, globs, file.where())
    if globs is None and zones and (zones.entities or ours.include):
        faults = [fault for fault in faults if fault.code != "PROJECT_NO_FILES"]
    problems += faults
    problems += _both_names(file, spec)
    detectors, wrong = detectors_of(file, ours.detectors)
    alerts, unusable = targets_of(file, ours.alerts, root)
    problems += [*wrong, *unusable]
    storage = _local_path(spec.storage, root)
    if storage is None:
        problems.append(_bad_storage(file, spec.storage))
        storage = str(root / "lake")
    project = Project(
        name=spec.name,
        spec_file=file.path,
        root=root,
        storage=storage,
        ledger=_ledger(ours.ledger, storage, root),
        database=spec.database or spec.database_by_its_other_name,
        catalog=spec.catalog,
        configuration=spec.configuration,
        files=files,
        trigger_seconds=ours.trigger,
        lease_seconds=ours.lease,
        retention_seconds=ours.retention,
        history_seconds=ours.history,
        detectors=tuple(detectors),
        alerts=alerts,
        open_lineage=ours.open_lineage.target(root) if ours.open_lineage else None,
        spans=ours.spans.target() if ours.spans else None,
    )
    return ExaminedProject(project, tuple(problems))


def _globs(file: YamlFile[Any], spec: SparkSpec) -> list[tuple[str, Where]] | None:
    """The patterns with their places; None when the file leaves them to the default."""
    if spec.libraries is None:
        written = file.where("libraries") != file.where() or not isinstance(spec, AnabranchSpec)
        return [] if written else None
    # Faulty entries are gone from `spec`, so the n-th there need not be the n-th in the file.
    every = [("libraries", index, "glob", "include") for index in range(file.length("libraries"))]
    places = {file.said(*steps): file.where(*steps) for steps in reversed(every)}
    return [(entry.glob.include, places.get(entry.glob.include, file.where())) for entry in spec.libraries]


def _both_names(file: YamlFile[Any], spec: SparkSpec) -> Iterator[ProjectError]:
    other = spec.database_by_its_other_name
    if spec.database is not None and other is not None and spec.database != other:
        text = f'database is "{spec.database}" and schema, another name for it, is "{other}"'
        yield ProjectError("PROJECT_BAD_VALUE", text, where=file.where("schema"), hint="keep `database`")


def _bad_storage(file: YamlFile[Any], storage: str) -> ProjectError:
    text = f"storage: {storage} is not a folder this version can write to"
    hint = "use a path, such as `storage: lake`, or a URI that starts with file:///"
    return ProjectError("PROJECT_BAD_VALUE", text, where=file.where("storage"), hint=hint)


def _point_to_our_file(problem: ProjectError) -> ProjectError:
    """A field that only our file has, in Spark's file, is better explained than called unknown."""
    field = problem.message.partition(":")[0]
    if problem.code != "PROJECT_UNKNOWN_FIELD" or field not in AnabranchSpec.model_fields:
        return problem
    hint = f"`{field}` is a field of anabranch.yml: rename this file to use it"
    return ProjectError(problem.code, problem.message, where=problem.where, hint=hint)


def _local_path(text: str, root: Path) -> str | None:
    """An absolute path; None for a URI of something else than a local file.

    >>> _local_path("lake", Path("/project")), _local_path("file:///tmp/a%20b", Path("/project"))
    ('/project/lake', '/tmp/a b')
    >>> _local_path("s3://bucket/lake", Path("/project")) is None
    True
    """
    scheme = urlsplit(text).scheme if ":" in text else ""
    if scheme == "file":
        parts = urlsplit(text)
        path = unquote(parts.path)
        return str(Path(path)) if path.startswith("/") and parts.netloc in ("", "localhost") else None
    return None if scheme else str(root / Path(text).expanduser())


def _ledger(text: str | None, storage: str, root: Path) -> str:
    if text is None:
        return f"{storage}/_anabranch/ledger.db"
    return text if has_secret(text) else _local_path(text, root) or text
