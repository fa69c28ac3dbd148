"""What each column of a dataset is computed from: what gives it its values, and what decides which rows there are.

A column is never silently empty. It has origins, or it is `made` by something that reads no column (a count, a clock),
or it is constant, or it is unknown and says why: code that nobody can look into has been at work.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from anabranch.core.epoch import digest


class How(StrEnum):
    """What a column of an input has to do with one of the output. The first four give values, the others rows."""

    IDENTITY = "identity"  # the same value, maybe under another name
    TRANSFORMED = "transformed"
    AGGREGATED = "aggregated"  # together with the values of other rows
    UNKNOWN = "unknown"  # handed to code that cannot be looked into
    FILTER = "filter"
    JOIN = "join"
    GROUP = "group by"
    EXPLODE = "explode"
    SORT = "sort"
    WINDOW = "window"
    MERGE = "merge key"

    @property
    def is_direct(self) -> bool:
        """Whether it gives values."""
        return self in _DIRECT


#: Each stronger than the one before: what is transformed and then aggregated is aggregated.
_DIRECT = (How.IDENTITY, How.TRANSFORMED, How.AGGREGATED, How.UNKNOWN)


@dataclass(frozen=True, slots=True, order=True)
class Influence:
    """A column of a dataset or of a source, and what it does.

    >>> str(Influence("orders", "amount", How.AGGREGATED))
    'orders.amount (aggregated)'
    """

    input: str
    column: str
    how: How

    def __str__(self) -> str:
        return f"{self.input}.{self.column} ({self.how})"


@dataclass(frozen=True, slots=True)
class ColumnOrigins:
    """Where the values of a column come from.

    `indirect` are columns that choose among values without giving any, such as those a window is ordered by; `made`
    names what gives values out of nothing that is read; `unknown` has a reason for each thing nobody can look into.
    """

    direct: frozenset[Influence] = frozenset()
    indirect: frozenset[Influence] = frozenset()
    made: frozenset[str] = frozenset()
    unknown: frozenset[str] = frozenset()

    @property
    def is_constant(self) -> bool:
        """Whether every row has the same value, which the code says."""
        return not (self.direct or self.indirect or self.made or self.unknown)

    def used(self, how: How) -> ColumnOrigins:
        """Its origins, where it is used in the given way to compute another column.

        >>> one = ColumnOrigins(frozenset({Influence("a", "x", How.AGGREGATED)}))
        >>> [str(i) for i in one.used(How.TRANSFORMED).direct]
        ['a.x (aggregated)']
        """
        return replace(self, direct=_strongest(replace(i, how=_both(i.how, how)) for i in self.direct))

    def chooses(self, how: How) -> RowOrigins:
        """Its origins, where it decides about rows."""
        return RowOrigins(frozenset(replace(i, how=how) for i in self.direct) | self.indirect, self.unknown)


@dataclass(frozen=True, slots=True)
class RowOrigins:
    """What decides which rows there are: columns that are filtered, joined, grouped by; and what nobody can look into.

    The values of no single column come from them, and yet no column is what it is without them. `reads` are the
    datasets and sources that are read at all, also by who only counts their rows.
    """

    indirect: frozenset[Influence] = frozenset()
    unknown: frozenset[str] = frozenset()
    reads: frozenset[str] = frozenset()

    def __or__(self, other: RowOrigins) -> RowOrigins:
        return RowOrigins(self.indirect | other.indirect, self.unknown | other.unknown, self.reads | other.reads)


def together(parts: Iterable[ColumnOrigins]) -> ColumnOrigins:
    """The origins of a column that is computed from several, or comes from several flows."""
    every = list(parts)
    return ColumnOrigins(
        _strongest(i for one in every for i in one.direct),
        frozenset(i for one in every for i in one.indirect),
        frozenset(text for one in every for text in one.made),
        frozenset(text for one in every for text in one.unknown),
    )


def _both(one: How, other: How) -> How:
    return max(one, other, key=_DIRECT.index)


def _strongest(influences: Iterable[Influence]) -> frozenset[Influence]:
    """One for each column that gives values."""
    found: dict[tuple[str, str], Influence] = {}
    for each in influences:
        before = found.get((each.input, each.column))
        found[each.input, each.column] = each if before is None else replace(each, how=_both(before.how, each.how))
    return frozenset(found.values())


@dataclass(frozen=True, slots=True)
class DatasetColumns:
    """The columns of a dataset with their origins in what its flows read, and who answers for it."""

    dataset: str
    columns: Mapping[str, ColumnOrigins]
    rows: RowOrigins = RowOrigins()
    owner: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def unknown(self) -> frozenset[str]:
        """Everything that could not be looked into."""
        return self.rows.unknown.union(*(c.unknown for c in self.columns.values()))

    def as_record(self) -> dict[str, Any]:
        """As JSON has it; equal for equal lineage."""
        return {
            "dataset": self.dataset,
            "owner": self.owner,
            "tags": dict(sorted(self.tags.items())),
            "columns": {name: _column_record(one) for name, one in self.columns.items()},
            "rows": {
                "indirect": _records(self.rows.indirect),
                "unknown": sorted(self.rows.unknown),
                "reads": sorted(self.rows.reads),
            },
        }

    @classmethod
    def from_record(cls, raw: Mapping[str, Any]) -> DatasetColumns:
        """What `as_record` and JSON have made of one.

        >>> one = DatasetColumns("a", {"x": ColumnOrigins(made=frozenset({"count"}))}, owner="shop")
        >>> DatasetColumns.from_record(json.loads(json.dumps(one.as_record()))) == one
        True
        """
        rows = raw["rows"]
        return cls(
            raw["dataset"],
            {name: _column(one) for name, one in raw["columns"].items()},
            RowOrigins(_influences(rows["indirect"]), frozenset(rows["unknown"]), frozenset(rows["reads"])),
            raw["owner"],
            raw["tags"],
        )

    @property
    def digest(self) -> str:
        """Equal for two that say the same."""
        return digest(json.dumps(self.as_record(), sort_keys=True))

    def differing(self, other: DatasetColumns) -> tuple[str, ...]:
        """The columns whose origins are not those in `other`, in their order; one that only one of them has differs."""
        names = dict.fromkeys([*self.columns, *other.columns])
        return tuple(name for name in names if self.columns.get(name) != other.columns.get(name))


def merged(dataset: str, parts: Iterable[DatasetColumns]) -> DatasetColumns:
    """The columns of a dataset that several flows feed; a column that one of them lacks is null in its rows."""
    every = list(parts)
    names = dict.fromkeys(name for one in every for name in one.columns)
    columns = {name: together(one.columns[name] for one in every if name in one.columns) for name in names}
    rows = RowOrigins()
    for one in every:
        rows |= one.rows
    return DatasetColumns(dataset, columns, rows)


def through(known: Mapping[str, DatasetColumns], dataset: str, passed: Iterable[str]) -> DatasetColumns:
    """The lineage of a dataset with the datasets in `passed` replaced by what these are computed from.

    With the temporary views of a pipeline, origins are tables and sources; with all of it, they are sources only. What
    decides about the rows of a dataset that is passed decides about those computed from it.
    """
    own = known[dataset]
    wanted = {name for name in passed if name in known and name != dataset}
    done: dict[str, DatasetColumns] = {}

    def resolved(name: str) -> DatasetColumns:
        if name not in done:
            done[name] = known[name]  # two that read each other, by way of a table at rest, end here
            done[name] = spread(known[name])
        return done[name]

    def of(each: Influence) -> ColumnOrigins:
        lost = ColumnOrigins(unknown=frozenset({f'"{each.input}" had no column "{each.column}" when it was looked at'}))
        return resolved(each.input).columns.get(each.column, lost)

    def choosing(influences: Iterable[Influence]) -> RowOrigins:
        found = RowOrigins()
        for each in influences:
            found |= of(each).chooses(each.how) if each.input in wanted else RowOrigins(frozenset({each}))
        return found

    def spread(one: DatasetColumns) -> DatasetColumns:
        rows = choosing(one.rows.indirect)
        rows |= RowOrigins(unknown=one.rows.unknown, reads=frozenset(n for n in one.rows.reads if n not in wanted))
        for name in (name for name in one.rows.reads if name in wanted):
            rows |= resolved(name).rows
        return replace(one, columns={name: column(origins) for name, origins in one.columns.items()}, rows=rows)

    def column(one: ColumnOrigins) -> ColumnOrigins:
        chosen = choosing(one.indirect)
        own = ColumnOrigins(
            frozenset(i for i in one.direct if i.input not in wanted),
            chosen.indirect,
            one.made,
            one.unknown | chosen.unknown,
        )
        return together([own, *(of(i).used(i.how) for i in one.direct if i.input in wanted)])

    return spread(own)


def in_words(origins: ColumnOrigins) -> list[tuple[str, str]]:
    """What a column comes from and how, a pair for each thing; never none.

    >>> in_words(ColumnOrigins()), in_words(ColumnOrigins(unknown=frozenset({"calls a script"})))
    ([('', 'constant')], [('', 'unknown: calls a script')])
    """
    found = [(f"{i.input}.{i.column}", str(i.how)) for i in sorted(origins.direct)]
    found += [(f"{i.input}.{i.column}", f"{i.how} (indirect)") for i in sorted(origins.indirect)]
    found += [("", f"made by {text}") for text in sorted(origins.made)]
    found += [("", f"unknown: {text}") for text in sorted(origins.unknown)]
    return found or [("", "constant")]


def computed_from(known: Mapping[str, DatasetColumns], name: str, column: str) -> list[tuple[str, str, How]]:
    """The columns of datasets that a column gives values to, by way of any others, nearest first."""
    found: dict[tuple[str, str], How] = {}
    waiting = [(name, column, How.IDENTITY)]
    while waiting:
        above, of, how = waiting.pop(0)
        for dataset, lineage in known.items():
            for output, origins in lineage.columns.items():
                for each in (i for i in origins.direct if (i.input, i.column) == (above, of)):
                    if (dataset, output) not in found and (dataset, output) != (name, column):
                        found[dataset, output] = _both(how, each.how)
                        waiting.append((dataset, output, found[dataset, output]))
    return [(dataset, output, how) for (dataset, output), how in found.items()]


def _column_record(one: ColumnOrigins) -> dict[str, Any]:
    return {
        "direct": _records(one.direct),
        "indirect": _records(one.indirect),
        "made": sorted(one.made),
        "unknown": sorted(one.unknown),
    }


def _records(influences: Iterable[Influence]) -> list[list[str]]:
    return [[i.input, i.column, str(i.how)] for i in sorted(influences)]


def _column(raw: Mapping[str, Any]) -> ColumnOrigins:
    return ColumnOrigins(
        _influences(raw["direct"]), _influences(raw["indirect"]), frozenset(raw["made"]), frozenset(raw["unknown"])
    )


def _influences(raw: Iterable[list[str]]) -> frozenset[Influence]:
    return frozenset(Influence(name, column, How(how)) for name, column, how in raw)
