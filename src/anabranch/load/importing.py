"""Look at a project made for Spark's or Databricks' pipelines: what runs as it is, what differs, what does not run."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from anabranch.core import graph
from anabranch.core.declarations import Dataset, Flow, Kind, Pipeline
from anabranch.core.plan import refused
from anabranch.core.where import Where
from anabranch.errors import ProjectError
from anabranch.load.at_rest import reads_at_rest
from anabranch.load.databricks import NOTEBOOK_NAMES, Finding, Verdict, findings_in
from anabranch.load.library_files import KINDS
from anabranch.load.project import SPEC_NAMES, Project, examine_project, project_at
from anabranch.load.python_files import Loaded, examine_pipeline
from anabranch.load.source import function_node, plain_function
from anabranch.load.standin import StandIn

#: What may only seem wrong when a part of the files could not be run, or was not named.
_OF_MISSING_NAMES = {"PROJECT_UNKNOWN_INPUT", "PROJECT_UNKNOWN_TARGET", "PROJECT_NO_FLOW"}
_WORST = [Verdict.RUNS, Verdict.DIFFERS, Verdict.NOT_SUPPORTED]


def look_at(paths: Sequence[Path]) -> list[Finding]:
    """Every finding, in the order of files and lines; a dataset that runs as it is has one too."""
    findings: list[Finding] = []
    for project, problems in _projects(paths):
        findings += [_of_problem(problem) for problem in problems]
        if project is not None:
            findings += _of_project(project)
    once = {(f.verdict, f.what, f.where, f.why): f for f in findings}
    return sorted(once.values(), key=lambda f: (f.where, _WORST.index(f.verdict), f.what))


def _projects(paths: Sequence[Path]) -> Iterator[tuple[Project | None, Iterable[ProjectError]]]:
    """The projects that the paths name; single files are one project together."""
    loose: list[Path] = []
    for path in paths:
        spec = next((path / name for name in SPEC_NAMES if (path / name).is_file()), None)
        if spec is not None or path.suffix in (".yml", ".yaml"):
            examined = examine_project(spec or path)
            yield examined.project, examined.problems
        elif path.is_dir():
            yield (
                None,
                [_json_notebook(p) for p in sorted(path.rglob("*.ipynb")) if not _is_hidden(p.relative_to(path))],
            )
            loose += sorted(p for p in path.rglob("*") if p.suffix in KINDS and not _is_hidden(p.relative_to(path)))
        elif not path.is_file() or path.suffix not in KINDS:
            hint = "name .py and .sql files, a folder, or the project file"
            text = f"{path} is not a file that declares things" if path.exists() else f"no file {path}"
            yield None, [ProjectError("PROJECT_FILE_KIND", text, where=Where(str(path)), hint=hint)]
        else:
            loose.append(path)
    if loose:
        files = tuple(dict.fromkeys(path.resolve() for path in loose))
        folder = paths[0] if paths[0].is_dir() else files[0].parent
        yield dataclasses.replace(project_at(folder, "looked_at"), files=files), ()


def _json_notebook(path: Path) -> ProjectError:
    text, hint = "a notebook with its results is not read", "export it as source, which gives a .py or .sql file"
    return ProjectError("PROJECT_FILE_KIND", text, where=Where(str(path.resolve())), hint=hint)


def _is_hidden(path: Path) -> bool:
    return any(part.startswith((".", "__pycache__")) for part in path.parts)


def _of_project(project: Project) -> list[Finding]:
    loaded = examine_pipeline(project, with_spark=False, notebook={n: StandIn(n) for n in NOTEBOOK_NAMES})
    findings = [_of_problem(problem) for problem in _problems(loaded)]
    findings += [_of_warning(warning) for warning in (*loaded.notes, *graph.warnings(loaded.pipeline))]
    for file in project.files:
        findings += findings_in(file.read_text(encoding="utf-8", errors="replace"), str(file))
    findings += [finding for flow in loaded.pipeline.flows if (finding := _batch_table(flow, loaded.pipeline))]
    touched = [finding.where for finding in findings]
    return [*findings, *(_runs(d) for d in loaded.pipeline.datasets if not _touches(d, loaded.pipeline, touched))]


def _problems(loaded: Loaded) -> list[ProjectError]:
    found = [p for p in graph.problems(loaded.pipeline) if loaded.complete or p.code not in _OF_MISSING_NAMES]
    return [*loaded.problems, *found, *refused(loaded.pipeline)]


def _of_problem(problem: ProjectError) -> Finding:
    where = problem.where or Where("")
    return Finding(Verdict.NOT_SUPPORTED, problem.message, where, hint=problem.hint, code=problem.code)


def _of_warning(warning: ProjectError) -> Finding:
    where = warning.where or Where("")
    return Finding(Verdict.DIFFERS, warning.message, where, hint=warning.hint, code=warning.code)


def _runs(dataset: Dataset) -> Finding:
    return Finding(Verdict.RUNS, f'{dataset.kind} "{dataset.name}"', dataset.where)


def _touches(dataset: Dataset, pipeline: Pipeline, places: Iterable[Where]) -> bool:
    """Whether something was found about a dataset, its rules or a flow into it."""
    flows = [flow for flow in pipeline.flows if flow.target == dataset.name]
    spans = [_span(flow) for flow in flows]
    own = [dataset.where, *(e.where for e in dataset.expectations), *(u.where for u in dataset.unique)]
    spans += [(where.file, where.line, where.line) for where in own]
    return any(file == place.file and first <= place.line <= last for place in places for file, first, last in spans)


def _span(flow: Flow) -> tuple[str, int, int]:
    function = plain_function(flow.query)
    node = function_node(function.__code__) if function and function.__code__.co_filename == flow.where.file else None
    last = (node.end_lineno if node else None) or flow.where.line
    return flow.where.file, flow.where.line, last


def _batch_table(flow: Flow, pipeline: Pipeline) -> Finding | None:
    """`dp.table` over a batch query: a materialized view on Databricks. Only what is plain from its code is said."""
    kinds = {d.name: d.kind for d in pipeline.datasets}
    if flow.once or flow.changes or kinds.get(flow.target) is not Kind.STREAMING_TABLE or not reads_at_rest(flow.query):
        return None
    why = "on Databricks a table over a batch query is a materialized view; here a table needs a streaming query"
    hint = "read with spark.readStream, or declare it with @dp.materialized_view"
    return Finding(Verdict.DIFFERS, f'batch query of the table "{flow.target}"', flow.where, why, hint)
