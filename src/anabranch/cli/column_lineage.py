"""Columns in `anabranch lineage`: from what the runs have found, or with `--fresh` from a look with Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from anabranch.cli.output import Part, Table
from anabranch.cli.verb import Invocation
from anabranch.store.status import moment

if TYPE_CHECKING:
    from anabranch.core.column_lineage import ColumnOrigins, DatasetColumns, Influence
    from anabranch.load.project import Project
    from anabranch.store.lineage_versions import LineageVersion


@dataclass(frozen=True, slots=True)
class Asked:
    """What is known of a project's columns; `versions` are missing for what was found just now."""

    project: Project
    lineage: Mapping[str, DatasetColumns]
    versions: Mapping[str, LineageVersion]

    def name(self, text: str) -> tuple[str, str | None]:
        """The dataset that a text names, and the column of it, if it names one."""
        from anabranch.core.names import resolve
        from anabranch.errors import StateError, did_you_mean

        home = (self.project.catalog or "spark_catalog", self.project.database or "default")
        if found := resolve(text, self.lineage, home):
            return found, None
        before, _, column = text.rpartition(".")
        if before and (found := resolve(before, self.lineage, home)):
            return found, self._column(found, column)
        known = ", ".join(self.lineage)
        raise StateError(
            "LINEAGE_NOT_FOUND",
            f'no run has looked at the columns of "{text}" yet',
            hint=did_you_mean(text, self.lineage)
            or (f"known are: {known}" if known else "anabranch run --once finds them; or add --fresh to ask Spark now"),
        )

    def _column(self, dataset: str, text: str) -> str:
        from anabranch.errors import StateError, did_you_mean

        columns = self.lineage[dataset].columns
        found = next((name for name in columns if name.lower() == text.replace("`", "").lower()), None)
        if found is None:
            hint = did_you_mean(text, columns) or f"it has: {', '.join(columns)}"
            raise StateError("LINEAGE_NO_COLUMN", f'"{dataset}" has no column "{text}"', hint=hint)
        return found


def asked(at: Invocation, project: Project, *, fresh: bool) -> Asked:
    """What the history knows; with `fresh`, what Spark finds for what streams feed, in the place of that."""
    from anabranch.store.history import History
    from anabranch.store.lineage_versions import newest_lineage

    stored = newest_lineage(History.of(project.storage))
    lineage = {name: one.lineage for name, one in stored.items()}
    if fresh:
        from anabranch.cli.progress import notes
        from anabranch.engine.traced import fresh_lineage

        now = fresh_lineage(project, notes(at.out))
        lineage |= now
        stored = {name: one for name, one in stored.items() if name not in now}
    return Asked(project, lineage, stored)


def show_columns(at: Invocation, known: Asked, text: str, version: int | None) -> None:
    """The columns of a dataset, each with what it is computed from."""
    dataset, column = known.name(text)
    found = known.versions.get(dataset) if version is None else _at_version(known.project, dataset, version)
    lineage = found.lineage if found else known.lineage[dataset]
    if column and column not in lineage.columns:
        column = Asked(known.project, {dataset: lineage}, {}).name(text)[1]  # which raises: it came later
    names = [column] if column else list(lineage.columns)
    rows = [row for name in names for row in _column_rows(name, lineage.columns[name])]
    parts: list[Part] = [_head(lineage, found), "", Table(rows, ("column", "from", "how"))]
    parts += ["", *_row_lines(lineage)] if _row_lines(lineage) else []
    at.out.show(_document(lineage, found, names), *parts)


def show_versions(at: Invocation, known: Asked, text: str) -> None:
    """Every version of a dataset's lineage, with the columns that differ from the one before."""
    from anabranch.store.history import History
    from anabranch.store.lineage_versions import lineage_versions

    dataset, column = known.name(text)
    found = lineage_versions(History.of(known.project.storage), dataset)
    rows, before = [], None
    for one in found:
        changed = one.lineage.differing(before.lineage) if before else tuple(one.lineage.columns)
        if column is None or column in changed:
            rows.append({**_about(one), "changed": ", ".join(changed) or _about_others(before, one)})
        before = one
    shown = [{**row, "run": row["run"][:8]} for row in rows]
    at.out.show(rows, Table(shown, ("version", "at", "epoch", "channel", "run", "changed"), empty="no versions yet"))


def show_up(at: Invocation, known: Asked, dataset: str, column: str) -> None:
    """What a column is computed from, down to the sources."""
    from anabranch.core.column_lineage import ColumnOrigins, through

    lines: list[str] = []
    shown: set[tuple[str, str]] = set()

    def add(name: str, of: str, how: str, lead: str, below: str) -> None:
        origins = known.lineage[name].columns.get(of, ColumnOrigins()) if name in known.lineage else None
        again = (name, of) in shown and bool(origins and origins.direct)
        said = _without_origins(origins) if origins else ""
        lines.append(f"{lead}{name}.{of}{how}{said}{'  (see above)' if again else ''}")
        shown.add((name, of))
        every = sorted(origins.direct) if origins and not again else []
        for number, each in enumerate(every, start=1):
            last = number == len(every)
            branch, bar = ("└─ ", "   ") if last else ("├─ ", "│  ")
            add(each.input, each.column, f"  {each.how}", f"{below}{branch}", f"{below}{bar}")

    add(dataset, column, "", "", "")
    whole = through(known.lineage, dataset, known.lineage)
    rows = _row_lines(whole)
    document = {"direction": "up", **_document(whole, known.versions.get(dataset), [column])}
    at.out.show(document, "\n".join(lines), *(["", *rows] if rows else []))


def show_down(at: Invocation, known: Asked, dataset: str, column: str) -> None:
    """The columns of other datasets that a column gives values to."""
    from anabranch.core.column_lineage import computed_from

    found = computed_from(known.lineage, dataset, column)
    rows = [{"dataset": name, "column": output, "how": str(how)} for name, output, how in found]
    document = {"direction": "down", "dataset": dataset, "column": column, "columns": rows}
    at.out.show(document, f"{dataset}.{column}", Table(rows, empty="no column of this pipeline has values of it"))


def _column_rows(name: str, origins: ColumnOrigins) -> list[dict[str, str]]:
    from anabranch.core.column_lineage import in_words

    said = enumerate(in_words(origins))
    return [{"column": "" if number else name, "from": source, "how": how} for number, (source, how) in said]


def _without_origins(origins: ColumnOrigins) -> str:
    said = [*(f"made by {text}" for text in sorted(origins.made)), *(f"unknown: {t}" for t in sorted(origins.unknown))]
    if origins.is_constant:
        said = ["constant"]
    return f"  ({'; '.join(said)})" if said else ""


def _row_lines(lineage: DatasetColumns) -> list[str]:
    rows = lineage.rows
    lines = [f"which rows there are depends on: {', '.join(map(str, sorted(rows.indirect)))}"] if rows.indirect else []
    return lines + [f"which rows there are is not known: {text}" for text in sorted(rows.unknown)]


def _head(lineage: DatasetColumns, found: LineageVersion | None) -> str:
    said = [lineage.dataset]
    if found:
        said.append(
            f"version {found.version}, since epoch {found.epoch} of channel {found.channel} ({moment(found.at)})"
        )
    else:
        said.append("as the files say now")
    said += [f"owner: {lineage.owner}"] if lineage.owner else []
    said += [f"{name}: {value}" for name, value in lineage.tags.items()]
    return "  ".join(said)


def _document(lineage: DatasetColumns, found: LineageVersion | None, names: Iterable[str]) -> dict[str, Any]:
    return {
        "dataset": lineage.dataset,
        "owner": lineage.owner,
        "tags": dict(lineage.tags),
        "version": _about(found) if found else None,
        "columns": [
            {
                "column": name,
                "constant": one.is_constant,
                "direct": _records(one.direct),
                "indirect": _records(one.indirect),
                "made": sorted(one.made),
                "unknown": sorted(one.unknown),
            }
            for name, one in ((name, lineage.columns[name]) for name in names)
        ],
        "rows": {
            "indirect": _records(lineage.rows.indirect),
            "unknown": sorted(lineage.rows.unknown),
            "reads": sorted(lineage.rows.reads),
        },
    }


def _records(influences: Iterable[Influence]) -> list[dict[str, str]]:
    return [{"input": i.input, "column": i.column, "how": str(i.how)} for i in sorted(influences)]


def _about(found: LineageVersion) -> dict[str, Any]:
    return {
        "version": found.version,
        "at": moment(found.at),
        "channel": found.channel,
        "epoch": found.epoch,
        "run": found.run,
    }


def _about_others(before: LineageVersion | None, now: LineageVersion) -> str:
    if before and before.lineage.owner != now.lineage.owner:
        return f"(owner: {now.lineage.owner})"
    return "(rows)" if before and before.lineage.rows != now.lineage.rows else "(tags)"


def _at_version(project: Project, dataset: str, version: int) -> LineageVersion:
    from anabranch.errors import StateError
    from anabranch.store.history import History
    from anabranch.store.lineage_versions import column_lineage_of

    found = column_lineage_of(History.of(project.storage), dataset, version)
    if found is None:
        raise StateError(
            "LINEAGE_NO_VERSION",
            f'the lineage of "{dataset}" has no version {version}',
            hint=f"anabranch lineage columns {dataset} --versions",
        )
    return found
